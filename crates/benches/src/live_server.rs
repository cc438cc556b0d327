//! A server of a benchmark's own under the live optimizer, with all processes that it has.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dbdyno_live::{
    AttachedGroup, Attachment, LiveError, MemberOutcome, Module, OptimizeError, Optimized,
    ProbeOptions, Process, Sampled, descendants, map_to_original, optimize, optimize_descendants,
    retry_while_busy,
};
use dbdyno_record::server::ServerSystem;
use dbdyno_units::Nanos;

/// A server that is optimized, undone and put in force again.
#[derive(Clone, Debug)]
pub struct LiveServer<'a> {
    /// Its first process.
    pub pid: u32,
    /// Whether its sessions are processes.
    pub family: bool,
    /// Where journals are kept.
    pub state: &'a Path,
    /// For how long threads may stand still.
    pub max_pause: Duration,
}

/// One optimization of all processes.
#[derive(Clone, Debug)]
pub struct OptimizedServer {
    /// What was done to the first.
    pub done: Optimized,
    /// The longest time that threads of one of them stood still.
    pub stop: Nanos,
    /// How long all of it took.
    pub took: Nanos,
    /// Other processes that have it.
    pub members: Vec<u32>,
    /// Processes that could not be optimized.
    pub left_out: u32,
    /// How often the first was too busy to be stopped.
    pub refused: u32,
}

impl<'a> LiveServer<'a> {
    /// A server of this system.
    #[must_use]
    pub fn new(system: ServerSystem, pid: u32, state: &'a Path, max_pause: Nanos) -> Self {
        let family = system == ServerSystem::PostgreSql;
        Self { pid, family, state, max_pause: max_pause.into() }
    }

    /// Optimizes all processes by what was sampled.
    ///
    /// # Errors
    /// The first process could not be optimized.
    pub fn optimize(&self, sampled: &Sampled) -> anyhow::Result<OptimizedServer> {
        let start = Instant::now();
        let process = Process::open(self.pid, ProbeOptions::default())?;
        let mut attachment = Attachment::open(process, self.state, self.max_pause)?;
        if self.family {
            attachment.share_with(descendants(self.pid));
        }
        let samples = map_to_original(&attachment, &sampled.samples);
        let options = dbdyno_relayout::Options::default();
        let (done, refused) = retry_while_busy(
            || optimize(&mut attachment, &samples, &options, |_| ()),
            OptimizeError::is_transient,
        );
        let (done, prepared) = done?;
        drop(attachment);
        let (mut members, mut left_out) = (Vec::new(), 0);
        let mut stop = done.switched.longest_stop;
        if self.family {
            let each = |pid, outcome: Result<MemberOutcome, LiveError>| match outcome {
                Ok(joined) => {
                    members.push(pid);
                    if let MemberOutcome::Switched(switched) = joined {
                        stop = stop.max(switched.longest_stop);
                    }
                }
                Err(_) => left_out += 1,
            };
            let probe = ProbeOptions::default();
            optimize_descendants(self.pid, &prepared, self.state, probe, self.max_pause, each);
        }
        let took = Nanos::from(start.elapsed());
        Ok(OptimizedServer { done, stop, took, members, left_out, refused })
    }

    /// Holds the first process and these others; until this is dropped nobody else can change them.
    ///
    /// # Errors
    /// The first process is gone, or held by somebody else.
    pub fn hold(&self, members: &[u32]) -> Result<AttachedGroup, LiveError> {
        AttachedGroup::open(self.pid, members, self.state, ProbeOptions::default(), self.max_pause)
    }

    /// After an undo nothing differs from the files.
    ///
    /// # Errors
    /// Something does.
    pub fn is_as_before(&self) -> anyhow::Result<()> {
        let process = Process::open(self.pid, ProbeOptions::default())?;
        for loaded in Module::loaded(&process.maps()?) {
            let module = Module::open(&process, &loaded)?;
            let differences = module.differences(&process)?;
            ensure!(differences.is_empty(), "{} differs: {differences:?}", loaded.path.display());
        }
        Ok(())
    }
}
