//! `dbdyno report` and `dbdyno import`.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use dbdyno_import::Request;
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_report::export::OutputDir;
use dbdyno_report::model::{Report, RunStatus};
use dbdyno_report::{assemble, comparison, export, terminal};
use dbdyno_results::{ResultsError, RunDirectory, RunReader};

use crate::args::{self, Gate, Import, View};
use crate::commands::clean::note_stored_data;
use crate::commands::gate;
use crate::commands::session::{Extent, directory_or, now};
use crate::error::CliError;
use crate::output;

/// Prints the report of a run and writes its exports, or compares several runs.
pub fn report(args: &args::Report) -> Result<ExitCode, CliError> {
    let rules = &args.gate.rules;
    match (&args.directories[..], &args.out) {
        ([_, _, ..], _) if !rules.is_empty() => {
            return Err(CliError::usage("--fail-if judges one run; name only one directory"));
        }
        (directories, _) if args.view.three_groups && (args.markdown || directories.len() > 1) => {
            let message =
                "--three-groups has no effect on --markdown and on several runs; remove it";
            return Err(CliError::usage(message));
        }
        ([_], None) if args.markdown && args.details => {
            let message = "--details has no effect on the --markdown of one run; remove it";
            return Err(CliError::usage(message));
        }
        ([directory], out) => {
            let files = files_of(directory, out.as_deref())?;
            let report = assembled(directory)?;
            gate::check_for(&args.gate, &report)?;
            if args.markdown {
                return print_markdown(&report, files.as_ref(), &args.gate);
            }
            let extent = if args.details { Extent::Details } else { Extent::Report };
            print(&report, directory, files.as_ref(), args.view, extent)?;
            return gate::judge(&args.gate, &report, files.as_ref());
        }
        (directories, None) if args.markdown => {
            let compared = comparison::compare(&reports(directories)?);
            output::print(&comparison::markdown(&compared, args.details));
        }
        _ if args.markdown => {
            return Err(CliError::usage("--markdown prints the comparison; remove --out"));
        }
        (directories, out) => compare(directories, out.as_deref(), args.view, args.details)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints, writes and returns the report of one run.
pub fn show(directory: &Path, view: View, extent: Extent) -> Result<Report, CliError> {
    let files = files_of(directory, None)?;
    let report = assembled(directory)?;
    print(&report, directory, files.as_ref(), view, extent)?;
    Ok(report)
}

/// Prints the report of a run as data: nothing is written but to `out`.
pub fn read_only(directory: &Path, out: Option<&Path>, view: View) -> Result<(), CliError> {
    let files = out.map(OutputDir::create).transpose()?;
    print(&assembled(directory)?, directory, files.as_ref(), view, Extent::Report)
}

pub fn is_run(directory: &Path) -> bool {
    RunDirectory::at(directory).database().exists()
}

/// The directory for the files of a run's report: `out`, or that of the run; `None` if that is of another user, whose
/// directories are only read.
pub fn files_of(directory: &Path, out: Option<&Path>) -> Result<Option<OutputDir>, CliError> {
    if let Some(out) = out {
        return Ok(Some(OutputDir::create(out)?));
    }
    match OutputDir::of_run(directory) {
        Ok(files) => Ok(Some(files)),
        Err(ResultsError::NotOwn { .. }) => Ok(None),
        // Reading the run says what is wrong.
        Err(_) if !directory.is_dir() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Prints the report of one run, and writes its files.
fn print(
    report: &Report,
    directory: &Path,
    files: Option<&OutputDir>,
    view: View,
    extent: Extent,
) -> Result<(), CliError> {
    let options = options(view, extent == Extent::Details);
    // Of an insert benchmark, the tables are details.
    let is_short = match extent {
        Extent::Answer => true,
        Extent::Report => report.insert.is_some(),
        Extent::Details => false,
    };
    let answer = is_short.then(|| terminal::answer(report, &options)).flatten();
    let is_answer = answer.is_some();
    let text = answer.unwrap_or_else(|| terminal::render(report, &options));
    output::print_report(&text, options.color);
    match files {
        Some(files) => {
            let written = export::write_all(report, files)?;
            let name = |file: &PathBuf| Some(file.file_name()?.to_str()?.to_owned());
            let names: Vec<String> = written.iter().filter_map(name).collect();
            if !is_answer || files.path() != report.directory {
                let directory = files.path().display();
                output::print(&format!("\nWritten to {directory}: {}\n", names.join(", ")));
            }
        }
        None => output::note(&format!(
            "{} is not this user's run, so nothing is written to it; --out DIR writes the page and tables",
            directory.display()
        )),
    }
    if report.status == RunStatus::Incomplete && report.running_pid.is_none() {
        note_stored_data(directory, "to resume it");
    }
    Ok(())
}

/// Prints only the Markdown, so that it can be redirected; the files are written too.
fn print_markdown(
    report: &Report,
    files: Option<&OutputDir>,
    rules: &Gate,
) -> Result<ExitCode, CliError> {
    if let Some(files) = files {
        export::write_all(report, files)?;
    }
    let (text, code) = gate::markdown(rules, report, files)?;
    output::print(&text);
    Ok(code)
}

fn reports(directories: &[PathBuf]) -> Result<Vec<Report>, CliError> {
    Ok(assembled_all(directories).into_iter().collect::<Result<_, _>>()?)
}

/// The reports of runs, each by one of as many threads as there are CPUs.
pub fn assembled_all(directories: &[PathBuf]) -> Vec<Result<Report, ResultsError>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let parts = directories.chunks(directories.len().div_ceil(threads).max(1));
    let all = |part: &[PathBuf]| part.iter().map(|one| assembled(one)).collect::<Vec<_>>();
    thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || all(part))).collect();
        threads
            .into_iter()
            .flat_map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

pub fn assembled(directory: &Path) -> Result<Report, ResultsError> {
    assemble::assemble(&RunReader::open(directory)?)
}

/// Prints the comparison of several runs, and writes it to `out`.
pub fn compare(
    directories: &[PathBuf],
    out: Option<&Path>,
    view: View,
    details: bool,
) -> Result<(), CliError> {
    let compared = comparison::compare(&reports(directories)?);
    let color = output::color(view.color);
    let text = comparison::terminal(&compared, output::width(), color, details);
    output::print_report(&text, color);
    let Some(out) = out else {
        output::print("\nUse --out DIR to write this as a page, CSV and JSON.\n");
        return Ok(());
    };
    let files = [
        ("comparison.html", comparison::html(&compared)),
        ("comparison.csv", comparison::csv(&compared)),
        ("comparison_absolute.csv", comparison::absolute_csv(&compared)),
        ("comparison.json", comparison::json(&compared)?),
    ];
    let directory = OutputDir::create(out)?;
    for (name, text) in &files {
        directory.replace(name, text)?;
    }
    let names = files.map(|(name, _)| name).join(", ");
    output::print(&format!("\nWritten to {}: {names}\n", out.display()));
    Ok(())
}

pub fn options(view: View, details: bool) -> terminal::TerminalOptions {
    terminal::TerminalOptions {
        width: output::width(),
        color: output::color(view.color),
        three_groups: view.three_groups,
        details,
    }
}

pub fn import(args: &Import) -> Result<ExitCode, CliError> {
    let directory = directory_or(args.out.as_deref(), "imported");
    SafeDir::check_links(&directory).map_err(|error| CliError::other(error.to_string()))?;
    let imported = dbdyno_import::import(&Request {
        files: args.files.clone(),
        out: directory.clone(),
        name: None,
        baseline: args.baseline.clone(),
        clients: args.clients,
        now: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    show(&directory, args.view, Extent::Report)?;
    output::note(&format!(
        "imported values: {}; candidates: {}; microbenchmarks: {}",
        imported.values,
        imported.candidates.len(),
        imported.microbenchmarks
    ));
    for name in &imported.ungrouped {
        output::note(&format!(
            "{name} is in no published group; it is reported in the group `other`"
        ));
    }
    for name in &imported.without_baseline {
        output::note(&format!("{name} is left out: there is no value for the baseline"));
    }
    Ok(ExitCode::SUCCESS)
}
