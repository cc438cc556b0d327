//! A server for tests, in threads of the test, and connections to it.

use std::io::{ErrorKind as IoErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use dbdyno_drivers::{
    Answer, Connection, Error, ErrorCode, ErrorKind, NonBlockingConnection, Param, Params,
    Received, StatementId,
};

/// Every statement returns one row with the sum of the parameters. It cannot be prepared with texts as parameters.
pub(crate) struct FakeConnection {
    stream: UnixStream,
    read: Vec<u8>,
    /// The SQL texts of its statements.
    pub(crate) texts: Vec<String>,
}

/// What a server does with the request of this number, from 0.
pub(crate) type Behaviour = fn(u32) -> Reaction;

/// What a server does with a request.
pub(crate) enum Reaction {
    /// Answers after this time.
    AnswerAfter(Duration),
    /// Answers in two parts with this time before each.
    PartsAfter(Duration),
    /// Closes the connection.
    Close,
}

/// An answer: the digest.
const ANSWER: usize = 8;

impl FakeConnection {
    /// Connects to a new server, whose thread ends with the connection.
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut request = [0; ANSWER];
            for number in 0.. {
                if peer.read_exact(&mut request).is_err() {
                    return;
                }
                let (pause, parts) = match behaviour(number) {
                    Reaction::AnswerAfter(pause) => (pause, 1),
                    Reaction::PartsAfter(pause) => (pause, 2),
                    Reaction::Close => return,
                };
                for part in request.chunks(ANSWER / parts) {
                    thread::sleep(pause);
                    if peer.write_all(part).is_err() {
                        return;
                    }
                }
            }
        });
        Self { stream, read: Vec::new(), texts: Vec::new() }
    }

    fn lost(message: impl ToString) -> Error {
        Error {
            doing: "executing".to_owned(),
            message: message.to_string(),
            code: None,
            kind: ErrorKind::Connection,
        }
    }

    /// Reads once; whether something came.
    fn read(&mut self, wait: bool) -> Result<bool, Error> {
        self.stream.set_nonblocking(!wait).map_err(Self::lost)?;
        let mut bytes = [0; ANSWER];
        match self.stream.read(&mut bytes[self.read.len()..]) {
            Ok(0) => Err(Self::lost("the server closed the connection")),
            Ok(count) => {
                let start = self.read.len();
                self.read.extend_from_slice(&bytes[start..start + count]);
                Ok(true)
            }
            Err(error) if error.kind() == IoErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Self::lost(error)),
        }
    }

    fn answer(&mut self) -> Option<Answer> {
        let digest = u64::from_le_bytes(self.read[..].try_into().ok()?);
        self.read.clear();
        Some(Answer { rows: 1, affected: 0, digest })
    }
}

impl Connection for FakeConnection {
    fn placeholder(_: usize) -> String {
        "?".to_owned()
    }

    fn begin_sql(_: bool) -> &'static str {
        "BEGIN"
    }

    fn prepare(&mut self, sql: impl AsRef<[u8]>) -> Result<StatementId, Error> {
        let sql = String::from_utf8_lossy(sql.as_ref()).into_owned();
        let is_refused = sql.contains("AS varchar");
        self.texts.push(sql);
        match is_refused {
            true => Err(Error {
                doing: "preparing".to_owned(),
                message: "operator does not exist".to_owned(),
                code: Some(ErrorCode::SqlState(*b"42883")),
                kind: ErrorKind::Statement,
            }),
            false => Ok(StatementId::default()),
        }
    }

    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error> {
        self.send(statement, params)?;
        loop {
            self.read(true)?;
            if let Some(answer) = self.answer() {
                return Ok(answer);
            }
        }
    }

    fn run(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn query(&mut self, _: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        Ok(Vec::new())
    }

    fn text_statement(&mut self, sql: &[u8]) -> Result<StatementId, Error> {
        self.texts.push(String::from_utf8_lossy(sql).into_owned());
        Ok(StatementId::default())
    }

    fn close_statement(&mut self, _: StatementId) {}

    fn close_statements(&mut self) {}

    fn busy_retries(&self) -> u64 {
        0
    }
}

impl NonBlockingConnection for FakeConnection {
    fn send(&mut self, _: StatementId, params: &Params) -> Result<(), Error> {
        let values = params.values().iter().map(|value| match value {
            Param::Null => 0,
            Param::Int(value) => value.cast_unsigned(),
            Param::Text { len, .. } => u64::from(*len),
        });
        let request: u64 = values.sum();
        self.stream.set_nonblocking(false).map_err(Self::lost)?;
        self.stream.write_all(&request.to_le_bytes()).map_err(Self::lost)
    }

    fn receive_available(&mut self) -> Result<Received, Error> {
        let mut received = Received::Nothing;
        while self.read(false)? {
            if let Some(answer) = self.answer() {
                return Ok(Received::Answer(answer));
            }
            received = Received::Part;
        }
        Ok(received)
    }
}

impl AsFd for FakeConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
