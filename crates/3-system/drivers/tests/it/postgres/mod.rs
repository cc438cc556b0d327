//! The PostgreSQL driver with a real server (Debian's package `postgresql`), and with simulated ones.

mod failures;
mod login;
mod statements;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Answer, Connection, Error, Params};
use dbdyno_types::server::{Address, StatementMode, Target, Tls};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::outside::free_port;
use crate::shared::Shared;

/// The superuser, who logs in over the socket without a password.
pub const TESTER: &str = "tester";

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Server {
    // Dropped before the directory.
    postgres: Postgres,
    dir: TempDir,
    port: u16,
}

struct Postgres(Child);

/// Options of a server.
#[derive(Default)]
pub struct With<'a> {
    /// Settings of postgresql.conf.
    pub settings: &'a [(&'a str, &'a str)],
    /// Lines of pg_hba.conf; where there are any the server listens on 127.0.0.1, too.
    pub logins: &'a str,
    /// Files for the data directory, readable by the server only.
    pub files: &'a [(&'a str, &'a str)],
}

impl Server {
    pub fn start_with(with: &With<'_>) -> Self {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("dbdyno-postgres-").tempdir().unwrap();
        give_to_server(dir.path(), 0o700);
        let data = dir.path().join("data");
        let copied = Command::new("cp").arg("-a").arg(template()).arg(&data).status().unwrap();
        assert!(copied.success(), "the template was not copied");
        let logins = format!("local all {TESTER} trust\n{}", with.logins);
        fs::write(data.join("pg_hba.conf"), logins).unwrap();
        for (name, text) in with.files {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            give_to_server(&path, 0o600);
        }

        let port = free_port();
        let addresses = if with.logins.is_empty() { "" } else { "127.0.0.1" };
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = as_server(&programs.join("postgres"));
        command.arg("-D").arg(&data).args(["-c", "fsync=off", "-c", "lc_messages=C"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", dir.path().display()));
        command.arg("-c").arg(format!("port={port}"));
        command.arg("-c").arg(format!("listen_addresses={addresses}"));
        for (name, value) in with.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let postgres = Postgres(command.spawn().unwrap());
        let mut server = Self { postgres, dir, port };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while let Err(error) = self.try_connect() {
            let ended = self.postgres.0.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < START_TIMEOUT,
                "the server is not ready: {error}; ended: {ended:?}; its log:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// As superuser over the socket.
    pub fn target(&self) -> Target {
        Target {
            address: Address::Socket(self.dir.path().join(format!(".s.PGSQL.{}", self.port))),
            user: TESTER.to_owned(),
            database: Some("postgres".to_owned()),
            tls: Tls::Off,
            server_public_key: None,
            password: false,
        }
    }

    /// As any user over TCP.
    pub fn tcp(&self, user: &str, tls: Tls) -> Target {
        Target {
            address: Address::Tcp { host: "127.0.0.1".to_owned(), port: self.port },
            user: user.to_owned(),
            tls,
            ..self.target()
        }
    }

    pub fn connect(&self) -> PostgresConnection {
        self.try_connect().unwrap()
    }

    pub fn try_connect(&self) -> Result<PostgresConnection, Error> {
        PostgresConnection::connect(&self.target(), StatementMode::Prepared)
    }

    pub fn kill(&mut self) {
        self.postgres.end();
    }
}

/// A new database on the shared server.
pub struct Database {
    server: &'static Server,
    name: String,
}

impl Database {
    pub fn create() -> Self {
        static SERVER: Shared<Server> = Shared::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = SERVER.get(|| {
            let settings = &[("deadlock_timeout", "50ms")];
            Server::start_with(&With { settings, ..With::default() })
        });
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        server.connect().run(&format!("CREATE DATABASE {name}")).unwrap();
        Self { server, name }
    }

    pub fn connect(&self) -> PostgresConnection {
        self.connect_by(StatementMode::Prepared)
    }

    pub fn connect_by(&self, mode: StatementMode) -> PostgresConnection {
        let target = Target { database: Some(self.name.clone()), ..self.server.target() };
        PostgresConnection::connect(&target, mode).unwrap()
    }
}

/// A new data directory, to be copied.
fn template() -> PathBuf {
    static TEMPLATE: Shared<TempDir> = Shared::new();
    let directory = TEMPLATE.get(|| {
        let directory = tempfile::Builder::new().prefix("dbdyno-postgres-").tempdir().unwrap();
        give_to_server(directory.path(), 0o700);
        let output = as_server(&programs().join("initdb"))
            .args(["--no-sync", "--no-instructions", "--wal-segsize=1", "--auth=trust"])
            .args(["--encoding=UTF8", "--locale=C", "--username", TESTER, "--pgdata"])
            .arg(directory.path().join("data"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        directory
    });
    directory.path().join("data")
}

impl Postgres {
    /// Shuts it down immediately, with its processes and its shared memory.
    fn end(&mut self) {
        if self.0.try_wait().unwrap().is_none() {
            let pid = Pid::from_child(&self.0);
            kill_process(pid, Signal::QUIT).unwrap();
            self.0.wait().unwrap();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end();
    }
}

/// The program directory of the newest installed version.
fn programs() -> PathBuf {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("bin/postgres").exists() && path.join("bin/initdb").exists())
        .max_by_key(version)
        .map(|path| path.join("bin"))
        .expect("no PostgreSQL server in /usr/lib/postgresql: install the package postgresql")
}

/// A program that is ended with the thread that starts it, and does not run as root.
fn as_server(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if geteuid().is_root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    }
    command.arg(program).env("LC_ALL", "C").current_dir("/");
    command
}

fn give_to_server(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if geteuid().is_root() {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let ids = users.lines().find_map(|line| {
            let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        let (user, group) = ids.expect("no user postgres: install the package postgresql");
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// A value to bind.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Int(i64),
    Text(&'a str),
}

pub fn params(values: &[Value<'_>]) -> Params {
    let mut params = Params::default();
    for value in values {
        match value {
            Value::Int(value) => params.push_int(*value),
            Value::Text(text) => params.push_text(text.as_bytes()),
        }
    }
    params
}

/// Prepares and executes once.
pub fn execute(
    connection: &mut PostgresConnection,
    sql: &str,
    values: &[Value<'_>],
) -> Result<Answer, Error> {
    let statement = connection.prepare(sql)?;
    connection.execute(statement, &params(values))
}

/// The process id of the backend that serves a connection.
pub fn backend_pid(connection: &mut PostgresConnection) -> String {
    value(connection, "SELECT pg_backend_pid()")
}

/// The first value of the first row.
pub fn value(connection: &mut PostgresConnection, sql: &str) -> String {
    connection.query(sql).unwrap().remove(0).remove(0).unwrap()
}
