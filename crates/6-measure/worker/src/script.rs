//! What sysbench scripts send their statements to: a connection of the worker, on which the time is fixed for each
//! block. Answers that contain the real time would differ between candidates.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dbdyno_drivers::{
    Answer, Connection, Error, ErrorCode, ErrorKind, NonBlockingConnection, Params, ResultShape,
    StatementId,
};
use dbdyno_scripts::{
    Access, Client, Driver, Host, IgnoredErrors, Outcome, ParameterType, Progress, Rows,
    START_TIME, ScriptError, Seed, Sent, Setup, SqlError, SqlErrorKind, UniquePosition, Value,
    init, replace_placeholders,
};
use dbdyno_types::StatementTimes;
use dbdyno_types::server::{Address, Protocol, StatementMode, StorageEngine};
use dbdyno_workloads::definition::Script;
use dbdyno_workloads::effect::{Effect, effect};
use dbdyno_workloads::setup::Dialect;
use dbdyno_workloads::shape::{AllowedShapes, shape};

use crate::client_context::ClientContext;
use crate::error::RequestError;
use crate::own_data::refusal;
use crate::protocol::{Open, Quota, SliceRequest, SystemUnderTest};
use crate::statement_log::StatementLog;
use crate::waiting::{EventStep, receive_soon};

/// Lines of a script's output that are kept in the worker's log.
const MOST_LINES: u32 = 1000;

/// What is the same for all scripts of an instance.
#[derive(Clone, Debug)]
pub struct ScriptTarget {
    pub(crate) driver: Driver,
    /// The storage engine that scripts see.
    pub(crate) storage_engine: Option<&'static str>,
    /// By the number of the data.
    pub(crate) access: Vec<Arc<Access>>,
    pub(crate) connections: u32,
    /// The run's schemas on an existing server; none elsewhere.
    pub(crate) own: Arc<Vec<String>>,
}

impl ScriptTarget {
    /// The target for an instance; `None` for SQLite, on which scripts cannot run.
    pub(crate) fn of(open: &Open) -> Option<Self> {
        let SystemUnderTest::Server { settings, .. } = &open.system else { return None };
        let driver = match settings.system.facts().protocol {
            Protocol::MySql => Driver::MySql,
            Protocol::PostgreSql => Driver::PostgreSql,
        };
        let storage_engine = settings.engine.map(|engine| match engine {
            StorageEngine::InnoDb => "innodb",
            StorageEngine::MyRocks => "rocksdb",
        });
        let (host, port, socket) = match &settings.target.address {
            Address::Socket(path) => ("localhost", None, Some(path.display().to_string())),
            Address::Tcp { host, port } => (host.as_str(), Some(*port), None),
        };
        // In PostgreSQL, the schema on an existing server is one of the database.
        let is_in_database = driver == Driver::PostgreSql && !settings.is_private();
        let database = settings.target.database.as_ref().filter(|_| is_in_database);
        let schemas = || std::iter::once(&settings.schema).chain(&open.more_schemas);
        let access = schemas().map(|schema| Access {
            host: host.to_owned(),
            port,
            socket: socket.clone(),
            user: settings.target.user.clone(),
            database: database.unwrap_or(schema).to_owned(),
            sends_text: settings.statements == StatementMode::Text,
        });
        let own = match settings.is_private() {
            true => Vec::new(),
            false => schemas().cloned().collect(),
        };
        Some(Self {
            own: Arc::new(own),
            driver,
            storage_engine,
            access: access.map(Arc::new).collect(),
            connections: open.clients.max(open.script_clients).max(1),
        })
    }

    /// How the events of a script are run for a client that has passed this many unique values.
    pub(crate) fn setup(
        &self,
        script: &Script,
        client: u32,
        clients: u32,
        seed: Seed,
        passed: u32,
    ) -> Setup {
        Setup {
            driver: self.driver,
            storage_engine: self.storage_engine.map(str::to_owned),
            access: Arc::clone(&self.access[script.data as usize]),
            options: script.options_of_events(),
            client,
            clients,
            seed,
            unique: UniquePosition { stride: self.connections, passed },
            time_limit: Setup::TIME_LIMIT,
            restricted: false,
        }
    }
}

/// The statements of a script on one connection.
pub(crate) struct ScriptStatements {
    driver: Driver,
    sends_text: bool,
    /// See [`ScriptTarget`].
    own: Arc<Vec<String>>,
    allowed: AllowedShapes,
    prepared: Vec<Statement>,
    /// Their texts, as the script has them.
    texts: Vec<Vec<u8>>,
    log: StatementLog,
    /// The current result of the last statement.
    result: ResultShape,
    ignored: IgnoredErrors,
    lines: u32,
}

/// A statement that a script has prepared.
#[derive(Clone, Copy)]
enum Statement {
    Closed,
    /// Prepared on the server once the types of its parameters are known.
    Deferred,
    Prepared(StatementId),
}

/// Sends a statement without waiting.
type SendStatement<C> = fn(&mut C, StatementId, &Params) -> Result<(), Error>;

/// Receives an answer as [`receive_soon`].
type ReceiveAnswer<C> = fn(&mut C, bool) -> Result<Option<Answer>, Error>;

/// How a thread uses the connections of several clients.
pub(crate) type NonBlockingCalls<C> = (SendStatement<C>, ReceiveAnswer<C>);

pub(crate) fn non_blocking_calls<C: NonBlockingConnection>() -> NonBlockingCalls<C> {
    (C::send as SendStatement<C>, receive_soon as ReceiveAnswer<C>)
}

/// A connection that a script uses.
pub(crate) struct ScriptHost<'a, C> {
    pub context: &'a mut ClientContext<C>,
    pub statements: &'a mut ScriptStatements,
    /// How to send and receive without waiting; `None` to wait.
    pub calls: Option<NonBlockingCalls<C>>,
}

impl<C: Connection> ScriptHost<'_, C> {
    /// Refuses what may not be done on an existing server. Tables are created by `prepare` only, which makes them known.
    /// This is timed: the shapes of allowed statements are remembered.
    fn check_allowed(&mut self, sql: &[u8]) -> Result<(), SqlError> {
        let ScriptStatements { own, driver, ignored, allowed, .. } = &mut *self.statements;
        if own.is_empty() {
            return Ok(());
        }
        let shape = shape(sql);
        if shape.is_some_and(|shape| allowed.contain(shape)) {
            return Ok(());
        }
        let (text, dialect) = (String::from_utf8_lossy(sql), dialect_of(*driver));
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        match effect(&text, dialect, &own) {
            Effect::Other(what) => Err(sql_error(refusal(&what), ignored)),
            Effect::CreatesTable(_) => Err(SqlError::new(
                "on an existing server, scripts create and rename tables in prepare() only: dbdyno would \
                 not remove others",
                SqlErrorKind::Failed,
            )),
            Effect::MayCreateTable | Effect::CreatesNoTable => {
                if let Some(shape) = shape {
                    allowed.add(shape, &text, dialect);
                }
                Ok(())
            }
        }
    }

    /// Prepares a statement on the server, which infers the types of parameters that are not given.
    fn prepare_as(&mut self, sql: &[u8], types: &[ParameterType]) -> Result<StatementId, SqlError> {
        let driver = self.statements.driver;
        let fixed = with_fixed_time(sql, driver);
        let sql_of_driver = replace_placeholders(&fixed, driver, |number, text| {
            let name = C::placeholder(number);
            let typed = types.get(number - 1).map(|kind| match kind {
                ParameterType::Int => format!("CAST({name} AS bigint)"),
                ParameterType::Double => format!("CAST({name} AS double precision)"),
                ParameterType::Text => format!("CAST({name} AS varchar)"),
            });
            text.extend_from_slice(typed.unwrap_or(name).as_bytes());
        });
        let prepared = self.context.connection.prepare(&sql_of_driver);
        prepared.map_err(|error| sql_error(error, &self.statements.ignored))
    }

    /// Prepares a statement with the declared types, as sysbench does, or with inferred ones if the server refuses
    /// these, such as a text for a date. Text mode sends literals: it has inferred types first.
    #[cold]
    fn prepare_deferred(
        &mut self,
        statement: u32,
        declared: &[ParameterType],
    ) -> Result<StatementId, SqlError> {
        let sql = self.statements.texts[statement as usize].clone();
        let mut attempts: [&[ParameterType]; 2] = [declared, &[]];
        if self.statements.sends_text {
            attempts.reverse();
        }
        let id = self.prepare_as(&sql, attempts[0]).or_else(|refused| {
            match refused.state.starts_with("42") {
                true => self.prepare_as(&sql, attempts[1]).map_err(|_| refused),
                false => Err(refused),
            }
        })?;
        self.statements.prepared[statement as usize] = Statement::Prepared(id);
        Ok(id)
    }

    fn run(&mut self, statement: StatementId) -> Sent {
        if let Some((send, _)) = self.calls {
            return match send(&mut self.context.connection, statement, &self.context.params.0) {
                Ok(()) => Sent::Waiting,
                Err(error) => Sent::Done(Err(self.failed(error))),
            };
        }
        let answer = self.context.connection.execute(statement, &self.context.params.0);
        Sent::Done(self.received(answer))
    }

    /// Counts an answer.
    pub fn received(&mut self, answer: Result<Answer, Error>) -> Result<Outcome, SqlError> {
        if self.statements.log.is_on() && answer.is_ok() {
            self.statements.log.end();
        }
        match answer {
            Ok(answer) => {
                self.context.counts.add_unchecked(answer);
                self.statements.result = self.context.connection.result();
                Ok(outcome(self.statements.result))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    #[cold]
    fn failed(&mut self, error: Error) -> SqlError {
        let failure = sql_error(error, &self.statements.ignored);
        if failure.kind == SqlErrorKind::Restart && failure.number == 0 {
            // PostgreSQL refuses everything else in a failed transaction.
            let _ = self.context.connection.run("ROLLBACK");
        }
        failure
    }
}

pub(crate) const fn outcome(result: ResultShape) -> Outcome {
    Outcome { has_rows: result.columns > 0, rows: result.rows }
}

/// An error as scripts see it.
pub(crate) fn sql_error(error: Error, ignored: &IgnoredErrors) -> SqlError {
    let number = error.code.and_then(ErrorCode::number).unwrap_or_default();
    let state = error.code.and_then(ErrorCode::sqlstate);
    let state =
        state.map_or_else(String::new, |state| String::from_utf8_lossy(&state).into_owned());
    // Only errors of PostgreSQL have no number.
    let restarts = match number {
        0 => matches!(state.as_str(), "40P01" | "40001" | "23505"),
        number => ignored.contains(number),
    };
    let kind = match error.kind {
        ErrorKind::Connection => SqlErrorKind::Lost,
        // It would fail again without end.
        ErrorKind::Refused | ErrorKind::StorageFull | ErrorKind::Storage => SqlErrorKind::Failed,
        _ if restarts => SqlErrorKind::Restart,
        _ => SqlErrorKind::Failed,
    };
    SqlError { number, state, message: error.message, kind }
}

impl<C: Connection> Host for ScriptHost<'_, C> {
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError> {
        self.check_allowed(sql)?;
        // MariaDB and MySQL receive the types with the values.
        let is_deferred = self.statements.driver == Driver::PostgreSql && sql.contains(&b'?');
        let statement = match is_deferred {
            true => Statement::Deferred,
            false => Statement::Prepared(self.prepare_as(sql, &[])?),
        };
        Ok(self.statements.add(statement, sql))
    }

    fn bind(&mut self, statement: u32, types: &[ParameterType]) -> Result<(), SqlError> {
        match self.statements.prepared.get(statement as usize) {
            Some(Statement::Deferred) => self.prepare_deferred(statement, types).map(drop),
            _ => Ok(()),
        }
    }

    #[inline]
    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        let known = self.statements.prepared.get(statement as usize).copied();
        let id = match known.unwrap_or(Statement::Closed) {
            Statement::Prepared(id) => id,
            Statement::Deferred => match self.prepare_deferred(statement, &[]) {
                Ok(id) => id,
                Err(error) => return Sent::Done(Err(error)),
            },
            Statement::Closed => return Sent::Done(Err(closed())),
        };
        let params = &mut self.context.params.0;
        params.clear();
        for value in values {
            match value {
                Value::Int(value) => params.push_int(*value),
                Value::Text(text) => params.push_text(text),
                Value::Double(value) => params.push_text(value.to_string().as_bytes()),
                Value::Null => params.push_null(),
            }
        }
        if self.statements.log.is_on() {
            let ScriptStatements { log, texts, .. } = &mut *self.statements;
            log.begin(&texts[statement as usize], self.context.counts.events);
        }
        self.run(id)
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        if let Err(refused) = self.check_allowed(sql) {
            return Sent::Done(Err(refused));
        }
        let fixed = with_fixed_time(sql, self.statements.driver);
        match self.context.connection.text_statement(&fixed) {
            Ok(statement) => {
                self.context.params.0.clear();
                if self.statements.log.is_on() {
                    self.statements.log.begin(sql, self.context.counts.events);
                }
                self.run(statement)
            }
            Err(error) => Sent::Done(Err(sql_error(error, &self.statements.ignored))),
        }
    }

    fn answer(&mut self, may_wait: bool) -> Option<Result<Outcome, SqlError>> {
        let (_, receive) = self.calls?;
        let answer = receive(&mut self.context.connection, may_wait).transpose()?;
        Some(self.received(answer))
    }

    fn take_rows(&mut self) -> Rows {
        self.context.connection.take_rows()
    }

    fn columns(&self) -> u16 {
        self.statements.result.columns
    }

    fn has_more_results(&self) -> bool {
        self.context.connection.has_more_results()
    }

    fn next_result(&mut self) -> Option<Outcome> {
        self.statements.result = self.context.connection.next_result()?;
        Some(outcome(self.statements.result))
    }

    fn sleep(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn close(&mut self, statement: u32) {
        let Some(known) = self.statements.prepared.get_mut(statement as usize) else { return };
        if let Statement::Prepared(id) = std::mem::replace(known, Statement::Closed) {
            self.context.connection.close_statement(id);
        }
    }

    fn print(&mut self, text: &str) {
        if self.statements.lines < MOST_LINES {
            self.statements.lines += 1;
            print(text);
        }
    }

    fn restarted(&mut self) {
        self.context.counts.conflicts += 1;
    }
}

/// Writes a line to the worker's log.
pub(crate) fn print(text: &str) {
    // The log may be gone.
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
}

impl ScriptStatements {
    /// Those of a script with these options.
    pub fn new(target: &ScriptTarget, script: &Script) -> Self {
        // Invalid options were refused when the experiment was read.
        let ignored = IgnoredErrors::of(&script.options_of_events()).unwrap_or_default();
        let result = ResultShape::default();
        let (driver, own) = (target.driver, Arc::clone(&target.own));
        let sends_text = target.access[script.data as usize].sends_text;
        let allowed = AllowedShapes::default();
        let (prepared, texts, log) = (Vec::new(), Vec::new(), StatementLog::default());
        Self { driver, sends_text, own, allowed, prepared, texts, log, result, ignored, lines: 0 }
    }

    /// Adds a statement in place of a closed one. Returns its number.
    fn add(&mut self, statement: Statement, sql: &[u8]) -> u32 {
        let free = self.prepared.iter().position(|one| matches!(one, Statement::Closed));
        let number = free.unwrap_or(self.prepared.len());
        if number == self.prepared.len() {
            self.prepared.push(Statement::Closed);
            self.texts.push(Vec::new());
        }
        self.prepared[number] = statement;
        sql.clone_into(&mut self.texts[number]);
        number as u32
    }
}

fn closed() -> SqlError {
    SqlError::new("the statement is closed", SqlErrorKind::Failed)
}

const fn dialect_of(driver: Driver) -> Dialect {
    match driver {
        Driver::MySql => Dialect::MySql,
        Driver::PostgreSql => Dialect::PostgreSql,
    }
}

/// What replaces `now()` on PostgreSQL, whose time cannot be set: a function of a schema before `pg_catalog` in the
/// search path would not replace the keywords, and would be lost when a script sets its path.
const POSTGRESQL_NOW: &str = "to_timestamp(current_setting('dbdyno.now')::float8)";

/// Sets the time that `now()` returns on a connection. A server that refuses it, such as MariaDB with
/// `secure_timestamp`, returns the real time.
pub(crate) fn set_time<C: Connection>(
    connection: &mut C,
    driver: Driver,
    time: f64,
) -> Result<(), Error> {
    let sql = match driver {
        Driver::MySql => format!("SET timestamp = {time}"),
        Driver::PostgreSql => format!("SET dbdyno.now = '{time}'"),
    };
    match connection.run(&sql) {
        Err(error) if error.kind == ErrorKind::Connection => Err(error),
        _ => Ok(()),
    }
}

/// The type of [`POSTGRESQL_NOW`].
const TIMESTAMP: &str = "timestamptz";

/// The expressions of the time of PostgreSQL: name, type, and whether a precision may follow, as in
/// `current_timestamp(3)`.
const TIMES: [(&str, &str, bool); 9] = [
    ("now()", TIMESTAMP, false),
    ("transaction_timestamp()", TIMESTAMP, false),
    ("statement_timestamp()", TIMESTAMP, false),
    ("clock_timestamp()", TIMESTAMP, false),
    ("current_timestamp", TIMESTAMP, true),
    ("localtimestamp", "timestamp", true),
    ("current_time", "timetz", true),
    ("localtime", "time", true),
    ("current_date", "date", false),
];

/// SQL in which expressions of the time have the time of [`set_time`].
pub(crate) fn with_fixed_time(sql: &[u8], driver: Driver) -> Cow<'_, [u8]> {
    if driver == Driver::MySql {
        return Cow::Borrowed(sql);
    }
    let mut text = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(part) = sql.get(at..).filter(|rest| !rest.is_empty()) {
        let is_qualified = sql[..at].ends_with(b".");
        match time_at(part).filter(|_| !is_qualified) {
            Some((length, kind)) => {
                text.extend_from_slice(&sql[copied..at]);
                let now = match kind.as_str() {
                    TIMESTAMP => POSTGRESQL_NOW.to_owned(),
                    kind => format!("CAST({POSTGRESQL_NOW} AS {kind})"),
                };
                text.extend_from_slice(now.as_bytes());
                at += length;
                copied = at;
            }
            None => at += token_length(part),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    text.extend_from_slice(&sql[copied..]);
    Cow::Owned(text)
}

/// The length of the expression of the time at the start of the text, and the type that it has.
fn time_at(text: &[u8]) -> Option<(usize, String)> {
    TIMES.into_iter().find_map(|(name, kind, precise)| {
        let (start, rest) = text.split_at_checked(name.len())?;
        let continues = !name.ends_with(')') && rest.first().copied().is_some_and(is_of_name);
        if !start.eq_ignore_ascii_case(name.as_bytes()) || continues {
            return None;
        }
        match precision(rest).filter(|_| !name.ends_with(')')) {
            None => Some((name.len(), kind.to_owned())),
            Some((length, digits)) => {
                precise.then(|| (name.len() + length, format!("{kind}({digits})")))
            }
        }
    })
}

/// The length of what is in parentheses at the start of the text, and the precision in it.
fn precision(text: &[u8]) -> Option<(usize, &str)> {
    let inside = text.trim_ascii_start().strip_prefix(b"(")?;
    let end = inside.iter().position(|byte| *byte == b')')?;
    let length = text.len() - inside.len() + end + 1;
    Some((length, std::str::from_utf8(&inside[..end]).ok()?.trim()))
}

/// The length of a name, of something in quotes, or else of one byte.
fn token_length(text: &[u8]) -> usize {
    let Some((&first, rest)) = text.split_first() else { return 0 };
    let before = |is_end: &dyn Fn(u8) -> bool| rest.iter().position(|byte| is_end(*byte));
    1 + match first {
        // A doubled quote is the start of another text.
        b'\'' | b'"' => before(&|byte| byte == first).map_or(rest.len(), |end| end + 1),
        first if is_of_name(first) => before(&|byte| !is_of_name(byte)).unwrap_or(rest.len()),
        _ => 0,
    }
}

/// Whether a byte belongs to a name, also one of a character that is not ASCII.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Parts of the unique sequence: one for the data, and one for each position in the running order; further
/// positions continue where the client is.
const UNIQUE_PARTS: u32 = 64;

/// Values of a part that belong to a block. Clients that draw more continue behind them; only a restarted
/// worker relies on this.
const UNIQUE_PER_BLOCK: u32 = 1 << 14;

/// In place of a client's number: the random numbers of `init`.
const INIT: u64 = u64::MAX;

/// A script that is ready to run events on one connection.
pub(crate) struct ScriptClient {
    client: Client,
    statements: ScriptStatements,
    target: ScriptTarget,
    number: u32,
    /// Position in the running order: selects the stream of events.
    position: u32,
}

impl ScriptClient {
    /// Runs the script's `init`, before any client starts.
    pub fn init<C: Connection>(
        context: &mut ClientContext<C>,
        script: &Script,
        target: &ScriptTarget,
        clients: u32,
        position: u32,
        seed: u64,
    ) -> Result<(), RequestError> {
        set_time(&mut context.connection, target.driver, START_TIME)?;
        let mut statements = ScriptStatements::new(target, script);
        let host = &mut ScriptHost { context, statements: &mut statements, calls: None };
        let seed = Seed::of(&[seed, position.into(), INIT]);
        Ok(init(&script.source, &target.setup(script, 0, clients, seed, 0), host)?)
    }

    /// Loads the script; [`Self::start`] runs its `thread_init`, with the experiment's seed.
    pub fn new<C: Connection>(
        context: &mut ClientContext<C>,
        script: &Script,
        target: ScriptTarget,
        (number, clients, passed): (u32, u32, u32),
        position: u32,
        seed: u64,
    ) -> Result<Self, RequestError> {
        set_time(&mut context.connection, target.driver, START_TIME)?;
        let mut statements = ScriptStatements::new(&target, script);
        let host = &mut ScriptHost { context, statements: &mut statements, calls: None };
        let numbers = [seed, position.into(), number.into()];
        let setup = target.setup(script, number, clients, Seed::of(&numbers), passed);
        let client = Client::load(&script.source, &setup, host)?;
        Ok(Self { client, statements, target, number, position })
    }

    /// Runs the script's `thread_init`, as [`Client::proceed`].
    pub fn start<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        calls: Option<NonBlockingCalls<C>>,
    ) -> Result<Option<Duration>, RequestError> {
        let host = &mut ScriptHost { context, statements: &mut self.statements, calls };
        Ok(self.client.proceed(host)?)
    }

    /// Runs the script's `thread_done`, as [`Client::finish`].
    pub fn finish<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        calls: Option<NonBlockingCalls<C>>,
    ) -> Result<Option<Duration>, RequestError> {
        let host = &mut ScriptHost { context, statements: &mut self.statements, calls };
        Ok(self.client.finish(host)?)
    }

    /// Starts a block: the next event begins with its random numbers.
    pub fn start_block<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        seed: u64,
        SliceRequest { block, lead_in, .. }: SliceRequest,
    ) -> Result<(), RequestError> {
        let numbers = [seed, self.position.into(), block.into(), self.number.into()];
        let part = u32::MAX / UNIQUE_PARTS;
        let before = (self.position + 1).min(UNIQUE_PARTS - 1) * part;
        let first_unique = before + block.saturating_mul(UNIQUE_PER_BLOCK).min(part - 1);
        // Each block adds a second.
        let time = START_TIME + f64::from(block);
        set_time(&mut context.connection, self.target.driver, time)?;
        self.client.start_block(Seed::of(&numbers), first_unique, time);
        self.statements.log.start(lead_in);
        Ok(())
    }

    /// Ends the lead-in of a slice.
    pub fn end_lead_in(&mut self, lead_in: Option<Quota>) {
        self.statements.log.end_lead_in(lead_in);
    }

    /// The response times of statements in the slice that has ended, with these numbers of events and statements.
    pub fn take_times(&mut self, counts: (u64, u64)) -> Vec<StatementTimes> {
        self.statements.log.take(counts, dialect_of(self.target.driver))
    }

    /// How many unique values the client has passed.
    pub fn passed_unique_values(&self) -> u32 {
        self.client.unique_position().passed
    }

    /// Runs an event.
    #[inline]
    pub fn run<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
    ) -> Result<(), RequestError> {
        let Self { client, statements, .. } = self;
        loop {
            let progress = client.event(&mut ScriptHost { context, statements, calls: None });
            match step(progress, context)? {
                EventStep::Complete => return Ok(()),
                EventStep::Asleep => thread::sleep(client.sleep_time()),
                EventStep::Waiting => return Err("a statement has no answer".into()),
            }
        }
    }

    /// Starts an event, or continues it after a sleep, until it sends a statement.
    #[inline]
    pub fn begin<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
    ) -> Result<EventStep, RequestError> {
        let Self { client, statements, .. } = self;
        let calls = Some(non_blocking_calls::<C>());
        let progress = client.event(&mut ScriptHost { context, statements, calls });
        step(progress, context)
    }

    /// Continues an event after an answer.
    #[inline]
    pub fn received<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
        answer: Result<Answer, Error>,
    ) -> Result<EventStep, RequestError> {
        let Self { client, statements, .. } = self;
        let calls = Some(non_blocking_calls::<C>());
        let host = &mut ScriptHost { context, statements, calls };
        let outcome = host.received(answer);
        let progress = client.resume(host, outcome);
        step(progress, context)
    }

    /// How long an event sleeps after [`EventStep::Asleep`].
    pub fn sleep_time(&self) -> Duration {
        self.client.sleep_time()
    }
}

#[inline]
fn step<C>(
    progress: Result<Progress, ScriptError>,
    context: &mut ClientContext<C>,
) -> Result<EventStep, RequestError> {
    match progress {
        Ok(Progress::Event) => Ok(EventStep::Complete),
        Ok(Progress::Waiting) => Ok(EventStep::Waiting),
        Ok(Progress::Sleeping) => Ok(EventStep::Asleep),
        Ok(Progress::Ended) => {
            Err("the script has ended its client: event() returned a value".into())
        }
        Err(error) => {
            context.counts.errors += 1;
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_sysbench_ignores_restart_the_event() {
        let error = |code, kind| {
            let (doing, message) = ("executing".to_owned(), "no".to_owned());
            sql_error(Error { doing, message, code, kind }, &IgnoredErrors::default())
        };
        let state = |state: &[u8; 5]| Some(ErrorCode::SqlState(*state));
        let both = |number, state: &[u8; 5]| Some(ErrorCode::NumberAndState(number, *state));
        for code in [both(1213, b"40001"), state(b"40P01"), state(b"40001")] {
            assert_eq!(error(code, ErrorKind::Conflict).kind, SqlErrorKind::Restart);
        }
        let duplicate = error(both(1062, b"23000"), ErrorKind::Conflict);
        assert_eq!((duplicate.kind, duplicate.number), (SqlErrorKind::Failed, 1062));
        assert_eq!(duplicate.state, "23000");
        assert_eq!(error(state(b"42601"), ErrorKind::Statement).state, "42601");
        assert_eq!(error(None, ErrorKind::Connection).kind, SqlErrorKind::Lost);
    }

    #[test]
    fn times_outside_of_quotes_are_replaced_on_postgresql() {
        let fixed = |sql: &str, driver| {
            String::from_utf8(with_fixed_time(sql.as_bytes(), driver).into_owned()).unwrap()
        };
        let sql = "INSERT INTO é VALUES (NOW(), 'now()', my_now(), t.now(),now())";
        let expected = format!(
            "INSERT INTO é VALUES ({POSTGRESQL_NOW}, 'now()', my_now(), t.now(),{POSTGRESQL_NOW})"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        assert_eq!(fixed(sql, Driver::MySql), sql);
        let sql = "SELECT Current_Timestamp, current_date - 1, localtimestamp, clock_timestamp()";
        let expected = format!(
            "SELECT {POSTGRESQL_NOW}, CAST({POSTGRESQL_NOW} AS date) - 1, \
             CAST({POSTGRESQL_NOW} AS timestamp), {POSTGRESQL_NOW}"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        let sql = "SELECT CURRENT_TIMESTAMP (3), localtime(0), current_time, (now())(1)";
        let expected = format!(
            "SELECT CAST({POSTGRESQL_NOW} AS timestamptz(3)), CAST({POSTGRESQL_NOW} AS time(0)), \
             CAST({POSTGRESQL_NOW} AS timetz), ({POSTGRESQL_NOW})(1)"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        for sql in [
            "",
            "now",
            "SELECT 1",
            "'now()'",
            "\"current_date\"",
            "'it''s current_date'",
            "current_date(3)",
            "current_dates",
            "my_current_date",
            "'current_date",
        ] {
            assert_eq!(fixed(sql, Driver::PostgreSql), sql);
        }
    }
}
