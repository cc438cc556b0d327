use super::wire::Fields;
use crate::error_text::server_text;
use crate::{Error, ErrorCode, ErrorKind};

/// An ErrorResponse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerError {
    /// The SQLSTATE: five letters and digits.
    pub(super) state: String,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// The server closes the connection.
    fatal: bool,
}

impl ServerError {
    /// Parses as many fields as there are: a truncated error is still an error.
    #[cold]
    pub(super) fn read(body: &[u8]) -> Self {
        let mut error = Self::default();
        let mut fields = Fields(body);
        while let (Ok(field), Ok(text)) = (fields.byte(), fields.text()) {
            match field {
                // The severity, never translated.
                b'V' => error.fatal = matches!(text, b"FATAL" | b"PANIC"),
                b'C' => error.state = server_text(text),
                b'M' => error.message = server_text(text),
                b'D' => error.detail = Some(server_text(text)),
                b'H' => error.hint = Some(server_text(text)),
                _ => {}
            }
        }
        error
    }

    /// What it means for the run. `in_transaction`: it occurred in a transaction of the client.
    pub(super) fn kind(&self, in_transaction: bool) -> ErrorKind {
        match self.known_kind() {
            Some(kind) => kind,
            // Another client inserted the key between the delete and the insert of the transaction.
            // Without a transaction the statement itself is wrong.
            None if in_transaction && self.state == "23505" => ErrorKind::Conflict,
            None if self.fatal => ErrorKind::Connection,
            None => ErrorKind::Statement,
        }
    }

    /// What it means if it ended the login.
    pub(super) fn kind_at_login(&self) -> ErrorKind {
        self.known_kind().unwrap_or(ErrorKind::Refused)
    }

    fn known_kind(&self) -> Option<ErrorKind> {
        match self.state.as_str() {
            "40001" | "40P01" => Some(ErrorKind::Conflict),
            "55P03" => Some(ErrorKind::Busy),
            "53100" => Some(ErrorKind::StorageFull),
            "53300" | "3D000" => Some(ErrorKind::Refused),
            "57P01" | "57P02" | "57P03" => Some(ErrorKind::Connection),
            "XX001" | "XX002" => Some(ErrorKind::Storage),
            state => match state.get(..2) {
                Some("28") => Some(ErrorKind::Refused),
                Some("08") => Some(ErrorKind::Connection),
                Some("58") => Some(ErrorKind::Storage),
                _ => None,
            },
        }
    }

    /// Converts it to a driver error with the SQLSTATE as its code.
    #[cold]
    pub(super) fn into_error(self, doing: String, kind: ErrorKind) -> Error {
        let mut message = self.message;
        // The hint of "dependent objects still exist" advises to drop these as well, with CASCADE.
        let hint = self.hint.filter(|_| self.state != "2BP01");
        for more in [self.detail, hint].into_iter().flatten() {
            message.push_str("; ");
            message.push_str(&more);
        }
        Error { doing, message, code: ErrorCode::of_sqlstate(&self.state), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(severity: &str, state: &str) -> ServerError {
        let body = format!("SFEHLER\0V{severity}\0C{state}\0Mno luck\0Dat all\0Htry again\0\0");
        ServerError::read(body.as_bytes())
    }

    #[test]
    fn sqlstate_determines_the_error_kind() {
        for (state, kind) in [
            ("40001", ErrorKind::Conflict),
            ("40P01", ErrorKind::Conflict),
            ("23505", ErrorKind::Statement),
            ("55P03", ErrorKind::Busy),
            ("53100", ErrorKind::StorageFull),
            ("53300", ErrorKind::Refused),
            ("53200", ErrorKind::Statement),
            ("28P01", ErrorKind::Refused),
            ("28000", ErrorKind::Refused),
            ("3D000", ErrorKind::Refused),
            ("57P01", ErrorKind::Connection),
            ("57P02", ErrorKind::Connection),
            ("57P03", ErrorKind::Connection),
            ("57014", ErrorKind::Statement),
            ("08P01", ErrorKind::Connection),
            ("XX000", ErrorKind::Statement),
            ("XX001", ErrorKind::Storage),
            ("XX002", ErrorKind::Storage),
            ("58030", ErrorKind::Storage),
            ("42P01", ErrorKind::Statement),
            ("", ErrorKind::Statement),
        ] {
            assert_eq!(error("ERROR", state).kind(false), kind, "{state}");
        }
        assert_eq!(error("ERROR", "23505").kind(true), ErrorKind::Conflict);
        assert_eq!(error("FATAL", "25P03").kind(false), ErrorKind::Connection);
        assert_eq!(error("FATAL", "53100").kind(false), ErrorKind::StorageFull);
        assert_eq!(error("FATAL", "42501").kind_at_login(), ErrorKind::Refused);
        assert_eq!(error("FATAL", "57P03").kind_at_login(), ErrorKind::Connection);
    }

    #[test]
    fn message_has_sqlstate_detail_and_hint() {
        let conflict = error("ERROR", "40P01").into_error("doing".to_owned(), ErrorKind::Conflict);
        assert_eq!(conflict.to_string(), "doing: no luck; at all; try again (SQLSTATE 40P01)");
        let dependent =
            error("ERROR", "2BP01").into_error("doing".to_owned(), ErrorKind::Statement);
        assert_eq!(dependent.message, "no luck; at all");
        assert!(dependent.has_sqlstate("2BP01"));
    }

    #[test]
    fn truncated_error_is_parsed_as_far_as_possible() {
        let error = ServerError::read(b"C28P01\0Mno");
        assert_eq!((error.state.as_str(), error.message.as_str()), ("28P01", ""));
    }
}
