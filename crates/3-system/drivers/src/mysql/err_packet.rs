use super::wire::{Cursor, Malformed};
use crate::error_text::server_text;
use crate::{Error, ErrorCode, ErrorKind};

/// First byte of an ERR packet.
pub(super) const ERR: u8 = 0xff;

/// "This command is not supported in the prepared statement protocol yet".
pub(super) const NOT_PREPARABLE: u16 = 1295;

/// Why a request failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyError {
    /// The server reported an error.
    Server(ErrPacket),
    /// The server requested this file of the client: the connection is not used any more.
    LocalFile(String),
    /// The received bytes are not valid: the connection cannot be used any more.
    Malformed,
}

impl From<Malformed> for ReplyError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// The error in an ERR packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ErrPacket {
    pub(super) code: u16,
    /// Errors before the handshake have none.
    sqlstate: Option<[u8; 5]>,
    message: String,
}

impl ErrPacket {
    /// Parses a packet that starts with [`ERR`].
    #[cold]
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(packet);
        cursor.u8()?;
        let code = cursor.u16()?;
        let text = cursor.rest();
        let (sqlstate, text) = match text.strip_prefix(b"#").and_then(<[u8]>::split_first_chunk) {
            Some((state, message)) => (Some(*state), message),
            None => (None, text),
        };
        Ok(Self { code, sqlstate, message: server_text(text) })
    }

    /// Converts it to an error after the login.
    pub(super) fn error(self, doing: String, in_transaction: bool) -> Error {
        let kind = match self.code {
            // No access to a database or to files of the server: the connection can be used as before.
            1044 | 1045 => ErrorKind::Statement,
            code => kind(code, &self.message, in_transaction),
        };
        Error { doing, code: Some(self.error_code()), message: self.message, kind }
    }

    /// Converts it to an error of the login.
    pub(super) fn refusal(self, doing: String, advice: &str) -> Error {
        let kind = match kind(self.code, &self.message, false) {
            ErrorKind::Connection => ErrorKind::Connection,
            _ => ErrorKind::Refused,
        };
        let message = format!("{}{advice}", self.message);
        Error { doing, message, code: Some(self.error_code()), kind }
    }

    fn error_code(&self) -> ErrorCode {
        ErrorCode::of_number(self.code.into(), self.sqlstate.as_ref().map(<[u8; 5]>::as_slice))
    }
}

/// What an error code means for the run
/// (<https://mariadb.com/kb/en/mariadb-error-code-reference/>).
fn kind(code: u16, message: &str, in_transaction: bool) -> ErrorKind {
    match code {
        // Lock wait timeout.
        1205 => ErrorKind::Busy,
        // Record changed since last read; deadlock.
        1020 | 1213 => ErrorKind::Conflict,
        // Duplicate key in a transaction that has just deleted the key: another client inserted it
        // in between.
        1062 if in_transaction => ErrorKind::Conflict,
        // Disk full, table full, disk full while a table is created.
        1021 | 1114 | 3675 => ErrorKind::StorageFull,
        // Too many connections, no access to the database, no access at all, host blocked, host
        // not allowed, too many connections of this user, a resource of this user used up, no
        // such authentication, no access with this authentication, password expired, account
        // locked, encryption demanded.
        1040 | 1044 | 1045 | 1129 | 1130 | 1203 | 1226 | 1251 | 1698 | 1862 | 3118 | 3159
        | 4151 => ErrorKind::Refused,
        // Shutdown, forced close, network errors, connection killed, idle for too long.
        1053 | 1080 | 1152..=1161 | 1184 | 1927 | 2006 | 2013 | 3169 | 4031 => {
            ErrorKind::Connection
        }
        // Incorrect table file, crashed table, corrupted index, corrupted table.
        1034 | 1194 | 1195 | 1712 | 1877 => ErrorKind::Storage,
        // Storage engines use various codes for a full disk, but the same message.
        _ if ["No space left on device", "errno: 28", "error 28 ", "Errcode: 28"]
            .iter()
            .any(|words| message.contains(words)) =>
        {
            ErrorKind::StorageFull
        }
        _ => ErrorKind::Statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u16, rest: &str) -> Vec<u8> {
        let mut packet = vec![ERR];
        packet.extend(code.to_le_bytes());
        packet.extend(rest.as_bytes());
        packet
    }

    fn error(code: u16, rest: &str, in_transaction: bool) -> Error {
        let failure = ErrPacket::parse(&packet(code, rest)).unwrap();
        failure.error("executing".to_owned(), in_transaction)
    }

    #[test]
    fn error_has_the_sqlstate() {
        let error = error(1146, "#42S02Table 'a.b' doesn't exist", false);
        assert_eq!(
            error.to_string(),
            "executing: Table 'a.b' doesn't exist (code 1146, SQLSTATE 42S02)"
        );
        assert!(error.has_sqlstate("42S02") && error.has_number(1146));
        assert_eq!(error.kind, ErrorKind::Statement);
    }

    #[test]
    fn error_before_login_has_no_sqlstate() {
        let error = error(1040, "Too many connections", false);
        assert_eq!(
            (error.message.as_str(), error.kind),
            ("Too many connections", ErrorKind::Refused)
        );
        assert_eq!(ErrPacket::parse(&[ERR, 1]), Err(Malformed));
    }

    #[test]
    fn missing_privilege_of_a_statement_does_not_end_the_connection() {
        for code in [1044, 1045, 1142, 1227] {
            let error = error(code, "#42000Access denied for user 'a'@'b' to database 'c'", false);
            assert_eq!(error.kind, ErrorKind::Statement, "{code}");
        }
    }

    #[test]
    fn duplicate_key_is_a_conflict_only_in_a_transaction() {
        assert_eq!(error(1062, "#23000Duplicate", true).kind, ErrorKind::Conflict);
        assert_eq!(error(1062, "#23000Duplicate", false).kind, ErrorKind::Statement);
    }

    #[test]
    fn full_disk_is_detected_by_code_and_message() {
        let words = "#HY000Got error 10 'IO error: No space left on device' from ROCKSDB";
        assert_eq!(error(1296, words, false).kind, ErrorKind::StorageFull);
        assert_eq!(error(1114, "#HY000The table 't' is full", false).kind, ErrorKind::StorageFull);
        let words = "#HY000Error writing file '/x' (errno: 28 \"No space left\")";
        assert_eq!(error(1026, words, false).kind, ErrorKind::StorageFull);
    }

    #[test]
    fn failed_login_is_refused_unless_the_server_shuts_down() {
        let of = |code| {
            let failure = ErrPacket::parse(&packet(code, "#HY000Words")).unwrap();
            failure.refusal("logging in".to_owned(), "; advice")
        };
        assert_eq!((of(1049).kind, of(1053).kind), (ErrorKind::Refused, ErrorKind::Connection));
        assert_eq!(of(1044).kind, ErrorKind::Refused);
        assert_eq!(of(1049).message, "Words; advice");
    }
}
