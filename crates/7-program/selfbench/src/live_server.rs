//! A private server under the live optimizer, with all its processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use dbdyno_live::{
    AttachedGroup, Attachment, Counted, CountingOptions, LiveError, MemberOutcome, Module,
    OptimizeError, Optimized, ProbeOptions, Process, Sampled, count, descendants, map_to_original,
    optimize, optimize_descendants, retry_while_busy,
};
use dbdyno_types::server::ServerSystem;
use dbdyno_units::Nanos;

/// A server is optimized many times: replaced code is unmapped.
const UNMAP: ProbeOptions = ProbeOptions { allow_seccomp: false, unmap: true };

/// A server to optimize, undo and redo.
#[derive(Clone, Debug)]
pub struct LiveServer {
    /// Process ID of its first process.
    pub pid: u32,
    /// Whether it has a process per session.
    pub family: bool,
    /// Directory of the journals.
    pub state: PathBuf,
    /// Maximum time for which threads may be stopped.
    pub max_pause: Duration,
}

/// An optimization of all processes.
#[derive(Clone, Debug)]
pub struct OptimizedServer {
    /// Optimization of the first process.
    pub done: Optimized,
    /// Longest stop of a process.
    pub stop: Nanos,
    /// Total duration.
    pub took: Nanos,
    /// Other optimized processes.
    pub members: Vec<u32>,
    /// Number of processes that could not be optimized.
    pub failed: u32,
    /// Number of times the first process was too busy to be stopped.
    pub retries: u32,
}

impl LiveServer {
    /// A server of a system.
    #[must_use]
    pub fn new(system: ServerSystem, pid: u32, state: &Path, max_pause: Nanos) -> Self {
        let family = system == ServerSystem::PostgreSql;
        Self { pid, family, state: state.to_owned(), max_pause: max_pause.into() }
    }

    /// Optimizes all processes with samples.
    ///
    /// # Errors
    /// The first process could not be optimized.
    pub fn optimize(&self, sampled: &Sampled) -> anyhow::Result<OptimizedServer> {
        let start = Instant::now();
        let process = Process::open(self.pid, UNMAP)?;
        let mut attachment = Attachment::open(process, &self.state, self.max_pause)?;
        if self.family {
            attachment.share_with(descendants(self.pid));
        }
        let samples = map_to_original(&attachment, &sampled.samples);
        let options = dbdyno_relayout::Options::default();
        let (done, retries) = retry_while_busy(
            || optimize(&mut attachment, &samples, &options, |_| ()),
            OptimizeError::is_transient,
        );
        let (done, prepared) = done?;
        drop(attachment);
        let (mut members, mut failed) = (Vec::new(), 0);
        let mut stop = done.switched.longest_stop;
        if self.family {
            let each = |pid, outcome: Result<MemberOutcome, LiveError>| match outcome {
                Ok(outcome) => {
                    members.push(pid);
                    if let MemberOutcome::Switched(switched) = outcome {
                        stop = stop.max(switched.longest_stop);
                    }
                }
                Err(_) => failed += 1,
            };
            let probe = UNMAP;
            optimize_descendants(self.pid, &prepared, &self.state, probe, self.max_pause, each);
        }
        let took = Nanos::from(start.elapsed());
        Ok(OptimizedServer { done, stop, took, members, failed, retries })
    }

    /// Counts executions of the first process, which must be under load.
    ///
    /// # Errors
    /// The process exited, or the code that counts could not be deactivated.
    pub fn count(&self, sampled: &Sampled) -> anyhow::Result<Counted> {
        let process = Process::open(self.pid, UNMAP)?;
        let mut attachment = Attachment::open(process, &self.state, self.max_pause)?;
        let samples = map_to_original(&attachment, &sampled.samples);
        let (layout, counting) = (dbdyno_relayout::Options::default(), CountingOptions::default());
        Ok(count(&mut attachment, &samples, &layout, &counting, || false)?)
    }

    /// Attaches to the first process and these others.
    ///
    /// # Errors
    /// The first process exited, or another dbdyno is attached to it.
    pub fn attach(&self, members: &[u32]) -> Result<AttachedGroup, LiveError> {
        AttachedGroup::open(self.pid, members, &self.state, UNMAP, self.max_pause)
    }

    /// Checks that after an undo no code differs from the files.
    ///
    /// # Errors
    /// Some code differs.
    pub fn ensure_original(&self) -> anyhow::Result<()> {
        let process = Process::open(self.pid, UNMAP)?;
        for loaded in Module::loaded(&process.maps()?) {
            let module = Module::open(&process, &loaded)?;
            let differences = module.differences(&process)?;
            ensure!(differences.is_empty(), "{} differs: {differences:?}", loaded.path.display());
        }
        Ok(())
    }
}
