//! Requests that execute a statement: with values in binary format, or inserted into its text.

use std::io;
use std::ops::Range;

use super::rows::{LONGLONG, NULL, VAR_STRING};
use super::wire::{HEADER, MAX_PAYLOAD, put_lenenc_string};
use crate::net::Stream;
use crate::{Param, Params};

pub(super) const QUIT: u8 = 0x01;
pub(super) const QUERY: u8 = 0x03;
pub(super) const PREPARE: u8 = 0x16;
pub(super) const EXECUTE: u8 = 0x17;
pub(super) const CLOSE: u8 = 0x19;

#[derive(Default)]
pub(super) struct Request {
    /// Space for a header, then the payload.
    bytes: Vec<u8>,
}

impl Request {
    /// Starts a request; append its arguments to the returned buffer.
    #[inline]
    pub(super) fn start(&mut self, command: u8) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0, 0, 0, 0, command]);
        &mut self.bytes
    }

    /// Starts a packet of the login, which has no command.
    pub(super) fn start_login(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; HEADER]);
        &mut self.bytes
    }

    /// Builds the execution of a prepared statement.
    #[inline]
    pub(super) fn execution(&mut self, frame: &mut Execution, params: &Params) {
        if !frame.write(params, &mut self.bytes) {
            frame.set_types(params);
            frame.write(params, &mut self.bytes);
        }
    }

    /// Sends the request; `sequence` is not zero during login only.
    #[inline]
    pub(super) fn send(&mut self, stream: &mut Stream, sequence: u8) -> io::Result<()> {
        let length = self.bytes.len() - HEADER;
        if length >= MAX_PAYLOAD {
            return self.send_long(stream, sequence);
        }
        let [a, b, c, _] = (length as u32).to_le_bytes();
        self.bytes[..HEADER].copy_from_slice(&[a, b, c, sequence]);
        stream.write_all(&self.bytes)
    }

    #[cold]
    fn send_long(&self, stream: &mut Stream, sequence: u8) -> io::Result<()> {
        for packet in packets(&self.bytes[HEADER..], sequence) {
            stream.write_all(&packet)?;
        }
        Ok(())
    }
}

/// Splits a long payload into packets. If the last one is full, an empty one follows.
fn packets(payload: &[u8], sequence: u8) -> impl Iterator<Item = Vec<u8>> {
    (0..=payload.len() / MAX_PAYLOAD).map(move |index| {
        let chunk = &payload[index * MAX_PAYLOAD..payload.len().min((index + 1) * MAX_PAYLOAD)];
        let [a, b, c, _] = (chunk.len() as u32).to_le_bytes();
        let mut packet = vec![a, b, c, sequence.wrapping_add(index as u8)];
        packet.extend_from_slice(chunk);
        packet
    })
}

/// The constant part of the request to execute a prepared statement.
pub(super) struct Execution {
    /// Header, command, statement id, flags, and a NULL bitmap of zeros.
    head: Vec<u8>,
    /// The parameter types that the server knows, two bytes each; sent only if they change.
    types: Vec<u8>,
    types_are_new: bool,
    params: usize,
}

/// Where the NULL bitmap starts.
const BITMAP: usize = HEADER + 10;

impl Execution {
    pub(super) fn new(number: u32, params: usize) -> Self {
        let mut head = vec![0; HEADER];
        head.push(EXECUTE);
        head.extend_from_slice(&number.to_le_bytes());
        // No cursor, one iteration.
        head.extend_from_slice(&[0, 1, 0, 0, 0]);
        head.resize(head.len() + params.div_ceil(8), 0);
        Self { head, types: Vec::new(), types_are_new: true, params }
    }

    #[inline]
    pub(super) fn params(&self) -> usize {
        self.params
    }

    /// Sends the types again: the server may not have processed the last request.
    pub(super) fn forget_types(&mut self) {
        self.types.clear();
    }

    /// Writes the request; false if a value's type differs from the known one.
    #[inline]
    fn write(&mut self, params: &Params, into: &mut Vec<u8>) -> bool {
        let values = params.values();
        if self.types.len() != 2 * values.len() {
            return false;
        }
        into.clear();
        into.extend_from_slice(&self.head);
        if values.is_empty() {
            return true;
        }
        into.push(u8::from(self.types_are_new));
        if self.types_are_new {
            into.extend_from_slice(&self.types);
        }
        let mut fits = true;
        for (position, (value, known)) in values.iter().zip(self.types.chunks_exact(2)).enumerate()
        {
            fits &= known[0] == kind(value) || *value == Param::Null;
            match *value {
                Param::Null => into[BITMAP + position / 8] |= 1 << (position % 8),
                Param::Int(value) => into.extend_from_slice(&value.to_le_bytes()),
                Param::Text { start, len } => put_lenenc_string(into, params.text(start, len)),
            }
        }
        if fits {
            self.types_are_new = false;
        }
        fits
    }

    #[cold]
    fn set_types(&mut self, params: &Params) {
        self.types.clear();
        self.types.extend(params.values().iter().flat_map(|value| [kind(value), 0]));
        self.types_are_new = true;
    }
}

#[inline(always)]
fn kind(value: &Param) -> u8 {
    match value {
        Param::Null => NULL,
        Param::Int(_) => LONGLONG,
        Param::Text { .. } => VAR_STRING,
    }
}

/// A statement with placeholders, sent as text.
pub(super) struct Template {
    sql: Vec<u8>,
    /// The text between placeholders; one range more than placeholders.
    parts: Vec<Range<usize>>,
}

impl Template {
    /// Finds the placeholders: question marks outside strings, quoted identifiers and comments.
    pub(super) fn new(sql: &[u8], plain_backslashes: bool) -> Self {
        let mut parts = Vec::new();
        let mut start = 0;
        let mut at = 0;
        while let Some(&byte) = sql.get(at) {
            let rest = &sql[at..];
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

    #[inline]
    pub(super) fn params(&self) -> usize {
        self.parts.len() - 1
    }

    /// Appends the SQL with the values inserted.
    #[inline]
    pub(super) fn write(&self, params: &Params, plain_backslashes: bool, into: &mut Vec<u8>) {
        let mut values = params.values().iter();
        for part in &self.parts {
            into.extend_from_slice(&self.sql[part.clone()]);
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

    fn built(frame: &mut Execution, params: &Params) -> Vec<u8> {
        let mut request = Request::default();
        request.execution(frame, params);
        request.bytes
    }

    #[test]
    fn types_are_sent_once_and_when_they_change() {
        let mut frame = Execution::new(7, 2);
        let mut params = Params::default();
        params.push_int(-2);
        params.push_text(b"ab");
        let head = [0, 0, 0, 0, EXECUTE, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let values = [0xfe, 255, 255, 255, 255, 255, 255, 255, 2, b'a', b'b'];
        let types = [LONGLONG, 0, VAR_STRING, 0];
        let with_types = [&head[..], &[1], &types, &values].concat();
        let without = [&head[..], &[0], &values].concat();
        assert_eq!(built(&mut frame, &params), with_types);
        assert_eq!(built(&mut frame, &params), without);
        frame.forget_types();
        assert_eq!(built(&mut frame, &params), with_types);
        params.clear();
        params.push_text(b"c");
        params.push_int(1);
        let types = [VAR_STRING, 0, LONGLONG, 0];
        let values = [1, b'c', 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(built(&mut frame, &params), [&head[..], &[1], &types, &values].concat());
        assert_eq!(built(&mut frame, &params), [&head[..], &[0], &values].concat());
    }

    #[test]
    fn null_has_a_bit_and_no_value_and_keeps_the_known_type() {
        let mut frame = Execution::new(7, 9);
        let mut params = Params::default();
        let build = |frame: &mut Execution, params: &mut Params, nulls: [usize; 2]| {
            params.clear();
            (0..9).for_each(|i| {
                if nulls.contains(&i) { params.push_null() } else { params.push_int(1) }
            });
            built(frame, params)
        };
        let first = build(&mut frame, &mut params, [0, 8]);
        assert_eq!(first[BITMAP..BITMAP + 3], [1, 1, 1]);
        assert_eq!(first[BITMAP + 3..BITMAP + 7], [NULL, 0, LONGLONG, 0]);
        assert_eq!(first.len(), BITMAP + 3 + 18 + 7 * 8);
        // The types of the first and the last parameter are new.
        let second = build(&mut frame, &mut params, [1, 2]);
        assert_eq!(second[BITMAP..BITMAP + 3], [0b110, 0, 1]);
        build(&mut frame, &mut params, [9, 9]);
        let third = build(&mut frame, &mut params, [3, 3]);
        assert_eq!(third[BITMAP..BITMAP + 3], [0b1000, 0, 0]);
    }

    #[test]
    fn request_without_parameters_is_the_head() {
        let mut frame = Execution::new(1, 0);
        let head = vec![0, 0, 0, 0, EXECUTE, 1, 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(built(&mut frame, &Params::default()), head);
    }

    #[test]
    fn long_payload_is_split_into_packets() {
        let lengths = |length: usize| -> Vec<(usize, u8)> {
            packets(&vec![1; length], 0)
                .map(|packet| {
                    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
                    assert_eq!(packet.len(), HEADER + length as usize);
                    (length as usize, packet[3])
                })
                .collect()
        };
        assert_eq!(lengths(MAX_PAYLOAD), [(MAX_PAYLOAD, 0), (0, 1)]);
        assert_eq!(lengths(MAX_PAYLOAD + 3), [(MAX_PAYLOAD, 0), (3, 1)]);
        assert_eq!(lengths(2 * MAX_PAYLOAD), [(MAX_PAYLOAD, 0), (MAX_PAYLOAD, 1), (0, 2)]);
    }

    fn written(sql: &str, params: &Params) -> String {
        let template = Template::new(sql.as_bytes(), false);
        let mut text = Vec::new();
        template.write(params, false, &mut text);
        String::from_utf8(text).unwrap()
    }

    fn placeholders(sql: &str) -> usize {
        Template::new(sql.as_bytes(), false).params()
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
        assert_eq!(Template::new("'a\\' ?".as_bytes(), true).params(), 1);
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
