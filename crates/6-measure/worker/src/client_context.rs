//! What the events of a client work on: its connection, the parameters of its statements, and its counts.

use dbdyno_drivers::{Answer, Params};
use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_types::SliceMeasured;
use dbdyno_units::{Nanos, Qps};
use dbdyno_workloads::definition::Counted;
use dbdyno_workloads::events::{DrawnStatement, ParameterSink};
use dbdyno_workloads::schema::table_name;

use crate::protocol::Quota;

/// A client's connection, the parameters of its next statement, and the counts of its slice.
pub(crate) struct ClientContext<C> {
    pub connection: C,
    pub params: ConnectionParams,
    pub counts: SliceCounts,
}

impl<C> ClientContext<C> {
    pub fn new(connection: C) -> Self {
        Self { connection, params: ConnectionParams::default(), counts: SliceCounts::default() }
    }
}

/// A driver's parameters, filled by the workload's random draws.
#[derive(Default)]
pub(crate) struct ConnectionParams(pub Params);

impl ParameterSink for ConnectionParams {
    #[inline(always)]
    fn int(&mut self, value: i64) {
        self.0.push_int(value);
    }

    #[inline(always)]
    fn text(&mut self, text: &[u8]) {
        self.0.push_text(text);
    }
}

/// Counts of one client in one slice.
#[derive(Default)]
pub(crate) struct SliceCounts {
    pub events: u64,
    pub statements: u64,
    pub errors: u64,
    /// Transactions that the database aborted because of a conflict with another.
    pub conflicts: u64,
    pub first_complaint: Option<String>,
    lead_in_statements: u64,
    rows: u64,
    affected: u64,
    digest: u64,
    wrong: u64,
}

impl SliceCounts {
    /// Adds the answer to statement number `index` of the event.
    #[inline]
    pub fn add(&mut self, answer: Answer, index: usize, counted: Counted, drawn: DrawnStatement) {
        self.statements += 1;
        self.rows += answer.rows;
        self.digest = self.digest.wrapping_add(answer.digest);
        let count = match counted {
            Counted::Rows => answer.rows,
            Counted::Affected => {
                self.affected += answer.affected;
                answer.affected
            }
        };
        if !drawn.allows(count) {
            self.complain(index, counted, count, drawn);
        }
    }

    /// Adds the answer to a statement of a script, of which nothing is expected.
    #[inline]
    pub fn add_unchecked(&mut self, answer: Answer) {
        self.statements += 1;
        self.rows += answer.rows;
        self.affected += answer.affected;
        self.digest = self.digest.wrapping_add(answer.digest);
    }

    #[cold]
    fn complain(&mut self, index: usize, counted: Counted, count: u64, drawn: DrawnStatement) {
        self.wrong += 1;
        self.first_complaint.get_or_insert_with(|| {
            let what = match counted {
                Counted::Rows => "returned",
                Counted::Affected => "changed",
            };
            let DrawnStatement { table, at_least, at_most } = drawn;
            let expected = if at_least == at_most {
                at_most.to_string()
            } else {
                format!("{at_least} to {at_most}")
            };
            let table = table_name(table);
            let number = index + 1;
            format!("statement {number} on {table} {what} {count} rows instead of {expected}")
        });
    }

    /// Discards the counts of the lead-in, except errors, wrong answers, the digest, and its number of
    /// statements.
    pub fn start_counting(&mut self) {
        let Self { digest, errors, wrong, statements: lead_in_statements, .. } = *self;
        let first_complaint = self.first_complaint.take();
        let kept = Self { digest, errors, wrong, lead_in_statements, ..Self::default() };
        *self = Self { first_complaint, ..kept };
    }

    /// Adds the errors and wrong answers of events that do not count.
    pub fn add_problems(&mut self, of: Self) {
        self.errors += of.errors;
        self.wrong += of.wrong;
        self.first_complaint = self.first_complaint.take().or(of.first_complaint);
    }

    /// Returns the counts of the timed part, which took `wall`, and resets them.
    pub fn finish(&mut self, wall: Nanos) -> SliceMeasured {
        let counts = std::mem::take(self);
        SliceMeasured {
            wall,
            throughput: Qps::over(counts.statements, wall).filter(|_| counts.statements > 0),
            events: counts.events,
            statements: counts.statements,
            lead_in_statements: Some(counts.lead_in_statements),
            rows: counts.rows,
            affected: counts.affected,
            digest: counts.digest,
            errors: counts.errors,
            wrong: counts.wrong,
            first_complaint: counts.first_complaint,
            busy_retries: counts.conflicts,
            ..SliceMeasured::default()
        }
    }
}

/// The end of a slice or its lead-in.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    events: u64,
    ticks: u64,
}

impl Deadline {
    /// The deadline of a quota that starts now.
    pub fn of<T: TickSource>(quota: Quota, calibration: Calibration) -> Self {
        match quota {
            Quota::Events(events) => Self { events, ticks: u64::MAX },
            Quota::Time(time) => {
                let ticks = T::now().saturating_add(calibration.to_ticks(time));
                Self { events: u64::MAX, ticks }
            }
        }
    }

    /// Whether a client with these counts stops at this tick.
    #[inline(always)]
    pub const fn is_over(self, counts: &SliceCounts, now: u64) -> bool {
        counts.events >= self.events || now >= self.ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_lead_in_are_kept() {
        let mut counts = SliceCounts::default();
        let one = DrawnStatement { table: 0, at_least: 1, at_most: 1 };
        let answer = |rows| Answer { rows, digest: 5, ..Answer::default() };
        counts.add(answer(1), 0, Counted::Rows, one);
        counts.add(answer(0), 0, Counted::Rows, one);
        counts.errors += 1;
        counts.events += 2;
        counts.start_counting();
        counts.add(answer(1), 0, Counted::Rows, one);
        let measured = counts.finish(Nanos::from_millis(1));
        assert_eq!((measured.statements, measured.events, measured.rows), (1, 0, 1));
        assert_eq!(measured.lead_in_statements, Some(2));
        assert_eq!((measured.errors, measured.wrong, measured.digest), (1, 1, 15));
        assert!(measured.first_complaint.unwrap().contains("returned 0 rows instead of 1"));
    }
}
