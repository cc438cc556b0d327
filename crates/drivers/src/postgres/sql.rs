//! Finds in SQL text what is neither quoted nor commented out: where statements end, and where
//! parameters stand.

use std::ops::Range;

/// Something found in SQL text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Its bytes.
    pub(super) at: Range<usize>,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A semicolon outside of parentheses.
    End,
    /// The place of a parameter, by its number from 1.
    Parameter(usize),
}

/// The single statements of a text, without the semicolons between them.
///
/// The server runs what comes in one message as one transaction, in which some statements, such as
/// VACUUM, cannot run; therefore they are sent one by one.
pub(super) fn statements(sql: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for mark in Marks::of(sql) {
        if mark.what == What::End {
            found.push(&sql[start..mark.at.start]);
            start = mark.at.end;
        }
    }
    found.push(&sql[start..]);
    found.retain(|statement| !statement.trim().is_empty());
    found
}

/// Walks over SQL text by PostgreSQL's lexical rules, with `standard_conforming_strings` on.
pub(super) struct Marks<'a> {
    sql: &'a [u8],
    at: usize,
    parentheses: usize,
}

impl<'a> Marks<'a> {
    pub(super) fn of(sql: &'a str) -> Self {
        Self { sql: sql.as_bytes(), at: 0, parentheses: 0 }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.sql.get(self.at + ahead).copied()
    }

    /// Moves behind the next `end`, or to the text's end.
    fn skip_past(&mut self, end: &[u8]) {
        let rest = &self.sql[self.at..];
        let found = rest.windows(end.len()).position(|window| window == end);
        self.at += found.map_or(rest.len(), |position| position + end.len());
    }

    /// Moves over bytes that a name can have.
    fn skip_name(&mut self) {
        while self.peek(0).is_some_and(|byte| is_name(byte) || byte == b'$') {
            self.at += 1;
        }
    }

    /// Moves behind the quote that ends a text in which a backslash takes the next byte's meaning.
    fn skip_escaped(&mut self) {
        while let Some(byte) = self.peek(0) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'\'' {
                break;
            }
        }
        self.at = self.at.min(self.sql.len());
    }

    /// Moves behind a comment, those inside it included.
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

    /// At a dollar sign that is no part of a name: a parameter, or a text in dollar quotes.
    fn dollar(&mut self) -> Option<Mark> {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            let mut number = 0_usize;
            while let Some(digit) = self.peek(0).filter(u8::is_ascii_digit) {
                number = number.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
                self.at += 1;
            }
            return Some(Mark { at: start..self.at, what: What::Parameter(number) });
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

impl Iterator for Marks<'_> {
    type Item = Mark;

    fn next(&mut self) -> Option<Mark> {
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                // A doubled quote inside is the end of one text and the start of the next.
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
                    if let Some(mark) = self.dollar() {
                        return Some(mark);
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
                    // Inside of them a semicolon parts the actions of a rule.
                    if self.parentheses == 0 {
                        return Some(Mark { at: self.at - 1..self.at, what: What::End });
                    }
                }
                (byte, _) if is_name(byte) => self.skip_name(),
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
    fn statements_end_at_semicolons_that_are_not_quoted() {
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
            "SELECT a$b$c",
            "SELECT type'x'",
        ] {
            assert_eq!(statements(sql), [sql]);
            assert_eq!(statements(&format!("{sql};SELECT 2")), [sql, "SELECT 2"]);
        }
        assert_eq!(statements("SELECT a$b$;SELECT c$b$"), ["SELECT a$b$", "SELECT c$b$"]);
        assert_eq!(statements("SELECT type'\\';SELECT ')'"), ["SELECT type'\\'", "SELECT ')'"]);
    }

    #[test]
    fn what_has_no_end_takes_the_rest() {
        for sql in ["'a;", "\"a;", "$$a;", "$x$a;$$", "/* a; /* */", "E'a;\\", "E'\\';", "--a;"] {
            assert_eq!(statements(sql), [sql]);
        }
    }

    #[test]
    fn parameters_are_found_where_they_mean_something() {
        let numbers = |sql| {
            Marks::of(sql)
                .filter_map(|mark| match mark.what {
                    What::Parameter(number) => Some((&sql[mark.at], number)),
                    What::End => None,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers("a = $1 AND b IN ($12,$3)"), [("$1", 1), ("$12", 12), ("$3", 3)]);
        assert_eq!(numbers("'$1' \"$2\" $$ $3 $$ --$4\n/*$5*/ a$6 E'\\'$7'"), []);
        assert_eq!(numbers("$99999999999999999999999"), [("$99999999999999999999999", usize::MAX)]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_walked_to_its_end(sql in r#"[-ae'"$;()/*\\\n1é_ ]{0,40}"#) {
            let mut end = 0;
            for mark in Marks::of(&sql) {
                assert!(mark.at.start >= end && mark.at.end <= sql.len());
                end = mark.at.end;
            }
            statements(&sql);
        }
    }
}
