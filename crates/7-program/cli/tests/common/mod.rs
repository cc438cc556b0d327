//! Helpers of the tests of the program: a directory per test, small experiments, running dbdyno to
//! completion or in the background, and reading what it stored.

mod experiment;
mod full_disk;
mod host;
mod inserts;
mod process;
mod servers;
mod slurm;
mod stored;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub use experiment::Experiment;
pub use full_disk::SmallDisk;
pub use host::Host;
pub use inserts::{Inserts, Step, stored_steps};
pub use process::{Background, children, is_gone, send, worker_of};
pub use servers::{
    INNODB, MYROCKS, MYSQL, POSTGRES, SLEEP, Servers, home_of_servers, poll, processes_in,
    server_of, with_older_releases,
};
pub use slurm::Slurm;
pub use stored::{
    Slice, Stored, candidates_differ, integrity, modify_run, read_csv, read_json, rows_kept,
    slices_of_live_run,
};
use tempfile::TempDir;

/// Timeout of all waits, long enough for several compilations on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// The directory of one test, removed at its end.
pub struct TestDir {
    dir: TempDir,
}

/// The longest time between two checks of a condition: what is waited for may last only as long.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The output of dbdyno and its exit code.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl TestDir {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir_in(test_files()).unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The run directory of tests that need only one.
    pub fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Writes an experiment file.
    pub fn file(&self, text: &str) -> PathBuf {
        let path = self.path().join("experiment.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs an experiment to completion with [`Self::out`] as the run directory.
    pub fn run(&self, experiment: &Experiment<'_>, more: &[&str]) -> Finished {
        finish(self.run_command(experiment, &self.out(), more))
    }

    /// The command that runs an experiment.
    pub fn run_command(&self, experiment: &Experiment<'_>, out: &Path, more: &[&str]) -> Command {
        self.text_command(&experiment.text(), out, more)
    }

    /// The command that runs an experiment with this text.
    pub fn text_command(&self, text: &str, out: &Path, more: &[&str]) -> Command {
        let mut command = dbdyno();
        command.arg("run").arg(self.file(text)).arg("--out").arg(out);
        with_cache(&mut command).args(more);
        command
    }

    /// Starts an experiment in the background.
    pub fn start(&self, experiment: &Experiment<'_>, out: &Path, more: &[&str]) -> Background {
        Background::start(self.run_command(experiment, out, more), self.path())
    }
}

/// Resumes a run to completion.
pub fn resume(out: &Path, more: &[&str]) -> Finished {
    finish(resume_command(out, more))
}

/// The command that resumes a run.
pub fn resume_command(out: &Path, more: &[&str]) -> Command {
    let mut command = dbdyno();
    command.arg("run").arg("--resume").arg(out);
    with_cache(&mut command).args(more);
    command
}

/// Uses the shared build cache, so that each variant is compiled once.
fn with_cache(command: &mut Command) -> &mut Command {
    command.arg("--cache").arg(cache())
}

/// The directory of the tests' files: in the target directory, because /tmp may be a small file
/// system in memory.
/// `scripts/run-tests.sh` chooses another one if root cannot trust that one.
pub fn test_files() -> PathBuf {
    std::env::var_os("DBDYNO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
}

/// The build cache shared by all tests.
pub fn cache() -> PathBuf {
    test_files().join("dbdyno-cache")
}

/// The program, without the user's own settings.
pub fn dbdyno() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dbdyno"));
    command.env("NO_COLOR", "1").env_remove("XDG_CACHE_HOME");
    // The registry of runs.
    command.env("XDG_STATE_HOME", test_files().join("state"));
    command
}

/// Lets a command find programs in this directory before all others.
pub fn find_first_in(command: &mut Command, bin: &Path) {
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
}

/// Runs the program with these arguments.
pub fn call<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    let mut command = dbdyno();
    command.args(args);
    finish(command)
}

/// The same with additional environment variables.
pub fn call_with<S: AsRef<OsStr>>(
    args: impl IntoIterator<Item = S>,
    environment: &[(&str, &str)],
) -> Finished {
    let mut command = dbdyno();
    command.args(args).envs(environment.iter().copied());
    finish(command)
}

pub fn finish(mut command: Command) -> Finished {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let finished = Finished { code: status.code(), out: text(stdout), err: text(stderr) };
    finished.assert_no_panic();
    finished
}

impl Finished {
    /// Standard error and output in one line, so that wrapped text can be searched.
    pub fn all(&self) -> String {
        let words: Vec<&str> =
            self.err.split_whitespace().chain(self.out.split_whitespace()).collect();
        words.join(" ")
    }

    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.err, self.out);
        self
    }

    #[track_caller]
    pub fn assert_prints(&self, words: &str) -> &Self {
        assert!(self.all().contains(words), "`{words}` is missing in\n{}\n{}", self.err, self.out);
        self
    }

    #[track_caller]
    pub fn assert_no_panic(&self) {
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert!(self.code != Some(101), "{}", self.err);
    }
}

/// Waits for a condition.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        let asked = Instant::now();
        if is_so() {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "timed out: {what}");
        pause_after(asked);
    }
}

/// Pauses before a condition is checked again, for longer if checking takes long: it would slow down
/// what the test waits for.
fn pause_after(asked: Instant) {
    std::thread::sleep((asked.elapsed() * 4).clamp(Duration::from_millis(2), LONGEST_PAUSE));
}

/// Whether this machine has a compiler. Prints a note if not.
pub fn has_compiler(name: &str) -> bool {
    let there = Command::new(name).arg("--version").output().is_ok();
    if !there {
        dbdyno_fuzz::skip(&format!("no {name} here"));
    }
    there
}
