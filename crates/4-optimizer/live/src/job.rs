//! The job of the live optimizer: sample, count, lay out, switch, compare, keep or undo. Commands, `watch`,
//! experiments and benchmarks run it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dbdyno_machine::OwnUsage;
use dbdyno_relayout::{Options, Profile, Samples, TooFewSamples};
use dbdyno_units::Nanos;
use serde::Serialize;

use crate::ab_test::{AbTest, Effect};
use crate::attachment::Attachment;
use crate::count::{CountingGuard, CountingOptions, CountingReport, count, plan_counting};
use crate::module::{all_images, map_to_original};
use crate::optimize::{OptimizeError, Optimized, PlannedOptimization, optimize, plan};
use crate::process::{Process, retry_while_busy};
use crate::replace::Switched;
use crate::sample::{
    SampleSource, Sampled, SamplingOptions, SamplingPlan, SamplingRequest, sample,
};
use crate::target::{Member, MemberOutcome, Target, descendants, optimize_descendants};
use crate::{LiveError, symbols};

/// What a job does now, for progress.
#[derive(Debug)]
pub enum Event<'a> {
    /// An interrupted dbdyno counted executions in this process; the original code is active now.
    CountingEnded {
        pid: u32,
    },
    Sampling {
        pid: u32,
        plan: &'a SamplingPlan,
    },
    /// Sampling starts again, because executions were not counted.
    SamplingLonger {
        pid: u32,
        time: Duration,
        /// Why they were not counted.
        reason: &'a str,
    },
    Sampled {
        plan: &'a SamplingPlan,
        sampled: &'a Sampled,
    },
    /// Samples of a file that the process has not loaded.
    Unmatched {
        module: &'a str,
    },
    Counting,
    /// A step of the layout starts.
    Step(&'a str),
    /// The A/B test starts, and takes this time.
    AbTest(Duration),
    /// Sampling or the A/B test goes on, and takes this time in all.
    TimePasses(Duration),
}

pub type Events<'a> = &'a mut dyn FnMut(Event<'_>);

/// One optimization of a process.
#[derive(Clone, Debug)]
pub struct OptimizeJob {
    pub target: Target,
    /// Whether the executions of blocks are counted first. They are not for several processes.
    pub count: bool,
    pub layout: Options,
    /// Whether symbols of the new code are written for `perf` and debuggers.
    pub symbols: bool,
    pub ab_test: Option<AbTest>,
}

/// A command that starts the guard of the counting: see [`CountingGuard`].
pub type GuardCommand<'a> = &'a dyn Fn(&Target) -> io::Result<Command>;

/// What ends a job early, and what ends the counting if dbdyno is killed.
#[derive(Clone, Copy)]
pub struct Supervision<'a> {
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// `None`: somebody else ends the counting.
    pub guard: Option<GuardCommand<'a>>,
}

impl Supervision<'_> {
    /// A job that is never cancelled, in a program without a guard.
    pub const NONE: Self = Self { is_cancelled: &|| false, guard: None };
}

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub pid: u32,
    pub profile: ProfileReport,
    /// How executions were counted; `None` if that was not requested.
    pub counting: Option<CountingReport>,
    pub optimized: Optimized,
    /// Script with the symbols of the new code for gdb.
    pub gdb: Option<PathBuf>,
    /// The result of the A/B test; `None` if it was not requested.
    pub effect: Option<Effect>,
    pub own_cost: OwnUsage,
    /// The descendants. They have outcomes of their own.
    #[serde(skip)]
    pub members: Vec<Member>,
    /// The samples, for another process of the same program.
    #[serde(skip)]
    pub reusable_profile: Profile,
    /// Duration of everything after the counting, without the A/B test.
    #[serde(skip)]
    pub took: Nanos,
    /// Number of times the process was too busy to be stopped.
    #[serde(skip)]
    pub retries: u32,
}

impl Outcome {
    /// Whether a requested A/B test failed, or practically nothing was changed, in one of the processes.
    pub fn has_failed(&self) -> bool {
        self.all_switched().any(Switched::is_ineffective)
            || self.effect.as_ref().is_some_and(|effect| !effect.errors.is_empty())
    }

    /// The switch of each process that was switched.
    fn all_switched(&self) -> impl Iterator<Item = &Switched> {
        let members = self.members.iter().filter_map(|member| match &member.outcome {
            MemberOutcome::Switched(switched) => Some(switched),
            MemberOutcome::Inherited | MemberOutcome::Error(_) => None,
        });
        std::iter::once(&self.optimized.switched).chain(members)
    }

    /// The descendants that have the new code.
    pub fn changed_members(&self) -> Vec<u32> {
        changed(&self.members)
    }

    /// Number of descendants that could not be changed, and the error of the last one.
    pub fn failed_members(&self) -> Option<(u32, &str)> {
        let failed = self.members.iter().filter_map(|member| match &member.outcome {
            MemberOutcome::Error(error) => Some(error.as_str()),
            MemberOutcome::Inherited | MemberOutcome::Switched(_) => None,
        });
        failed.zip(1..).last().map(|(error, count)| (count, error))
    }

    /// The longest stop of a process, and the largest number of stopped threads.
    pub fn largest_stop(&self) -> (Nanos, usize) {
        self.all_switched().fold((Nanos::ZERO, 0), |(longest, threads), one| {
            (longest.max(one.longest_stop), threads.max(one.threads))
        })
    }
}

fn changed(members: &[Member]) -> Vec<u32> {
    let is_changed = |member: &&Member| !matches!(member.outcome, MemberOutcome::Error(_));
    members.iter().filter(is_changed).map(|member| member.pid).collect()
}

#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    pub pid: u32,
    /// Always true, to tell it from an [`Outcome`].
    pub dry_run: bool,
    pub profile: ProfileReport,
    pub planned: PlannedOptimization,
    /// Whether executions would be counted; `None` if that was not requested.
    pub counting: Option<PlannedCounting>,
    /// Why the process would not be optimized.
    #[serde(serialize_with = "as_text")]
    pub refused: Option<TooFewSamples>,
}

/// What is known of the counting without a change of the process.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedCounting {
    /// Why executions would not be counted.
    pub fallback: Option<String>,
    /// Why the process would not be optimized if the counting turned out to be impossible or too expensive.
    #[serde(serialize_with = "as_text")]
    pub refused_without: Option<TooFewSamples>,
    /// How much longer the process would be sampled then.
    #[serde(skip)]
    pub prolonged_without: Duration,
}

fn as_text<S: serde::Serializer>(
    reason: &Option<TooFewSamples>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    reason.map(|reason| reason.to_string()).serialize(serializer)
}

const OF_FAMILY: &str = "the executions of several processes cannot be counted (--family)";

/// Optimizes a process by these samples in its original code, without symbols, a guard and events.
pub fn optimize_by_samples(
    target: &Target,
    layout: Options,
    samples: impl FnOnce(&Attachment) -> Result<Samples, LiveError>,
) -> Result<Outcome, OptimizeError> {
    let attachment = target.attach()?;
    let profile = ProcessProfile::given(samples(&attachment)?);
    let target = target.clone();
    let job = OptimizeJob { target, count: false, layout, symbols: false, ab_test: None };
    job.run(attachment, profile, Supervision::NONE, &mut |_| ())
}

impl OptimizeJob {
    /// Attaches to the process, and checks what would end the job after the sampling, which takes long. Ends counting
    /// that an interrupted dbdyno left active.
    pub fn attach(&self, events: Events<'_>) -> Result<Attachment, LiveError> {
        let attachment = self.target.attach_to_optimize(events)?;
        attachment.check_filters()?;
        if let Some(test) = &self.ab_test {
            test.work.count()?;
        }
        Ok(attachment)
    }

    /// Optimizes the process with this profile.
    ///
    /// # Errors
    /// In case of an error, nothing was changed, unless the error says otherwise.
    pub fn run(
        &self,
        mut attachment: Attachment,
        mut profile: ProcessProfile,
        supervision: Supervision<'_>,
        events: Events<'_>,
    ) -> Result<Outcome, OptimizeError> {
        let target = &self.target;
        if target.family {
            attachment.share_with(descendants(target.pid));
        }
        let counting = self.count(&mut attachment, &mut profile, supervision, events)?;
        let start = Instant::now();
        let earlier = descendants(target.pid);
        let replaced = attachment.active_number();
        let mut is_first = true;
        let (done, retries) = retry_while_busy(
            || {
                let report = std::mem::take(&mut is_first);
                let step = |step: &str| {
                    if report {
                        events(Event::Step(step))
                    }
                };
                optimize(&mut attachment, &profile.samples, &self.layout, step)
            },
            OptimizeError::is_transient,
        );
        let (optimized, prepared) = done.inspect_err(|_| {
            // The code that no thread has entered. If that fails, the next optimization frees it.
            let _ = attachment.free_never_active();
        })?;
        if self.symbols {
            prepared.write_symbols(&attachment);
        }
        if self.ab_test.is_none() && (supervision.is_cancelled)() {
            attachment.restore(replaced)?;
            return Err(OptimizeError::Cancelled);
        }
        let gdb = symbols::gdb_script(&target.state, attachment.process().identity());
        drop(attachment);
        let members =
            if target.family { optimize_descendants(target, &prepared) } else { Vec::new() };
        let took = start.elapsed().into();
        let effect = self.ab_test.as_ref().map(|test| {
            events(Event::AbTest(test.time));
            let is_cancelled = || {
                events(Event::TimePasses(test.time));
                (supervision.is_cancelled)()
            };
            let group = || Ok(target.attach_group(&changed(&members))?.excluding(&earlier));
            test.effect(group, is_cancelled)
        });
        Ok(Outcome {
            pid: target.pid,
            profile: profile.report(),
            counting,
            optimized,
            gdb,
            effect,
            own_cost: OwnUsage::now(),
            members,
            reusable_profile: prepared.profile().clone(),
            took,
            retries,
        })
    }

    /// Adds exact counts to the profile, if they are requested. If they are impossible, the process is sampled longer.
    fn count(
        &self,
        attachment: &mut Attachment,
        profile: &mut ProcessProfile,
        supervision: Supervision<'_>,
        events: Events<'_>,
    ) -> Result<Option<CountingReport>, OptimizeError> {
        let Supervision { is_cancelled, guard } = supervision;
        let target = &self.target;
        let report = match (self.count, target.family) {
            (false, _) => return Ok(None),
            (true, true) => {
                CountingReport { fallback: Some(OF_FAMILY.to_owned()), ..CountingReport::default() }
            }
            (true, false) => {
                events(Event::Counting);
                let guard = guard.map(|guard| CountingGuard::start(guard(target)?)).transpose();
                let starting = "starting the guard of the counting in";
                let guard = guard.map_err(LiveError::system(starting, target.pid))?;
                let options = CountingOptions::default();
                let counted =
                    count(attachment, &profile.samples, &self.layout, &options, is_cancelled);
                match &counted {
                    Ok(_) | Err(OptimizeError::Live(LiveError::Exited { .. })) => drop(guard),
                    // The code that counts may be active. The caller releases the process.
                    Err(_) => guard.into_iter().for_each(CountingGuard::act),
                }
                let counted = counted?;
                profile.samples = counted.samples;
                counted.report
            }
        };
        if let Some(reason) = &report.fallback
            && !is_cancelled()
        {
            profile.prolong(attachment, reason, is_cancelled, events)?;
        }
        if is_cancelled() { Err(OptimizeError::Cancelled) } else { Ok(Some(report)) }
    }

    /// Attaches to the process for [`OptimizeJob::plan`], without a change.
    pub fn attach_unchanged(&self) -> Result<Attachment, LiveError> {
        let Target { pid, state, probe, max_pause, .. } = &self.target;
        let process = Process::open(*pid, *probe)?;
        let attachment = Attachment::open_unchanged(process, state, *max_pause)?;
        attachment.check_threads()?;
        // Stops a thread for a moment, if there are filters.
        attachment.check_filters()?;
        Ok(attachment)
    }

    /// Plans the optimization without changing the process, also if the samples are too few. Decides as
    /// [`OptimizeJob::run`] does: if executions cannot be counted, the process is sampled longer.
    ///
    /// # Errors
    /// As those of [`OptimizeJob::run`] before the first change.
    pub fn plan(
        &self,
        mut attachment: Attachment,
        profile: &mut ProcessProfile,
        events: Events<'_>,
    ) -> Result<DryRun, OptimizeError> {
        if self.target.family {
            attachment.share_with(descendants(self.target.pid));
        }
        let counted = match (self.count, self.target.family) {
            (false, _) => None,
            (true, true) => Some(Err(OF_FAMILY.to_owned())),
            (true, false) => Some(plan_counting(&attachment, &profile.samples, &self.layout)?),
        };
        if let Some(Err(reason)) = &counted {
            profile.prolong(&attachment, reason, || false, events)?;
        }
        let layout = Options { required: None, ..self.layout.clone() };
        let planned = plan(&attachment, &profile.samples, &layout)?;
        let check = |precision| self.layout.required.and_then(|it| it.check(precision).err());
        let of_samples = check(&planned.code.statistics.precision);
        let refused = match &counted {
            Some(Ok(precision)) => check(precision),
            _ => of_samples,
        };
        let counting = counted.map(|counted| PlannedCounting {
            refused_without: of_samples.filter(|_| counted.is_ok()),
            fallback: counted.err(),
            prolonged_without: profile.prolonged_without_counts(),
        });
        Ok(DryRun {
            pid: self.target.pid,
            dry_run: true,
            profile: profile.report(),
            planned,
            counting,
            refused,
        })
    }
}

/// Samples in original code, and where they are from.
#[derive(Clone, Debug)]
pub struct ProcessProfile {
    pub samples: Samples,
    source: ProfileSource,
}

#[derive(Clone, Debug)]
enum ProfileSource {
    /// The caller.
    Given,
    File {
        file: PathBuf,
        unused: Vec<String>,
    },
    /// The process, sampled once or more.
    Process {
        plan: SamplingPlan,
        taken: Vec<(Duration, Sampled)>,
    },
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ProfileReport {
    Given {
        samples: u64,
    },
    File {
        file: PathBuf,
        samples: u64,
        /// Files of the profile that the process has not loaded.
        unused: Vec<String>,
    },
    Process {
        source: SampleSource,
        samples: u64,
        lost: u64,
        seconds: f64,
        frequency: u32,
        final_frequency: u32,
        per_sample_ns: u64,
        /// Share of a busy CPU's time, 0 to 1.
        expected_overhead: f64,
        overhead: Option<f64>,
    },
}

impl ProcessProfile {
    /// These samples, which are in original code.
    pub const fn given(samples: Samples) -> Self {
        Self { samples, source: ProfileSource::Given }
    }

    /// The samples of another process with the same files. `file` is where they were stored.
    pub fn of_file(
        attachment: &Attachment,
        profile: &Profile,
        file: &Path,
        events: Events<'_>,
    ) -> Result<Self, LiveError> {
        let all = all_images(attachment.process())?;
        let (samples, unused) = profile.to_samples(&all.iter().collect::<Vec<_>>());
        for module in &unused {
            events(Event::Unmatched { module });
        }
        let file = file.to_owned();
        Ok(Self { samples, source: ProfileSource::File { file, unused } })
    }

    /// Samples the process; with `family`, also its descendants.
    pub fn sample(
        attachment: &Attachment,
        family: bool,
        request: &SamplingRequest,
        events: Events<'_>,
    ) -> Result<Self, LiveError> {
        let pid = attachment.process().pid();
        let plan = SamplingPlan::new(pid, request)?;
        events(Event::Sampling { pid, plan: &plan });
        let time = plan.options.time;
        let sampled = sample(pid, family, &plan.options, |_| {
            events(Event::TimePasses(time));
            false
        })?;
        events(Event::Sampled { plan: &plan, sampled: &sampled });
        let samples = map_to_original(attachment, &sampled.samples);
        let source = ProfileSource::Process { plan, taken: vec![(time, sampled)] };
        Ok(Self { samples, source })
    }

    /// How much longer the process is sampled if its executions cannot be counted.
    fn prolonged_without_counts(&self) -> Duration {
        match &self.source {
            ProfileSource::Given | ProfileSource::File { .. } => Duration::ZERO,
            ProfileSource::Process { plan, .. } => plan.prolonged_without_counts,
        }
    }

    /// Samples the process longer, because its executions could not be counted for this reason, until `is_cancelled`.
    /// Does nothing with samples that are not from the process, or if the user chose the duration.
    pub(crate) fn prolong(
        &mut self,
        attachment: &Attachment,
        reason: &str,
        is_cancelled: impl Fn() -> bool,
        events: Events<'_>,
    ) -> Result<(), LiveError> {
        let ProfileSource::Process { plan, taken } = &mut self.source else { return Ok(()) };
        let time = plan.prolonged_without_counts;
        if time.is_zero() {
            return Ok(());
        }
        let pid = attachment.process().pid();
        events(Event::SamplingLonger { pid, time, reason });
        let frequency = taken.last().map_or(plan.options.frequency, |(_, last)| last.frequency);
        let options = SamplingOptions { time, frequency, ..plan.options };
        let sampled = sample(pid, false, &options, |_| {
            events(Event::TimePasses(time));
            is_cancelled()
        })?;
        events(Event::Sampled { plan, sampled: &sampled });
        self.samples.add_all(&map_to_original(attachment, &sampled.samples));
        taken.push((time, sampled));
        Ok(())
    }

    pub fn report(&self) -> ProfileReport {
        let samples = self.samples.total();
        let (plan, taken) = match &self.source {
            ProfileSource::Given => return ProfileReport::Given { samples },
            ProfileSource::File { file, unused } => {
                let (file, unused) = (file.clone(), unused.clone());
                return ProfileReport::File { file, samples, unused };
            }
            ProfileSource::Process { plan, taken } => (plan, taken),
        };
        let last = taken.last().map(|(_, sampled)| sampled);
        let sum = |of: fn(&Sampled) -> u64| taken.iter().map(|(_, it)| of(it)).sum::<u64>();
        ProfileReport::Process {
            source: last.map_or(plan.source, |it| it.source),
            samples: sum(|it| it.samples.total()),
            lost: sum(|it| it.lost),
            seconds: taken.iter().map(|(time, _)| time.as_secs_f64()).sum(),
            frequency: plan.options.frequency,
            final_frequency: last.map_or(plan.options.frequency, |it| it.frequency),
            per_sample_ns: plan.cost.per_sample.as_nanos(),
            expected_overhead: plan.overhead().as_fraction(),
            overhead: last.and_then(|it| it.overhead).map(|share| share.as_fraction()),
        }
    }
}
