//! The SQLite driver with a library compiled for these tests.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use dbdyno_builds::{Builder, CacheDir, Compiler, Request, Source, Variant};
use dbdyno_drivers::sqlite::{Library, SqliteConnection};
use dbdyno_drivers::{Answer, Connection, ErrorKind, Params};
use tempfile::{TempDir, tempdir};

/// SQLite without optimization: it compiles in seconds, and once for all tests.
fn library() -> PathBuf {
    // Root trusts only its own directories: see `scripts/run-tests.sh`.
    let cache = std::env::var_os("DBDYNO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
        .join("dbdyno-cache");
    let request = Request::new(
        Source::bundled_sqlite(),
        Variant::by_name("o0").unwrap(),
        Compiler::find("gcc").unwrap(),
    );
    Builder::new(CacheDir::open(&cache).unwrap())
        .build(&[request], &|_| {})
        .remove(0)
        .unwrap()
        .artifact
}

struct Lab {
    dir: TempDir,
    library: Library,
}

impl Lab {
    fn new() -> Self {
        Self { dir: tempdir().unwrap(), library: Library::load(&library()).unwrap() }
    }

    fn connect(&self) -> SqliteConnection {
        SqliteConnection::open(&self.library, &self.dir.path().join("test.sqlite")).unwrap()
    }

    /// A connection to a database with a table of three rows.
    fn filled(&self) -> SqliteConnection {
        let mut connection = self.connect();
        connection
            .run(
                "CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, c CHAR(20));
                 INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'a longer text'), (3, NULL, NULL);",
            )
            .unwrap();
        connection
    }
}

fn execute(connection: &mut SqliteConnection, sql: &str) -> Answer {
    let statement = connection.prepare(sql).unwrap();
    connection.execute(statement, &Params::default()).unwrap()
}

#[test]
fn library_version_and_options_are_known() {
    let lab = Lab::new();
    assert_eq!(lab.library.version(), Source::bundled_sqlite().version());
    let options = lab.library.compile_options();
    assert!(options.iter().any(|option| option.starts_with("THREADSAFE=")), "{options:?}");
}

#[test]
fn invalid_library_is_named() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("libno.so");
    std::fs::write(&file, "no library").unwrap();
    for path in [file, dir.path().join("missing.so")] {
        let Err(error) = Library::load(&path) else { panic!("{} was loaded", path.display()) };
        assert_eq!(error.kind, ErrorKind::Storage);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn rows_and_changes_are_counted() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    let answer = execute(&mut connection, "SELECT id, c FROM t");
    assert_eq!((answer.rows, answer.affected), (3, 0));
    let answer = execute(&mut connection, "UPDATE t SET k = 5 WHERE id <= 2");
    assert_eq!((answer.rows, answer.affected, answer.digest), (0, 2, 0));
    assert_eq!(execute(&mut connection, "DELETE FROM t WHERE id > 100").affected, 0);
    assert_eq!(execute(&mut connection, "SELECT id FROM t WHERE id > 100"), Answer::default());
}

#[test]
fn integers_and_texts_are_bound() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    let insert = connection.prepare("INSERT INTO t VALUES (?1, ?2, ?3)").unwrap();
    let mut params = Params::default();
    for (id, text) in [(i64::MIN, "ä \0 '"), (i64::MAX, "")] {
        params.clear();
        params.push_int(id);
        params.push_int(-1);
        params.push_text(text.as_bytes());
        assert_eq!(connection.execute(insert, &params).unwrap().affected, 1);
    }
    let find = connection.prepare("SELECT id FROM t WHERE c = ?1 AND k = ?2").unwrap();
    for (text, id) in [("ä \0 '", i64::MIN), ("", i64::MAX)] {
        params.clear();
        params.push_text(text.as_bytes());
        params.push_int(-1);
        let answer = connection.execute(find, &params).unwrap();
        assert_eq!((answer.rows, answer.digest), (1, id.cast_unsigned()));
    }
    assert_eq!(SqliteConnection::placeholder(3), "?3");
}

#[test]
fn digest_depends_on_values_and_not_on_order() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    let mut digest = |sql: &str| execute(&mut connection, sql).digest;
    let all = digest("SELECT id, k, c FROM t ORDER BY id");
    assert_eq!(all, digest("SELECT id, k, c FROM t ORDER BY id DESC"));
    assert_eq!(all, digest("SELECT c, id, k FROM t"));
    assert_ne!(all, digest("SELECT id, k, c FROM t WHERE id < 3"));
    assert_ne!(all, digest("SELECT id, k + 1, c FROM t"));
    assert_ne!(all, digest("SELECT id, k, c || 'x' FROM t"));
    assert_ne!(all, digest("SELECT id, k, upper(c) FROM t"));
}

#[test]
fn failed_statement_can_be_executed_again() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    let insert = connection.prepare("INSERT INTO t (id) VALUES (?1)").unwrap();
    let mut params = Params::default();
    params.push_int(1);
    let error = connection.execute(insert, &params).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Statement);
    assert!(!error.kind.is_fatal());
    assert!(error.to_string().contains("UNIQUE") && error.to_string().contains("INSERT"));
    params.clear();
    params.push_int(9);
    assert_eq!(connection.execute(insert, &params).unwrap().affected, 1);
}

#[test]
fn syntax_error_is_a_statement_error() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    for error in [
        connection.prepare("SELEKT 1").unwrap_err(),
        connection.prepare("SELECT absent FROM t").unwrap_err(),
        connection.run("SELECT 1; SELEKT 2").unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Statement, "{error}");
        assert!(error.to_string().starts_with("preparing "), "{error}");
    }
}

#[test]
fn text_with_other_than_one_statement_is_refused() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    for sql in ["SELECT 1; -- x", "; /* x */ SELECT 1;;"] {
        assert_eq!(execute(&mut connection, sql).rows, 1, "{sql}");
        assert_eq!(connection.query(sql).unwrap().len(), 1, "{sql}");
    }
    for (sql, message) in [
        ("", "the text contains no statement"),
        (" ; -- x", "the text contains no statement"),
        ("SELECT 1; SELECT 2", "the text contains more than one statement"),
        ("CREATE TABLE u (id); INSERT INTO u VALUES (1)", "the text contains more than one"),
        ("SELECT 1; SELEKT 2", "the text contains more than one statement"),
    ] {
        let errors = [connection.prepare(sql).unwrap_err(), connection.query(sql).unwrap_err()];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::Statement, "{error}");
            assert!(error.message.starts_with(message), "{sql}: {error}");
        }
    }
    connection.run("DROP TABLE t").unwrap();
}

#[test]
fn zero_byte_in_sql_is_refused() {
    let lab = Lab::new();
    let mut connection = lab.connect();
    for sql in ["SELECT 1 \0", "\0", "SELECT 1; SELECT '\0'"] {
        let errors = [
            connection.prepare(sql).unwrap_err(),
            connection.query(sql).unwrap_err(),
            connection.run(sql).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.message, "the SQL text contains a zero byte", "{sql:?}");
        }
    }
}

#[test]
fn full_database_is_storage_full() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    let pages: u32 = connection.query_text("PRAGMA page_count").unwrap().parse().unwrap();
    connection.run(&format!("PRAGMA max_page_count = {}", pages + 2)).unwrap();
    let insert = connection.prepare("INSERT INTO t (c) VALUES (hex(randomblob(2000)))").unwrap();
    let error = (0..100)
        .find_map(|_| connection.execute(insert, &Params::default()).err())
        .expect("no room is left after a few rows");
    assert_eq!(error.kind, ErrorKind::StorageFull, "{error}");
    assert!(error.to_string().contains("test.sqlite"), "{error}");
    assert!(error.kind.is_fatal());
}

#[test]
fn invalid_database_file_is_a_storage_error() {
    let lab = Lab::new();
    let missing = lab.dir.path().join("no/such/folder/test.sqlite");
    let Err(error) = SqliteConnection::open(&lab.library, &missing) else { panic!("it opened") };
    assert_eq!(error.kind, ErrorKind::Storage, "{error}");
    assert!(error.to_string().contains("no/such/folder"), "{error}");

    std::fs::write(lab.dir.path().join("test.sqlite"), "no database".repeat(100)).unwrap();
    let error = lab.connect().run("SELECT * FROM sqlite_schema").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Storage, "{error}");
    assert!(error.to_string().contains(&lab.dir.path().display().to_string()), "{error}");
}

#[test]
fn waits_for_other_connections_are_counted() {
    let lab = Lab::new();
    let mut first = lab.filled();
    let has_waited = (0..60).any(|_| {
        let mut second = lab.connect();
        first.run(SqliteConnection::begin_sql(true)).unwrap();
        first.run("UPDATE t SET k = 1").unwrap();
        let (started, has_started) = channel();
        let waiting = thread::spawn(move || {
            started.send(()).unwrap();
            second.run("UPDATE t SET k = 2").unwrap();
            second.busy_retries()
        });
        has_started.recv().unwrap();
        // On a busy machine, it may not have begun by then.
        thread::sleep(Duration::from_millis(200));
        first.run("COMMIT").unwrap();
        waiting.join().unwrap() > 0
    });
    assert!(has_waited);
    assert_eq!(first.busy_retries(), 0);
    assert_eq!(first.query_text("SELECT SUM(k) FROM t").unwrap(), "6");
}

#[test]
fn first_error_ends_a_list_of_statements() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    connection.run(" ; -- nothing\n").unwrap();
    connection
        .run("DELETE FROM t WHERE id = 1; INSERT INTO t (id) VALUES (2); DELETE FROM t")
        .unwrap_err();
    assert_eq!(connection.query_text("SELECT COUNT(*) FROM t").unwrap(), "2");
    assert_eq!(connection.query("SELECT c FROM t WHERE id = 3").unwrap(), [[None]]);
    connection.query_text("SELECT c FROM t WHERE id = 3").unwrap_err();
    connection.query_text("SELECT c FROM t WHERE id = 4").unwrap_err();
}

#[test]
fn closed_statements_hold_no_locks() {
    let lab = Lab::new();
    let mut connection = lab.filled();
    execute(&mut connection, "SELECT * FROM t");
    connection.close_statements();
    connection.run("DROP TABLE t").unwrap();
}
