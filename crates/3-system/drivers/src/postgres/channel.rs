use std::io;

use super::reply::Transaction;
use super::server_error::ServerError;
use super::wire::{Malformed, Message, put, put_text};
use crate::net::{ReadBuffer, Stream};
use crate::{Error, ErrorCode, ErrorKind};

/// A stream of messages to and from a server.
pub(super) struct Channel {
    pub(super) stream: Stream,
    /// Received bytes.
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
    /// The reply continues.
    More,
    /// The server waits for data to copy.
    Copy,
    /// The reply is complete.
    End(Transaction),
}

/// A complete reply.
pub(super) struct Response {
    pub(super) error: Option<Box<ServerError>>,
    pub(super) transaction: Transaction,
}

impl Response {
    /// # Errors
    /// The error in the reply.
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

    /// Sends `out`.
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
    ///
    /// # Errors
    /// The connection is lost. An error from the server is part of the response.
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
    ///
    /// # Errors
    /// The server has closed the connection, or sent something else.
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
