//! Commands: the environment of compilers, build tools and tools that fetch sources; running them.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_machine::{die_with_parent, has_exited, remove_secrets};
use dbdyno_units::shell_quoted;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::store::Lock;

/// Environment variables that affect the output of compilers and build tools, or decide which libraries
/// they find.
const HIDDEN: &str = "\
    CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH LD_RUN_PATH COMPILER_PATH \
    GCC_EXEC_PREFIX CCC_OVERRIDE_OPTIONS MAKEFLAGS GNUMAKEFLAGS MAKEFILES MAKELEVEL MFLAGS CC \
    CXX CPP AR RANLIB CC_LD CXX_LD CPPFLAGS CFLAGS CXXFLAGS LDFLAGS LDFLAGS_EX LDFLAGS_SL LIBS \
    CONFIG_SITE COPT PROFILE CMAKE_TOOLCHAIN_FILE CMAKE_PREFIX_PATH CMAKE_INCLUDE_PATH \
    CMAKE_LIBRARY_PATH CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER OPENSSL_ROOT_DIR \
    PKG_CONFIG_PATH PKG_CONFIG_LIBDIR DESTDIR NINJA_STATUS";

/// Whether an environment variable tells CMake where a package is, such as `OpenSSL_ROOT`.
fn is_package_root(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"_ROOT")
}

/// Environment variables with passwords of databases, which no program that builds needs.
const DATABASE_PASSWORDS: [&str; 4] = ["DBDYNO_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "PGPASSFILE"];

/// Environment variables that make git use another repository than that of its directory. They are
/// set in hooks and in commands of `git rebase` and `git bisect`.
const GIT_REPOSITORY: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// A command without passwords and other secrets in its environment, since sources contain programs
/// that run during a build, and without the variables that affect compilers, since they are not part
/// of the fingerprint.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = unaffected_command(program);
    remove_secrets(&mut command);
    command
}

/// A command for a tool that fetches sources and runs nothing of them. It keeps tokens and the
/// addresses of proxies, which may contain a password.
pub(crate) fn network_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = unaffected_command(program);
    for variable in DATABASE_PASSWORDS {
        command.env_remove(variable);
    }
    command
}

fn unaffected_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    for variable in HIDDEN.split(' ').chain(GIT_REPOSITORY) {
        command.env_remove(variable);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| is_package_root(name)) {
        command.env_remove(name);
    }
    command
}

/// Quotes a command for a POSIX shell: words with special characters are quoted.
pub(crate) fn quote_command(program: &Path, args: &[String]) -> String {
    let mut text = shell_quoted(&program.to_string_lossy());
    for arg in args {
        text.push(' ');
        text.push_str(&shell_quoted(arg));
    }
    text
}

/// One command of a plan. Relative paths are relative to the directory that the plan runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// A description for messages: `compiling sqlite3.c`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) counts: Counts,
}

/// How the progress of a command is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    Nothing,
    /// ninja prints `[12/345] `.
    Ninja,
    /// make prints each command; the total is counted before with `--dry-run`.
    Make,
}

impl Step {
    /// A command without additional environment variables and without progress.
    pub(crate) fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        args: Vec<String>,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args,
            env: Vec::new(),
            counts: Counts::Nothing,
        }
    }

    /// The command, quoted for a shell.
    pub(crate) fn to_shell(&self) -> String {
        let set: String = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={} ", shell_quoted(value)))
            .collect();
        set + &quote_command(&self.program, &self.args)
    }
}

/// Poll interval for the end of a program: short compared with its run time of seconds, long enough
/// to use little CPU time.
const PERIOD: Duration = Duration::from_millis(10);

pub(crate) struct Surroundings<'a> {
    pub(crate) dir: &'a Path,
    /// The directory for temporary files, removed with the build.
    pub(crate) temp_dir: &'a Path,
    pub(crate) log: &'a File,
    pub(crate) lock: &'a Lock,
    pub(crate) cancel: &'a AtomicBool,
}

/// Runs a step and calls `watch` periodically. `None` if it was cancelled; the program is ended.
pub(crate) fn run_step(
    step: &Step,
    around: &Surroundings<'_>,
    mut watch: impl FnMut(),
) -> io::Result<Option<ExitStatus>> {
    let mut command = clean_command(&step.program);
    command
        .args(&step.args)
        .envs(step.env.iter().map(|(name, value)| (name, value)))
        .current_dir(around.dir)
        .env("TMPDIR", around.temp_dir)
        .stdin(around.lock.as_stdin()?)
        .stdout(around.log.try_clone()?)
        .stderr(around.log.try_clone()?);
    let watch = || {
        watch();
        ControlFlow::Continue(())
    };
    wait(Running::start(command)?, around.cancel, watch)
}

/// Waits until a program that leads a process group exits. `None` if cancelled, or if `watch` ends it.
pub(crate) fn wait(
    mut running: Running,
    cancel: &AtomicBool,
    mut watch: impl FnMut() -> ControlFlow<()>,
) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = running.poll()? {
            let _ = watch();
            return Ok(Some(status));
        }
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        thread::sleep(PERIOD);
        if watch().is_break() {
            return Ok(None);
        }
    }
}

/// How long a program may take to end the processes that it has started, which it has to wait for.
const ENDING: Duration = Duration::from_secs(2);

/// A program that leads a process group. Ends the group when dropped.
pub(crate) struct Running {
    child: Child,
    ended: bool,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let parent = std::process::id();
        // A separate process group, because a compiler consists of several processes that must all
        // end together. It also means that Ctrl-C in a terminal reaches only dbdyno, which decides
        // what to do.
        command.process_group(0);
        // If dbdyno is killed, a build tool starts no further compilers, and ends those that run.
        // SAFETY: `die_with_parent` is async-signal-safe.
        unsafe { command.pre_exec(move || die_with_parent(Signal::TERM, parent)) };
        Ok(Self { child: command.spawn()?, ended: false })
    }

    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.ended = status.is_some();
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The group was created by process_group(0). The child was not waited for yet, so its id
        // has not been reused.
        let group = Pid::from_child(&self.child);
        // ninja gives each compiler a group of its own, and ends them only if it is not killed.
        let _ = kill_process_group(group, Signal::TERM);
        let start = Instant::now();
        while !has_exited(&self.child) && start.elapsed() < ENDING {
            thread::sleep(PERIOD);
        }
        let _ = kill_process_group(group, Signal::KILL);
        // It is being killed, so this returns soon. An error needs no handling.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_tools_do_not_see_what_the_fingerprint_does_not_have() {
        let command = clean_command("cmake");
        for name in HIDDEN.split(' ') {
            assert!(
                command.get_envs().any(|(known, value)| known == name && value.is_none()),
                "{name}"
            );
        }
    }

    #[test]
    fn roots_of_packages_are_recognised() {
        for name in ["ZLIB_ROOT", "OpenSSL_ROOT"] {
            assert!(is_package_root(OsStr::new(name)), "{name}");
        }
        assert!(!is_package_root(OsStr::new("HOME")));
    }

    #[test]
    fn tools_that_fetch_sources_get_no_passwords_of_databases_and_no_repository() {
        let command = network_command("git");
        for name in DATABASE_PASSWORDS.into_iter().chain(GIT_REPOSITORY) {
            let removed =
                |(known, value): (&OsStr, Option<&OsStr>)| known == name && value.is_none();
            assert!(command.get_envs().any(removed), "{name}");
        }
    }

    #[test]
    fn compilers_in_process_groups_of_their_own_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        // As ninja does. A `wait` may begin just after the signal, and would not end.
        let script = "trap 'kill $!; exit' TERM; setsid sleep 600 & echo $! > new; mv new pid; \
                      while :; do sleep 0.1; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir.path());
        let running = Running::start(command).unwrap();
        let start = Instant::now();
        let wait_while = |is_waiting: &dyn Fn() -> bool| {
            while is_waiting() {
                assert!(start.elapsed() < Duration::from_secs(30));
                thread::sleep(PERIOD);
            }
        };
        let file = dir.path().join("pid");
        wait_while(&|| !file.exists());
        let pid = std::fs::read_to_string(&file).unwrap();
        drop(running);
        let stat = format!("/proc/{}/stat", pid.trim());
        let stat = || std::fs::read_to_string(&stat);
        wait_while(&|| stat().is_ok_and(|stat| !stat.contains(") Z")));
    }

    #[test]
    fn words_with_special_characters_are_quoted() {
        let args = ["-O2".to_owned(), "a b.c".to_owned()];
        assert_eq!(quote_command(Path::new("/usr/bin/cc"), &args), "/usr/bin/cc -O2 'a b.c'");
    }
}
