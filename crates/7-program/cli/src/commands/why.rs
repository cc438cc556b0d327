//! `dbdyno why`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_report::model::{Report, Role};
use dbdyno_report::{export, terminal};

use crate::args::{View, Why};
use crate::commands::export_file;
use crate::commands::report::{assembled, is_run, options};
use crate::error::CliError;
use crate::output;

/// Prints where the differences in CPU time of a run are.
pub fn why(args: &Why) -> Result<ExitCode, CliError> {
    export_file::check_all(&[&args.export_json])?;
    let candidate = args.candidate.as_deref();
    let microbenchmark = args.microbenchmark.as_deref();
    check_is_one_run(&args.directory, &[candidate, microbenchmark])?;
    let report = assembled(&args.directory)?;
    check(candidate, "candidate", &candidates(&report))?;
    let names = report.microbenchmarks.iter().map(|one| one.name.as_str());
    check(microbenchmark, "microbenchmark", &names.collect::<Vec<_>>())?;
    let options = options(View { three_groups: false, color: args.color }, args.details);
    let Some(text) = terminal::why(&report, candidate, microbenchmark, &options) else {
        return Err(CliError::other(format!(
            "{} has no profile: {}",
            args.directory.display(),
            reason(&report)
        )));
    };
    output::print_report(&text, options.color);
    if let Some(file) = &args.export_json {
        export_file::write(file, &export::why_json(&report, candidate, microbenchmark)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a run has no profile, as far as it is known.
fn reason(report: &Report) -> String {
    let missing = report.warnings.iter().filter(|one| one.is_of_missing_profile());
    let texts: Vec<String> =
        missing.map(|one| format!("{} {}", one.what_with_stop(), one.advice)).collect();
    match &texts[..] {
        [] if report.insert.is_some() => "an insert benchmark is not sampled".to_owned(),
        [] => "measure again with --profile, or with [profile] in the experiment".to_owned(),
        texts => texts.join("; "),
    }
}

/// Refuses several runs, and a directory of runs, such as that of a fleet run.
fn check_is_one_run(directory: &Path, names: &[Option<&str>]) -> Result<(), CliError> {
    if let Some(other) = names.iter().flatten().find(|name| is_run(Path::new(name))) {
        return Err(CliError::usage(format!(
            "{other} is another run directory, and `dbdyno why` explains one run; after its directory, name a \
             candidate and a microbenchmark"
        )));
    }
    let runs = if is_run(directory) { Vec::new() } else { runs_in(directory) };
    match &runs[..] {
        [] => Ok(()),
        [first, ..] => Err(CliError::usage(format!(
            "{} holds {} run directories, and `dbdyno why` explains one run; name one, such as {}",
            directory.display(),
            runs.len(),
            first.display()
        ))),
    }
}

fn runs_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut runs: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| is_run(path)).collect();
    runs.sort_unstable();
    runs
}

fn candidates(report: &Report) -> Vec<&str> {
    let all = report.candidates.iter().filter(|one| one.role != Role::Baseline);
    all.map(|one| one.name.as_str()).collect()
}

/// Refuses a name that is none of these.
fn check(name: Option<&str>, what: &str, known: &[&str]) -> Result<(), CliError> {
    match name {
        Some(name) if !known.contains(&name) => Err(CliError::usage(format!(
            "the run has no {what} `{name}`; it has {}",
            known.join(", ")
        ))),
        _ => Ok(()),
    }
}
