//! Exact counts of the code that a server executes, while it works in a slice.

use std::thread;

use dbdyno_live::{
    Attachment, Counted, CountingOptions, OptimizeError, PreparedCounting, Sampled, map_to_original,
};
use dbdyno_units::Nanos;

use crate::live_optimize::{LiveOptimizeError, Optimizer};

/// Length of a slice in which executions are counted: the bursts of [`CountingOptions`], with the original
/// code between them, and the switches.
pub(crate) const COUNTING_SLICE: Nanos = Nanos::from_millis(1_200);

/// Code that counts, ready in the server's process.
#[derive(Debug)]
pub(crate) struct ExecutionCounting {
    attachment: Attachment,
    prepared: PreparedCounting,
}

impl ExecutionCounting {
    /// Makes the code.
    pub fn prepare(
        optimizer: &Optimizer<'_>,
        sampled: &Sampled,
    ) -> Result<Self, LiveOptimizeError> {
        let mut attachment = optimizer.attach()?;
        let samples = map_to_original(&attachment, &sampled.samples);
        let layout = optimizer.layout(optimizer.required());
        let prepared = PreparedCounting::new(&mut attachment, &samples, &layout)?;
        Ok(Self { attachment, prepared })
    }

    /// Counts while `work` keeps the server busy.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> (T, Result<Counted, OptimizeError>) {
        let Self { mut attachment, prepared } = self;
        thread::scope(|scope| {
            let counting = scope
                .spawn(|| prepared.run(&mut attachment, &CountingOptions::default(), || false));
            let done = work();
            let counted = counting.join();
            (done, counted.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}
