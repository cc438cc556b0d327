//! Splits a statement's SQL into text, tables and parameters.

/// A part of a definition's SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlPart<'a> {
    /// SQL, copied unchanged.
    Text(&'a str),
    /// `{table}`.
    Table,
    /// `:name`.
    Parameter(&'a str),
}

const TABLE: &str = "{table}";

/// Start and end of quotes and comments.
const ENCLOSED: [(&str, &str); 5] =
    [("'", "'"), ("\"", "\""), ("`", "`"), ("--", "\n"), ("/*", "*/")];

/// Splits a definition's SQL at `{table}` and `:name`.
///
/// Colons in casts (`k::text`), assignments (`:=`), slices (`a[1:2]`), quotes and comments do not
/// start a parameter. As in the SQL standard, a quote inside quotes is doubled, and a backslash
/// has no special meaning. `{table}` is replaced everywhere, also in quotes, because some systems
/// require quoted names.
pub fn split_sql(sql: &str) -> Vec<SqlPart<'_>> {
    let mut parts = Vec::new();
    let (mut at, mut text_start) = (0, 0);
    // The end marker of the quotes or comment that contains `at`.
    let mut end_of_enclosed: Option<&str> = None;
    while let Some(first) = sql[at..].chars().next() {
        let rest = &sql[at..];
        let mut length = first.len_utf8();
        let mut part = None;
        if rest.starts_with(TABLE) {
            part = Some((SqlPart::Table, TABLE.len()));
        } else if let Some(end) = end_of_enclosed {
            if rest.starts_with(end) {
                end_of_enclosed = None;
                length = end.len();
            }
        } else if let Some((start, end)) =
            ENCLOSED.iter().find(|(start, _)| rest.starts_with(start))
        {
            end_of_enclosed = Some(*end);
            length = start.len();
        } else if let Some(name) = parameter(sql, at) {
            part = Some((SqlPart::Parameter(name), 1 + name.len()));
        }
        if let Some((part, its_length)) = part {
            push_text(&mut parts, &sql[text_start..at]);
            parts.push(part);
            length = its_length;
            text_start = at + length;
        }
        at += length;
    }
    push_text(&mut parts, &sql[text_start..]);
    parts
}

fn push_text<'a>(parts: &mut Vec<SqlPart<'a>>, text: &'a str) {
    if !text.is_empty() {
        parts.push(SqlPart::Text(text));
    }
}

/// The name of the parameter whose colon is at byte `at`, if any.
fn parameter(sql: &str, at: usize) -> Option<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let after = sql[at..].strip_prefix(':')?;
    let name = &after[..after.find(|c| !is_word(c)).unwrap_or(after.len())];
    let before = sql[..at].chars().next_back();
    let is_cast = before == Some(':');
    let is_slice = name.starts_with(|c: char| c.is_ascii_digit()) && before.is_some_and(is_word);
    (!name.is_empty() && !is_cast && !is_slice).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SqlPart::{Parameter, Table, Text};
    use super::*;

    #[test]
    fn splits_at_tables_and_parameters() {
        assert_eq!(
            split_sql("SELECT a FROM {table} WHERE id=:id AND k IN (:ks)"),
            [
                Text("SELECT a FROM "),
                Table,
                Text(" WHERE id="),
                Parameter("id"),
                Text(" AND k IN ("),
                Parameter("ks"),
                Text(")"),
            ]
        );
        assert_eq!(split_sql(":a:b"), [Parameter("a"), Parameter("b")]);
        assert_eq!(split_sql(""), []);
    }

    #[test]
    fn other_colons_are_text() {
        for text in [
            "a : {b}",
            "k::text",
            "k :: text",
            "a[1:2]",
            "@a := 1",
            "'12:30'",
            "'it''s :x' ':y'",
            r"'a\' AS b",
            "\"a:b\"",
            "`a:b`",
            "'\":x'",
            "1 -- :x 'y",
            "1 -- it's\n+ 1",
            "1 /* :x ' */",
            "'never closed :x",
            ":",
            "é:",
        ] {
            assert_eq!(split_sql(text), [Text(text)], "{text}");
        }
    }

    #[test]
    fn parameters_are_found_after_quotes_and_casts() {
        assert_eq!(split_sql("':x' = :x"), [Text("':x' = "), Parameter("x")]);
        assert_eq!(split_sql("-- :x\n:x"), [Text("-- :x\n"), Parameter("x")]);
        assert_eq!(split_sql("/*:x*/:x"), [Text("/*:x*/"), Parameter("x")]);
        assert_eq!(split_sql(":a::text"), [Parameter("a"), Text("::text")]);
        assert_eq!(split_sql(r"'\':x"), [Text(r"'\'"), Parameter("x")]);
        assert_eq!(split_sql("`{table}`.:x"), [Text("`"), Table, Text("`."), Parameter("x")]);
    }

    proptest! {
        #[test]
        fn parts_joined_equal_the_input(sql in "[a1_ :'\"`/*{}\\[\\]\n-]{0,20}|[\\s\\S]*|.*\\{table\\}.*") {
            let joined: String = split_sql(&sql)
                .into_iter()
                .map(|part| match part {
                    Text(text) => text.to_owned(),
                    Table => TABLE.to_owned(),
                    Parameter(name) => format!(":{name}"),
                })
                .collect();
            prop_assert_eq!(joined, sql);
        }
    }
}
