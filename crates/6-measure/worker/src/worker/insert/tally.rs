//! Measurements of one thread in one step.

use dbdyno_types::insert::{Operations, StepMeasured};
use dbdyno_units::Nanos;

use crate::latency::NanosHistogram;

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
pub(super) fn add(total: &mut StepMeasured, thread: &StepMeasured) {
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
