//! Statements and the requests that execute them: Bind, Execute and Sync, or SQL text with literals.

use dbdyno_types::server::StatementMode;

use super::channel::{Fields, Malformed, put, put_text, set_length};
use super::reply::{ColumnType, each_column, oid};
use super::sql::{TokenKind, Tokens};
use crate::{Param, Params};

pub(super) struct Statement {
    pub(super) sql: Vec<u8>,
    /// Its name on the server; `None` in text mode.
    pub(super) name: Option<String>,
    pub(super) columns: Vec<ColumnType>,
    request: Request,
}

enum Request {
    Bind(Bind),
    Text(Template),
    /// The SQL without parameters, as it is.
    Plain,
}

/// The types of a statement's parameters and columns, as the server describes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) parameters: Vec<u32>,
    pub(super) columns: Vec<u32>,
}

impl Description {
    pub(super) fn read_parameters(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(body);
        let count = fields.count()?;
        self.parameters = (0..count).map(|_| fields.number()).collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(super) fn read_columns(&mut self, body: &[u8]) -> Result<(), Malformed> {
        self.columns.clear();
        each_column(body, |kind| self.columns.push(kind))
    }
}

impl Statement {
    /// `name` is its name on the server in [`StatementMode::Prepared`].
    pub(super) fn new(
        sql: &[u8],
        name: String,
        mode: StatementMode,
        description: &Description,
    ) -> Self {
        let Description { parameters, columns } = description;
        let (name, request) = match mode {
            StatementMode::Prepared => {
                let bind = Bind::new(&name, parameters, columns);
                (Some(name), Request::Bind(bind))
            }
            StatementMode::Text => (None, Request::Text(Template::new(sql, parameters.len()))),
        };
        Self {
            sql: sql.to_owned(),
            name,
            columns: columns.iter().map(|kind| ColumnType::of(*kind, mode)).collect(),
            request,
        }
    }

    /// SQL text that is executed as it is.
    pub(super) fn plain(sql: &[u8]) -> Self {
        Self { sql: sql.to_owned(), name: None, columns: Vec::new(), request: Request::Plain }
    }

    /// Replaces `out` with the request to execute it with these values.
    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>, params: &Params) -> Result<(), ParameterError> {
        match &self.request {
            Request::Bind(bind) => bind.write(out, params),
            Request::Text(template) => template.write(out, params),
            Request::Plain => {
                out.clear();
                put(out, b'Q', |out| put_text(out, &self.sql));
                Ok(())
            }
        }
    }
}

/// Execute of the unnamed portal without a limit of rows, then Sync.
const EXECUTE_AND_SYNC: &[u8] = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

const AS_TEXT: u16 = 0;
const AS_BINARY: u16 = 1;

/// How a parameter is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// Two bytes, binary.
    Int2,
    /// Four bytes, binary.
    Int4,
    /// Eight bytes, binary.
    Int8,
    /// Text, which is also the binary form of a text. The server converts it to any other type.
    Text,
}

impl Parameter {
    pub(super) fn of(kind: u32) -> Self {
        match kind {
            oid::INT2 => Self::Int2,
            oid::INT4 => Self::Int4,
            oid::INT8 => Self::Int8,
            _ => Self::Text,
        }
    }

    fn format(self) -> u16 {
        if self == Self::Text { AS_TEXT } else { AS_BINARY }
    }

    /// Appends length and value; `None` if the value does not have this type.
    #[inline(always)]
    fn put(self, out: &mut Vec<u8>, param: Param, params: &Params) -> Option<()> {
        match (self, param) {
            (_, Param::Null) => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            (Self::Int4, Param::Int(value)) => {
                let value = i32::try_from(value).ok()?;
                let mut bytes = [0, 0, 0, 4, 0, 0, 0, 0];
                bytes[4..].copy_from_slice(&value.to_be_bytes());
                // Length and value in one write: an in-list has a thousand of them.
                out.extend_from_slice(&bytes);
            }
            (Self::Int8, Param::Int(value)) => {
                let mut bytes = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
                bytes[4..].copy_from_slice(&value.to_be_bytes());
                out.extend_from_slice(&bytes);
            }
            (Self::Text, Param::Text { start, len }) => put_value(out, params.text(start, len))?,
            (Self::Int2, Param::Int(value)) => {
                put_value(out, &i16::try_from(value).ok()?.to_be_bytes())?
            }
            (Self::Text, Param::Int(value)) => {
                put_value(out, itoa::Buffer::new().format(value).as_bytes())?;
            }
            (Self::Int2 | Self::Int4 | Self::Int8, Param::Text { .. }) => return None,
        }
        Some(())
    }
}

#[inline(always)]
fn put_value(out: &mut Vec<u8>, value: &[u8]) -> Option<()> {
    let length = i32::try_from(value.len()).ok()?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
    Some(())
}

/// Builds the requests of one prepared statement.
pub(super) struct Bind {
    parameters: Vec<Parameter>,
    /// Bind up to the number of parameters.
    head: Vec<u8>,
    /// The result formats, at the end of Bind.
    formats: Vec<u8>,
}

impl Bind {
    /// For the statement with this name; parameters and columns are given by their types.
    pub(super) fn new(name: &str, parameters: &[u32], columns: &[u32]) -> Self {
        let parameters: Vec<_> = parameters.iter().copied().map(Parameter::of).collect();
        let mut head = Vec::new();
        put(&mut head, b'B', |out| {
            put_text(out, "");
            put_text(out, name);
            put_formats(out, parameters.iter().map(|parameter| parameter.format()));
            out.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        });
        let mut formats = Vec::new();
        put_formats(&mut formats, columns.iter().map(|kind| Parameter::of(*kind).format()));
        Self { parameters, head, formats }
    }

    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>, params: &Params) -> Result<(), ParameterError> {
        out.clear();
        out.extend_from_slice(&self.head);
        let values = params.values();
        if values.len() != self.parameters.len() {
            return Err(ParameterError::wrong_count(self.parameters.len(), values.len()));
        }
        for (position, (parameter, param)) in self.parameters.iter().zip(values).enumerate() {
            if parameter.put(out, *param, params).is_none() {
                return Err(mismatch(position + 1, *parameter, *param));
            }
        }
        out.extend_from_slice(&self.formats);
        set_length(out, 1);
        out.extend_from_slice(EXECUTE_AND_SYNC);
        Ok(())
    }
}

/// Appends format codes: none for all text, one if all are equal, else one per value.
fn put_formats(out: &mut Vec<u8>, formats: impl ExactSizeIterator<Item = u16> + Clone) {
    let mut numbers = vec![formats.len() as u16];
    if formats.clone().all(|format| format == AS_TEXT) {
        numbers = vec![0];
    } else if formats.clone().all(|format| format == AS_BINARY) {
        numbers = vec![1, AS_BINARY];
    } else {
        numbers.extend(formats);
    }
    out.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
}

#[cold]
fn mismatch(position: usize, parameter: Parameter, param: Param) -> ParameterError {
    let parameter_type = match parameter {
        Parameter::Int2 => "smallint",
        Parameter::Int4 => "integer",
        Parameter::Int8 => "bigint",
        Parameter::Text => "text",
    };
    match param {
        // Fits every parameter.
        Param::Null => ParameterError::Text { position, parameter_type, len: 0 },
        Param::Int(value) => ParameterError::Int { position, parameter_type, value },
        Param::Text { len, .. } => ParameterError::Text { position, parameter_type, len },
    }
}

/// A statement with placeholders.
pub(super) struct Template {
    /// The text before each placeholder, and the index of its parameter.
    parts: Vec<(Vec<u8>, usize)>,
    /// The text after the last placeholder.
    rest: Vec<u8>,
    parameters: usize,
}

impl Template {
    /// The server must have accepted `sql` as one statement with this number of parameters.
    pub(super) fn new(sql: &[u8], parameters: usize) -> Self {
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

    pub(super) fn write(&self, out: &mut Vec<u8>, params: &Params) -> Result<(), ParameterError> {
        out.clear();
        let values = params.values();
        if values.len() != self.parameters {
            return Err(ParameterError::wrong_count(self.parameters, values.len()));
        }
        let mut outcome = Ok(());
        put(out, b'Q', |out| {
            for (before, parameter) in &self.parts {
                out.extend_from_slice(before);
                let put = match values.get(*parameter) {
                    Some(value) => put_literal(out, *value, params),
                    None => Err(ParameterError::Unknown(parameter + 1)),
                };
                if put.is_err() {
                    outcome = put;
                }
            }
            out.extend_from_slice(&self.rest);
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

/// Values that do not match a statement's parameters. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParameterError {
    #[error("the statement has {parameters} parameters, but {values} values were given")]
    Count { parameters: usize, values: usize },
    #[error("parameter {position} is of type {parameter_type}; {value} does not fit")]
    Int { position: usize, parameter_type: &'static str, value: i64 },
    #[error("parameter {position} is of type {parameter_type}; a text of {len} bytes does not fit")]
    Text { position: usize, parameter_type: &'static str, len: u32 },
    #[error("there is no parameter ${0}")]
    Unknown(usize),
    #[error("PostgreSQL cannot store a text with a zero byte")]
    ZeroByte,
}

impl ParameterError {
    #[cold]
    pub(super) fn wrong_count(parameters: usize, values: usize) -> Self {
        Self::Count { parameters, values }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: u32 = 25;
    const BPCHAR: u32 = 1042;
    const NUMERIC: u32 = 1700;

    fn written(
        parameters: &[u32],
        columns: &[u32],
        params: &Params,
    ) -> Result<Vec<u8>, ParameterError> {
        let mut out = b"left over".to_vec();
        Bind::new("7", parameters, columns).write(&mut out, params).map(|()| out)
    }

    fn request(body: &[u8]) -> Vec<u8> {
        let mut out = vec![b'B'];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(EXECUTE_AND_SYNC);
        out
    }

    #[test]
    fn integers_have_the_width_of_their_type() {
        let mut params = Params::default();
        params.push_int(-2);
        params.push_int(-3);
        params.push_int(-4);
        params.push_text(b"abc");
        params.push_int(-5);
        let kinds = [oid::INT2, oid::INT4, oid::INT8, BPCHAR, NUMERIC];
        let body = b"\x007\0\
            \0\x05\0\x01\0\x01\0\x01\0\0\0\0\
            \0\x05\
            \0\0\0\x02\xff\xfe\
            \0\0\0\x04\xff\xff\xff\xfd\
            \0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xfc\
            \0\0\0\x03abc\
            \0\0\0\x02-5\
            \0\0";
        assert_eq!(written(&kinds, &[], &params).unwrap(), request(body));
    }

    #[test]
    fn equal_formats_are_sent_once() {
        let mut params = Params::default();
        params.push_int(1);
        params.push_int(2);
        let (integers, texts) = ([oid::INT4; 2], [TEXT; 2]);
        let values = b"\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x04\0\0\0\x02";
        for (columns, formats) in [
            (&integers[..], &b"\0\x01\0\x01"[..]),
            (&texts, b"\0\0"),
            (&[TEXT, oid::INT8], b"\0\x02\0\0\0\x01"),
        ] {
            let body = [b"\x007\0\0\x01\0\x01", &values[..], formats].concat();
            assert_eq!(written(&integers, columns, &params).unwrap(), request(&body));
        }
    }

    #[test]
    fn null_has_the_length_minus_one() {
        let mut params = Params::default();
        params.push_null();
        params.push_null();
        let body = b"\x007\0\0\x02\0\x01\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\0\0";
        assert_eq!(written(&[oid::INT4, TEXT], &[], &params).unwrap(), request(body));
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let one = |value| {
            let mut params = Params::default();
            params.push_int(value);
            params
        };
        for (kind, most) in [(oid::INT2, i64::from(i16::MAX)), (oid::INT4, i64::from(i32::MAX))] {
            written(&[kind], &[], &one(most)).unwrap();
            written(&[kind], &[], &one(-most - 1)).unwrap();
            written(&[kind], &[], &one(-most - 2)).unwrap_err();
            let message = written(&[kind], &[], &one(most + 1)).unwrap_err().to_string();
            assert!(message.contains(&(most + 1).to_string()), "{message}");
        }
        let mut text = Params::default();
        text.push_text(b"7");
        let message = written(&[oid::INT4], &[], &text).unwrap_err().to_string();
        assert!(message.contains("integer"), "{message}");
        let message = written(&[oid::INT4; 2], &[], &one(1)).unwrap_err().to_string();
        assert!(message.contains("2 parameters, but 1 values"), "{message}");
    }

    fn written_text(sql: &str, parameters: usize, params: &Params) -> String {
        let mut out = b"left over".to_vec();
        Template::new(sql.as_bytes(), parameters).write(&mut out, params).unwrap();
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
            written_text("SELECT '$1', $2, 3 -$1, $1 -- $2", 2, &params),
            "SELECT '$1', 'it''s \\ $1', 3 -(-5), (-5) -- $2"
        );
        assert_eq!(written_text("BEGIN", 0, &Params::default()), "BEGIN");
    }

    #[test]
    fn values_that_cannot_be_literals_are_rejected() {
        let mut params = Params::default();
        params.push_text(b"a\0b");
        let mut out = Vec::new();
        Template::new(b"SELECT $1", 1).write(&mut out, &params).unwrap_err();
        Template::new(b"SELECT $2", 1).write(&mut out, &params).unwrap_err();
        Template::new(b"SELECT 1", 0).write(&mut out, &params).unwrap_err();
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
            let sql = written_text("SELECT $1; --", 1, &params);
            let (read, rest) = unquoted(sql.strip_prefix("SELECT ").unwrap());
            prop_assert_eq!(read, text);
            prop_assert_eq!(rest, "; --");
        }
    }
}
