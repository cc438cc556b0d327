use std::os::fd::{AsFd, BorrowedFd};

use dbdyno_record::server::{StatementMode, Target};

use super::channel::{Channel, Lost};
use super::login::{Login, log_in};
use super::reply::{Reply, Transaction};
use super::sql;
use super::statement::{Description, Statement};
use super::wire::{Fields, Malformed, put, put_text, words};
use crate::words::shortened;
use crate::{Answer, Connection, Error, ErrorKind, NonBlockingConnection, Params, StatementId};

/// A connection to a PostgreSQL server.
///
/// An error of the server has its SQLSTATE in [`Error::message`], and as a number with base 36 in
/// [`Error::code`]; other errors have the code 0, or the operating system's.
pub struct PostgresConnection {
    pub(super) channel: Channel,
    mode: StatementMode,
    statements: Vec<Statement>,
    /// How many statements got a name: none is used twice.
    named: u64,
    /// The statement whose reply is not complete yet.
    under_way: Option<usize>,
    /// That reply.
    reply: Reply,
    server_version: String,
    process_id: u32,
}

impl PostgresConnection {
    /// Connects and logs in. Statements will go to the server in the given mode.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`] where nobody listens or the server is starting or stopping,
    /// [`ErrorKind::Refused`] where it does not let us in, or is older than PostgreSQL 12.
    pub fn connect(target: &Target, mode: StatementMode) -> Result<Self, Error> {
        let Login { channel, server_version, process_id } = log_in(target)?;
        Ok(Self {
            channel,
            mode,
            statements: Vec::new(),
            named: 0,
            under_way: None,
            reply: Reply::default(),
            server_version,
            process_id,
        })
    }

    /// The server's version in its own words, such as `15.13 (Debian 15.13-0+deb12u1)`.
    #[must_use]
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// The process that serves this connection, as the server's system numbers it.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Takes in the rest of a reply that nobody waits for any more.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        while let Some(statement) = self.under_way {
            match self.take_in(statement) {
                Ok(None) => self.wait(statement)?,
                Ok(Some(_)) => {}
                Err(error) if self.channel.is_lost() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Waits until more of the reply has arrived.
    #[inline]
    fn wait(&mut self, statement: usize) -> Result<(), Error> {
        match self.channel.fill() {
            Ok(()) => Ok(()),
            Err(lost) => Err(self.lost(lost, statement)),
        }
    }

    /// Takes in what has arrived of the reply; the answer when it is complete.
    #[inline]
    fn take_in(&mut self, statement: usize) -> Result<Option<Answer>, Error> {
        let columns = &mut self.statements[statement].columns;
        match self.reply.take(self.channel.arrived.unread(), columns) {
            Ok(used) => self.channel.arrived.consume(used),
            Err(malformed) => return Err(self.lost(malformed, statement)),
        }
        let Some(transaction) = self.reply.end else {
            if self.reply.wants_data {
                self.refuse_to_copy(statement)?;
            }
            return Ok(None);
        };
        self.under_way = None;
        match self.reply.error {
            None => Ok(Some(self.reply.answer)),
            Some(_) => Err(self.failed(statement, transaction)),
        }
    }

    #[cold]
    fn refuse_to_copy(&mut self, statement: usize) -> Result<(), Error> {
        self.reply.wants_data = false;
        self.channel
            .refuse_to_copy(self.mode == StatementMode::Prepared)
            .map_err(|lost| self.lost(lost, statement))
    }

    #[cold]
    fn failed(&mut self, statement: usize, transaction: Transaction) -> Error {
        let error = self.reply.error.take().unwrap_or_default();
        let kind = error.kind(transaction != Transaction::Idle);
        error.into_error(executing(&self.statements[statement].sql), kind)
    }

    #[cold]
    fn lost(&mut self, lost: impl Into<Lost>, statement: usize) -> Error {
        self.under_way = None;
        let said = self.reply.error.take();
        self.channel.fail(lost.into(), said, executing(&self.statements[statement].sql))
    }

    /// Parses `sql` at the server under a name, and asks what it takes and gives.
    fn describe(&mut self, sql: &str, name: &str) -> Result<Description, Error> {
        let out = &mut self.channel.out;
        out.clear();
        put(out, b'P', |out| {
            put_text(out, name);
            put_text(out, sql);
            // No types of parameters: the server finds them.
            out.extend_from_slice(&[0, 0]);
        });
        put(out, b'D', |out| {
            out.push(b'S');
            put_text(out, name);
        });
        put(out, b'S', |_| {});
        let mut description = Description::default();
        let doing = || format!("preparing {}", shortened(sql));
        self.channel
            .exchange(&doing, &mut |tag, body| match tag {
                b't' => description.read_parameters(body),
                b'T' => description.read_columns(body),
                // ParseComplete, NoData.
                b'1' | b'n' => Ok(()),
                tag => Err(Malformed::unexpected(tag)),
            })?
            .into_result(doing)?;
        Ok(description)
    }

    /// Runs one statement by the simple protocol; `row` gets each row.
    fn simple(
        &mut self,
        sql: &str,
        row: &mut dyn FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        let doing = || executing(sql);
        self.channel.out.clear();
        put(&mut self.channel.out, b'Q', |out| put_text(out, sql));
        self.channel
            .exchange(&doing, &mut |tag, body| match tag {
                b'D' => row(body),
                // What comes before and after rows, an empty statement, and what COPY sends.
                b'T' | b'C' | b'I' | b'H' | b'd' | b'c' => Ok(()),
                tag => Err(Malformed::unexpected(tag)),
            })?
            .into_result(doing)
    }
}

impl Connection for PostgresConnection {
    fn placeholder(n: usize) -> String {
        format!("${n}")
    }

    fn begin_sql(_writes: bool) -> &'static str {
        "BEGIN"
    }

    fn prepare(&mut self, sql: &str) -> Result<StatementId, Error> {
        self.settle()?;
        check_text(sql)?;
        let name = match self.mode {
            StatementMode::Prepared => {
                self.named += 1;
                self.named.to_string()
            }
            // Without a name: the server checks it and tells its parameters and columns, and
            // keeps nothing.
            StatementMode::Text => String::new(),
        };
        let description = self.describe(sql, &name)?;
        self.statements.push(Statement::new(sql, name, self.mode, &description));
        Ok(StatementId(self.statements.len() - 1))
    }

    #[inline]
    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error> {
        self.send(statement, params)?;
        loop {
            // Nothing of the reply can be there yet: first wait.
            self.wait(statement.0)?;
            if let Some(answer) = self.take_in(statement.0)? {
                return Ok(answer);
            }
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        self.settle()?;
        check_text(sql)?;
        for statement in sql::statements(sql) {
            self.simple(statement, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        self.settle()?;
        check_text(sql)?;
        let mut rows = Vec::new();
        self.simple(sql, &mut |body| {
            let mut fields = Fields(body);
            let count = fields.count()?;
            let values = (0..count).map(|_| Ok(fields.value()?.map(words)));
            rows.push(values.collect::<Result<Vec<_>, Malformed>>()?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// What fails here shows up at the next request: the connection is lost.
    fn close_statements(&mut self) {
        let settled = self.settle();
        let statements = std::mem::take(&mut self.statements);
        let names: Vec<_> = statements.into_iter().filter_map(|statement| statement.name).collect();
        if settled.is_err() || names.is_empty() {
            return;
        }
        let out = &mut self.channel.out;
        out.clear();
        for name in names {
            put(out, b'C', |out| {
                out.push(b'S');
                put_text(out, &name);
            });
        }
        put(out, b'S', |_| {});
        // CloseComplete, once for each.
        let _ = self.channel.exchange(&|| "closing statements".to_owned(), &mut |_, _| Ok(()));
    }

    /// The server itself waits for locks.
    fn busy_retries(&self) -> u64 {
        0
    }
}

impl NonBlockingConnection for PostgresConnection {
    #[inline]
    fn send(&mut self, statement: StatementId, params: &Params) -> Result<(), Error> {
        if self.under_way.is_some() {
            self.settle()?;
        }
        let prepared = &self.statements[statement.0];
        if let Err(message) = prepared.write(&mut self.channel.out, params) {
            return Err(refused(executing(&prepared.sql), message));
        }
        self.reply = Reply::default();
        if let Err(lost) = self.channel.send() {
            return Err(self.lost(lost, statement.0));
        }
        self.under_way = Some(statement.0);
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self) -> Result<Option<Answer>, Error> {
        let Some(statement) = self.under_way else {
            let message = "nothing was sent that could be answered".to_owned();
            return Err(refused("receiving an answer".to_owned(), message));
        };
        loop {
            match self.channel.try_fill() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(lost) => return Err(self.lost(lost, statement)),
            }
            if let Some(answer) = self.take_in(statement)? {
                return Ok(Some(answer));
            }
        }
    }
}

impl AsFd for PostgresConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.stream.as_fd()
    }
}

impl Drop for PostgresConnection {
    /// Says goodbye, so that the server's log has no complaint. Not in the middle of a request: it
    /// could wait for a server that waits for us.
    fn drop(&mut self) {
        if self.under_way.is_none() {
            self.channel.out.clear();
            put(&mut self.channel.out, b'X', |_| {});
            let _ = self.channel.send();
        }
    }
}

/// The protocol's texts end with a zero byte.
pub(super) fn check_text(sql: &str) -> Result<(), Error> {
    if sql.contains('\0') {
        let message = "there is a zero byte in the SQL".to_owned();
        return Err(refused(format!("reading {}", shortened(sql)), message));
    }
    Ok(())
}

pub(super) fn executing(sql: &str) -> String {
    format!("executing {}", shortened(sql))
}

/// An error of a call that did not reach the server.
#[cold]
pub(super) fn refused(doing: String, message: String) -> Error {
    Error { doing, message, code: 0, kind: ErrorKind::Statement }
}
