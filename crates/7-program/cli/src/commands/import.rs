//! `dbdyno import`.

use std::process::ExitCode;

use dbdyno_import::Request;

use crate::args::Import;
use crate::commands::{directory_for, now, report};
use crate::error::CliError;
use crate::output;

/// Imports published results as a run directory, and reports.
pub fn import(args: &Import) -> Result<ExitCode, CliError> {
    let directory = args.out.clone().unwrap_or_else(|| directory_for("imported"));
    let imported = dbdyno_import::import(&Request {
        files: args.files.clone(),
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
        output::note(&format!(
            "{name} is in no published group; it is reported in the group `other`"
        ));
    }
    for name in &imported.without_baseline {
        output::note(&format!("{name} is left out: there is no value for the baseline"));
    }
    Ok(ExitCode::SUCCESS)
}
