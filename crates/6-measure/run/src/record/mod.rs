//! Stores the events of a session and reports them as progress events.

pub(crate) mod candidate_record;
pub(crate) mod settings;

use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_results::{
    FailureKind, FailureRecord, OptimizationRecord, ResultsError, Role, RunWriter, SliceRecord,
    Warning,
};
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerError;
use dbdyno_worker::schedule::{BASELINE, ScheduledSlice};

use crate::error::{RunError, add_places};
use crate::instance::{Instance, LostSlice};
use crate::session::progress::{Progress, RunEvent};

/// The run directory that a session writes to, and the receiver of its events.
pub(crate) struct Recorder<'a> {
    pub results: RunWriter,
    progress: Progress<'a>,
    cancel: &'a AtomicBool,
    /// Number of failures in this session.
    pub failures: usize,
    /// Number of times that all instances were restarted in this session.
    pub restarts: u32,
    /// Warnings that the session has not reported and stored yet.
    pub warnings: Vec<Warning>,
    /// Time of blocks in which stacks were sampled in this session.
    pub profiled: Nanos,
    /// Number of candidates that are compared with the baseline, and the names of those that failed.
    compared: usize,
    failed: Vec<String>,
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
    /// `compared` is the number of candidates without the baseline.
    pub const fn new(
        results: RunWriter,
        progress: Progress<'a>,
        cancel: &'a AtomicBool,
        compared: usize,
    ) -> Self {
        Self {
            results,
            progress,
            cancel,
            failures: 0,
            restarts: 0,
            warnings: Vec::new(),
            profiled: Nanos::ZERO,
            compared,
            failed: Vec::new(),
        }
    }

    /// Whether the user asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Ends the session if the user asked to stop.
    pub fn check_cancelled(&self) -> Result<(), RunError> {
        if self.is_cancelled() { Err(RunError::Interrupted) } else { Ok(()) }
    }

    pub fn report(&self, event: RunEvent<'_>) {
        (self.progress)(event);
    }

    /// Reports a stage that may take long.
    pub fn stage(&self, text: impl Into<String>) {
        self.report(RunEvent::Stage(text.into()));
    }

    /// Reports that all instances are being restarted.
    pub fn restart(&mut self, words: &'static str) {
        self.restarts += 1;
        self.report(RunEvent::Restart(words));
    }

    /// Stores and reports a candidate's failure.
    pub fn fail(&mut self, candidate: &str, failure: &FailureRecord) -> Result<(), ResultsError> {
        let FailureRecord { at, reason, .. } = failure;
        self.report(RunEvent::Failure { candidate, at, reason });
        self.failures += 1;
        self.results.add_failure(failure)
    }

    /// Stores a slice of a microbenchmark that was measured after a restart; returns its record.
    pub fn add_slice(
        &mut self,
        (microbenchmark, restart): (u32, u32),
        slice: &ScheduledSlice,
        measured: SliceMeasured,
    ) -> Result<SliceRecord, ResultsError> {
        let ScheduledSlice { block, position, warmup, candidate, .. } = *slice;
        let candidate = candidate as u32;
        let row =
            SliceRecord { microbenchmark, restart, block, position, candidate, warmup, measured };
        self.results.add_slice(&row)?;
        Ok(row)
    }

    /// Stores and reports a lost slice after which the instance was restarted.
    pub fn lost(
        &mut self,
        candidate: &str,
        number: usize,
        phase: &Phase,
        slice: &LostSlice,
    ) -> Result<(), ResultsError> {
        let LostSlice { error, begins_to_differ } = slice;
        self.report(RunEvent::Lost { candidate, at: &phase.at, reason: &error.brief() });
        let reason = format!("{error}; the instance was restarted and the run continued");
        self.results.add_failure(&phase.failure(FailureKind::Lost, number, reason))?;
        if *begins_to_differ {
            let reason = "a slice of writes was lost: its data differs from then on".to_owned();
            self.results.add_failure(&phase.failure(FailureKind::Differs, number, reason))?;
        }
        Ok(())
    }

    /// Stores and reports that answers of a microbenchmark differ between equal instances.
    pub fn undetermined(
        &mut self,
        phase: &Phase,
        number: usize,
        reason: String,
    ) -> Result<(), ResultsError> {
        self.stage(format!("{}: {reason}", phase.at));
        self.results.add_failure(&phase.failure(FailureKind::Undetermined, number, reason))
    }

    /// Stops an instance that failed; stores and reports the failure. Without the baseline, or without any other
    /// candidate, the session ends, as it does if the instance was stopped for the user.
    pub fn instance_failed(
        &mut self,
        instance: &mut Instance,
        number: usize,
        phase: &Phase,
        error: &WorkerError,
    ) -> Result<(), RunError> {
        if *error == WorkerError::Stopped {
            return Err(RunError::Interrupted);
        }
        instance.kill_failed(error)?;
        let candidate = &instance.candidate.name;
        let mut reason = error.to_string();
        add_places(&mut reason, std::iter::once(&instance.candidate.spec.system));
        let failure = phase.failure(FailureKind::Ended, number, reason);
        self.fail(candidate, &failure)?;
        let measured = self.results.reader()?.has_measured()?;
        if number == BASELINE {
            return Err(RunError::baseline(candidate, &failure.at, &failure.reason, measured));
        }
        if instance.candidate.role == Role::Candidate && !self.failed.contains(candidate) {
            self.failed.push(candidate.clone());
            if self.failed.len() == self.compared {
                let brief = error.brief();
                let reasons = [brief.as_str(), failure.reason.as_str()];
                return Err(RunError::none_left(&self.failed, &failure.at, reasons, measured));
            }
        }
        Ok(())
    }

    /// Runs `work` on each of the instances; one that fails is stopped.
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

#[cfg(test)]
mod tests {
    use dbdyno_results::{CandidateRecord, InForceRecord, NewRun, SessionRecord};

    use super::*;

    fn session() -> SessionRecord {
        SessionRecord {
            started: "2026-01-01T12:00:00Z".to_owned(),
            version: "0.1.0".to_owned(),
            ..SessionRecord::default()
        }
    }

    fn candidate(name: &str) -> CandidateRecord {
        CandidateRecord {
            name: name.to_owned(),
            role: Role::Candidate,
            system: "mariadb".to_owned(),
            version: String::new(),
            engine: None,
            build: None,
            origin: None,
            server_settings: Vec::new(),
            config_diff: Vec::new(),
            in_force: InForceRecord::default(),
            configuration: Vec::new(),
            injected_delay: None,
        }
    }

    #[test]
    fn lost_slice_of_writes_is_stored_with_the_difference_that_it_causes() {
        let dir = tempfile::tempdir().unwrap();
        let new_run = NewRun {
            name: "test".to_owned(),
            baseline: "base".to_owned(),
            experiment_text: String::new(),
            experiment: serde_json::Value::Null,
            settings: Vec::new(),
            microbenchmarks: Vec::new(),
            insert: None,
        };
        let mut results = RunWriter::create(&dir.path().join("out"), &new_run).unwrap();
        results.start_session(&session()).unwrap();
        results.add_candidates(&[candidate("base"), candidate("a")]).unwrap();
        let cancel = AtomicBool::new(false);
        let mut recorder = Recorder::new(results, &|_| {}, &cancel, 1);
        let phase = Phase { at: "insert (warm-up)".to_owned(), microbenchmark: None };
        for begins_to_differ in [true, false] {
            let error = WorkerError::failed("running a slice", "the server is gone");
            recorder.lost("a", 1, &phase, &LostSlice { error, begins_to_differ }).unwrap();
        }
        let stored = recorder.results.reader().unwrap().failures().unwrap();
        let kinds: Vec<FailureKind> = stored.iter().map(|failure| failure.kind).collect();
        assert_eq!(kinds, [FailureKind::Lost, FailureKind::Differs, FailureKind::Lost]);
        assert!(stored.iter().all(|failure| failure.at == phase.at && failure.candidate == 1));
    }
}
