//! `dbdyno why`.

use std::process::ExitCode;

use dbdyno_report::model::{Report, Role};
use dbdyno_report::terminal;

use crate::args::Why;
use crate::commands::report::assembled;
use crate::error::CliError;
use crate::output;

/// Prints where the differences in CPU time of a run are.
pub fn why(args: &Why) -> Result<ExitCode, CliError> {
    let report = assembled(&args.directory)?;
    let Why { candidate, microbenchmark, .. } = args;
    check(candidate.as_deref(), "candidate", &candidates(&report))?;
    let names = report.microbenchmarks.iter().map(|one| one.name.as_str());
    check(microbenchmark.as_deref(), "microbenchmark", &names.collect::<Vec<_>>())?;
    let options = terminal::TerminalOptions {
        width: output::width(),
        color: output::color(args.color),
        three_groups: false,
        details: true,
    };
    let why = terminal::why(&report, candidate.as_deref(), microbenchmark.as_deref(), &options);
    let Some(text) = why else {
        return Err(CliError::other(format!(
            "{} has no profile of it: {}",
            args.directory.display(),
            reason(&report)
        )));
    };
    output::print_report(&text, options.color);
    Ok(ExitCode::SUCCESS)
}

/// Why a run has no profile, as far as it is known.
fn reason(report: &Report) -> String {
    let missing = report.warnings.iter().filter(|one| one.is_of_missing_profile());
    let texts: Vec<String> =
        missing.map(|one| format!("{} {}", one.what_with_stop(), one.advice)).collect();
    match &texts[..] {
        [] => "measure again with --profile, or with [profile] in the experiment".to_owned(),
        texts => texts.join("; "),
    }
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
