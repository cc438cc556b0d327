//! A loop in C over SQLite's functions, with which dbdyno's hot loop is compared.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr;

use anyhow::{Context, bail, ensure};
use dbdyno_builds::Compiler;
use dbdyno_machine::clock;
use dbdyno_units::Nanos;
use libloading::Library;

const SOURCE: &str = include_str!("bare_loop.c");

/// The same flag as in dbdyno's driver.
const SQLITE_PREPARE_PERSISTENT: c_uint = 0x1;

/// Compiles the loop into `directory` and loads it.
pub fn compile(compiler: &Compiler, directory: &Path) -> anyhow::Result<Library> {
    let (source, library) = (directory.join("bare_loop.c"), directory.join("bare_loop.so"));
    std::fs::write(&source, SOURCE).with_context(|| format!("writing {}", source.display()))?;
    let output = Command::new(&compiler.path)
        .args(["-O2", "-std=c11", "-Wall", "-Wextra", "-Wno-pedantic", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()
        .with_context(|| format!("starting {}", compiler.path.display()))?;
    ensure!(
        output.status.success(),
        "compiling the bare loop with {compiler}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // SAFETY: the library has no initialisation routines.
    Ok(unsafe { Library::new(&library) }?)
}

/// As in the C source.
#[repr(C)]
struct Functions {
    bind_int64: unsafe extern "C" fn(*mut c_void, c_int, i64) -> c_int,
    step: unsafe extern "C" fn(*mut c_void) -> c_int,
    column_text: unsafe extern "C" fn(*mut c_void, c_int) -> *const u8,
    column_bytes: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    reset: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// As in the C source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Answers {
    rows: u64,
    bytes: u64,
    digest: u64,
}

type Prepare = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_int,
    c_uint,
    *mut *mut c_void,
    *mut *const c_char,
) -> c_int;
type Finalize = unsafe extern "C" fn(*mut c_void) -> c_int;
type Loop =
    unsafe extern "C" fn(*const Functions, *mut c_void, *mut u64, u64, u64, *mut Answers) -> c_int;

/// The loop with its own statement on dbdyno's connection.
pub struct BareLoop {
    statement: *mut c_void,
    run: Loop,
    functions: Functions,
    finalize: Finalize,
    state: [u64; 4],
    keys: u64,
    // Keeps the code behind the pointers above mapped.
    _loop: Library,
    _sqlite: Library,
}

impl BareLoop {
    /// Prepares `sql`, which has one parameter for a key from 1 to `keys` and returns one text column.
    ///
    /// `sqlite` is the file of the library that the connection `db` belongs to: a library that is
    /// in the process already is not loaded a second time (`man 3 dlopen`).
    ///
    /// # Safety
    /// `db` is an open connection of that library, used by this thread alone, and stays open until
    /// the value is dropped.
    pub unsafe fn prepare(
        bare_loop: Library,
        sqlite: &Path,
        db: *mut c_void,
        sql: &str,
        keys: u64,
    ) -> anyhow::Result<Self> {
        // SAFETY: loaded before, by dbdyno's driver.
        let sqlite = unsafe { Library::new(sqlite) }?;
        // SAFETY: the documented signatures (<https://sqlite.org/c3ref/funclist.html>); those of
        // the loop are in its source.
        let (functions, prepare, finalize, run) = unsafe {
            let functions = Functions {
                bind_int64: *sqlite.get(b"sqlite3_bind_int64\0")?,
                step: *sqlite.get(b"sqlite3_step\0")?,
                column_text: *sqlite.get(b"sqlite3_column_text\0")?,
                column_bytes: *sqlite.get(b"sqlite3_column_bytes\0")?,
                reset: *sqlite.get(b"sqlite3_reset\0")?,
            };
            let prepare: Prepare = *sqlite.get(b"sqlite3_prepare_v3\0")?;
            let finalize: Finalize = *sqlite.get(b"sqlite3_finalize\0")?;
            let run: Loop = *bare_loop.get(b"bare_loop\0")?;
            (functions, prepare, finalize, run)
        };
        let mut statement = ptr::null_mut();
        // SAFETY: the caller vouches for the connection; the text's length is given.
        let code = unsafe {
            prepare(
                db,
                sql.as_ptr().cast(),
                sql.len() as c_int,
                SQLITE_PREPARE_PERSISTENT,
                &raw mut statement,
                ptr::null_mut(),
            )
        };
        if code != 0 || statement.is_null() {
            bail!("SQLite error {code} when the bare loop prepares {sql}");
        }
        Ok(Self {
            statement,
            run,
            functions,
            finalize,
            // Any state but zeros: the first digits of pi.
            state: [
                0x243f_6a88_85a3_08d3,
                0x1319_8a2e_0370_7344,
                0xa409_3822_299f_31d0,
                0x082e_fa98_ec4e_6c89,
            ],
            keys,
            _loop: bare_loop,
            _sqlite: sqlite,
        })
    }

    /// Executes the statement and returns the elapsed time.
    pub fn run(&mut self, executions: u64) -> anyhow::Result<Nanos> {
        let mut answers = Answers::default();
        let started = clock::monotonic();
        // SAFETY: the statement is prepared and reset, the state has four words, and all pointers
        // are good for the time of the call.
        let code = unsafe {
            (self.run)(
                &raw const self.functions,
                self.statement,
                self.state.as_mut_ptr(),
                self.keys,
                executions,
                &raw mut answers,
            )
        };
        let time = clock::monotonic() - started;
        ensure!(code == 0, "SQLite error {code} in the bare loop");
        ensure!(
            answers.rows == executions && answers.bytes > executions,
            "{executions} queries of the bare loop returned {} rows of {} bytes",
            answers.rows,
            answers.bytes
        );
        Ok(time)
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        // SAFETY: prepared by this value, on a connection that is still open.
        unsafe { (self.finalize)(self.statement) };
    }
}
