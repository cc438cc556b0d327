//! Whether a function that was made slower is named, and none of two equal builds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use dbdyno_builds::{Cache, CacheDir, Source, SourceOrigin};
use dbdyno_report::model::{ProfileDifference, Report};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness};
use dbdyno_selfbench::output::{Outcome, Table, workspace};
use dbdyno_spec::experiment::System;

/// The function that is made slower: it finds a row by its key.
const FUNCTION: &str = "sqlite3BtreeTableMoveto";

/// A statement of the function, and only of it.
const BEFORE: &str = "  assert( pCur->eState!=CURSOR_VALID || pCur->curIntKey!=0 );\n";

/// One miss in so many runs is accepted.
const RUNS_PER_MISS: u64 = 20;

/// Counts how often a function that was made slower by about 3% of a query is the first that is named, and how often
/// one is named of two equal builds (experiments/planted.toml).
#[derive(clap::Args)]
pub struct Args {
    /// Number of runs, each with its own seed and new instances
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Rounds of the loop that is added to the function
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut file = ExperimentFile::read("planted", &args.experiment)?;
    let folder = planted_source(args.rounds)?;
    for candidate in &mut file.experiment.candidates {
        if let System::Sqlite { build, .. } = &mut candidate.system
            && candidate.name == "slower"
        {
            build.source = SourceOrigin::Path(folder.clone());
        }
    }
    let harness = Harness::new()?;
    let mut table = Table::new(&["run", "CPU per query", "first function", "of equal builds"]);
    let (mut found, mut false_alarms) = (0, 0);
    harness.repeat(&mut file, args.runs, |run, report| {
        let (slower, ratio) = profile_of(report, "slower")?;
        let (equal, _) = profile_of(report, "control")?;
        let certain = |of: &ProfileDifference| {
            let first = of.functions.iter().find(|one| one.certain);
            first.map(|one| one.name.clone())
        };
        let first = certain(slower);
        let alarm = certain(equal);
        found += u64::from(first.as_deref() == Some(FUNCTION));
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
            "of {} runs {FUNCTION} was named first in {found}, with {false_alarms} false alarms",
            args.runs
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

/// A directory with SQLite's source, in which the function does more work.
fn planted_source(rounds: u32) -> anyhow::Result<PathBuf> {
    let cache = Cache::new(&CacheDir::chosen_or_default(None)?);
    let original = Source::bundled_sqlite().unpack(&cache)?;
    let folder = workspace().join(format!("target/bench/planted-{rounds}"));
    fs::create_dir_all(&folder)?;
    let text = read(&original.join("sqlite3.c"))?;
    let at = text.find(BEFORE).context("the bundled SQLite has not the expected code")?;
    let function = text[..at].rfind("\nSQLITE_PRIVATE ").map(|start| &text[start..at]);
    ensure!(
        function.is_some_and(|text| text.contains(FUNCTION)),
        "the expected code is not in {FUNCTION}"
    );
    let loop_ = format!("  for(volatile unsigned i=0; i<{rounds}; i++){{}}\n");
    let planted = [&text[..at], &loop_, &text[at..]].concat();
    fs::write(folder.join("sqlite3.c"), planted)?;
    fs::copy(original.join("sqlite3.h"), folder.join("sqlite3.h"))?;
    Ok(folder)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
