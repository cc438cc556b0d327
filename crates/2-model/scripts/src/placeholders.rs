//! Placeholders in the SQL of scripts.

use crate::state::Driver;

/// SQL in which each `?` outside of quotes is replaced: `replace` appends the text for the one with this number,
/// from 1.
#[must_use]
pub fn replace_placeholders(
    sql: &str,
    driver: Driver,
    mut replace: impl FnMut(usize, &mut String),
) -> String {
    let mut text = String::with_capacity(sql.len());
    let (mut quote, mut number) = (None, 0);
    let mut left = sql.chars();
    while let Some(c) = left.next() {
        match (quote, c) {
            (None, '?') => {
                number += 1;
                replace(number, &mut text);
                continue;
            }
            (None, '\'' | '"' | '`') => quote = Some(c),
            (Some('\'' | '"'), '\\') if driver == Driver::MySql => {
                text.push(c);
                text.extend(left.next());
                continue;
            }
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(sql: &str, driver: Driver) -> String {
        replace_placeholders(sql, driver, |number, text| text.push_str(&format!("${number}")))
    }

    #[test]
    fn placeholders_in_quotes_are_kept() {
        let sql = "SELECT '?', \"a?\", `?`, 'it''s ?' FROM t WHERE a = ? AND b = ?";
        let expected = "SELECT '?', \"a?\", `?`, 'it''s ?' FROM t WHERE a = $1 AND b = $2";
        for driver in [Driver::MySql, Driver::PostgreSql] {
            assert_eq!(numbered(sql, driver), expected);
        }
    }

    #[test]
    fn backslash_escapes_a_quote_in_mysql_only() {
        assert_eq!(numbered(r"SELECT '\'?', ?", Driver::MySql), r"SELECT '\'?', $1");
        assert_eq!(numbered(r"SELECT '\', ?", Driver::PostgreSql), r"SELECT '\', $1");
    }
}
