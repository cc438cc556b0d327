//! `dbdyno builds make`: builds all candidates of an experiment.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use dbdyno_builds::CacheDir;
use dbdyno_run::{CandidateBuild, Options, build_candidates};

use crate::args::MakeBuilds;
use crate::commands::{INTERRUPTED, now, read_experiment, stop_on_signals, worker_program};
use crate::error::CliError;
use crate::output::{self, Display};

/// Builds all candidates that an experiment compiles, and prints the builds.
pub fn make(root: &CacheDir, what: &MakeBuilds) -> Result<ExitCode, CliError> {
    let (experiment, _) = read_experiment(&what.file)?;
    let cancel = stop_on_signals("stopping")?;
    let display = Display::new();
    let progress = |event: dbdyno_run::RunEvent<'_>| display.show(&event);
    let options = Options {
        worker: worker_program()?,
        cache: Some(root.path().to_owned()),
        keep_data: false,
        trust: false,
        cancel: cancel.clone(),
        progress: &progress,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now(),
    };
    let made = build_candidates(&experiment, &options);
    display.finish();
    if made.is_err() && cancel.load(Ordering::Relaxed) {
        output::note("stopped; run the same command again to resume");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let made = made?;
    if made.is_empty() {
        output::print(&format!("{} has no candidates to compile.\n", what.file.display()));
    } else {
        output::print(&format!("Build cache {}\n{}", root.path().display(), table(&made)));
    }
    Ok(ExitCode::SUCCESS)
}

/// One line per candidate.
fn table(made: &[CandidateBuild]) -> String {
    let head = ["candidate", "variant", "compiler", "compiled in", "text", "stripped"];
    let row = |CandidateBuild { candidate, build }: &CandidateBuild| {
        [
            candidate.clone(),
            build.variant.clone(),
            format!("{} {}", build.compiler.name, build.compiler.version),
            build.compile_time.to_string(),
            build.text_size.to_string(),
            build.stripped_size.to_string(),
        ]
    };
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(made.iter().map(row));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Text is left-aligned, numbers right-aligned.
            let _ = match column {
                0..=2 => write!(line, " {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
