use super::wire::{Cursor, Malformed};
use crate::{Error, ErrorKind};

/// The first byte of a packet that tells of a failure.
pub(super) const FAILED: u8 = 0xff;

/// "This command is not supported in the prepared statement protocol yet".
pub(super) const NOT_PREPARABLE: u16 = 1295;

/// Why a request did not work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server says so.
    Server(ServerFailure),
    /// What it said is not the protocol: nothing more can be read from this connection.
    Malformed,
}

impl From<Malformed> for Failure {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// The server's own words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFailure {
    pub(super) code: u16,
    message: String,
}

impl ServerFailure {
    /// From a packet that starts with [`FAILED`].
    #[cold]
    pub(super) fn of_packet(packet: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(packet);
        cursor.u8()?;
        let code = cursor.u16()?;
        let words = |bytes| String::from_utf8_lossy(bytes).into_owned();
        // A server that turns us away before it knows our protocol leaves the state out.
        let message = match cursor.rest().strip_prefix(b"#").and_then(|s| s.split_at_checked(5)) {
            Some((state, rest)) => format!("{} (SQLSTATE {})", words(rest), words(state)),
            None => words(cursor.rest()),
        };
        Ok(Self { code, message })
    }

    /// As an error of a statement, or of anything else after the login.
    pub(super) fn error(self, doing: String, in_transaction: bool) -> Error {
        let kind = kind(self.code, &self.message, in_transaction);
        Error { doing, message: self.message, code: self.code.into(), kind }
    }

    /// As an error of the login: whatever the reason, we are not in.
    pub(super) fn refusal(self, doing: String, advice: &str) -> Error {
        let kind = match kind(self.code, &self.message, false) {
            ErrorKind::Connection => ErrorKind::Connection,
            _ => ErrorKind::Refused,
        };
        let message = format!("{}{advice}", self.message);
        Error { doing, message, code: self.code.into(), kind }
    }
}

/// What the server's codes mean for a run
/// (<https://mariadb.com/kb/en/mariadb-error-code-reference/>).
fn kind(code: u16, message: &str, in_transaction: bool) -> ErrorKind {
    match code {
        // Lock wait timeout.
        1205 => ErrorKind::Busy,
        // Record changed since last read; deadlock.
        1020 | 1213 => ErrorKind::Conflict,
        // A duplicate key in a transaction that has just deleted the key: another client's insert
        // came between.
        1062 if in_transaction => ErrorKind::Conflict,
        // Disk full, table full, disk full while a table is made.
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
        // A table's file is wrong, a table is crashed, an index is corrupted, so is a table.
        1034 | 1194 | 1195 | 1712 | 1877 => ErrorKind::Storage,
        // Storage engines have many codes for this and one way to say it.
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
        let mut packet = vec![FAILED];
        packet.extend(code.to_le_bytes());
        packet.extend(rest.as_bytes());
        packet
    }

    fn error(code: u16, rest: &str, in_transaction: bool) -> Error {
        let failure = ServerFailure::of_packet(&packet(code, rest)).unwrap();
        failure.error("executing".to_owned(), in_transaction)
    }

    #[test]
    fn words_and_state_are_kept() {
        let error = error(1146, "#42S02Table 'a.b' doesn't exist", false);
        assert_eq!(
            error.to_string(),
            "executing: Table 'a.b' doesn't exist (SQLSTATE 42S02) (code 1146)"
        );
        assert_eq!(error.kind, ErrorKind::Statement);
    }

    #[test]
    fn a_failure_before_the_login_has_no_state() {
        let error = error(1040, "Too many connections", false);
        assert_eq!(
            (error.message.as_str(), error.kind),
            ("Too many connections", ErrorKind::Refused)
        );
        assert_eq!(ServerFailure::of_packet(&[FAILED, 1]), Err(Malformed));
    }

    #[test]
    fn a_duplicate_key_is_a_conflict_only_inside_a_transaction() {
        assert_eq!(error(1062, "#23000Duplicate", true).kind, ErrorKind::Conflict);
        assert_eq!(error(1062, "#23000Duplicate", false).kind, ErrorKind::Statement);
    }

    #[test]
    fn full_storage_is_known_by_code_and_by_words() {
        let words = "#HY000Got error 10 'IO error: No space left on device' from ROCKSDB";
        assert_eq!(error(1296, words, false).kind, ErrorKind::StorageFull);
        assert_eq!(error(1114, "#HY000The table 't' is full", false).kind, ErrorKind::StorageFull);
        let words = "#HY000Error writing file '/x' (errno: 28 \"No space left\")";
        assert_eq!(error(1026, words, false).kind, ErrorKind::StorageFull);
    }

    #[test]
    fn a_login_that_fails_is_a_refusal_unless_the_server_is_going() {
        let of = |code| {
            let failure = ServerFailure::of_packet(&packet(code, "#HY000Words")).unwrap();
            failure.refusal("logging in".to_owned(), "; advice")
        };
        assert_eq!((of(1049).kind, of(1053).kind), (ErrorKind::Refused, ErrorKind::Connection));
        assert_eq!(of(1049).message, "Words (SQLSTATE HY000); advice");
    }
}
