//! Message framing: tag, length (which includes itself), body.

/// PostgreSQL's own limit for a message.
const LONGEST: usize = 0x3fff_ffff;

/// Length of a NULL value: −1.
pub(super) const NULL: u32 = u32::MAX;

/// The received bytes are not valid; the text completes "the server sent …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

impl Malformed {
    #[cold]
    pub(super) fn new(what: &str) -> Self {
        Self(what.to_owned())
    }

    #[cold]
    pub(super) fn unexpected(tag: u8) -> Self {
        Self(format!("an unexpected message '{}'", tag.escape_ascii()))
    }
}

/// A message from the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) tag: u8,
    pub(super) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The message at the start of `bytes`, and the rest; `None` while it is incomplete.
    ///
    /// # Errors
    /// The length is not valid.
    #[inline(always)]
    pub(super) fn first(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Malformed> {
        let Some((&[tag], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        // As an array: reading byte by byte is not combined into one load.
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        // A length below 4 wraps to one above the limit.
        let length = (u32::from_be_bytes(*length) as usize).wrapping_sub(4);
        if length > LONGEST {
            return Err(Malformed::new("a message with an invalid length"));
        }
        Ok(rest.split_at_checked(length).map(|(body, rest)| (Self { tag, body }, rest)))
    }
}

/// Appends a message whose body is written by `body`.
pub(super) fn put(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    put_untagged(out, body);
}

/// Appends a message without a tag, as at the start of a connection.
pub(super) fn put_untagged(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    set_length(out, at);
}

/// Writes the length of the message that starts at `at`, after its tag, and ends with `out`. It fits:
/// texts are limited before.
#[inline]
pub(super) fn set_length(out: &mut [u8], at: usize) {
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a zero-terminated text.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Reads fields from a message's body.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((taken, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(Malformed::new("a truncated message"));
        };
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// A 16-bit number; always a count.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        self.take().map(|bytes| u16::from_be_bytes(bytes).into())
    }

    pub(super) fn number(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err(Malformed::new("a truncated message"));
        };
        self.0 = rest;
        Ok(taken)
    }

    /// A column value: length and bytes.
    pub(super) fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.number()? {
            NULL => Ok(None),
            length => self.bytes(length as usize).map(Some),
        }
    }

    /// A zero-terminated text.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let Some(length) = self.0.iter().position(|byte| *byte == 0) else {
            return Err(Malformed::new("an unterminated text"));
        };
        let text = self.bytes(length)?;
        self.byte()?;
        Ok(text)
    }
}

/// Decodes UTF-8, which the login requests; invalid bytes must not hide an error message.
pub(super) fn lossy_string(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_returned_when_complete() {
        let mut bytes = Vec::new();
        put(&mut bytes, b'X', |out| put_text(out, "abc"));
        bytes.push(b'Y');
        for end in 0..9 {
            assert!(Message::first(&bytes[..end]).unwrap().is_none(), "{end}");
        }
        let (message, rest) = Message::first(&bytes).unwrap().unwrap();
        assert_eq!((message.tag, message.body, rest), (b'X', &b"abc\0"[..], &b"Y"[..]));
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        for length in [0, 3, LONGEST as u32 + 5, u32::MAX] {
            let mut bytes = vec![b'D'];
            bytes.extend_from_slice(&length.to_be_bytes());
            Message::first(&bytes).unwrap_err();
        }
    }

    #[test]
    fn fields_are_not_read_beyond_the_message() {
        let mut fields = Fields(b"\0\x02ab\0\0\0\0\x01z\xff\xff\xff\xff");
        assert_eq!(fields.count(), Ok(2));
        assert_eq!(fields.text(), Ok(&b"ab"[..]));
        assert_eq!(fields.value(), Ok(Some(&b"z"[..])));
        assert_eq!(fields.value(), Ok(None));
        fields.byte().unwrap_err();
        Fields(b"abc").text().unwrap_err();
        Fields(b"\0\0\0\x02a").value().unwrap_err();
    }
}
