//! The request that executes a prepared statement: Bind, Execute and Sync in one piece.

use super::reading::oid;
use super::wire::{put, put_text, set_length};
use crate::{Param, Params};

/// Execute of the unnamed portal without a limit of rows, then Sync.
const EXECUTE_AND_SYNC: &[u8] = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

const AS_TEXT: u16 = 0;
const AS_BINARY: u16 = 1;

/// How a parameter is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// Two bytes.
    Int2,
    /// Four bytes.
    Int4,
    /// Eight bytes.
    Int8,
    /// As text, which for a text is the same as its binary form. The server reads any other type
    /// from it.
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

    /// Appends a value with its length; `None` where it is no value of this type.
    #[inline(always)]
    fn put(self, out: &mut Vec<u8>, param: Param, params: &Params) -> Option<()> {
        match (self, param) {
            (Self::Int4, Param::Int(value)) => {
                let value = i32::try_from(value).ok()?;
                let mut bytes = [0, 0, 0, 4, 0, 0, 0, 0];
                bytes[4..].copy_from_slice(&value.to_be_bytes());
                // Length and value in one piece: an in-list has a thousand of them.
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

/// Makes the requests of one prepared statement.
pub(super) struct Bind {
    parameters: Vec<Parameter>,
    /// Bind up to the number of parameters.
    head: Vec<u8>,
    /// The formats of the results, at Bind's end.
    formats: Vec<u8>,
}

impl Bind {
    /// For the statement of this name, with parameters and columns of these types.
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

    /// Replaces what is in `out` by the request with these values.
    ///
    /// # Errors
    /// The values do not fit the parameters; says which.
    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>, params: &Params) -> Result<(), String> {
        out.clear();
        out.extend_from_slice(&self.head);
        let values = params.values();
        if values.len() != self.parameters.len() {
            return Err(wrong_count(self.parameters.len(), values.len()));
        }
        for (position, (parameter, param)) in self.parameters.iter().zip(values).enumerate() {
            if parameter.put(out, *param, params).is_none() {
                return Err(misfit(position + 1, *parameter, *param));
            }
        }
        out.extend_from_slice(&self.formats);
        set_length(out, 1);
        out.extend_from_slice(EXECUTE_AND_SYNC);
        Ok(())
    }
}

/// Appends the formats of several values: one for all where it is the same, and none for texts.
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
pub(super) fn wrong_count(parameters: usize, values: usize) -> String {
    format!("the statement has {parameters} parameters, and {values} values were given")
}

#[cold]
fn misfit(position: usize, parameter: Parameter, param: Param) -> String {
    let kind = match parameter {
        Parameter::Int2 => "smallint",
        Parameter::Int4 => "integer",
        Parameter::Int8 => "bigint",
        Parameter::Text => "text",
    };
    match param {
        Param::Int(value) => {
            format!("parameter {position} is of type {kind}; {value} does not fit")
        }
        Param::Text { len, .. } => {
            format!("parameter {position} is of type {kind}; a text of {len} bytes does not fit")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u32 = 25;
    const BPCHAR: u32 = 1042;
    const NUMERIC: u32 = 1700;

    fn written(parameters: &[u32], columns: &[u32], params: &Params) -> Result<Vec<u8>, String> {
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
    fn values_are_sent_in_the_widths_of_their_types() {
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
    fn formats_that_are_all_the_same_are_said_once() {
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
    fn values_that_do_not_fit_are_refused() {
        let one = |value| {
            let mut params = Params::default();
            params.push_int(value);
            params
        };
        for (kind, most) in [(oid::INT2, i64::from(i16::MAX)), (oid::INT4, i64::from(i32::MAX))] {
            written(&[kind], &[], &one(most)).unwrap();
            written(&[kind], &[], &one(-most - 1)).unwrap();
            written(&[kind], &[], &one(-most - 2)).unwrap_err();
            let message = written(&[kind], &[], &one(most + 1)).unwrap_err();
            assert!(message.contains(&(most + 1).to_string()), "{message}");
        }
        let mut text = Params::default();
        text.push_text(b"7");
        let message = written(&[oid::INT4], &[], &text).unwrap_err();
        assert!(message.contains("integer"), "{message}");
        let message = written(&[oid::INT4; 2], &[], &one(1)).unwrap_err();
        assert!(message.contains("2 parameters, and 1 values"), "{message}");
    }
}
