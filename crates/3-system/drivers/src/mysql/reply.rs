//! Parses the reply to a request as it arrives.

use std::collections::VecDeque;

use super::greeting::{Capabilities, DEPRECATE_EOF};
use super::rows::ColumnType;
use super::wire::{Cursor, MAX_PAYLOAD, Malformed, frame};
use crate::error::server_text;
use crate::{Answer, Error, ErrorCode, ErrorKind, ResultShape};

/// First byte of an OK packet.
pub(super) const OK: u8 = 0x00;
const EOF: u8 = 0xfe;
/// The server requests a file of the client (LOAD DATA LOCAL), which the client has not offered.
const LOCAL_INFILE: u8 = 0xfb;
/// Maximum length of an EOF packet.
const MAX_EOF_LENGTH: usize = 5;

/// Maximum number of columns. The response to a request to prepare has 16 bits for it.
const MAX_COLUMNS: usize = 0xffff;

const IN_TRANSACTION: u16 = 1;
const MORE_RESULTS: u16 = 1 << 3;
const NO_BACKSLASH_ESCAPES: u16 = 1 << 9;

/// Position in the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request is in progress.
    Idle,
    /// Before the first packet.
    Start,
    /// This many column definitions follow.
    Columns(usize),
    /// Before the EOF packet between columns and rows.
    BeforeRows,
    Rows,
    /// The connection cannot be used any more.
    Lost,
}

/// Parses replies, however the network splits their bytes.
pub(super) struct Reply {
    phase: Phase,
    answer: Answer,
    /// The current result, and those before it.
    columns: u16,
    first: Option<ResultShape>,
    others: VecDeque<ResultShape>,
    /// The session's last status flags.
    status: u16,
    deprecate_eof: bool,
    caches_metadata: bool,
    /// A payload of several packets.
    joined: Vec<u8>,
}

impl Reply {
    /// `status` is the session's status after the login.
    pub(super) fn new(capabilities: Capabilities, status: u16) -> Self {
        Self {
            phase: Phase::Idle,
            answer: Answer::default(),
            columns: 0,
            first: None,
            others: VecDeque::new(),
            status,
            deprecate_eof: capabilities.has(DEPRECATE_EOF),
            caches_metadata: capabilities.caches_metadata(),
            joined: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn begin(&mut self) {
        self.phase = Phase::Start;
        self.answer = Answer::default();
        (self.columns, self.first) = (0, None);
        self.others.clear();
    }

    /// The first result of the last answer.
    pub(super) fn first_result(&self) -> ResultShape {
        self.first.unwrap_or_default()
    }

    pub(super) fn has_more_results(&self) -> bool {
        !self.others.is_empty()
    }

    /// Removes the result after the first one and those that were removed before.
    pub(super) fn next_result(&mut self) -> Option<ResultShape> {
        self.others.pop_front()
    }

    /// Whether a request can be sent.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether an answer is expected.
    #[inline]
    pub(super) fn is_in_progress(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Lost)
    }

    pub(super) fn mark_lost(&mut self) {
        self.phase = Phase::Lost;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Whether a transaction is open after the last answer.
    pub(super) fn in_transaction(&self) -> bool {
        self.status & IN_TRANSACTION != 0
    }

    /// Whether backslashes in string literals are ordinary characters.
    pub(super) fn plain_backslashes(&self) -> bool {
        self.status & NO_BACKSLASH_ESCAPES != 0
    }

    /// Processes `bytes`. Returns the number of consumed bytes, and the answer if it is complete.
    /// `columns` are the known columns of the statement; they are updated if the server sends others.
    /// `row` is called for each row and returns its contribution to the digest.
    #[inline]
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        columns: &mut Vec<ColumnType>,
        mut row: impl FnMut(&[ColumnType], &[u8]) -> Result<u64, Malformed>,
    ) -> (usize, Result<Option<Answer>, ReplyError>) {
        let mut taken = 0;
        // Taken out, because a payload may borrow from it.
        let mut joined = std::mem::take(&mut self.joined);
        let outcome = loop {
            let Some(framed) = frame(&bytes[taken..], &mut joined) else {
                break Ok(None);
            };
            taken += framed.taken;
            let payload = framed.payload;
            if self.phase == Phase::Rows && !is_last(payload) {
                match row(columns, payload) {
                    Ok(digest) => {
                        self.answer.rows += 1;
                        self.answer.digest = self.answer.digest.wrapping_add(digest);
                    }
                    Err(malformed) => break Err(malformed.into()),
                }
                continue;
            }
            match self.step(payload, columns) {
                Ok(()) if self.phase == Phase::Idle => break Ok(Some(self.answer)),
                Ok(()) => {}
                Err(failure) => break Err(failure),
            }
        };
        self.joined = joined;
        if let Err(failure) = &outcome {
            self.phase = match failure {
                ReplyError::Server(_) => Phase::Idle,
                ReplyError::LocalFile(_) | ReplyError::Malformed => Phase::Lost,
            };
        }
        (taken, outcome)
    }

    /// Processes a packet that is not a row.
    #[inline]
    fn step(&mut self, payload: &[u8], columns: &mut Vec<ColumnType>) -> Result<(), ReplyError> {
        let first = *payload.first().ok_or(Malformed)?;
        if first == ERR {
            return Err(ReplyError::Server(ErrPacket::parse(payload)?));
        }
        match self.phase {
            Phase::Start if first == OK => self.finish_with_ok(payload)?,
            Phase::Start if first == LOCAL_INFILE => {
                return Err(ReplyError::LocalFile(server_text(&payload[1..])));
            }
            Phase::Start => {
                let mut cursor = Cursor::new(payload);
                let count = cursor.length()?;
                if !(1..=MAX_COLUMNS).contains(&count) {
                    return Err(ReplyError::Malformed);
                }
                self.columns = count as u16;
                if self.caches_metadata && cursor.u8()? == 0 {
                    // Zero: the columns are unchanged.
                    if columns.len() != count {
                        return Err(ReplyError::Malformed);
                    }
                    self.after_columns();
                } else {
                    columns.clear();
                    self.phase = Phase::Columns(count);
                }
            }
            Phase::Columns(left) => {
                columns.push(ColumnType::from_definition(payload)?);
                self.phase = Phase::Columns(left - 1);
                if left == 1 {
                    self.after_columns();
                }
            }
            Phase::BeforeRows if first == EOF => self.phase = Phase::Rows,
            Phase::Rows if self.deprecate_eof => self.finish_with_ok(payload)?,
            Phase::Rows => {
                let mut cursor = Cursor::new(payload);
                cursor.bytes(3)?;
                self.status = cursor.u16()?;
                self.end();
            }
            Phase::BeforeRows | Phase::Idle | Phase::Lost => return Err(ReplyError::Malformed),
        }
        Ok(())
    }

    fn after_columns(&mut self) {
        self.phase = if self.deprecate_eof { Phase::Rows } else { Phase::BeforeRows };
    }

    #[inline]
    fn finish_with_ok(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let ok = OkPacket::parse(payload)?;
        self.answer.affected = self.answer.affected.wrapping_add(ok.affected);
        self.status = ok.status;
        self.end();
        Ok(())
    }

    #[inline]
    fn end(&mut self) {
        let more = self.status & MORE_RESULTS != 0;
        self.phase = if more { Phase::Start } else { Phase::Idle };
        match self.first {
            None => {
                self.first = Some(ResultShape { columns: self.columns, rows: self.answer.rows });
            }
            Some(first) => self.add_result(first),
        }
        self.columns = 0;
    }

    #[cold]
    fn add_result(&mut self, first: ResultShape) {
        let before = first.rows + self.others.iter().map(|one| one.rows).sum::<u64>();
        let rows = self.answer.rows - before;
        self.others.push_back(ResultShape { columns: self.columns, rows });
    }
}

pub(super) struct OkPacket {
    affected: u64,
    pub(super) status: u16,
}

impl OkPacket {
    #[inline]
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(packet);
        cursor.u8()?;
        let affected = cursor.length()? as u64;
        // The last insert id.
        cursor.length()?;
        Ok(Self { affected, status: cursor.u16()? })
    }
}

/// Whether a packet among rows ends them. A text row starts with the length of its first value; if that
/// is 0xfe, the row is longer than any packet.
#[inline(always)]
fn is_last(payload: &[u8]) -> bool {
    match payload.first() {
        Some(&EOF) => payload.len() < MAX_PAYLOAD,
        Some(&ERR) | None => true,
        Some(_) => false,
    }
}

/// Whether this is an EOF packet, as after columns and parameters in the older protocol.
pub(super) fn is_eof_packet(payload: &[u8]) -> bool {
    payload.first() == Some(&EOF) && payload.len() <= MAX_EOF_LENGTH
}

/// First byte of an ERR packet.
pub(super) const ERR: u8 = 0xff;

/// "This command is not supported in the prepared statement protocol yet".
pub(super) const NOT_PREPARABLE: u16 = 1295;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyError {
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
    pub(super) fn error(mut self, doing: String, in_transaction: bool) -> Error {
        if self.code == TOO_MANY_STATEMENTS {
            self.message.push_str(
                "; raise it on the server, or use fewer clients or tables, or `statements = \"text\"`",
            );
        }
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

/// The limit `max_prepared_stmt_count` is reached.
const TOO_MANY_STATEMENTS: u16 = 1461;

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
    use dbdyno_fuzz::check_cases;
    use proptest::prelude::*;

    use super::super::greeting::CACHE_METADATA;
    use super::super::rows::binary_row_digest;
    use super::super::wire::put_lenenc_string;
    use super::*;
    use crate::net::{ChunkedSource, ReadBuffer, Source as _};
    use crate::text_digest;

    const NEWER: Capabilities = Capabilities { basic: DEPRECATE_EOF, extended: CACHE_METADATA };
    const OLDER: Capabilities = Capabilities { basic: 0, extended: 0 };

    /// Builds the packets of a server.
    #[derive(Default)]
    struct Script(Vec<u8>);

    impl Script {
        fn packet(mut self, payload: &[u8]) -> Self {
            for chunk in payload.chunks(MAX_PAYLOAD) {
                self.0.extend(&(chunk.len() as u32).to_le_bytes()[..3]);
                self.0.push(0);
                self.0.extend(chunk);
            }
            if payload.len().is_multiple_of(MAX_PAYLOAD) {
                self.0.extend([0; 4]);
            }
            self
        }

        fn definition(self, kind: u8) -> Self {
            let mut payload = Vec::new();
            for name in ["def", "schema", "t", "t", "c", "c"] {
                put_lenenc_string(&mut payload, name.as_bytes());
            }
            payload.extend([0x0c, 45, 0, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0]);
            self.packet(&payload)
        }

        fn texts(mut self, texts: &[Vec<u8>]) -> Self {
            for text in texts {
                let mut row = vec![0, 0];
                put_lenenc_string(&mut row, text);
                self = self.packet(&row);
            }
            self
        }

        fn ok(self, first: u8, affected: u8, status: u16) -> Self {
            let [low, high] = status.to_le_bytes();
            self.packet(&[first, affected, 0, low, high, 0, 0])
        }

        fn eof_packet(self, status: u16) -> Self {
            let [low, high] = status.to_le_bytes();
            self.packet(&[EOF, 0, 0, low, high])
        }
    }

    /// Feeds a script in chunks.
    fn receive(
        reply: &mut Reply,
        columns: &mut Vec<ColumnType>,
        script: &Script,
        lengths: &[usize],
    ) -> Result<Answer, ReplyError> {
        let mut source = ChunkedSource::split(&script.0, lengths);
        let mut buffer = ReadBuffer::new();
        reply.begin();
        loop {
            buffer.fill(&mut source).expect("the script is long enough");
            let (taken, outcome) = reply.advance(buffer.unread(), columns, binary_row_digest);
            buffer.consume(taken);
            if let Some(answer) = outcome? {
                assert!(buffer.unread().is_empty());
                assert_eq!(source.receive(&mut [0], false).unwrap(), None);
                return Ok(answer);
            }
        }
    }

    proptest! {
        #[test]
        fn digest_does_not_depend_on_how_bytes_are_split(
            texts in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..400), 0..60),
            lengths in proptest::collection::vec(1usize..700, 1..20),
            old in any::<bool>(),
        ) {
            let script = if old {
                Script::default().packet(&[1]).definition(0xfd).eof_packet(2).texts(&texts).eof_packet(3)
            } else {
                Script::default().packet(&[1, 1]).definition(0xfd).texts(&texts).ok(EOF, 0, 3)
            };
            let mut reply = Reply::new(if old { OLDER } else { NEWER }, 0);
            let answer = receive(&mut reply, &mut Vec::new(), &script, &lengths).unwrap();
            let digest = texts.iter().fold(0u64, |sum, text| sum.wrapping_add(text_digest(text)));
            prop_assert_eq!(answer, Answer { rows: texts.len() as u64, affected: 0, digest });
            prop_assert!(reply.in_transaction());
        }
    }

    #[test]
    fn arbitrary_bytes_end_in_answer_error_or_wait() {
        let noise = proptest::collection::vec(any::<u8>(), 0..200);
        check_cases(&(noise, any::<bool>()), 256, |(noise, old)| {
            let mut reply = Reply::new(if old { OLDER } else { NEWER }, 0);
            reply.begin();
            let (taken, outcome) = reply.advance(&noise, &mut Vec::new(), binary_row_digest);
            prop_assert!(taken <= noise.len());
            let is_over = matches!(outcome, Ok(Some(_)) | Err(ReplyError::Server(_)));
            prop_assert_eq!(reply.is_idle(), is_over);
            Ok(())
        });
    }

    #[test]
    fn known_columns_need_not_be_sent_again() {
        let text = vec![b"some text".to_vec()];
        let script = Script::default().packet(&[1, 0]).texts(&text).ok(EOF, 0, 2);
        let mut columns = vec![ColumnType::Text];
        let answer = receive(&mut Reply::new(NEWER, 0), &mut columns, &script, &[1000]).unwrap();
        assert_eq!(answer.digest, text_digest(b"some text"));
        let mut reply = Reply::new(NEWER, 0);
        let failed = receive(&mut reply, &mut Vec::new(), &script, &[1000]);
        assert_eq!(failed, Err(ReplyError::Malformed));
        assert!(reply.is_lost());
    }

    #[test]
    fn changed_columns_replace_known_ones() {
        let script = Script::default()
            .packet(&[1, 1])
            .definition(0x08)
            .packet(&[0, 0, 7, 0, 0, 0, 0, 0, 0, 0])
            .ok(EOF, 0, 2);
        let mut columns = vec![ColumnType::Text, ColumnType::Text];
        let answer = receive(&mut Reply::new(NEWER, 0), &mut columns, &script, &[9]).unwrap();
        assert_eq!((answer.digest, columns), (7, vec![ColumnType::I64]));
    }

    #[test]
    fn several_results_are_one_answer() {
        let script = Script::default()
            .ok(OK, 2, MORE_RESULTS)
            .packet(&[1, 1])
            .definition(0xfd)
            .texts(&[b"x".to_vec()])
            .ok(EOF, 0, MORE_RESULTS)
            .ok(OK, 3, 2);
        let answer = receive(&mut Reply::new(NEWER, 0), &mut Vec::new(), &script, &[5, 1]).unwrap();
        assert_eq!(answer, Answer { rows: 1, affected: 5, digest: text_digest(b"x") });
    }

    #[test]
    fn error_among_rows_ends_the_reply() {
        let script = Script::default()
            .packet(&[1, 1])
            .definition(0xfd)
            .texts(&[b"x".to_vec()])
            .packet(b"\xff\xbd\x04#40001Deadlock");
        let mut reply = Reply::new(NEWER, 0);
        let failure = receive(&mut reply, &mut Vec::new(), &script, &[3]).unwrap_err();
        assert!(matches!(failure, ReplyError::Server(failure) if failure.code == 1213));
        assert!(reply.is_idle());
    }

    #[test]
    fn row_of_several_packets_is_one_row() {
        let long: Vec<u8> = (0..MAX_PAYLOAD + 1000).map(|n| (n % 251) as u8).collect();
        let texts = [b"before".to_vec(), long, b"after".to_vec()];
        let script = Script::default().packet(&[1, 1]).definition(0xfd).texts(&texts).ok(EOF, 0, 2);
        let answer =
            receive(&mut Reply::new(NEWER, 0), &mut Vec::new(), &script, &[1_000_001]).unwrap();
        let digest = texts.iter().fold(0u64, |sum, text| sum.wrapping_add(text_digest(text)));
        assert_eq!(answer, Answer { rows: 3, affected: 0, digest });
    }

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
