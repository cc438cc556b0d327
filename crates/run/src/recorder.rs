//! Stores the events of a session and reports them as progress events.

use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::schedule::BASELINE;
use dbdyno_bench::worker::WorkerError;
use dbdyno_results::{FailureKind, FailureRecord, OptimizationRecord, ResultsError, RunWriter};

use crate::error::RunError;
use crate::instance::Instance;
use crate::progress::{Progress, RunEvent};

/// The run directory that a session writes to, and the receiver of its events.
pub(crate) struct Recorder<'a> {
    pub results: RunWriter,
    progress: Progress<'a>,
    cancel: &'a AtomicBool,
    failures: usize,
}

/// How a part of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Complete,
    /// The user asked to stop.
    Interrupted,
}

/// The stage or microbenchmark in which something failed.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// Its name for display, such as a microbenchmark's name.
    pub at: String,
    /// The microbenchmark's position in the running order.
    pub microbenchmark: Option<u32>,
}

impl Phase {
    /// A phase of the session that belongs to no microbenchmark.
    pub fn of_session(at: impl Into<String>) -> Self {
        Self { at: at.into(), microbenchmark: None }
    }

    /// A failure in this phase.
    pub fn failure(&self, kind: FailureKind, candidate: usize, reason: String) -> FailureRecord {
        FailureRecord {
            kind,
            recovered: false,
            candidate: candidate as u32,
            microbenchmark: self.microbenchmark,
            at: self.at.clone(),
            reason,
        }
    }
}

impl<'a> Recorder<'a> {
    /// A recorder for a session.
    pub const fn new(results: RunWriter, progress: Progress<'a>, cancel: &'a AtomicBool) -> Self {
        Self { results, progress, cancel, failures: 0 }
    }

    /// Whether the user asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Number of failures in this session.
    pub const fn failures(&self) -> usize {
        self.failures
    }

    /// Reports an event.
    pub fn report(&self, event: RunEvent<'_>) {
        (self.progress)(event);
    }

    /// Reports a stage that may take long.
    pub fn stage(&self, text: impl Into<String>) {
        self.report(RunEvent::Stage(text.into()));
    }

    /// Stores and reports a candidate's failure.
    pub fn fail(&mut self, candidate: &str, failure: &FailureRecord) -> Result<(), ResultsError> {
        let FailureRecord { at, reason, .. } = failure;
        self.report(RunEvent::Failure { candidate, at, reason });
        self.failures += 1;
        self.results.add_failure(failure)
    }

    /// Stores and reports a lost slice after which the instance was restarted.
    pub fn lost(
        &mut self,
        instance: &Instance,
        number: usize,
        phase: &Phase,
        error: &WorkerError,
    ) -> Result<(), ResultsError> {
        let candidate = &instance.candidate.name;
        self.report(RunEvent::Lost { candidate, at: &phase.at, reason: &error.brief() });
        let reason = format!("{error}; the instance was restarted and the run continued");
        self.results.add_failure(&phase.failure(FailureKind::Lost, number, reason))
    }

    /// Stops an instance that failed; stores and reports the failure.
    ///
    /// # Errors
    /// The instance is the baseline, or the connection to its host is lost.
    pub fn instance_failed(
        &mut self,
        instance: &mut Instance,
        number: usize,
        phase: &Phase,
        error: &WorkerError,
    ) -> Result<(), RunError> {
        instance.kill();
        // The data there is gone, too: a resumed run loads it again and continues.
        if let Some(lost) = instance.lost_host() {
            return Err(lost.into());
        }
        let candidate = &instance.candidate.name;
        let failure = phase.failure(FailureKind::Ended, number, error.to_string());
        self.fail(candidate, &failure)?;
        if number == BASELINE {
            let FailureRecord { at, reason, .. } = failure;
            return Err(RunError::Baseline { candidate: candidate.clone(), at, reason });
        }
        Ok(())
    }

    /// Runs `work` on each of the instances; one that fails is stopped.
    ///
    /// # Errors
    /// The baseline failed.
    pub fn each<'i>(
        &mut self,
        instances: impl IntoIterator<Item = (usize, &'i mut Instance)>,
        phase: &Phase,
        mut work: impl FnMut(usize, &mut Instance) -> Result<(), WorkerError>,
    ) -> Result<(), RunError> {
        for (number, instance) in instances {
            tracing::debug!(candidate = instance.candidate.name, "{}", phase.at);
            if let Err(error) = work(number, instance) {
                self.instance_failed(instance, number, phase, &error)?;
            }
        }
        Ok(())
    }

    /// Stores and reports what the live optimizer did to a candidate's server.
    pub fn optimized(
        &mut self,
        candidate: &str,
        record: &OptimizationRecord,
    ) -> Result<(), ResultsError> {
        self.results.add_optimization(record)?;
        self.report(RunEvent::Optimized { candidate, record });
        Ok(())
    }
}
