use std::io;

use super::reply::Transaction;
use super::server_error::ServerError;
use super::wire::{Malformed, Message, put, put_text};
use crate::net::{ReadBuffer, Stream};
use crate::{Error, ErrorKind};

/// Messages to and from a server.
pub(super) struct Channel {
    pub(super) stream: Stream,
    /// What has arrived.
    pub(super) arrived: ReadBuffer,
    /// The next request.
    pub(super) out: Vec<u8>,
    /// Nothing more can be asked.
    lost: bool,
}

/// Gets the tag and the body of messages.
pub(super) type Each<'a> = dyn FnMut(u8, &[u8]) -> Result<(), Malformed> + 'a;

/// Why nothing more can be asked: in words, and the operating system's number where it has one.
#[derive(Debug)]
pub(super) struct Lost(String, i32);

impl From<io::Error> for Lost {
    #[cold]
    fn from(error: io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or_default();
        Self(format!("the connection is lost: {error}"), code)
    }
}

impl From<Malformed> for Lost {
    #[cold]
    fn from(malformed: Malformed) -> Self {
        Self(format!("the server sent {}; is it a PostgreSQL server?", malformed.0), 0)
    }
}

/// What one message of a reply means for it.
pub(super) enum Step {
    /// It goes on.
    More,
    /// The server waits for data to copy.
    Copy,
    /// It is complete.
    End(Transaction),
}

/// A reply to its end.
pub(super) struct Exchanged {
    pub(super) error: Option<Box<ServerError>>,
    pub(super) transaction: Transaction,
}

impl Exchanged {
    /// # Errors
    /// The server answered with one.
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
        Self { stream, arrived: ReadBuffer::new(), out: Vec::new(), lost: false }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Sends what is in `out`.
    #[inline]
    pub(super) fn send(&mut self) -> Result<(), Lost> {
        if self.lost {
            return Err(Lost("the connection was lost before".to_owned(), 0));
        }
        Ok(self.stream.write_all(&self.out)?)
    }

    /// Waits for more to arrive.
    #[inline]
    pub(super) fn fill(&mut self) -> Result<(), Lost> {
        Ok(self.arrived.fill(&mut self.stream)?)
    }

    /// Takes in what has arrived without waiting; false where nothing has.
    #[inline]
    pub(super) fn try_fill(&mut self) -> Result<bool, Lost> {
        Ok(self.arrived.try_fill(&mut self.stream)?)
    }

    /// Waits for the next message, for all that need not be fast.
    pub(super) fn message(&mut self) -> Result<(u8, Vec<u8>), Lost> {
        loop {
            if let Some(message) = self.message_in_hand()? {
                return Ok(message);
            }
            self.fill()?;
        }
    }

    fn message_in_hand(&mut self) -> Result<Option<(u8, Vec<u8>)>, Malformed> {
        let arrived = self.arrived.unread();
        let Some((message, rest)) = Message::first(arrived)? else { return Ok(None) };
        let owned = (message.tag, message.body.to_vec());
        let used = arrived.len() - rest.len();
        self.arrived.consume(used);
        Ok(Some(owned))
    }

    /// Sends what is in `out` and takes in the reply to its end; `each` gets the messages that
    /// belong to the request.
    ///
    /// # Errors
    /// The connection is lost. An error that the server answers with is in the result.
    pub(super) fn exchange(
        &mut self,
        doing: &dyn Fn() -> String,
        each: &mut Each<'_>,
    ) -> Result<Exchanged, Error> {
        let mut error = None;
        match self.try_exchange(&mut error, each) {
            Ok(transaction) => Ok(Exchanged { error, transaction }),
            Err(lost) => Err(self.fail(lost, error, doing())),
        }
    }

    fn try_exchange(
        &mut self,
        error: &mut Option<Box<ServerError>>,
        each: &mut Each<'_>,
    ) -> Result<Transaction, Lost> {
        self.send()?;
        loop {
            match self.step(error, each)? {
                Step::More => {}
                Step::Copy => self.refuse_to_copy(false)?,
                Step::End(transaction) => return Ok(transaction),
            }
        }
    }

    /// Takes in the next message of a reply.
    pub(super) fn step(
        &mut self,
        error: &mut Option<Box<ServerError>>,
        each: &mut Each<'_>,
    ) -> Result<Step, Lost> {
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

    /// Whether the server has said something, without waiting; notices do not count.
    pub(super) fn has_spoken(&mut self) -> Result<bool, Lost> {
        while self.try_fill()? {}
        let mut rest = self.arrived.unread();
        while let Some((message, behind)) = Message::first(rest)? {
            if !matches!(message.tag, b'N' | b'S' | b'A') {
                return Ok(true);
            }
            rest = behind;
        }
        let used = self.arrived.unread().len() - rest.len();
        self.arrived.consume(used);
        Ok(false)
    }

    /// Tells a server that waits for data to copy that there is none. `extended`: as part of
    /// the extended protocol, where the server skips all up to a Sync, and has swallowed ours.
    pub(super) fn refuse_to_copy(&mut self, extended: bool) -> Result<(), Lost> {
        self.out.clear();
        put(&mut self.out, b'f', |out| put_text(out, "no data is copied by this call"));
        if extended {
            put(&mut self.out, b'S', |_| {});
        }
        self.send()
    }

    /// The error for a connection that is lost. The server's own words, where there are any, say
    /// more than the network's.
    #[cold]
    pub(super) fn fail(
        &mut self,
        lost: Lost,
        said: Option<Box<ServerError>>,
        doing: String,
    ) -> Error {
        let said = said.or_else(|| self.last_words());
        self.lost = true;
        match said {
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

    /// The last error among what the server sent before it closed the connection.
    #[cold]
    fn last_words(&mut self) -> Option<Box<ServerError>> {
        if self.lost {
            return None;
        }
        let mut error = None;
        loop {
            match self.message_in_hand() {
                Ok(Some((b'E', body))) => error = Some(Box::new(ServerError::read(&body))),
                Ok(Some(_)) => {}
                Ok(None) if self.try_fill().unwrap_or(false) => {}
                _ => return error,
            }
        }
    }
}
