//! What the tests of the binary share: a directory per test, experiments that are tiny, running
//! dbdyno to its end or in the background, and looking into what it left.

mod experiment;
mod full_disk;
mod inserts;
mod process;
mod servers;
mod stored;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub use experiment::Experiment;
pub use full_disk::SmallDisk;
pub use inserts::{Inserts, Step, steps_of};
pub use process::{Background, children, is_gone, send, worker_of};
pub use servers::{INNODB, MYROCKS, POSTGRES, Servers, home_of_servers, processes_in, server_of};
pub use stored::{
    Stored, candidates_differ, integrity, read_csv, read_json, rows_kept, slices_of_live_run,
    tamper,
};
use tempfile::TempDir;

/// Longer than anything here takes on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The directory of one test; removed at its end.
pub struct Lab {
    dir: TempDir,
}

/// What dbdyno said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Lab {
    pub fn new() -> Self {
        // Not /tmp, which may be a small disk in memory.
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The run directory of tests that need one.
    pub fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Writes an experiment file.
    pub fn file(&self, text: &str) -> PathBuf {
        let path = self.path().join("experiment.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs an experiment into [`Self::out`] to its end.
    pub fn run(&self, experiment: &Experiment<'_>, more: &[&str]) -> Said {
        said(self.run_command(experiment, &self.out(), more))
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

/// Goes on with a run to its end.
pub fn resume(out: &Path, more: &[&str]) -> Said {
    said(resume_command(out, more))
}

/// The command that goes on with a run.
pub fn resume_command(out: &Path, more: &[&str]) -> Command {
    let mut command = dbdyno();
    command.arg("run").arg("--resume").arg(out);
    with_cache(&mut command).args(more);
    command
}

/// Every test takes its builds from here: each variant is compiled once.
fn with_cache(command: &mut Command) -> &mut Command {
    command.arg("--cache").arg(cache())
}

/// The build cache of all tests.
pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("dbdyno-cache")
}

/// The binary, away from the user's own settings.
pub fn dbdyno() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dbdyno"));
    command.env("NO_COLOR", "1").env_remove("XDG_CACHE_HOME");
    command
}

/// Runs the binary with these arguments.
pub fn call<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Said {
    let mut command = dbdyno();
    command.args(args);
    said(command)
}

/// The same, with more in its environment.
pub fn call_with<S: AsRef<OsStr>>(
    args: impl IntoIterator<Item = S>,
    environment: &[(&str, &str)],
) -> Said {
    let mut command = dbdyno();
    command.args(args).envs(environment.iter().copied());
    said(command)
}

pub fn said(mut command: Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = Said { code: status.code(), out: text(stdout), err: text(stderr) };
    said.assert_no_panic();
    said
}

impl Said {
    /// Both outputs, in one line each time: reports are wrapped where a word may be searched for.
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
    pub fn assert_says(&self, words: &str) -> &Self {
        assert!(self.all().contains(words), "`{words}` is missing in\n{}\n{}", self.err, self.out);
        self
    }

    #[track_caller]
    pub fn assert_no_panic(&self) {
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert!(self.code != Some(101), "{}", self.err);
    }
}

/// Waits for something that must come.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether this machine has a compiler; says so where it has not.
pub fn has_compiler(name: &str) -> bool {
    let there = Command::new(name).arg("--version").output().is_ok();
    if !there {
        println!("skipped: no {name} here");
    }
    there
}
