//! Rules of `--fail-if`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, io};

use dbdyno_report::export::OutputDir;
use dbdyno_report::gate::{Judged, Rule};
use dbdyno_report::model::{Report, RunStatus};
use dbdyno_report::{gate, markdown};
use dbdyno_results::RunReader;
use dbdyno_run::RunError;
use dbdyno_spec::experiment::Experiment;

use crate::args::Gate;
use crate::commands::report::files_of;
use crate::error::CliError;
use crate::output;

/// The exit code of a run that breaks a rule.
pub const BROKEN: u8 = 3;

/// Checks the names in rules before anything is measured.
pub fn check(rules: &[Rule], experiment: &Experiment) -> Result<(), CliError> {
    if !rules.is_empty() && experiment.insert_benchmark.is_some() {
        return Err(no_microbenchmarks());
    }
    let candidates = experiment.candidates.iter().map(|candidate| candidate.name.as_str());
    let candidates: Vec<&str> = candidates.filter(|name| *name != experiment.baseline).collect();
    let parts = experiment.workload.microbenchmarks.iter();
    let parts: Vec<&str> = parts
        .flat_map(|one| [one.name.as_str(), one.group.name(), one.group.coarse_name()])
        .collect();
    if !rules.is_empty() && candidates.is_empty() {
        return Err(CliError::usage("--fail-if needs a candidate beside the baseline"));
    }
    for rule in rules {
        rule.check_names(&candidates, &parts).map_err(CliError::usage)?;
    }
    Ok(())
}

fn no_microbenchmarks() -> CliError {
    CliError::usage("--fail-if needs microbenchmarks; an insert benchmark has none")
}

/// Checks that a run can be judged by rules, before its report is printed.
pub fn check_for(gate: &Gate, report: &Report) -> Result<(), CliError> {
    judged(gate, report).map(drop)
}

fn judged<'a>(gate: &'a Gate, report: &Report) -> Result<Vec<Judged<'a>>, CliError> {
    if !gate.rules.is_empty() && report.insert.is_some() {
        return Err(no_microbenchmarks());
    }
    gate::judge(report, &gate.rules, gate.strict).map_err(CliError::usage)
}

/// Judges a run by rules, prints the outcome and writes it, unless the run is of another user. Returns the exit
/// code; success without rules.
pub fn judge(
    gate: &Gate,
    report: &Report,
    files: Option<&OutputDir>,
) -> Result<ExitCode, CliError> {
    let Some((judged, text)) = outcome(gate, report)? else { return Ok(ExitCode::SUCCESS) };
    output::print(&gate::terminal(&judged, output::width()));
    write(&judged, &text, report, files)?;
    tell_github(&judged, &text, output::print_commands)?;
    Ok(exit_code(&judged))
}

/// The Markdown of a report with the outcome of rules, if they can be judged.
pub fn text(gate: &Gate, report: &Report) -> String {
    let judged = outcome(gate, report).ok().flatten();
    judged.map_or_else(|| markdown::render(report), |(_, text)| text)
}

/// The Markdown of a report with the outcome of rules, which is also written; and
/// the exit code.
pub fn markdown(
    gate: &Gate,
    report: &Report,
    files: Option<&OutputDir>,
) -> Result<(String, ExitCode), CliError> {
    match outcome(gate, report)? {
        None => Ok((markdown::render(report), ExitCode::SUCCESS)),
        Some((judged, text)) => {
            write(&judged, &text, report, files)?;
            // Standard output is only the Markdown.
            tell_github(&judged, &text, output::write_commands)?;
            Ok((text, exit_code(&judged)))
        }
    }
}

/// What the rules say, and the Markdown of the report with that; `None` without rules.
fn outcome<'a>(
    gate: &'a Gate,
    report: &Report,
) -> Result<Option<(Vec<Judged<'a>>, String)>, CliError> {
    if gate.rules.is_empty() {
        return Ok(None);
    }
    let judged = judged(gate, report)?;
    if report.status == RunStatus::Incomplete {
        output::note("the run is not complete: rules are judged by what was measured");
    }
    let text = format!("{}{}", markdown::render(report), gate::markdown(&judged));
    Ok(Some((judged, text)))
}

/// Writes that a run failed before it could be judged, unless it has no rules or is of another user.
pub fn write_failure(gate: &Gate, directory: &Path, error: &RunError) -> Result<(), CliError> {
    let (false, Ok(run)) = (gate.rules.is_empty(), RunReader::open(directory)) else {
        return Ok(());
    };
    let candidate = match error {
        RunError::Candidate { candidate, .. } => Some(candidate.as_str()),
        _ => None,
    };
    let xml = gate::junit_of_failure(candidate, &error.whole(), &run.name()?);
    write_junit(xml, files_of(directory, None)?.as_ref())
}

fn write_junit(xml: io::Result<String>, files: Option<&OutputDir>) -> Result<(), CliError> {
    const FILE: &str = "junit.xml";
    let Some(files) = files else { return Ok(()) };
    files.replace(FILE, &xml.map_err(CliError::write(&files.path().join(FILE)))?)?;
    Ok(())
}

fn write(
    judged: &[Judged<'_>],
    text: &str,
    report: &Report,
    files: Option<&OutputDir>,
) -> Result<(), CliError> {
    let Some(files) = files else { return Ok(()) };
    write_junit(gate::junit(judged, &report.name), Some(files))?;
    files.replace("report.md", text)?;
    Ok(())
}

/// In a job of GitHub Actions, annotates its log by `print`, and appends the report to its summary.
fn tell_github(judged: &[Judged<'_>], text: &str, print: fn(&str)) -> Result<(), CliError> {
    if env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true") {
        print(&gate::annotations(judged));
    }
    match env::var_os("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty()) {
        Some(summary) => append(&PathBuf::from(summary), text),
        None => Ok(()),
    }
}

fn append(path: &Path, text: &str) -> Result<(), CliError> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(CliError::write(path))
}

fn exit_code(judged: &[Judged<'_>]) -> ExitCode {
    if judged.iter().any(Judged::is_broken) {
        output::note("a rule of --fail-if is broken, see above");
        return ExitCode::from(BROKEN);
    }
    if judged.iter().any(Judged::is_uncertain) {
        output::note("an interval contains the limit of a rule of --fail-if (--strict), see above");
        return ExitCode::from(BROKEN);
    }
    if judged.iter().any(Judged::has_failed) {
        output::note(
            "a rule of --fail-if could not be judged fully: a candidate failed, see above",
        );
        return ExitCode::FAILURE;
    }
    if judged.iter().any(Judged::is_unknown) {
        output::note("a rule of --fail-if could not be judged: nothing it is about was measured");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
