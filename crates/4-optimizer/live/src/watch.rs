//! Optimizes the processes of chosen programs when they are busy, and again when their work changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use dbdyno_document::Document;
use dbdyno_machine::clock::process_cpu_of;
use dbdyno_machine::{ProcessIdentity, process_ids};
use dbdyno_relayout::{LayoutError, Options, SampleRequirement};
use dbdyno_units::{Nanos, Share, counted};
use serde::Serialize;

use crate::LiveError;
use crate::attachment::{Activation, Attachment, DEFAULT_MAX_PAUSE};
use crate::job::{Event, OptimizeJob, ProcessProfile, Supervision};
use crate::journal::{Generation, GenerationState, remove_exited};
use crate::module::{coverage, map_to_original};
use crate::optimize::OptimizeError;
use crate::process::ProbeOptions;
use crate::sample::{SamplingPlan, SamplingRequest, sample};
use crate::target::Target;

/// Which processes are optimized, and how.
#[derive(Debug)]
pub struct WatchRules {
    executables: Vec<PathBuf>,
    /// Minimum CPU usage; 1 is one CPU.
    cpu: Share,
    poll_interval: Nanos,
    profile: Nanos,
    /// Share of a busy CPU's time that sampling may take.
    max_overhead: Share,
    once: bool,
    probe: ProbeOptions,
    /// Whether executions of blocks are counted.
    count: bool,
    /// Optimize again if a smaller share of the samples is in optimized code.
    coverage: Share,
}

impl Default for WatchRules {
    fn default() -> Self {
        Self {
            executables: Vec::new(),
            cpu: Share::from_percent(50.0),
            poll_interval: Nanos::from_secs(10),
            profile: Nanos::from_secs(20),
            max_overhead: Share::from_percent(5.0),
            once: false,
            count: true,
            probe: ProbeOptions::default(),
            coverage: Share::from_percent(70.0),
        }
    }
}

impl WatchRules {
    /// Reads the text of a file of this name.
    pub fn parse(file: &str, text: &str) -> Result<Self, dbdyno_document::Problems> {
        let document = Document::parse(file, text)?;
        let mut root = document.root();
        root.require("watch");
        let percent = Share::from_percent;
        let mut rules = Self::default();
        if let Some(mut table) = root.table("watch") {
            table.require("executables");
            if let Some(list) = table.strings("executables") {
                for path in list.value.iter().filter(|path| !Path::new(path.value).is_absolute()) {
                    let message = "the path of an executable must be absolute";
                    let help = "write it in full, such as \"/usr/sbin/mariadbd\"";
                    table.problem(path.span, message, help);
                }
                rules.executables =
                    list.value.iter().map(|path| PathBuf::from(path.value)).collect();
            }
            let long = Nanos::from_millis(100)..=Nanos::from_secs(3600);
            table.set("poll_interval", long.clone(), &mut rules.poll_interval);
            table.set("profile", long, &mut rules.profile);
            table.set("max_overhead", percent(0.01)..=percent(100.0), &mut rules.max_overhead);
            table.set("cpu", percent(0.0)..=percent(100_000.0), &mut rules.cpu);
            table.set("coverage", percent(0.0)..=percent(100.0), &mut rules.coverage);
            table.set_bool("once", &mut rules.once);
            table.set_choice("counts", &[("exact", true), ("sampled", false)], &mut rules.count);
            table.set_bool("unmap", &mut rules.probe.unmap);
            table.finish();
        }
        root.finish();
        document.finish()?;
        Ok(rules)
    }
}

/// What is done with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchStage {
    Monitoring,
    Profiling,
    Optimizing,
    Optimized,
    Undone,
}

impl WatchStage {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monitoring => "monitoring",
            Self::Profiling => "profiling",
            Self::Optimizing => "optimizing",
            Self::Optimized => "optimized",
            Self::Undone => "undone",
        }
    }
}

/// What happened to a process.
#[derive(Clone, Debug, Serialize)]
pub struct WatchReport {
    pub pid: u32,
    pub state: WatchStage,
    pub what: String,
}

/// Watches processes until the time is over; `None`: forever. Errors are reported.
pub fn watch(
    rules: &WatchRules,
    state: &Path,
    time: Option<Duration>,
    supervision: Supervision<'_>,
    report: &mut dyn FnMut(&WatchReport),
    events: &mut dyn FnMut(Event<'_>),
) {
    let mut watch = Watch { rules, state, supervision, report, events };
    let poll_interval = Duration::from(rules.poll_interval);
    let start = Instant::now();
    let mut watched: BTreeMap<u32, Watched> = BTreeMap::new();
    while time.is_none_or(|time| start.elapsed() < time) {
        for pid in running(&rules.executables) {
            let Ok(identity) = ProcessIdentity::of(pid) else { continue };
            let entry = watched.entry(pid).or_insert_with(|| Watched::new(identity.clone()));
            if entry.identity != identity {
                *entry = Watched::new(identity);
            }
            if entry.refused || !entry.is_busy(rules) || entry.is_waiting() {
                continue;
            }
            match watch.process_busy(pid, entry) {
                Ok(()) => entry.failures = 0,
                Err(error) => {
                    watch.report(pid, entry.state, &with_advice(&error));
                    entry.failed(&error, poll_interval);
                }
            }
        }
        let before = watched.len();
        watched.retain(|_, entry| entry.identity.is_alive());
        if watched.len() < before {
            remove_exited(state);
        }
        let left = time.map(|time| time.saturating_sub(start.elapsed()));
        thread::sleep(left.map_or(poll_interval, |left| left.min(poll_interval)));
    }
}

fn with_advice(error: &OptimizeError) -> String {
    match error {
        OptimizeError::Layout { source: LayoutError::TooFewSamples(..), .. } => {
            format!("error: {error}; set `profile` in the rules to a longer time")
        }
        _ => format!("error: {error}"),
    }
}

struct Watched {
    identity: ProcessIdentity,
    state: WatchStage,
    /// CPU time of the process at the last poll.
    used: Option<(Nanos, Instant)>,
    /// Not retried after this, because the reason will be the same.
    refused: bool,
    /// Number of other errors since the last success, and when it is retried.
    failures: u32,
    retry_at: Option<Instant>,
}

/// An error is followed by a pause of one poll interval, which doubles with each further error, at most this often.
const MAX_DOUBLINGS: u32 = 6;

impl Watched {
    fn new(identity: ProcessIdentity) -> Self {
        Self {
            identity,
            state: WatchStage::Monitoring,
            used: None,
            refused: false,
            failures: 0,
            retry_at: None,
        }
    }

    /// After an error. Other ones than refusals may be transient, such as a server too busy to be stopped, or may
    /// repeat, such as too few samples.
    fn failed(&mut self, error: &OptimizeError, poll_interval: Duration) {
        self.state = WatchStage::Monitoring;
        self.refused = matches!(error, OptimizeError::Live(LiveError::Refused { .. }));
        let pause = poll_interval * (1 << self.failures.min(MAX_DOUBLINGS));
        self.retry_at = Some(Instant::now() + pause);
        self.failures += 1;
    }

    /// Whether the pause after an error is not over.
    fn is_waiting(&self) -> bool {
        self.retry_at.is_some_and(|at| Instant::now() < at)
    }

    /// Whether its CPU usage since the last poll exceeds the limit: its own, because only the process itself is
    /// optimized.
    fn is_busy(&mut self, rules: &WatchRules) -> bool {
        let Ok(used) = process_cpu_of(self.identity.pid) else { return false };
        let now = Instant::now();
        let before = self.used.replace((used, now));
        before.is_some_and(|(before, at)| {
            let spent = used.as_nanos().saturating_sub(before.as_nanos()) as f64;
            spent / (now - at).as_nanos().max(1) as f64 >= rules.cpu.as_fraction()
        })
    }
}

struct Watch<'a> {
    rules: &'a WatchRules,
    state: &'a Path,
    supervision: Supervision<'a>,
    report: &'a mut dyn FnMut(&WatchReport),
    events: &'a mut dyn FnMut(Event<'_>),
}

impl Watch<'_> {
    fn report(&mut self, pid: u32, state: WatchStage, what: &str) {
        (self.report)(&WatchReport { pid, state, what: what.to_owned() });
    }

    /// Samples a busy process and optimizes it if necessary.
    fn process_busy(&mut self, pid: u32, entry: &mut Watched) -> Result<(), OptimizeError> {
        let rules = self.rules;
        if entry.state == WatchStage::Optimized && rules.once {
            return Ok(());
        }
        let job = self.job(pid);
        let Some(attachment) = self.attach(&job, entry)? else { return Ok(()) };
        let is_optimized = attachment.activation()? != Activation::Inactive;
        // So that it can be undone during the sampling, which takes long.
        drop(attachment);
        let profile = Duration::from(rules.profile);
        let time = if is_optimized { profile / 4 } else { profile };
        let max_overhead = Some(rules.max_overhead);
        let request =
            SamplingRequest { time: Some(time), max_overhead, ..SamplingRequest::default() };
        let plan = SamplingPlan::new(pid, &request)?;
        if !is_optimized {
            entry.state = WatchStage::Profiling;
            self.report(pid, entry.state, &plan.announcement(pid));
        }
        let sampled = sample(pid, false, &plan.options, |_| false)?;
        let Some(attachment) = self.attach(&job, entry)? else { return Ok(()) };
        let covered = coverage(&attachment, &attachment.process().maps()?, &sampled.samples);
        if let Some(covered) = covered.filter(|_| is_optimized) {
            if covered >= rules.coverage.as_fraction() {
                entry.state = WatchStage::Optimized;
                return Ok(());
            }
            let why = format!("only {:.0}% of the samples are in optimized code", covered * 100.0);
            self.report(pid, WatchStage::Profiling, &why);
        }
        let profile = ProcessProfile::given(map_to_original(&attachment, &sampled.samples));
        entry.state = WatchStage::Optimizing;
        self.report(pid, entry.state, &counted(sampled.samples.total(), "sample"));
        let done = job.run(attachment, profile, self.supervision, self.events)?;
        if let Some(counting) = &done.counting {
            self.report(pid, entry.state, &counting.to_string());
        }
        entry.state = WatchStage::Optimized;
        self.report(pid, entry.state, &done.optimized.switched.to_string());
        Ok(())
    }

    fn job(&self, pid: u32) -> OptimizeJob {
        let required = Some(SampleRequirement::default());
        OptimizeJob {
            target: Target {
                pid,
                family: false,
                state: self.state.to_owned(),
                probe: self.rules.probe,
                max_pause: DEFAULT_MAX_PAUSE,
            },
            count: self.rules.count,
            layout: Options { required, ..Options::default() },
            symbols: true,
            ab_test: None,
        }
    }

    /// Attaches to a process, unless it is to be left alone.
    fn attach(
        &mut self,
        job: &OptimizeJob,
        entry: &mut Watched,
    ) -> Result<Option<Attachment>, LiveError> {
        let attachment = job.target.attach_to_optimize(self.events)?;
        let Some(reason) = left_alone(attachment.generations(), self.rules.once) else {
            return Ok(Some(attachment));
        };
        if reason == WatchStage::Undone && entry.state != WatchStage::Undone {
            let what = "left alone until `dbdyno live redo` or `optimize`";
            self.report(job.target.pid, reason, what);
        }
        entry.state = reason;
        Ok(None)
    }
}

/// Why a process with these generations is not optimized: somebody has undone the newest optimization, or there is
/// one and only one is allowed.
fn left_alone(generations: &[Generation], once: bool) -> Option<WatchStage> {
    let newest = generations.iter().rfind(|it| !it.counts && it.was_activated())?;
    match newest.state {
        GenerationState::Inactive => Some(WatchStage::Undone),
        _ => once.then_some(WatchStage::Optimized),
    }
}

/// Processes that run one of these programs.
fn running(executables: &[PathBuf]) -> Vec<u32> {
    // The kernel names programs without symbolic links: Debian's mysqld is a link to mariadbd.
    let resolved = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let executables: Vec<PathBuf> = executables.iter().map(resolved).collect();
    let runs_one = |pid: &u32| {
        let program = fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| executables.contains(&program))
    };
    let mut pids: Vec<u32> = process_ids().filter(runs_one).collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    use super::*;

    /// A process group, killed on drop.
    struct Group(Child);

    impl Group {
        fn start(script: &str) -> Self {
            Self(Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap())
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            // SAFETY: takes numbers; the group is that of our child, which was not waited for.
            unsafe { libc::kill(-self.0.id().cast_signed(), libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }

    #[test]
    fn process_is_left_alone_if_its_optimization_was_undone_or_is_the_only_one_allowed() {
        use GenerationState::{Active, Inactive, Preparing, Retired};
        let generation = |state, counts| Generation {
            number: 1,
            state,
            digest: (state != Preparing).then_some(7),
            counts,
            ..Generation::default()
        };
        let [undone, active, replaced] =
            [Inactive, Active, Retired].map(|it| generation(it, false));
        let unused = [generation(Retired, true), generation(Preparing, false)];
        let with = |one: &Generation| [std::slice::from_ref(one), &unused].concat();
        for (generations, reasons) in [
            (unused.to_vec(), [None, None]),
            (with(&undone), [Some(WatchStage::Undone), Some(WatchStage::Undone)]),
            (with(&active), [None, Some(WatchStage::Optimized)]),
            (with(&replaced), [None, Some(WatchStage::Optimized)]),
        ] {
            let found = [false, true].map(|once| left_alone(&generations, once));
            assert_eq!(found, reasons, "{generations:?}");
        }
    }

    #[test]
    fn executable_is_found_by_a_symbolic_link() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &link).unwrap();
        assert!(running(&[link]).contains(&std::process::id()));
    }

    #[test]
    fn relative_path_of_an_executable_is_refused() {
        let text = "[watch]\nexecutables = [\"mariadbd\"]\n";
        let error = WatchRules::parse("watch.toml", text).err().unwrap().to_string();
        assert!(error.contains("must be absolute"), "{error}");
    }

    #[test]
    fn pauses_after_errors_become_longer_and_refusals_are_final() {
        let mut watched = Watched::new(ProcessIdentity::of(std::process::id()).unwrap());
        let few = OptimizeError::Live(LiveError::Locked { pid: 1, by: None });
        let second = Duration::from_secs(1);
        let mut pause = || {
            watched.failed(&few, second);
            assert!(watched.is_waiting() && !watched.refused);
            (watched.retry_at.unwrap() - Instant::now()).as_secs_f64().round()
        };
        let pauses: Vec<f64> = (0..9).map(|_| pause()).collect();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0]);
        let reason = "it has too much new code".to_owned();
        watched.failed(&LiveError::Refused { pid: 1, reason }.into(), second);
        assert!(watched.refused);
    }

    #[test]
    fn process_is_not_busy_because_of_its_children() {
        const BUSY: &str = "while :; do :; done";
        let both = [Group::start(&format!("({BUSY}) & wait")), Group::start(BUSY)];
        let identity = |group: &Group| ProcessIdentity::of(group.0.id()).unwrap();
        let mut watched = both.each_ref().map(|group| Watched::new(identity(group)));
        let rules = WatchRules { cpu: Share::from_percent(5.0), ..WatchRules::default() };
        // Nothing is known at first; then they start, and on a busy machine not at once.
        let found = (0..300).map(|_| {
            thread::sleep(Duration::from_millis(200));
            watched.each_mut().map(|it| it.is_busy(&rules))
        });
        assert_eq!(found.skip(2).find(|it| it[1]), Some([false, true]));
    }
}
