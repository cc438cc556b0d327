//! SQLite through its C API, from a shared library that is loaded at run time.
//!
//! All builds of SQLite are shared libraries with the same symbols; a process loads one.

mod connection;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use crate::{Error, ErrorKind};
pub use connection::SqliteConnection;

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
    errmsg: fn(Db) -> *const c_char;
    extended_errcode: fn(Db) -> c_int;
    finalize: fn(Stmt) -> c_int;
    libversion: fn() -> *const c_char;
    open_v2: fn(*const c_char, *mut Db, c_int, *const c_char) -> c_int;
    prepare_v3: fn(Db, *const c_char, c_int, u32, *mut Stmt, *mut *const c_char) -> c_int;
    reset: fn(Stmt) -> c_int;
    step: fn(Stmt) -> c_int;
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
        let failed = |error: libloading::Error| Error {
            doing: format!("loading SQLite from {}", path.display()),
            message: error.to_string(),
            code: None,
            kind: ErrorKind::Storage,
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
