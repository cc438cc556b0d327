//! Existing servers: only schemas that dbdyno created are changed.

use std::fs;
use std::path::Path;

use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_engines::server::{DataShape, Installation, Server, ServerDirs, ServerPlan, initialise};
use dbdyno_types::server::{Address, Durability, ServerSystem, StatementMode, StorageEngine};
use serde_json::Value;

use crate::common::{TestDir, call, call_with, read_csv, test_files};

/// Must not occur in any file or output.
pub const PASSWORD: &str = "open sesame, ${HOME} 'n' more";

/// A server that the test started, with a password and a table that must not change.
pub struct Theirs {
    plan: ServerPlan,
    // Dropped in this order.
    server: Option<Server>,
    server_dirs: Option<ServerDirs>,
    _directory: tempfile::TempDir,
}

impl Theirs {
    pub fn start(system: ServerSystem) -> Self {
        let engine = (system == ServerSystem::MariaDb).then_some(StorageEngine::InnoDb);
        let installation = Installation::find(system, engine, None).unwrap();
        let shape = DataShape { tables: 1, rows: 2_000, clients: 4 };
        let plan =
            ServerPlan::new(installation, engine, Durability::Relaxed, Vec::new(), shape).unwrap();
        let directory = tempfile::tempdir_in(test_files()).unwrap();
        let server_dirs = ServerDirs::open(directory.path()).unwrap();
        let server_dir = server_dirs.server_dir("theirs");
        initialise(&plan, &server_dir).unwrap();
        let server = Server::start(&plan, &server_dir, None).unwrap();
        Self { plan, server: Some(server), server_dirs: Some(server_dirs), _directory: directory }
    }

    /// Stops the server and starts it again, as another process with the same address.
    pub fn restart(&mut self) {
        self.server.take().unwrap().stop().unwrap();
        let server_dir = self.server_dirs.as_ref().unwrap().server_dir("theirs");
        self.server = Some(Server::start(&self.plan, &server_dir, None).unwrap());
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn socket(&self) -> String {
        match self.server().target().address {
            Address::Socket(path) => path.display().to_string(),
            Address::Tcp { .. } => panic!("a private server listens on TCP"),
        }
    }

    pub fn mariadb(&self) -> MySqlConnection {
        let mut owner =
            MySqlConnection::connect(&self.server().target(), StatementMode::Text).unwrap();
        for sql in [
            "CREATE DATABASE precious".to_owned(),
            "CREATE TABLE precious.sbtest1 (id INT PRIMARY KEY)".to_owned(),
            "INSERT INTO precious.sbtest1 VALUES (1), (2), (3)".to_owned(),
            format!("CREATE USER bench@localhost IDENTIFIED BY '{}'", PASSWORD.replace('\'', "''")),
            "GRANT ALL ON `dbdyno\\_%`.* TO bench@localhost".to_owned(),
        ] {
            owner.run(&sql).unwrap();
        }
        owner
    }

    pub fn end(mut self) {
        self.server.take().unwrap().stop().unwrap();
        self.server_dirs.take().unwrap().remove().unwrap();
    }
}

fn experiment(candidates: &[(&str, &str)]) -> String {
    let mut text = format!(
        "name = \"theirs\"\nbaseline = \"{}\"\ncontrol = false\n\n[workload]\nrows = 2000\n\
         microbenchmarks = [\"point-query.pre_range=100\", \"update-index_range=100\"]\n\n\
         [schedule]\nslice = \"20ms\"\nwrite_slice = \"20ms\"\nmin_blocks = 6\n\
         budget = \"300ms\"\n\n",
        candidates[0].0
    );
    for (name, lines) in candidates {
        text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
    }
    text
}

pub fn mysql(socket: &str) -> String {
    format!("system = \"mariadb\"\nurl = \"mysql://bench@/?socket={socket}\"")
}

pub fn postgresql(theirs: &Theirs) -> String {
    let (target, socket) = (theirs.server().target(), theirs.socket());
    let (directory, port) = socket.rsplit_once("/.s.PGSQL.").unwrap();
    format!(
        "system = \"postgresql\"\nurl = \"postgres://{}@/{}?host={directory}&port={port}\"",
        target.user,
        target.database.as_deref().unwrap_or("postgres"),
    )
}

/// Every file below a directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn assert_password_is_nowhere(directory: &Path) {
    for file in files(directory) {
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes());
        assert!(!found, "the password is in {}", file.display());
    }
}

#[test]
fn existing_mariadb_is_left_unchanged() {
    let theirs = Theirs::start(ServerSystem::MariaDb);
    let mut owner = theirs.mariadb();
    let test = TestDir::new();
    let url = mysql(&theirs.socket());
    let text = format!("{url}\nstatements = \"text\"");
    let file = test.file(&experiment(&[("prepared", &url), ("text", &text)]));
    let out = test.out();
    let arguments = [Path::new("run"), &file, Path::new("--out"), &out];
    // Settings that published option files have must not stop anything.
    for (name, value) in [
        ("autocommit", "0"),
        ("sql_safe_updates", "1"),
        ("sql_select_limit", "1"),
        ("completion_type", "'RELEASE'"),
        ("wait_timeout", "1"),
        ("sql_mode", "'ANSI,NO_BACKSLASH_ESCAPES'"),
    ] {
        owner.run(&format!("SET GLOBAL {name} = {value}")).unwrap();
    }
    let finished = call_with(arguments, &[("DBDYNO_PASSWORD", PASSWORD)]);
    finished.assert_code(0).assert_prints("dropped dbdyno's schemas: dbdyno_prepared at ");
    assert!(!finished.all().contains(PASSWORD));

    let relative = read_csv(&out.join("relative.csv"));
    assert_eq!(relative[1..].len(), 2, "{relative:?}");
    assert!(relative[1..].iter().all(|row| row[13] == "0"), "{relative:?}");
    // What the server reported is stored, without the names of its files. It has no differences.
    let json: Value = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
    for candidate in json["candidates"].as_array().unwrap() {
        let settings = candidate["server_settings"].as_array().unwrap();
        assert!(settings.iter().any(|row| row[0] == "innodb_flush_neighbors"), "{candidate}");
        assert!(!settings.iter().any(|row| row[0] == "datadir"), "{candidate}");
        let differences = candidate["config_diff"].to_string();
        assert!(!differences.contains("innodb_"), "{differences}");
    }
    let left = owner.query("SHOW DATABASES LIKE 'dbdyno%'").unwrap();
    assert!(left.is_empty(), "{left:?}");
    let rows = owner.query("SELECT COUNT(*) FROM precious.sbtest1").unwrap();
    assert_eq!(rows[0][0].as_deref(), Some("3"));
    assert_password_is_nowhere(test.path());

    // A run stopped after its last block removes its tables when it is resumed.
    fs::remove_dir_all(&out).unwrap();
    let mut made = || owner.query("SHOW DATABASES LIKE 'dbdyno%'").unwrap().len();
    let keeping = [&arguments[..], &[Path::new("--keep-data")]].concat();
    let kept = call_with(keeping, &[("DBDYNO_PASSWORD", PASSWORD)]);
    assert!(!kept.assert_code(0).all().contains("dropped dbdyno's"), "{}", kept.all());
    assert_eq!(made(), 2);
    let resume = [Path::new("run"), Path::new("--resume"), &out];
    let finished = call_with(resume, &[("DBDYNO_PASSWORD", "a wrong guess")]);
    finished.assert_code(1).assert_prints("removing its tables").assert_prints("dbdyno clean");
    call_with(resume, &[("DBDYNO_PASSWORD", PASSWORD)]).assert_code(0);
    assert_eq!(made(), 0);
    drop(owner);
    theirs.end();
}

#[test]
fn unsupported_actions_on_existing_mariadb_are_reported() {
    let theirs = Theirs::start(ServerSystem::MariaDb);
    let mut owner = theirs.mariadb();
    let test = TestDir::new();
    let file = test.file(&experiment(&[("prepared", &mysql(&theirs.socket()))]));
    let out = test.out();
    let run = [Path::new("run"), &file, Path::new("--out"), &out];

    let finished = call_with(run, &[("DBDYNO_PASSWORD", "a wrong guess")]);
    finished.assert_code(1).assert_prints("Access denied");
    assert!(!finished.all().contains("a wrong guess"));

    // Each is found before anything is loaded, and by `check`.
    let check = |file: &Path, password| {
        call_with([Path::new("check"), file], &[("DBDYNO_PASSWORD", password)])
    };
    check(&file, "a wrong guess").assert_code(1).assert_prints("Access denied");
    call([Path::new("check"), &file, Path::new("--file-only")]).assert_code(0);
    let ready = check(&file, PASSWORD);
    let process = format!("process {} (mariadbd)", theirs.server().pid());
    ready.assert_code(0).assert_prints("ready for this experiment").assert_prints(&process);
    // The server may use all CPUs.
    ready.assert_prints("sleep: prepared may use dbdyno's CPUs");
    let text = experiment(&[("prepared", &mysql(&theirs.socket()))]);
    let polling = test.file(&format!("{text}[cpus]\nwait = \"poll\"\n"));
    let refused = check(&polling, PASSWORD);
    refused.assert_code(1).assert_prints("`wait = \"poll\"` under [cpus]");
    owner.run("CREATE USER newcomer@localhost IDENTIFIED BY 'new'").unwrap();
    let newcomer = mysql(&theirs.socket()).replace("bench@", "newcomer@");
    let grant = r"GRANT ALL ON `dbdyno\_%`.* TO 'newcomer'@'localhost'";
    let newcomers = test.file(&experiment(&[("prepared", &newcomer)]));
    check(&newcomers, "new").assert_code(1).assert_prints(grant);
    call_with(run, &[("DBDYNO_PASSWORD", "new")]).assert_code(1).assert_prints(grant);
    let wrong_pid = format!("{}\npid = 1", mysql(&theirs.socket()));
    let file = test.file(&experiment(&[("prepared", &wrong_pid)]));
    check(&file, PASSWORD).assert_code(1).assert_prints("but process").assert_prints(&process);
    let refused = call_with(run, &[("DBDYNO_PASSWORD", PASSWORD)]);
    refused.assert_code(1).assert_prints("but process").assert_prints("remove `pid`");

    // Scripts change nothing of others, in no stage.
    let root = mysql(&theirs.socket()).replace("bench@", "root@");
    for (prepare, event, refused) in [
        ("con:query('DROP DATABASE precious')", "", "DROP DATABASE is not possible"),
        ("", "con:query('DELETE FROM precious.sbtest1')", "a change of precious.sbtest1"),
        // What `prepare` prepares as text is recorded and dropped.
        (
            "con:query([[PREPARE p FROM 'CREATE TABLE r (id INT)']]) con:query('EXECUTE p')",
            "con:query([[PREPARE p FROM 'CREATE TABLE s (id INT)']])",
            "create and rename tables in prepare() only",
        ),
    ] {
        let script = format!(
            "function prepare() local con = sysbench.sql.driver():connect()\n\
             con:query('CREATE TABLE q (id INT PRIMARY KEY)') {prepare} end\n\
             function thread_init() con = sysbench.sql.driver():connect() end\n\
             function event() con:query('SELECT COUNT(*) FROM q') {event} end\n"
        );
        fs::write(test.path().join("own.lua"), script).unwrap();
        let text = experiment(&[("prepared", &root)])
            .replace("microbenchmarks = [", "microbenchmarks = [\"own\"] #")
            + "[[microbenchmark]]\nname = \"own\"\nscript = \"own.lua\"\n";
        let out = test.path().join("scripts");
        let file = test.file(&text);
        let finished = call([Path::new("run"), &file, Path::new("--out"), &out]);
        finished.assert_code(1).assert_prints(refused);
        assert_eq!(owner.query("SELECT * FROM precious.sbtest1").unwrap().len(), 3);
        assert!(owner.query("SHOW DATABASES LIKE 'dbdyno%'").unwrap().is_empty());
        fs::remove_dir_all(&out).unwrap();
    }
    let file = test.file(&experiment(&[("prepared", &mysql(&theirs.socket()))]));
    let run = [Path::new("run"), &file, Path::new("--out"), &out];

    // A schema of another owner has the name that dbdyno would use.
    owner.run("CREATE DATABASE dbdyno_prepared").unwrap();
    owner.run("CREATE TABLE dbdyno_prepared.sbtest1 (id INT PRIMARY KEY)").unwrap();
    // The runs before measured nothing: their directory is used again.
    let finished = call_with(run, &[("DBDYNO_PASSWORD", PASSWORD)]);
    finished.assert_code(1).assert_prints("dbdyno did not create");
    call_with([Path::new("clean"), &out], &[("DBDYNO_PASSWORD", PASSWORD)]);
    let tables = owner.query("SHOW TABLES IN dbdyno_prepared").unwrap();
    assert_eq!(tables.len(), 1, "{tables:?}");
    drop(owner);
    theirs.end();

    // Now it does not exist at all.
    fs::remove_dir_all(&out).unwrap();
    call(run).assert_code(1).assert_prints("No such file");
    // Nothing was created there.
    call([Path::new("clean"), &out]).assert_code(0).assert_prints("no data to remove");
}

#[test]
fn existing_postgresql_is_left_unchanged() {
    let theirs = Theirs::start(ServerSystem::PostgreSql);
    let target = theirs.server().target();
    let mut owner = PostgresConnection::connect(&target, StatementMode::Text).unwrap();
    for sql in ["CREATE SCHEMA precious", "CREATE TABLE precious.sbtest1 AS SELECT 1 AS id"] {
        owner.run(sql).unwrap();
    }
    for (name, value) in [
        ("default_transaction_read_only", "on"),
        ("idle_session_timeout", "500"),
        ("idle_in_transaction_session_timeout", "1"),
        ("search_path", "precious"),
    ] {
        owner.run(&format!("ALTER DATABASE postgres SET {name} = {value}")).unwrap();
    }
    let test = TestDir::new();
    owner.run("CREATE ROLE newcomer LOGIN").unwrap();
    let newcomer = postgresql(&theirs).replace(&format!("{}@", target.user), "newcomer@");
    let file = test.file(&experiment(&[("theirs", &newcomer)]));
    let grant = "GRANT CREATE ON DATABASE \"postgres\" TO \"newcomer\"";
    call([Path::new("check"), &file]).assert_code(1).assert_prints(grant);
    let url = postgresql(&theirs);
    let file = test.file(&experiment(&[("theirs", &url)]));
    let out = test.out();
    let run = [Path::new("run"), &file, Path::new("--out"), &out];
    call(run).assert_code(0);
    let schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dbdyno%'";
    assert!(owner.query(schemas).unwrap().is_empty());
    assert_eq!(owner.query("SELECT id FROM precious.sbtest1").unwrap().len(), 1);

    // A table that a query creates is dropped, too.
    let script = "function prepare() con = sysbench.sql.driver():connect()\n\
                  con:query('SELECT 1 AS id INTO q') end\n\
                  function thread_init() con = sysbench.sql.driver():connect() end\n\
                  function event() con:query('SELECT id FROM q') end\n";
    fs::write(test.path().join("own.lua"), script).unwrap();
    let text = experiment(&[("theirs", &url)])
        .replace("microbenchmarks = [", "microbenchmarks = [\"own\"] #")
        + "[[microbenchmark]]\nname = \"own\"\nscript = \"own.lua\"\n";
    let own_out = test.path().join("own");
    call([Path::new("run"), &test.file(&text), Path::new("--out"), &own_out]).assert_code(0);
    assert!(owner.query(schemas).unwrap().is_empty());
    let file = test.file(&experiment(&[("theirs", &url)]));
    let run = [Path::new("run"), &file, Path::new("--out"), &out];

    for sql in ["CREATE SCHEMA dbdyno_theirs", "CREATE TABLE dbdyno_theirs.sbtest1 (id int)"] {
        owner.run(sql).unwrap();
    }
    fs::remove_dir_all(&out).unwrap();
    call(run).assert_code(1).assert_prints("dbdyno did not create");
    assert_eq!(owner.query("SELECT * FROM dbdyno_theirs.sbtest1").unwrap().len(), 0);
    drop(owner);
    theirs.end();
}
