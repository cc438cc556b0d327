//! `dbdyno builds make`: builds or fetches all candidates of an experiment.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use dbdyno_builds::CacheDir;
use dbdyno_run::{CandidateBuild, CandidateRelease, Options, make_candidates};

use crate::args::MakeBuilds;
use crate::commands::{INTERRUPTED, now, read_experiment, stop_on_signals, worker_program};
use crate::error::CliError;
use crate::output::{self, Display};

/// Builds all candidates that an experiment compiles, fetches the releases of others, and prints them.
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
    let made = make_candidates(&experiment, &options);
    display.finish();
    if made.is_err() && cancel.load(Ordering::Relaxed) {
        output::note("stopped; run the same command again to resume");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let (releases, builds) = made?;
    if releases.is_empty() && builds.is_empty() {
        let file = what.file.display();
        output::print(&format!("{file} has no candidates to compile or to fetch.\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("Build cache {}\n", root.path().display());
    if !releases.is_empty() {
        text.push_str(&table(
            ["candidate", "release", "program"],
            releases.iter().map(release_row),
        ));
    }
    if !builds.is_empty() {
        let head = ["candidate", "variant", "compiler", "compiled in", "text", "stripped"];
        text.push_str(&table(head, builds.iter().map(build_row)));
    }
    output::print(&text);
    Ok(ExitCode::SUCCESS)
}

fn release_row(CandidateRelease { candidate, release }: &CandidateRelease) -> [String; 3] {
    // The server program is in the first file.
    let program = release.files().first().map(ToString::to_string);
    [candidate.clone(), release.origin().to_string(), program.unwrap_or_default()]
}

fn build_row(CandidateBuild { candidate, build }: &CandidateBuild) -> [String; 6] {
    [
        candidate.clone(),
        build.variant.clone(),
        format!("{} {}", build.compiler.name, build.compiler.version),
        build.compile_time.to_string(),
        build.text_size.to_string(),
        build.stripped_size.to_string(),
    ]
}

/// One line per candidate.
fn table<const N: usize>(head: [&str; N], made: impl Iterator<Item = [String; N]>) -> String {
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(made);
    let mut widths = [0; N];
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
