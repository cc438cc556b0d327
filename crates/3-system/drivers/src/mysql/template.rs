use std::ops::Range;

use crate::{Param, Params};

/// A statement with placeholders, sent as text.
pub(super) struct Template {
    sql: String,
    /// The text between placeholders; one range more than placeholders.
    parts: Vec<Range<usize>>,
}

impl Template {
    /// Finds the placeholders: question marks outside strings, quoted identifiers and comments.
    pub(super) fn new(sql: &str, plain_backslashes: bool) -> Self {
        let bytes = sql.as_bytes();
        let mut parts = Vec::new();
        let mut start = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let rest = &bytes[at..];
            at += match byte {
                b'?' => {
                    parts.push(start..at);
                    start = at + 1;
                    1
                }
                b'\'' | b'"' => quoted(rest, byte, !plain_backslashes),
                b'`' => quoted(rest, byte, false),
                b'#' => until(rest, b"\n"),
                b'-' if rest.starts_with(b"--")
                    && rest.get(2).is_none_or(|after| after.is_ascii_whitespace()) =>
                {
                    until(rest, b"\n")
                }
                b'/' if rest.starts_with(b"/*") => 2 + until(&rest[2..], b"*/"),
                _ => 1,
            };
        }
        parts.push(start..sql.len());
        Self { sql: sql.to_owned(), parts }
    }

    /// Number of placeholders.
    #[inline]
    pub(super) fn params(&self) -> usize {
        self.parts.len() - 1
    }

    /// Appends the SQL with the values inserted.
    #[inline]
    pub(super) fn write(&self, params: &Params, plain_backslashes: bool, into: &mut Vec<u8>) {
        let sql = self.sql.as_bytes();
        let mut values = params.values().iter();
        for part in &self.parts {
            into.extend_from_slice(&sql[part.clone()]);
            match values.next() {
                Some(&Param::Int(value)) => {
                    into.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
                }
                Some(Param::Null) => into.extend_from_slice(b"NULL"),
                Some(&Param::Text { start, len }) => {
                    put_literal(params.text(start, len), plain_backslashes, into);
                }
                None => {}
            }
        }
    }
}

/// Appends a string literal. In UTF-8 no byte of a multi-byte character equals a quote.
#[inline]
fn put_literal(text: &[u8], plain_backslashes: bool, into: &mut Vec<u8>) {
    into.push(b'\'');
    let mut left = text;
    while let Some(at) =
        left.iter().position(|byte| *byte == b'\'' || (*byte == b'\\' && !plain_backslashes))
    {
        into.extend_from_slice(&left[..=at]);
        into.push(left[at]);
        left = &left[at + 1..];
    }
    into.extend_from_slice(left);
    into.push(b'\'');
}

/// Length of a text quoted with `quote`. A doubled quote counts as two adjacent texts.
fn quoted(text: &[u8], quote: u8, backslashes: bool) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        at += match byte {
            b'\\' if backslashes => 2,
            byte if byte == quote => return at + 1,
            _ => 1,
        };
    }
    text.len()
}

/// Length up to and including `end`.
fn until(text: &[u8], end: &[u8]) -> usize {
    let found = text.windows(end.len()).position(|window| window == end);
    found.map_or(text.len(), |at| at + end.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(sql: &str, params: &Params) -> String {
        let template = Template::new(sql, false);
        let mut text = Vec::new();
        template.write(params, false, &mut text);
        String::from_utf8(text).unwrap()
    }

    fn placeholders(sql: &str) -> usize {
        Template::new(sql, false).params()
    }

    #[test]
    fn values_replace_question_marks() {
        let mut params = Params::default();
        params.push_int(-5);
        params.push_null();
        params.push_text("it's \\ häßlich".as_bytes());
        assert_eq!(
            written("UPDATE t SET c = ?, e = ?, d = 'why?' WHERE id = -? -- really?", &params),
            "UPDATE t SET c = -5, e = NULL, d = 'why?' WHERE id = -'it''s \\\\ häßlich' -- really?"
        );
    }

    #[test]
    fn only_placeholders_are_counted() {
        assert_eq!(placeholders("SELECT 1"), 0);
        assert_eq!(placeholders("?,?,?"), 3);
        assert_eq!(placeholders("'a\\'?' ?"), 1);
        assert_eq!(placeholders("'a''?' \"?\" `?` ?"), 1);
        assert_eq!(placeholders("/* ? */ ? # ?\n ?"), 2);
        assert_eq!(placeholders("a--? -- ?"), 1);
        assert_eq!(placeholders("'?"), 0);
        assert_eq!(placeholders("/*/?"), 0);
        assert_eq!(Template::new("'a\\' ?", true).params(), 1);
    }

    #[test]
    fn smallest_integer_is_written_in_full() {
        let mut params = Params::default();
        params.push_int(i64::MIN);
        assert_eq!(written("?", &params), "-9223372036854775808");
    }

    proptest! {
        #[test]
        fn no_text_breaks_out_of_its_literal(text in "[a'\\\\\"?é]{0,20}", plain in any::<bool>()) {
            let mut literal = Vec::new();
            put_literal(text.as_bytes(), plain, &mut literal);
            prop_assert_eq!(quoted_fully(&literal, plain), Some(text.into_bytes()));
        }
    }

    /// Parses a literal as the server does; `None` if it ends early or not at all.
    fn quoted_fully(literal: &[u8], plain: bool) -> Option<Vec<u8>> {
        let inner = literal.strip_prefix(b"'")?.strip_suffix(b"'")?;
        let mut text = Vec::new();
        let mut bytes = inner.iter();
        while let Some(&byte) = bytes.next() {
            match byte {
                b'\'' if bytes.next() != Some(&b'\'') => return None,
                b'\\' if !plain => text.push(*bytes.next()?),
                byte => text.push(byte),
            }
        }
        Some(text)
    }
}
