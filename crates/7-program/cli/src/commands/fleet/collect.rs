//! `dbdyno fleet collect`: the report on the nodes that are done.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_fleet::{FleetDirectory, FleetRecord, Outcome, Store, TaskEnd, TaskRecord, totals};

use super::follow::{exit_code, statuses};
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
    let (_, mut record) = FleetDirectory::read(directory.path())?;
    let outcomes = record.tasks.iter().map(|task| outcome(directory, &record, task));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    let mut runs: Vec<PathBuf> = Vec::new();
    for (task, outcome) in record.tasks.iter_mut().zip(outcomes) {
        task.outcome = outcome;
        if !task.builds && matches!(task.outcome, Some(Outcome::Complete { .. })) {
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

/// How a task ended. If no `fleet run` has seen its result yet, its run is accepted here.
fn outcome(
    directory: &mut FleetDirectory,
    record: &FleetRecord,
    task: &TaskRecord,
) -> Result<Option<Outcome>, CliError> {
    if task.outcome.is_some() {
        return Ok(task.outcome.clone());
    }
    for attempt in &task.attempts {
        let number = attempt.number;
        match directory.files_of(record, &task.name, number).result.map(|result| result.end) {
            Some(TaskEnd::Complete { failures }) => {
                if !task.builds {
                    directory.accept(&task.name, number)?;
                }
                return Ok(Some(Outcome::Complete { attempt: number, failures }));
            }
            Some(TaskEnd::Skipped { reason }) => return Ok(Some(Outcome::Skipped { reason })),
            Some(TaskEnd::Interrupted | TaskEnd::Failed { .. }) | None => {}
        }
    }
    Ok(None)
}
