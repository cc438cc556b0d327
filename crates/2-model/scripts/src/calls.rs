//! The functions that the prelude calls through LuaJIT's FFI.
//!
//! None of them unwinds: errors are return values, which the prelude raises.

use std::ffi::c_char;
use std::time::{Duration, Instant};

use corosensei::Yielder;

use crate::files::MISSING;
use crate::host::{Host, Outcome, ParameterType, Rows, Sent, SqlError, SqlErrorKind, Value};
use crate::random::{Random, Seed};

/// What a suspended client continues with.
pub(crate) enum Input {
    Continue,
    Answer(Result<Outcome, SqlError>),
    Stop,
}

/// Why a client has suspended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is between two events.
    Event,
    /// It waits for the answer to a statement that was sent.
    Waiting,
    /// It sleeps, for [`Client::sleep_time`](crate::Client::sleep_time), and is continued as at an event. Others do
    /// what it may wait for.
    Sleeping,
    /// Its `event` returned a value, which ends it.
    Ended,
}

/// The time that scripts see before their first block, in seconds since 1970: the start of 2025.
pub const START_TIME: f64 = 1_735_689_600.0;

/// Bytes of a multi-row insert, as in sysbench.
const BULK_BYTES: usize = 512 << 10;

/// What the calls work on. One for each Lua state.
pub(crate) struct Context {
    pub random: Random,
    /// Set while the state runs.
    host: Option<*mut dyn Host>,
    /// Set while a fiber runs.
    yielder: *const Yielder<Input, Progress>,
    /// Parameters of the prepared statements, by number.
    bound: Vec<Vec<Parameter>>,
    /// The types of those that were bound last: events may bind theirs each time.
    types: Vec<ParameterType>,
    rows: u64,
    /// The number of the last statement's result.
    result: i32,
    /// Its rows, once one of them was fetched.
    kept: Option<Kept>,
    error: SqlError,
    bulk: Bulk,
    /// Counts what shows that a new script is not in an endless loop: statements, for example.
    signs_of_life: u64,
    /// Counts how often the state began to run.
    entries: u64,
    /// Both counts at a check, and the first time at which they were found. No clock is read for each statement.
    checked: (u64, u64, Instant),
    /// How long it sleeps.
    pub sleep: Duration,
    /// How long it has slept since a sign of life, which is counted.
    asleep: (u64, Duration),
    /// How long a new script may run without such a sign.
    limit: Duration,
    /// Whether others run while a new script only computes. Commands run in an order that is always the same.
    takes_turns: bool,
    /// The seed of the next block, and the position of its unique values.
    pub next_block: Option<(Seed, u32)>,
    /// When the block began, in seconds since 1970. What the script has slept since then is added to the time that it
    /// sees: the same calls give the same times.
    pub time: f64,
    pub slept: Duration,
    /// The seed of Lua's own random numbers in the block.
    lua_seed: f64,
}

#[derive(Default)]
struct Bulk {
    start: Vec<u8>,
    text: Vec<u8>,
}

struct Kept {
    rows: Rows,
    next: usize,
}

/// Results of calls.
const OK: i32 = 0;
const ROWS: i32 = 1;
const FAILED: i32 = 2;

/// Results of [`execute`] that are no number of rows.
const NO_ROWS: f64 = -1.0;
const NOT_EXECUTED: f64 = -2.0;

impl Context {
    pub fn new(random: Random, limit: Duration, takes_turns: bool) -> Self {
        Self {
            random,
            host: None,
            yielder: std::ptr::null(),
            bound: Vec::new(),
            types: Vec::new(),
            rows: 0,
            result: 0,
            kept: None,
            error: no_host(),
            bulk: Bulk::default(),
            signs_of_life: 0,
            entries: 0,
            checked: (0, 0, Instant::now()),
            sleep: Duration::ZERO,
            asleep: (0, Duration::ZERO),
            limit,
            takes_turns,
            next_block: None,
            time: START_TIME,
            slept: Duration::ZERO,
            lua_seed: 0.0,
        }
    }

    /// Begins a time in which the state runs.
    pub fn enter(&mut self, host: &mut dyn Host) {
        // SAFETY: only the lifetime changes. `leave` removes the pointer before the borrow ends.
        let host =
            unsafe { std::mem::transmute::<*mut (dyn Host + '_), *mut (dyn Host + 'static)>(host) };
        self.host = Some(host);
        self.entries += 1;
    }

    /// Ends the time in which the state runs.
    pub fn leave(&mut self) {
        self.host = None;
    }

    pub fn set_yielder(&mut self, yielder: *const Yielder<Input, Progress>) {
        self.yielder = yielder;
    }

    /// Whether the last error was a lost connection.
    pub fn lost_connection(&self) -> bool {
        self.error.kind == SqlErrorKind::Lost
    }

    fn host(&mut self) -> Option<&mut (dyn Host + 'static)> {
        // SAFETY: the pointer is from `enter`, whose borrow lasts until `leave` removes it.
        self.host.map(|host| unsafe { &mut *host })
    }

    /// Stores the outcome of a statement; waits for it if necessary.
    fn finish(&mut self, sent: Sent) -> i32 {
        let done = match sent {
            Sent::Done(done) => done,
            Sent::Waiting if self.yielder.is_null() => Err(no_host()),
            Sent::Waiting => {
                // SAFETY: the fiber that runs this state owns the yielder.
                match unsafe { (*self.yielder).suspend(Progress::Waiting) } {
                    Input::Answer(answer) => answer,
                    Input::Continue | Input::Stop => Err(no_host()),
                }
            }
        };
        self.signs_of_life += 1;
        self.result = self.result.wrapping_add(1);
        self.kept = None;
        match done {
            Ok(Outcome { has_rows, rows }) => {
                self.rows = rows;
                if has_rows { ROWS } else { OK }
            }
            Err(error) => {
                self.error = error;
                FAILED
            }
        }
    }

    /// Lets others run for this time; without others, waits. Not for a state that is not in a fiber.
    fn suspend_to_sleep(&mut self, time: Duration) {
        self.sleep = time;
        if !self.yielder.is_null() {
            // SAFETY: as in `finish`. An ended client continues, and fails at its next statement.
            unsafe { (*self.yielder).suspend(Progress::Sleeping) };
        } else if let Some(host) = self.host() {
            host.sleep(time);
        }
    }

    fn run_query(&mut self, sql: &[u8]) -> i32 {
        let Some(host) = self.host() else {
            self.error = no_host();
            return FAILED;
        };
        let sent = host.query(sql);
        self.finish(sent)
    }

    fn send_bulk(&mut self) -> i32 {
        if self.bulk.text.is_empty() {
            return OK;
        }
        let sql = [&self.bulk.start[..], b" ", &self.bulk.text].concat();
        self.bulk.text.clear();
        self.run_query(&sql)
    }
}

fn no_host() -> SqlError {
    SqlError::new("statements cannot be executed here", SqlErrorKind::Failed)
}

/// Declares the table of functions, which are those of the same names below.
macro_rules! calls {
    ($($name:ident: $call:ty,)*) => {
        /// The table of functions, in the order of the prelude's declaration.
        #[repr(C)]
        pub(crate) struct Calls {
            context: *mut Context,
            $($name: $call,)*
        }

        impl Calls {
            /// Calls on a context that outlives them.
            pub fn on(context: *mut Context) -> Self {
                Self { context, $($name,)* }
            }
        }
    };
}

calls! {
    uniform_uint64: extern "C" fn(&mut Context) -> u64,
    uniform_double: extern "C" fn(&mut Context) -> f64,
    uniform: extern "C" fn(&mut Context, u32, u32) -> u32,
    gaussian: extern "C" fn(&mut Context, u32, u32) -> u32,
    special: extern "C" fn(&mut Context, u32, u32) -> u32,
    pareto: extern "C" fn(&mut Context, u32, u32) -> u32,
    zipfian: extern "C" fn(&mut Context, u32, u32) -> u32,
    default: extern "C" fn(&mut Context, u32, u32) -> u32,
    unique: extern "C" fn(&mut Context) -> u32,
    text: unsafe extern "C" fn(&mut Context, *const u8, *mut u8, usize),
    prepare: unsafe extern "C" fn(&mut Context, *const u8, usize) -> i32,
    bind: unsafe extern "C" fn(&mut Context, i32, *const Parameter, usize) -> i32,
    execute: extern "C" fn(&mut Context, i32) -> f64,
    close: extern "C" fn(&mut Context, i32),
    query: unsafe extern "C" fn(&mut Context, *const u8, usize) -> i32,
    bulk_start: unsafe extern "C" fn(&mut Context, *const u8, usize) -> i32,
    bulk_row: unsafe extern "C" fn(&mut Context, *const u8, usize) -> i32,
    bulk_end: extern "C" fn(&mut Context) -> i32,
    row_count: extern "C" fn(&mut Context) -> f64,
    result: extern "C" fn(&mut Context) -> i32,
    columns: extern "C" fn(&mut Context, i32) -> i32,
    next_row: extern "C" fn(&mut Context, i32) -> i32,
    value: unsafe extern "C" fn(&mut Context, i32, i32, *mut i64) -> *const u8,
    error_kind: extern "C" fn(&mut Context) -> i32,
    error_number: extern "C" fn(&mut Context) -> i32,
    error_text: unsafe extern "C" fn(&mut Context, i32, *mut i64) -> *const u8,
    has_more_results: extern "C" fn(&mut Context) -> i32,
    next_result: extern "C" fn(&mut Context) -> i32,
    more_events: extern "C" fn(&mut Context) -> i32,
    lua_seed: extern "C" fn(&mut Context) -> f64,
    time: extern "C" fn(&mut Context) -> f64,
    overdue: extern "C" fn(&mut Context) -> i32,
    print: unsafe extern "C" fn(&mut Context, *const u8, usize),
    restarted: extern "C" fn(&mut Context),
    sleep: extern "C" fn(&mut Context, f64) -> i32,
    ran_command: extern "C" fn(&mut Context),
    file: unsafe extern "C" fn(&mut Context, *const u8, usize, i32) -> i32,
}

extern "C" fn uniform_uint64(context: &mut Context) -> u64 {
    context.random.uniform_uint64()
}

extern "C" fn uniform_double(context: &mut Context) -> f64 {
    context.random.uniform_double()
}

/// Functions of random numbers from `low` to `high`.
macro_rules! random {
    ($($name:ident),*) => {
        $(extern "C" fn $name(context: &mut Context, low: u32, high: u32) -> u32 {
            context.random.$name(low, high)
        })*
    };
}

random!(uniform, gaussian, special, pareto, zipfian, default);

extern "C" fn unique(context: &mut Context) -> u32 {
    context.random.unique()
}

/// # Safety
/// `format` and `out` have `len` bytes.
unsafe extern "C" fn text(context: &mut Context, format: *const u8, out: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the prelude passes a string and a buffer of its length.
        let (format, out) = unsafe {
            (std::slice::from_raw_parts(format, len), std::slice::from_raw_parts_mut(out, len))
        };
        context.random.text(format, out);
    }
}

/// The text that Lua passes.
///
/// # Safety
/// `text` has `len` bytes that live as long as the returned reference is used.
unsafe fn text_of<'a>(text: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return b"";
    }
    // SAFETY: as the caller guarantees.
    unsafe { std::slice::from_raw_parts(text, len) }
}

/// # Safety
/// `sql` has `len` bytes.
unsafe extern "C" fn prepare(context: &mut Context, sql: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a string.
    let sql = unsafe { text_of(sql, len) };
    let prepared = match context.host() {
        Some(host) => host.prepare(sql),
        None => Err(no_host()),
    };
    context.signs_of_life += 1;
    match prepared {
        Ok(statement) => {
            let needed = statement as usize + 1;
            if context.bound.len() < needed {
                context.bound.resize_with(needed, Vec::new);
            }
            context.bound[statement as usize].clear();
            statement as i32
        }
        Err(error) => {
            context.error = error;
            -1
        }
    }
}

/// # Safety
/// `parameters` has `count` elements, whose buffers live as long as the statement.
unsafe extern "C" fn bind(
    context: &mut Context,
    statement: i32,
    parameters: *const Parameter,
    count: usize,
) -> i32 {
    // SAFETY: as in `Context::host`.
    let host = context.host.map(|host| unsafe { &mut *host });
    let Context { bound, types, .. } = context;
    let Some(bound) = bound.get_mut(statement as usize) else { return OK };
    bound.clear();
    // SAFETY: the prelude passes an array of this size.
    bound.extend_from_slice(unsafe { std::slice::from_raw_parts(parameters, count) });
    types.clear();
    types.extend(bound.iter().map(Parameter::declared_type));
    match host.map(|host| host.bind(statement as u32, types)) {
        Some(Err(error)) => {
            context.error = error;
            FAILED
        }
        Some(Ok(())) | None => OK,
    }
}

/// The number of rows; [`NO_ROWS`] without a result set, or [`NOT_EXECUTED`].
extern "C" fn execute(context: &mut Context, statement: i32) -> f64 {
    const MANY: usize = 16;
    let Context { host, bound, .. } = context;
    let (Some(host), Some(bound)) = (*host, bound.get(statement as usize)) else {
        context.error = no_host();
        return NOT_EXECUTED;
    };
    // SAFETY: as in `Context::host`.
    let host = unsafe { &mut *host };
    let sent = if bound.len() <= MANY {
        let mut values = [Value::Null; MANY];
        for (value, parameter) in values.iter_mut().zip(bound) {
            // SAFETY: the statement keeps the buffers that it was bound to.
            *value = unsafe { parameter.value() };
        }
        host.execute(statement as u32, &values[..bound.len()])
    } else {
        // SAFETY: as above.
        let values: Vec<Value<'_>> = bound.iter().map(|one| unsafe { one.value() }).collect();
        host.execute(statement as u32, &values)
    };
    match context.finish(sent) {
        ROWS => context.rows as f64,
        OK => NO_ROWS,
        _ => NOT_EXECUTED,
    }
}

extern "C" fn close(context: &mut Context, statement: i32) {
    if let Some(bound) = context.bound.get_mut(statement as usize) {
        bound.clear();
    }
    if let Some(host) = context.host() {
        host.close(statement as u32);
    }
}

/// # Safety
/// `sql` has `len` bytes.
unsafe extern "C" fn query(context: &mut Context, sql: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a string, which lives until this call returns.
    context.run_query(unsafe { text_of(sql, len) })
}

/// # Safety
/// `sql` has `len` bytes.
unsafe extern "C" fn bulk_start(context: &mut Context, sql: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a string.
    let sql = unsafe { text_of(sql, len) };
    context.bulk = Bulk { start: sql.to_owned(), text: Vec::new() };
    OK
}

/// # Safety
/// `row` has `len` bytes.
unsafe extern "C" fn bulk_row(context: &mut Context, row: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a string.
    let row = unsafe { text_of(row, len) };
    let used = context.bulk.start.len() + context.bulk.text.len();
    if used + row.len() + 2 > BULK_BYTES {
        let outcome = context.send_bulk();
        if outcome == FAILED {
            return FAILED;
        }
    }
    let text = &mut context.bulk.text;
    if !text.is_empty() {
        text.push(b',');
    }
    text.extend_from_slice(row);
    context.signs_of_life += 1;
    OK
}

extern "C" fn bulk_end(context: &mut Context) -> i32 {
    context.send_bulk()
}

extern "C" fn row_count(context: &mut Context) -> f64 {
    context.rows as f64
}

/// The number of the last result, whose rows can be fetched until the next statement, as in sysbench.
extern "C" fn result(context: &mut Context) -> i32 {
    context.result
}

impl Context {
    /// The rows of a result, which are taken from the host when they are first needed.
    fn kept(&mut self, number: i32) -> Option<&mut Kept> {
        if number != self.result {
            return None;
        }
        if self.kept.is_none() {
            let rows = self.host().map(|host| host.take_rows()).unwrap_or_default();
            self.kept = Some(Kept { rows, next: 0 });
        }
        self.kept.as_mut()
    }
}

/// The number of columns of a result; 0 if another statement was executed.
extern "C" fn columns(context: &mut Context, number: i32) -> i32 {
    if number != context.result {
        return 0;
    }
    match context.host().map_or(0, |host| host.columns()) {
        0 => context
            .kept(number)
            .and_then(|kept| kept.rows.first())
            .map_or(0, |row| row.len() as i32),
        known => known.into(),
    }
}

extern "C" fn has_more_results(context: &mut Context) -> i32 {
    context.host().is_some_and(|host| host.has_more_results()).into()
}

/// Moves to the next result of the last query, if there is one.
extern "C" fn next_result(context: &mut Context) -> i32 {
    let next = context.host().and_then(|host| host.next_result());
    context.finish(Sent::Done(Ok(next.unwrap_or_default())))
}

/// The number of columns of the next row; -1 after the last, -2 if another statement was executed.
extern "C" fn next_row(context: &mut Context, number: i32) -> i32 {
    let Some(kept) = context.kept(number) else { return -2 };
    kept.next += 1;
    kept.rows.get(kept.next - 1).map_or(-1, |row| row.len() as i32)
}

/// A value of the current row; a length of -1 is NULL.
///
/// # Safety
/// `len` can be written.
unsafe extern "C" fn value(
    context: &mut Context,
    number: i32,
    column: i32,
    len: *mut i64,
) -> *const u8 {
    let value = context.kept(number).and_then(|kept| {
        kept.rows.get(kept.next.wrapping_sub(1))?.get(column as usize)?.as_deref()
    });
    // SAFETY: the prelude passes an array of one.
    unsafe { *len = value.map_or(-1, |value| value.len() as i64) };
    value.map_or(std::ptr::null(), <[u8]>::as_ptr)
}

extern "C" fn error_kind(context: &mut Context) -> i32 {
    match context.error.kind {
        SqlErrorKind::Restart => 0,
        SqlErrorKind::Failed => 1,
        SqlErrorKind::Lost => 2,
    }
}

extern "C" fn error_number(context: &mut Context) -> i32 {
    context.error.number
}

/// The SQLSTATE (0) or the message (1) of the last error.
///
/// # Safety
/// `len` can be written.
unsafe extern "C" fn error_text(context: &mut Context, what: i32, len: *mut i64) -> *const u8 {
    let text = if what == 0 { &context.error.state } else { &context.error.message };
    // SAFETY: the prelude passes an array of one.
    unsafe { *len = text.len() as i64 };
    text.as_ptr()
}

/// Ends the last event and waits for the next: 0 at the end, 1 to continue, 2 if a block begins.
extern "C" fn more_events(context: &mut Context) -> i32 {
    if context.yielder.is_null() {
        return 0;
    }
    context.signs_of_life += 1;
    // SAFETY: as in `finish`.
    let input = unsafe { (*context.yielder).suspend(Progress::Event) };
    match input {
        Input::Stop => 0,
        Input::Continue | Input::Answer(_) => match context.next_block.take() {
            Some((seed, first_unique)) => {
                context.random.start_block(seed, first_unique);
                // What a number of Lua can hold.
                context.lua_seed = (seed.0[0] >> 11) as f64;
                2
            }
            None => 1,
        },
    }
}

extern "C" fn lua_seed(context: &mut Context) -> f64 {
    context.lua_seed
}

extern "C" fn time(context: &mut Context) -> f64 {
    context.time + context.slept.as_secs_f64()
}

/// Whether a new script has run for too long without a sign of life. Others run in between: it may wait for them.
extern "C" fn overdue(context: &mut Context) -> i32 {
    let (signs, entries, mut since) = context.checked;
    if (signs, entries) != (context.signs_of_life, context.entries) {
        since = Instant::now();
    }
    let elapsed = since.elapsed();
    if elapsed > context.limit {
        return 1;
    }
    if context.takes_turns && !context.yielder.is_null() {
        context.suspend_to_sleep(Duration::ZERO);
        since = Instant::now().checked_sub(elapsed).unwrap_or(since);
    }
    context.checked = (context.signs_of_life, context.entries, since);
    0
}

/// # Safety
/// `text` has `len` bytes.
unsafe extern "C" fn print(context: &mut Context, text: *const u8, len: usize) {
    // SAFETY: the prelude passes a string.
    let text = String::from_utf8_lossy(unsafe { text_of(text, len) });
    if let Some(host) = context.host() {
        host.print(&text);
    }
}

extern "C" fn restarted(context: &mut Context) {
    context.signs_of_life += 1;
    if let Some(host) = context.host() {
        host.restarted();
    }
}

/// How long a client may sleep without a statement: it may wait for what never happens.
const MOST_SLEEP: Duration = Duration::from_secs(600);

/// Sleeps for this number of seconds, in which other clients run. Returns whether it has slept for too long.
extern "C" fn sleep(context: &mut Context, seconds: f64) -> i32 {
    let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MOST_SLEEP);
    if context.asleep.0 != context.signs_of_life {
        context.asleep = (context.signs_of_life, Duration::ZERO);
    }
    let before = context.asleep.1;
    context.asleep.1 = before.saturating_add(time);
    if before > MOST_SLEEP {
        return 1;
    }
    context.slept = context.slept.saturating_add(time);
    context.suspend_to_sleep(time);
    0
}

/// Notes that a command of the operating system has run, in which time passed.
extern "C" fn ran_command(context: &mut Context) {
    context.signs_of_life += 1;
}

/// The result of [`RecordedFiles::access`](crate::RecordedFiles::access) for a script that is only recorded.
///
/// # Safety
/// `name` has `len` bytes.
unsafe extern "C" fn file(context: &mut Context, name: *const u8, len: usize, access: i32) -> i32 {
    // SAFETY: the prelude passes a string.
    let name = unsafe { text_of(name, len) };
    let files = context.host().and_then(|host| host.files());
    files.map_or(MISSING, |files| files.access(name, access))
}

/// A parameter as the prelude binds it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameter {
    kind: i32,
    buffer: *const u8,
    data_len: *const u64,
    max_len: u64,
    is_null: *const c_char,
}

/// Kinds of parameters; all others are integers.
const DOUBLE: i32 = 6;
const TEXT: i32 = 12;

impl Parameter {
    const fn declared_type(&self) -> ParameterType {
        match self.kind {
            TEXT => ParameterType::Text,
            DOUBLE => ParameterType::Double,
            _ => ParameterType::Int,
        }
    }

    /// What its buffers contain.
    ///
    /// # Safety
    /// The buffers exist and have the size that belongs to the kind.
    #[inline]
    unsafe fn value(&self) -> Value<'_> {
        // SAFETY: as the caller guarantees.
        unsafe {
            if *self.is_null != 0 {
                return Value::Null;
            }
            match self.declared_type() {
                ParameterType::Text => {
                    let len = (*self.data_len).min(self.max_len) as usize;
                    Value::Text(std::slice::from_raw_parts(self.buffer, len))
                }
                ParameterType::Double => Value::Double(self.buffer.cast::<f64>().read()),
                ParameterType::Int => Value::Int(self.buffer.cast::<i64>().read()),
            }
        }
    }
}
