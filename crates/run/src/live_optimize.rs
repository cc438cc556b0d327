//! The live optimizer on a run's own servers: sampled under load, laid out anew, and again should
//! a server be started again.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dbdyno_live::{
    Attachment, Identity, LiveError, MemberOutcome, OptimizeError, ProbeOptions, Process,
    SampleSource, Sampled, SamplingOptions, Switched, descendants, map_to_original,
    optimize_descendants, retry_while_busy, sample,
};
use dbdyno_record::server::ServerSystem;
use dbdyno_relayout::{Profile, Samples};
use dbdyno_results::{NewLayout, OptimizationRecord};
use dbdyno_spec::experiment::{Live, PrivateServer};
use dbdyno_units::{Bytes, Nanos, Share};

/// The slices end the sampling; this is for a thread that nobody tells.
const LONGEST_SAMPLING: Duration = Duration::from_secs(24 * 3600);

/// What it takes to optimize a server.
#[derive(Clone, Debug)]
pub(crate) struct Optimizer<'a> {
    /// The server's first process.
    pub pid: u32,
    /// Whether its sessions are processes of their own.
    pub family: bool,
    /// How it is treated.
    pub live: &'a Live,
    /// Where journals are kept.
    pub state: PathBuf,
}

/// What a server has, as long as it lives.
#[derive(Clone, Debug)]
pub(crate) struct OptimizedServer {
    /// Which process.
    identity: Identity,
    /// The microbenchmark that it was sampled with.
    pub trained_with: u32,
    /// For another process of the same program.
    profile: Profile,
    /// Where that came from.
    source: String,
}

/// A server that is sampled until it is told to stop.
#[derive(Debug)]
pub(crate) struct Sampler {
    pid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Sampled, LiveError>>>,
}

impl Sampler {
    /// Starts.
    pub fn start(optimizer: &Optimizer<'_>) -> Self {
        let Optimizer { pid, family, live, .. } = *optimizer;
        let sampling = SamplingOptions { time: LONGEST_SAMPLING, frequency: live.frequency };
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let until = move |_| told.load(Ordering::Relaxed);
        let thread = Some(thread::spawn(move || sample(pid, family, &sampling, until)));
        Self { pid, stop, thread }
    }

    /// The server's first process.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops, and says what was found.
    pub fn finish(mut self) -> Result<Sampled, String> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or("it was never sampled")?;
        match thread.join() {
            Ok(sampled) => sampled.map_err(|error| error.to_string()),
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
    /// Whether that process still runs.
    pub fn is_in_force(&self) -> bool {
        self.identity.is_alive()
    }
}

impl<'a> Optimizer<'a> {
    /// For the server of a candidate.
    pub fn of(server: &PrivateServer, live: &'a Live, pid: u32, state: PathBuf) -> Self {
        Self { pid, family: server.system == ServerSystem::PostgreSql, live, state }
    }

    /// Optimizes by what was sampled.
    pub fn optimize(
        &self,
        sampled: &Sampled,
        trained_with: u32,
    ) -> Result<(OptimizedServer, OptimizationRecord), String> {
        let source = source_name(sampled.source).to_owned();
        self.with(source, trained_with, |attachment| {
            Ok(map_to_original(attachment, &sampled.samples))
        })
    }

    /// Optimizes by samples that are kept, those of the candidate of this name.
    pub fn optimize_by(
        &self,
        profile: &Profile,
        name: &str,
        trained_with: u32,
    ) -> Result<(OptimizedServer, OptimizationRecord), String> {
        self.with(format!("those of {name}"), trained_with, |attachment| {
            all_of(profile, attachment)
        })
    }

    /// Optimizes by what an earlier process was sampled at.
    pub fn optimize_again(
        &self,
        optimized: &OptimizedServer,
    ) -> Result<(OptimizedServer, OptimizationRecord), String> {
        let samples = |attachment: &Attachment| all_of(&optimized.profile, attachment);
        let (optimized, record) =
            self.with(optimized.source.clone(), optimized.trained_with, samples)?;
        Ok((optimized, OptimizationRecord { after_restart: true, ..record }))
    }

    fn with(
        &self,
        source: String,
        trained_with: u32,
        samples: impl Fn(&Attachment) -> Result<Samples, LiveError>,
    ) -> Result<(OptimizedServer, OptimizationRecord), String> {
        let start = Instant::now();
        let said = |error: &dyn Display| error.to_string();
        let max_pause = Duration::from(self.live.max_pause);
        let process = Process::open(self.pid, ProbeOptions::default()).map_err(|e| said(&e))?;
        let mut attachment =
            Attachment::open(process, &self.state, max_pause).map_err(|e| said(&e))?;
        if self.family {
            attachment.share_with(descendants(self.pid));
        }
        let samples = samples(&attachment).map_err(|e| said(&e))?;
        let options = dbdyno_relayout::Options {
            reorder_blocks: !self.live.keep_order,
            reorder_functions: !self.live.keep_order,
            ..Default::default()
        };
        let (done, prepared) = retry_while_busy(
            || dbdyno_live::optimize(&mut attachment, &samples, &options, |_| ()),
            OptimizeError::is_transient,
        )
        .0
        .map_err(|e| said(&e))?;
        let mut processes = Processes::of(&done.switched);
        if self.family {
            let each = |_, outcome| processes.add(outcome);
            let probe = ProbeOptions::default();
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
            layout: NewLayout {
                source: source.clone(),
                samples: statistics.samples,
                covered: covered.map(Share::from_fraction),
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
        let profile = prepared.profile().clone();
        Ok((OptimizedServer { identity, trained_with, profile, source }, record))
    }
}

/// The samples of a profile, where the process has them.
fn all_of(profile: &Profile, attachment: &Attachment) -> Result<Samples, LiveError> {
    let images = dbdyno_live::all_images(attachment.process())?;
    Ok(profile.to_samples(&images.iter().collect::<Vec<_>>()).0)
}

const fn source_name(source: SampleSource) -> &'static str {
    match source {
        SampleSource::Branches => "branches",
        SampleSource::Cycles => "cycles",
        SampleSource::Clock => "clock",
    }
}

/// What became of a server's processes.
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
