//! The stored slices of one microbenchmark.

use dbdyno_results::SliceRecord;
use dbdyno_spec::experiment::Schedule;
use dbdyno_units::Nanos;

use crate::error_share::ErrorShare;
use crate::stopping_rule::StoppingRule;

/// Running totals of one microbenchmark's slices: those that earlier sessions stored, and those
/// added since.
#[derive(Debug)]
pub(crate) struct SliceHistory {
    /// The number of the next restart.
    pub next_restart: u32,
    /// The number of the next block.
    pub next_block: u32,
    /// Decides when the microbenchmark is done.
    pub rule: StoppingRule,
    /// Failed and wrong statements of each candidate.
    errors: Vec<ErrorShare>,
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
        let mut history = Self { next_restart: 0, next_block: 0, rule, errors };
        stored.iter().for_each(|row| history.count(row));
        history
    }

    /// Adds a slice of this session.
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

    /// Whether there are no slices.
    pub const fn is_empty(&self) -> bool {
        self.next_block == 0
    }

    /// Failed and wrong statements of each candidate.
    pub fn errors(&self) -> &[ErrorShare] {
        &self.errors
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_types::SliceMeasured;
    use dbdyno_units::Share;

    use super::*;
    use crate::stopping_rule::tests::SCHEDULE;

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
        let [first, second] = history.errors() else { panic!("two candidates") };
        assert_eq!(first.beyond(Share::from_fraction(0.0)), None);
        assert!(second.beyond(Share::from_percent(39.0)).unwrap().contains("2 of 5"));
        assert_eq!(history.rule.blocks(), 0, "warm-up does not count");
    }
}
