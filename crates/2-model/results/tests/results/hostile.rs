//! Run directories made to attack their reader.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use dbdyno_results::{ProfileRecord, ResultsError, RunReader, RunWriter, remove_checksums};
use dbdyno_types::profile::{Function, Profile, Stack};
use dbdyno_units::Nanos;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::run_directory::{lab, started};

/// A complete run with one change to its database.
fn changed(sql: &str) -> TempDir {
    let dir = lab();
    drop(started(dir.path()));
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    database.execute_batch(sql).unwrap();
    dir
}

fn refused(path: &Path) -> String {
    let read = RunReader::open(path).unwrap_err();
    let resumed = RunWriter::resume(path).unwrap_err();
    assert_eq!(read.to_string(), resumed.to_string());
    read.to_string()
}

#[test]
fn profile_with_unknown_functions_is_damaged() {
    let dir = lab();
    let mut writer = started(dir.path());
    let function =
        Function { module: "mariadbd".to_owned(), name: None, source: None, start: 4096 };
    let record = ProfileRecord {
        candidate: 0,
        restart: 0,
        statements: 10,
        cpu: Nanos::from_millis(1),
        profile: Profile {
            functions: vec![function],
            stacks: vec![Stack { frames: vec![0], samples: 3 }],
            samples: 3,
            ..Profile::default()
        },
    };
    writer.set_profile(0, &record).unwrap();
    drop(writer);
    assert_eq!(RunReader::open(dir.path()).unwrap().profiles(0).unwrap(), [record]);
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database.execute_batch(&remove_checksums()).unwrap();
    for damage in ["'[0]', '[1]'", "'\"samples\":3', '\"samples\":18446744073709551615'"] {
        database
            .execute_batch(&format!("UPDATE profile SET json = replace(json, {damage})"))
            .unwrap();
        let error = RunReader::open(dir.path()).unwrap().profiles(0).unwrap_err().to_string();
        assert!(error.contains("a profile is damaged"), "{error}");
        database.execute_batch("UPDATE profile SET json = replace(json, '[1]', '[0]')").unwrap();
    }
}

#[test]
fn schema_that_computes_is_refused() {
    let endless =
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n";
    for (sql, found) in [
        (
            format!(
                "DROP TABLE candidate; CREATE VIEW candidate AS SELECT x AS id FROM ({endless})"
            ),
            "the view candidate",
        ),
        ("DROP VIEW figures; CREATE VIEW figures AS SELECT 1".to_owned(), "the view figures"),
        (
            "CREATE TRIGGER t AFTER INSERT ON session BEGIN DELETE FROM slice; END".to_owned(),
            "the trigger t",
        ),
        ("CREATE VIRTUAL TABLE extra USING fts5(x)".to_owned(), "the table extra"),
        ("CREATE INDEX i ON slice (abs(block))".to_owned(), "the index i"),
        (
            "ALTER TABLE candidate ADD COLUMN big AS (zeroblob(1000000000))".to_owned(),
            "the computed column candidate.big",
        ),
        (
            "ALTER TABLE candidate ADD COLUMN big DEFAULT 'a long text'".to_owned(),
            "the computed column candidate.big",
        ),
    ] {
        let message = refused(changed(&sql).path());
        assert!(message.contains(found), "{sql}: {message}");
        assert!(message.contains("made to attack its reader"), "{message}");
    }
}

#[test]
fn rows_that_refer_to_nothing_are_damage() {
    for (sql, found) in [
        ("DELETE FROM candidate", "slice is damaged: it refers to candidate 0, and there are 0"),
        ("DELETE FROM candidate WHERE id = 0", "the ids of its 1 rows have gaps"),
        ("UPDATE slice SET microbenchmark = 7 WHERE id = 1", "refers to microbenchmark 7"),
        ("UPDATE slice SET candidate = -1 WHERE id = 2", "refers to candidate -1"),
    ] {
        let dir = changed(sql);
        let error = RunReader::open(dir.path()).unwrap_err();
        assert!(matches!(error, ResultsError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(found), "{sql}: {error}");
    }
}

#[test]
fn too_many_pairs_are_refused() {
    let dir = changed(
        "WITH RECURSIVE n (x) AS (SELECT 2 UNION ALL SELECT x + 1 FROM n WHERE x < 60000) \
         INSERT INTO microbenchmark SELECT x, x, 1, 'g', json, 1, NULL FROM n \
         JOIN (SELECT json FROM microbenchmark WHERE id = 0)",
    );
    let error = RunReader::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("more than 100000 pairs"), "{error}");
}

/// SQLite executes a journal beside a database: this one says that the database had one page.
#[test]
fn rollback_journal_is_not_executed() {
    let dir = lab();
    drop(started(dir.path()));
    let before = fs::read(dir.path().join("run.sqlite")).unwrap();
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    // No records, a nonce, the size of the database, of a sector and of a page.
    for number in [0_u32, 0, 1, 512, 4096] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(512, 0);
    fs::write(dir.path().join("run.sqlite-journal"), journal).unwrap();
    let results = [RunReader::open(dir.path()).map(drop), RunWriter::resume(dir.path()).map(drop)];
    assert!(fs::read(dir.path().join("run.sqlite")).unwrap() == before, "the database changed");
    for result in results {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("run.sqlite-journal"), "{message}");
    }
}

#[test]
fn only_a_regular_file_is_read() {
    let elsewhere = lab();
    drop(started(elsewhere.path()));
    let dir = lab();
    let file = dir.path().join("run.sqlite");
    symlink(elsewhere.path().join("run.sqlite"), &file).unwrap();
    assert!(refused(dir.path()).contains("is a symbolic link"));
    fs::remove_file(&file).unwrap();
    // Opening it would wait for a writer.
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    assert!(refused(dir.path()).contains("is not a regular file"));
}

#[test]
fn reading_changes_no_file() {
    let dir = lab();
    drop(started(dir.path()));
    let files = || {
        let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = files();
    assert_eq!(RunReader::open(dir.path()).unwrap().slices(0).unwrap().len(), 4);
    assert!(files() == before, "{:?}", files().iter().map(|file| &file.0).collect::<Vec<_>>());
}

#[test]
fn run_with_a_special_name_is_read() {
    let dir = lab();
    for name in ["a?mode=memory&b", "50%41", "#1 ü"] {
        let run = dir.path().join(name);
        drop(started(&run));
        assert_eq!(RunReader::open(&run).unwrap().slices(0).unwrap().len(), 4);
    }
}
