//! What the threads of a step count: for the sampler while they run, and for the result of the step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dbdyno_types::insert::{Operations, StepMeasured};
use dbdyno_units::Nanos;

use crate::latency::NanosHistogram;

/// A flag that stops all threads: one has failed, or dbdyno has exited.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread's operations of one kind, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct OperationProgress {
    rows: AtomicU64,
    worst: AtomicU64,
}

impl OperationProgress {
    /// Adds a completed operation.
    #[inline]
    pub fn note(&self, rows: u64, response: Nanos) {
        // Only this thread writes the count, so no atomic addition is needed.
        self.rows.store(self.rows.load(Ordering::Relaxed) + rows, Ordering::Relaxed);
        // The sampler resets this, so it must be one atomic operation.
        self.worst.fetch_max(response.as_nanos().max(1), Ordering::Relaxed);
    }

    /// All rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The longest response time since the last call; `None` without operations.
    pub fn take_worst(&self) -> Option<Nanos> {
        match self.worst.swap(0, Ordering::Relaxed) {
            0 => None,
            nanos => Some(Nanos::from_nanos(nanos)),
        }
    }
}

/// Counts of the threads of one client.
#[derive(Debug, Default)]
pub(super) struct ClientProgress {
    pub inserts: OperationProgress,
    pub queries: OperationProgress,
    pub deletes: OperationProgress,
}

/// Count and times of operations of one kind.
pub(super) struct Times {
    count: u64,
    rows: u64,
    response: NanosHistogram,
    longest: Option<Nanos>,
}

impl Times {
    pub fn new() -> Self {
        Self { count: 0, rows: 0, response: NanosHistogram::new(), longest: None }
    }

    #[inline]
    pub fn record(&mut self, rows: u64, response: Nanos) {
        self.count += 1;
        self.rows += rows;
        self.response.record(response);
        self.longest = self.longest.max(Some(response));
    }

    pub fn finish(mut self) -> Operations {
        Operations {
            count: self.count,
            rows: self.rows,
            response: self.response.drain(),
            longest: self.longest,
            service: None,
            longest_service: None,
        }
    }

    /// The operations, with their service times.
    pub fn finish_with(self, service: Self) -> Operations {
        let service = service.finish();
        Operations {
            service: Some(service.response),
            longest_service: service.longest,
            ..self.finish()
        }
    }
}

/// Adds a thread's measurements to the total.
pub(super) fn add_thread(total: &mut StepMeasured, thread: &StepMeasured) {
    total.wall = total.wall.max(thread.wall);
    total.inserts.merge(&thread.inserts);
    total.queries.merge(&thread.queries);
    total.deletes.merge(&thread.deletes);
    total.overdue += thread.overdue;
    total.retries += thread.retries;
    total.lock_waits += thread.lock_waits;
    total.wrong += thread.wrong;
    if total.first_complaint.is_none() {
        total.first_complaint.clone_from(&thread.first_complaint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_response_time_is_reset_when_taken() {
        let progress = OperationProgress::default();
        assert_eq!(progress.take_worst(), None);
        progress.note(50, Nanos::from_millis(3));
        progress.note(50, Nanos::from_millis(2));
        assert_eq!(progress.take_worst(), Some(Nanos::from_millis(3)));
        assert_eq!(progress.take_worst(), None);
        progress.note(1, Nanos::ZERO);
        assert!(progress.take_worst().is_some());
        assert_eq!(progress.rows(), 101);
    }
}
