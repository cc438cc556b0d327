//! What a thread tells while it works: counts that the sampler reads once a second.

use std::sync::atomic::{AtomicU64, Ordering};

use dbdyno_units::Nanos;

/// One thread's operations of one kind, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct OperationProgress {
    rows: AtomicU64,
    worst: AtomicU64,
}

impl OperationProgress {
    /// An operation on so many rows has ended after this time.
    #[inline]
    pub fn note(&self, rows: u64, response: Nanos) {
        // Only this thread writes the count: an addition without a locked bus.
        self.rows.store(self.rows.load(Ordering::Relaxed) + rows, Ordering::Relaxed);
        // The sampler takes this one away, so here it must be one step.
        self.worst.fetch_max(response.as_nanos().max(1), Ordering::Relaxed);
    }

    /// All rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The longest response time since this was asked last; `None` where nothing ended.
    pub fn take_worst(&self) -> Option<Nanos> {
        match self.worst.swap(0, Ordering::Relaxed) {
            0 => None,
            nanos => Some(Nanos::from_nanos(nanos)),
        }
    }
}

/// All that the threads of one client tell.
#[derive(Debug, Default)]
pub(super) struct ClientProgress {
    pub inserts: OperationProgress,
    pub queries: OperationProgress,
    pub deletes: OperationProgress,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_of_the_time_since_it_was_taken() {
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
