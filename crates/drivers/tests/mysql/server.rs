//! A private MariaDB server for one test.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_drivers::Connection as _;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_record::server::{Address, StatementMode, Target, Tls};
use tempfile::TempDir;

/// The password that connections find in their environment.
pub const PASSWORD: &str = "a secret' with \\ signs";

/// A running server. It ends, and its data goes, with this value.
pub struct Server {
    process: Child,
    directory: TempDir,
    port: Option<u16>,
}

impl Server {
    /// On a Unix socket only.
    pub fn start() -> Self {
        Self::start_with(None, &[])
    }

    /// On TCP, too.
    pub fn start_on_tcp(options: &[String]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_with(Some(port), options)
    }

    fn start_with(port: Option<u16>, options: &[String]) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("dbdyno-mysql-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let data = directory.path().join("data");
        let mut install = command("mariadb-install-db");
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        // A place for temporary files of its own: a server that starts removes all that it finds
        // there, those of its neighbours too.
        let temporary = directory.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        fs::set_permissions(&temporary, Permissions::from_mode(0o777)).unwrap();
        let temporary = option("tmpdir", &temporary);
        let installed = install.arg(option("datadir", &data)).arg(&temporary).args(SMALL).output();
        let installed = installed.unwrap_or_else(|error| needs_package(&error));
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
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
            thread::sleep(Duration::from_millis(20));
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
            password: false,
        }
    }

    /// As another user, with the password of [`PASSWORD`], over TCP.
    pub fn tcp_target(&self, host: &str, user: &str) -> Target {
        static ONCE: Once = Once::new();
        // SAFETY: everything in these tests that looks at the environment does so through the
        // standard library, whose lock this takes, too.
        ONCE.call_once(|| unsafe { std::env::set_var("DBDYNO_PASSWORD", PASSWORD) });
        let port = self.port.expect("started on TCP");
        Target {
            address: Address::Tcp { host: host.to_owned(), port },
            user: user.to_owned(),
            password: true,
            ..self.target()
        }
    }

    /// A connection as root, in a database of its own.
    pub fn connect(&self, mode: StatementMode) -> MySqlConnection {
        let mut connection = MySqlConnection::connect(&self.target(), mode).unwrap();
        connection.run("CREATE DATABASE IF NOT EXISTS lab; USE lab").unwrap();
        connection
    }

    /// Ends the server the hard way.
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

/// Small, and without waiting for storage.
const SMALL: [&str; 3] = [
    "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=0",
    "--max-allowed-packet=64M",
];

/// A program of the server's, as the server's user where we are root, and without files of
/// options.
fn command(program: &str) -> Command {
    let sbin = Path::new("/usr/sbin").join(program);
    let mut command = if sbin.exists() { Command::new(sbin) } else { Command::new(program) };
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
