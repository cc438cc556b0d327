//! Words for errors, alike in all drivers.

use std::io;

use crate::{Error, ErrorKind};

/// SQL for an error message: in-lists can have thousands of placeholders.
pub(crate) fn shortened(sql: &str) -> String {
    const MOST: usize = 120;
    let sql = sql.trim();
    match sql.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &sql[..end]),
        None => sql.to_owned(),
    }
}

/// What a failure of the network means: the connection is gone.
#[cold]
pub(crate) fn lost(doing: String, error: &io::Error) -> Error {
    Error {
        doing,
        message: format!("the connection is lost: {error}"),
        code: error.raw_os_error().unwrap_or_default(),
        kind: ErrorKind::Connection,
    }
}
