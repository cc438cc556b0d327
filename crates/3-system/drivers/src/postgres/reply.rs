//! Parses the reply to a request as it arrives, and the types of result columns: their format, and their
//! contribution to the digest.

use dbdyno_types::server::StatementMode;

use super::channel::{Fields, Malformed, Message, NULL};
use crate::error::server_text;
use crate::{Answer, Error, ErrorCode, ErrorKind, ResultShape, text_digest};

/// The transaction state that ends a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    /// No transaction is open.
    Idle,
    Open,
    /// A transaction has failed and must be rolled back.
    Failed,
}

impl Transaction {
    #[inline]
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        match body {
            b"I" => Ok(Self::Idle),
            b"T" => Ok(Self::Open),
            b"E" => Ok(Self::Failed),
            _ => Err(Malformed::new("an unknown transaction state")),
        }
    }
}

/// The reply to one execution, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The result of the last statement that is complete, and the rows before it.
    pub(super) result: ResultShape,
    rows_before: u64,
    /// Whether the server has described the columns in the reply: it does for each statement in text mode.
    is_described: bool,
    /// The first error. Boxed, because it is rare and a reply is created for each request.
    pub(super) error: Option<Box<ServerError>>,
    /// Set when the reply is complete.
    pub(super) end: Option<Transaction>,
    /// The server waits for data to copy and must be informed that there is none.
    pub(super) awaits_copy_data: bool,
}

impl Reply {
    /// Processes all complete messages at the start of `bytes` up to the end of the reply, and returns
    /// their length. The result does not depend on how the bytes are split.
    #[inline]
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        columns: &mut Vec<ColumnType>,
    ) -> Result<usize, Malformed> {
        let mut rest = bytes;
        while let Some((message, behind)) = Message::first(rest)? {
            match message.tag {
                b'D' => {
                    rest = self.read_rows(rest, columns)?;
                    continue;
                }
                // BindComplete.
                b'2' => {}
                b'C' => self.complete(message.body, columns),
                b'Z' => self.end = Some(Transaction::read(message.body)?),
                _ => self.handle_other(message, columns)?,
            }
            rest = behind;
            if self.end.is_some() {
                break;
            }
        }
        Ok(bytes.len() - rest.len())
    }

    #[inline]
    fn complete(&mut self, tag: &[u8], columns: &mut Vec<ColumnType>) {
        if columns.is_empty() {
            // A text may have several statements.
            self.answer.affected = self.answer.affected.wrapping_add(affected(tag));
        }
        let rows = self.answer.rows - self.rows_before;
        self.result = ResultShape { columns: columns.len() as u16, rows };
        self.rows_before = self.answer.rows;
        if self.is_described {
            // The next statement may have none.
            self.is_described = false;
            columns.clear();
        }
    }

    /// Processes the rows at the start of `bytes` and returns the rest. Not inlined, to keep registers free
    /// for this loop.
    #[inline(never)]
    fn read_rows<'a>(
        &mut self,
        bytes: &'a [u8],
        columns: &[ColumnType],
    ) -> Result<&'a [u8], Malformed> {
        let (mut rest, mut rows, mut sum) = (bytes, 0, 0_u64);
        while let Some((message, behind)) = Message::first(rest)?
            && message.tag == b'D'
        {
            let Some(digest) = row_digest(message.body, columns) else {
                return Err(Malformed::new("a row that does not match its columns"));
            };
            sum = sum.wrapping_add(digest);
            rows += 1;
            rest = behind;
        }
        self.answer.rows += rows;
        self.answer.digest = self.answer.digest.wrapping_add(sum);
        Ok(rest)
    }

    #[cold]
    fn handle_other(
        &mut self,
        message: Message<'_>,
        columns: &mut Vec<ColumnType>,
    ) -> Result<(), Malformed> {
        match message.tag {
            // RowDescription: in every reply of text mode, and in no other.
            b'T' => {
                read_columns(message.body, columns)?;
                self.is_described = true;
            }
            b'E' => {
                self.error.get_or_insert_with(|| Box::new(ServerError::read(message.body)));
            }
            b'G' => self.awaits_copy_data = true,
            // Notices, EmptyQueryResponse, and messages of COPY.
            b'N' | b'S' | b'A' | b'I' | b'H' | b'd' | b'c' => {}
            tag => return Err(Malformed::unexpected(tag)),
        }
        Ok(())
    }
}

/// Rows changed, from a command tag such as `INSERT 0 5`.
#[inline]
fn affected(tag: &[u8]) -> u64 {
    match tag.first_chunk::<6>() {
        Some(b"UPDATE" | b"DELETE" | b"INSERT" | b"MERGE ") => number_at_end(tag),
        _ => 0,
    }
}

/// The number at the end of a command tag; 0 if there is none.
pub(super) fn number_at_end(tag: &[u8]) -> u64 {
    let tag = Fields(tag).text().unwrap_or_default();
    let digits = tag.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    if !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    digits
        .iter()
        .fold(0_u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

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
        if is_of_pooler(&self.state, &message) {
            message.push_str(POOLER);
        }
        Error { doing, message, code: ErrorCode::of_sqlstate(&self.state), kind }
    }
}

/// What an unexpected prepared statement means.
const POOLER: &str = "; this name is one that dbdyno gave on another connection: a pooler in transaction mode, such as \
                      PgBouncer, gives connections the sessions of others. Connect to PostgreSQL itself, or set \
                      `pool_mode = session`";

/// Whether a statement with one of dbdyno's names, which are numbers, exists or is missing without its doing.
fn is_of_pooler(state: &str, message: &str) -> bool {
    let name = message.split('"').nth(1).unwrap_or_default();
    // duplicate_prepared_statement, invalid_sql_statement_name
    matches!(state, "42P05" | "26000")
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// OIDs of types that are not handled as text, from PostgreSQL's `pg_type.dat`.
pub(super) mod oid {
    pub(crate) const INT8: u32 = 20;
    pub(crate) const INT2: u32 = 21;
    pub(crate) const INT4: u32 = 23;
    pub(crate) const BPCHAR: u32 = 1042;
}

/// How values of a column are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// Binary integer of two, four or eight bytes.
    Int,
    /// Integer as decimal digits.
    Digits,
    /// `char(n)`, which the server pads with spaces. The padding is ignored, because other systems
    /// remove it before they send the value.
    Padded,
    /// Text, or the text form of any other type.
    Text,
}

impl ColumnType {
    pub(super) fn of(kind: u32, mode: StatementMode) -> Self {
        match (kind, mode) {
            (oid::INT2 | oid::INT4 | oid::INT8, StatementMode::Prepared) => Self::Int,
            (oid::INT2 | oid::INT4 | oid::INT8, StatementMode::Text) => Self::Digits,
            (oid::BPCHAR, _) => Self::Padded,
            _ => Self::Text,
        }
    }

    /// The value's contribution to the digest; `None` if it does not have this type.
    #[inline(always)]
    fn digest(self, value: &[u8]) -> Option<u64> {
        match self {
            Self::Text => Some(text_digest(value)),
            Self::Int => match value.len() {
                4 => value.first_chunk().map(|bytes| i32::from_be_bytes(*bytes) as u64),
                8 => value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)),
                2 => value.first_chunk().map(|bytes| i16::from_be_bytes(*bytes) as u64),
                _ => None,
            },
            Self::Digits => digits(value),
            Self::Padded => Some(text_digest(without_padding(value))),
        }
    }
}

/// Not inlined, to keep registers free for the loop over values.
#[inline(never)]
fn digits(value: &[u8]) -> Option<u64> {
    let value: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(value as u64)
}

#[inline(always)]
fn without_padding(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &value[..end]
}

/// Calls `each` with the type of each column of a RowDescription.
pub(super) fn each_column(body: &[u8], mut each: impl FnMut(u32)) -> Result<(), Malformed> {
    let mut fields = Fields(body);
    for _ in 0..fields.count()? {
        fields.text()?;
        // Table OID and column number.
        fields.bytes(4 + 2)?;
        each(fields.number()?);
        // Size, modifier, format.
        fields.bytes(2 + 4 + 2)?;
    }
    Ok(())
}

/// Replaces `columns` with those of a RowDescription in text mode.
pub(super) fn read_columns(body: &[u8], columns: &mut Vec<ColumnType>) -> Result<(), Malformed> {
    columns.clear();
    each_column(body, |kind| columns.push(ColumnType::of(kind, StatementMode::Text)))
}

/// A DataRow's contribution to the digest; `None` if it does not match the columns.
#[inline(always)]
pub(super) fn row_digest(body: &[u8], columns: &[ColumnType]) -> Option<u64> {
    let (count, mut rest) = body.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != columns.len() {
        return None;
    }
    let mut sum = 0_u64;
    for column_type in columns {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        let length = u32::from_be_bytes(*length);
        if length == NULL {
            continue;
        }
        let (value, behind) = rest.split_at_checked(length as usize)?;
        rest = behind;
        sum = sum.wrapping_add(column_type.digest(value)?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::check_cases;
    use proptest::prelude::*;

    use super::*;
    use crate::net::{ChunkedSource, ReadBuffer};

    /// Encodes a message, independently of the code under test.
    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn whole(bytes: &[u8], mut columns: Vec<ColumnType>) -> Result<Reply, Malformed> {
        let mut reply = Reply::default();
        assert_eq!(reply.advance(bytes, &mut columns)?, bytes.len());
        Ok(reply)
    }

    #[derive(Clone, Debug)]
    enum Value {
        Null,
        Int(i64, usize),
        Text(Vec<u8>),
    }

    impl Value {
        fn bytes(&self) -> Option<Vec<u8>> {
            match self {
                Self::Null => None,
                Self::Int(value, width) => Some(value.to_be_bytes()[8 - width..].to_vec()),
                Self::Text(text) => Some(text.clone()),
            }
        }

        /// The definition of [`Answer::digest`], literally.
        fn digest(&self) -> u64 {
            match self {
                Self::Null => 0,
                Self::Int(value, _) => *value as u64,
                Self::Text(text) if text.len() >= 8 => {
                    let head = (0..8).map(|n| u64::from(text[n]) << (8 * n)).sum::<u64>();
                    head.wrapping_add(text.len() as u64)
                }
                Self::Text(text) => {
                    let head = text.iter().fold(0, |sum, byte| sum * 256 + u64::from(*byte));
                    head.wrapping_add(text.len() as u64)
                }
            }
        }
    }

    fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
        let some = match column_type {
            ColumnType::Int => prop_oneof![
                any::<i16>().prop_map(|value| Value::Int(value.into(), 2)),
                any::<i32>().prop_map(|value| Value::Int(value.into(), 4)),
                any::<i64>().prop_map(|value| Value::Int(value, 8)),
            ]
            .boxed(),
            _ => prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Text).boxed(),
        };
        prop_oneof![1 => Just(Value::Null), 5 => some].boxed()
    }

    fn rows() -> impl Strategy<Value = (Vec<ColumnType>, Vec<Vec<Value>>)> {
        prop::collection::vec(prop_oneof![Just(ColumnType::Int), Just(ColumnType::Text)], 1..5)
            .prop_flat_map(|column_types| {
                let row: Vec<_> = column_types.iter().copied().map(value).collect();
                (Just(column_types), prop::collection::vec(row, 0..30))
            })
    }

    proptest! {
        #[test]
        fn digest_does_not_depend_on_how_bytes_are_split(
            (column_types, rows) in rows(),
            cuts in prop::collection::vec(1_usize..50, 1..10),
            notice_before in 0_usize..30,
        ) {
            let mut bytes = message(b'2', b"");
            for (number, row) in rows.iter().enumerate() {
                if number == notice_before {
                    bytes.extend(message(b'N', b"VNOTICE\0Mhear\0\0"));
                    bytes.extend(message(b'S', b"a\0b\0"));
                    bytes.extend(message(b'A', b"\0\0\0\x01a\0b\0"));
                }
                let mut body = (row.len() as u16).to_be_bytes().to_vec();
                for value in row {
                    let value = value.bytes();
                    let length = value.as_ref().map_or(-1, |value| value.len() as i32);
                    body.extend(length.to_be_bytes());
                    body.extend(value.unwrap_or_default());
                }
                bytes.extend(message(b'D', &body));
            }
            bytes.extend(message(b'C', format!("SELECT {}\0", rows.len()).as_bytes()));
            bytes.extend(message(b'Z', b"I"));
            let next_reply = message(b'2', b"");
            bytes.extend(&next_reply);

            let mut source = ChunkedSource::split(&bytes, &cuts);
            let mut buffer = ReadBuffer::new();
            let mut reply = Reply::default();
            let mut columns = column_types;
            while reply.end.is_none() {
                buffer.fill(&mut source).unwrap();
                let used = reply.advance(buffer.unread(), &mut columns).unwrap();
                buffer.consume(used);
            }
            let digest = rows.iter().flatten().fold(0_u64, |sum, value| sum.wrapping_add(value.digest()));
            prop_assert_eq!(reply.answer, Answer { rows: rows.len() as u64, affected: 0, digest });
            prop_assert_eq!(reply.end, Some(Transaction::Idle));
            prop_assert!(reply.error.is_none());
            while buffer.try_fill(&mut source).unwrap() {}
            prop_assert_eq!(buffer.unread(), next_reply);
        }
    }

    #[test]
    fn arbitrary_bytes_are_processed_or_rejected() {
        let tag = prop::sample::select(b"DTCEZ2NGx".to_vec());
        let body = prop::collection::vec(any::<u8>(), 0..60);
        check_cases(&(tag, body, 0_usize..3), 256, |(tag, body, columns)| {
            let mut columns = vec![ColumnType::Text; columns];
            let bytes = message(tag, &body);
            if let Ok(used) = Reply::default().advance(&bytes, &mut columns) {
                prop_assert_eq!(used, bytes.len());
            }
            Ok(())
        });
    }

    #[test]
    fn changed_rows_are_counted_for_statements_without_rows() {
        for (tag, affected) in [
            ("INSERT 0 5", 5),
            ("UPDATE 0", 0),
            ("UPDATE 12345678901", 12_345_678_901),
            ("DELETE 1", 1),
            ("MERGE 3", 3),
            ("SELECT 8", 0),
            ("BEGIN", 0),
            ("CREATE TABLE", 0),
        ] {
            let bytes =
                [message(b'C', format!("{tag}\0").as_bytes()), message(b'Z', b"T")].concat();
            let reply = whole(&bytes, Vec::new()).unwrap();
            assert_eq!(reply.answer.affected, affected, "{tag}");
            assert_eq!(reply.end, Some(Transaction::Open));
            assert_eq!(whole(&bytes, vec![ColumnType::Int]).unwrap().answer.affected, 0);
        }
        // One text: BEGIN; UPDATE …; DELETE …; COMMIT.
        let tags = ["BEGIN\0", "UPDATE 3\0", "DELETE 2\0", "COMMIT\0"];
        let tags = tags.map(|tag| message(b'C', tag.as_bytes()));
        let bytes = [tags.concat(), message(b'Z', b"I")].concat();
        assert_eq!(whole(&bytes, Vec::new()).unwrap().answer.affected, 5);
    }

    #[test]
    fn first_error_is_kept_and_the_reply_is_read_to_its_end() {
        let bytes = [
            message(b'E', b"C40P01\0Mfirst\0\0"),
            message(b'E', b"C40001\0Msecond\0\0"),
            message(b'Z', b"E"),
        ]
        .concat();
        let reply = whole(&bytes, Vec::new()).unwrap();
        assert_eq!(reply.error.unwrap().state, "40P01");
        assert_eq!(reply.end, Some(Transaction::Failed));
    }

    #[test]
    fn unexpected_messages_are_rejected() {
        for bytes in [message(b'R', b"\0\0\0\0"), message(b'Z', b"?"), message(b'D', b"\0\x01")] {
            whole(&bytes, Vec::new()).unwrap_err();
        }
    }

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

    fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            match value {
                None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
                Some(value) => {
                    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
                    body.extend_from_slice(value);
                }
            }
        }
        body
    }

    #[test]
    fn integers_are_sign_extended_in_every_format() {
        for (value, expected) in [
            (&(-7_i16).to_be_bytes()[..], -7),
            (&(-70_000_i32).to_be_bytes(), -70_000),
            (&(-7_000_000_000_i64).to_be_bytes(), -7_000_000_000_i64),
        ] {
            assert_eq!(row_digest(&row(&[Some(value)]), &[ColumnType::Int]), Some(expected as u64));
            let digits = expected.to_string();
            let body = row(&[Some(digits.as_bytes())]);
            assert_eq!(row_digest(&body, &[ColumnType::Digits]), Some(expected as u64));
        }
    }

    #[test]
    fn padding_is_ignored() {
        let padded = row(&[Some(b" ab c  ")]);
        let bare = row(&[Some(b" ab c")]);
        let text = row_digest(&bare, &[ColumnType::Text]);
        assert_eq!(row_digest(&padded, &[ColumnType::Padded]), text);
        assert_eq!(row_digest(&bare, &[ColumnType::Padded]), text);
        assert_ne!(row_digest(&padded, &[ColumnType::Text]), text);
        assert_eq!(row_digest(&row(&[Some(b"  ")]), &[ColumnType::Padded]), Some(text_digest(b"")));
    }

    #[test]
    fn nulls_are_ignored() {
        let body = row(&[None, Some(b"abc"), None, Some(&[0, 5])]);
        let column_types = [ColumnType::Int, ColumnType::Text, ColumnType::Digits, ColumnType::Int];
        assert_eq!(row_digest(&body, &column_types), Some(text_digest(b"abc").wrapping_add(5)));
    }

    #[test]
    fn invalid_rows_are_none() {
        for (body, column_types) in [
            (&row(&[Some(b"abc")])[..], &[ColumnType::Int][..]),
            (&row(&[Some(b"abc")]), &[ColumnType::Digits]),
            (&row(&[None]), &[ColumnType::Text; 2]),
            (b"\0\x01\0\0\0\x05abcd", &[ColumnType::Text]),
            (b"\0\x01\xff\xff\xff\xfe", &[ColumnType::Text]),
            (b"", &[]),
        ] {
            assert_eq!(row_digest(body, column_types), None, "{body:?}");
        }
    }
}
