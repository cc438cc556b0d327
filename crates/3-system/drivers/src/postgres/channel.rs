//! A stream of messages to and from a server: tag, length (which includes itself), body.

use std::io;

use super::reply::{ServerError, Transaction};
use crate::net::{ReadBuffer, Stream};
use crate::{Error, ErrorCode, ErrorKind};

/// A stream of messages to and from a server.
pub(super) struct Channel {
    pub(super) stream: Stream,
    pub(super) received: ReadBuffer,
    /// The next request.
    pub(super) out: Vec<u8>,
    /// No more requests are possible.
    lost: bool,
}

/// Called with the tag and the body of each message.
pub(super) type OnMessage<'a> = dyn FnMut(u8, &[u8]) -> Result<(), Malformed> + 'a;

/// Why the connection is lost: a message, and the operating system's error code.
#[derive(Debug)]
pub(super) struct ConnectionLost(String, Option<ErrorCode>);

impl From<io::Error> for ConnectionLost {
    #[cold]
    fn from(error: io::Error) -> Self {
        let code = ErrorCode::of_io(&error);
        Self(format!("the connection is lost: {error}"), code)
    }
}

impl From<Malformed> for ConnectionLost {
    #[cold]
    fn from(malformed: Malformed) -> Self {
        Self(format!("the server sent {}; check that it is a PostgreSQL server", malformed.0), None)
    }
}

/// What a message means for the reply in progress.
pub(super) enum Step {
    More,
    /// The server waits for data to copy.
    Copy,
    End(Transaction),
}

/// A complete reply.
pub(super) struct Response {
    pub(super) error: Option<Box<ServerError>>,
    pub(super) transaction: Transaction,
}

impl Response {
    pub(super) fn into_result(self, doing: impl FnOnce() -> String) -> Result<(), Error> {
        match self.error {
            None => Ok(()),
            Some(error) => {
                let kind = error.kind(self.transaction != Transaction::Idle);
                Err(error.into_error(doing(), kind))
            }
        }
    }
}

impl Channel {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, received: ReadBuffer::new(), out: Vec::new(), lost: false }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    #[inline]
    pub(super) fn send(&mut self) -> Result<(), ConnectionLost> {
        self.check_not_lost()?;
        Ok(self.stream.write_all(&self.out)?)
    }

    #[inline]
    fn check_not_lost(&self) -> Result<(), ConnectionLost> {
        if self.lost {
            return Err(ConnectionLost("the connection was lost before".to_owned(), None));
        }
        Ok(())
    }

    /// Waits for more bytes.
    #[inline]
    pub(super) fn fill(&mut self) -> Result<(), ConnectionLost> {
        Ok(self.received.fill(&mut self.stream)?)
    }

    /// Reads available bytes without waiting; false if there are none.
    #[inline]
    pub(super) fn try_fill(&mut self) -> Result<bool, ConnectionLost> {
        Ok(self.received.try_fill(&mut self.stream)?)
    }

    /// Waits for the next message. Copies it, so not for the hot path.
    pub(super) fn message(&mut self) -> Result<(u8, Vec<u8>), ConnectionLost> {
        loop {
            if let Some(message) = self.buffered_message()? {
                return Ok(message);
            }
            self.fill()?;
        }
    }

    fn buffered_message(&mut self) -> Result<Option<(u8, Vec<u8>)>, Malformed> {
        let received = self.received.unread();
        let Some((message, rest)) = Message::first(received)? else { return Ok(None) };
        let owned = (message.tag, message.body.to_vec());
        let used = received.len() - rest.len();
        self.received.consume(used);
        Ok(Some(owned))
    }

    /// Sends `out` and reads the complete reply; `each` gets the messages specific to the request.
    pub(super) fn exchange(
        &mut self,
        doing: &dyn Fn() -> String,
        each: &mut OnMessage<'_>,
    ) -> Result<Response, Error> {
        let mut error = None;
        match self.try_exchange(&mut error, each) {
            Ok(transaction) => Ok(Response { error, transaction }),
            Err(lost) => Err(self.fail(lost, error, doing())),
        }
    }

    fn try_exchange(
        &mut self,
        error: &mut Option<Box<ServerError>>,
        each: &mut OnMessage<'_>,
    ) -> Result<Transaction, ConnectionLost> {
        self.send()?;
        loop {
            match self.step(error, each)? {
                Step::More => {}
                Step::Copy => self.fail_copy(false)?,
                Step::End(transaction) => return Ok(transaction),
            }
        }
    }

    /// Reads the next message of a reply.
    pub(super) fn step(
        &mut self,
        error: &mut Option<Box<ServerError>>,
        each: &mut OnMessage<'_>,
    ) -> Result<Step, ConnectionLost> {
        let (tag, body) = self.message()?;
        match tag {
            b'Z' => return Ok(Step::End(Transaction::read(&body)?)),
            b'G' => return Ok(Step::Copy),
            b'E' => {
                error.get_or_insert_with(|| Box::new(ServerError::read(&body)));
            }
            b'N' | b'S' | b'A' => {}
            _ => each(tag, &body)?,
        }
        Ok(Step::More)
    }

    /// Whether a message other than a notice has arrived, without waiting.
    pub(super) fn has_message(&mut self) -> Result<bool, ConnectionLost> {
        loop {
            let received = self.received.unread();
            if let Some((message, rest)) = Message::first(received)? {
                if !matches!(message.tag, b'N' | b'S' | b'A') {
                    return Ok(true);
                }
                let used = received.len() - rest.len();
                self.received.consume(used);
            } else if !self.try_fill()? {
                return Ok(false);
            }
        }
    }

    /// Reads the notices that have arrived without a request, without waiting.
    #[cold]
    pub(super) fn receive_notices(&mut self) -> Result<(), ConnectionLost> {
        self.check_not_lost()?;
        if self.has_message()? {
            let tag = self.received.unread().first().copied().unwrap_or_default();
            return Err(Malformed::unexpected(tag).into());
        }
        Ok(())
    }

    /// Sends CopyFail to a server that waits for data. `extended`: in the extended protocol the server
    /// discards everything up to a Sync, including the one already sent.
    pub(super) fn fail_copy(&mut self, extended: bool) -> Result<(), ConnectionLost> {
        self.out.clear();
        put(&mut self.out, b'f', |out| put_text(out, "this call copies no data"));
        if extended {
            put(&mut self.out, b'S', |_| {});
        }
        self.send()
    }

    /// The error for a lost connection: the server's last error if there is one, else the network's.
    #[cold]
    pub(super) fn fail(
        &mut self,
        lost: ConnectionLost,
        reported: Option<Box<ServerError>>,
        doing: String,
    ) -> Error {
        let reported = reported.or_else(|| self.last_error());
        self.lost = true;
        match reported {
            Some(error) => {
                let kind = match error.kind(false) {
                    kind if kind.is_fatal() => kind,
                    _ => ErrorKind::Connection,
                };
                error.into_error(doing, kind)
            }
            None => Error { doing, message: lost.0, code: lost.1, kind: ErrorKind::Connection },
        }
    }

    /// The last error that the server sent before it closed the connection, among a limited number of
    /// messages.
    #[cold]
    fn last_error(&mut self) -> Option<Box<ServerError>> {
        if self.lost {
            return None;
        }
        let mut error = None;
        for _ in 0..10_000 {
            match self.buffered_message() {
                Ok(Some((b'E', body))) => error = Some(Box::new(ServerError::read(&body))),
                Ok(Some(_)) => {}
                Ok(None) if self.try_fill().unwrap_or(false) => {}
                _ => break,
            }
        }
        error
    }
}

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

#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) tag: u8,
    pub(super) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The message at the start of `bytes`, and the rest; `None` while it is incomplete.
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
pub(super) fn put_text(out: &mut Vec<u8>, text: impl AsRef<[u8]>) {
    out.extend_from_slice(text.as_ref());
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
