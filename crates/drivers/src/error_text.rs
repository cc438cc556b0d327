//! Error messages shared by all drivers.

use std::io;

use crate::{Error, ErrorKind};

/// SQL for an error message, at most 120 characters: in-lists can have thousands of placeholders.
pub(crate) fn truncate_sql(sql: &str) -> String {
    const MAX_LENGTH: usize = 120;
    let sql = sql.trim();
    match sql.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &sql[..end]),
        None => sql.to_owned(),
    }
}

/// The error for a network failure.
#[cold]
pub(crate) fn connection_lost(doing: String, error: &io::Error) -> Error {
    Error {
        doing,
        message: format!("the connection is lost: {error}"),
        code: error.raw_os_error().unwrap_or_default(),
        kind: ErrorKind::Connection,
    }
}
