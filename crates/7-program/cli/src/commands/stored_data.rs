//! The data that an interrupted run left.

use std::path::Path;

use dbdyno_results::RunReader;
use dbdyno_run::StoredData;
use dbdyno_spec::experiment::{Experiment, System};

use crate::output;

/// Prints where the data of a run is, how much it is, and how to remove it. `why` says why it is there.
/// Prints nothing if there is none.
pub fn note(directory: &Path, why: &str) {
    let mut kept = places(&StoredData::of(directory));
    if RunReader::open(directory).is_ok_and(|run| may_have_schemas_on_servers(&run)) {
        kept.push("schemas on existing servers".to_owned());
    }
    if kept.is_empty() {
        return;
    }
    let directory = directory.display();
    output::note(&format!(
        "its data is kept {why}: {}; remove it with: dbdyno clean {directory}",
        kept.join(", ")
    ));
}

/// Why the data of an incomplete run is there.
pub const TO_RESUME: &str = "to resume it";

/// The disk space in each directory, such as `1.1 GiB in /var/tmp/dbdyno-x1y2z3`.
pub fn places(data: &StoredData) -> Vec<String> {
    data.places.iter().map(|(path, size)| format!("{size} in {}", path.display())).collect()
}

/// Whether the run uses existing servers and has not dropped its schemas there. An experiment that
/// cannot be read uses none.
fn may_have_schemas_on_servers(run: &RunReader) -> bool {
    let Ok(Experiment { candidates, .. }) = run.experiment() else { return false };
    candidates.iter().any(|one| matches!(one.system, System::Existing(_)))
        && run.may_have_schemas().unwrap_or(false)
}
