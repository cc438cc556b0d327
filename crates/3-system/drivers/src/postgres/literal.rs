//! Statements in text mode: values are inserted into the SQL text as literals.

use super::parameter_error::ParameterError;
use super::sql::{TokenKind, Tokens};
use super::wire::put;
use crate::{Param, Params};

/// A statement with placeholders.
pub(super) struct Template {
    /// The text before each placeholder, and the index of its parameter.
    parts: Vec<(String, usize)>,
    /// The text after the last placeholder.
    rest: String,
    /// Number of parameters.
    parameters: usize,
}

impl Template {
    /// The server must have accepted `sql` as one statement with this number of parameters.
    pub(super) fn new(sql: &str, parameters: usize) -> Self {
        let mut parts = Vec::new();
        let mut start = 0;
        for token in Tokens::of(sql) {
            if let TokenKind::Parameter(number) = token.kind {
                parts.push((sql[start..token.at.start].to_owned(), number.saturating_sub(1)));
                start = token.at.end;
            }
        }
        Self { parts, rest: sql[start..].to_owned(), parameters }
    }

    /// Replaces `out` with the request for these values.
    ///
    /// # Errors
    /// The number of values is wrong, or a value cannot be written as a literal.
    pub(super) fn write(&self, out: &mut Vec<u8>, params: &Params) -> Result<(), ParameterError> {
        out.clear();
        let values = params.values();
        if values.len() != self.parameters {
            return Err(ParameterError::wrong_count(self.parameters, values.len()));
        }
        let mut outcome = Ok(());
        put(out, b'Q', |out| {
            for (before, parameter) in &self.parts {
                out.extend_from_slice(before.as_bytes());
                let put = match values.get(*parameter) {
                    Some(value) => put_literal(out, *value, params),
                    None => Err(ParameterError::Unknown(parameter + 1)),
                };
                if put.is_err() {
                    outcome = put;
                }
            }
            out.extend_from_slice(self.rest.as_bytes());
            out.push(0);
        });
        outcome
    }
}

fn put_literal(out: &mut Vec<u8>, value: Param, params: &Params) -> Result<(), ParameterError> {
    match value {
        Param::Null => out.extend_from_slice(b"NULL"),
        Param::Int(value) => {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(value).as_bytes();
            // After a minus sign, a second one would start a comment.
            if value < 0 {
                out.push(b'(');
                out.extend_from_slice(digits);
                out.push(b')');
            } else {
                out.extend_from_slice(digits);
            }
        }
        Param::Text { start, len } => put_quoted(out, params.text(start, len))?,
    }
    Ok(())
}

/// Appends a quoted literal. Backslashes are not special, because the login sets
/// `standard_conforming_strings`.
fn put_quoted(out: &mut Vec<u8>, text: &[u8]) -> Result<(), ParameterError> {
    if text.contains(&0) {
        return Err(ParameterError::ZeroByte);
    }
    out.push(b'\'');
    for (position, piece) in text.split(|byte| *byte == b'\'').enumerate() {
        if position > 0 {
            out.extend_from_slice(b"''");
        }
        out.extend_from_slice(piece);
    }
    out.push(b'\'');
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(sql: &str, parameters: usize, params: &Params) -> String {
        let mut out = b"left over".to_vec();
        Template::new(sql, parameters).write(&mut out, params).unwrap();
        assert_eq!(out[0], b'Q');
        assert_eq!(out[1..5], (out.len() as u32 - 1).to_be_bytes());
        assert_eq!(out.pop(), Some(0));
        String::from_utf8(out.split_off(5)).unwrap()
    }

    #[test]
    fn values_replace_parameters() {
        let mut params = Params::default();
        params.push_int(-5);
        params.push_text(b"it's \\ $1");
        assert_eq!(
            written("SELECT '$1', $2, 3 -$1, $1 -- $2", 2, &params),
            "SELECT '$1', 'it''s \\ $1', 3 -(-5), (-5) -- $2"
        );
        assert_eq!(written("BEGIN", 0, &Params::default()), "BEGIN");
    }

    #[test]
    fn values_that_cannot_be_literals_are_rejected() {
        let mut params = Params::default();
        params.push_text(b"a\0b");
        let mut out = Vec::new();
        Template::new("SELECT $1", 1).write(&mut out, &params).unwrap_err();
        Template::new("SELECT $2", 1).write(&mut out, &params).unwrap_err();
        Template::new("SELECT 1", 0).write(&mut out, &params).unwrap_err();
    }

    /// Parses a literal as the server does.
    fn unquoted(literal: &str) -> (String, &str) {
        let mut text = String::new();
        let mut rest = literal.strip_prefix('\'').unwrap();
        loop {
            let (piece, after) = rest.split_once('\'').unwrap();
            text.push_str(piece);
            match after.strip_prefix('\'') {
                Some(more) => {
                    text.push('\'');
                    rest = more;
                }
                None => return (text, after),
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_quoting(text in r#"[^\x00]{0,20}|['\\"$;-]{0,10}"#) {
            let mut params = Params::default();
            params.push_text(text.as_bytes());
            let sql = written("SELECT $1; --", 1, &params);
            let (read, rest) = unquoted(sql.strip_prefix("SELECT ").unwrap());
            prop_assert_eq!(read, text);
            prop_assert_eq!(rest, "; --");
        }
    }
}
