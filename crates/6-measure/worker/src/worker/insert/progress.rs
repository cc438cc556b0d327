//! Counts of a running thread that the sampler reads once a second.

use std::sync::atomic::{AtomicU64, Ordering};

use dbdyno_units::Nanos;

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
