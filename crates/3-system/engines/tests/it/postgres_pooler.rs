//! PgBouncer in front of an existing server (Debian's package `pgbouncer`).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dbdyno_drivers::ErrorKind;
use dbdyno_engines::Engine;
use dbdyno_types::server::{Address, Target};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::postgres::{Lab, engine, plan, start};

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// The size of its pool.
const SESSIONS: u32 = 5;

struct Pooler {
    process: Child,
    directory: TempDir,
}

impl Pooler {
    /// Starts it as the user of the server, who alone may use the server's socket.
    fn start(server: &Target, mode: &str) -> Self {
        let Address::Socket(socket) = &server.address else { panic!("{server:?}") };
        let sockets = socket.parent().unwrap();
        let port = socket.extension().unwrap().to_str().unwrap();
        let owner = fs::metadata(sockets).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let file = path.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port={port} user={}\n[pgbouncer]\nauth_type = any\n\
             listen_port = 6432\nunix_socket_dir = {}\npool_mode = {mode}\n\
             default_pool_size = {SESSIONS}\nquery_wait_timeout = 2\n",
            sockets.display(),
            server.user,
            path.display()
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if geteuid().is_root() {
            chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
            command.arg(format!("--reuid={}", owner.uid()));
            command.arg(format!("--regid={}", owner.gid())).arg("--clear-groups");
        }
        command.arg(PROGRAM).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let pooler = Self { process, directory };
        let started = Instant::now();
        while UnixStream::connect(pooler.socket()).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "PgBouncer does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        pooler
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join(".s.PGSQL.6432")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn pooler_must_give_each_connection_a_session() {
    if !Path::new(PROGRAM).exists() {
        return dbdyno_fuzz::skip("no PgBouncer here");
    }
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("pooled", &plan()));
    let server = start(&plan, &server_dir);
    // More than the server permits: without a pooler none is opened.
    engine(server.target(), "ours", false).check_access(1_000).unwrap();
    for mode in ["session", "transaction", "statement"] {
        let pooler = Pooler::start(&server.target(), mode);
        let target = Target { address: Address::Socket(pooler.socket()), ..server.target() };
        let ours = engine(target, "ours", false);
        if mode != "session" {
            let error = ours.check_access(2).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Refused, "{error}");
            assert!(error.message.contains("`pool_mode = session`"), "{error}");
            continue;
        }
        ours.check_access(SESSIONS).unwrap();
        let error = ours.check_access(SESSIONS + 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        for part in ["opening 6 connections", "number 6", "`default_pool_size`"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    server.stop().unwrap();
}
