//! Running servers and their programs: as the server's user, with a guard, an empty environment and a log.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use dbdyno_machine::{CpuMask, CpuSet, FileSystemSpace, Signal, die_with_parent, has_exited};
use dbdyno_units::{Bytes, visible};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, kill_process, kill_process_group, umask};

use super::error::system;
use super::postgres_lock::DynamicMemory;
use super::process::{POLL_INTERVAL, ServerProcess};
use super::user::ServerUser;
use super::{ServerDir, ServerError};

/// Starts programs in a server's directory: as the server's user, on its CPUs, with an empty
/// environment and their output in the server's log. They are killed when dbdyno's main thread exits.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) user: Option<ServerUser>,
    cpus: Option<CpuMask>,
    death_signal: Signal,
    server_dir: ServerDir,
    environment: Vec<(String, String)>,
}

impl Launcher {
    /// `user` is the name of the server's user, `cpus` a list such as `0,2-3`, and `death_signal` is
    /// sent when dbdyno's main thread exits. The environment of the programs is `environment` only.
    pub(crate) fn new(
        server_dir: &ServerDir,
        user: &str,
        cpus: Option<&str>,
        death_signal: Signal,
        environment: &[(String, String)],
    ) -> Result<Self, ServerError> {
        let user = ServerUser::choose(user)
            .map_err(system("choosing a user to run the server as, for", server_dir.path()))?;
        let cpus = cpus.map(str::parse::<CpuSet>).transpose();
        let cpus = cpus.map_err(|error| ServerError::setting("cpus", error))?;
        Ok(Self {
            user,
            cpus: cpus.map(|cpus| cpus.mask()),
            death_signal,
            server_dir: server_dir.clone(),
            environment: environment.to_vec(),
        })
    }

    /// Starts the command in its own process group.
    pub(crate) fn spawn(
        &self,
        mut command: Command,
        input: Stdio,
    ) -> Result<ChildGuard, ServerError> {
        let program = PathBuf::from(command.get_program());
        let (directory, data) = (self.server_dir.path(), self.server_dir.data());
        clear_environment(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("HOME", directory).env("TMPDIR", self.server_dir.temporary());
        let log = self.open_log().map_err(system("opening the log", &self.server_dir.log()))?;
        let errors = log.try_clone().map_err(system("opening the log", &self.server_dir.log()))?;
        command.stdin(input).stdout(log).stderr(errors).process_group(0);
        command.current_dir(&data);
        let (user, cpus) = (self.user.clone(), self.cpus.clone());
        let (signal, parent) = (self.death_signal, std::process::id());
        // SAFETY: between fork and exec only system calls are made, on data prepared before; nothing
        // is allocated and no lock is taken.
        unsafe {
            command.pre_exec(move || {
                if let Some(cpus) = &cpus {
                    cpus.pin_current_thread()?;
                }
                if let Some(user) = &user {
                    user.assume()?;
                }
                umask(Mode::from_raw_mode(0o077));
                // After the change of user, which clears it.
                die_with_parent(signal, parent)
            });
        }
        let child = command.spawn().map_err(system("starting", &program))?;
        Ok(ChildGuard::new(child, data))
    }

    pub(crate) fn run(
        &self,
        doing: &str,
        command: Command,
        input: Stdio,
        timeout: Duration,
    ) -> Result<(), ServerError> {
        let directory = self.server_dir.path();
        let log = LogPosition::at_end_of(&self.server_dir.log());
        let started = Instant::now();
        let mut processes = self.spawn(command, input)?;
        let mut memory = BTreeSet::new();
        let result = loop {
            memory.extend(DynamicMemory::of_descendants(processes.pid(), &self.server_dir.data()));
            if let Some(status) = processes.try_wait() {
                break if status.success() {
                    Ok(())
                } else {
                    Err(log.failure(doing, &describe_exit(status), directory))
                };
            }
            // Some servers wait indefinitely for free disk space.
            if log.is_disk_full() {
                break Err(log.failure(doing, "it waits for free disk space", directory));
            }
            if started.elapsed() > timeout {
                let how = format!("it has not finished after {} s", timeout.as_secs());
                break Err(log.failure(doing, &how, directory));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        processes.kill();
        memory.iter().for_each(DynamicMemory::remove);
        result
    }

    fn open_log(&self) -> io::Result<File> {
        let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(nofollow);
        options.open(self.server_dir.log())
    }
}

/// A child process and its descendants. Dropping it kills them and waits.
#[derive(Debug)]
pub(crate) struct ChildGuard {
    child: Child,
    /// `None` if the child exited before it could be identified.
    pub(crate) process: Option<ServerProcess>,
    data: PathBuf,
    status: Option<ExitStatus>,
}

impl ChildGuard {
    /// Takes over a child that leads a process group and works in `data`.
    pub(crate) fn new(child: Child, data: PathBuf) -> Self {
        let process = ServerProcess::of(child.id()).ok();
        Self { child, process, data, status: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's exit status, if it has exited; its descendants are killed then.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && has_exited(&self.child) {
            self.kill();
        }
        self.status
    }

    /// Sends a signal to the child and not to its descendants.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The child was not waited for, so the id is still its own. It may have exited.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Kills all processes that are left, and waits.
    pub(crate) fn kill(&mut self) {
        if self.status.is_some() {
            return;
        }
        // The child was not waited for, so the group is still its own. It may be empty.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.status = self.child.wait().ok();
        if let Some(process) = &self.process {
            // If one cannot be killed, the next start finds the data locked.
            let _ = process.kill_all(&self.data);
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Clears the environment, so that a server and its tools read no `MYSQL_HOME` or `PGDATA`, and sets
/// their language to English.
pub(super) fn clear_environment(command: &mut Command) {
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
}

/// How a program ended, for messages.
pub(super) fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => {
            "it was killed (by a user, or by the kernel because memory ran out)".to_owned()
        }
        (None, Some(signal)) => format!("it was terminated by signal {signal}"),
        (None, None) => "it exited".to_owned(),
    }
}

/// Runs a program with these arguments to its end; returns its standard output. A program that fails
/// and prints nothing there is an error with the last line that it printed: the loader did not find
/// a library, for example.
///
/// If dbdyno is root, the program runs as `user`, the user that servers run as: a program that must
/// not serve as root must not print its version as root either.
pub(super) fn program_output<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    user: &str,
) -> io::Result<String> {
    let user = ServerUser::choose(user)?;
    let mut command = Command::new(program);
    clear_environment(&mut command);
    command.args(arguments).stdin(Stdio::null()).current_dir("/");
    // SAFETY: between fork and exec only system calls are made, on data prepared before; nothing is
    // allocated and no lock is taken.
    unsafe { command.pre_exec(move || user.as_ref().map_or(Ok(()), ServerUser::assume)) };
    let output = command.output()?;
    if !output.status.success() && output.stdout.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        return Err(io::Error::other(format!("{}: {}", output.status, visible(last))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Last lines of a log in an error message.
const LAST_LINES: usize = 10;

/// Error lines before those: the first ones, because the cause comes first.
const ERROR_LINES: usize = 5;

/// With less free space than this the disk counts as full.
const MIN_FREE: Bytes = Bytes::from_mib(1);

/// How much of a log is read.
const TAIL_BYTES: u64 = 64 << 10;

/// How servers report a full disk.
const FULL_DISK_MESSAGES: [&str; 7] = [
    "No space left on device",
    "Disk is full",
    "disk full",
    "rror: 28",
    "errno: 28",
    "error 28\n",
    "error number 28 ",
];

/// Whether a message of a server, or of dbdyno about one, reports a full disk.
pub fn says_disk_full(message: &str) -> bool {
    message.contains(" is full") || FULL_DISK_MESSAGES.iter().any(|known| message.contains(known))
}

/// A position in a log: text after it is from the current start of the server.
#[derive(Clone, Debug)]
pub(crate) struct LogPosition {
    file: PathBuf,
    offset: u64,
}

impl LogPosition {
    pub(crate) fn at_end_of(file: &Path) -> Self {
        Self { file: file.to_owned(), offset: length(file) }
    }

    /// The log's length now, in bytes.
    pub(crate) fn length(&self) -> u64 {
        length(&self.file)
    }

    /// Whether the log reports a full disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        let text = self.read();
        FULL_DISK_MESSAGES.iter().any(|message| text.contains(message))
    }

    /// The error for a program that failed since this position; `directory` is on the disk that it
    /// writes to.
    pub(crate) fn failure(&self, doing: &str, how: &str, directory: &Path) -> ServerError {
        // With a full disk the program could not always log it.
        let full = FileSystemSpace::of(directory).is_ok_and(|space| space.free < MIN_FREE);
        if full || self.is_disk_full() {
            return ServerError::storage_full(doing, directory, self.tail(), &self.file);
        }
        ServerError::program(format!("{doing}: {how}"), self.tail(), &self.file)
    }

    /// The last lines since the position, and error lines before them.
    fn tail(&self) -> String {
        let text = self.read();
        let text = text.split_once(ADVICE).map_or(text.as_str(), |(before, _)| before);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let (before, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
        let errors = before.iter().filter(|line| is_error(line)).take(ERROR_LINES);
        let mut chosen: Vec<&str> = errors.copied().collect();
        if !chosen.is_empty() {
            chosen.push("…");
        }
        chosen.extend(last);
        chosen.join("\n")
    }

    /// Warnings and errors since the position, each once, without their times.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for line in self.read().lines() {
            let starts = WARNINGS.iter().chain(&ERRORS).filter_map(|word| line.find(word));
            let Some(start) = starts.min() else { continue };
            // The answer of PostgreSQL to whether it is ready.
            if line[start..].contains("the database system is starting up") {
                continue;
            }
            let text = visible(&line[start..]).into_owned();
            if !warnings.contains(&text) && warnings.len() < MOST_WARNINGS {
                warnings.push(text);
            }
        }
        warnings
    }

    fn read(&self) -> String {
        String::from_utf8_lossy(&self.read_bytes().unwrap_or_default()).into_owned()
    }

    fn read_bytes(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.file)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(self.offset.max(end.saturating_sub(TAIL_BYTES)).min(end)))?;
        let mut text = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut text)?;
        Ok(text)
    }
}

/// What `mariadb-install-db` says before a page of general advice, about files that are removed.
const ADVICE: &str = "Installation of system tables failed!";

/// How servers mark errors in their logs.
const ERRORS: [&str; 4] = ["[ERROR]", "ERROR:", "FATAL:", "PANIC:"];

/// How servers mark warnings.
const WARNINGS: [&str; 2] = ["[Warning]", "WARNING:"];

/// Warnings that are kept of a log.
const MOST_WARNINGS: usize = 20;

fn is_error(line: &str) -> bool {
    ERRORS.iter().any(|word| line.contains(word))
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::super::user::is_root;
    use super::*;

    fn shell(script: &str) -> String {
        program_output(Path::new("/bin/sh"), ["-c", script], "nobody").unwrap()
    }

    #[test]
    fn program_that_does_not_start_is_explained() {
        let script = "echo 'error while loading shared libraries: libaio.so.1' >&2; exit 127";
        let error = program_output(Path::new("/bin/sh"), ["-c", script], "nobody").unwrap_err();
        let expected = "exit status: 127: error while loading shared libraries: libaio.so.1";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn programs_do_not_run_as_root() {
        if !is_root() {
            dbdyno_fuzz::skip("dbdyno changes the user only if it is root");
            return;
        }
        assert_eq!(shell("id -u"), "65534\n");
        // Neither the groups of root nor the right to become root again.
        assert!(!shell("id -G").split_whitespace().any(|group| group == "0"));
        assert!(shell("cat /proc/self/status").contains("CapEff:\t0000000000000000"));
    }

    #[test]
    fn programs_see_nothing_of_the_environment() {
        let names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
        assert!(!names.is_empty());
        let printed = shell("env");
        for line in printed.lines() {
            let name = line.split('=').next().unwrap();
            assert!(["LC_ALL", "PATH", "PWD", "_", "SHLVL", "OLDPWD"].contains(&name), "{line}");
        }
    }

    #[test]
    fn warnings_are_listed_once_and_without_times() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.log");
        std::fs::write(&file, "1 0 [Warning] of an earlier start\n").unwrap();
        let position = LogPosition::at_end_of(&file);
        let lines = "2 0 [Note] x\n2 0 [Warning] y\n3 0 [Warning] y\n4 UTC [7] WARNING:  z\n";
        std::fs::write(&file, format!("1 0 [Warning] of an earlier start\n{lines}")).unwrap();
        assert_eq!(position.warnings(), ["[Warning] y", "WARNING:  z"]);
    }

    #[test]
    fn tail_has_the_last_lines_since_the_position() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.log");
        std::fs::write(&file, "of an earlier start\n").unwrap();
        let position = LogPosition::at_end_of(&file);
        assert_eq!(position.tail(), "");
        let lines: String = (1..=40).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, format!("of an earlier start\n{lines}")).unwrap();
        let tail = position.tail();
        assert!(tail.starts_with("line 31\n") && tail.ends_with("line 40"), "{tail}");
        assert!(!position.is_disk_full());
        let cause = "0 [ERROR] No space left on device";
        std::fs::write(&file, format!("of an earlier start\n{cause}\n{lines}")).unwrap();
        let tail = position.tail();
        assert!(tail.starts_with(&format!("{cause}\n…\nline 31\n")), "{tail}");
        assert!(position.is_disk_full());
        let text = format!("of an earlier start\n{cause}\n\n{ADVICE}  Examine the logs\n{lines}");
        std::fs::write(&file, text).unwrap();
        assert_eq!(position.tail(), cause);
    }
}
