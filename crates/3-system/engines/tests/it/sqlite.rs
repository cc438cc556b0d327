//! The life cycle of a SQLite instance, with a library compiled for these tests.

use std::path::PathBuf;

use dbdyno_builds::{Builder, CacheDir, Compiler, Request, Source, Variant};
use dbdyno_drivers::sqlite::SqliteConnection;
use dbdyno_drivers::{Connection, ErrorKind, Params};
use dbdyno_engines::sqlite::{Settings, Sqlite};
use dbdyno_engines::{Engine, Table, clone_file};
use dbdyno_units::Bytes;
use tempfile::{TempDir, tempdir};

/// More than one transaction of loading.
const ROWS: u64 = 10_500;

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

fn settings(journal_mode: &str) -> Settings {
    Settings {
        page_size: Bytes::from_kib(8),
        cache_size: Bytes::from_mib(16),
        journal_mode: journal_mode.to_owned(),
        synchronous: "off".to_owned(),
    }
}

fn tables() -> Vec<Table> {
    vec![Table { name: "sbtest1".to_owned(), index: "k_1".to_owned() }]
}

/// The names of these tables.
fn names() -> Vec<String> {
    tables().into_iter().map(|table| table.name).collect()
}

struct Lab {
    dir: TempDir,
    settings: Settings,
}

impl Lab {
    fn new(journal_mode: &str) -> Self {
        Self { dir: tempdir().unwrap(), settings: settings(journal_mode) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn engine(&self, name: &str) -> Sqlite {
        Sqlite::new(&library(), self.settings.clone(), &self.file(name)).unwrap()
    }

    /// An engine with a loaded table, and a connection to it.
    fn loaded(&self) -> (Sqlite, SqliteConnection) {
        let engine = self.engine("data.sqlite");
        let mut connection = engine.connect().unwrap();
        let mut left = ROWS;
        let mut next = |params: &mut Params| {
            if left == 0 {
                return false;
            }
            left -= 1;
            params.push_int((left % 100).cast_signed());
            params.push_text(format!("{left:0119}").as_bytes());
            params.push_text(&[b'x'; 59]);
            true
        };
        engine.load_table(&mut connection, &tables()[0], &mut next).unwrap();
        (engine, connection)
    }
}

fn state(engine: &Sqlite, connection: &mut SqliteConnection, name: &str) -> u64 {
    let state_snapshot = engine.state_snapshot(connection, &names()).unwrap();
    state_snapshot.state.into_iter().find(|(key, _)| key == name).unwrap().1
}

#[test]
fn loads_settles_takes_a_state_snapshot_and_warms() {
    let lab = Lab::new("wal");
    let (engine, mut connection) = lab.loaded();
    assert_eq!(engine.version().unwrap(), Source::bundled_sqlite().version());
    assert!(!engine.options().is_empty());
    assert!(state(&engine, &mut connection, "wal_bytes") > 0);

    engine.settle(&mut connection).unwrap();
    engine.warm(&mut connection, &tables()).unwrap();
    let state_snapshot = engine.state_snapshot(&mut connection, &names()).unwrap();
    assert_eq!(state_snapshot.rows, ROWS);
    assert!(state_snapshot.data_size > Bytes::from_bytes(ROWS * 180), "{state_snapshot:?}");
    assert_eq!(state(&engine, &mut connection, "page_size"), 8192);
    assert_eq!(state(&engine, &mut connection, "free_pages"), 0);
    assert_eq!(state(&engine, &mut connection, "wal_bytes"), 0);
    let size = std::fs::metadata(lab.file("data.sqlite")).unwrap().len();
    assert_eq!(Bytes::from_bytes(size), state_snapshot.data_size);

    assert_eq!(connection.query_text("PRAGMA integrity_check").unwrap(), "ok");
    let statistics = "SELECT COUNT(*) FROM sqlite_stat1 WHERE tbl = 'sbtest1' AND idx = 'k_1'";
    assert_eq!(connection.query_text(statistics).unwrap(), "1");
    let ids = "SELECT MIN(id) || ' ' || MAX(id) FROM sbtest1";
    assert_eq!(connection.query_text(ids).unwrap(), format!("1 {ROWS}"));
}

#[test]
fn settings_apply_to_every_connection() {
    for (journal_mode, synchronous) in [("wal", "1"), ("delete", "2"), ("persist", "0")] {
        let mut lab = Lab::new(journal_mode);
        let words = ["off", "normal", "full"];
        lab.settings.synchronous = words[synchronous.parse::<usize>().unwrap()].to_owned();
        let engine = lab.engine("data.sqlite");
        for _ in 0..2 {
            let mut connection = engine.connect().unwrap();
            let mut pragma = |name: &str| connection.query_text(&format!("PRAGMA {name}")).unwrap();
            assert_eq!(pragma("journal_mode"), journal_mode);
            assert_eq!(pragma("synchronous"), synchronous);
            assert_eq!(pragma("cache_size"), "-16384");
            assert_eq!(pragma("page_size"), "8192");
        }
    }
}

#[test]
fn settling_works_without_a_write_ahead_log() {
    let lab = Lab::new("delete");
    let (engine, mut connection) = lab.loaded();
    engine.settle(&mut connection).unwrap();
    assert_eq!(engine.state_snapshot(&mut connection, &names()).unwrap().rows, ROWS);
}

#[test]
fn ignored_setting_is_an_error() {
    let mut lab = Lab::new("wall");
    let error = |lab: &Lab| lab.engine("data.sqlite").connect().err().unwrap().to_string();
    assert!(error(&lab).contains("journal_mode = wall"), "{}", error(&lab));
    "wal".clone_into(&mut lab.settings.journal_mode);
    lab.loaded();
    // That of a file with data stays.
    lab.settings.page_size = Bytes::from_kib(4);
    assert!(error(&lab).contains("setting page_size = 4096"), "{}", error(&lab));
    assert!(error(&lab).contains("keeps 8192"), "{}", error(&lab));
    lab.settings.page_size = Bytes::from_kib(8);
    "sometimes".clone_into(&mut lab.settings.synchronous);
    assert!(error(&lab).contains("synchronous = sometimes"), "{}", error(&lab));
}

#[test]
fn settling_during_a_read_is_busy() {
    let lab = Lab::new("wal");
    let (engine, mut connection) = lab.loaded();
    engine.settle(&mut connection).unwrap();
    let mut reader = engine.connect().unwrap();
    reader.run("BEGIN; SELECT COUNT(*) FROM sbtest1").unwrap();
    connection.run("UPDATE sbtest1 SET k = k + 1").unwrap();
    let error = engine.settle(&mut connection).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("another connection"), "{error}");
    reader.run("COMMIT").unwrap();
    engine.settle(&mut connection).unwrap();
}

#[test]
fn clone_has_the_same_content_and_is_independent() {
    let lab = Lab::new("wal");
    let (engine, mut connection) = lab.loaded();
    engine.settle(&mut connection).unwrap();
    let all = |connection: &mut SqliteConnection| {
        let statement = connection.prepare("SELECT id, k, c, pad FROM sbtest1").unwrap();
        connection.execute(statement, &Params::default()).unwrap()
    };
    let original = all(&mut connection);
    let state_snapshot = engine.state_snapshot(&mut connection, &names()).unwrap();
    connection.close_statements();
    drop(connection);
    clone_file(&lab.file("data.sqlite"), &lab.file("clone.sqlite")).unwrap();

    let clone = lab.engine("clone.sqlite");
    let mut connection = clone.connect().unwrap();
    assert_eq!(all(&mut connection), original);
    assert_eq!(original.rows, ROWS);
    assert_eq!(clone.state_snapshot(&mut connection, &names()).unwrap(), state_snapshot);
    assert_eq!(connection.query_text("PRAGMA integrity_check").unwrap(), "ok");

    // What is done to the clone is not done to the original.
    connection.run("DELETE FROM sbtest1 WHERE id > 10").unwrap();
    drop(connection);
    let mut connection = engine.connect().unwrap();
    assert_eq!(all(&mut connection), original);
}

#[test]
fn full_database_is_storage_full() {
    let lab = Lab::new("wal");
    let (engine, mut connection) = lab.loaded();
    let pages = state(&engine, &mut connection, "pages");
    connection.run(&format!("PRAGMA max_page_count = {pages}")).unwrap();
    let table = Table { name: "sbtest2".to_owned(), index: "k_2".to_owned() };
    let mut next = |params: &mut Params| {
        params.push_int(1);
        params.push_text(&[b'c'; 119]);
        params.push_text(&[b'p'; 59]);
        true
    };
    let error = engine.load_table(&mut connection, &table, &mut next).unwrap_err();
    assert_eq!(error.kind, ErrorKind::StorageFull, "{error}");
}

#[test]
fn missing_library_is_named() {
    let dir = tempdir().unwrap();
    let missing = dir.path().join("libsqlite3.so");
    let Err(error) = Sqlite::new(&missing, settings("wal"), &dir.path().join("data.sqlite")) else {
        panic!("it loaded")
    };
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
}
