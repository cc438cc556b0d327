//! Exact counts of the code that a server executes, while it works in a slice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use dbdyno_relayout::Options;

use super::ServerOptimizeError;
use crate::{
    Attachment, Counted, CountingOptions, OptimizeError, PreparedCounting, Sampled, map_to_original,
};

/// Code that counts, ready in the server's process.
#[derive(Debug)]
pub(super) struct ExecutionCounting {
    attachment: Attachment,
    prepared: PreparedCounting,
}

impl ExecutionCounting {
    /// Makes the code.
    pub fn prepare(
        mut attachment: Attachment,
        sampled: &Sampled,
        layout: &Options,
    ) -> Result<Self, ServerOptimizeError> {
        let samples = map_to_original(&attachment, &sampled.samples);
        let prepared = PreparedCounting::new(&mut attachment, &samples, layout)?;
        Ok(Self { attachment, prepared })
    }

    /// Counts in the background.
    pub fn start(self) -> Counting {
        let Self { mut attachment, prepared } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let cancelled = || is_stopped.load(Ordering::Relaxed);
            prepared.run(&mut attachment, &CountingOptions::default(), cancelled)
        });
        Counting { stop, thread: Some(thread) }
    }
}

/// Counting in progress. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Counting {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Counted, OptimizeError>>>,
}

impl Counting {
    /// Waits until it is done.
    pub fn finish(mut self) -> Result<Counted, ServerOptimizeError> {
        let thread = self.thread.take().ok_or(ServerOptimizeError::NotSampled)?;
        match thread.join() {
            Ok(counted) => Ok(counted?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
