//! Several runs on one existing server: each removes and reuses its own schemas only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_types::server::{ServerSystem, StatementMode};

use super::existing::{PASSWORD, Theirs, mysql, postgresql};
use crate::common::{
    Background, Finished, INNODB, Stored, TestDir, children, dbdyno, finish, is_gone,
    slices_of_live_run, wait_until,
};

const READ: &str = "point-query.pre_range=100";

/// A server of others and the lines of a candidate on it.
struct Lab {
    theirs: Theirs,
    candidate: String,
    system: ServerSystem,
}

impl Lab {
    fn new(system: ServerSystem) -> Self {
        let theirs = Theirs::start(system);
        let candidate = match system {
            ServerSystem::PostgreSql => postgresql(&theirs),
            ServerSystem::MariaDb | ServerSystem::MySql => {
                drop(theirs.mariadb());
                mysql(&theirs.socket())
            }
        };
        Self { theirs, candidate, system }
    }

    /// The schemas of dbdyno on the server.
    fn schemas(&self) -> Vec<String> {
        self.column(
            "SELECT schema_name FROM information_schema.schemata \
             WHERE schema_name LIKE 'dbdyno%' ORDER BY schema_name",
        )
    }

    fn column(&self, sql: &str) -> Vec<String> {
        let target = self.theirs.server().target();
        let rows = match self.system {
            ServerSystem::PostgreSql => {
                PostgresConnection::connect(&target, StatementMode::Text).unwrap().query(sql)
            }
            ServerSystem::MariaDb | ServerSystem::MySql => {
                MySqlConnection::connect(&target, StatementMode::Text).unwrap().query(sql)
            }
        };
        rows.unwrap().into_iter().map(|mut row| row.remove(0).unwrap()).collect()
    }
}

/// Two microbenchmarks of some seconds, on these candidates.
fn experiment(candidates: &[(&str, &str)]) -> String {
    let mut text = format!(
        "name = \"runs\"\nbaseline = \"{}\"\ncontrol = false\n\n[workload]\nrows = 2000\n\
         microbenchmarks = [\"{READ}\", \"update-index_range=100\"]\n\n\
         [schedule]\nslice = \"20ms\"\nwrite_slice = \"20ms\"\nmin_blocks = 20\n\
         target = \"0.01%\"\nbudget = \"1s\"\n\n",
        candidates[0].0
    );
    for (name, lines) in candidates {
        text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
    }
    text
}

fn command(arguments: &[&Path]) -> Command {
    let mut command = dbdyno();
    command.args(arguments).env("DBDYNO_PASSWORD", PASSWORD);
    command
}

fn run(test: &TestDir, experiment: &str, out: &Path) -> Command {
    command(&[Path::new("run"), &test.file(experiment), Path::new("--out"), out])
}

fn resume(out: &Path) -> Finished {
    finish(command(&[Path::new("run"), Path::new("--resume"), out]))
}

fn clean(out: &Path) -> Finished {
    finish(command(&[Path::new("clean"), out]))
}

/// A run that is stopped while it measures.
fn stopped_run(test: &TestDir, experiment: &str, out: &Path) -> Background {
    let mut run = Background::start(run(test, experiment, out), test.path());
    run.wait_until("slices", || slices_of_live_run(out, READ) >= 5);
    run.signal(libc::SIGSTOP);
    run
}

/// Kills a run, and waits until its workers are gone.
fn kill(run: Background) {
    let workers = children(run.pid());
    run.signal(libc::SIGKILL);
    run.end();
    for worker in workers {
        wait_until("the worker ends", || is_gone(worker));
    }
}

/// A query that takes days, and one for those that the server executes.
fn endless(system: ServerSystem) -> [&'static str; 2] {
    match system {
        ServerSystem::PostgreSql => [
            "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE :id > 0",
            "SELECT query FROM pg_stat_activity WHERE query LIKE '%generate_series%' \
             AND state = 'active' AND pid <> pg_backend_pid()",
        ],
        ServerSystem::MariaDb | ServerSystem::MySql => [
            "SELECT BENCHMARK(1000000000000, MD5(:id))",
            "SELECT info FROM information_schema.processlist WHERE info LIKE '%MD5%' \
             AND id <> CONNECTION_ID()",
        ],
    }
}

fn interrupted_run_leaves_no_statement(system: ServerSystem) {
    let lab = Lab::new(system);
    let test = TestDir::new();
    let [sql, executed] = endless(system);
    let endless = format!(
        "[[microbenchmark]]\nname = \"endless\"\ngroup = \"own\"\n\
         [[microbenchmark.statements]]\nrows = 1\ndraw = {{ id = \"uniform\" }}\nsql = \"{sql}\"\n"
    );
    let text = experiment(&[("one", &lab.candidate)]);
    let text = text.replace("\"update-index_range=100\"", "\"endless\"") + &endless;
    let out = test.out();
    let mut run = Background::start(run(&test, &text, &out), test.path());
    run.wait_until("the endless statement", || !lab.column(executed).is_empty());
    run.signal(libc::SIGINT);
    run.end().assert_code(130).assert_prints("--resume");
    wait_until("it ends", || lab.column(executed).is_empty());
    clean(&out).assert_code(0);
    assert_eq!(lab.schemas(), [""; 0]);
}

#[test]
#[ignore = "full"]
fn interrupted_run_leaves_no_statement_on_mariadb() {
    interrupted_run_leaves_no_statement(ServerSystem::MariaDb);
}

#[test]
#[ignore = "full"]
fn interrupted_run_leaves_no_statement_on_postgresql() {
    interrupted_run_leaves_no_statement(ServerSystem::PostgreSql);
}

fn copy_of(run: &Path, to: PathBuf) -> PathBuf {
    fs::create_dir(&to).unwrap();
    for name in ["run.sqlite", "run.sqlite-wal"] {
        if run.join(name).exists() {
            fs::copy(run.join(name), to.join(name)).unwrap();
        }
    }
    for name in ["data", "logs"] {
        fs::create_dir(to.join(name)).unwrap();
    }
    to
}

fn runs_leave_each_other_alone(system: ServerSystem) {
    let lab = Lab::new(system);
    let test = TestDir::new();
    let text = experiment(&[("one", &lab.candidate)]);
    let (first, second) = (test.path().join("first"), test.path().join("second"));
    let measuring = stopped_run(&test, &text, &first);

    let cleaning = format!("dbdyno clean {}", first.canonicalize().unwrap().display());
    finish(run(&test, &text, &second))
        .assert_code(1)
        .assert_prints("it belongs to another run")
        .assert_prints(&cleaning);
    // It has created nothing.
    clean(&second).assert_code(0).assert_prints("no data to remove");
    // A copy of the run directory is another run.
    let copy = copy_of(&first, test.path().join("copy"));
    finish(command(&[Path::new("clean"), Path::new("--trust"), &copy]))
        .assert_code(0)
        .assert_prints("left alone")
        .assert_prints(&cleaning);
    assert_eq!(lab.schemas(), ["dbdyno_one"]);
    measuring.signal(libc::SIGCONT);
    measuring.end().assert_code(0);
    assert!(lab.schemas().is_empty());

    // Now the name is free.
    let interrupted = stopped_run(&test, &text, &test.path().join("third"));
    kill(interrupted);
    assert_eq!(lab.schemas(), ["dbdyno_one"]);
    let third = test.path().join("third");
    let before = Stored::open(&third).slices().len();
    resume(&third).assert_code(0);
    assert!(Stored::open(&third).slices().len() > before);
    assert!(lab.schemas().is_empty());
    lab.theirs.end();
    // Nothing is left to do on the server.
    resume(&third).assert_code(0);
}

#[test]
fn runs_on_one_mariadb_leave_each_other_alone() {
    runs_leave_each_other_alone(ServerSystem::MariaDb);
}

#[test]
#[ignore = "full"]
fn runs_on_one_postgresql_leave_each_other_alone() {
    runs_leave_each_other_alone(ServerSystem::PostgreSql);
}

/// A microbenchmark with a column that does not exist, sent as SQL text, too.
const WRONG_COLUMN: &str = "[[microbenchmark]]\nname = \"own\"\ngroup = \"point-1\"\n\
    [[microbenchmark.statements]]\nsql = \"SELECT nope FROM {table} WHERE id = :id\"\n\
    draw = { id = \"uniform\" }\nrows = 1\n";

/// A run that fails after its first candidate was loaded does not prevent another run, also in its
/// directory.
fn failed_run_leaves_no_schema(system: ServerSystem) {
    let lab = Lab::new(system);
    let test = TestDir::new();
    let out = test.out();
    let text = experiment(&[("one", &format!("{}\nstatements = \"text\"", lab.candidate))]);
    let failing =
        text.replace("microbenchmarks = [", "microbenchmarks = [\"own\", ") + WRONG_COLUMN;
    let line = failing.lines().position(|line| line.starts_with("sql")).unwrap() + 1;
    let place = format!(
        "candidate one, microbenchmark own, statement 1 (line {line} of the experiment): preparing"
    );
    finish(run(&test, &failing, &out)).assert_code(1).assert_prints(&place).assert_prints("nope");
    assert!(lab.schemas().is_empty());
    assert!(Stored::open(&out).slices().is_empty());
    finish(run(&test, &text, &out)).assert_code(0).assert_prints("replacing the run in");
    assert!(lab.schemas().is_empty());
    // Now it holds results.
    let slices = Stored::open(&out).slices().len();
    finish(run(&test, &text, &out)).assert_code(2).assert_prints("holds a run already");
    assert_eq!(Stored::open(&out).slices().len(), slices);
    lab.theirs.end();
}

#[test]
fn failed_run_leaves_no_schema_on_mariadb() {
    failed_run_leaves_no_schema(ServerSystem::MariaDb);
}

#[test]
#[ignore = "full"]
fn failed_run_leaves_no_schema_on_postgresql() {
    failed_run_leaves_no_schema(ServerSystem::PostgreSql);
}

#[test]
fn clean_removes_the_rest_if_a_server_is_gone() {
    let lab = Lab::new(ServerSystem::MariaDb);
    let test = TestDir::new();
    let out = test.out();
    let candidates = [("one", lab.candidate.as_str()), INNODB];
    kill(stopped_run(&test, &experiment(&candidates), &out));
    lab.theirs.end();
    clean(&out)
        .assert_code(1)
        .assert_prints("removed ")
        .assert_prints("removing the tables of one: ");
    // It is not forgotten.
    let again = clean(&out);
    again.assert_code(1).assert_prints("removing the tables of one: ");
    assert!(!again.all().contains("no data to remove"), "{}", again.all());
}

/// The experiment names the server's process, and the server is restarted.
fn restarted_server_is_cleaned_and_measured(system: ServerSystem) {
    let mut lab = Lab::new(system);
    let test = TestDir::new();
    let out = test.out();
    let ended = lab.theirs.server().pid();
    let text = experiment(&[("one", &format!("{}\npid = {ended}", lab.candidate))]);
    kill(stopped_run(&test, &text, &out));
    lab.theirs.restart();
    assert_ne!(lab.theirs.server().pid(), ended);
    assert_eq!(lab.schemas(), ["dbdyno_one"]);
    clean(&out).assert_code(0);
    assert!(lab.schemas().is_empty());
    let found = format!("its CPU time is read from process {}", lab.theirs.server().pid());
    resume(&out).assert_code(0).assert_prints("was restarted").assert_prints(&found);
    assert!(lab.schemas().is_empty());
    lab.theirs.end();
}

#[test]
fn restarted_mariadb_is_cleaned_and_measured() {
    restarted_server_is_cleaned_and_measured(ServerSystem::MariaDb);
}

#[test]
#[ignore = "full"]
fn restarted_postgresql_is_cleaned_and_measured() {
    restarted_server_is_cleaned_and_measured(ServerSystem::PostgreSql);
}
