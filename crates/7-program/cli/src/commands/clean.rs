//! The data that an interrupted run left, and `dbdyno clean`.

use std::path::Path;
use std::process::ExitCode;

use dbdyno_results::RunReader;
use dbdyno_run::{Cleaned, StoredData};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_units::shell_quoted;

use crate::args::Clean;
use crate::commands::session::worker_program;
use crate::error::CliError;
use crate::output;

pub fn clean(args: &Clean) -> Result<ExitCode, CliError> {
    let cleaned = dbdyno_run::clean_run(&args.directory, &worker_program()?, args.trust)?;
    output::print(&removed(&cleaned));
    for reason in &cleaned.left_alone {
        output::note(&format!("left alone: {reason}"));
    }
    cleaned.complete()?;
    Ok(ExitCode::SUCCESS)
}

/// What was removed, in lines.
fn removed(Cleaned { data, logs, schemas, failed, .. }: &Cleaned) -> String {
    let mut lines: Vec<String> =
        places(data).iter().map(|place| format!("removed {place}\n")).collect();
    lines.extend(schemas.iter().map(|schema| format!("dropped the schema {schema}\n")));
    if lines.is_empty() && failed.is_empty() {
        let logs = logs.iter().map(|log| format!("removed the log {}\n", log.display()));
        lines.extend(logs);
        let rest =
            if lines.is_empty() { "there was no data to remove" } else { "no other data was left" };
        lines.push(format!("{rest}\n"));
    }
    lines.concat()
}

/// Prints where the data of a run is, how much it is, and how to remove it. `why` says why it is there.
/// Prints nothing if there is none.
pub fn note_stored_data(directory: &Path, why: &str) {
    let mut kept = places(&StoredData::of(directory));
    if RunReader::open(directory).is_ok_and(|run| may_have_schemas_on_servers(&run)) {
        kept.push("schemas on existing servers".to_owned());
    }
    if kept.is_empty() {
        return;
    }
    let directory = shell_quoted(&directory.to_string_lossy());
    output::note(&format!(
        "its data is kept {why}: {}; remove it with: dbdyno clean {directory}",
        kept.join(", ")
    ));
}

/// The disk space in each directory, such as `1.1 GiB in /var/tmp/dbdyno-x1y2z3`.
fn places(data: &StoredData) -> Vec<String> {
    data.places.iter().map(|(path, size)| format!("{size} in {}", path.display())).collect()
}

/// Whether the run uses existing servers and has not dropped its schemas there. An experiment that
/// cannot be read uses none.
fn may_have_schemas_on_servers(run: &RunReader) -> bool {
    let Ok(Experiment { candidates, .. }) = run.experiment() else { return false };
    candidates.iter().any(|one| matches!(one.system, System::Existing(_)))
        && run.may_have_schemas().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Bytes;

    use super::*;

    #[test]
    fn logs_are_named_if_there_was_no_data() {
        let none = Cleaned::default();
        assert_eq!(removed(&none), "there was no data to remove\n");
        let logs = Cleaned { logs: vec!["/x/a/server.log".into()], ..none };
        let text = "removed the log /x/a/server.log\nno other data was left\n";
        assert_eq!(removed(&logs), text);
        let data = StoredData { places: vec![("/x".into(), Bytes::from_mib(1_536))] };
        assert_eq!(removed(&Cleaned { data, ..logs }), "removed 1.5 GiB in /x\n");
    }
}
