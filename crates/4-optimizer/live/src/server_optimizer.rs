//! The optimizer for a server that dbdyno started: sample under load, count, optimize, and repeat in a restarted
//! process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dbdyno_relayout::{LayoutError, Options, Profile, SampleRequirement, Samples, TooFewSamples};
use dbdyno_types::{BlockCounts, NewLayout};
use dbdyno_units::{Bytes, Nanos, Share};
use serde::{Deserialize, Serialize};

use crate::attachment::Attachment;
use crate::count::{Counted, CountingOptions, CountingReport, PreparedCounting};
use crate::job::{Outcome, optimize_by_samples};
use crate::module::{all_images, map_to_original};
use crate::optimize::OptimizeError;
use crate::sample::{SampleSource, Sampled, SamplingOptions, sample};
use crate::target::{Target, descendants};
use crate::{LiveError, ProbeOptions};

#[derive(Debug, thiserror::Error)]
pub enum ServerOptimizeError {
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Optimize(#[from] OptimizeError),
    /// The server was not sampled before.
    #[error("it was never sampled")]
    NotSampled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOptions {
    pub frequency: u32,
    /// Whether executions of blocks of code are counted after the sampling. Not for servers with a process per
    /// session.
    pub count: bool,
    pub max_pause: Nanos,
    /// Whether functions are copied in their original order.
    pub keep_order: bool,
    /// Whether it is optimized even with too few samples.
    pub force: bool,
}

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
    Sampling(Background<Result<Sampled, LiveError>>),
    /// With code that counts, if executions are to be counted.
    Sampled(Box<Sampled>, Option<Box<(Attachment, PreparedCounting)>>),
    Counting(Box<Sampled>, Background<Result<Counted, OptimizeError>>),
    Counted(Box<Sampled>, Box<Counted>),
}

/// Work on another thread. Dropping it ends it.
#[derive(Debug)]
struct Background<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts work that ends when the flag is set.
    fn start(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        Self { stop, thread: Some(thread::spawn(move || work(&is_stopped))) }
    }
}

impl<T> Background<T> {
    fn stop(self) -> Option<T> {
        self.stop.store(true, Ordering::Relaxed);
        self.finish()
    }

    fn finish(mut self) -> Option<T> {
        let joined = self.thread.take()?.join();
        Some(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Limit for a sampling thread that is never stopped.
const MAX_SAMPLING_TIME: Duration = Duration::from_secs(24 * 3600);

/// The optimizer for one server. Dropping it ends sampling and counting.
#[derive(Debug)]
pub struct ServerOptimizer {
    target: Target,
    options: ServerOptions,
    stage: Stage,
}

impl ServerOptimizer {
    /// The optimizer for the server whose first process this is; `family` tells whether it has a process per
    /// session. `state` is the directory for journals.
    pub fn new(pid: u32, family: bool, options: ServerOptions, state: PathBuf) -> Self {
        let max_pause = options.max_pause.into();
        let target = Target { pid, family, state, probe: ProbeOptions::UNMAP, max_pause };
        Self { target, options, stage: Stage::Idle }
    }

    /// Starts sampling. What was sampled before is forgotten.
    pub fn start_sampling(&mut self) {
        self.stage = Stage::Idle;
        let Target { pid, family, .. } = self.target;
        let (time, frequency) = (MAX_SAMPLING_TIME, self.options.frequency);
        let options = SamplingOptions { time, frequency, ..SamplingOptions::default() };
        self.stage = Stage::Sampling(Background::start(move |stop| {
            sample(pid, family, &options, |_| stop.load(Ordering::Relaxed))
        }));
    }

    /// Ends sampling, and makes code that counts if executions are to be counted. Returns whether they are.
    ///
    /// # Errors
    /// Sampling is not permitted, or the process cannot be changed.
    pub fn end_sampling(&mut self) -> Result<bool, ServerOptimizeError> {
        let Stage::Sampling(sampler) = std::mem::take(&mut self.stage) else {
            return Err(ServerOptimizeError::NotSampled);
        };
        let sampled = Box::new(sampler.stop().ok_or(ServerOptimizeError::NotSampled)??);
        let mut counting = None;
        if self.options.count && !self.target.family {
            let mut attachment = self.target.attach()?;
            let samples = map_to_original(&attachment, &sampled.samples);
            let layout = self.layout(self.required());
            let prepared = PreparedCounting::new(&mut attachment, &samples, &layout)?;
            counting = Some(Box::new((attachment, prepared)));
        }
        let counts = counting.is_some();
        self.stage = Stage::Sampled(sampled, counting);
        Ok(counts)
    }

    /// Starts counting executions, while somebody keeps the server busy. Does nothing if they are not to be
    /// counted.
    pub fn start_counting(&mut self) {
        self.stage = match std::mem::take(&mut self.stage) {
            Stage::Sampled(sampled, Some(made)) => {
                let counting = Background::start(move |stop| {
                    let (mut attachment, prepared) = *made;
                    let is_stopped = || stop.load(Ordering::Relaxed);
                    prepared.run(&mut attachment, &CountingOptions::default(), is_stopped)
                });
                Stage::Counting(sampled, counting)
            }
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
                let counted = counting.finish().ok_or(ServerOptimizeError::NotSampled)??;
                self.stage = Stage::Counted(sampled, Box::new(counted));
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
                source: LayoutError::TooFewSamples(reason, _),
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
        let Target { pid, family, .. } = self.target;
        let members = if family { descendants(pid) } else { Vec::new() };
        let mut group = self.target.attach_group(&members)?;
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
        samples: impl FnOnce(&Attachment) -> Result<Samples, LiveError>,
    ) -> Result<OptimizedServer, ServerOptimizeError> {
        let outcome = optimize_by_samples(&self.target, self.layout(required), samples)?;
        Ok(OptimizedServer {
            layout: new_layout(source, &outcome),
            refused: None,
            profile: Some(outcome.reusable_profile),
        })
    }
}

fn new_layout(source: String, outcome: &Outcome) -> NewLayout {
    let done = &outcome.optimized.code;
    let statistics = &done.statistics;
    let covered = (statistics.samples > 0)
        .then(|| statistics.samples_moved as f64 / statistics.samples as f64);
    let (longest_pause, threads) = outcome.largest_stop();
    NewLayout {
        source,
        samples: statistics.samples,
        covered: covered.map(Share::from_fraction),
        counts: None,
        functions: statistics.functions_moved,
        skipped: statistics
            .rejected
            .iter()
            .map(|(reason, count)| (reason.name().replace('_', " "), *count))
            .collect(),
        files: done.modules.iter().map(|(file, _)| file.clone()).collect(),
        hot: Bytes::from_bytes(statistics.hot_bytes),
        cold: Bytes::from_bytes(statistics.cold_bytes),
        added: Bytes::from_bytes(done.added),
        processes: 1 + outcome.changed_members().len() as u32,
        unchanged: outcome.failed_members().map(|(count, error)| (count, error.to_owned())),
        longest_pause,
        threads: threads as u32,
        took: outcome.took,
    }
}

fn block_counts(report: &CountingReport) -> BlockCounts {
    match &report.fallback {
        Some(reason) => BlockCounts::Estimated { reason: reason.clone() },
        None => BlockCounts::Counted { executions: report.executions, lost: report.lost() },
    }
}

const fn source_name(source: SampleSource) -> &'static str {
    match source {
        SampleSource::Branches => "branches",
        SampleSource::Cycles => "cycles",
        SampleSource::Clock => "clock",
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
