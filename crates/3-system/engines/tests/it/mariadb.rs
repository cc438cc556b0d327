//! The life cycle of private MariaDB servers with InnoDB and MyRocks.
//!
//! Needs Debian's packages mariadb-server and mariadb-plugin-rocksdb.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Params, verifier};
use dbdyno_engines::in_force::{Effect, SettingState};
use dbdyno_engines::mysql::MySql;
use dbdyno_engines::server::{
    DataShape, Installation, Network, Server, ServerAccess, ServerDir, ServerDirs, ServerPlan,
    initialise,
};
use dbdyno_engines::{Engine, SchemaRemoval, Table};
use dbdyno_types::server::{
    Address, Durability, ServerSystem, StatementMode, StorageEngine, Target, Tls,
};
use dbdyno_types::{RunIdentity, StateSnapshot};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::helpers::{Template, clone_template, run};
use crate::outside::free_port;
use crate::shared::Shared;

const ROWS: u64 = 2_000;

fn shape() -> DataShape {
    DataShape { tables: 2, rows: ROWS, clients: 2 }
}

pub fn plan(engine: StorageEngine, overrides: &[(&str, &str)]) -> ServerPlan {
    let installation = Installation::find(ServerSystem::MariaDb, Some(engine), None).unwrap();
    let mut all = vec![("innodb_log_file_size".to_owned(), "16M".to_owned())];
    all.extend(overrides.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    ServerPlan::new(installation, Some(engine), Durability::Relaxed, all, shape()).unwrap()
}

/// Gives the directory a copy of new data for this plan.
pub fn create_data(plan: &ServerPlan, server_dir: &ServerDir) {
    static INNODB: Shared<Template> = Shared::new();
    static MYROCKS: Shared<Template> = Shared::new();
    let template = match plan.engine() {
        Some(StorageEngine::MyRocks) => &MYROCKS,
        _ => &INNODB,
    };
    clone_template(template, plan, server_dir);
}

/// The data directory of a run, which must be empty at the end.
pub struct Run {
    directory: TempDir,
    server_dirs: Option<ServerDirs>,
}

impl Run {
    pub fn new() -> Self {
        let closed = std::fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(closed).tempdir().unwrap();
        let server_dirs = Some(ServerDirs::open(directory.path()).unwrap());
        Self { directory, server_dirs }
    }

    pub fn server_dir(&self, name: &str) -> ServerDir {
        self.server_dirs.as_ref().unwrap().server_dir(name)
    }

    /// Removes everything, and checks that nothing is left.
    pub fn end(mut self) {
        let servers = self.directory.path().join("servers").canonicalize().unwrap();
        let server_dir = self.server_dir("any");
        let sockets = server_dir.sockets().parent().unwrap().to_owned();
        drop(server_dir);
        self.server_dirs.take().unwrap().remove().unwrap();
        assert!(!servers.exists(), "{} is left", servers.display());
        assert!(!sockets.exists(), "{} is left", sockets.display());
        assert!(std::fs::read_dir(self.directory.path()).unwrap().next().is_none());
    }
}

fn socket(server: &Server) -> PathBuf {
    match server.target().address {
        Address::Socket(path) => path,
        Address::Tcp { .. } => panic!("a private server listens on TCP"),
    }
}

fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// New data has a `root` without password at 127.0.0.1.
#[test]
fn server_that_starts_on_a_network_admits_nobody_else_at_any_time() {
    let run = Run::new();
    let plan = plan(StorageEngine::InnoDb, &[("skip_name_resolve", "OFF")]);
    let server_dir = run.server_dir("a");
    initialise(&plan, &server_dir).unwrap();
    let (address, port) = (IpAddr::from([127, 0, 0, 1]), free_port());
    let root = Target {
        user: "root".to_owned(),
        database: None,
        password: false,
        address: Address::Tcp { host: address.to_string(), port },
        tls: Tls::Off,
        server_public_key: None,
    };
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let intruder = scope.spawn(|| {
            let mut attempts = 0;
            while !has_ended.load(Ordering::Relaxed) {
                assert!(MySqlConnection::connect(&root, StatementMode::Text).is_err(), "admitted");
                attempts += 1;
            }
            attempts
        });
        let network = Network {
            address,
            port,
            client: IpAddr::from([127, 0, 0, 2]),
            verifier: verifier(ServerSystem::MariaDb, "secret"),
            tls: false,
        };
        let server = Server::start_on_network(&plan, &server_dir, None, network);
        has_ended.store(true, Ordering::Relaxed);
        server.unwrap().stop().unwrap();
        assert!(intruder.join().unwrap() > 10);
    });
    drop(server_dir);
    run.end();
}

#[test]
fn server_runs_as_unprivileged_user_and_stops_cleanly() {
    let run = Run::new();
    let odd = [
        ("innodb_doublewrite", "MAYBE", Some(Effect::Ignored)),
        ("innodb_flush_log_at_trx_commit", "7", Some(Effect::Ignored)),
        ("skip_name_resolve", "yes", Some(Effect::Ignored)),
        ("loose-inodb_io_capacity", "300", None),
        ("innodb_io_capacity", "10", Some(Effect::Adjusted)),
        ("innodb_flush_method", "4", Some(Effect::AsAsked)),
        ("transaction-isolation", "read-committed", Some(Effect::AsAsked)),
        ("optimizer_switch", "mrr=on", Some(Effect::AsAsked)),
        ("sql_mode", "TRADITIONAL", Some(Effect::AsAsked)),
    ];
    let plan = plan(StorageEngine::InnoDb, &odd.map(|(name, asked, _)| (name, asked)));
    let server_dir = run.server_dir("a");
    initialise(&plan, &server_dir).unwrap();
    assert!(server_dir.exists() && initialise(&plan, &server_dir).is_err());
    let mut server = Server::start(&plan, &server_dir, Some("0")).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(!status.contains("Uid:\t0"), "it runs as root");
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", server.pid())).unwrap();
    for variable in environment.split_terminator('\0') {
        let name = variable.split('=').next().unwrap();
        assert!(["PATH", "HOME", "TMPDIR", "LC_ALL"].contains(&name), "{variable}");
    }
    let engine = engine(&server, StorageEngine::InnoDb, true);
    let own: Vec<(&str, &str)> =
        plan.settings().iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let names: Vec<String> = own.iter().map(|(name, _)| (*name).to_owned()).collect();
    let in_force = engine.settings_in_force(&names).unwrap();
    for (reported, (name, asked)) in in_force.iter().zip(own) {
        let effect = match &reported.state {
            SettingState::Reported(setting) => Some(setting.effect(asked)),
            SettingState::Unknown(near) => {
                assert_eq!(near.as_deref(), Some("innodb_io_capacity"), "{name}");
                None
            }
        };
        let same = |odd: &str| odd.replace('-', "_") == name;
        let odd = odd.iter().find(|(odd, ..)| same(odd));
        match odd {
            Some((.., expected)) => assert_eq!(effect, *expected, "{reported:?}"),
            // Limits of the machine may lower one of dbdyno's own.
            None => {
                assert!(matches!(effect, Some(Effect::AsAsked | Effect::Adjusted)), "{reported:?}")
            }
        }
    }
    let defaults = in_force.iter().filter(
        |one| matches!(&one.state, SettingState::Reported(setting) if setting.default.is_some()),
    );
    assert!(defaults.count() > 5, "{in_force:?}");
    let warnings = server.warnings();
    assert!(warnings.iter().any(|line| line.contains("invalid value 'MAYBE'")), "{warnings:?}");
    assert!(socket(&server).as_os_str().len() < 107);
    assert!(server.ended().is_none());
    assert!(Server::start(&plan, &server_dir, None).is_err(), "two servers on the same data");
    assert!(server_dir.remove().is_err() && server_dir.clone_to(&run.server_dir("b")).is_err());
    let (pid, socket) = (server.pid(), socket(&server));
    server.stop().unwrap();
    assert!(!runs(pid) && !socket.exists());
    drop(server_dir);
    run.end();
}

#[test]
fn dropped_server_is_killed_and_recovers() {
    let run = Run::new();
    let plan = plan(StorageEngine::InnoDb, &[]);
    create_data(&plan, &run.server_dir("a"));
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let (pid, socket) = (server.pid(), socket(&server));
    drop(server);
    assert!(!runs(pid) && !socket.exists());
    // It recovers when it is started again.
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    check_death(server);
    run.end();
}

/// Kills a server; its end must be noticed and explained.
pub fn check_death(mut server: Server) {
    kill(server.pid());
    let mut exit = None;
    wait_until("its exit is not noticed", || {
        exit = server.ended();
        exit.is_some()
    });
    let error = exit.unwrap();
    let (brief, whole) = (error.brief(), error.to_string());
    assert!(brief.contains("was killed") && !brief.contains('\n'), "{brief}");
    assert!(whole.starts_with(&brief) && whole.contains("the end of its log"), "{whole}");
    assert!(server.stop().is_err());
}

#[test]
fn failed_start_reports_the_reason() {
    let run = Run::new();
    let good = plan(StorageEngine::InnoDb, &[]);
    create_data(&good, &run.server_dir("a"));
    let started = Instant::now();
    let bad = plan(StorageEngine::InnoDb, &[("no_such_setting", "1")]);
    let error = Server::start(&bad, &run.server_dir("a"), None).err().unwrap().to_string();
    assert!(error.contains("starting MariaDB") && error.contains("no_such_setting"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "its exit was noticed late");
    let error = Server::start(&good, &run.server_dir("b"), None).err().unwrap().to_string();
    assert!(error.contains("looking for the server's data"), "{error}");
    let error = Server::start(&good, &run.server_dir("a"), Some("4000")).err().unwrap().to_string();
    assert!(error.starts_with("starting /"), "{error}");
    let error = initialise(&bad, &run.server_dir("c")).unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
    assert!(!error.contains("server.log"), "it names a file that was removed: {error}");
    assert!(!run.server_dir("c").exists());
    run.end();
}

#[test]
fn missing_program_is_reported_with_its_package() {
    let error = |system, engine, named: Option<&str>| {
        Installation::find(system, engine, named.map(Path::new)).unwrap_err().to_string()
    };
    // A server program without the rest of its installation.
    let bare = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(bare.path().join("sbin")).unwrap();
    std::fs::create_dir_all(bare.path().join("bin")).unwrap();
    std::fs::create_dir_all(bare.path().join("lib/mysql/plugin")).unwrap();
    let program = bare.path().join("sbin/mariadbd");
    std::fs::copy("/usr/sbin/mariadbd", &program).unwrap();
    let named = program.to_str();
    let text = error(ServerSystem::MariaDb, None, named);
    assert!(text.contains("mariadb-install-db") && text.contains("mariadb-server"), "{text}");
    std::fs::copy("/usr/bin/mariadb-install-db", bare.path().join("bin/mariadb-install-db"))
        .unwrap();
    let text = error(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), named);
    assert!(text.contains("mariadb-plugin-rocksdb"), "{text}");
    let text = error(ServerSystem::MySql, None, named);
    assert!(text.contains("it is MariaDB"), "{text}");
    let text = error(ServerSystem::MariaDb, None, Some("/bin/true"));
    assert!(text.contains("not usable as MariaDB"), "{text}");
    let text = error(ServerSystem::MariaDb, None, Some("/no/such/program"));
    assert!(text.contains("/no/such/program"), "{text}");
}

#[test]
fn full_disk_is_reported() {
    check_full_disk(&plan(StorageEngine::InnoDb, &[]));
}

/// Creates data on a disk that is too small for it.
pub fn check_full_disk(plan: &ServerPlan) {
    let disk = tempfile::tempdir().unwrap();
    let tmpfs = ["-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs"];
    let mounted = Command::new("mount").args(tmpfs).arg(disk.path()).output().unwrap();
    if !mounted.status.success() {
        let reason = String::from_utf8_lossy(&mounted.stderr).trim().to_owned();
        return dbdyno_fuzz::skip(&format!("cannot mount: {reason}"));
    }
    std::fs::set_permissions(disk.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The servers' user must be able to reach the directory, or the data would be in another directory.
    std::fs::create_dir(disk.path().join("run")).unwrap();
    std::fs::set_permissions(disk.path().join("run"), std::fs::Permissions::from_mode(0o755))
        .unwrap();
    let server_dirs = ServerDirs::open(&disk.path().join("run")).unwrap();
    let server_dir = server_dirs.server_dir("a");
    let result = initialise(plan, &server_dir);
    let left = server_dir.exists();
    drop(server_dir);
    server_dirs.remove().unwrap();
    // A process that another test is starting may hold a file for a moment; a server that is left
    // would hold it for ever.
    let start = Instant::now();
    while !Command::new("umount").arg(disk.path()).status().unwrap().success() {
        assert!(start.elapsed() < Duration::from_secs(120), "a process still uses it");
        std::thread::sleep(Duration::from_millis(50));
    }
    let error = result.unwrap_err();
    assert!(error.is_storage_full(), "{error}");
    assert!(error.to_string().contains("is full") && !left, "{error}");
}

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "started by another test, in a separate process"]
fn owner_that_is_killed() {
    let Some(data) = std::env::var_os("DBDYNO_TEST_DATA") else { return };
    let server_dirs = ServerDirs::open(Path::new(&data)).unwrap();
    let plan = plan(StorageEngine::InnoDb, &[]);
    initialise(&plan, &server_dirs.server_dir("a")).unwrap();
    let server = Server::start(&plan, &server_dirs.server_dir("a"), None).unwrap();
    println!("server {} {}", server.pid(), server_dirs.server_dir("a").sockets().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn killed_owner_leaves_data_but_no_server() {
    let run = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mariadb::owner_that_is_killed", "--ignored", "--nocapture"])
        .env("DBDYNO_TEST_DATA", run.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let words = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("server ").map(|(_, words)| words.to_owned()));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let words = words.unwrap();
    let (pid, sockets) = words.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    wait_until("the server outlived its owner", || !runs(pid));
    let private = Path::new(sockets).parent().unwrap();

    // The next session of the same run uses the data.
    let server_dirs = ServerDirs::open(run.path()).unwrap();
    assert!(!private.exists(), "{} is left", private.display());
    let server_dir = server_dirs.server_dir("a");
    assert!(server_dir.exists());
    Server::start(&plan(StorageEngine::InnoDb, &[]), &server_dir, None).unwrap().stop().unwrap();
    server_dirs.remove().unwrap();
}

/// The engine on a private server, or on an existing server for a run.
fn engine(server: &Server, engine: StorageEngine, private: bool) -> MySql {
    engine_of(server, engine, (!private).then(|| run(1)))
}

/// The engine with this owner of the schema.
pub fn engine_of(server: &Server, engine: StorageEngine, owner: Option<RunIdentity>) -> MySql {
    MySql::new(ServerAccess {
        system: ServerSystem::MariaDb,
        engine: Some(engine),
        target: server.target(),
        schema: "dbdyno".to_owned(),
        statements: StatementMode::Prepared,
        owner,
    })
}

pub fn tables() -> Vec<Table> {
    (1..=2).map(|n| Table { name: format!("sbtest{n}"), index: format!("k_{n}") }).collect()
}

/// The names of these tables.
pub fn names() -> Vec<String> {
    tables().into_iter().map(|table| table.name).collect()
}

/// Loads this many rows, of the usual lengths.
pub fn load(engine: &MySql, connection: &mut MySqlConnection, table: &Table, rows: u64) {
    let mut made = 0;
    let mut next = |params: &mut Params| {
        made += 1;
        if made <= rows {
            params.push_int((made * 7919 % rows).cast_signed() + 1);
            params.push_text(format!("{made:0119}").as_bytes());
            params.push_text(format!("{made:059}").as_bytes());
        }
        made <= rows
    };
    engine.load_table(connection, table, &mut next).unwrap();
}

fn figure(state_snapshot: &StateSnapshot, name: &str) -> u64 {
    let found = state_snapshot.state.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no {name} in {state_snapshot:?}")).1
}

fn text(connection: &mut MySqlConnection, sql: &str) -> String {
    connection.query(sql).unwrap().remove(0).remove(0).unwrap()
}

/// From nothing to two running servers with the same data; `changes` is run in between, and
/// `check` gets the state snapshots before and after settling.
fn check_life_cycle(storage: StorageEngine, check: impl Fn(&StateSnapshot, &StateSnapshot)) {
    let run = Run::new();
    let plan = plan(storage, &[]);
    create_data(&plan, &run.server_dir("a"));
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let a = engine(&server, storage, true);
    assert!(a.version().unwrap().contains("MariaDB"));
    let options = a.options();
    let value = |name: &str| options.iter().find(|(own, _)| own == name).map(|(_, value)| &**value);
    assert_eq!(value("thread_handling"), Some("one-thread-per-connection"), "{options:?}");
    assert_eq!(value("slow_launch_time"), Some("2"), "{options:?}");
    assert_eq!((value("port"), value("datadir")), (None, None));
    a.create_schema().unwrap();
    a.create_schema().unwrap();
    let mut connection = a.connect().unwrap();
    for table in tables() {
        load(&a, &mut connection, &table, ROWS);
    }
    let sql = "SELECT engine FROM information_schema.tables WHERE table_name = 'sbtest2'";
    assert_eq!(
        text(&mut connection, sql).to_lowercase(),
        match storage {
            StorageEngine::InnoDb => "innodb",
            StorageEngine::MyRocks => "rocksdb",
        }
    );
    for round in 1..=3 {
        connection.run("UPDATE sbtest1 SET k = k + 1, c = CONCAT('x', id)").unwrap();
        connection.run(&format!("DELETE FROM sbtest2 WHERE id % 3 = {} % 3", round)).unwrap();
        connection.run("INSERT INTO sbtest2 SELECT * FROM sbtest1 WHERE id NOT IN (SELECT id FROM sbtest2)").unwrap();
    }
    let before = a.state_snapshot(&mut connection, &names()).unwrap();
    a.settle(&mut connection).unwrap();
    a.warm(&mut connection, &tables()).unwrap();
    let after = a.state_snapshot(&mut connection, &names()).unwrap();
    assert_eq!((before.rows, after.rows), (2 * ROWS, 2 * ROWS));
    assert!(after.data_size.as_bytes() > 0);
    check(&before, &after);
    let sql =
        "SELECT @@innodb_max_dirty_pages_pct + @@innodb_io_capacity + @@innodb_io_capacity_max";
    let default = if storage == StorageEngine::InnoDb { 90 + 2000 + 4000 } else { 90 + 200 + 2000 };
    assert_eq!(text(&mut connection, sql).split('.').next().unwrap(), default.to_string());
    drop(connection);
    server.stop().unwrap();

    run.server_dir("a").clone_to(&run.server_dir("b")).unwrap();
    let first = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let second = Server::start(&plan, &run.server_dir("b"), None).unwrap();
    let ids: Vec<String> = [&first, &second]
        .map(|server| {
            let engine = engine(server, storage, true);
            let mut connection = engine.connect().unwrap();
            assert_eq!(engine.state_snapshot(&mut connection, &names()).unwrap().rows, 2 * ROWS);
            let sql = "SELECT k FROM sbtest1 WHERE id = 5";
            assert_eq!(text(&mut connection, sql), (5 * 7919 % ROWS + 1 + 3).to_string());
            // The copies are independent.
            connection.run("DELETE FROM sbtest1 WHERE id = 7").unwrap();
            text(&mut connection, "SELECT COUNT(*) FROM sbtest1")
        })
        .to_vec();
    assert_eq!(ids, [(ROWS - 1).to_string(), (ROWS - 1).to_string()]);
    first.stop().unwrap();
    second.stop().unwrap();
    run.end();
}

#[test]
fn innodb_life_cycle() {
    check_life_cycle(StorageEngine::InnoDb, |before, after| {
        assert!(figure(before, "dirty_pages") > 32, "{before:?}");
        assert!(figure(after, "dirty_pages") <= 32, "{after:?}");
        assert!(figure(after, "history_length") <= 32, "{after:?}");
        assert!(figure(after, "pool_pages_free") > 0, "{after:?}");
    });
}

#[test]
fn myrocks_life_cycle() {
    check_life_cycle(StorageEngine::MyRocks, |before, after| {
        assert!(figure(before, "memtable_bytes") > 1 << 20, "{before:?}");
        assert!(figure(after, "memtable_bytes") < 64 << 10, "{after:?}");
        assert_eq!(figure(after, "l0_files"), 0, "{after:?}");
        assert_eq!(figure(after, "compactions_pending"), 0, "{after:?}");
        assert_eq!(figure(after, "compactions_running"), 0, "{after:?}");
        assert!(figure(after, "sst_bytes") > 100_000, "{after:?}");
        assert!(figure(after, "block_cache_bytes") > 100_000, "{after:?}");
        let files = |level| figure(after, &format!("l{level}_files"));
        assert!((1..=6).map(files).sum::<u64>() > 0, "{after:?}");
    });
}

/// A server `a` with [`ROWS`] rows in `sbtest1`.
fn with_rows(storage: StorageEngine) -> (Run, ServerPlan, Server, MySqlConnection) {
    let run = Run::new();
    let plan = plan(storage, &[]);
    create_data(&plan, &run.server_dir("a"));
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let a = engine(&server, storage, true);
    a.create_schema().unwrap();
    let mut connection = a.connect().unwrap();
    load(&a, &mut connection, &tables()[0], ROWS);
    (run, plan, server, connection)
}

#[test]
fn ids_continue_after_loading_updating_and_restarting() {
    for storage in [StorageEngine::InnoDb, StorageEngine::MyRocks] {
        let (run, plan, server, connection) = with_rows(storage);
        drop(connection);
        let again = |server: Server| {
            server.stop().unwrap();
            let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
            let connection = engine(&server, storage, true).connect().unwrap();
            (server, connection)
        };
        let (server, mut connection) = again(server);
        connection.run("UPDATE sbtest1 SET k = k + 1 WHERE id BETWEEN 3 AND 17").unwrap();
        drop(connection);
        let (server, mut connection) = again(server);
        connection.run("INSERT INTO sbtest1 (k, c, pad) VALUES (1, 'c', 'pad')").unwrap();
        let last = text(&mut connection, "SELECT MAX(id) FROM sbtest1");
        assert_eq!(last, (ROWS + 1).to_string());
        drop(connection);
        server.stop().unwrap();
        run.end();
    }
}

#[test]
fn commits_survive_a_killed_server() {
    for storage in [StorageEngine::InnoDb, StorageEngine::MyRocks] {
        let (run, plan, server, mut connection) = with_rows(storage);
        // For longer than a second, after which logs are written anyway.
        let started = Instant::now();
        let mut inserted = 0;
        while started.elapsed() < Duration::from_millis(1_300) {
            connection.run("INSERT INTO sbtest1 (k, c, pad) VALUES (1, 'c', 'pad')").unwrap();
            inserted += 1;
        }
        check_death(server);
        let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
        let mut connection = engine(&server, storage, true).connect().unwrap();
        let rows = text(&mut connection, "SELECT COUNT(*) FROM sbtest1");
        assert_eq!(rows, (ROWS + inserted).to_string(), "{storage:?}");
        drop(connection);
        server.stop().unwrap();
        run.end();
    }
}

#[test]
fn foreign_schema_is_not_touched() {
    let run = Run::new();
    let plan = plan(StorageEngine::InnoDb, &[("auto_increment_increment", "7")]);
    create_data(&plan, &run.server_dir("a"));
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let existing = engine(&server, StorageEngine::InnoDb, false);
    let mut person = MySqlConnection::connect(&server.target(), StatementMode::Text).unwrap();
    let marker = "CREATE TABLE dbdyno.dbdyno_marker (id INT PRIMARY KEY, note TEXT)";
    for sql in ["CREATE DATABASE dbdyno", marker] {
        person.run(sql).unwrap();
        let error = existing.create_schema().unwrap_err().to_string();
        assert!(error.contains("dbdyno did not create"), "{error}");
        assert!(matches!(existing.drop_schema(), Ok(SchemaRemoval::LeftAlone(_))));
    }
    person.run("DROP DATABASE dbdyno").unwrap();
    existing.drop_schema().unwrap();

    existing.create_schema().unwrap();
    existing.create_schema().unwrap();
    let mut connection = existing.connect().unwrap();
    let table = &tables()[0];
    // The server leaves gaps in ids unless the session changes that.
    load(&existing, &mut connection, table, 1_234);
    let mut none = |_: &mut Params| false;
    let error = existing.load_table(&mut connection, table, &mut none).unwrap_err().to_string();
    assert!(error.contains("already exists") && error.contains("not from this load"), "{error}");

    person.run("UPDATE dbdyno.sbtest1 SET k = k + 1").unwrap();
    let dirty = |connection: &mut _| {
        figure(&existing.state_snapshot(connection, &names()[..1]).unwrap(), "dirty_pages")
    };
    let before = dirty(&mut connection);
    existing.settle(&mut connection).unwrap();
    assert!(before > 32 && dirty(&mut connection) >= before, "the server wrote back its pages");
    drop(connection);
    existing.drop_schema().unwrap();
    assert!(person.query("SHOW DATABASES LIKE 'dbdyno%'").unwrap().is_empty());
    drop(person);
    server.stop().unwrap();
    run.end();
}
