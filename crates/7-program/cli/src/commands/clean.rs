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
    let Cleaned { data, schemas, left_alone } =
        dbdyno_run::clean_run(&args.directory, &worker_program()?, args.trust)?;
    for place in places(&data) {
        output::print(&format!("removed {place}\n"));
    }
    for schema in &schemas {
        output::print(&format!("dropped the schema {schema}\n"));
    }
    if data.places.is_empty() && schemas.is_empty() {
        output::print("there was no data to remove\n");
    }
    for reason in left_alone {
        output::note(&format!("left alone: {reason}"));
    }
    Ok(ExitCode::SUCCESS)
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
