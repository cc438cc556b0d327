//! `dbdyno fleet collect`: the report on the nodes that are done.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_fleet::{FleetDirectory, FleetRecord, Outcome, Store, TaskEnd, TaskRecord, totals};

use super::{exit_code, statuses};
use crate::args::{FleetCollect, View};
use crate::commands::report;
use crate::error::CliError;
use crate::output;

/// Reports on the nodes that are done.
pub fn collect(args: &FleetCollect) -> Result<ExitCode, CliError> {
    let (mut directory, _) = FleetDirectory::read(&args.directory)?;
    report_on(&mut directory, &args.directory, args.out.as_deref(), args.view)
}

/// Prints the report of one node, or the comparison of several. `shown` is the directory as the user
/// named it.
pub fn report_on(
    directory: &mut FleetDirectory,
    shown: &Path,
    out: Option<&Path>,
    view: View,
) -> Result<ExitCode, CliError> {
    let (_, record) = FleetDirectory::read(directory.path())?;
    let mut runs: Vec<PathBuf> = Vec::new();
    for task in record.tasks.iter().filter(|task| !task.builds) {
        if is_complete(directory, &record, task)? {
            runs.push(shown.join(&task.name));
        }
    }
    match (&runs[..], record.request.shard) {
        ([], _) => output::note("no node is done yet"),
        ([only], _) => {
            drop(report::show(only, view, false)?);
            if out.is_some() {
                output::note("nothing is written to --out: one node has no comparison");
            }
        }
        (several, _) => report::compare(several, out, view, false)?,
    }
    if record.request.shard && runs.len() > 1 {
        output::print(&format!("\n{}\n", measured_by(&record).join("\n")));
    }
    output::print(&format!("\n{}\n", totals(&statuses(directory, &record))));
    Ok(exit_code(&record))
}

/// Which node measured which microbenchmarks, a line per shard.
fn measured_by(record: &FleetRecord) -> Vec<String> {
    let line = |task: &TaskRecord| {
        let names = task.microbenchmarks.as_ref()?.join(", ");
        Some(format!("{} on {}: {names}", task.name, task.node))
    };
    record.tasks.iter().filter_map(line).collect()
}

/// Whether the run of a task is complete. Takes it over if nothing has done so yet.
fn is_complete(
    directory: &mut FleetDirectory,
    record: &FleetRecord,
    task: &TaskRecord,
) -> Result<bool, CliError> {
    if let Some(outcome) = &task.outcome {
        return Ok(matches!(outcome, Outcome::Complete { .. }));
    }
    for attempt in &task.attempts {
        let result = directory.files_of(record, &task.name, attempt.number).result;
        if result.is_some_and(|result| matches!(result.end, TaskEnd::Complete { .. })) {
            directory.accept(&task.name, attempt.number)?;
            return Ok(true);
        }
    }
    Ok(false)
}
