use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ServerOptimizeError;
use crate::{LiveError, Sampled, SamplingOptions, sample};

/// Limit for a sampling thread that is never stopped.
const MAX_SAMPLING_TIME: Duration = Duration::from_secs(24 * 3600);

/// Samples a server until it is stopped.
#[derive(Debug)]
pub(super) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Sampled, LiveError>>>,
}

impl Sampler {
    /// Starts sampling a process; with `family`, also its descendants.
    pub fn start(pid: u32, family: bool, frequency: u32) -> Self {
        let sampling =
            SamplingOptions { time: MAX_SAMPLING_TIME, frequency, ..SamplingOptions::default() };
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let until = move |_| is_stopped.load(Ordering::Relaxed);
        let thread = Some(thread::spawn(move || sample(pid, family, &sampling, until)));
        Self { stop, thread }
    }

    /// Stops sampling and returns the samples.
    pub fn finish(mut self) -> Result<Sampled, ServerOptimizeError> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or(ServerOptimizeError::NotSampled)?;
        match thread.join() {
            Ok(sampled) => Ok(sampled?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
