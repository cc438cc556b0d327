//! `dbdyno live watch`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_document::{Document, Problem, Spanned};
use dbdyno_live::{
    Activation, Attachment, DEFAULT_MAX_PAUSE, Generation, GenerationState, LiveError,
    ProbeOptions, SamplingPlan, SamplingRequest, coverage, map_to_original, sample,
};
use dbdyno_machine::ProcessIdentity;
use dbdyno_machine::clock::process_cpu_of;
use dbdyno_relayout::{Options, SampleRequirement};
use dbdyno_spec::experiment::Counts;
use dbdyno_units::{Nanos, Share};
use serde_json::json;

use super::Session;
use super::counting::{CountingRequest, with_counts};
use crate::args::Watch;
use crate::error::CliError;
use crate::output;

/// The rules file.
struct Rules {
    executables: Vec<PathBuf>,
    /// Minimum CPU usage; 1 is one CPU.
    cpu: f64,
    poll_interval: Duration,
    profile: Duration,
    /// Share of a busy CPU's time that sampling may take.
    max_overhead: Share,
    once: bool,
    probe: ProbeOptions,
    /// Source of the executions of blocks.
    counts: Counts,
    /// Optimize again if a smaller share of the samples is in optimized code.
    coverage: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            executables: Vec::new(),
            cpu: 0.5,
            poll_interval: Duration::from_secs(10),
            profile: Duration::from_secs(20),
            max_overhead: Share::from_percent(5.0),
            once: false,
            counts: Counts::Exact,
            probe: ProbeOptions::default(),
            coverage: 0.7,
        }
    }
}

/// A watched process.
struct Watched {
    identity: ProcessIdentity,
    state: Stage,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Monitoring,
    Profiling,
    Optimizing,
    Optimized,
    Undone,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Monitoring => "monitoring",
            Self::Profiling => "profiling",
            Self::Optimizing => "optimizing",
            Self::Optimized => "optimized",
            Self::Undone => "undone",
        }
    }
}

pub(super) fn watch(session: &Session, args: &Watch) -> Result<ExitCode, CliError> {
    let rules = read(&args.file)?;
    let start = Instant::now();
    let mut watched: BTreeMap<u32, Watched> = BTreeMap::new();
    let end = args.seconds.map(Duration::from_secs);
    while end.is_none_or(|end| start.elapsed() < end) {
        for pid in running(&rules.executables) {
            let Ok(identity) = ProcessIdentity::of(pid) else { continue };
            let entry = watched.entry(pid).or_insert_with(|| Watched::new(identity.clone()));
            if entry.identity != identity {
                *entry = Watched::new(identity);
            }
            if entry.refused || !entry.is_busy(&rules) || entry.is_waiting() {
                continue;
            }
            match process_busy(session, pid, entry, &rules) {
                Ok(()) => entry.failures = 0,
                Err(error) => {
                    report(session, pid, entry.state, &error.to_string());
                    entry.failed(&error, rules.poll_interval);
                }
            }
        }
        watched.retain(|_, entry| entry.identity.is_alive());
        let left = end.map(|end| end.saturating_sub(start.elapsed()));
        thread::sleep(left.map_or(rules.poll_interval, |left| left.min(rules.poll_interval)));
    }
    Ok(ExitCode::SUCCESS)
}

impl Watched {
    fn new(identity: ProcessIdentity) -> Self {
        Self {
            identity,
            state: Stage::Monitoring,
            used: None,
            refused: false,
            failures: 0,
            retry_at: None,
        }
    }

    /// After an error. Other ones than refusals may be transient, such as a server too busy to be stopped, or may
    /// repeat, such as too few samples.
    fn failed(&mut self, error: &CliError, poll_interval: Duration) {
        self.state = Stage::Monitoring;
        self.refused = matches!(error, CliError::Live(LiveError::Refused { .. }));
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
    fn is_busy(&mut self, rules: &Rules) -> bool {
        let Ok(used) = process_cpu_of(self.identity.pid) else { return false };
        let now = Instant::now();
        let before = self.used.replace((used, now));
        before.is_some_and(|(before, at)| {
            let spent = used.as_nanos().saturating_sub(before.as_nanos()) as f64;
            spent / (now - at).as_nanos().max(1) as f64 >= rules.cpu
        })
    }
}

/// Samples a busy process and optimizes it if necessary.
fn process_busy(
    session: &Session,
    pid: u32,
    entry: &mut Watched,
    rules: &Rules,
) -> Result<(), CliError> {
    if entry.state == Stage::Optimized && rules.once {
        return Ok(());
    }
    let Some(attachment) = attach(session, pid, entry, rules)? else { return Ok(()) };
    let is_optimized = attachment.activation()? != Activation::Inactive;
    // So that it can be undone during the sampling, which takes long.
    drop(attachment);
    let time = if is_optimized { rules.profile / 4 } else { rules.profile };
    let max_overhead = Some(rules.max_overhead);
    let request = SamplingRequest { time: Some(time), max_overhead, ..SamplingRequest::default() };
    let plan = SamplingPlan::new(pid, &request)?;
    if !is_optimized {
        entry.state = Stage::Profiling;
        report(session, pid, entry.state, &super::profile::announced(pid, &plan));
    }
    let sampled = sample(pid, false, &plan.options, |_| false)?;
    let Some(mut attachment) = attach(session, pid, entry, rules)? else { return Ok(()) };
    let covered = coverage(&attachment, &attachment.process().maps()?, &sampled.samples);
    if let Some(covered) = covered.filter(|_| is_optimized) {
        if covered >= rules.coverage {
            entry.state = Stage::Optimized;
            return Ok(());
        }
        let why = format!("only {:.0}% of the samples are in optimized code", covered * 100.0);
        report(session, pid, Stage::Profiling, &why);
    }
    let samples = map_to_original(&attachment, &sampled.samples);
    entry.state = Stage::Optimizing;
    report(session, pid, entry.state, &format!("{} samples", sampled.samples.total()));
    let required = Some(SampleRequirement::default());
    let options = Options { required, ..Options::default() };
    let family = false;
    let request = CountingRequest { counts: rules.counts, family, max_pause: DEFAULT_MAX_PAUSE };
    let (samples, counting) =
        with_counts(session, &mut attachment, samples, &options, &request, || false)?;
    if let Some(counting) = &counting {
        report(session, pid, entry.state, &super::counting::text(counting));
    }
    let advice = |_: &_| "set `profile` in the rules to a longer time".to_owned();
    let (done, _) = super::optimize::run(&mut attachment, &samples, &options)
        .map_err(|error| super::optimize::failed(error, advice))?;
    entry.state = Stage::Optimized;
    report(session, pid, entry.state, &super::text::switched(&done.switched));
    Ok(())
}

/// Attaches to a process, unless it is to be left alone.
fn attach(
    session: &Session,
    pid: u32,
    entry: &mut Watched,
    rules: &Rules,
) -> Result<Option<Attachment>, CliError> {
    let attachment = session.attach_to_optimize(pid, rules.probe, DEFAULT_MAX_PAUSE)?;
    let Some(reason) = left_alone(attachment.generations(), rules.once) else {
        return Ok(Some(attachment));
    };
    if reason == Stage::Undone && entry.state != Stage::Undone {
        report(session, pid, reason, "left alone until `dbdyno live redo` or `optimize`");
    }
    entry.state = reason;
    Ok(None)
}

/// Why a process with these generations is not optimized: somebody has undone the newest optimization, or there is
/// one and only one is allowed.
fn left_alone(generations: &[Generation], once: bool) -> Option<Stage> {
    let newest = generations.iter().rfind(|it| !it.counts && it.was_activated())?;
    match newest.state {
        GenerationState::Inactive => Some(Stage::Undone),
        _ => once.then_some(Stage::Optimized),
    }
}

fn report(session: &Session, pid: u32, stage: Stage, what: &str) {
    let value = json!({ "pid": pid, "state": stage.name(), "what": what });
    let rest = if what.is_empty() { String::new() } else { format!(": {what}") };
    if session.json {
        output::print_json(&format!("{value}\n"));
    } else {
        output::print(&format!("Process {pid}: {}{rest}\n", stage.name()));
    }
}

/// Processes that run one of these programs.
fn running(executables: &[PathBuf]) -> Vec<u32> {
    // The kernel names programs without symbolic links: Debian's mysqld is a link to mariadbd.
    let resolved = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let executables: Vec<PathBuf> = executables.iter().map(resolved).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids
        .filter(|pid| {
            let program = fs::read_link(format!("/proc/{pid}/exe"));
            program.is_ok_and(|program| executables.contains(&program))
        })
        .collect();
    pids.sort_unstable();
    pids
}

fn read(path: &Path) -> Result<Rules, CliError> {
    let text = fs::read_to_string(path)
        .map_err(|source| CliError::Read { path: path.to_owned(), source })?;
    let problems = |problems: dbdyno_document::Problems| CliError::Experiment(problems.to_string());
    let document = Document::parse(&path.display().to_string(), &text).map_err(problems)?;
    let mut root = document.root();
    root.require("watch");
    let percent = Share::from_percent;
    let mut rules = Rules::default();
    if let Some(mut table) = root.table("watch") {
        table.require("executables");
        if let Some(list) = table.strings("executables") {
            for path in list.value.iter().filter(|path| !Path::new(path.value).is_absolute()) {
                let problem = Problem::new(path.span, "the path of an executable must be absolute");
                table.report(problem.help("write it in full, such as \"/usr/sbin/mariadbd\""));
            }
            rules.executables = list.value.iter().map(|path| PathBuf::from(path.value)).collect();
        }
        let long = Nanos::from_millis(100)..=Nanos::from_secs(3600);
        if let Some(Spanned { value, .. }) = table.duration("poll_interval", long.clone()) {
            rules.poll_interval = value.into();
        }
        if let Some(Spanned { value, .. }) = table.duration("profile", long) {
            rules.profile = value.into();
        }
        let budget = percent(0.01)..=percent(100.0);
        if let Some(Spanned { value, .. }) = table.share("max_overhead", budget) {
            rules.max_overhead = value;
        }
        if let Some(Spanned { value, .. }) = table.share("cpu", percent(0.0)..=percent(100_000.0)) {
            rules.cpu = value.as_fraction();
        }
        if let Some(Spanned { value, .. }) = table.share("coverage", percent(0.0)..=percent(100.0))
        {
            rules.coverage = value.as_fraction();
        }
        if let Some(Spanned { value, .. }) = table.bool("once") {
            rules.once = value;
        }
        if let Some(Spanned { value, .. }) = table.choice("counts", &Counts::NAMES) {
            rules.counts = value;
        }
        if let Some(Spanned { value, .. }) = table.bool("unmap") {
            rules.probe.unmap = value;
        }
        table.finish();
    }
    root.finish();
    document.finish().map_err(problems)?;
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    use dbdyno_live::PatchList;

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
            made: 0,
            state,
            areas: vec![],
            entries: PatchList::default(),
            mappings: vec![],
            exits: PatchList::default(),
            frames: vec![],
            digest: (state != Preparing).then_some(7),
            counts,
        };
        let [undone, active, replaced] =
            [Inactive, Active, Retired].map(|it| generation(it, false));
        let unused = [generation(Retired, true), generation(Preparing, false)];
        let with = |one: &Generation| [std::slice::from_ref(one), &unused].concat();
        for (generations, reasons) in [
            (unused.to_vec(), [None, None]),
            (with(&undone), [Some(Stage::Undone), Some(Stage::Undone)]),
            (with(&active), [None, Some(Stage::Optimized)]),
            (with(&replaced), [None, Some(Stage::Optimized)]),
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
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("watch.toml");
        fs::write(&file, "[watch]\nexecutables = [\"mariadbd\"]\n").unwrap();
        let error = read(&file).err().unwrap().to_string();
        assert!(error.contains("must be absolute"), "{error}");
    }

    #[test]
    fn pauses_after_errors_become_longer_and_refusals_are_final() {
        let mut watched = Watched::new(ProcessIdentity::of(std::process::id()).unwrap());
        let few = CliError::Other("too few samples".to_owned());
        let second = Duration::from_secs(1);
        let mut pause = || {
            watched.failed(&few, second);
            assert!(watched.is_waiting() && !watched.refused);
            (watched.retry_at.unwrap() - Instant::now()).as_secs_f64().round()
        };
        let pauses: Vec<f64> = (0..9).map(|_| pause()).collect();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0]);
        let reason = "it has too much new code".to_owned();
        watched.failed(&CliError::Live(LiveError::Refused { pid: 1, reason }), second);
        assert!(watched.refused);
    }

    #[test]
    fn process_is_not_busy_because_of_its_children() {
        const BUSY: &str = "while :; do :; done";
        let both = [Group::start(&format!("({BUSY}) & wait")), Group::start(BUSY)];
        let identity = |group: &Group| ProcessIdentity::of(group.0.id()).unwrap();
        let mut watched = both.each_ref().map(|group| Watched::new(identity(group)));
        let rules = Rules { cpu: 0.05, ..Rules::default() };
        let mut found = [true; 2];
        // Nothing is known at first, and then they start.
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(200));
            found = watched.each_mut().map(|it| it.is_busy(&rules));
        }
        assert_eq!(found, [false, true]);
    }
}
