//! Error messages shared by all drivers.

use std::io;

use crate::{Error, ErrorCode, ErrorKind};

/// SQL for an error message, at most 120 characters: in-lists can have thousands of placeholders.
pub(crate) fn truncate_sql(sql: &str) -> String {
    const MAX_LENGTH: usize = 120;
    let sql = sql.trim();
    match sql.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &sql[..end]),
        None => sql.to_owned(),
    }
}

/// The action of executing SQL, for an error message.
pub(crate) fn executing(sql: &str) -> String {
    format!("executing {}", truncate_sql(sql))
}

/// Text from a server for people to read, at most 4 KiB.
#[cold]
pub(crate) fn server_text(bytes: &[u8]) -> String {
    const MAX_LENGTH: usize = 4 << 10;
    let (shown, rest) = bytes.split_at(bytes.len().min(MAX_LENGTH));
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if !rest.is_empty() {
        text.push('…');
    }
    text
}

/// The error for a network failure.
#[cold]
pub(crate) fn connection_lost(doing: String, error: &io::Error) -> Error {
    Error {
        doing,
        message: format!("the connection is lost: {error}"),
        code: ErrorCode::of_io(error),
        kind: ErrorKind::Connection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_limited() {
        assert_eq!(server_text("naïve".as_bytes()), "naïve");
        assert_eq!(server_text(&[b'x'; 4096]).chars().count(), 4096);
        assert_eq!(server_text(&[b'x'; 5000]).chars().count(), 4097);
    }
}
