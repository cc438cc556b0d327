use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use dbdyno_types::server::{StatementMode, Target};

use super::greeting::{Capabilities, DEPRECATE_EOF, is_mariadb};
use super::login::{LoginResult, log_in};
use super::reply::{ERR, ErrPacket, NOT_PREPARABLE, OK, Reply, ReplyError, is_eof_packet};
use super::request::{self, Execution, Request, Template};
use super::rows::{ColumnType, binary_row_digest, text_row_digest, texts};
use super::wire::{Cursor, Malformed, frame};
use crate::error::{connection_lost, executing, truncate_sql};
use crate::net::{ReadBuffer, Stream, TextRows};
use crate::{
    Answer, Connection, Error, ErrorKind, NonBlockingConnection, Params, Received, ResultShape,
    StatementId, TextRow,
};

pub struct MySqlConnection {
    stream: Stream,
    buffer: ReadBuffer,
    request: Request,
    reply: Reply,
    statements: Vec<Statement>,
    /// Numbers of closed statements.
    free: Vec<usize>,
    /// The statement whose answer is in progress.
    current: usize,
    mode: StatementMode,
    capabilities: Capabilities,
    version: String,
    connection_id: u32,
    /// The number of the statement of [`Connection::text_statement`].
    text: Option<usize>,
    kept_rows: KeptRows,
    /// Rows of the current result of that statement that were not taken.
    left: u64,
}

/// The rows of the last text statement.
#[derive(Default)]
struct KeptRows {
    bytes: Vec<u8>,
    /// Bytes of rows that were taken.
    taken: usize,
    rows: VecDeque<KeptRow>,
    /// None are kept.
    too_many: bool,
}

struct KeptRow {
    /// In bytes.
    length: usize,
    /// Results of one statement may have different ones.
    columns: usize,
}

impl KeptRows {
    fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
        self.rows.clear();
        self.too_many = false;
    }

    fn push(&mut self, columns: usize, row: &[u8]) {
        if self.too_many {
            return;
        }
        let size = self.bytes.len() + row.len() + self.rows.len() * size_of::<KeptRow>();
        if size > TextRows::MAX_SIZE {
            *self = Self { too_many: true, ..Self::default() };
            return;
        }
        self.rows.push_back(KeptRow { length: row.len(), columns });
        self.bytes.extend_from_slice(row);
    }

    /// Removes this number of rows. Returns their values as text.
    fn take(&mut self, count: u64) -> Vec<TextRow> {
        let count = self.rows.len().min(count as usize);
        let rows = self.rows.drain(..count).map(|KeptRow { length, columns }| {
            let row = &self.bytes[self.taken..self.taken + length];
            self.taken += length;
            // The digest has read every value before.
            texts(columns, row).unwrap_or_default()
        });
        rows.collect()
    }
}

struct Statement {
    sql: Vec<u8>,
    form: Form,
    columns: Vec<ColumnType>,
}

enum Preparation {
    Done { number: u32, params: usize, columns: Vec<ColumnType> },
    Refused(ErrPacket),
}

enum Form {
    Prepared {
        number: u32,
        execution: Execution,
    },
    Text(Template),
    /// SQL without parameters, executed as it is.
    Plain,
}

impl MySqlConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`] if the server does not answer, [`ErrorKind::Refused`] if it refuses the
    /// login (user, password, encryption, too many connections) or its version is not supported.
    pub fn connect(target: &Target, mode: StatementMode) -> Result<Self, Error> {
        let LoginResult { stream, capabilities, status, version, connection_id } = log_in(target)?;
        Ok(Self {
            stream,
            buffer: ReadBuffer::new(),
            request: Request::default(),
            reply: Reply::new(capabilities, status),
            statements: Vec::new(),
            free: Vec::new(),
            current: 0,
            mode,
            capabilities,
            version,
            connection_id,
            text: None,
            kept_rows: KeptRows::default(),
            left: 0,
        })
    }

    /// The version that the server reports, such as `10.11.6-MariaDB-0+deb12u1` or `8.0.36`.
    pub fn server_version(&self) -> &str {
        &self.version
    }

    /// The lower half of the connection's id, as greeted: not that of the server if a proxy is between.
    pub const fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// Waits until a session of the server answers. A proxy lets clients in before it has one for them, and a server that
    /// is overloaded may never answer.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`] without an answer within ten seconds.
    pub fn await_session(&mut self) -> Result<(), Error> {
        const SQL: &str = "SELECT 1";
        self.stream.start_timeout();
        let answered = self.query(SQL);
        let ended = self.stream.disable_timeout();
        answered?;
        ended.map_err(|error| connection_lost(executing(SQL), &error))
    }

    /// Whether the server is MariaDB rather than MySQL.
    pub fn is_mariadb(&self) -> bool {
        is_mariadb(&self.version)
    }

    /// Sends the request and expects an answer.
    #[inline]
    fn dispatch(&mut self) -> std::io::Result<()> {
        self.reply.begin();
        self.request.send(&mut self.stream, 0)
    }

    /// The error for a connection that is lost before an answer: the server's if it has sent one, such as that the
    /// request is too long, before it closed the connection; else the network's.
    #[cold]
    fn lost(&mut self, doing: String, error: &std::io::Error) -> Error {
        let reported = self.last_error();
        self.reply.mark_lost();
        match reported {
            Some(reported) => {
                let error = reported.error(doing, false);
                let kind = if error.kind.is_fatal() { error.kind } else { ErrorKind::Connection };
                Error { kind, ..error }
            }
            None => connection_lost(doing, error),
        }
    }

    /// Without a request, a server sends only why it closes the connection.
    #[cold]
    fn receive_unrequested(&mut self) -> Result<Received, Error> {
        let doing = || "waiting without a request".to_owned();
        self.check_idle(doing)?;
        let error = match self.buffer.try_fill(&mut self.stream) {
            Ok(false) => return Ok(Received::Nothing),
            Ok(true) => std::io::Error::other("the server sent what was not requested"),
            Err(error) => error,
        };
        Err(self.lost(doing(), &error))
    }

    /// The error that the server has sent without a request or before all of one was sent.
    fn last_error(&mut self) -> Option<ErrPacket> {
        let mut joined = Vec::new();
        loop {
            if let Some(framed) = frame(self.buffer.unread(), &mut joined) {
                let is_error = framed.payload.first() == Some(&ERR);
                return if is_error { ErrPacket::parse(framed.payload).ok() } else { None };
            }
            if !self.buffer.try_fill(&mut self.stream).unwrap_or(false) {
                return None;
            }
        }
    }

    /// Fails if no request can be sent now.
    #[inline]
    fn check_idle(&self, doing: impl FnOnce() -> String) -> Result<(), Error> {
        if self.reply.is_idle() {
            return Ok(());
        }
        let (message, kind) = if self.reply.is_lost() {
            ("the connection was lost before", ErrorKind::Connection)
        } else {
            ("the answer to the last request was not received", ErrorKind::Statement)
        };
        Err(Error::new(kind, doing(), message))
    }

    /// Processes received bytes of the current answer.
    #[inline]
    fn advance(&mut self) -> Result<Option<Answer>, Error> {
        let statement = &mut self.statements[self.current];
        let columns = &mut statement.columns;
        let bytes = self.buffer.unread();
        let (taken, outcome) = match &statement.form {
            Form::Prepared { .. } => self.reply.advance(bytes, columns, binary_row_digest),
            Form::Text(_) => self.reply.advance(bytes, columns, text_row_digest),
            Form::Plain => {
                let kept = &mut self.kept_rows;
                self.reply.advance(bytes, columns, |columns, row| {
                    kept.push(columns.len(), row);
                    text_row_digest(columns, row)
                })
            }
        };
        self.buffer.consume(taken);
        if matches!(statement.form, Form::Plain) && matches!(outcome, Ok(Some(_))) {
            self.left = self.reply.first_result().rows;
        }
        outcome.map_err(|failure| self.statement_failed(failure))
    }

    #[cold]
    fn statement_failed(&mut self, failure: ReplyError) -> Error {
        let statement = &mut self.statements[self.current];
        if let Form::Prepared { execution, .. } = &mut statement.form {
            execution.forget_types();
        }
        let doing = executing(&statement.sql);
        self.failed(doing, failure)
    }

    fn failed(&self, doing: String, failure: ReplyError) -> Error {
        let what = match failure {
            ReplyError::Server(failure) => {
                return failure.error(doing, self.reply.in_transaction());
            }
            ReplyError::LocalFile(file) => {
                format!("requested the local file {file:?}, which is not sent")
            }
            ReplyError::Malformed => "sent an invalid response".to_owned(),
        };
        let message = format!("the server {what}; the connection is closed");
        Error::new(ErrorKind::Connection, doing, message)
    }

    #[cold]
    fn statement_lost(&mut self, error: &std::io::Error) -> Error {
        self.reply.mark_lost();
        connection_lost(executing(&self.statements[self.current].sql), error)
    }

    /// Executes SQL text; `row` is called with the number of columns and each row in text format.
    fn run_text(
        &mut self,
        sql: &str,
        mut row: impl FnMut(usize, &[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        self.check_idle(|| executing(sql))?;
        self.request.start(request::QUERY).extend_from_slice(sql.as_bytes());
        if let Err(error) = self.dispatch() {
            return Err(self.lost(executing(sql), &error));
        }
        let mut columns = Vec::new();
        loop {
            if let Err(error) = self.buffer.fill(&mut self.stream) {
                self.reply.mark_lost();
                return Err(connection_lost(executing(sql), &error));
            }
            let bytes = self.buffer.unread();
            let (taken, outcome) = self.reply.advance(bytes, &mut columns, |columns, bytes| {
                row(columns.len(), bytes).map(|()| 0)
            });
            self.buffer.consume(taken);
            match outcome {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(failure) => return Err(self.failed(executing(sql), failure)),
            }
        }
    }

    /// Prepares a statement on the server; `None` if the server cannot prepare this kind of statement.
    fn prepare_on_server(&mut self, sql: &[u8]) -> Result<Option<Statement>, Error> {
        let doing = || format!("preparing {}", truncate_sql(sql));
        self.request.start(request::PREPARE).extend_from_slice(sql);
        if let Err(error) = self.request.send(&mut self.stream, 0) {
            return Err(self.lost(doing(), &error));
        }
        match self.receive_prepared(&doing)? {
            Preparation::Done { number, params, columns } => {
                let execution = Execution::new(number, params);
                let form = Form::Prepared { number, execution };
                Ok(Some(Statement { sql: sql.to_owned(), form, columns }))
            }
            Preparation::Refused(failure) if failure.code == NOT_PREPARABLE => Ok(None),
            Preparation::Refused(failure) => Err(self.failed(doing(), ReplyError::Server(failure))),
        }
    }

    /// Reads the response to a request to prepare.
    fn receive_prepared(&mut self, doing: &impl Fn() -> String) -> Result<Preparation, Error> {
        let packet = self.receive(doing)?;
        if packet.first() == Some(&ERR) {
            return match ErrPacket::parse(&packet) {
                Ok(failure) => Ok(Preparation::Refused(failure)),
                Err(Malformed) => Err(self.malformed(doing())),
            };
        }
        let Ok((number, columns, params)) = parse_prepare_ok(&packet) else {
            return Err(self.malformed(doing()));
        };
        self.receive_definitions(params.into(), doing, |_| Ok(()))?;
        let mut types = Vec::new();
        self.receive_definitions(columns.into(), doing, |definition| {
            types.push(ColumnType::from_definition(definition)?);
            Ok(())
        })?;
        Ok(Preparation::Done { number, params: params.into(), columns: types })
    }

    #[cold]
    fn malformed(&mut self, doing: String) -> Error {
        self.reply.mark_lost();
        self.failed(doing, ReplyError::Malformed)
    }

    /// Receives this many definitions of parameters or columns.
    fn receive_definitions(
        &mut self,
        count: usize,
        doing: &impl Fn() -> String,
        mut each: impl FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        for _ in 0..count {
            let definition = self.receive(doing)?;
            each(&definition).map_err(|Malformed| self.malformed(doing()))?;
        }
        if count > 0
            && !self.capabilities.has(DEPRECATE_EOF)
            && !is_eof_packet(&self.receive(doing)?)
        {
            return Err(self.malformed(doing()));
        }
        Ok(())
    }

    /// Closes a statement on the server if no answer is in progress.
    fn close(&mut self, form: &Form) {
        if let Form::Prepared { number, .. } = form
            && self.reply.is_idle()
        {
            self.request.start(request::CLOSE).extend_from_slice(&number.to_le_bytes());
            // There is no response. If the connection is lost, the next request reports it.
            let _ = self.request.send(&mut self.stream, 0);
        }
    }

    /// The next packet.
    fn receive(&mut self, doing: &impl Fn() -> String) -> Result<Vec<u8>, Error> {
        let mut joined = Vec::new();
        loop {
            if let Some(framed) = frame(self.buffer.unread(), &mut joined) {
                let (packet, taken) = (framed.payload.to_vec(), framed.taken);
                self.buffer.consume(taken);
                return Ok(packet);
            }
            if let Err(error) = self.buffer.fill(&mut self.stream) {
                self.reply.mark_lost();
                return Err(connection_lost(doing(), &error));
            }
        }
    }
}

impl Connection for MySqlConnection {
    fn placeholder(_: usize) -> String {
        "?".to_owned()
    }

    fn begin_sql(_: bool) -> &'static str {
        "START TRANSACTION"
    }

    fn prepare(&mut self, sql: impl AsRef<[u8]>) -> Result<StatementId, Error> {
        let sql = sql.as_ref();
        self.check_idle(|| format!("preparing {}", truncate_sql(sql)))?;
        let prepared = match self.mode {
            StatementMode::Prepared => self.prepare_on_server(sql)?,
            StatementMode::Text => None,
        };
        let statement = prepared.unwrap_or_else(|| Statement {
            sql: sql.to_owned(),
            form: Form::Text(Template::new(sql, self.reply.plain_backslashes())),
            columns: Vec::new(),
        });
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
            if let Err(error) = self.buffer.fill(&mut self.stream) {
                return Err(self.statement_lost(&error));
            }
            if let Some(answer) = self.advance()? {
                return Ok(answer);
            }
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        self.run_text(sql, |_, _| Ok(()))
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        let mut rows = TextRows::default();
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let outcome = self.run_text(sql, |columns, row| {
            let row = texts(columns, row)?.into_iter().map(|value| value.map(text));
            if rows.push(row.collect()) { Ok(()) } else { Err(Malformed) }
        });
        rows.finish(outcome)
    }

    fn text_statement(&mut self, sql: &[u8]) -> Result<StatementId, Error> {
        self.check_idle(|| executing(sql))?;
        let number = *self.text.get_or_insert(self.statements.len());
        match self.statements.get_mut(number) {
            Some(last) => {
                last.sql.clear();
                last.sql.extend_from_slice(sql);
                last.columns.clear();
            }
            None => {
                let (form, columns) = (Form::Plain, Vec::new());
                self.statements.push(Statement { sql: sql.to_owned(), form, columns });
            }
        }
        Ok(StatementId(number))
    }

    fn result(&self) -> ResultShape {
        self.reply.first_result()
    }

    fn has_more_results(&self) -> bool {
        self.reply.has_more_results()
    }

    fn next_result(&mut self) -> Option<ResultShape> {
        let next = self.reply.next_result()?;
        self.take_rows();
        self.left = next.rows;
        Some(next)
    }

    fn take_rows(&mut self) -> Vec<TextRow> {
        self.kept_rows.take(std::mem::take(&mut self.left))
    }

    fn close_statement(&mut self, statement: StatementId) {
        let closed = Statement { sql: Vec::new(), form: Form::Plain, columns: Vec::new() };
        let statement_before = std::mem::replace(&mut self.statements[statement.0], closed);
        self.close(&statement_before.form);
        self.free.push(statement.0);
    }

    fn close_statements(&mut self) {
        self.text = None;
        self.free.clear();
        for statement in std::mem::take(&mut self.statements) {
            self.close(&statement.form);
        }
    }
}

impl NonBlockingConnection for MySqlConnection {
    #[inline]
    fn send(&mut self, statement: StatementId, params: &Params) -> Result<(), Error> {
        self.check_idle(|| executing(&self.statements[statement.0].sql))?;
        let Statement { sql, form, .. } = &mut self.statements[statement.0];
        let expected = match form {
            Form::Prepared { execution, .. } => execution.params(),
            Form::Text(template) => template.params(),
            Form::Plain => 0,
        };
        if expected != params.values().len() {
            return Err(wrong_count(sql, expected, params));
        }
        match form {
            Form::Prepared { execution, .. } => self.request.execution(execution, params),
            Form::Text(template) => {
                let bytes = self.request.start(request::QUERY);
                template.write(params, self.reply.plain_backslashes(), bytes);
            }
            Form::Plain => {
                self.kept_rows.clear();
                self.left = 0;
                self.request.start(request::QUERY).extend_from_slice(sql);
            }
        }
        self.current = statement.0;
        match self.dispatch() {
            Ok(()) => Ok(()),
            Err(error) => {
                let doing = executing(&self.statements[statement.0].sql);
                Err(self.lost(doing, &error))
            }
        }
    }

    #[inline]
    fn receive_available(&mut self) -> Result<Received, Error> {
        if !self.reply.is_in_progress() {
            return self.receive_unrequested();
        }
        let mut received = Received::Nothing;
        loop {
            match self.buffer.try_fill(&mut self.stream) {
                Ok(true) => {}
                Ok(false) => return Ok(received),
                Err(error) => return Err(self.statement_lost(&error)),
            }
            if let Some(answer) = self.advance()? {
                return Ok(Received::Answer(answer));
            }
            received = Received::Part;
        }
    }
}

impl AsFd for MySqlConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for MySqlConnection {
    /// Sends COM_QUIT, so that the server does not log an aborted connection.
    fn drop(&mut self) {
        if self.reply.is_idle() {
            self.request.start(request::QUIT);
            // The server may have exited.
            let _ = self.request.send(&mut self.stream, 0);
        }
    }
}

/// Statement id, number of columns and number of parameters.
fn parse_prepare_ok(packet: &[u8]) -> Result<(u32, u16, u16), Malformed> {
    let mut cursor = Cursor::new(packet);
    if cursor.u8()? != OK {
        return Err(Malformed);
    }
    Ok((cursor.u32()?, cursor.u16()?, cursor.u16()?))
}

#[cold]
fn wrong_count(sql: &[u8], expected: usize, params: &Params) -> Error {
    let values = params.values().len();
    let message =
        format!("the statement has {expected} parameters, but {values} values were given");
    Error::new(ErrorKind::Statement, executing(sql), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_rows_of_several_results_have_their_own_columns() {
        let value = |text: &str| Some(text.as_bytes().to_vec());
        let mut kept = KeptRows::default();
        kept.push(2, b"\x01a\x02bc");
        kept.push(1, b"\x01d");
        kept.push(3, b"\xfb\x00\x01e");
        assert_eq!(kept.take(1), [vec![value("a"), value("bc")]]);
        assert_eq!(kept.take(9), [vec![value("d")], vec![None, value(""), value("e")]]);
        assert!(kept.take(1).is_empty());
    }
}
