//! Response times of a script's statements, outside of the timed part of slices.

use std::collections::HashMap;

use dbdyno_machine::clock;
use dbdyno_types::StatementTimes;
use dbdyno_units::Nanos;
use dbdyno_workloads::normalized::normalized;
use dbdyno_workloads::setup::Dialect;

use crate::protocol::Quota;

/// Limit of timed statements per slice, and of the bytes of their texts.
const MOST: usize = 50_000;
const MOST_BYTES: usize = 8 << 20;

/// Longer texts are cut: a statement that inserts many rows shows what it is at its start.
const LONGEST: usize = 4096;

/// The same for normalized texts, in characters.
const LONGEST_NORMALIZED: usize = 500;

/// Limit of different statements; all further ones are pooled.
const MOST_STATEMENTS: usize = 200;
const POOLED: &str = "other";

/// Without a lead-in, statements are timed in the timed part if an event has at most this many. Such an event takes
/// about 10 ms or more, and noting a statement 0.1 µs: 0.05%.
const FEW: u64 = 50;

/// The statements of one client in one slice, with their response times. Texts are only copied; they are compared
/// once the slice has ended.
#[derive(Default)]
pub(crate) struct StatementLog {
    /// Whether statements are timed.
    is_on: bool,
    /// The events and the time after which they are.
    start: (u64, Nanos),
    texts: Vec<u8>,
    timed: Vec<Timed>,
    /// When the statement in progress was sent.
    sent: Option<Nanos>,
    /// Statements per event in the last slice.
    per_event: Option<u64>,
}

struct Timed {
    /// The end of its text in [`StatementLog::texts`].
    end: usize,
    time: Nanos,
}

impl StatementLog {
    /// Begins a slice with this lead-in. Its first half, in which caches refill, is not timed.
    pub fn start(&mut self, lead_in: Option<Quota>) {
        self.texts.clear();
        self.timed.clear();
        self.sent = None;
        let half = |nanos: Nanos| Nanos::from_nanos(nanos.as_nanos() / 2);
        self.start = match lead_in {
            Some(Quota::Events(events)) => (events / 2, Nanos::ZERO),
            Some(Quota::Time(time)) => (0, clock::monotonic() + half(time)),
            None => (0, Nanos::ZERO),
        };
        self.is_on = lead_in.is_some() || self.per_event.is_some_and(|count| count <= FEW);
    }

    /// Ends the lead-in.
    pub fn end_lead_in(&mut self, lead_in: Option<Quota>) {
        self.is_on &= lead_in.is_none();
    }

    /// Whether the next statement is to be timed, after this many events.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes a statement that is sent next, after this many events.
    #[cold]
    pub fn begin(&mut self, sql: &[u8], events: u64) {
        let end = self.timed.last().map_or(0, |one| one.end);
        self.texts.truncate(end);
        self.sent = None;
        let is_full = self.timed.len() >= MOST || self.texts.len() >= MOST_BYTES;
        if is_full || events < self.start.0 || clock::monotonic() < self.start.1 {
            return;
        }
        self.texts.extend_from_slice(&sql[..sql.len().min(LONGEST)]);
        self.sent = Some(clock::monotonic());
    }

    /// Notes its answer.
    #[cold]
    pub fn end(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.timed.push(Timed { end: self.texts.len(), time: clock::monotonic() - sent });
        }
    }

    /// The times of a slice that has ended, with these numbers of events and statements.
    pub fn take(
        &mut self,
        (events, statements): (u64, u64),
        dialect: Dialect,
    ) -> Vec<StatementTimes> {
        self.is_on = false;
        self.per_event = statements.checked_div(events);
        let mut found: Vec<StatementTimes> = Vec::new();
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        let mut start = 0;
        for Timed { end, time } in &self.timed {
            let sql = &self.texts[start..*end];
            start = *end;
            let number = *known.entry(sql).or_insert_with(|| number_of(sql, dialect, &mut found));
            found[number].executions += 1;
            found[number].total += *time;
        }
        found
    }
}

/// The number of a statement, which is added if it is new.
fn number_of(sql: &[u8], dialect: Dialect, found: &mut Vec<StatementTimes>) -> usize {
    let mut text = normalized(&String::from_utf8_lossy(sql), dialect);
    if let Some((end, _)) = text.char_indices().nth(LONGEST_NORMALIZED) {
        text.truncate(end);
        text.push('…');
    }
    if found.len() >= MOST_STATEMENTS && !found.iter().any(|one| one.text == text) {
        text = POOLED.to_owned();
    }
    found.iter().position(|one| one.text == text).unwrap_or_else(|| {
        found.push(StatementTimes { text, ..StatementTimes::default() });
        found.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(log: &mut StatementLog, sql: &str, event: u64) {
        if log.is_on() {
            log.begin(sql.as_bytes(), event);
            log.end();
        }
    }

    fn counts(log: &mut StatementLog) -> Vec<(String, u64)> {
        let times = log.take((4, 8), Dialect::MySql);
        times.into_iter().map(|one| (one.text, one.executions)).collect()
    }

    #[test]
    fn second_half_of_the_lead_in_is_timed_by_normalized_text() {
        let mut log = StatementLog::default();
        let lead_in = Some(Quota::Events(4));
        log.start(lead_in);
        for event in 0..4 {
            execute(&mut log, &format!("SELECT c FROM t{event} WHERE id = {event}"), event);
            execute(&mut log, "COMMIT", event);
        }
        // It failed: there is no answer.
        log.begin(b"SELECT 1", 3);
        log.end_lead_in(lead_in);
        execute(&mut log, "COMMIT", 4);
        let select = "SELECT c FROM tN WHERE id = ?".to_owned();
        assert_eq!(counts(&mut log), [(select, 2), ("COMMIT".to_owned(), 2)]);
        log.start(lead_in);
        assert_eq!(counts(&mut log), [], "of the next slice");
    }

    #[test]
    fn few_long_statements_are_timed_without_a_lead_in() {
        let mut log = StatementLog::default();
        log.start(None);
        execute(&mut log, "SELECT 1", 0);
        assert_eq!(counts(&mut log), [], "it is not known how many there are");
        log.start(None);
        log.end_lead_in(None);
        execute(&mut log, "SELECT 1", 0);
        assert_eq!(counts(&mut log), [("SELECT ?".to_owned(), 1)]);
        log.take((1, FEW + 1), Dialect::MySql);
        log.start(None);
        assert!(!log.is_on());
    }

    #[test]
    fn many_different_statements_are_pooled() {
        let mut log = StatementLog::default();
        log.start(Some(Quota::Events(1)));
        for name in 0..300 {
            execute(&mut log, &format!("SELECT a{name}b"), 0);
        }
        let counts = counts(&mut log);
        assert_eq!(counts.len(), MOST_STATEMENTS + 1);
        assert_eq!(counts.last().unwrap(), &(POOLED.to_owned(), 100));
    }
}
