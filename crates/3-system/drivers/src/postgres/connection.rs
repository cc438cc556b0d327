use std::os::fd::{AsFd, BorrowedFd};

use dbdyno_types::server::{StatementMode, Target};

use super::channel::{Channel, ConnectionLost, Response, Step};
use super::channel::{Fields, Malformed, Message, lossy_string, put, put_text};
use super::login::{LoginResult, log_in};
use super::reply::{Reply, ServerError, Transaction, number_at_end};
use super::sql;
use super::statement::{Description, Statement};
use crate::error::{connection_lost, executing, truncate_sql};
use crate::net::TextRows;
use crate::{
    Answer, Connection, Error, ErrorKind, NonBlockingConnection, Params, Received, ResultShape,
    StatementId, TextRow,
};

/// A connection to a PostgreSQL server.
///
/// The code of an error from the server is its SQLSTATE.
pub struct PostgresConnection {
    pub(super) channel: Channel,
    mode: StatementMode,
    statements: Vec<Statement>,
    /// Numbers of closed statements.
    free: Vec<usize>,
    /// Names of closed statements, which the next request to prepare one closes on the server.
    closed: Vec<String>,
    /// Number of named statements so far: names are not reused.
    named: u64,
    /// The statement whose reply is incomplete.
    in_progress: Option<usize>,
    /// The reply of that statement.
    reply: Reply,
    server_version: String,
    backend_at_login: Option<u32>,
    /// The number of the statement of [`Connection::text_statement`].
    text: Option<usize>,
    /// The messages of its last reply.
    kept: Vec<u8>,
    /// They were too long and are not kept.
    too_long: bool,
}

impl PostgresConnection {
    /// Connects and logs in. `mode` is how statements are sent.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`] if the server does not listen, is starting or is stopping;
    /// [`ErrorKind::Refused`] if it refuses the login or is older than PostgreSQL 10.
    pub fn connect(target: &Target, mode: StatementMode) -> Result<Self, Error> {
        let LoginResult { channel, server_version, backend } = log_in(target)?;
        Ok(Self {
            channel,
            mode,
            statements: Vec::new(),
            free: Vec::new(),
            closed: Vec::new(),
            named: 0,
            in_progress: None,
            reply: Reply::default(),
            server_version,
            backend_at_login: backend,
            text: None,
            kept: Vec::new(),
            too_long: false,
        })
    }

    /// The version that the server reports, such as `15.13 (Debian 15.13-0+deb12u1)`.
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// The process id of the session that the server announced at the login; `None` if it announced none.
    pub const fn backend_at_login(&self) -> Option<u32> {
        self.backend_at_login
    }

    /// The process id of the session that executes this request. A pooler lets clients in before it has a session for
    /// them, and announces another id.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`] if there is no session within ten seconds.
    pub fn backend(&mut self) -> Result<u32, Error> {
        const SQL: &str = "SELECT pg_catalog.pg_backend_pid()";
        self.channel.stream.start_timeout();
        let rows = self.query(SQL);
        let ended = self.channel.stream.disable_timeout();
        let rows = rows.map_err(without_session)?;
        ended.map_err(|error| connection_lost(executing(SQL), &error))?;
        let id = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        id.ok_or_else(|| refused(executing(SQL), "the answer is not a process ID"))
    }

    /// Reads the rest of a reply that was not received.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        while let Some(statement) = self.in_progress {
            match self.advance(statement) {
                Ok(None) => self.wait(statement)?,
                Ok(Some(_)) => {}
                Err(error) if self.channel.is_lost() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Waits for more of the reply.
    #[inline]
    fn wait(&mut self, statement: usize) -> Result<(), Error> {
        match self.channel.fill() {
            Ok(()) => Ok(()),
            Err(lost) => Err(self.lost(lost, statement)),
        }
    }

    /// Processes received bytes; returns the answer if the reply is complete.
    #[inline]
    fn advance(&mut self, statement: usize) -> Result<Option<Answer>, Error> {
        let columns = &mut self.statements[statement].columns;
        match self.reply.advance(self.channel.received.unread(), columns) {
            Ok(used) => {
                if self.text == Some(statement) && !self.too_long {
                    self.too_long = self.kept.len() + used > TextRows::MAX_SIZE;
                    match self.too_long {
                        true => self.kept = Vec::new(),
                        false => {
                            self.kept.extend_from_slice(&self.channel.received.unread()[..used])
                        }
                    }
                }
                self.channel.received.consume(used);
            }
            Err(malformed) => return Err(self.lost(malformed, statement)),
        }
        let Some(transaction) = self.reply.end else {
            if self.reply.awaits_copy_data {
                self.fail_copy(statement)?;
            }
            return Ok(None);
        };
        self.in_progress = None;
        match self.reply.error {
            None => Ok(Some(self.reply.answer)),
            Some(_) => Err(self.failed(statement, transaction)),
        }
    }

    #[cold]
    fn fail_copy(&mut self, statement: usize) -> Result<(), Error> {
        self.reply.awaits_copy_data = false;
        // Only statements with a name are executed by the extended protocol.
        let extended = self.statements[statement].name.is_some();
        self.channel.fail_copy(extended).map_err(|lost| self.lost(lost, statement))
    }

    #[cold]
    fn failed(&mut self, statement: usize, transaction: Transaction) -> Error {
        let error = self.reply.error.take().unwrap_or_default();
        let kind = error.kind(transaction != Transaction::Idle);
        error.into_error(executing(&self.statements[statement].sql), kind)
    }

    #[cold]
    fn lost(&mut self, lost: impl Into<ConnectionLost>, statement: usize) -> Error {
        self.in_progress = None;
        let reported = self.reply.error.take();
        self.channel.fail(lost.into(), reported, executing(&self.statements[statement].sql))
    }

    /// Parses `sql` under this name and reads the types of its parameters and columns.
    fn describe(&mut self, sql: &[u8], name: &str) -> Result<Description, Error> {
        let out = &mut self.channel.out;
        out.clear();
        put_close(out, self.closed.drain(..));
        put(out, b'P', |out| {
            put_text(out, name);
            put_text(out, sql);
            // Parameter types are left to the server.
            out.extend_from_slice(&[0, 0]);
        });
        put(out, b'D', |out| {
            out.push(b'S');
            put_text(out, name);
        });
        put(out, b'S', |_| {});
        let mut description = Description::default();
        let doing = || format!("preparing {}", truncate_sql(sql));
        self.channel
            .exchange(&doing, &mut |tag, body| match tag {
                b't' => description.read_parameters(body),
                b'T' => description.read_columns(body),
                // ParseComplete, CloseComplete, NoData.
                b'1' | b'3' | b'n' => Ok(()),
                tag => Err(Malformed::unexpected(tag)),
            })?
            .into_result(doing)?;
        Ok(description)
    }

    /// Executes one statement by the simple query protocol; `row` is called for each row.
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
                // RowDescription, CommandComplete, EmptyQueryResponse, and messages of COPY.
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

    fn prepare(&mut self, sql: impl AsRef<[u8]>) -> Result<StatementId, Error> {
        let sql = sql.as_ref();
        self.drain()?;
        check_text(sql)?;
        let name = match self.mode {
            StatementMode::Prepared => {
                self.named += 1;
                self.named.to_string()
            }
            // Unnamed: the server checks it, describes it, and does not keep it.
            StatementMode::Text => String::new(),
        };
        let description = self.describe(sql, &name)?;
        let statement = Statement::new(sql, name, self.mode, &description);
        if let Some(number) = self.free.pop() {
            self.statements[number] = statement;
            return Ok(StatementId(number));
        }
        self.statements.push(statement);
        Ok(StatementId(self.statements.len() - 1))
    }

    #[inline]
    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error> {
        self.send(statement, params)?;
        loop {
            // Nothing can have arrived yet, so wait first.
            self.wait(statement.0)?;
            if let Some(answer) = self.advance(statement.0)? {
                return Ok(answer);
            }
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        self.drain()?;
        check_text(sql)?;
        for statement in sql::statements(sql) {
            self.simple(statement, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        self.drain()?;
        check_text(sql)?;
        let mut rows = TextRows::default();
        let outcome = self.simple(sql, &mut |body| {
            let mut fields = Fields(body);
            let count = fields.count()?;
            let values = (0..count).map(|_| Ok(fields.value()?.map(lossy_string)));
            if rows.push(values.collect::<Result<_, Malformed>>()?) {
                Ok(())
            } else {
                Err(Malformed::new("too many rows"))
            }
        });
        rows.finish(outcome)
    }

    fn text_statement(&mut self, sql: &[u8]) -> Result<StatementId, Error> {
        self.drain()?;
        check_text(sql)?;
        let statement = Statement::plain(sql);
        let number = *self.text.get_or_insert(self.statements.len());
        match self.statements.get_mut(number) {
            Some(last) => *last = statement,
            None => self.statements.push(statement),
        }
        Ok(StatementId(number))
    }

    fn result(&self) -> ResultShape {
        self.reply.result
    }

    fn take_rows(&mut self) -> Vec<TextRow> {
        let kept = std::mem::take(&mut self.kept);
        let (mut rows, mut is_described) = (Vec::new(), false);
        let mut rest = &kept[..];
        // The reply was valid.
        while let Ok(Some((message, behind))) = Message::first(rest) {
            // Only the rows of the last result are returned.
            match message.tag {
                b'T' => {
                    rows.clear();
                    is_described = true;
                }
                b'C' if is_described => is_described = false,
                b'C' => rows.clear(),
                b'D' => {
                    let mut fields = Fields(message.body);
                    let count = fields.count().unwrap_or(0);
                    let values = (0..count).map(|_| Ok(fields.value()?.map(<[u8]>::to_vec)));
                    rows.push(values.collect::<Result<_, Malformed>>().unwrap_or_default());
                }
                _ => {}
            }
            rest = behind;
        }
        rows
    }

    fn close_statement(&mut self, statement: StatementId) {
        self.closed.extend(self.statements[statement.0].name.take());
        self.free.push(statement.0);
    }

    /// Errors are reported by the next request: the connection is lost then.
    fn close_statements(&mut self) {
        self.text = None;
        let drained = self.drain();
        let statements = std::mem::take(&mut self.statements);
        self.free.clear();
        let mut names = std::mem::take(&mut self.closed);
        names.extend(statements.into_iter().filter_map(|statement| statement.name));
        if drained.is_err() || names.is_empty() {
            return;
        }
        let out = &mut self.channel.out;
        out.clear();
        put_close(out, names.into_iter());
        put(out, b'S', |_| {});
        // One CloseComplete for each.
        let _ = self.channel.exchange(&|| "closing statements".to_owned(), &mut |_, _| Ok(()));
    }
}

impl NonBlockingConnection for PostgresConnection {
    #[inline]
    fn send(&mut self, statement: StatementId, params: &Params) -> Result<(), Error> {
        if self.in_progress.is_some() {
            self.drain()?;
        }
        let prepared = &self.statements[statement.0];
        if let Err(error) = prepared.write(&mut self.channel.out, params) {
            return Err(refused(executing(&prepared.sql), error.to_string()));
        }
        self.reply = Reply::default();
        self.kept.clear();
        self.too_long = false;
        if let Err(lost) = self.channel.send() {
            return Err(self.lost(lost, statement.0));
        }
        self.in_progress = Some(statement.0);
        Ok(())
    }

    #[inline]
    fn receive_available(&mut self) -> Result<Received, Error> {
        let Some(statement) = self.in_progress else {
            return match self.channel.receive_notices() {
                Ok(()) => Ok(Received::Nothing),
                Err(lost) => Err(self.channel.fail(lost, None, "reading notices".to_owned())),
            };
        };
        let mut received = Received::Nothing;
        loop {
            match self.channel.try_fill() {
                Ok(true) => {}
                Ok(false) => return Ok(received),
                Err(lost) => return Err(self.lost(lost, statement)),
            }
            if let Some(answer) = self.advance(statement)? {
                return Ok(Received::Answer(answer));
            }
            received = Received::Part;
        }
    }
}

impl AsFd for PostgresConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.stream.as_fd()
    }
}

impl Drop for PostgresConnection {
    /// Sends Terminate, so that the server logs no error. Not during a request: the server may be waiting
    /// for this client.
    fn drop(&mut self) {
        if self.in_progress.is_none() {
            self.channel.out.clear();
            put(&mut self.channel.out, b'X', |_| {});
            let _ = self.channel.send();
        }
    }
}

/// Appends a Close of each of these statements.
fn put_close(out: &mut Vec<u8>, names: impl Iterator<Item = String>) {
    for name in names {
        put(out, b'C', |out| {
            out.push(b'S');
            put_text(out, &name);
        });
    }
}

/// Checks that a text has no zero byte, which ends texts in the protocol.
pub(super) fn check_text(sql: impl AsRef<[u8]>) -> Result<(), Error> {
    if sql.as_ref().contains(&0) {
        let doing = format!("reading {}", truncate_sql(sql));
        return Err(refused(doing, "the SQL text contains a zero byte"));
    }
    Ok(())
}

/// An error of a call that sent nothing to the server.
#[cold]
fn refused(doing: String, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Statement, doing, message)
}

/// The error of the first request of a connection.
#[cold]
fn without_session(mut error: Error) -> Error {
    if error.kind == ErrorKind::Connection {
        error.message.push_str(
            "; if a pooler such as PgBouncer listens there, none of its connections to PostgreSQL was \
             free: raise its `default_pool_size`, or connect to PostgreSQL itself",
        );
    }
    error
}

/// Rows are sent in batches of about this many bytes.
const BATCH: usize = 64 << 10;

/// The state of a COPY.
#[derive(Default)]
struct Copy {
    /// The server has asked for data.
    started: bool,
    /// Number of rows that the server reported.
    rows: u64,
    error: Option<Box<ServerError>>,
}

impl PostgresConnection {
    /// Loads a table with `COPY … FROM STDIN` and returns the number of rows.
    ///
    /// `next` appends one or more rows in COPY's text format (each ends with a newline) and returns whether
    /// there are more. It is not called after the server has reported an error.
    ///
    /// # Errors
    /// `sql` is not such a statement, or the server rejected a row. The connection remains usable unless it is
    /// lost.
    pub fn copy_in(
        &mut self,
        sql: &str,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<u64, Error> {
        self.drain()?;
        check_text(sql)?;
        let mut copy = Copy::default();
        let transaction = match self.try_copy(sql, next, &mut copy) {
            Ok(transaction) => transaction,
            Err(lost) => return Err(self.channel.fail(lost, copy.error, executing(sql))),
        };
        Response { error: copy.error, transaction }.into_result(|| executing(sql))?;
        if !copy.started {
            let message =
                "the server did not request data; the statement must be COPY … FROM STDIN";
            return Err(refused(executing(sql), message));
        }
        Ok(copy.rows)
    }

    fn try_copy(
        &mut self,
        sql: &str,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
        copy: &mut Copy,
    ) -> Result<Transaction, ConnectionLost> {
        self.channel.out.clear();
        put(&mut self.channel.out, b'Q', |out| put_text(out, sql));
        self.channel.send()?;
        loop {
            match self.step_of_copy(copy)? {
                Step::More => {}
                Step::End(transaction) => return Ok(transaction),
                Step::Copy if copy.started => self.channel.fail_copy(false)?,
                Step::Copy => {
                    copy.started = true;
                    self.send_rows(next)?;
                }
            }
        }
    }

    /// Sends rows until there are no more or the server sends a message. That is usually an error, after
    /// which the server ignores further rows.
    fn send_rows(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<(), ConnectionLost> {
        let mut rows = Vec::new();
        let mut more = true;
        while more {
            rows.clear();
            while more && rows.len() < BATCH {
                more = next(&mut rows);
            }
            self.channel.out.clear();
            if !rows.is_empty() {
                put(&mut self.channel.out, b'd', |out| out.extend_from_slice(&rows));
            }
            if !more {
                put(&mut self.channel.out, b'c', |_| {});
            }
            self.channel.send()?;
            if more && self.channel.has_message()? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn step_of_copy(&mut self, copy: &mut Copy) -> Result<Step, ConnectionLost> {
        let Copy { rows, error, .. } = copy;
        self.channel.step(error, &mut |tag, body| match tag {
            b'C' => {
                *rows = number_at_end(body);
                Ok(())
            }
            // Results of another statement in the text.
            b'T' | b'D' | b'I' | b'H' | b'd' | b'c' => Ok(()),
            tag => Err(Malformed::unexpected(tag)),
        })
    }
}
