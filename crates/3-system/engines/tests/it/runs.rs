use dbdyno_engines::SchemaRemoval;
use dbdyno_types::{RunId, RunIdentity};

/// A run with this id, in the directory `/runs/ID`.
pub fn run(id: u8) -> RunIdentity {
    RunIdentity::new(RunId::from_random([id; 16]), "host", &format!("/runs/{id}"))
}

/// Why the schema was left alone.
#[track_caller]
pub fn reason(removal: SchemaRemoval) -> String {
    match removal {
        SchemaRemoval::LeftAlone(reason) => reason,
        other => panic!("{other:?}"),
    }
}
