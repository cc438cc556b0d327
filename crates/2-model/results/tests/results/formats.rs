//! Runs of other versions of the format.

use dbdyno_results::{ResultsError, RunReader, RunWriter};
use rusqlite::Connection;

use crate::run_directory::{lab, started};

#[test]
fn another_format_is_refused_with_advice() {
    for (format, advice) in [(999, "newer version; use that one"), (7, "measure again")] {
        let dir = lab();
        drop(started(dir.path()));
        let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
        database.pragma_update(None, "user_version", format).unwrap();
        drop(database);
        for error in
            [RunReader::open(dir.path()).unwrap_err(), RunWriter::resume(dir.path()).unwrap_err()]
        {
            assert!(matches!(error, ResultsError::OtherFormat { found, .. } if found == format));
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
