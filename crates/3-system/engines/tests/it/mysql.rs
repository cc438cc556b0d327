//! MySQL's own program, from Debian's packages: its life cycle, and logging in to it. The life cycles of older releases,
//! from a registry, too.
//!
//! Skipped if they cannot be fetched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, ErrorKind, Params};
use dbdyno_engines::Engine;
use dbdyno_engines::in_force::SettingState;
use dbdyno_engines::mysql::MySql;
use dbdyno_engines::server::{
    DataShape, Installation, Server, ServerAccess, ServerDir, ServerPlan, initialise, server_user,
};
use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::{
    Address, Durability, ServerSystem, StatementMode, StorageEngine, Target, Tls,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::helpers::{Template, clone_template};
use crate::mariadb::{Run, check_death, check_full_disk, load, names, tables};
use crate::outside::free_port;
use crate::server_release::{mysql, older};
use crate::shared::{Certificates, Shared};

const ROWS: u64 = 2_000;
const PASSWORD: &str = "a secret' with \\ signs";

/// The plan of a server with MySQL's program; `None` if it cannot be fetched.
fn plan() -> Option<ServerPlan> {
    let release = mysql()?;
    let system = ServerSystem::MySql;
    let installation = Installation::find(system, None, Some(release.program())).unwrap();
    Some(small(installation, ("innodb_redo_log_capacity", "32M")))
}

/// A new server of an older release in the directory `a`, after a full disk was reported; `None` if it cannot be fetched.
fn started(name: &str) -> Option<(ServerPlan, Run, Server)> {
    let system = ServerSystem::MySql;
    let release = older(system, name)?;
    let installation = Installation::find(system, None, Some(release.program())).unwrap();
    let plan = small(installation, ("innodb_log_file_size", "16M"));
    check_full_disk(&plan);
    let run = Run::new();
    initialise(&plan, &run.server_dir("a")).unwrap();
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    Some((plan, run, server))
}

/// A plan with this size of the redo log.
fn small(installation: Installation, redo_log: (&str, &str)) -> ServerPlan {
    let shape = DataShape { tables: 2, rows: ROWS, clients: 2 };
    let small = [redo_log, ("innodb_buffer_pool_size", "64M")];
    let small = small.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    ServerPlan::new(installation, None, Durability::Relaxed, small, shape).unwrap()
}

fn create_data(plan: &ServerPlan, server_dir: &ServerDir) {
    static TEMPLATE: Shared<Template> = Shared::new();
    clone_template(&TEMPLATE, plan, server_dir);
}

fn engine(server: &Server, statements: StatementMode) -> MySql {
    MySql::new(ServerAccess {
        system: ServerSystem::MySql,
        engine: Some(StorageEngine::InnoDb),
        target: server.target(),
        schema: "dbdyno".to_owned(),
        statements,
        owner: None,
    })
}

#[test]
fn life_cycle_of_a_mysql_server() {
    let Some(plan) = plan() else { return };
    let run = Run::new();
    create_data(&plan, &run.server_dir("a"));
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    // The process is the server itself, not a loader that runs it.
    let running = fs::read_link(format!("/proc/{}/exe", server.pid())).unwrap();
    assert_eq!(running, plan.installation().program);
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    let folder = running.ancestors().nth(3).unwrap().to_str().unwrap();
    let libc = maps.lines().find(|line| line.ends_with("libc.so.6")).unwrap();
    assert!(libc.contains(folder), "{libc}");
    let version = plan.installation().version.clone();
    check_life_cycle(&plan, &run, server, version.split_inclusive('.').next().unwrap());
    run.end();
}

#[test]
#[ignore = "full"]
fn life_cycle_of_a_mysql_5_6_server() {
    let Some((plan, run, server)) = started("mysql-5.6.14") else { return };
    let engine = engine(&server, StatementMode::Text);
    let names: Vec<String> = plan.settings().iter().map(|(name, _)| name.clone()).collect();
    let in_force = engine.settings_in_force(&names).unwrap();
    let is_known = |state: &SettingState| matches!(state, SettingState::Reported(_));
    assert!(in_force.iter().all(|setting| is_known(&setting.state)), "{in_force:?}");
    engine.create_schema().unwrap();
    let accounts = "SELECT COUNT(*), MAX(User), MAX(Host) FROM mysql.user";
    let accounts = engine.connect().unwrap().query(accounts).unwrap();
    assert_eq!(accounts, [["1", "root", "localhost"].map(|text| Some(text.to_owned()))]);
    check_life_cycle(&plan, &run, server, "5.6.");
    check_failed_start(&plan, &run);
    run.end();
}

#[test]
#[ignore = "full"]
fn life_cycle_of_a_mysql_8_0_server() {
    let Some((plan, run, server)) = started("mysql-8.0.33") else { return };
    check_life_cycle(&plan, &run, server, "8.0.33");
    check_failed_start(&plan, &run);
    run.end();
}

/// Loads, settles, kills and restarts a new server in the directory `a`, whose version starts with `version`.
fn check_life_cycle(plan: &ServerPlan, run: &Run, server: Server, version: &str) {
    let a = engine(&server, StatementMode::Prepared);
    let found = a.version().unwrap();
    assert!(!found.contains("MariaDB") && found.starts_with(version), "{found}");
    assert!(a.options().iter().any(|(name, _)| name == "sort_buffer_size"));
    a.create_schema().unwrap();
    let mut connection = a.connect().unwrap();
    for table in tables() {
        load(&a, &mut connection, &table, ROWS);
    }
    for _ in 0..3 {
        connection.run("UPDATE sbtest1 SET k = k + 1, c = CONCAT('x', id)").unwrap();
        connection.run("DELETE FROM sbtest2 WHERE id % 3 = 1").unwrap();
        let refill = "INSERT INTO sbtest2 SELECT * FROM sbtest1 \
                      WHERE id NOT IN (SELECT id FROM sbtest2)";
        connection.run(refill).unwrap();
    }
    // Many small transactions leave a long history.
    for id in 1..=200 {
        connection.run(&format!("UPDATE sbtest1 SET k = k + 1 WHERE id = {id}")).unwrap();
    }
    let before = a.state_snapshot(&mut connection, &names()).unwrap();
    a.settle(&mut connection).unwrap();
    a.warm(&mut connection, &tables()).unwrap();
    let after = a.state_snapshot(&mut connection, &names()).unwrap();
    assert_eq!((before.rows, after.rows), (2 * ROWS, 2 * ROWS));
    assert!(after.data_size.as_bytes() > 0);
    let figure = |name: &str| {
        let found = after.state.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name} in {after:?}")).1
    };
    // The history of MySQL 5.6 has purged transactions.
    let has_short_history = version == "5.6." || figure("history_length") <= 32;
    assert!(figure("dirty_pages") <= 32 && has_short_history, "{after:?}");
    assert!(figure("pool_pages") > 0 && figure("pool_pages_data") > 0, "{after:?}");

    both_modes_return_the_same(&server);

    // A killed server recovers when it is started again.
    drop(connection);
    drop(server);
    let server = Server::start(plan, &run.server_dir("a"), None).unwrap();
    let again = engine(&server, StatementMode::Text);
    let mut connection = again.connect().unwrap();
    assert_eq!(again.state_snapshot(&mut connection, &names()).unwrap().rows, 2 * ROWS);
    drop(connection);
    server.stop().unwrap();
    // After a clean stop, too.
    check_death(Server::start(plan, &run.server_dir("a"), None).unwrap());
}

#[test]
fn full_disk_is_reported_for_mysql() {
    let Some(plan) = plan() else { return };
    check_full_disk(&plan);
}

#[test]
fn failed_start_of_mysql_reports_the_reason() {
    let Some(good) = plan() else { return };
    let run = Run::new();
    create_data(&good, &run.server_dir("a"));
    check_failed_start(&good, &run);
    run.end();
}

/// Starts a server with a setting that does not exist on the data in the directory `a`.
fn check_failed_start(good: &ServerPlan, run: &Run) {
    let wrong = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let shape = DataShape { tables: 2, rows: ROWS, clients: 2 };
    let installation = good.installation().clone();
    let bad = ServerPlan::new(installation, None, Durability::Relaxed, wrong, shape).unwrap();
    let error = Server::start(&bad, &run.server_dir("a"), None).err().unwrap().to_string();
    assert!(error.contains("starting MySQL") && error.contains("no_such_setting"), "{error}");
}

/// Text and prepared statements, with values of several types.
fn both_modes_return_the_same(server: &Server) {
    let mut answers = Vec::new();
    for mode in [StatementMode::Text, StatementMode::Prepared] {
        let mut connection = engine(server, mode).connect().unwrap();
        let sql = "SELECT id, k, c, NULL FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY id";
        let statement = connection.prepare(sql).unwrap();
        let mut params = Params::default();
        params.push_int(10);
        params.push_int(40);
        let answer = connection.execute(statement, &params).unwrap();
        assert_eq!(answer.rows, 31, "{mode:?}");
        answers.push((answer.rows, answer.digest));
        let update = connection.prepare("UPDATE sbtest2 SET pad = ? WHERE id = ?").unwrap();
        let mut params = Params::default();
        params.push_text(format!("{mode:?}").as_bytes());
        params.push_int(11);
        assert_eq!(connection.execute(update, &params).unwrap().affected, 1);
    }
    assert_eq!(answers[0], answers[1]);
}

/// A server on TCP with certificates of its own. Dropping it kills it.
struct OnTcp {
    process: Child,
    data: PathBuf,
    sockets: PathBuf,
    port: u16,
}

impl OnTcp {
    fn start(plan: &ServerPlan, server_dir: &ServerDir) -> Self {
        let mut log = String::new();
        // Another process may take the port between the look and the start.
        for _ in 0..5 {
            let mut server = Self::spawn(plan, server_dir);
            let start = Instant::now();
            loop {
                if MySqlConnection::connect(&server.root(), StatementMode::Text).is_ok() {
                    return server;
                }
                let ended = server.process.try_wait().unwrap().is_some();
                assert!(start.elapsed() < Duration::from_secs(120), "it does not start");
                if ended {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            log = fs::read_to_string(server.data.join("log")).unwrap_or_default();
            assert!(log.contains("Do you already have another mysqld server running"), "{log}");
        }
        panic!("{log}");
    }

    fn spawn(plan: &ServerPlan, server_dir: &ServerDir) -> Self {
        let (data, sockets) = (server_dir.data(), server_dir.sockets());
        let port = free_port();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some((user, group)) = server_user(ServerSystem::MySql).unwrap() {
            command.args([format!("--reuid={user}"), format!("--regid={group}")]);
            command.arg("--clear-groups");
        }
        let program = &plan.installation().program;
        command.arg(program).arg("--no-defaults").args([
            format!("--basedir={}", program.ancestors().nth(2).unwrap().display()),
            format!("--datadir={}", data.display()),
            format!("--socket={}", sockets.join("tcp").display()),
            format!("--log-error={}", data.join("log").display()),
            format!("--tmpdir={}", data.display()),
            format!("--port={port}"),
        ]);
        command.args(["--bind-address=127.0.0.1", "--mysqlx=OFF", "--skip-log-bin"]);
        command.args(["--secure-file-priv=NULL", "--plugin-load-add=auth_socket.so"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { process: command.spawn().unwrap(), data, sockets, port }
    }

    /// As root, over the socket.
    fn root(&self) -> Target {
        Target {
            address: Address::Socket(self.sockets.join("tcp")),
            user: "root".to_owned(),
            database: None,
            tls: Tls::Off,
            server_public_key: None,
            password: false,
        }
    }

    /// As a user with the password, over the socket.
    fn socket(&self, user: &str) -> Target {
        Target { user: user.to_owned(), password: true, ..self.root() }
    }

    /// As a user with the password, over TCP.
    fn tcp(&self, user: &str, tls: Tls) -> Target {
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: self.port };
        Target { address, tls, ..self.socket(user) }
    }

    /// The certificate that the server generated itself.
    fn pinned(&self) -> Tls {
        let certificate = CertificateDer::from_pem_file(self.data.join("server-cert.pem")).unwrap();
        let digest = Sha256::digest(&certificate);
        Tls::Pinned { fingerprint: CertificateFingerprint::from_digest(digest.into()) }
    }
}

impl Drop for OnTcp {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn who(target: &Target) -> Result<String, dbdyno_drivers::Error> {
    let mut connection = MySqlConnection::connect(target, StatementMode::Prepared)?;
    Ok(connection.query("SELECT CURRENT_USER()").unwrap()[0][0].clone().unwrap())
}

#[track_caller]
fn refused(target: &Target, part: &str) {
    let error = who(target).expect_err("a refusal");
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    let text = error.to_string();
    assert!(text.contains(part) && !text.contains(PASSWORD), "{text}");
}

#[test]
fn mysql_accepts_every_documented_login() {
    let Some(plan) = plan() else { return };
    // SAFETY: everything in these tests that reads the environment does so through the standard
    // library, whose lock this takes, too.
    unsafe { std::env::set_var("DBDYNO_PASSWORD", PASSWORD) };
    let run = Run::new();
    let server_dir = run.server_dir("tcp");
    create_data(&plan, &server_dir);
    fs::create_dir_all(server_dir.sockets()).unwrap();
    if let Some((user, group)) = server_user(ServerSystem::MySql).unwrap() {
        std::os::unix::fs::chown(server_dir.sockets(), Some(user), Some(group)).unwrap();
    }
    let server = OnTcp::start(&plan, &server_dir);
    check_logins(&server);
    drop(server);
    drop(server_dir);
    run.end();
}

fn check_logins(server: &OnTcp) {
    let mut root = MySqlConnection::connect(&server.root(), StatementMode::Text).unwrap();
    let literal = format!("'{}'", PASSWORD.replace('\\', "\\\\").replace('\'', "''"));
    let me = rustix::process::geteuid();
    let owner = if me.is_root() { "root" } else { "nobody" };
    for sql in [
        format!("CREATE USER modern@'%' IDENTIFIED WITH caching_sha2_password BY {literal}"),
        "CREATE USER other@'%' IDENTIFIED BY 'something else'".to_owned(),
        format!("CREATE USER secure@'%' IDENTIFIED BY {literal} REQUIRE SSL"),
        "CREATE USER open@'%'".to_owned(),
        format!("CREATE USER peer@localhost IDENTIFIED WITH auth_socket AS '{owner}'"),
        "CREATE USER stranger@localhost IDENTIFIED WITH auth_socket AS 'daemon'".to_owned(),
        format!("CREATE USER old@'%' IDENTIFIED WITH sha256_password BY {literal}"),
    ] {
        root.run(&sql).unwrap();
    }
    let forget = |root: &mut MySqlConnection| root.run("FLUSH PRIVILEGES").unwrap();
    let modern = "modern@%";

    // Full authentication: the server has no hash of the password in its cache. Over the socket and
    // over verified TLS it gets the password.
    assert_eq!(who(&server.socket("modern")).unwrap(), modern);
    forget(&mut root);
    assert_eq!(who(&server.tcp("modern", server.pinned())).unwrap(), modern);
    // Now the hash is in its cache, and a response to its challenge suffices.
    assert_eq!(who(&server.tcp("modern", Tls::Off)).unwrap(), modern);
    assert_eq!(who(&server.tcp("modern", Tls::Required)).unwrap(), modern);
    forget(&mut root);
    refused(&server.tcp("modern", Tls::Off), "server_public_key_path");
    refused(&server.tcp("modern", Tls::Required), "tls");
    let key = server.data.join("public_key.pem");
    let with_key = Target { server_public_key: Some(key), ..server.tcp("modern", Tls::Off) };
    assert_eq!(who(&with_key).unwrap(), modern);

    // A certificate that the server generated has no host name.
    let authorities = Some(server.data.join("ca.pem"));
    refused(&server.tcp("modern", Tls::Verified { authorities }), "certificate");
    assert_eq!(who(&server.tcp("secure", server.pinned())).unwrap(), "secure@%");
    refused(&server.tcp("secure", Tls::Off), "TLS");

    refused(&server.socket("other"), "1045");
    refused(&server.tcp("other", server.pinned()), "1045");
    // For a user who does not exist, MySQL draws one of its methods.
    for target in [server.socket("missing"), server.tcp("missing", server.pinned())] {
        let error = who(&target).expect_err("a refusal").to_string();
        assert!(error.contains("1045") || error.contains("no such user"), "{error}");
    }
    let open = Target { password: false, ..server.tcp("open", Tls::Off) };
    assert_eq!(who(&open).unwrap(), "open@%");
    let peer = Target { password: false, ..server.socket("peer") };
    if me.is_root() {
        assert_eq!(who(&peer).unwrap(), "peer@localhost");
    }
    refused(&Target { user: "stranger".to_owned(), ..peer }, "1698");
    for target in [server.socket("old"), server.tcp("old", server.pinned())] {
        refused(&target, "sha256_password");
    }
    // MySQL 9 has no older method.
    let native = "CREATE USER native@'%' IDENTIFIED WITH mysql_native_password";
    assert!(root.run(native).unwrap_err().has_number(1524));
    check_verified_tls(server, &mut root);
    assert!(Path::new(&server.data).join("auto.cnf").is_file());
}

/// With a certificate for a host name, and full authentication each time.
fn check_verified_tls(server: &OnTcp, root: &mut MySqlConnection) {
    let certificates = Certificates::for_host("localhost");
    for (setting, file) in
        [("ssl_ca", "authority.pem"), ("ssl_cert", "server.pem"), ("ssl_key", "key.pem")]
    {
        let file = certificates.path(file);
        root.run(&format!("SET GLOBAL {setting} = '{}'", file.display())).unwrap();
    }
    root.run("ALTER INSTANCE RELOAD TLS").unwrap();
    let with = |host: &str, tls| {
        let address = Address::Tcp { host: host.to_owned(), port: server.port };
        Target { address, ..server.tcp("modern", tls) }
    };
    for (host, tls) in
        [("localhost", certificates.verified()), ("127.0.0.1", certificates.pinned())]
    {
        root.run("FLUSH PRIVILEGES").unwrap();
        let mut connection =
            MySqlConnection::connect(&with(host, tls), StatementMode::Prepared).unwrap();
        let rows = connection.query("SHOW STATUS LIKE 'Ssl_version'").unwrap();
        assert!(rows[0][1].as_deref().unwrap().starts_with("TLSv1."), "{rows:?}");
    }
    // The certificate is for localhost, not for its address, and of this authority.
    refused(&with("127.0.0.1", certificates.verified()), "certificate");
    let stranger = Certificates::for_host("localhost");
    refused(&with("localhost", stranger.verified()), "certificate");
    refused(&with("localhost", stranger.pinned()), "tls_fingerprint");
}
