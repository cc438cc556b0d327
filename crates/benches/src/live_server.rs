//! A server of a benchmark's own under the live optimizer, with all processes that it has.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dbdyno_live::{
    Held, Joined, Keeper, LiveError, Module, Optimized, OptimizingError, Permit, Process, Sampled,
    descendants, led_back, optimize, optimize_descendants, patiently,
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
    pub bound: Duration,
}

/// One optimization of all processes.
#[derive(Clone, Debug)]
pub struct Seen {
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
    pub fn new(system: ServerSystem, pid: u32, state: &'a Path, bound: Nanos) -> Self {
        let family = system == ServerSystem::PostgreSql;
        Self { pid, family, state, bound: bound.into() }
    }

    /// Optimizes all processes by what was sampled.
    ///
    /// # Errors
    /// The first process could not be optimized.
    pub fn optimize(&self, sampled: &Sampled) -> anyhow::Result<Seen> {
        let start = Instant::now();
        let process = Process::open(self.pid, Permit::default())?;
        let mut keeper = Keeper::open(process, self.state, self.bound)?;
        if self.family {
            keeper.share_with(descendants(self.pid));
        }
        let samples = led_back(&keeper, &sampled.samples);
        let options = dbdyno_relayout::Options::default();
        let (done, refused) = patiently(
            || optimize(&mut keeper, &samples, &options, |_| ()),
            OptimizingError::is_passing,
        );
        let (done, prepared) = done?;
        drop(keeper);
        let (mut members, mut left_out) = (Vec::new(), 0);
        let mut stop = done.switched.longest_stop;
        if self.family {
            let each = |pid, outcome: Result<Joined, LiveError>| match outcome {
                Ok(joined) => {
                    members.push(pid);
                    if let Joined::Switched(switched) = joined {
                        stop = stop.max(switched.longest_stop);
                    }
                }
                Err(_) => left_out += 1,
            };
            let permit = Permit::default();
            optimize_descendants(self.pid, &prepared, self.state, permit, self.bound, each);
        }
        let took = Nanos::from(start.elapsed());
        Ok(Seen { done, stop, took, members, left_out, refused })
    }

    /// Holds the first process and these others; until this is dropped nobody else can change them.
    ///
    /// # Errors
    /// The first process is gone, or held by somebody else.
    pub fn hold(&self, members: &[u32]) -> Result<Held, LiveError> {
        Held::open(self.pid, members, self.state, Permit::default(), self.bound)
    }

    /// After an undo nothing differs from the files.
    ///
    /// # Errors
    /// Something does.
    pub fn is_as_before(&self) -> anyhow::Result<()> {
        let process = Process::open(self.pid, Permit::default())?;
        for loaded in Module::loaded(&process.maps()?) {
            let module = Module::open(&process, &loaded)?;
            let differences = module.differences(&process)?;
            ensure!(differences.is_empty(), "{} differs: {differences:?}", loaded.path.display());
        }
        Ok(())
    }
}
