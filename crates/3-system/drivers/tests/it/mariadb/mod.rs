//! The MySQL driver with a real MariaDB server (Debian's package `mariadb-server`).

mod connections;
mod statements;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_drivers::Connection as _;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_types::server::{Address, StatementMode, Target, Tls};
use tempfile::TempDir;

use crate::outside::free_port;
use crate::shared::Shared;
use crate::support::set_password_in_environment;

/// A running server. Dropping it kills it and removes its data.
pub struct Server {
    process: Child,
    directory: TempDir,
    port: Option<u16>,
}

impl Server {
    /// A server of the test's own, on a Unix socket only.
    pub fn start() -> Self {
        Self::start_with(None, &[])
    }

    /// A server of the test's own, on TCP as well.
    pub fn start_on_tcp(options: &[String]) -> Self {
        let port = free_port();
        Self::start_with(Some(port), options)
    }

    fn start_with(port: Option<u16>, options: &[String]) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("dbdyno-mysql-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let data = directory.path().join("data");
        // Not the default: a server that starts removes all files in its temporary directory.
        let temporary = temporary_dir(directory.path());
        let copied = Command::new("cp").arg("-a").arg(template()).arg(&data).status().unwrap();
        assert!(copied.success(), "the template was not copied");
        let mut server = command("mariadbd");
        server.arg(option("datadir", &data)).arg(option("socket", &data.join("socket")));
        server.arg(option("log-error", &data.join("log"))).arg(temporary).args(SMALL).args(options);
        match port {
            Some(port) => {
                server.args(["--bind-address=127.0.0.1".into(), format!("--port={port}")])
            }
            None => server.arg("--skip-networking"),
        };
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = server.spawn().unwrap_or_else(|error| needs_package(&error));
        let mut server = Self { process, directory, port };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        let start = Instant::now();
        while MySqlConnection::connect(&self.target(), StatementMode::Text).is_err() {
            let ended = self.process.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > Duration::from_secs(60) {
                let log = fs::read_to_string(self.data().join("log")).unwrap_or_default();
                panic!("the server did not start ({ended:?}):\n{log}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// As root, over the socket.
    pub fn target(&self) -> Target {
        Target {
            address: Address::Socket(self.data().join("socket")),
            user: "root".to_owned(),
            database: None,
            tls: Tls::Off,
            server_public_key: None,
            password: false,
        }
    }

    /// As another user, with the password of [`PASSWORD`], over TCP.
    pub fn tcp_target(&self, host: &str, user: &str) -> Target {
        set_password_in_environment();
        let port = self.port.expect("started on TCP");
        Target {
            address: Address::Tcp { host: host.to_owned(), port },
            user: user.to_owned(),
            password: true,
            ..self.target()
        }
    }

    /// A connection as root, without a database.
    pub fn connect(&self, mode: StatementMode) -> MySqlConnection {
        MySqlConnection::connect(&self.target(), mode).unwrap()
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
        let server = SERVER.get(Server::start);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        server.connect(StatementMode::Text).run(&format!("CREATE DATABASE {name}")).unwrap();
        Self { server, name }
    }

    /// As root, in this database.
    pub fn target(&self) -> Target {
        Target { database: Some(self.name.clone()), ..self.server.target() }
    }

    /// A connection as root, in this database.
    pub fn connect(&self, mode: StatementMode) -> MySqlConnection {
        MySqlConnection::connect(&self.target(), mode).unwrap()
    }
}

/// A new data directory, to be copied.
fn template() -> PathBuf {
    static TEMPLATE: Shared<TempDir> = Shared::new();
    let directory = TEMPLATE.get(|| {
        let directory =
            tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let mut install = command("mariadb-install-db");
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg(option("datadir", &directory.path().join("data")));
        install.arg(temporary_dir(directory.path())).args(SMALL);
        let installed = install.output().unwrap_or_else(|error| needs_package(&error));
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        directory
    });
    directory.path().join("data")
}

/// Creates a directory for temporary files; returns the option for it.
fn temporary_dir(directory: &Path) -> String {
    let temporary = directory.join("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, Permissions::from_mode(0o777)).unwrap();
    option("tmpdir", &temporary)
}

/// Small files, and no waiting for storage.
const SMALL: [&str; 3] = [
    "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=0",
    "--max-allowed-packet=64M",
];

/// A program of the server, as the server's user if this is root, without option files. It is killed
/// with the thread that starts it.
fn command(program: &str) -> Command {
    let sbin = Path::new("/usr/sbin").join(program);
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if sbin.exists() {
        command.arg(sbin)
    } else {
        command.arg(program)
    };
    command.arg("--no-defaults");
    if rustix::process::geteuid().is_root() {
        command.arg("--user=mysql");
    }
    command
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn needs_package(error: &std::io::Error) -> ! {
    panic!("MariaDB cannot be started ({error}): install the package mariadb-server")
}
