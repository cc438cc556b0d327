//! The life cycle of private PostgreSQL servers (Debian's package `postgresql`).

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, ErrorKind, Params};
use dbdyno_engines::in_force::{Effect, SettingState};
use dbdyno_engines::postgres::Postgres;
use dbdyno_engines::server::{
    DataShape, Installation, Server, ServerAccess, ServerDir, ServerDirs, ServerError, ServerPlan,
    initialise,
};
use dbdyno_engines::{Engine, SchemaRemoval, Table};
use dbdyno_machine::ProcessTree;
use dbdyno_types::RunIdentity;
use dbdyno_types::server::{Durability, ServerSystem, StatementMode, Target};
use dbdyno_units::{Bytes, Nanos};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::helpers::{Template, clone_template, run};
use crate::server_release::older;
use crate::shared::Shared;

const ROWS: u64 = 2_000;

/// The data directory of the process that a test kills.
const OWNERS_DATA: &str = "DBDYNO_TEST_OWNERS_DATA";

/// A query that does not end by itself.
const ENDLESS: &str =
    "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";

fn plan_with(
    durability: Durability,
    overrides: &[(&str, &str)],
) -> Result<ServerPlan, ServerError> {
    let installation = Installation::find(ServerSystem::PostgreSql, None, None)
        .unwrap_or_else(|error| panic!("{error}"));
    let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let shape = DataShape { tables: 2, rows: ROWS, clients: 4 };
    ServerPlan::new(installation, None, durability, overrides.collect(), shape)
}

pub fn plan() -> ServerPlan {
    plan_with(Durability::Relaxed, &[]).unwrap()
}

pub fn tables() -> Vec<Table> {
    let table = |n| Table { name: format!("sbtest{n}"), index: format!("k_{n}") };
    vec![table(1), table(2)]
}

/// The names of these tables.
pub fn names() -> Vec<String> {
    tables().into_iter().map(|table| table.name).collect()
}

/// A run's server directories, in a directory that the servers' user can reach.
pub struct Lab {
    server_dirs: Option<ServerDirs>,
    _directory: TempDir,
}

impl Drop for Lab {
    /// The data may be outside the directory.
    fn drop(&mut self) {
        if let Some(server_dirs) = self.server_dirs.take().filter(|_| !std::thread::panicking()) {
            server_dirs.remove().unwrap();
        }
    }
}

impl Lab {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let server_dirs = ServerDirs::open(&directory.path().join("data")).unwrap();
        let data = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(directory.path().join("data"), data).unwrap();
        Self { server_dirs: Some(server_dirs), _directory: directory }
    }

    fn server_dir(&self, name: &str) -> ServerDir {
        self.server_dirs.as_ref().unwrap().server_dir(name)
    }

    /// A directory with new data for this plan: a clone of a template unless the format differs.
    pub fn create_data(&self, name: &str, plan: &ServerPlan) -> ServerDir {
        static TEMPLATE: Shared<Template> = Shared::new();
        let server_dir = self.server_dir(name);
        if plan.data_kind(None) == self::plan().data_kind(None) {
            clone_template(&TEMPLATE, plan, &server_dir);
        } else {
            initialise(plan, &server_dir).unwrap_or_else(|error| panic!("{error}"));
        }
        server_dir
    }
}

pub fn start(plan: &ServerPlan, server_dir: &ServerDir) -> Server {
    Server::start(plan, server_dir, None).unwrap_or_else(|error| panic!("{error}"))
}

/// The engine on a private server, or on an existing server for a run.
pub fn engine(target: Target, schema: &str, private: bool) -> Postgres {
    engine_of(target, schema, (!private).then(|| run(1)))
}

/// The engine with this owner of the schema.
pub fn engine_of(target: Target, schema: &str, owner: Option<RunIdentity>) -> Postgres {
    Postgres::new(ServerAccess {
        system: ServerSystem::PostgreSql,
        engine: None,
        target,
        schema: schema.to_owned(),
        statements: StatementMode::Prepared,
        owner,
    })
}

pub fn load(engine: &Postgres, connection: &mut PostgresConnection) {
    for table in tables() {
        let mut row = 0;
        let mut next = |params: &mut Params| {
            row += 1;
            params.push_int(row % 100);
            params.push_text(format!("{row:0119}").as_bytes());
            params.push_text(&[b'x'; 59]);
            row <= ROWS.cast_signed()
        };
        engine.load_table(connection, &table, &mut next).unwrap();
    }
}

/// The only value of an answer.
pub fn value(connection: &mut PostgresConnection, sql: &str) -> String {
    connection.query(sql).unwrap().remove(0).remove(0).unwrap_or_default()
}

fn state(engine: &Postgres, connection: &mut PostgresConnection, name: &str) -> u64 {
    let state_snapshot = engine.state_snapshot(connection, &names()).unwrap();
    state_snapshot.state.iter().find(|(key, _)| key == name).unwrap().1
}

/// The server's process and all its children.
fn processes_of(pid: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    all.filter(|other| *other == pid || parent_of(*other) == Some(pid)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

fn wait_until_gone(processes: &[u32]) {
    let started = Instant::now();
    while let Some(pid) = processes.iter().find(|pid| runs(**pid)) {
        assert!(started.elapsed() < Duration::from_secs(120), "process {pid} still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The number of the server's segment of shared memory.
fn segment_of(server_dir: &ServerDir) -> String {
    let lock = std::fs::read_to_string(server_dir.path().join("data/postmaster.pid")).unwrap();
    lock.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

fn is_there(segment: &str) -> bool {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    all.lines().any(|line| line.split_whitespace().nth(1) == Some(segment))
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

fn backend_pid(connection: &mut PostgresConnection) -> u32 {
    value(connection, "SELECT pg_backend_pid()").parse().unwrap()
}

/// Starts the endless query on a new connection, and waits until it runs.
fn keep_busy(engine: &Postgres) -> u32 {
    let mut busy = engine.connect().unwrap();
    let pid = backend_pid(&mut busy);
    std::thread::spawn(move || busy.run(ENDLESS));
    let mut watcher = engine.connect().unwrap();
    let sql = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    while value(&mut watcher, &sql) != "active" {
        std::thread::sleep(Duration::from_millis(5));
    }
    pid
}

#[test]
fn loads_settles_warms_takes_a_state_snapshot_and_is_cloned() {
    let lab = Lab::new();
    let plan = plan();
    let server_dir = lab.create_data("original", &plan);
    let server = Server::start(&plan, &server_dir, Some("0")).unwrap();
    let engine = engine(server.target(), "dbdyno", true);
    engine.create_schema().unwrap();
    engine.create_schema().unwrap();
    assert_eq!(
        engine.version().unwrap().split_whitespace().next(),
        Some(plan.installation().version.as_str())
    );
    let mut connection = engine.connect().unwrap();
    load(&engine, &mut connection);
    engine.settle(&mut connection).unwrap();
    engine.warm(&mut connection, &tables()).unwrap();

    let state_snapshot = engine.state_snapshot(&mut connection, &names()).unwrap();
    assert_eq!(state_snapshot.rows, 2 * ROWS);
    assert!(state_snapshot.data_size > Bytes::from_bytes(2 * ROWS * 200), "{state_snapshot:?}");
    assert!(state_snapshot.data_size < Bytes::from_bytes(2 * ROWS * 400), "{state_snapshot:?}");
    let pages = state(&engine, &mut connection, "pages");
    assert!(pages > 2 * ROWS * 180 / 8192, "{state_snapshot:?}");
    assert_eq!(state(&engine, &mut connection, "visible_pages"), pages);
    assert_eq!(state(&engine, &mut connection, "dead_rows"), 0);
    let wal = state(&engine, &mut connection, "wal_bytes_since_checkpoint");
    assert!(wal < 5_000, "{wal} bytes: the image of a page has more");
    let ids = "SELECT min(id) || ' ' || max(id) || ' ' || count(*) FROM sbtest2";
    assert_eq!(value(&mut connection, ids), format!("1 {ROWS} {ROWS}"));
    // Ids continue after the loaded rows.
    let inserted = "INSERT INTO sbtest2 (k, c, pad) VALUES (1, '', '') RETURNING id";
    assert_eq!(value(&mut connection, inserted), (ROWS + 1).to_string());
    connection.run(&format!("DELETE FROM sbtest2 WHERE id = {}", ROWS + 1)).unwrap();

    // Settling removes dead rows.
    connection.run("UPDATE sbtest1 SET k = k + 1; SELECT pg_stat_force_next_flush()").unwrap();
    assert!(state(&engine, &mut connection, "dead_rows") >= ROWS);
    assert!(state(&engine, &mut connection, "wal_bytes_since_checkpoint") > 100_000);
    engine.settle(&mut connection).unwrap();
    assert_eq!(state(&engine, &mut connection, "dead_rows"), 0);
    let wal = state(&engine, &mut connection, "wal_bytes_since_checkpoint");
    assert!(wal < 5_000, "{wal} bytes: the image of a page has more");

    let backend = std::fs::read_to_string(format!("/proc/{}/status", backend_pid(&mut connection)));
    assert!(backend.unwrap().contains("Cpus_allowed_list:\t0\n"));
    let processes = processes_of(server.pid());
    assert!(processes.len() > 4, "{processes:?}");
    // The CPU time of a query is measured, although another process executes it.
    let mut family = ProcessTree::of(server.pid()).unwrap();
    let before = family.read().unwrap();
    connection.run("SELECT sum(a) FROM generate_series(1, 200000) a").unwrap();
    let used = family.read().unwrap().since(&before);
    assert!(used.cpu > Nanos::from_millis(2), "{used:?}");
    assert!(used.processes as usize >= processes.len() - 1, "{used:?} {processes:?}");
    // While it runs, its data cannot be copied.
    let copy = lab.server_dir("copy");
    assert!(server_dir.clone_to(&copy).unwrap_err().to_string().contains("running"));
    server.stop().unwrap_or_else(|error| panic!("{error}"));
    wait_until_gone(&processes);
    assert!(connection.run("SELECT 1").is_err());

    // The copy has the same content and is independent.
    server_dir.clone_to(&copy).unwrap_or_else(|error| panic!("{error}"));
    let (one, two) = (start(&plan, &server_dir), start(&plan, &copy));
    let engines = [&one, &two].map(|server| self::engine(server.target(), "dbdyno", true));
    let mut connections = engines.each_ref().map(|engine| engine.connect().unwrap());
    let sum = "SELECT md5(string_agg(t::text, '' ORDER BY id)) FROM sbtest1 t";
    let sums = connections.each_mut().map(|connection| value(connection, sum));
    assert_eq!(sums[0], sums[1]);
    connections[1].run("DELETE FROM sbtest1 WHERE id <= 10").unwrap();
    let rows = "SELECT count(*) FROM sbtest1";
    let counts = connections.each_mut().map(|connection| value(connection, rows));
    assert_eq!(counts, [ROWS.to_string(), (ROWS - 10).to_string()]);
    one.stop().unwrap_or_else(|error| panic!("{error}"));
    two.stop().unwrap_or_else(|error| panic!("{error}"));
    let log = std::fs::read_to_string(copy.log()).unwrap();
    assert!(!log.contains("not properly shut down"), "{log}");
}

/// Skipped for a release that cannot be fetched.
#[test]
#[ignore = "full"]
fn oldest_versions_load_settle_and_warm() {
    for name in ["postgresql-10.23", "postgresql-11.22"] {
        let system = ServerSystem::PostgreSql;
        let Some(release) = older(system, name) else { continue };
        let installation = Installation::find(system, None, Some(release.program())).unwrap();
        let shape = DataShape { tables: 2, rows: ROWS, clients: 4 };
        let plan =
            ServerPlan::new(installation, None, Durability::Relaxed, Vec::new(), shape).unwrap();
        let lab = Lab::new();
        let server = start(&plan, &lab.create_data(name, &plan));
        let engine = engine(server.target(), "dbdyno", true);
        engine.create_schema().unwrap();
        let mut connection = engine.connect().unwrap();
        load(&engine, &mut connection);
        connection.run("UPDATE sbtest1 SET k = k + 1").unwrap();
        engine.settle(&mut connection).unwrap();
        engine.warm(&mut connection, &tables()).unwrap();
        assert_eq!(engine.state_snapshot(&mut connection, &names()).unwrap().rows, 2 * ROWS);
        let pages = state(&engine, &mut connection, "pages");
        assert_eq!(state(&engine, &mut connection, "visible_pages"), pages);
        let settings: Vec<String> = plan.settings().iter().map(|(name, _)| name.clone()).collect();
        for reported in engine.settings_in_force(&settings).unwrap() {
            assert!(matches!(reported.state, SettingState::Reported(_)), "{reported:?}");
        }
        server.stop().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn shown_settings_are_applied() {
    let lab = Lab::new();
    let overrides = [
        ("Work-Mem", "5120kB"),
        ("data_checksums", "on"),
        ("search_path", "\"it's\""),
        ("checkpoint_timeout", "1800"),
        ("wal_buffers", "8kB"),
        ("pg_trgm.similarity_threshold", "0.5"),
        ("auto_explain.log_min_duration", "5s"),
    ];
    let plan = plan_with(Durability::Strict, &overrides).unwrap();
    assert_ne!(plan.data_kind(None), self::plan().data_kind(None));
    let server_dir = lab.create_data("strict", &plan);
    let server = start(&plan, &server_dir);
    let engine = engine(server.target(), "dbdyno", true);
    engine.create_schema().unwrap();
    let mut connection = engine.connect().unwrap();
    for (name, expected) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("work_mem", "5MB"),
        ("data_checksums", "on"),
        ("search_path", "\"it's\", public"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("jit", "off"),
    ] {
        assert_eq!(value(&mut connection, &format!("SHOW {name}")), expected, "{name}");
    }
    // The tables are found although the path does not lead to them.
    load(&engine, &mut engine.connect_to_administer().unwrap());
    engine.warm(&mut connection, &tables()).unwrap();
    // All settings were applied with the values shown.
    let (mut taken, settings) = (0, plan.settings());
    for (name, value) in settings.iter().filter(|(name, _)| name != "data_checksums") {
        let sql = "SELECT setting FROM pg_file_settings WHERE applied AND error IS NULL AND name =";
        let row = connection.query(&format!("{sql} '{name}'")).unwrap();
        assert_eq!(row, [[Some(value.clone())]], "{name}");
        taken += 1;
    }
    assert!(taken > 10);
    let names: Vec<String> = settings.iter().map(|(name, _)| name.clone()).collect();
    let in_force = engine.settings_in_force(&names).unwrap();
    for (reported, (name, asked)) in in_force.iter().zip(settings) {
        let effect = match &reported.state {
            SettingState::Reported(setting) => Some(setting.effect(asked)),
            SettingState::Unknown(_) => None,
        };
        let expected = match name.as_str() {
            "wal_buffers" => Some(Effect::Adjusted),
            // Nothing loads its library; the other one is that of an extension.
            "auto_explain.log_min_duration" => None,
            _ => Some(Effect::AsAsked),
        };
        assert_eq!(effect, expected, "{reported:?}");
    }
    let defaults = in_force.iter().filter(
        |one| matches!(&one.state, SettingState::Reported(setting) if setting.default.is_some()),
    );
    assert!(defaults.count() > 5, "{in_force:?}");
    let options = engine.options();
    let value = |name: &str| options.iter().find(|(own, _)| own == name).map(|(_, value)| &**value);
    for (name, expected) in [
        ("fsync", "on"),
        ("data_checksums", "on"),
        ("collation", "C"),
        ("block_size", "8192"),
        ("random_page_cost", "4"),
    ] {
        assert_eq!(value(name), Some(expected), "{name} in {options:?}");
    }
    assert!(value("CFLAGS").is_some(), "{options:?}");
    assert_eq!((value("port"), value("data_directory")), (None, None), "{options:?}");

    let relaxed = self::plan();
    assert!(relaxed.settings().contains(&("fsync".to_owned(), "off".to_owned())));
    for name in ["port", "listen-addresses", "Data_Directory", "include", "logging_collector"] {
        let error = plan_with(Durability::Relaxed, &[(name, "1")]).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn dropped_server_leaves_no_process_and_no_shared_memory() {
    let lab = Lab::new();
    let plan = plan();
    let server_dir = lab.create_data("dropped", &plan);
    let server = start(&plan, &server_dir);
    let engine = engine(server.target(), "dbdyno", true);
    engine.create_schema().unwrap();
    let busy = keep_busy(&engine);
    let processes = processes_of(server.pid());
    assert!(processes.contains(&busy));
    let segment = segment_of(&server_dir);
    assert!(is_there(&segment));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    assert!(!maps.contains("/dev/shm/"), "{maps}");
    let sockets = server_dir.sockets();
    assert!(sockets.exists());
    drop(server);
    // Killed processes may take a moment to exit.
    wait_until_gone(&processes);
    assert!(!is_there(&segment));
    assert!(!sockets.exists());
    server_dir.remove().unwrap();
    assert!(!server_dir.path().exists());
}

#[test]
fn commit_survives_a_killed_server() {
    let lab = Lab::new();
    let plan = plan();
    let server_dir = lab.create_data("killed", &plan);
    let mut server = start(&plan, &server_dir);
    let engine = engine(server.target(), "dbdyno", true);
    engine.create_schema().unwrap();
    let mut connection = engine.connect().unwrap();
    connection.run("CREATE TABLE kept (n integer); INSERT INTO kept VALUES (4711)").unwrap();
    let busy = keep_busy(&engine);
    let processes = processes_of(server.pid());
    let segment = segment_of(&server_dir);
    assert!(server.ended().is_none());
    kill(server.pid());
    let started = Instant::now();
    let message = loop {
        if let Some(error) = server.ended() {
            break error.to_string();
        }
        assert!(started.elapsed() < Duration::from_secs(120));
    };
    assert!(message.contains("killed"), "{message}");
    // The busy backend, too, which does not check for its parent.
    assert!(processes.contains(&busy));
    wait_until_gone(&processes);
    assert!(!is_there(&segment));
    let error = connection.run("SELECT 1").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    drop(server);

    // A copy of the data can be started as well as the original.
    assert!(server_dir.path().join("data/postmaster.pid").exists());
    let copy = lab.server_dir("copy");
    server_dir.clone_to(&copy).unwrap();
    for server_dir in [server_dir, copy] {
        let server = start(&plan, &server_dir);
        let engine = self::engine(server.target(), "dbdyno", true);
        let mut connection = engine.connect().unwrap();
        assert_eq!(value(&mut connection, "SELECT n FROM kept"), "4711");
        drop(connection);
        server.stop().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn killed_backend_ends_the_server() {
    let lab = Lab::new();
    let plan = plan();
    let server_dir = lab.create_data("crashed", &plan);
    let mut server = start(&plan, &server_dir);
    let mut connection = engine(server.target(), "postgres", true).connect().unwrap();
    kill(backend_pid(&mut connection));
    let started = Instant::now();
    let message = loop {
        if let Some(error) = server.ended() {
            break error.to_string();
        }
        assert!(started.elapsed() < Duration::from_secs(120), "the server did not exit");
    };
    assert!(message.contains("terminated by signal 9"), "{message}");
}

#[test]
fn failed_start_shows_the_end_of_the_log() {
    let lab = Lab::new();
    let server_dir = lab.create_data("data", &plan());
    let wrong = plan_with(Durability::Relaxed, &[("shared_buffers", "plenty")]).unwrap();
    let error = Server::start(&wrong, &server_dir, None).err().unwrap().to_string();
    assert!(error.contains("invalid value for parameter \"shared_buffers\""), "{error}");
    assert!(error.contains(&server_dir.log().display().to_string()), "{error}");
    let misspelt = plan_with(Durability::Relaxed, &[("shred_buffers", "1GB")]).unwrap();
    let error = Server::start(&misspelt, &server_dir, None).err().unwrap().to_string();
    assert!(error.contains("shred_buffers"), "{error}");
    // The data is still usable.
    start(&plan(), &server_dir).stop().unwrap();

    let wrong = plan_with(Durability::Relaxed, &[("data_checksums", "perhaps")]).unwrap();
    let server_dir = lab.server_dir("unmade");
    let error = initialise(&wrong, &server_dir).unwrap_err().to_string();
    assert!(error.contains("perhaps"), "{error}");
    assert!(!server_dir.exists());
}

#[test]
fn other_program_is_rejected() {
    let error = Installation::find(ServerSystem::PostgreSql, None, Some(Path::new("/bin/true")));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL"), "{error}");
    let missing = Path::new("/nowhere/postgres");
    let error = Installation::find(ServerSystem::PostgreSql, None, Some(missing)).unwrap_err();
    assert!(error.to_string().contains("/nowhere/postgres"), "{error}");
}

#[test]
fn existing_server_keeps_foreign_schemas() {
    let lab = Lab::new();
    let plan = plan();
    let server_dir = lab.create_data("existing", &plan);
    let server = start(&plan, &server_dir);
    // An existing server with its own tables, and a user who may only create schemas.
    let mut owner = engine(server.target(), "postgres", true).connect().unwrap();
    owner
        .run(
            "CREATE TABLE sbtest1 (mine integer); INSERT INTO sbtest1 VALUES (1); \
             CREATE SCHEMA theirs; CREATE TABLE theirs.t (n integer); \
             CREATE ROLE guest LOGIN; GRANT CREATE ON DATABASE postgres TO guest",
        )
        .unwrap();
    let guest = Target { user: "guest".to_owned(), ..server.target() };

    let foreign = engine(server.target(), "theirs", false);
    let error = foreign.create_schema().unwrap_err().to_string();
    assert!(error.contains("theirs") && error.contains("did not create"), "{error}");
    assert!(matches!(foreign.drop_schema(), Ok(SchemaRemoval::LeftAlone(_))));
    assert_eq!(value(&mut owner, "SELECT to_regclass('theirs.t')"), "theirs.t");

    let name = "Dbdyno \"test\"";
    let ours = engine(guest, name, false);
    ours.drop_schema().unwrap();
    ours.create_schema().unwrap();
    ours.create_schema().unwrap();
    let mut connection = ours.connect().unwrap();
    load(&ours, &mut connection);
    ours.settle(&mut connection).unwrap();
    ours.warm(&mut connection, &tables()).unwrap();
    assert_eq!(ours.state_snapshot(&mut connection, &names()).unwrap().rows, 2 * ROWS);
    assert_eq!(state(&ours, &mut connection, "dead_rows"), 0);
    assert!(ours.options().contains(&("fsync".to_owned(), "off".to_owned())));
    let tables = "SELECT string_agg(n.nspname, ',' ORDER BY n.nspname) FROM pg_class c \
                  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'sbtest1'";
    assert_eq!(value(&mut owner, tables), format!("{name},public"));
    // A second schema is independent of the first one.
    let control = engine(server.target(), "dbdyno_control", false);
    control.create_schema().unwrap();
    load(&control, &mut control.connect().unwrap());
    control.drop_schema().unwrap();
    assert_eq!(ours.state_snapshot(&mut connection, &names()).unwrap().rows, 2 * ROWS);
    drop(connection);

    ours.drop_schema().unwrap();
    ours.drop_schema().unwrap();
    assert_eq!(value(&mut owner, tables), "public");
    assert_eq!(value(&mut owner, "SELECT mine FROM sbtest1"), "1");
    drop(owner);
    server.stop().unwrap();
}

#[test]
fn killed_owner_leaves_data_but_no_server() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let data = directory.path().join("data");
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "postgres::owner_that_is_killed", "--ignored", "--nocapture"])
        .env(OWNERS_DATA, &data)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let mut printed = lines
        .map_while(Result::ok)
        .filter_map(|line| Some(line.split_once("server ")?.1.to_owned()));
    let printed = printed.next().unwrap_or_else(|| panic!("{:?}", owner.wait()));
    let words: Vec<&str> = printed.split(' ').collect();
    let (server, segment, sockets) = (words[0].parse().unwrap(), words[1], Path::new(words[2]));
    let processes = processes_of(server);
    assert!(processes.len() > 5 && is_there(segment) && sockets.exists());
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until_gone(&processes);
    assert!(!is_there(segment));
    // The next session of the same run uses the data and removes the sockets.
    let server_dirs = ServerDirs::open(&data).unwrap();
    assert!(!sockets.parent().unwrap().exists());
    let server_dir = server_dirs.server_dir("owned");
    let plan = plan();
    let server = start(&plan, &server_dir);
    let mut connection = engine(server.target(), "dbdyno", true).connect().unwrap();
    assert_eq!(value(&mut connection, "SELECT n FROM kept"), "1");
    drop(connection);
    server.stop().unwrap();
    drop(server_dir);
    server_dirs.remove().unwrap();
}

#[test]
#[ignore = "started by another test, in a separate process"]
fn owner_that_is_killed() {
    let Some(data) = std::env::var_os(OWNERS_DATA) else { return };
    let server_dirs = ServerDirs::open(Path::new(&data)).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o711)).unwrap();
    let (plan, server_dir) = (plan(), server_dirs.server_dir("owned"));
    initialise(&plan, &server_dir).unwrap();
    let server = start(&plan, &server_dir);
    let engine = engine(server.target(), "dbdyno", true);
    engine.create_schema().unwrap();
    let mut connection = engine.connect().unwrap();
    connection.run("CREATE TABLE kept AS SELECT 1 AS n").unwrap();
    keep_busy(&engine);
    println!(
        "server {} {} {}",
        server.pid(),
        segment_of(&server_dir),
        server_dir.sockets().display()
    );
    std::thread::sleep(Duration::from_secs(60));
}
