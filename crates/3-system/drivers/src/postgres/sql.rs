//! Finds ends of statements and parameters in SQL text, outside quotes and comments.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) at: Range<usize>,
    pub(super) kind: TokenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A semicolon outside parentheses and bodies of routines.
    End,
    /// A parameter with its number, from 1.
    Parameter(usize),
}

/// Splits a text into statements, without the semicolons.
///
/// The server executes one message as one transaction, in which some statements, such as VACUUM, are not
/// allowed. Hence each statement is sent in a separate message.
pub(super) fn statements(sql: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for token in Tokens::of(sql.as_bytes()) {
        if token.kind == TokenKind::End {
            found.push(&sql[start..token.at.start]);
            start = token.at.end;
        }
    }
    found.push(&sql[start..]);
    found.retain(|statement| !statement.trim().is_empty());
    found
}

/// Scans SQL text by PostgreSQL's lexical rules, with `standard_conforming_strings` on.
pub(super) struct Tokens<'a> {
    sql: &'a [u8],
    at: usize,
    parentheses: usize,
    words: Words,
}

/// The words of a statement so far, outside parentheses.
#[derive(Default)]
struct Words {
    count: usize,
    /// The first one is CREATE.
    is_create: bool,
    /// It creates a function or a procedure, whose body may have semicolons between BEGIN ATOMIC and END.
    is_routine: bool,
    /// Depth of BEGIN and CASE in the body.
    depth: usize,
}

impl Words {
    fn add(&mut self, word: &[u8]) {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword.as_bytes());
        match self.count {
            0 => self.is_create = is("CREATE"),
            // After CREATE or CREATE OR REPLACE.
            1 | 3 if self.is_create => self.is_routine |= is("FUNCTION") || is("PROCEDURE"),
            _ => {}
        }
        self.count += 1;
        if self.is_routine && (is("BEGIN") || is("CASE") && self.depth > 0) {
            self.depth += 1;
        } else if is("END") {
            self.depth = self.depth.saturating_sub(1);
        }
    }
}

impl<'a> Tokens<'a> {
    pub(super) fn of(sql: &'a [u8]) -> Self {
        Self { sql, at: 0, parentheses: 0, words: Words::default() }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.sql.get(self.at + ahead).copied()
    }

    /// Moves after the next `end`, or to the end of the text.
    fn skip_past(&mut self, end: &[u8]) {
        let rest = &self.sql[self.at..];
        let found = rest.windows(end.len()).position(|window| window == end);
        self.at += found.map_or(rest.len(), |position| position + end.len());
    }

    /// Moves after a word.
    fn skip_word(&mut self) {
        let start = self.at;
        while self.peek(0).is_some_and(|byte| is_name(byte) || byte == b'$') {
            self.at += 1;
        }
        if self.parentheses == 0 {
            self.words.add(&self.sql[start..self.at]);
        }
    }

    /// Moves after the closing quote of an escape string.
    fn skip_escaped(&mut self) {
        while let Some(byte) = self.peek(0) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'\'' {
                break;
            }
        }
        self.at = self.at.min(self.sql.len());
    }

    /// Moves after a comment, which may be nested.
    fn skip_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.sql.len() {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// At a dollar sign that does not belong to an identifier: a parameter or a dollar-quoted string.
    fn dollar(&mut self) -> Option<Token> {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            let mut number = 0_usize;
            while let Some(digit) = self.peek(0).filter(u8::is_ascii_digit) {
                number = number.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
                self.at += 1;
            }
            return Some(Token { at: start..self.at, kind: TokenKind::Parameter(number) });
        }
        while self.peek(0).is_some_and(is_name) {
            self.at += 1;
        }
        if self.peek(0) == Some(b'$') {
            self.at += 1;
            let tag = &self.sql[start..self.at];
            self.skip_past(tag);
        }
        None
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                // A doubled quote ends one string and starts the next.
                (b'\'' | b'"', _) => {
                    self.at += 1;
                    self.skip_past(&[byte]);
                }
                (b'e' | b'E', Some(b'\'')) => {
                    self.at += 2;
                    self.skip_escaped();
                }
                (b'-', Some(b'-')) => self.skip_past(b"\n"),
                (b'/', Some(b'*')) => self.skip_comment(),
                (b'$', _) => {
                    if let Some(token) = self.dollar() {
                        return Some(token);
                    }
                }
                (b'(', _) => {
                    self.parentheses += 1;
                    self.at += 1;
                }
                (b')', _) => {
                    self.parentheses = self.parentheses.saturating_sub(1);
                    self.at += 1;
                }
                (b';', _) => {
                    self.at += 1;
                    // In parentheses a semicolon separates the actions of a rule.
                    if self.parentheses == 0 && self.words.depth == 0 {
                        self.words = Words::default();
                        return Some(Token { at: self.at - 1..self.at, kind: TokenKind::End });
                    }
                }
                (byte, _) if is_name(byte) => self.skip_word(),
                _ => self.at += 1,
            }
        }
        None
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_unquoted_semicolons() {
        assert_eq!(statements(" ; \n;"), [""; 0]);
        for sql in [
            "SELECT 'a;b'",
            "SELECT 'it''s; here'",
            r"SELECT 'backslash\', b",
            r"SELECT E'it\'s; here'",
            r"SELECT e'\\'",
            "SELECT 1 AS \"a;b\"\"c;\"",
            "SELECT 1 -- one; two\n",
            "SELECT 1 /* one; /* two; */ three; */ + 1",
            "DO $$ BEGIN; END; $$",
            "DO $body$ BEGIN; $$; END; $body$",
            "DO $ä$;$ä$",
            "CREATE RULE r AS ON INSERT TO t DO (DELETE FROM u; DELETE FROM v)",
            "CREATE FUNCTION f(a int) RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN a = 1 \
             THEN 2 END; END",
            "create or replace procedure p() begin atomic delete from t; insert into t values (1); end",
            "SELECT a$b$c",
            "SELECT type'x'",
        ] {
            assert_eq!(statements(sql), [sql]);
            assert_eq!(statements(&format!("{sql};SELECT 2")), [sql, "SELECT 2"]);
        }
        for [first, second] in [
            ["BEGIN", "END"],
            ["CREATE FUNCTION f() RETURNS int RETURN 1", "BEGIN"],
            ["CREATE TABLE t (function int, procedure int, begin int)", "SELECT begin FROM t"],
        ] {
            assert_eq!(statements(&format!("{first};{second}")), [first, second]);
        }
        assert_eq!(statements("SELECT a$b$;SELECT c$b$"), ["SELECT a$b$", "SELECT c$b$"]);
        assert_eq!(statements("SELECT type'\\';SELECT ')'"), ["SELECT type'\\'", "SELECT ')'"]);
    }

    #[test]
    fn unterminated_quotes_extend_to_the_end() {
        for sql in ["'a;", "\"a;", "$$a;", "$x$a;$$", "/* a; /* */", "E'a;\\", "E'\\';", "--a;"] {
            assert_eq!(statements(sql), [sql]);
        }
    }

    #[test]
    fn parameters_are_found_outside_quotes_and_comments() {
        let numbers = |sql: &'static str| {
            Tokens::of(sql.as_bytes())
                .filter_map(|token| match token.kind {
                    TokenKind::Parameter(number) => Some((&sql[token.at], number)),
                    TokenKind::End => None,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers("a = $1 AND b IN ($12,$3)"), [("$1", 1), ("$12", 12), ("$3", 3)]);
        assert_eq!(numbers("'$1' \"$2\" $$ $3 $$ --$4\n/*$5*/ a$6 E'\\'$7'"), []);
        assert_eq!(numbers("$99999999999999999999999"), [("$99999999999999999999999", usize::MAX)]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_scanned_to_its_end(sql in r#"[-ae'"$;()/*\\\n1é_ ]{0,40}"#) {
            let mut end = 0;
            for token in Tokens::of(sql.as_bytes()) {
                assert!(token.at.start >= end && token.at.end <= sql.len());
                end = token.at.end;
            }
            statements(&sql);
        }
    }
}
