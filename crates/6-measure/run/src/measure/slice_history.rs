//! The slices of a case so far, and the share of errors in them.

use dbdyno_results::SliceRecord;
use dbdyno_spec::experiment::Schedule;
use dbdyno_types::SliceMeasured;
use dbdyno_units::{Nanos, Share};

use crate::plan::stopping_rule::StoppingRule;

/// Running totals of one microbenchmark's slices: those that earlier sessions stored, and those
/// added since.
#[derive(Debug)]
pub(crate) struct SliceHistory {
    pub next_restart: u32,
    pub next_block: u32,
    /// Decides when the microbenchmark is done.
    pub rule: StoppingRule,
    /// How long its blocks took in this session.
    pub block_times: BlockTimes,
    /// Failed and wrong statements of each candidate.
    pub errors: Vec<ErrorShare>,
}

impl SliceHistory {
    /// The history of slices of this length that earlier sessions stored.
    pub fn of(
        stored: &[SliceRecord],
        schedule: &Schedule,
        slice: Nanos,
        candidates: usize,
    ) -> Self {
        let rule = StoppingRule::of(stored, schedule, slice);
        let errors = vec![ErrorShare::default(); candidates];
        let mut history = Self {
            next_restart: 0,
            next_block: 0,
            rule,
            block_times: BlockTimes::default(),
            errors,
        };
        stored.iter().for_each(|row| history.count(row));
        history
    }

    pub fn add(&mut self, row: &SliceRecord) {
        self.count(row);
        if !row.warmup {
            self.rule.add(row);
        }
    }

    fn count(&mut self, row: &SliceRecord) {
        self.next_restart = self.next_restart.max(row.restart + 1);
        self.next_block = self.next_block.max(row.block + 1);
        if let Some(errors) = self.errors.get_mut(row.candidate as usize) {
            errors.add(&row.measured);
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.next_block == 0
    }
}

/// The time of blocks, with everything between their slices, and the time that was planned for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockTimes {
    pub time: Nanos,
    planned: Nanos,
}

impl BlockTimes {
    pub fn add(&mut self, time: Nanos, planned: Nanos) {
        self.time += time;
        self.planned += planned;
    }

    /// The time relative to the plan; `None` before any block.
    pub fn ratio(self) -> Option<f64> {
        (self.planned > Nanos::ZERO).then(|| self.time.as_secs_f64() / self.planned.as_secs_f64())
    }

    /// That of several microbenchmarks together.
    pub fn of(all: &[SliceHistory]) -> Self {
        all.iter().fold(Self::default(), |mut sum, one| {
            sum.add(one.block_times.time, one.block_times.planned);
            sum
        })
    }
}

/// Statements of one candidate in one microbenchmark that failed, and those with a wrong result.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorShare {
    /// All that were executed, including those of lead-ins.
    statements: u64,
    failed: u64,
    /// Succeeded, but with a wrong number of rows.
    wrong: u64,
    first_complaint: Option<String>,
}

impl ErrorShare {
    /// Adds a slice. Of a slice that an earlier session stored, the statements of the lead-in that had
    /// a right result are unknown and not counted: the share is rather too high than too low.
    pub fn add(&mut self, measured: &SliceMeasured) {
        let succeeded = match measured.lead_in_statements {
            Some(lead_in) => measured.statements + lead_in,
            None => measured.statements.max(measured.wrong),
        };
        self.statements += succeeded + measured.errors;
        self.failed += measured.errors;
        self.wrong += measured.wrong;
        if self.first_complaint.is_none() {
            self.first_complaint.clone_from(&measured.first_complaint);
        }
    }

    /// The failure to report if the share is larger than `allowed`.
    pub fn beyond(&self, allowed: Share) -> Option<String> {
        let Self { statements, failed, wrong, .. } = self;
        let share = (failed + wrong) as f64 / (*statements).max(1) as f64;
        (share > allowed.as_fraction()).then(|| {
            let what = match (failed, wrong) {
                (_, 0) => format!("{failed} of {statements} statements failed"),
                (0, _) => format!("{wrong} of {statements} statements had a wrong result"),
                _ => format!(
                    "{failed} of {statements} statements failed, and {wrong} had a wrong result"
                ),
            };
            let complaint = self.first_complaint.as_deref().unwrap_or("no details");
            format!("{what}; {allowed} are allowed (`max_error_share`); the first: {complaint}")
        })
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_types::SliceMeasured;
    use dbdyno_units::Share;

    use super::*;
    use crate::plan::stopping_rule::tests::SCHEDULE;

    #[test]
    fn stored_and_new_slices_continue_the_numbering_and_count_errors() {
        let row = |restart, block, errors| SliceRecord {
            microbenchmark: 3,
            restart,
            block,
            position: 0,
            candidate: 1,
            warmup: true,
            measured: SliceMeasured { statements: 1, errors, ..SliceMeasured::default() },
        };
        let none = SliceHistory::of(&[], &SCHEDULE, SCHEDULE.slice, 2);
        assert!(none.is_empty());
        assert_eq!((none.next_restart, none.next_block), (0, 0));
        let mut history =
            SliceHistory::of(&[row(0, 4, 1), row(1, 9, 0)], &SCHEDULE, SCHEDULE.slice, 2);
        assert_eq!((history.next_restart, history.next_block), (2, 10));
        history.add(&row(2, 10, 1));
        assert_eq!((history.next_restart, history.next_block), (3, 11));
        assert!(!history.is_empty());
        let [first, second] = &history.errors[..] else { panic!("two candidates") };
        assert_eq!(first.beyond(Share::from_fraction(0.0)), None);
        assert!(second.beyond(Share::from_percent(39.0)).unwrap().contains("2 of 5"));
        assert_eq!(history.rule.blocks(), 0, "warm-up does not count");
    }

    #[test]
    fn only_a_share_beyond_the_limit_is_reported() {
        let mut errors = ErrorShare::default();
        errors.add(&SliceMeasured { statements: 999, ..SliceMeasured::default() });
        assert_eq!(errors.beyond(Share::from_fraction(0.0)), None);
        errors.add(&SliceMeasured {
            statements: 1,
            wrong: 1,
            first_complaint: Some("returned 0 rows instead of 1".to_owned()),
            ..SliceMeasured::default()
        });
        assert_eq!(errors.beyond(Share::from_percent(0.1)), None);
        let complaint = errors.beyond(Share::from_percent(0.05)).unwrap();
        assert!(complaint.contains("1 of 1000 statements had a wrong result;"), "{complaint}");
        assert!(complaint.contains("0 rows instead of 1"), "{complaint}");
    }

    #[test]
    fn errors_and_wrong_results_are_counted_apart_and_with_the_lead_in() {
        let mut errors = ErrorShare::default();
        // 70 statements succeeded with a wrong result, 30 of them in the lead-in; 5 failed.
        let slice = SliceMeasured {
            statements: 40,
            lead_in_statements: Some(30),
            wrong: 70,
            errors: 5,
            ..SliceMeasured::default()
        };
        errors.add(&slice);
        let complaint = errors.beyond(Share::from_percent(0.1)).unwrap();
        let counts = "5 of 75 statements failed, and 70 had a wrong result; 0.1% are allowed";
        assert!(complaint.starts_with(counts), "{complaint}");
        // As an earlier session stored it.
        let mut stored = ErrorShare::default();
        stored.add(&SliceMeasured { lead_in_statements: None, ..slice });
        let complaint = stored.beyond(Share::from_percent(0.1)).unwrap();
        assert!(complaint.starts_with(counts), "{complaint}");
    }
}
