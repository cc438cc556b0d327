//! SQLite through its C API, from a shared library that is loaded at run time.
//!
//! All builds of SQLite are shared libraries with the same symbols; a process loads one.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{executing, truncate_sql};
use crate::{
    Answer, Connection, Error, ErrorCode, ErrorKind, Param, Params, StatementId, text_digest,
};

const SQLITE_OK: c_int = 0;
const SQLITE_BUSY: c_int = 5;
const SQLITE_NOMEM: c_int = 7;
const SQLITE_IOERR: c_int = 10;
const SQLITE_CORRUPT: c_int = 11;
const SQLITE_FULL: c_int = 13;
const SQLITE_CANTOPEN: c_int = 14;
const SQLITE_NOTADB: c_int = 26;
const SQLITE_ROW: c_int = 100;
const SQLITE_DONE: c_int = 101;

const SQLITE_OPEN_READWRITE: c_int = 0x2;
const SQLITE_OPEN_CREATE: c_int = 0x4;
/// No mutex: each connection belongs to one thread.
const SQLITE_OPEN_NOMUTEX: c_int = 0x8000;
/// The statement will be used many times.
const SQLITE_PREPARE_PERSISTENT: u32 = 0x1;

/// Counters of a connection (<https://sqlite.org/c3ref/c_dbstatus_options.html>).
const OF_CONNECTION: [(&str, c_int); 4] =
    [("cache_hit", 7), ("cache_miss", 8), ("cache_write", 9), ("cache_spill", 12)];

/// Counters of a statement (<https://sqlite.org/c3ref/c_stmtstatus_counter.html>).
const OF_STATEMENT: [(&str, c_int); 6] = [
    ("fullscan_step", 1),
    ("sort", 2),
    ("autoindex", 3),
    ("vm_step", 4),
    ("reprepare", 5),
    ("run", 6),
];

type Db = *mut c_void;
type Stmt = *mut c_void;
type BusyCallback = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

/// Declares the C functions to look up, with their signatures
/// (<https://sqlite.org/c3ref/funclist.html>).
macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The C functions of a library.
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            /// # Safety
            /// The library must be a SQLite of version 3.37 or later.
            unsafe fn look_up(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!("sqlite3_", stringify!($name), "\0");
                        // SAFETY: the signature is the documented one of a SQLite library, which
                        // the caller vouches for.
                        *unsafe { library.get(symbol.as_bytes())? }
                    },)*
                })
            }
        }
    };
}

api! {
    bind_null: fn(Stmt, c_int) -> c_int;
    bind_int64: fn(Stmt, c_int, i64) -> c_int;
    bind_text: fn(Stmt, c_int, *const c_char, c_int, Destructor) -> c_int;
    busy_handler: fn(Db, Option<BusyCallback>, *mut c_void) -> c_int;
    changes64: fn(Db) -> i64;
    close_v2: fn(Db) -> c_int;
    column_bytes: fn(Stmt, c_int) -> c_int;
    column_count: fn(Stmt) -> c_int;
    column_decltype: fn(Stmt, c_int) -> *const c_char;
    column_int64: fn(Stmt, c_int) -> i64;
    column_text: fn(Stmt, c_int) -> *const u8;
    column_type: fn(Stmt, c_int) -> c_int;
    compileoption_get: fn(c_int) -> *const c_char;
    db_status: fn(Db, c_int, *mut c_int, *mut c_int, c_int) -> c_int;
    errmsg: fn(Db) -> *const c_char;
    extended_errcode: fn(Db) -> c_int;
    finalize: fn(Stmt) -> c_int;
    libversion: fn() -> *const c_char;
    next_stmt: fn(Db, Stmt) -> Stmt;
    open_v2: fn(*const c_char, *mut Db, c_int, *const c_char) -> c_int;
    prepare_v3: fn(Db, *const c_char, c_int, u32, *mut Stmt, *mut *const c_char) -> c_int;
    reset: fn(Stmt) -> c_int;
    step: fn(Stmt) -> c_int;
    stmt_status: fn(Stmt, c_int, c_int) -> c_int;
}

/// A SQLite shared library, loaded into this process.
#[derive(Clone)]
pub struct Library {
    // Declared before the library, although function pointers need no drop.
    functions: Arc<Functions>,
    // Keeps the code mapped while a function pointer exists.
    _library: Arc<libloading::Library>,
}

impl Library {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let failed = |error: libloading::Error| {
            let doing = format!("loading SQLite from {}", path.display());
            Error::new(ErrorKind::Storage, doing, error.to_string())
        };
        // SAFETY: SQLite has no initialisation routines that run when it is loaded; the path is
        // one that the experiment's build made or its user named.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        // SAFETY: a library that has all of these symbols is assumed to be SQLite.
        let functions = unsafe { Functions::look_up(&library) }.map_err(failed)?;
        Ok(Self { functions: Arc::new(functions), _library: Arc::new(library) })
    }

    pub fn version(&self) -> String {
        // SAFETY: returns a static string.
        let version = unsafe { CStr::from_ptr((self.functions.libversion)()) };
        version.to_string_lossy().into_owned()
    }

    /// The compile options that the library reports.
    pub fn compile_options(&self) -> Vec<String> {
        (0..)
            .map_while(|n| {
                // SAFETY: returns a static string, or null past the last option.
                let option = unsafe { (self.functions.compileoption_get)(n) };
                // SAFETY: not null, so a static C string.
                (!option.is_null()).then(|| unsafe { CStr::from_ptr(option) })
            })
            .map(|option| option.to_string_lossy().into_owned())
            .collect()
    }
}

pub struct SqliteConnection {
    library: Library,
    path: PathBuf,
    db: Db,
    statements: Vec<Prepared>,
    // Boxed: SQLite has its address.
    busy: Box<BusyState>,
}

/// The first statement of a text, and its length in bytes.
struct FirstStatement {
    statement: Stmt,
    len: usize,
}

struct Prepared {
    statement: Stmt,
    columns: Vec<ColumnType>,
    sql: String,
}

// SAFETY: a SQLite connection may move between threads as long as no two use it concurrently, which
// `&mut self` guarantees (<https://sqlite.org/threadsafe.html>, multi-thread mode).
unsafe impl Send for SqliteConnection {}

impl SqliteConnection {
    /// Opens the database file at `path`, or creates it.
    pub fn open(library: &Library, path: &Path) -> Result<Self, Error> {
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error {
            doing: format!("opening {}", path.display()),
            message: "the path contains a zero byte".to_owned(),
            code: Some(ErrorCode::Number(SQLITE_CANTOPEN)),
            kind: ErrorKind::Storage,
        })?;
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
        let mut db = ptr::null_mut();
        // SAFETY: a valid C string and a place for the handle; a null name means the default VFS.
        let code = unsafe {
            (library.functions.open_v2)(c_path.as_ptr(), &raw mut db, flags, ptr::null())
        };
        // From here on dropping it closes the handle, which exists even after a failed open.
        let (library, path) = (library.clone(), path.to_owned());
        let connection = Self { library, path, db, statements: Vec::new(), busy: Box::default() };
        if code != SQLITE_OK {
            return Err(connection.error(code, "opening the database".to_owned()));
        }
        let library = &connection.library;
        let state = ptr::from_ref(&*connection.busy).cast_mut().cast();
        // SAFETY: the state is boxed and outlives the handle: it is dropped after the close.
        unsafe { (library.functions.busy_handler)(db, Some(wait_if_busy), state) };
        Ok(connection)
    }

    /// Executes a query without parameters and returns the first column of its first row.
    pub fn query_text(&mut self, sql: &str) -> Result<String, Error> {
        let first = self.query(sql)?.into_iter().next().and_then(|row| row.into_iter().next());
        first.flatten().ok_or_else(|| {
            Error::new(ErrorKind::Statement, executing(sql), "the query returned no value")
        })
    }

    /// Executes a statement that was just prepared, without parameters, and frees it; `row` is called on each row.
    fn execute_once(&self, statement: Stmt, sql: &str, mut row: impl FnMut()) -> Result<(), Error> {
        let code = loop {
            // SAFETY: just prepared.
            let code = unsafe { (self.library.functions.step)(statement) };
            if code != SQLITE_ROW {
                break code;
            }
            row();
        };
        let done = match code {
            SQLITE_DONE => Ok(()),
            _ => Err(self.error(code, executing(sql))),
        };
        // SAFETY: the caller does not use it again.
        unsafe { (self.library.functions.finalize)(statement) };
        done
    }

    /// The columns of the current row as text.
    fn row_as_text(&self, statement: Stmt) -> Vec<Option<String>> {
        let functions = &self.library.functions;
        // SAFETY: the caller's statement is prepared.
        let count = unsafe { (functions.column_count)(statement) };
        (0..count)
            .map(|column| {
                // SAFETY: the statement stands on a row, and the column exists.
                let text = unsafe { (functions.column_text)(statement, column) };
                // SAFETY: SQLite ends its texts with a zero byte; copied before it moves on.
                (!text.is_null())
                    .then(|| unsafe { CStr::from_ptr(text.cast()) }.to_string_lossy().into_owned())
            })
            .collect()
    }

    /// What the connection has counted since it was opened, and its prepared statements since they were prepared: names
    /// of SQLite without their prefixes, in lower case.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let functions = &*self.library.functions;
        let of_connection = OF_CONNECTION.map(|(name, number)| {
            let (mut now, mut most) = (0, 0);
            // SAFETY: the handle is open, and there are places for both values.
            unsafe { (functions.db_status)(self.db, number, &raw mut now, &raw mut most, 0) };
            (name.to_owned(), u64::from(now.cast_unsigned()))
        });
        let mut of_statements = OF_STATEMENT.map(|(name, _)| (name.to_owned(), 0));
        let mut statement = ptr::null_mut();
        loop {
            // SAFETY: the handle is open, and the statement is null or one of its own.
            statement = unsafe { (functions.next_stmt)(self.db, statement) };
            if statement.is_null() {
                break;
            }
            for ((_, sum), (_, number)) in of_statements.iter_mut().zip(OF_STATEMENT) {
                // SAFETY: the statement is prepared. Its counters are not reset.
                let count = unsafe { (functions.stmt_status)(statement, number, 0) };
                *sum += u64::from(count.cast_unsigned());
            }
        }
        of_connection.into_iter().chain(of_statements).collect()
    }

    /// The raw `sqlite3*`, to measure against the bare C API.
    pub fn raw_handle(&self) -> *mut c_void {
        self.db
    }

    /// Prepares the only statement of `sql`.
    fn prepare_only(&self, sql: &str) -> Result<Stmt, Error> {
        let FirstStatement { statement, len } = self.prepare_first(sql)?;
        if statement.is_null() {
            return Err(cannot_prepare(sql, "the text contains no statement"));
        }
        // The rest may be invalid until the first statement is executed.
        let rest = self.prepare_first(&sql[len..]).map(|rest| rest.statement);
        if rest.as_ref().is_ok_and(|rest| rest.is_null()) {
            return Ok(statement);
        }
        for statement in [statement, rest.unwrap_or(ptr::null_mut())] {
            // SAFETY: prepared above and not used again, or null.
            unsafe { (self.library.functions.finalize)(statement) };
        }
        Err(cannot_prepare(sql, "the text contains more than one statement"))
    }

    /// Prepares the first statement of `sql`; null if there are only white space, comments and semicolons.
    fn prepare_first(&self, sql: &str) -> Result<FirstStatement, Error> {
        // SQLite ends the text there.
        if sql.contains('\0') {
            return Err(cannot_prepare(sql, "the SQL text contains a zero byte"));
        }
        let mut statement = ptr::null_mut();
        let mut tail: *const c_char = ptr::null();
        // SAFETY: the text's length is given, so it needs no terminator.
        let code = unsafe {
            (self.library.functions.prepare_v3)(
                self.db,
                sql.as_ptr().cast(),
                sql.len() as c_int,
                SQLITE_PREPARE_PERSISTENT,
                &raw mut statement,
                &raw mut tail,
            )
        };
        if code != SQLITE_OK {
            return Err(self.error(code, preparing(sql)));
        }
        Ok(FirstStatement { statement, len: tail as usize - sql.as_ptr() as usize })
    }

    /// The error of the last call, with SQLite's message.
    #[cold]
    fn error(&self, code: c_int, doing: String) -> Error {
        let (message, code) = if self.db.is_null() {
            ("out of memory".to_owned(), SQLITE_NOMEM)
        } else {
            // SAFETY: the handle is open; the text is copied immediately.
            let message = unsafe { CStr::from_ptr((self.library.functions.errmsg)(self.db)) };
            // SAFETY: the handle is open.
            let extended = unsafe { (self.library.functions.extended_errcode)(self.db) };
            let code = if extended == SQLITE_OK { code } else { extended };
            (message.to_string_lossy().into_owned(), code)
        };
        // The low byte of an extended code is the primary code.
        let kind = match code & 0xff {
            SQLITE_BUSY => ErrorKind::Busy,
            SQLITE_FULL => ErrorKind::StorageFull,
            SQLITE_IOERR | SQLITE_CORRUPT | SQLITE_CANTOPEN | SQLITE_NOTADB | SQLITE_NOMEM => {
                ErrorKind::Storage
            }
            _ => ErrorKind::Statement,
        };
        let message = match kind {
            ErrorKind::StorageFull | ErrorKind::Storage => {
                format!("{message}: {}", self.path.display())
            }
            _ => message,
        };
        Error { doing, message, code: Some(ErrorCode::Number(code)), kind }
    }
}

impl Connection for SqliteConnection {
    fn placeholder(n: usize) -> String {
        format!("?{n}")
    }

    /// A deferred transaction that reads and then writes fails if another client wrote in between, and cannot
    /// be retried; an immediate one waits at its start.
    fn begin_sql(writes: bool) -> &'static str {
        if writes { "BEGIN IMMEDIATE" } else { "BEGIN" }
    }

    fn prepare(&mut self, sql: impl AsRef<[u8]>) -> Result<StatementId, Error> {
        let sql = std::str::from_utf8(sql.as_ref())
            .map_err(|_| cannot_prepare("a statement", "the SQL text is not UTF-8"))?;
        let statement = self.prepare_only(sql)?;
        let columns = ColumnType::of_columns(&self.library.functions, statement);
        self.statements.push(Prepared { statement, columns, sql: sql.to_owned() });
        Ok(StatementId(self.statements.len() - 1))
    }

    #[inline]
    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error> {
        let functions = &*self.library.functions;
        let prepared = &self.statements[statement.0];
        let stmt = prepared.statement;
        for (position, param) in (1..).zip(params.values()) {
            // SAFETY: the statement is prepared and reset. A text is bound without a copy: it
            // lives in `params` until this call has reset the statement, and every parameter is
            // bound again before the next step.
            let code = unsafe {
                match *param {
                    Param::Null => (functions.bind_null)(stmt, position),
                    Param::Int(value) => (functions.bind_int64)(stmt, position, value),
                    Param::Text { start, len } => {
                        let text = params.text(start, len);
                        let pointer = text.as_ptr().cast();
                        (functions.bind_text)(stmt, position, pointer, len as c_int, None)
                    }
                }
            };
            if code != SQLITE_OK {
                let doing = format!("binding parameter {position} of {}", prepared.sql);
                return Err(self.error(code, doing));
            }
        }
        let mut answer = Answer::default();
        let code = loop {
            // SAFETY: the statement is prepared and bound.
            let code = unsafe { (functions.step)(stmt) };
            if code != SQLITE_ROW {
                break code;
            }
            answer.rows += 1;
            for (column, reading) in (0..).zip(&prepared.columns) {
                // SAFETY: the statement stands on a row with these columns.
                let digest = unsafe { reading.read(functions, stmt, column) };
                answer.digest = answer.digest.wrapping_add(digest);
            }
        };
        if code != SQLITE_DONE {
            let error = self.error(code, executing(&prepared.sql));
            // SAFETY: the statement is prepared; the reset repeats the step's error code.
            unsafe { (functions.reset)(stmt) };
            return Err(error);
        }
        if prepared.columns.is_empty() {
            // SAFETY: the handle is open.
            answer.affected = unsafe { (functions.changes64)(self.db) } as u64;
        }
        // SAFETY: the statement is prepared.
        let code = unsafe { (functions.reset)(stmt) };
        if code != SQLITE_OK {
            return Err(self.error(code, executing(&prepared.sql)));
        }
        Ok(answer)
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        let mut rest = sql;
        while !rest.trim().is_empty() {
            let FirstStatement { statement, len } = self.prepare_first(rest)?;
            let first;
            (first, rest) = rest.split_at(len);
            if !statement.is_null() {
                self.execute_once(statement, first, || ())?;
            }
        }
        Ok(())
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        let statement = self.prepare_only(sql)?;
        let mut rows = Vec::new();
        self.execute_once(statement, sql, || rows.push(self.row_as_text(statement)))?;
        Ok(rows)
    }

    fn close_statement(&mut self, statement: StatementId) {
        let prepared = &mut self.statements[statement.0];
        // SAFETY: prepared by this connection; the pointer to nothing that replaces it can be finalized too.
        unsafe { (self.library.functions.finalize)(prepared.statement) };
        prepared.statement = ptr::null_mut();
    }

    fn close_statements(&mut self) {
        for prepared in self.statements.drain(..) {
            // SAFETY: prepared by this connection and not used again: the list is drained.
            unsafe { (self.library.functions.finalize)(prepared.statement) };
        }
    }

    fn busy_retries(&self) -> u64 {
        self.busy.retries.get()
    }
}

impl Drop for SqliteConnection {
    fn drop(&mut self) {
        self.close_statements();
        // SAFETY: the handle is open or null, and no statement of it is left.
        unsafe { (self.library.functions.close_v2)(self.db) };
    }
}

fn preparing(sql: &str) -> String {
    format!("preparing {}", truncate_sql(sql))
}

#[cold]
fn cannot_prepare(sql: &str, message: &str) -> Error {
    Error::new(ErrorKind::Statement, preparing(sql), message)
}

/// Total wait for one lock, after which the statement fails with `SQLITE_BUSY`.
const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_SLEEP: Duration = Duration::from_micros(5);
const MAX_SLEEP: Duration = Duration::from_millis(1);

/// State of a connection's busy handler.
#[derive(Debug, Default)]
struct BusyState {
    retries: Cell<u64>,
    waited: Cell<Duration>,
}

impl BusyState {
    /// Sleeps before the next retry; false if the timeout has expired.
    fn wait(&self, attempts: u32) -> bool {
        if attempts == 0 {
            self.waited.set(Duration::ZERO);
        }
        if self.waited.get() >= TIMEOUT {
            return false;
        }
        let sleep = FIRST_SLEEP.saturating_mul(1 << attempts.min(16)).min(MAX_SLEEP);
        std::thread::sleep(sleep);
        self.waited.set(self.waited.get() + sleep);
        self.retries.set(self.retries.get() + 1);
        true
    }
}

/// The callback for `sqlite3_busy_handler`.
///
/// # Safety
/// `state` must point to the connection's [`BusyState`].
unsafe extern "C" fn wait_if_busy(state: *mut c_void, attempts: c_int) -> c_int {
    // SAFETY: the connection registered its own state, which outlives the handle; SQLite calls
    // back on the thread that uses the connection.
    let state = unsafe { &*state.cast::<BusyState>() };
    c_int::from(state.wait(u32::try_from(attempts).unwrap_or(0)))
}

const SQLITE_INTEGER: c_int = 1;

/// How values of a column are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnType {
    /// As integers: the column is declared as one.
    Int,
    /// As texts: the column is declared as one.
    Text,
    /// By the type of each value: the column is an expression.
    Dynamic,
}

impl ColumnType {
    /// The types of a statement's columns, from their declared types.
    fn of_columns(functions: &Functions, statement: Stmt) -> Vec<Self> {
        // SAFETY: the statement is prepared and not finalized.
        let count = unsafe { (functions.column_count)(statement) };
        (0..count)
            .map(|column| {
                // SAFETY: as above, and the column exists.
                let declared = unsafe { (functions.column_decltype)(statement, column) };
                if declared.is_null() {
                    return Self::Dynamic;
                }
                // SAFETY: not null, so a C string that lives as long as the statement.
                let declared = unsafe { CStr::from_ptr(declared) }.to_bytes();
                Self::of_declared(declared)
            })
            .collect()
    }

    /// SQLite's affinity rules for integers and texts
    /// (<https://sqlite.org/datatype3.html#determination_of_column_affinity>).
    fn of_declared(declared: &[u8]) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |word: &[u8]| declared.windows(word.len()).any(|window| window == word);
        if has(b"INT") {
            Self::Int
        } else if has(b"CHAR") || has(b"CLOB") || has(b"TEXT") {
            Self::Text
        } else {
            Self::Dynamic
        }
    }

    /// Reads a column of the current row and returns its contribution to the digest.
    ///
    /// # Safety
    /// The statement has a current row, and the column exists.
    #[inline(always)]
    unsafe fn read(self, functions: &Functions, statement: Stmt, column: c_int) -> u64 {
        let as_int = match self {
            Self::Int => true,
            Self::Text => false,
            // SAFETY: as the caller promised.
            Self::Dynamic => unsafe {
                (functions.column_type)(statement, column) == SQLITE_INTEGER
            },
        };
        if as_int {
            // SAFETY: as the caller promised.
            return unsafe { (functions.column_int64)(statement, column) } as u64;
        }
        // SAFETY: as above.
        let text = unsafe { (functions.column_text)(statement, column) };
        if text.is_null() {
            return 0;
        }
        // SAFETY: asked for after the text, so it is the length of that text in bytes.
        let len = unsafe { (functions.column_bytes)(statement, column) } as usize;
        // SAFETY: SQLite keeps `len` bytes there until the next step or reset.
        text_digest(unsafe { std::slice::from_raw_parts(text, len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_and_are_counted() {
        let state = BusyState::default();
        assert!(state.wait(0));
        assert!(state.wait(1));
        assert_eq!(state.retries.get(), 2);
        assert_eq!(state.waited.get(), FIRST_SLEEP * 3);
    }

    #[test]
    fn timeout_ends_the_wait() {
        let state = BusyState::default();
        state.waited.set(TIMEOUT);
        assert!(!state.wait(7));
        assert_eq!(state.retries.get(), 0);
    }

    #[test]
    fn declared_type_determines_the_column_type() {
        assert_eq!(ColumnType::of_declared(b"INTEGER"), ColumnType::Int);
        assert_eq!(ColumnType::of_declared(b"bigint"), ColumnType::Int);
        assert_eq!(ColumnType::of_declared(b"CHAR(120)"), ColumnType::Text);
        assert_eq!(ColumnType::of_declared(b"REAL"), ColumnType::Dynamic);
    }
}
