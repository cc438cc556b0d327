//! `dbdyno live watch`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_document::{Document, Spanned};
use dbdyno_live::{Identity, SamplingOptions, coverage, map_to_original, sample};
use dbdyno_machine::{ProcessTree, ProcessTreeUsage};
use dbdyno_relayout::Options;
use dbdyno_units::{Nanos, Share};
use serde_json::json;

use super::Session;
use crate::args::{Care, Watch};
use crate::error::CliError;
use crate::output;

/// What the file says.
struct Rules {
    executables: Vec<PathBuf>,
    /// Of one CPU, 1 is all of it.
    cpu: f64,
    look: Duration,
    profile: Duration,
    once: bool,
    /// Below this share of samples in what is optimized, the work has moved elsewhere.
    coverage: f64,
}

/// A process that is watched.
struct Watched {
    identity: Identity,
    state: Stage,
    used: Option<(ProcessTreeUsage, Instant)>,
    /// Not tried again after this: the reason will be the same.
    refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Monitoring,
    Profiling,
    Optimizing,
    Optimized,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Monitoring => "monitoring",
            Self::Profiling => "profiling",
            Self::Optimizing => "optimizing",
            Self::Optimized => "optimized",
        }
    }
}

pub(super) fn watch(session: &Session, args: &Watch) -> Result<ExitCode, CliError> {
    let rules = read(&args.file)?;
    let start = Instant::now();
    let mut watched: BTreeMap<u32, Watched> = BTreeMap::new();
    while args.seconds.is_none_or(|limit| start.elapsed() < Duration::from_secs(limit)) {
        for pid in running(&rules.executables) {
            let Ok(identity) = Identity::of(pid) else { continue };
            let entry = watched.entry(pid).or_insert_with(|| Watched::new(identity.clone()));
            if entry.identity != identity {
                *entry = Watched::new(identity);
            }
            if entry.refused || !entry.is_busy(&rules) {
                continue;
            }
            if let Err(error) = attend(session, pid, entry, &rules) {
                say(session, pid, entry.state, &error.to_string());
                entry.state = Stage::Monitoring;
                // What else there is may pass, such as a server that was too busy to be stopped.
                entry.refused =
                    matches!(error, CliError::Live(dbdyno_live::LiveError::Refused { .. }));
            }
        }
        watched.retain(|_, entry| entry.identity.is_alive());
        thread::sleep(rules.look);
    }
    Ok(ExitCode::SUCCESS)
}

impl Watched {
    fn new(identity: Identity) -> Self {
        Self { identity, state: Stage::Monitoring, used: None, refused: false }
    }

    /// Whether it needed more CPU than the rules say since the last look.
    fn is_busy(&mut self, rules: &Rules) -> bool {
        let Ok(mut family) = ProcessTree::of(self.identity.pid) else { return false };
        let Ok(usage) = family.read() else { return false };
        let now = Instant::now();
        let before = self.used.replace((usage.clone(), now));
        before.is_some_and(|(before, at)| {
            let spent = usage.since(&before).cpu.as_nanos() as f64;
            spent / (now - at).as_nanos().max(1) as f64 >= rules.cpu
        })
    }
}

/// Takes a busy process one round further.
fn attend(session: &Session, pid: u32, entry: &mut Watched, rules: &Rules) -> Result<(), CliError> {
    if entry.state == Stage::Optimized && rules.once {
        return Ok(());
    }
    let care = Care { stop_bound: 50, allow_seccomp: false };
    let mut attachment = session.attachment(pid, &care)?;
    let is_optimized = attachment.now()? != dbdyno_live::Activation::Inactive;
    if is_optimized && rules.once {
        entry.state = Stage::Optimized;
        return Ok(());
    }
    if !is_optimized {
        entry.state = Stage::Profiling;
        say(session, pid, entry.state, "");
    }
    let time = if is_optimized { rules.profile / 4 } else { rules.profile };
    let sampled =
        sample(pid, false, &SamplingOptions { time, ..SamplingOptions::default() }, |_| false)?;
    let covered = coverage(&attachment, &attachment.process().maps()?, &sampled.samples);
    if let Some(covered) = covered.filter(|_| is_optimized) {
        if covered >= rules.coverage {
            entry.state = Stage::Optimized;
            return Ok(());
        }
        let why = format!("only {:.0}% of the samples are in what is optimized", covered * 100.0);
        say(session, pid, Stage::Profiling, &why);
    }
    let samples = map_to_original(&attachment, &sampled.samples);
    entry.state = Stage::Optimizing;
    say(session, pid, entry.state, &format!("{} samples", sampled.samples.total()));
    let (done, _) = super::optimize::run(&mut attachment, &samples, &Options::default())?;
    entry.state = Stage::Optimized;
    say(session, pid, entry.state, &super::text::switched(&done.switched));
    Ok(())
}

fn say(session: &Session, pid: u32, stage: Stage, what: &str) {
    let value = json!({ "pid": pid, "state": stage.name(), "what": what });
    let rest = if what.is_empty() { String::new() } else { format!(": {what}") };
    if session.json {
        output::print(&format!("{value}\n"));
    } else {
        output::print(&format!("Process {pid}: {}{rest}\n", stage.name()));
    }
}

/// Processes that run one of these programs.
fn running(executables: &[PathBuf]) -> Vec<u32> {
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
    let mut rules = Rules {
        executables: Vec::new(),
        cpu: 0.5,
        look: Duration::from_secs(10),
        profile: Duration::from_secs(20),
        once: false,
        coverage: 0.7,
    };
    let percent = Share::from_percent;
    if let Some(mut table) = root.table("watch") {
        table.require("executables");
        if let Some(list) = table.strings("executables") {
            rules.executables = list.value.iter().map(|path| PathBuf::from(path.value)).collect();
        }
        let long = Nanos::from_millis(100)..=Nanos::from_secs(3600);
        if let Some(Spanned { value, .. }) = table.duration("look", long.clone()) {
            rules.look = value.into();
        }
        if let Some(Spanned { value, .. }) = table.duration("profile", long) {
            rules.profile = value.into();
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
        table.finish();
    }
    root.finish();
    document.finish().map_err(problems)?;
    Ok(rules)
}
