//! The optimizer for a server that dbdyno started: sample under load, count, optimize, and repeat in a restarted
//! process.

mod counting;
mod outcome;
mod sampler;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dbdyno_relayout::{LayoutError, Options, Profile, SampleRequirement, Samples, TooFewSamples};
use dbdyno_types::NewLayout;
use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::{
    AttachedGroup, Attachment, Counted, LiveError, OptimizeError, ProbeOptions, Process, Sampled,
    all_images, descendants, map_to_original, optimize, optimize_descendants, retry_while_busy,
};
use counting::{Counting, ExecutionCounting};
use outcome::{Processes, block_counts, new_layout, source_name};
use sampler::Sampler;

/// A server of dbdyno's own is optimized many times, and runs known programs: replaced code is unmapped.
const UNMAP: ProbeOptions = ProbeOptions { allow_seccomp: false, unmap: true };

/// Why a server was not optimized.
#[derive(Debug, thiserror::Error)]
pub enum ServerOptimizeError {
    /// The process could not be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The process could not be optimized.
    #[error(transparent)]
    Optimize(#[from] OptimizeError),
    /// The server was not sampled before.
    #[error("it was never sampled")]
    NotSampled,
}

/// Options of the optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOptions {
    /// Samples per second and CPU.
    pub frequency: u32,
    /// Whether executions of blocks of code are counted after the sampling. Not for servers with a process per
    /// session.
    pub count: bool,
    /// Maximum time for which its threads may be stopped.
    pub max_pause: Nanos,
    /// Whether functions are copied in their original order.
    pub keep_order: bool,
    /// Whether it is optimized even with too few samples.
    pub force: bool,
}

/// The outcome of an optimization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizedServer {
    pub layout: NewLayout,
    /// Why the server has its original code instead.
    pub refused: Option<String>,
    /// The samples, for another process of the same program; `None` if they were too few.
    pub profile: Option<Profile>,
}

/// What was done with a process.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Sampling(Sampler),
    /// With code that counts, if executions are to be counted.
    Sampled(Box<Sampled>, Option<Box<ExecutionCounting>>),
    Counting(Box<Sampled>, Counting),
    Counted(Box<Sampled>, Box<Counted>),
}

/// The optimizer for one server. Dropping it ends sampling and counting.
#[derive(Debug)]
pub struct ServerOptimizer {
    pid: u32,
    /// Whether the server has a process per session.
    family: bool,
    options: ServerOptions,
    /// Directory of the journals.
    state: PathBuf,
    stage: Stage,
}

impl ServerOptimizer {
    /// The optimizer for the server whose first process this is; `family` tells whether it has a process per
    /// session. `state` is the directory for journals.
    #[must_use]
    pub const fn new(pid: u32, family: bool, options: ServerOptions, state: PathBuf) -> Self {
        Self { pid, family, options, state, stage: Stage::Idle }
    }

    /// The server's first process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts sampling. What was sampled before is forgotten.
    pub fn start_sampling(&mut self) {
        self.stage = Stage::Idle;
        self.stage = Stage::Sampling(Sampler::start(self.pid, self.family, self.options.frequency));
    }

    /// Ends sampling, and makes code that counts if executions are to be counted. Returns whether they are.
    ///
    /// # Errors
    /// Sampling is not permitted, or the process cannot be changed.
    pub fn end_sampling(&mut self) -> Result<bool, ServerOptimizeError> {
        let Stage::Sampling(sampler) = std::mem::take(&mut self.stage) else {
            return Err(ServerOptimizeError::NotSampled);
        };
        let sampled = Box::new(sampler.finish()?);
        let mut counting = None;
        if self.options.count && !self.family {
            let layout = self.layout(self.required());
            let made = ExecutionCounting::prepare(self.attach()?, &sampled, &layout)?;
            counting = Some(Box::new(made));
        }
        let counts = counting.is_some();
        self.stage = Stage::Sampled(sampled, counting);
        Ok(counts)
    }

    /// Starts counting executions, while somebody keeps the server busy. Does nothing if they are not to be
    /// counted.
    pub fn start_counting(&mut self) {
        self.stage = match std::mem::take(&mut self.stage) {
            Stage::Sampled(sampled, Some(counting)) => Stage::Counting(sampled, counting.start()),
            other => other,
        };
    }

    /// Waits for the end of counting.
    ///
    /// # Errors
    /// The process exited, or the code that counts could not be deactivated.
    pub fn end_counting(&mut self) -> Result<(), ServerOptimizeError> {
        match std::mem::take(&mut self.stage) {
            Stage::Counting(sampled, counting) => {
                self.stage = Stage::Counted(sampled, Box::new(counting.finish()?));
            }
            other => self.stage = other,
        }
        Ok(())
    }

    /// Optimizes with the samples and, if there are any, with counts.
    ///
    /// # Errors
    /// The server was not sampled, or could not be changed.
    pub fn optimize(&mut self) -> Result<OptimizedServer, ServerOptimizeError> {
        let (sampled, counted) = match std::mem::take(&mut self.stage) {
            Stage::Sampled(sampled, _) => (sampled, None),
            Stage::Counted(sampled, counted) => (sampled, Some(counted)),
            Stage::Idle | Stage::Sampling(_) | Stage::Counting(..) => {
                return Err(ServerOptimizeError::NotSampled);
            }
        };
        let source = source_name(sampled.source).to_owned();
        let done = self.with(source.clone(), self.required(), |attachment| {
            Ok(counted.as_ref().map_or_else(
                || map_to_original(attachment, &sampled.samples),
                |counted| counted.samples.clone(),
            ))
        });
        let mut optimized = match done {
            Err(ServerOptimizeError::Optimize(OptimizeError::Layout {
                source: LayoutError::TooFewSamples(reason),
                ..
            })) => {
                let fallback = counted.and_then(|counted| counted.report.fallback);
                return self.refused(source, sampled.samples.total(), &reason, fallback);
            }
            done => done?,
        };
        optimized.layout.counts = counted.map(|counted| block_counts(&counted.report));
        Ok(optimized)
    }

    /// Optimizes with the samples of another process of the same program; `source` describes them.
    ///
    /// # Errors
    /// The server could not be changed.
    pub fn optimize_by(
        &self,
        profile: &Profile,
        source: String,
    ) -> Result<OptimizedServer, ServerOptimizeError> {
        self.with(source, None, |attachment| {
            let images = all_images(attachment.process())?;
            Ok(profile.to_samples(&images.iter().collect::<Vec<_>>()).0)
        })
    }

    fn attach(&self) -> Result<Attachment, ServerOptimizeError> {
        let process = Process::open(self.pid, UNMAP)?;
        Ok(Attachment::open(process, &self.state, Duration::from(self.options.max_pause))?)
    }

    /// What new samples must fulfil.
    fn required(&self) -> Option<SampleRequirement> {
        (!self.options.force).then(SampleRequirement::default)
    }

    fn layout(&self, required: Option<SampleRequirement>) -> Options {
        let options = Options { required, ..Options::default() };
        if self.options.keep_order { options.in_original_order() } else { options }
    }

    /// Undoes the layout that was trained earlier, if there is one: the server is measured with its original
    /// code. `uncounted` is why executions were not counted, if that was tried.
    fn refused(
        &self,
        source: String,
        samples: u64,
        reason: &TooFewSamples,
        uncounted: Option<String>,
    ) -> Result<OptimizedServer, ServerOptimizeError> {
        let members = if self.family { descendants(self.pid) } else { Vec::new() };
        let max_pause = Duration::from(self.options.max_pause);
        let mut group = AttachedGroup::open(self.pid, &members, &self.state, UNMAP, max_pause)?;
        let failed = group.undo_all().failed.into_iter().chain(group.into_unattached());
        failed.map(|(_, error)| error).try_for_each(Err)?;
        Ok(OptimizedServer {
            layout: NewLayout { source, samples, ..NewLayout::default() },
            refused: Some(refusal(reason, uncounted)),
            profile: None,
        })
    }

    fn with(
        &self,
        source: String,
        required: Option<SampleRequirement>,
        samples: impl Fn(&Attachment) -> Result<Samples, LiveError>,
    ) -> Result<OptimizedServer, ServerOptimizeError> {
        let start = Instant::now();
        let max_pause = Duration::from(self.options.max_pause);
        let mut attachment = self.attach()?;
        if self.family {
            attachment.share_with(descendants(self.pid));
        }
        let samples = samples(&attachment)?;
        let options = self.layout(required);
        let (done, prepared) = retry_while_busy(
            || optimize(&mut attachment, &samples, &options, |_| ()),
            OptimizeError::is_transient,
        )
        .0?;
        let mut processes = Processes::of(&done.switched);
        if self.family {
            let each = |_, outcome| processes.add(outcome);
            optimize_descendants(self.pid, &prepared, &self.state, UNMAP, max_pause, each);
        }
        Ok(OptimizedServer {
            layout: new_layout(source, &done, processes, Nanos::from(start.elapsed())),
            refused: None,
            profile: Some(prepared.profile().clone()),
        })
    }
}

/// Why a server is not optimized, and what to do. `uncounted` is why executions were not counted.
fn refusal(reason: &TooFewSamples, uncounted: Option<String>) -> String {
    let uncounted =
        uncounted.map_or_else(String::new, |why| format!("; executions were not counted: {why}"));
    format!(
        "{reason}{uncounted}; set a longer `profile` or a higher `frequency`, or accept a possible \
         slowdown with `force = true`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_says_why_executions_were_not_counted() {
        let reason = TooFewSamples::Few { found: 9, required: 1_000 };
        let counted = refusal(&reason, None);
        assert!(counted.contains("too few samples") && !counted.contains("counted"), "{counted}");
        let uncounted = refusal(&reason, Some("the process is idle".to_owned()));
        let expected = "; executions were not counted: the process is idle; set a longer `profile`";
        assert!(uncounted.contains(expected), "{uncounted}");
    }
}
