//! `dbdyno bisect`.

mod text;

use std::process::ExitCode;

use dbdyno_report::export;
use dbdyno_run::{BisectEnd, BisectRecord, BisectRequest, BisectResult, Options};

use crate::args::Bisect;
use crate::commands::export_file;
use crate::commands::{
    INTERRUPTED, directory_for, now, read_experiment, stop_on_signals, worker_program,
};
use crate::error::CliError;
use crate::output::{self, Display};

/// Finds the commit that changed a figure, and prints it.
pub fn bisect(args: &Bisect) -> Result<ExitCode, CliError> {
    let (experiment, text) = read_experiment(&args.file)?;
    if let Some(file) = &args.export_json {
        export_file::check(file)?;
    }
    let directory = args.out.clone();
    let directory =
        directory.unwrap_or_else(|| directory_for(&format!("{}-bisect", experiment.name)));
    let cancel = stop_on_signals("stopping after this slice")?;
    let display = Display::new();
    let progress = |event: dbdyno_run::RunEvent<'_>| display.show(&event);
    let options = Options {
        worker: worker_program()?,
        cache: args.cache.clone(),
        keep_data: false,
        trust: false,
        cancel,
        progress: &progress,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now(),
    };
    let request = BisectRequest {
        experiment: &experiment,
        text: &text,
        candidate: args.candidate.as_deref(),
        microbenchmark: args.microbenchmark.as_deref(),
        good: &args.good,
        bad: &args.bad,
        first_parent: args.first_parent,
        directory: &directory,
    };
    let end = dbdyno_run::bisect(&request, &options);
    display.finish();
    match end? {
        BisectEnd::Complete(record, result) => {
            if let Some(file) = &args.export_json {
                export_file::write(file, &json(&record)?)?;
            }
            conclude(&record, &result)
        }
        BisectEnd::Interrupted => {
            let directory = directory.display();
            output::note(&format!("stopped; continue with the same command and --out {directory}"));
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Prints the result. Returns success if the commit was found.
fn conclude(record: &BisectRecord, result: &BisectResult) -> Result<ExitCode, CliError> {
    match result {
        BisectResult::Found(found) => {
            output::print(&text::found(record, found));
            Ok(if found.differs { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        BisectResult::Range { commits, undecided } => {
            output::print(&text::range(record, commits));
            Err(CliError::Other(text::why_range(record, undecided.as_ref())))
        }
        BisectResult::SameBuild { build } => {
            Err(CliError::Other(text::same_build(record, &build.short())))
        }
        BisectResult::NoDifference { figures } => {
            Err(CliError::Other(text::no_difference(record, figures)))
        }
    }
}

fn json(record: &BisectRecord) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(record);
    text.map(|text| text + "\n").map_err(|error| {
        export::ExportError::Encode { file: "bisect.json", source: error.into() }.into()
    })
}
