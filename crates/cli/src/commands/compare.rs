//! `dbdyno compare`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use dbdyno_engines::server::installed_releases;
use dbdyno_record::server::ServerSystem;
use dbdyno_report::model::Report;
use dbdyno_report::{conclusions, export, markdown};
use dbdyno_run::start_run;
use dbdyno_spec::compare::{Words, experiment};

use crate::args::Compare;
use crate::commands::run::Execution;
use crate::commands::{directory_for, export_file};
use crate::error::CliError;
use crate::output::{self, Display};

/// Runs the experiment that the words describe, and reports.
pub fn compare(args: &Compare) -> Result<ExitCode, CliError> {
    let installed = |system: ServerSystem| {
        installed_releases(system).into_iter().map(|release| release.name).collect()
    };
    let words = Words {
        candidates: &args.candidates,
        microbenchmarks: &args.microbenchmarks,
        clients: &args.clients,
        time: args.time.as_deref(),
        rows: args.rows.as_deref(),
    };
    let comparison = experiment(&words, &installed)
        .map_err(|problems| CliError::Experiment(problems.to_string()))?;
    for file in [&args.export_json, &args.export_csv, &args.export_markdown].into_iter().flatten() {
        export_file::check(file)?;
    }
    if let Some(file) = &args.save {
        save(file, &comparison.text)?;
    }
    let (experiment, text) = (&comparison.experiment, &comparison.text);
    let directory = args.out.clone().unwrap_or_else(|| directory_for(&experiment.name));
    let execution = Execution {
        directory: &directory,
        cache: args.cache.as_deref(),
        keep_data: args.keep_data,
        trust: false,
        view: args.view,
        display: Display::with_first_ratio(),
    };
    execution.execute(&|options| start_run(experiment, text, &directory, options), &|report, _| {
        conclude(report, args).map(|()| ExitCode::SUCCESS)
    })
}

/// Prints a sentence per result and writes the files that were asked for.
fn conclude(report: &Report, args: &Compare) -> Result<(), CliError> {
    let mut text = String::new();
    for sentence in conclusions(report) {
        output::wrapped(&mut text, "", &sentence);
    }
    if !text.is_empty() {
        output::print(&format!("\n{text}"));
    }
    let exports = [
        (&args.export_json, export::run_json as fn(&Report) -> _),
        (&args.export_csv, export::relative_csv),
        (&args.export_markdown, |report| Ok(markdown::render(report))),
    ];
    for (file, content) in exports {
        if let Some(file) = file {
            export_file::write(file, &content(report)?)?;
        }
    }
    Ok(())
}

/// Writes the experiment to a new file. An existing one may have been edited: it is only accepted if it
/// has the same text.
fn save(file: &Path, text: &str) -> Result<(), CliError> {
    let write = |source| CliError::Write { path: file.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(mut new) => new.write_all(text.as_bytes()).map_err(write),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if fs::read_to_string(file).is_ok_and(|old| old == text) {
                return Ok(());
            }
            let message =
                format!("{} exists and is another experiment: choose another name", file.display());
            Err(CliError::Usage(message))
        }
        Err(error) => Err(write(error)),
    }
}
