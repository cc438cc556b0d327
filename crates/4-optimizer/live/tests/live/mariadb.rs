//! A stock server, optimized while clients run queries with known results.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use dbdyno_live::{
    Activation, Attachment, Module, ProbeOptions, Process, SamplingOptions, map_to_original,
    optimize, sample,
};
use dbdyno_relayout::Options;

use crate::copies::MAX_PAUSE;

/// Until something has happened that a busy machine delays.
const TIMEOUT: Duration = Duration::from_secs(600);

const SERVER: &str = "/usr/sbin/mariadbd";

/// A private server, killed on drop.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        // Only root can run it as another user, and it refuses to run as root.
        let user: &[&str] = if rustix::process::geteuid().is_root() {
            let chown = Command::new("chown").arg("-R").arg("mysql").arg(directory.path()).status();
            assert!(chown.unwrap().success());
            &["--user=mysql"]
        } else {
            &[]
        };
        let done = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--skip-test-db"])
            .args(user)
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", data.display()))
            .output()
            .expect("install the Debian package mariadb-server");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let socket = directory.path().join("socket");
        let child = Command::new(SERVER)
            .args(["--no-defaults", "--skip-networking"])
            .args(user)
            .arg("--innodb-flush-log-at-trx-commit=0")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", directory.path().join("pid").display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("install the Debian package mariadb-server");
        let server = Self { child, directory };
        let start = Instant::now();
        while server.query("select 1") != "1\n" {
            assert!(start.elapsed() < TIMEOUT, "the server does not start");
            thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The output of a client for some statements.
    fn query(&self, statements: &str) -> String {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "-uroot", "-N", "-B"])
            .arg(format!("--socket={}", self.socket().display()))
            .args(["-e", statements])
            .output()
            .expect("install the Debian package mariadb-client");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TABLES: &str = "
    create database d; use d;
    create table t (id int primary key, k int, c char(60), p varchar(60), key (k));
    insert into t select seq, seq * 7919 % 10007, concat('row ', seq * 31), md5(seq)
      from seq_1_to_20000;
    create table w (id int auto_increment primary key, who int, x int, key (who)) engine=innodb;
";

/// Queries of many kinds with constant results.
fn queries() -> String {
    let mut text = "use d;".to_owned();
    for n in 0..150 {
        let id = n * 131 % 19_000 + 1;
        text.push_str(&format!(
            "select c, p from t where id = {id};
             select sum(k), min(c), max(p) from t where id between {id} and {id} + 100;
             select id, k from t where k between {n} and {n} + 3 order by c;
             select k % 10, count(*), avg(length(c)) from t where id < {id} % 700 group by 1;
             select distinct left(p, 1) from t where id between {id} and {id} + 50 order by 1;
             select a.id, b.c from t a join t b on b.id = a.k + 1 where a.id in ({n}, {id}, 77);
             select id from t where c like '%{n}5' limit 3;"
        ));
    }
    text
}

#[test]
fn stock_server_returns_the_same_results() {
    compare_results(2);
}

#[test]
#[ignore = "full"]
fn stock_server_returns_the_same_results_while_it_is_optimized_again_and_again() {
    compare_results(5);
}

/// Compares results while the server is optimized this often.
fn compare_results(count: u32) {
    let server = Server::start();
    server.query(TABLES);
    let queries = queries();
    let expected = server.query(&queries);
    assert!(expected.lines().count() > 1_000, "{expected}");
    let (over, rounds, written) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let results = server.query(&queries);
                    if results != expected {
                        over.store(true, Ordering::Relaxed);
                        panic!("a result differs");
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let write = "use d; begin; insert into w (who, x) values (1, 2), (1, 3);
                         update w set x = x + 1 where who = 1 order by id desc limit 2;
                         delete from w where who = 2; commit; select 'done';";
            while !over.load(Ordering::Relaxed) {
                assert_eq!(server.query(write), "done\n");
                written.fetch_add(2, Ordering::Relaxed);
            }
        });
        let outcome = std::panic::catch_unwind(|| optimize_repeatedly(&server, count, &rounds));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(rounds.load(Ordering::Relaxed) > 4);
    let rows = format!("{0}\t{1}\n", written.load(Ordering::Relaxed), 0);
    assert_eq!(server.query("use d; select count(*), sum(x not in (3, 4)) from w"), rows);
}

/// Waits until the clients have run all queries several more times.
fn wait_for_rounds(rounds: &AtomicU32) {
    let (before, start) = (rounds.load(Ordering::Relaxed), Instant::now());
    // Two of these may have started before.
    while rounds.load(Ordering::Relaxed) < before + 4 {
        assert!(start.elapsed() < TIMEOUT, "the clients do not finish");
        thread::sleep(Duration::from_millis(5));
    }
}

fn optimize_repeatedly(server: &Server, count: u32, rounds: &AtomicU32) {
    let state = tempfile::tempdir().unwrap();
    let process = Process::open(server.child.id(), ProbeOptions::default()).unwrap();
    let mut attachment = Attachment::open(process, state.path(), MAX_PAUSE).unwrap();
    for round in 0..count {
        let sampling = SamplingOptions {
            time: Duration::from_secs(2),
            frequency: 1_999,
            ..SamplingOptions::default()
        };
        let sampled = sample(server.child.id(), false, &sampling, |_| false).unwrap();
        let samples = map_to_original(&attachment, &sampled.samples);
        let (done, _) = optimize(&mut attachment, &samples, &Options::default(), |_| ()).unwrap();
        assert!(done.code.statistics.functions_moved > 50, "{done:?}");
        wait_for_rounds(rounds);
        if round % 2 == 1 {
            attachment.undo().unwrap();
            assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
            wait_for_rounds(rounds);
        }
    }
    attachment.undo().unwrap();
    let maps = attachment.process().maps().unwrap();
    for loaded in &Module::loaded(&maps) {
        let module = Module::open(attachment.process(), loaded).unwrap();
        assert_eq!(
            module.differences(attachment.process()).unwrap(),
            [],
            "{}",
            loaded.path.display()
        );
    }
}
