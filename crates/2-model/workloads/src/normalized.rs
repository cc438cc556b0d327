//! Normalized statements: what all executions of one statement have in common.

use crate::setup::{Dialect, Lexer, Token};

/// Names that end with a digit and are not numbered.
const NAMES: [&str; 18] = [
    "utf8", "utf8mb3", "utf8mb4", "latin1", "md5", "sha1", "sha2", "crc32", "log2", "log10",
    "atan2", "int1", "int2", "int4", "int8", "float4", "float8", "base64",
];

/// The statement with `?` for each literal, `N` for the digits at the end of a name (`sbtest7` is `sbtestN`), one
/// element for a list of them, and single spaces, without comments.
pub fn normalized(sql: &str, dialect: Dialect) -> String {
    let mut text = String::with_capacity(sql.len());
    let mut lexer = Lexer::new(sql, dialect);
    let mut next = lexer.next();
    while let Some(token) = next {
        next = lexer.next();
        match token {
            Token::Space => {
                // In MySQL, `--` before a space starts a comment, and `--` before a comment does not.
                if !text.is_empty() && !text.ends_with(' ') && !text.ends_with("--") {
                    text.push(' ');
                }
            }
            Token::Word(word) if is_number(word) => {
                // 1.5 and 1e-5 are several tokens.
                let mut last = word;
                while let Some(Token::Other(sign)) = next
                    && (sign == "." || (sign == "-" || sign == "+") && last.ends_with(['e', 'E']))
                    && let Some(part) = lexer.next_number()
                {
                    (last, next) = (part, lexer.next());
                }
                // `= -5` is the same statement as `= 5`.
                let before = text.strip_suffix('-').map(str::trim_end);
                if before.is_some_and(|before| before.ends_with(['=', '<', '>', '(', ','])) {
                    text.pop();
                }
                text.push('?');
            }
            Token::Word(word) => push_name(&mut text, word),
            Token::Other(other) if is_string(other, dialect) => text.push('?'),
            Token::Other(other) => match other.strip_suffix(['`', '"']) {
                Some(name) if !name.is_empty() && other[name.len()..] == other[..1] => {
                    push_name(&mut text, name);
                    text.push_str(&other[name.len()..]);
                }
                _ => text.push_str(other),
            },
        }
    }
    // In MySQL, `--` starts a comment at the end of a text only.
    with_short_lists(text.trim_end_matches([' ', ';', '-']))
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a token is a string; quoted names and executed comments are not.
fn is_string(token: &str, dialect: Dialect) -> bool {
    match token.as_bytes() {
        [b'\'', ..] | [b'e' | b'E', b'\'', ..] => true,
        [b'"', ..] => dialect == Dialect::MySql,
        [b'$', _, ..] => true,
        _ => false,
    }
}

fn push_name(text: &mut String, name: &str) {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_numbered = start.len() < name.len();
    if is_numbered && !NAMES.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        text.push_str(start);
        text.push('N');
    } else {
        text.push_str(name);
    }
}

/// The text with `(?, …)` for a list of literals, and `(?, …), …` for several such lists.
fn with_short_lists(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('(') {
        short.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some((list, after)) = list(rest) else {
            short.push('(');
            rest = &rest[1..];
            continue;
        };
        short.push_str(list);
        rest = after;
        let mut is_repeated = false;
        while let Some(after) = next_list(rest) {
            (rest, is_repeated) = (after, true);
        }
        if is_repeated {
            short.push_str(", …");
        }
    }
    short.push_str(rest);
    short
}

/// The list of literals at the start of a text, shortened, and what follows it. Text that was cut ends within one.
fn list(text: &str) -> Option<(&'static str, &str)> {
    let mut rest = text.strip_prefix('(')?.trim_start().strip_prefix('?')?.trim_start();
    let mut short = "(?)";
    while let Some(element) = rest.strip_prefix(',').map(str::trim_start) {
        if element.is_empty() {
            return Some(("(?, …)", element));
        }
        rest = element.strip_prefix(['?', '…'])?.trim_start();
        short = "(?, …)";
    }
    if rest.is_empty() { Some((short, rest)) } else { Some((short, rest.strip_prefix(')')?)) }
}

/// What follows the next list, or the sign for several.
fn next_list(text: &str) -> Option<&str> {
    let next = text.trim_start().strip_prefix(',')?.trim_start();
    match next.strip_prefix('…') {
        Some(after) => Some(after),
        None if next == "(" || next.is_empty() => Some(""),
        None => list(next).map(|(_, after)| after),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIALECTS: [Dialect; 3] = [Dialect::MySql, Dialect::PostgreSql, Dialect::Sqlite];

    #[test]
    fn literals_and_numbers_of_names_are_replaced() {
        let cases = [
            ("SELECT c FROM sbtest7 WHERE id=5021", "SELECT c FROM sbtestN WHERE id=?"),
            ("SELECT c FROM sbtest12 WHERE id=?", "SELECT c FROM sbtestN WHERE id=?"),
            (" select a.c1  \n, 'x''y' /* no */ from `t 1` a;", "select a.cN , ? from `t N` a"),
            ("WHERE a IN (1, 2,3) AND b = (4)", "WHERE a IN (?, …) AND b = (?)"),
            (
                "INSERT INTO t1(id,k) VALUES (0, 'a'),(1, 'b') , (2, 'c')",
                "INSERT INTO tN(id,k) VALUES (?, …), …",
            ),
            ("VALUES (1, 'a'), (2, 'b'), (3", "VALUES (?, …), …"),
            ("VALUES (1, 'a'), (", "VALUES (?, …), …"),
            ("x = -1.5 AND y > 1e-5 AND z < 0x1F AND k=k-1", "x = ? AND y > ? AND z < ? AND k=k-?"),
            ("SET NAMES utf8mb4", "SET NAMES utf8mb4"),
            ("COMMIT", "COMMIT"),
            ("", ""),
        ];
        for (sql, expected) in cases {
            for dialect in [Dialect::MySql, Dialect::PostgreSql] {
                assert_eq!(normalized(sql, dialect), expected, "{dialect:?}");
            }
        }
        assert_eq!(normalized(r#"SELECT "a1", 'it\'s' x"#, Dialect::MySql), "SELECT ?, ? x");
        assert_eq!(
            normalized(r#"SELECT "a1", E'it\'s', $$x$$, $1"#, Dialect::PostgreSql),
            r#"SELECT "aN", ?, ?, $?"#
        );
    }

    proptest! {
        #[test]
        fn any_text_is_normalized_once(
            text in r#"([-+aeEN'"$`;()/*!\\\n,.=1é_#?… ]|sbtest1|1\.5|'x'|\(1, 2\)|, \(|a1b2){0,30}"#
        ) {
            for dialect in DIALECTS {
                let once = normalized(&text, dialect);
                prop_assert_eq!(&normalized(&once, dialect), &once);
            }
        }
    }
}
