use super::capabilities::{Capabilities, DEPRECATE_EOF};
use super::columns::Reading;
use super::failure::{FAILED, Failure, ServerFailure};
use super::wire::{Cursor, LONGEST, Malformed, frame};
use crate::Answer;

/// The first byte of a packet that says that all went well.
pub(super) const OK: u8 = 0x00;
const END: u8 = 0xfe;
/// The server wants to be sent a file. It was never told that we would.
const WANTS_FILE: u8 = 0xfb;
/// A packet that ends rows in the older form is at most this long.
const OLD_END: usize = 5;

const IN_TRANSACTION: u16 = 1;
const MORE_RESULTS: u16 = 1 << 3;
const NO_BACKSLASH_ESCAPES: u16 = 1 << 9;

/// Where we are in the reply to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request is under way.
    Idle,
    /// What comes next tells what follows.
    Start,
    /// This many definitions of columns are to come.
    Columns(usize),
    /// Between columns and rows, in the older form.
    BeforeRows,
    Rows,
    /// What came is not the protocol.
    Lost,
}

/// Reads replies, however their bytes are cut by the network.
pub(super) struct Reply {
    phase: Phase,
    answer: Answer,
    /// What the server last said of the session.
    status: u16,
    ends_with_ok: bool,
    tells_of_columns: bool,
    /// A payload of more than one packet.
    joined: Vec<u8>,
}

impl Reply {
    /// For a connection with these capabilities; `status` is what the server said of the session
    /// when it let us in.
    pub(super) fn new(capabilities: Capabilities, status: u16) -> Self {
        Self {
            phase: Phase::Idle,
            answer: Answer::default(),
            status,
            ends_with_ok: capabilities.has(DEPRECATE_EOF),
            tells_of_columns: capabilities.caches_metadata(),
            joined: Vec::new(),
        }
    }

    /// A request goes out.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.phase = Phase::Start;
        self.answer = Answer::default();
    }

    /// Whether a request can be sent: none is under way, and the connection is sound.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// The connection cannot be used any more.
    pub(super) fn give_up(&mut self) {
        self.phase = Phase::Lost;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Whether a transaction was open after the last answer.
    pub(super) fn in_transaction(&self) -> bool {
        self.status & IN_TRANSACTION != 0
    }

    /// Whether a backslash in a string literal is a character like others.
    pub(super) fn plain_backslashes(&self) -> bool {
        self.status & NO_BACKSLASH_ESCAPES != 0
    }

    /// Goes on with `bytes`. Returns how many of them are done with, and the answer where it is
    /// complete. `columns` are those of the statement as far as they are known, and become those
    /// that the server tells of. `row` is called for each row and returns its part of the digest.
    #[inline]
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        columns: &mut Vec<Reading>,
        mut row: impl FnMut(&[Reading], &[u8]) -> Result<u64, Malformed>,
    ) -> (usize, Result<Option<Answer>, Failure>) {
        let mut taken = 0;
        // Apart, because a payload may be borrowed from it.
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
                Failure::Server(_) => Phase::Idle,
                Failure::Malformed => Phase::Lost,
            };
        }
        (taken, outcome)
    }

    /// Takes any packet that is not a row.
    #[inline]
    fn step(&mut self, payload: &[u8], columns: &mut Vec<Reading>) -> Result<(), Failure> {
        let first = *payload.first().ok_or(Malformed)?;
        if first == FAILED {
            return Err(Failure::Server(ServerFailure::of_packet(payload)?));
        }
        match self.phase {
            Phase::Start if first == OK => self.end_with_ok(payload)?,
            Phase::Start if first == WANTS_FILE => return Err(Failure::Malformed),
            Phase::Start => {
                let mut cursor = Cursor::new(payload);
                let count = cursor.length()?;
                if count == 0 {
                    return Err(Failure::Malformed);
                }
                if self.tells_of_columns && cursor.u8()? == 0 {
                    // The server's word that they are as before.
                    if columns.len() != count {
                        return Err(Failure::Malformed);
                    }
                    self.after_columns();
                } else {
                    columns.clear();
                    self.phase = Phase::Columns(count);
                }
            }
            Phase::Columns(left) => {
                columns.push(Reading::of_definition(payload)?);
                self.phase = Phase::Columns(left - 1);
                if left == 1 {
                    self.after_columns();
                }
            }
            Phase::BeforeRows if first == END => self.phase = Phase::Rows,
            Phase::Rows if self.ends_with_ok => self.end_with_ok(payload)?,
            Phase::Rows => {
                let mut cursor = Cursor::new(payload);
                cursor.bytes(3)?;
                self.status = cursor.u16()?;
                self.end();
            }
            Phase::BeforeRows | Phase::Idle | Phase::Lost => return Err(Failure::Malformed),
        }
        Ok(())
    }

    fn after_columns(&mut self) {
        self.phase = if self.ends_with_ok { Phase::Rows } else { Phase::BeforeRows };
    }

    #[inline]
    fn end_with_ok(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let ok = AllWell::of_packet(payload)?;
        self.answer.affected = self.answer.affected.wrapping_add(ok.affected);
        self.status = ok.status;
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let more = self.status & MORE_RESULTS != 0;
        self.phase = if more { Phase::Start } else { Phase::Idle };
    }
}

/// What the server says when all went well.
pub(super) struct AllWell {
    affected: u64,
    /// Of the session.
    pub(super) status: u16,
}

impl AllWell {
    #[inline]
    pub(super) fn of_packet(packet: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(packet);
        cursor.u8()?;
        let affected = cursor.length()? as u64;
        // The last automatic key.
        cursor.length()?;
        Ok(Self { affected, status: cursor.u16()? })
    }
}

/// Whether a packet among rows is none: their end, or a failure. A row of texts starts with the
/// length of its first; where that starts like an end, the row is longer than any packet.
#[inline(always)]
fn is_last(payload: &[u8]) -> bool {
    match payload.first() {
        Some(&END) => payload.len() < LONGEST,
        Some(&FAILED) | None => true,
        Some(_) => false,
    }
}

/// Whether a packet is the one between columns and rows, or after parameters, in the older form.
pub(super) fn is_old_end(payload: &[u8]) -> bool {
    payload.first() == Some(&END) && payload.len() <= OLD_END
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::capabilities::CACHE_METADATA;
    use super::super::rows::binary_digest;
    use super::super::wire::put_string;
    use super::*;
    use crate::answer::text_digest;
    use crate::net::{Pieces, ReadBuffer, Source as _};

    const NEWER: Capabilities = Capabilities { basic: DEPRECATE_EOF, extended: CACHE_METADATA };
    const OLDER: Capabilities = Capabilities { basic: 0, extended: 0 };

    /// Writes what a server sends.
    #[derive(Default)]
    struct Script(Vec<u8>);

    impl Script {
        fn packet(mut self, payload: &[u8]) -> Self {
            for chunk in payload.chunks(LONGEST) {
                self.0.extend(&(chunk.len() as u32).to_le_bytes()[..3]);
                self.0.push(0);
                self.0.extend(chunk);
            }
            if payload.len().is_multiple_of(LONGEST) {
                self.0.extend([0; 4]);
            }
            self
        }

        fn definition(self, kind: u8) -> Self {
            let mut payload = Vec::new();
            for name in ["def", "schema", "t", "t", "c", "c"] {
                put_string(&mut payload, name.as_bytes());
            }
            payload.extend([0x0c, 45, 0, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0]);
            self.packet(&payload)
        }

        fn texts(mut self, texts: &[Vec<u8>]) -> Self {
            for text in texts {
                let mut row = vec![0, 0];
                put_string(&mut row, text);
                self = self.packet(&row);
            }
            self
        }

        fn ok(self, first: u8, affected: u8, status: u16) -> Self {
            let [low, high] = status.to_le_bytes();
            self.packet(&[first, affected, 0, low, high, 0, 0])
        }

        fn old_end(self, status: u16) -> Self {
            let [low, high] = status.to_le_bytes();
            self.packet(&[END, 0, 0, low, high])
        }
    }

    /// Feeds a script in pieces.
    fn receive(
        reply: &mut Reply,
        columns: &mut Vec<Reading>,
        script: &Script,
        lengths: &[usize],
    ) -> Result<Answer, Failure> {
        let mut source = Pieces::cut(&script.0, lengths);
        let mut buffer = ReadBuffer::new();
        reply.begin();
        loop {
            buffer.fill(&mut source).expect("the script is long enough");
            let (taken, outcome) = reply.advance(buffer.unread(), columns, binary_digest);
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
        fn rows_are_the_same_however_they_are_cut(
            texts in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..400), 0..60),
            lengths in proptest::collection::vec(1usize..700, 1..20),
            old in any::<bool>(),
        ) {
            let script = if old {
                Script::default().packet(&[1]).definition(0xfd).old_end(2).texts(&texts).old_end(3)
            } else {
                Script::default().packet(&[1, 1]).definition(0xfd).texts(&texts).ok(END, 0, 3)
            };
            let mut reply = Reply::new(if old { OLDER } else { NEWER }, 0);
            let answer = receive(&mut reply, &mut Vec::new(), &script, &lengths).unwrap();
            let digest = texts.iter().fold(0u64, |sum, text| sum.wrapping_add(text_digest(text)));
            prop_assert_eq!(answer, Answer { rows: texts.len() as u64, affected: 0, digest });
            prop_assert!(reply.in_transaction());
        }

        #[test]
        fn noise_ends_in_an_answer_or_a_failure_or_waits(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            old in any::<bool>(),
        ) {
            let mut reply = Reply::new(if old { OLDER } else { NEWER }, 0);
            reply.begin();
            let (taken, outcome) = reply.advance(&noise, &mut Vec::new(), binary_digest);
            prop_assert!(taken <= noise.len());
            prop_assert_eq!(reply.is_idle(), matches!(
                outcome, Ok(Some(_)) | Err(Failure::Server(_))));
        }
    }

    #[test]
    fn columns_known_before_need_not_be_sent_again() {
        let text = vec![b"some text".to_vec()];
        let script = Script::default().packet(&[1, 0]).texts(&text).ok(END, 0, 2);
        let mut columns = vec![Reading::Text];
        let answer = receive(&mut Reply::new(NEWER, 0), &mut columns, &script, &[1000]).unwrap();
        assert_eq!(answer.digest, text_digest(b"some text"));
        let mut reply = Reply::new(NEWER, 0);
        let failed = receive(&mut reply, &mut Vec::new(), &script, &[1000]);
        assert_eq!(failed, Err(Failure::Malformed));
        assert!(reply.is_lost());
    }

    #[test]
    fn columns_that_changed_take_the_place_of_those_known() {
        let script = Script::default()
            .packet(&[1, 1])
            .definition(0x08)
            .packet(&[0, 0, 7, 0, 0, 0, 0, 0, 0, 0])
            .ok(END, 0, 2);
        let mut columns = vec![Reading::Text, Reading::Text];
        let answer = receive(&mut Reply::new(NEWER, 0), &mut columns, &script, &[9]).unwrap();
        assert_eq!((answer.digest, columns), (7, vec![Reading::I64]));
    }

    #[test]
    fn several_results_are_one_answer() {
        let script = Script::default()
            .ok(OK, 2, MORE_RESULTS)
            .packet(&[1, 1])
            .definition(0xfd)
            .texts(&[b"x".to_vec()])
            .ok(END, 0, MORE_RESULTS)
            .ok(OK, 3, 2);
        let answer = receive(&mut Reply::new(NEWER, 0), &mut Vec::new(), &script, &[5, 1]).unwrap();
        assert_eq!(answer, Answer { rows: 1, affected: 5, digest: text_digest(b"x") });
    }

    #[test]
    fn a_failure_in_the_middle_of_rows_ends_the_reply() {
        let script = Script::default()
            .packet(&[1, 1])
            .definition(0xfd)
            .texts(&[b"x".to_vec()])
            .packet(b"\xff\xbd\x04#40001Deadlock");
        let mut reply = Reply::new(NEWER, 0);
        let failure = receive(&mut reply, &mut Vec::new(), &script, &[3]).unwrap_err();
        assert!(matches!(failure, Failure::Server(failure) if failure.code == 1213));
        assert!(reply.is_idle());
    }

    #[test]
    fn a_row_of_several_packets_is_one_row() {
        let long: Vec<u8> = (0..LONGEST + 1000).map(|n| (n % 251) as u8).collect();
        let texts = [b"before".to_vec(), long, b"after".to_vec()];
        let script = Script::default().packet(&[1, 1]).definition(0xfd).texts(&texts).ok(END, 0, 2);
        let answer =
            receive(&mut Reply::new(NEWER, 0), &mut Vec::new(), &script, &[1_000_001]).unwrap();
        let digest = texts.iter().fold(0u64, |sum, text| sum.wrapping_add(text_digest(text)));
        assert_eq!(answer, Answer { rows: 3, affected: 0, digest });
    }
}
