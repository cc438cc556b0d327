//! The live optimizer on private servers: sample under load, optimize, and repeat after a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dbdyno_live::{
    AttachedGroup, Attachment, Counted, CountingReport, LiveError, MemberOutcome, OptimizeError,
    ProbeOptions, Process, SampleSource, Sampled, SamplingOptions, Switched, descendants,
    map_to_original, optimize_descendants, retry_while_busy, sample,
};
use dbdyno_machine::ProcessIdentity;
use dbdyno_record::server::ServerSystem;
use dbdyno_relayout::{LayoutError, Options, Profile, SampleRequirement, Samples, TooFewSamples};
use dbdyno_results::{BlockCounts, NewLayout, OptimizationRecord};
use dbdyno_spec::experiment::{Live, PrivateServer};
use dbdyno_units::{Bytes, Nanos, Share};

/// A server of dbdyno's own is optimized many times, and runs known programs: replaced code is unmapped.
const UNMAP: ProbeOptions = ProbeOptions { allow_seccomp: false, unmap: true };

/// Limit for a sampling thread that is never stopped; normally the slices end sampling.
const MAX_SAMPLING_TIME: Duration = Duration::from_secs(24 * 3600);

/// Why a server was not optimized.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveOptimizeError {
    /// The process could not be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The process could not be optimized.
    #[error(transparent)]
    Optimize(#[from] OptimizeError),
    /// The sampling thread was stopped before.
    #[error("it was never sampled")]
    NotSampled,
}

/// The live optimizer for one server.
#[derive(Clone, Debug)]
pub(crate) struct Optimizer<'a> {
    /// Process ID of the server's first process.
    pub pid: u32,
    /// Whether it has a process per session.
    pub family: bool,
    /// Options.
    pub live: &'a Live,
    /// Directory of the journals.
    pub state: PathBuf,
}

/// An optimized server.
#[derive(Clone, Debug)]
pub(crate) struct OptimizedServer {
    /// The process.
    identity: ProcessIdentity,
    /// ID of the microbenchmark it was sampled with.
    pub trained_with: u32,
    /// The samples, for another process of the same program; `None` if it was not optimized because
    /// they are too few.
    profile: Option<Profile>,
    /// Source of the samples.
    source: String,
}

/// Samples a server until it is stopped.
#[derive(Debug)]
pub(crate) struct Sampler {
    pid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Sampled, LiveError>>>,
}

impl Sampler {
    /// Starts sampling.
    pub fn start(optimizer: &Optimizer<'_>) -> Self {
        let Optimizer { pid, family, live, .. } = *optimizer;
        let sampling = SamplingOptions {
            time: MAX_SAMPLING_TIME,
            frequency: live.frequency,
            ..SamplingOptions::default()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let until = move |_| is_stopped.load(Ordering::Relaxed);
        let thread = Some(thread::spawn(move || sample(pid, family, &sampling, until)));
        Self { pid, stop, thread }
    }

    /// Process ID of the server's first process.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops sampling and returns the samples.
    pub fn finish(mut self) -> Result<Sampled, LiveOptimizeError> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or(LiveOptimizeError::NotSampled)?;
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

impl OptimizedServer {
    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        self.identity.is_alive()
    }
}

impl<'a> Optimizer<'a> {
    /// The optimizer for the server of a candidate.
    pub fn of(server: &PrivateServer, live: &'a Live, pid: u32, state: PathBuf) -> Self {
        Self { pid, family: server.system == ServerSystem::PostgreSql, live, state }
    }

    /// Optimizes with new samples and, if there are any, with counts.
    pub fn optimize(
        &self,
        sampled: &Sampled,
        counted: Option<&Counted>,
        trained_with: u32,
    ) -> Result<(OptimizedServer, OptimizationRecord), LiveOptimizeError> {
        let source = source_name(sampled.source).to_owned();
        let done = self.with(source.clone(), trained_with, self.required(), |attachment| {
            Ok(counted.map_or_else(
                || map_to_original(attachment, &sampled.samples),
                |counted| counted.samples.clone(),
            ))
        });
        let (optimized, mut record) = match done {
            Err(LiveOptimizeError::Optimize(OptimizeError::Layout {
                source: LayoutError::TooFewSamples(reason),
                ..
            })) => return self.refused(source, sampled.samples.total(), trained_with, reason),
            done => done?,
        };
        record.layout.counts = counted.map(|counted| block_counts(&counted.report));
        Ok((optimized, record))
    }

    /// Opens the server's process.
    pub fn attach(&self) -> Result<Attachment, LiveOptimizeError> {
        let process = Process::open(self.pid, UNMAP)?;
        Ok(Attachment::open(process, &self.state, Duration::from(self.live.max_pause))?)
    }

    /// What new samples must fulfil.
    pub fn required(&self) -> Option<SampleRequirement> {
        (!self.live.force).then(SampleRequirement::default)
    }

    /// Options of its layouts.
    pub fn layout(&self, required: Option<SampleRequirement>) -> Options {
        let options = Options { required, ..Options::default() };
        if self.live.keep_order { options.in_original_order() } else { options }
    }

    /// Undoes the layout that was trained with an earlier microbenchmark, if there is one: the server
    /// is measured with its original code.
    fn refused(
        &self,
        source: String,
        samples: u64,
        trained_with: u32,
        reason: TooFewSamples,
    ) -> Result<(OptimizedServer, OptimizationRecord), LiveOptimizeError> {
        let members = if self.family { descendants(self.pid) } else { Vec::new() };
        let max_pause = Duration::from(self.live.max_pause);
        let probe = UNMAP;
        let mut group = AttachedGroup::open(self.pid, &members, &self.state, probe, max_pause)?;
        match group.switch(Attachment::undo) {
            Ok(switched) => switched.failed.into_iter().try_for_each(|(_, error)| Err(error))?,
            Err(LiveError::NotOptimized { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let identity =
            ProcessIdentity::of(self.pid).map_err(|_| LiveError::Exited { pid: self.pid })?;
        let advice = "set a longer `profile` or a higher `frequency`, or accept a possible slowdown \
                      with `force = true`";
        let record = OptimizationRecord {
            candidate: 0,
            trained_with,
            measured_next: trained_with,
            after_restart: false,
            refused: Some(format!("{reason}; {advice}")),
            layout: NewLayout { source: source.clone(), samples, ..NewLayout::default() },
        };
        Ok((OptimizedServer { identity, trained_with, profile: None, source }, record))
    }

    /// Optimizes with the profile of the candidate of this name.
    pub fn optimize_by(
        &self,
        profile: &Profile,
        name: &str,
        trained_with: u32,
    ) -> Result<(OptimizedServer, OptimizationRecord), LiveOptimizeError> {
        self.with(format!("those of {name}"), trained_with, None, |attachment| {
            to_samples(profile, attachment)
        })
    }

    /// Optimizes with the samples of an earlier process; `None` if they were too few.
    pub fn optimize_again(
        &self,
        optimized: &OptimizedServer,
    ) -> Result<Option<(OptimizedServer, OptimizationRecord)>, LiveOptimizeError> {
        let Some(profile) = &optimized.profile else { return Ok(None) };
        let samples = |attachment: &Attachment| to_samples(profile, attachment);
        let (optimized, record) =
            self.with(optimized.source.clone(), optimized.trained_with, None, samples)?;
        Ok(Some((optimized, OptimizationRecord { after_restart: true, ..record })))
    }

    fn with(
        &self,
        source: String,
        trained_with: u32,
        required: Option<SampleRequirement>,
        samples: impl Fn(&Attachment) -> Result<Samples, LiveError>,
    ) -> Result<(OptimizedServer, OptimizationRecord), LiveOptimizeError> {
        let start = Instant::now();
        let max_pause = Duration::from(self.live.max_pause);
        let mut attachment = self.attach()?;
        if self.family {
            attachment.share_with(descendants(self.pid));
        }
        let samples = samples(&attachment)?;
        let options = self.layout(required);
        let (done, prepared) = retry_while_busy(
            || dbdyno_live::optimize(&mut attachment, &samples, &options, |_| ()),
            OptimizeError::is_transient,
        )
        .0?;
        let mut processes = Processes::of(&done.switched);
        if self.family {
            let each = |_, outcome| processes.add(outcome);
            let probe = UNMAP;
            optimize_descendants(self.pid, &prepared, &self.state, probe, max_pause, each);
        }
        let statistics = &done.statistics;
        let covered = (statistics.samples > 0)
            .then(|| statistics.samples_moved as f64 / statistics.samples as f64);
        let record = OptimizationRecord {
            candidate: 0,
            trained_with,
            measured_next: trained_with,
            after_restart: false,
            refused: None,
            layout: NewLayout {
                source: source.clone(),
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
                processes: processes.changed,
                unchanged: processes.unchanged,
                longest_pause: processes.longest_stop,
                threads: processes.threads,
                took: Nanos::from(start.elapsed()),
            },
        };
        let identity = attachment.process().identity().clone();
        let profile = Some(prepared.profile().clone());
        Ok((OptimizedServer { identity, trained_with, profile, source }, record))
    }
}

/// The samples of a profile at their addresses in the process.
fn to_samples(profile: &Profile, attachment: &Attachment) -> Result<Samples, LiveError> {
    let images = dbdyno_live::all_images(attachment.process())?;
    Ok(profile.to_samples(&images.iter().collect::<Vec<_>>()).0)
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

/// Outcomes of the processes of a server.
struct Processes {
    changed: u32,
    unchanged: Option<(u32, String)>,
    longest_stop: Nanos,
    threads: u32,
}

impl Processes {
    fn of(first: &Switched) -> Self {
        let mut all = Self { changed: 1, unchanged: None, longest_stop: Nanos::ZERO, threads: 0 };
        all.stopped(first);
        all
    }

    fn stopped(&mut self, switched: &Switched) {
        self.longest_stop = self.longest_stop.max(switched.longest_stop);
        self.threads = self.threads.max(switched.threads as u32);
    }

    fn add(&mut self, outcome: Result<MemberOutcome, LiveError>) {
        match outcome {
            Ok(joined) => {
                self.changed += 1;
                if let MemberOutcome::Switched(switched) = joined {
                    self.stopped(&switched);
                }
            }
            Err(error) => {
                let before = self.unchanged.take().map_or(0, |(count, _)| count);
                self.unchanged = Some((before + 1, error.to_string()));
            }
        }
    }
}
