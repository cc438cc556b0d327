//! The marker of a schema on an existing server: which run created the schema, and its tables.
//!
//! Only a schema whose marker has the run's id belongs to the run. Only tables that the marker lists
//! are dropped, and the schema only if nothing else is in it.

use dbdyno_drivers::Error;
use dbdyno_types::{RunId, RunIdentity};
use serde::{Deserialize, Serialize};

use crate::failed;

/// The name of the table that is the marker. Its columns are `kind` and `value`.
pub(crate) const MARKER: &str = "dbdyno_marker";

/// A comment for people who find the schema.
pub(crate) const COMMENT: &str =
    "Created by dbdyno for a run; dbdyno removes its tables. See dbdyno_marker.";

/// The kinds of rows. Those of the run have one row each, `TABLE` has one per table.
const RUN: &str = "run";
const HOST: &str = "host";
const DIRECTORY: &str = "directory";
pub(crate) const TABLE: &str = "table";

/// The rows that name a run: kinds and values.
pub(crate) fn rows_of(run: &RunIdentity) -> [(&'static str, String); 3] {
    [
        (RUN, run.id.as_str().to_owned()),
        (HOST, run.host().to_owned()),
        (DIRECTORY, run.directory().to_string_lossy().into_owned()),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaOwner {
    /// There is no such schema.
    None,
    /// This run; with the tables that the marker lists.
    ThisRun(Vec<String>),
    OtherRun(RunIdentity),
    /// Not dbdyno, or it is unknown which run; with the reason.
    Unknown(String),
}

impl SchemaOwner {
    /// The owner of a schema with these rows in its marker.
    pub(crate) fn of_rows(rows: Vec<Vec<Option<String>>>, run: &RunIdentity) -> Self {
        let (mut id, mut host, mut directory) = (None, None, None);
        let mut tables = Vec::new();
        for row in rows {
            let Ok([Some(kind), Some(value)]) = <[Option<String>; 2]>::try_from(row) else {
                return Self::unmarked();
            };
            match kind.as_str() {
                RUN => id = RunId::try_from(value).ok(),
                HOST => host = Some(value),
                DIRECTORY => directory = Some(value),
                TABLE => tables.push(value),
                _ => {}
            }
        }
        match (id, host, directory) {
            (Some(id), _, _) if id == run.id => Self::ThisRun(tables),
            (Some(id), Some(host), Some(directory)) => {
                Self::OtherRun(RunIdentity::new(id, &host, &directory))
            }
            _ => Self::unmarked(),
        }
    }

    /// The owner of a schema without a marker that names a run.
    pub(crate) fn unmarked() -> Self {
        Self::Unknown(format!(
            "it has no table {MARKER} that names a run, or an earlier version of dbdyno made it"
        ))
    }
}

/// What became of a schema that was to be dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemaRemoval {
    Dropped,
    /// It does not exist.
    Absent,
    /// It does not belong to this run and was left as it is; with the reason.
    LeftAlone(String),
}

/// Why a schema is not this run's, and what to do; `None` if it is, or if there is none.
pub(crate) fn why_not_own(owner: &SchemaOwner, schema: &str) -> Option<String> {
    match owner {
        SchemaOwner::None | SchemaOwner::ThisRun(_) => None,
        SchemaOwner::OtherRun(run) => Some(format!(
            "it belongs to another run, {run}, which may be measuring in it; wait for the end of \
             that run, or remove its tables with `{}` on that host, or set another `schema`. If \
             that directory no longer exists, drop {schema} yourself",
            run.clean_command()
        )),
        SchemaOwner::Unknown(reason) => Some(format!(
            "it exists and dbdyno did not create it for a known run ({reason}); set another \
             `schema`, or drop {schema} yourself if nobody needs it"
        )),
    }
}

/// The error if a schema is not this run's.
pub(crate) fn not_own(doing: &str, schema: &str, reason: String) -> Error {
    failed(format!("{doing} the schema {schema}"), reason)
}

/// The error if objects of others prevent the removal of this run's tables or schema.
pub(crate) fn in_the_way(doing: String, objects: &str) -> Error {
    failed(
        doing,
        format!(
            "not dropped, because of objects that dbdyno did not create: {objects}. Drop or move \
             them, then try again"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(byte: u8) -> RunIdentity {
        RunIdentity::new(RunId::from_random([byte; 16]), "host", "/run")
    }

    fn rows(run: &RunIdentity, tables: &[&str]) -> Vec<Vec<Option<String>>> {
        let tables = tables.iter().map(|table| (TABLE, (*table).to_owned()));
        let all = rows_of(run).into_iter().chain(tables);
        all.map(|(kind, value)| vec![Some(kind.to_owned()), Some(value)]).collect()
    }

    #[test]
    fn only_the_id_makes_a_schema_the_runs_own() {
        let own = SchemaOwner::of_rows(rows(&run(1), &["t1", "t2"]), &run(1));
        assert_eq!(own, SchemaOwner::ThisRun(vec!["t1".to_owned(), "t2".to_owned()]));
        let other = SchemaOwner::of_rows(rows(&run(2), &["t1"]), &run(1));
        assert_eq!(other, SchemaOwner::OtherRun(run(2)));
        let reason = why_not_own(&other, "s").unwrap();
        assert!(reason.contains("`dbdyno clean /run`"), "{reason}");
    }

    #[test]
    fn marker_with_other_content_names_no_run() {
        let text = |words: &[&str]| words.iter().map(|word| Some((*word).to_owned())).collect();
        for rows in [
            vec![],
            vec![text(&["table", "t1"])],
            vec![text(&["run", "none"]), text(&["host", "h"]), text(&["directory", "d"])],
            vec![text(&["run", run(2).id.as_str()])],
            vec![text(&["1"])],
            vec![vec![None, None]],
        ] {
            let owner = SchemaOwner::of_rows(rows.clone(), &run(1));
            assert_eq!(owner, SchemaOwner::unmarked(), "{rows:?}");
        }
    }
}
