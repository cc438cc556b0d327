//! `dbdyno history`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_report::history;
use dbdyno_report::model::Report;

use crate::args::History;
use crate::commands::export_file;
use crate::commands::report::{assembled_all, is_run};
use crate::error::CliError;
use crate::output;

/// Prints where figures changed over the runs, and writes the files that were asked for.
pub fn history(args: &History) -> Result<ExitCode, CliError> {
    export_file::check_all(&[&args.html, &args.export_json, &args.export_csv])?;
    let reports = reports(args)?;
    let history = history::history(&reports).map_err(CliError::usage)?;
    let color = output::color(args.color);
    output::print_report(&history::terminal(&history, output::width(), color), color);
    let exports = [
        (&args.export_json, history::json as fn(&history::History) -> _),
        (&args.export_csv, |history| Ok(history::csv(history))),
        (&args.html, |history| Ok(history::html(history))),
    ];
    export_file::write_all(&history, exports)?;
    if history.lacks_profiles() {
        output::print(
            "\nMeasure the runs with --profile to see which functions changed as well.\n",
        );
    }
    if args.html.is_none() {
        output::print("\nUse --html FILE to write this as a page with charts.\n");
    }
    Ok(ExitCode::SUCCESS)
}

/// The reports of all runs, each once. Prints which directories are skipped, and why.
fn reports(args: &History) -> Result<Vec<Report>, CliError> {
    let mut known = BTreeSet::new();
    // The runs, and whether each was named itself.
    let mut runs: Vec<(PathBuf, bool)> = Vec::new();
    for directory in &args.directories {
        if is_run(directory) || !directory.is_dir() {
            if is_new(&mut known, directory) {
                runs.push((directory.clone(), true));
            }
            continue;
        }
        for inner in directories_in(directory)? {
            if !is_run(&inner) {
                skip(&inner, "it has no run.sqlite");
                continue;
            }
            if is_new(&mut known, &inner) {
                runs.push((inner, false));
            }
        }
    }
    let directories: Vec<PathBuf> = runs.iter().map(|(directory, _)| directory.clone()).collect();
    let mut reports = Vec::new();
    for (report, (directory, is_named)) in assembled_all(&directories).into_iter().zip(&runs) {
        match report {
            Ok(report) => reports.extend(wanted(args, report)),
            Err(error) if *is_named => return Err(error.into()),
            Err(error) => skip(directory, &error.to_string()),
        }
    }
    Ok(reports)
}

/// The report if it belongs to the history; otherwise prints why not.
fn wanted(args: &History, report: Report) -> Option<Report> {
    let reason = match &args.experiment {
        Some(name) if *name != report.name => format!("its experiment is {}", report.name),
        _ if report.insert.is_some() => {
            "an insert benchmark has no ratios to a baseline".to_owned()
        }
        _ if report.microbenchmarks.is_empty() => "nothing was measured".to_owned(),
        _ => return Some(report),
    };
    skip(&report.directory, &reason);
    None
}

fn skip(directory: &Path, reason: &str) {
    output::note(&format!("skipped {}: {reason}", directory.display()));
}

/// Whether a directory was not named before, also by another path.
fn is_new(known: &mut BTreeSet<PathBuf>, directory: &Path) -> bool {
    known.insert(directory.canonicalize().unwrap_or_else(|_| directory.to_owned()))
}

fn directories_in(directory: &Path) -> Result<Vec<PathBuf>, CliError> {
    let read = CliError::read(directory);
    let mut inner = Vec::new();
    for entry in fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.is_dir() {
            inner.push(path);
        }
    }
    inner.sort_unstable();
    Ok(inner)
}
