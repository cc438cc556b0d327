use std::process::ExitCode;

use dbdyno_import::{Request, Source};

use crate::args::Import;
use crate::commands::{directory_for, now, report};
use crate::error::CliError;
use crate::output;

/// Makes a run directory of results that others measured, and reports.
pub fn import(args: &Import) -> Result<ExitCode, CliError> {
    let directory = args.out.clone().unwrap_or_else(|| directory_for("imported"));
    let imported = dbdyno_import::import(&Request {
        sources: args.files.iter().map(|file| Source::file(file)).collect(),
        out: directory.clone(),
        name: None,
        baseline: args.baseline.clone(),
        clients: args.clients,
        now: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    report::show(&directory, args.view, false)?;
    output::note(&format!(
        "{} values of {} candidates on {} microbenchmarks",
        imported.values,
        imported.candidates.len(),
        imported.microbenchmarks
    ));
    for name in &imported.ungrouped {
        output::note(&format!("{name} has no published group: it is in the group `other`"));
    }
    for name in &imported.without_baseline {
        output::note(&format!("{name} is left out: the baseline has no value of it"));
    }
    Ok(ExitCode::SUCCESS)
}
