//! Whether a function that was made slower is named, and none of two equal builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use dbdyno_builds::{Cache, CacheDir, SourceOrigin, Sources, System};
use dbdyno_report::model::{ProfileDifference, Report};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::output::{Outcome, Progress, Table, workspace};

/// A function that is made slower.
struct Plant {
    system: System,
    /// The name of the experiment.
    experiment: &'static str,
    /// The function: it finds a row by its key.
    function: &'static str,
    /// The file with the function, in the source's directory.
    file: &'static str,
    /// A statement of the function, and only of it; the loop is added behind it.
    statement: &'static str,
    /// The rounds of the loop that take about 3% of a query.
    rounds: u32,
}

const SQLITE: Plant = Plant {
    system: System::Sqlite,
    experiment: "planted",
    function: "sqlite3BtreeTableMoveto",
    file: "sqlite3.c",
    statement: "\n  assert( pCur->eState!=CURSOR_VALID || pCur->curIntKey!=0 );\n",
    rounds: 150,
};

const MARIADB: Plant = Plant {
    system: System::MariaDb,
    experiment: "planted-mariadb",
    function: "row_search_mvcc",
    file: "storage/innobase/row/row0sel.cc",
    statement: "\n\tDBUG_ENTER(\"row_search_mvcc\");\n",
    rounds: 1000,
};

/// A system in whose source a function is made slower.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Planted {
    Sqlite,
    Mariadb,
}

/// One miss in so many runs is accepted.
const RUNS_PER_MISS: u64 = 20;

/// Counts how often a function that was made slower by about 3% of a query is the first that is named, and how often
/// one is named of two equal builds (experiments/planted.toml, experiments/planted-mariadb.toml).
#[derive(clap::Args)]
pub struct Args {
    /// The system that is compiled with such a function
    #[arg(long, value_enum, default_value_t = Planted::Sqlite)]
    system: Planted,
    /// Number of runs, each with its own seed and new instances
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Rounds of the loop that is added to the function [default: about 3% of a query]
    #[arg(long)]
    rounds: Option<u32>,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let plant = match args.system {
        Planted::Sqlite => SQLITE,
        Planted::Mariadb => MARIADB,
    };
    let mut file = ExperimentFile::read(plant.experiment, &args.experiment)?;
    let slower = file.experiment.candidates.iter_mut().find(|one| one.name == "slower");
    let slower = slower.context("the experiment has no candidate `slower`")?;
    let build = slower.system.build_mut().context("`slower` is not compiled")?;
    let rounds = args.rounds.unwrap_or(plant.rounds);
    build.source = SourceOrigin::Path(plant.source(&build.source, rounds)?);
    let harness = Harness::new()?;
    let mut table = Table::new(&["run", "CPU per query", "first function", "of equal builds"]);
    let (mut found, mut false_alarms) = (0, 0);
    harness.repeat(&mut file, args.runs, |run, report| {
        let (slower, ratio) = profile_of(report, "slower")?;
        let (equal, _) = profile_of(report, "control")?;
        let certain = |of: &ProfileDifference| {
            // As `dbdyno why` shows them: those that moved come last.
            let first = of.functions.iter().filter(|one| one.certain).min_by_key(|one| one.moved);
            first.map(|one| one.name.clone())
        };
        let first = certain(slower);
        let alarm = certain(equal);
        found += u64::from(first.as_deref() == Some(plant.function));
        false_alarms += u64::from(alarm.is_some());
        let name = |one: Option<String>| one.unwrap_or_else(|| "–".to_owned());
        table.row([run.to_string(), ratio, name(first), name(alarm)]);
        Ok(())
    })?;
    table.print();
    let accepted = args.runs / RUNS_PER_MISS;
    let is_good = found + accepted >= args.runs && false_alarms <= accepted;
    Ok(Outcome::of(is_good, || {
        format!(
            "of {} runs {} was named first in {found}, with {false_alarms} false alarms",
            args.runs, plant.function
        )
    }))
}

/// What was sampled of a candidate, and its CPU time per query relative to the baseline's.
fn profile_of<'r>(
    report: &'r Report,
    candidate: &str,
) -> anyhow::Result<(&'r ProfileDifference, String)> {
    let rows = report.microbenchmarks.iter().flat_map(|one| &one.rows);
    let row = rows.clone().find(|row| row.candidate == candidate);
    let row = row.with_context(|| format!("{candidate} was not measured"))?;
    let profile = row.profile.as_ref();
    let ratio = row.relative_cpu.map_or_else(|| "–".to_owned(), |cpu| format!("{:.4}", cpu.median));
    Ok((profile.with_context(|| format!("{candidate} was not sampled"))?, ratio))
}

impl Plant {
    /// A directory with a copy of a source, in which the function does more work.
    fn source(&self, of: &SourceOrigin, rounds: u32) -> anyhow::Result<PathBuf> {
        let directory = CacheDir::chosen_or_default(None)?;
        let sources = Sources::new(&directory, Arc::default());
        let progress = Mutex::new(Progress::start());
        let source = sources.obtain(self.system, of, &|message| {
            if let Ok(progress) = progress.lock() {
                progress.show(0.0, &message);
            }
        })?;
        let original = source.unpack(&Cache::new(&directory))?;
        let text = read(&original.join(self.file))?;
        let (before, after) = text.split_once(self.statement).with_context(|| {
            format!("{} of {} does not contain the expected code", self.file, source.version())
        })?;
        let function = before.rfind("\n}").map(|end| &before[end..]);
        ensure!(
            function.is_some_and(|text| text.contains(self.function)),
            "the expected code is not in {}",
            self.function
        );
        // Each round waits for the one before it, for about four cycles on any processor.
        let loop_ = format!(
            "{{ unsigned x = 1; for (int i = 0; i < {rounds}; i++) \
             {{ x *= 2654435761u; __asm__ volatile(\"\" : \"+r\"(x)); }} }}\n"
        );
        let planted = [before, self.statement, &loop_, after].concat();
        let folder = workspace().join(format!("target/bench/{}-{rounds}", self.experiment));
        let target = folder.join(self.file);
        if fs::read_to_string(&target).is_ok_and(|text| text == planted) {
            return Ok(folder);
        }
        fs::create_dir_all(&folder)?;
        let copied = Command::new("cp").arg("-a").arg(original.join(".")).arg(&folder).status()?;
        ensure!(copied.success(), "copying {} failed", original.display());
        fs::remove_file(&target)?;
        fs::write(&target, planted)?;
        Ok(folder)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
