//! The system's ssh, and dbdyno's own program on the host: copied once, named by its checksum.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use dbdyno_machine::{Signal, die_with_parent, remove_secrets};
use dbdyno_types::Sha256;
use dbdyno_units::Bytes;
use rustix::process::{Pid, kill_process_group};

use crate::HostError;

/// Options for all connections: never ask, notice a dead network, and forward nothing.
const OPTIONS: &str = "-T -x -a -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=4 \
    -o ServerAliveCountMax=3 -o ClearAllForwardings=yes -o ControlPath=none -o LogLevel=ERROR -e none";

/// The most that is kept of what ssh prints: what a script or an agent says is short.
pub(crate) const MOST_PRINTED: Bytes = Bytes::from_mib(16);

/// How long a script may take without its input.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);

/// The slowest connection over which a program is copied, in bytes per second.
const SLOWEST_COPY: u64 = 50_000;

/// The exit code of ssh itself.
const OWN_FAILURE: i32 = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshFailure {
    /// What was printed, or the exit code.
    pub message: String,
    /// Whether ssh itself failed, and not the command.
    pub of_ssh: bool,
}

/// The ssh command that runs `script` with the host's `sh`. The destination cannot be read as an option.
/// Ctrl-C does not reach it; it ends with the thread that starts it.
pub(crate) fn command(destination: &str, script: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(OPTIONS.split(' ')).arg("--").arg(destination).arg(in_sh(script));
    remove_secrets(&mut command);
    let parent = std::process::id();
    // SAFETY: `die_with_parent` is async-signal-safe.
    unsafe { command.process_group(0).pre_exec(move || die_with_parent(Signal::KILL, parent)) };
    command
}

/// The words of a command that every login shell reads as `sh -c SCRIPT`.
fn in_sh(script: &str) -> String {
    debug_assert!(!script.contains(['\'', '\\', '!']), "not the same in every shell: {script}");
    format!("exec sh -c '{script}'")
}

/// Runs a script with this input of so many bytes, and returns its output.
pub(crate) fn run(
    destination: &str,
    script: &str,
    input: Option<(&mut dyn Read, u64)>,
) -> Result<String, SshFailure> {
    let size = input.as_ref().map_or(0, |(_, size)| *size);
    let timeout = SCRIPT_TIMEOUT + Duration::from_secs(size / SLOWEST_COPY);
    communicate(command(destination, script), input.map(|(input, _)| input), timeout)
}

/// Runs a command that leads a process group, which is killed if it takes longer or prints too much.
fn communicate(
    mut command: Command,
    input: Option<&mut dyn Read>,
    timeout: Duration,
) -> Result<String, SshFailure> {
    let failed = |error: io::Error| SshFailure {
        message: match error.kind() {
            io::ErrorKind::NotFound => {
                "there is no program ssh here (Debian: apt install openssh-client)".to_owned()
            }
            _ => format!("starting ssh: {error}"),
        },
        of_ssh: true,
    };
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let group = Pid::from_child(&child);
    // An error means that all its processes have exited.
    let kill = || {
        let _ = kill_process_group(group, Signal::KILL);
    };
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (done, is_done) = channel::<()>();
    let (sent, output, errors, is_late) = thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let is_late = is_done.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout);
            if is_late {
                kill();
            }
            is_late
        });
        let output = scope.spawn(|| read_limited(stdout, kill));
        let errors = scope.spawn(|| read_limited(stderr, kill));
        // A script that ends early closes its input; its own message is the one to show.
        let sent = match (stdin, input) {
            (Some(mut stdin), Some(input)) => copy(input, &mut stdin),
            _ => Ok(()),
        };
        let (output, errors) = (output.join(), errors.join());
        drop(done);
        (sent, output, errors, watching.join().unwrap_or_default())
    });
    let status = child.wait().map_err(failed)?;
    let (Ok(Some(output)), Ok(Some(errors))) = (output, errors) else {
        let message = format!("it printed more than {MOST_PRINTED}");
        return Err(SshFailure { message, of_ssh: false });
    };
    if is_late {
        let message = format!("it has not ended after {} s", timeout.as_secs());
        return Err(SshFailure { message, of_ssh: false });
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !status.success() {
        let (errors, code) = (text(&errors), status.code());
        let message = match (errors.is_empty(), code) {
            (false, _) => last_lines(&errors),
            (true, Some(code)) => format!("it exited with code {code}"),
            (true, None) => "it was killed".to_owned(),
        };
        return Err(SshFailure { message, of_ssh: code == Some(OWN_FAILURE) });
    }
    sent.map_err(failed)?;
    Ok(text(&output))
}

/// What a command prints; `None` if that is too much, after `kill`.
fn read_limited(from: Option<impl Read>, kill: impl Fn()) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let limit = MOST_PRINTED.as_bytes();
    // What was read before an error is kept.
    let _ = from?.take(limit + 1).read_to_end(&mut text);
    if text.len() as u64 > limit {
        kill();
        return None;
    }
    Some(text)
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.flush(),
            n => to.write_all(&buffer[..n])?,
        }
    }
}

/// The last lines of what a program printed, as one line.
pub(crate) fn last_lines(text: &str) -> String {
    const LINES: usize = 4;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

/// The directory of the programs on a host, for scripts.
const DIRECTORY: &str = "${XDG_CACHE_HOME:-$HOME/.cache}/dbdyno/bin";

/// Marks lines of scripts in the output, which also has what the login shell prints.
const MARK: &str = "dbdyno:";

pub(crate) struct Program {
    file: File,
    size: u64,
    sha256: String,
    needs: LibcVersion,
}

/// A version of the GNU C library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LibcVersion(u32, u32);

impl Program {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let sha256 = Sha256::of(&bytes).to_string();
        Ok(Self { file, size: bytes.len() as u64, sha256, needs: needed_libc(&bytes) })
    }

    /// The script that starts it on the host with this argument.
    pub(crate) fn start_script(&self, argument: &str) -> String {
        format!("exec \"{DIRECTORY}/{}\" {argument}", self.sha256)
    }

    /// Copies the program to the host, unless it is there. Returns the version of the C library there.
    pub(crate) fn copy_to(
        &mut self,
        host: &str,
        destination: &str,
    ) -> Result<LibcVersion, HostError> {
        let probed = run(destination, &self.probe_script(), None);
        let probed = probed.map_err(|failure| cannot_log_in(host, destination, failure))?;
        let unsuitable =
            |reason: String| HostError::on(host, format!("dbdyno cannot run there: {reason}"));
        let facts = Facts::parse(&probed).ok_or_else(|| {
            unsuitable(format!("its shell does not run scripts: `{}`", last_lines(&probed)))
        })?;
        let libc = facts.check(self.needs).map_err(unsuitable)?;
        if facts.size == self.size {
            return Ok(libc);
        }
        let started = std::time::Instant::now();
        let failed = |message: String| {
            HostError::on(host, format!("copying dbdyno to {DIRECTORY}: {message}"))
        };
        self.file.rewind().map_err(|error| failed(error.to_string()))?;
        let copied = run(destination, &self.copy_script(), Some((&mut self.file, self.size)));
        copied.map_err(|failure| failed(failure.message))?;
        tracing::info!(host, bytes = self.size, time = ?started.elapsed(), "copied dbdyno");
        Ok(libc)
    }

    fn probe_script(&self) -> String {
        let Self { sha256, .. } = self;
        format!(
            "f=\"{DIRECTORY}/{sha256}\"; \
             echo {MARK} $(uname -s) $(uname -m); \
             echo {MARK} $(getconf GNU_LIBC_VERSION 2>/dev/null || echo other); \
             if [ -x \"$f\" ]; then touch \"$f\"; echo {MARK} $(wc -c < \"$f\"); \
             else echo {MARK} 0; fi"
        )
    }

    /// Others cannot write the program, and it has its name only when it is complete. Programs that were
    /// not used for a month are removed.
    fn copy_script(&self) -> String {
        let Self { sha256, .. } = self;
        format!(
            "umask 077; d=\"{DIRECTORY}\"; p=\"$d/{sha256}.$$.part\"; \
             clean() {{ rm -f \"$p\"; }}; trap clean EXIT; \
             mkdir -p \"$d\" && cat > \"$p\" || exit 1; \
             s=$(sha256sum < \"$p\") || exit 1; \
             case \"$s\" in {sha256}*) ;; *) echo the copy is incomplete >&2; exit 1;; esac; \
             chmod 700 \"$p\" && mv \"$p\" \"$d/{sha256}\" || exit 1; \
             find \"$d\" -type f -mtime +30 -exec rm -f {{}} +"
        )
    }
}

fn cannot_log_in(host: &str, destination: &str, failure: SshFailure) -> HostError {
    let advice = match failure.of_ssh {
        true => format!("; `ssh {destination} true` must work without a question"),
        false => String::new(),
    };
    let SshFailure { message, .. } = failure;
    HostError::on(host, format!("logging in with ssh: {message}{advice}"))
}

/// What the probe found on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    /// Such as `Linux x86_64`.
    machine: String,
    /// The GNU C library; `None` for another one.
    libc: Option<LibcVersion>,
    /// Size of the program, if it is there.
    size: u64,
}

impl Facts {
    fn parse(output: &str) -> Option<Self> {
        let mut lines = output.lines().filter_map(|line| line.trim().strip_prefix(MARK));
        let machine = lines.next()?.trim().to_owned();
        let libc = lines.next()?.trim().strip_prefix("glibc ").and_then(LibcVersion::parse);
        Some(Self { machine, libc, size: lines.next()?.trim().parse().ok()? })
    }

    /// Whether this program can run there; the C library's version.
    fn check(&self, needs: LibcVersion) -> Result<LibcVersion, String> {
        let here = format!("Linux {}", std::env::consts::ARCH);
        if self.machine != here {
            return Err(format!("it is {}, and this machine is {here}", self.machine));
        }
        match self.libc {
            None => Err(format!("it has no GNU C library, and this dbdyno needs version {needs}")),
            Some(libc) if libc < needs => Err(format!(
                "it has version {libc} of the GNU C library, and this dbdyno needs {needs}: compile \
                 dbdyno on the older system and use it on both"
            )),
            Some(libc) => Ok(libc),
        }
    }
}

impl std::fmt::Display for LibcVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl LibcVersion {
    /// The version that a program needs; the oldest if it needs none.
    pub(crate) fn needed_by(program: &Path) -> io::Result<Self> {
        Ok(needed_libc(&std::fs::read(program)?))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// The newest version of the C library whose symbols a program uses: they are named in it, such as
/// `GLIBC_2.34`.
fn needed_libc(program: &[u8]) -> LibcVersion {
    const PREFIX: &[u8] = b"GLIBC_";
    let version = |at: &[u8]| {
        let valid = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let text: Vec<u8> = at[PREFIX.len()..].iter().take_while(valid).copied().collect();
        LibcVersion::parse(std::str::from_utf8(&text).ok()?)
    };
    let starts = memchr::memmem::find_iter(program, PREFIX);
    starts.filter_map(|at| version(&program[at..])).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_never_an_option() {
        let command = command("-oProxyCommand=x", "true");
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        let end = args.iter().position(|arg| arg == "--").unwrap();
        assert_eq!(args[end + 1..], ["-oProxyCommand=x", "exec sh -c 'true'"]);
        let escape = args.iter().position(|arg| arg == "-e").unwrap();
        assert_eq!(args[escape + 1], "none");
    }

    fn of_script(script: &str, timeout: Duration) -> SshFailure {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        communicate(command, None, timeout).unwrap_err()
    }

    #[test]
    fn endless_output_is_an_error() {
        for script in ["exec yes", "exec yes >&2", "yes & exec yes >&2"] {
            let failure = of_script(script, Duration::MAX);
            assert_eq!(failure.message, "it printed more than 16 MiB", "{script}");
        }
    }

    #[test]
    fn script_that_does_not_end_is_killed_with_its_children() {
        for script in ["exec sleep 3600", "sleep 3600 & wait", "sleep 3600 & sleep 3600"] {
            let failure = of_script(script, Duration::from_millis(50));
            assert_eq!(failure.message, "it has not ended after 0 s", "{script}");
        }
    }

    #[test]
    fn messages_are_the_last_lines() {
        assert_eq!(last_lines("a\n\nb\r\nc\nd\ne\n"), "b | c | d | e");
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn incomplete_copy_is_removed_also_from_a_home_with_spaces() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("of a user");
        std::fs::create_dir(&home).unwrap();
        let program = Program::open(Path::new("/bin/true")).unwrap();
        let mut command = Command::new("sh");
        command.arg("-c").arg(program.copy_script());
        command.env("HOME", &home).env_remove("XDG_CACHE_HOME");
        let copied = command.stdin(Stdio::null()).output().unwrap();
        let printed = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(!copied.status.success() && printed == "the copy is incomplete\n", "{printed}");
        let left: Vec<_> = std::fs::read_dir(home.join(".cache/dbdyno/bin")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    fn facts(output: &str) -> Facts {
        Facts::parse(output).unwrap()
    }

    #[test]
    fn facts_are_found_among_other_output() {
        let output = "Welcome!\ndbdyno: Linux x86_64\ndbdyno: glibc 2.36\nmail\ndbdyno: 120\n";
        let libc = Some(LibcVersion(2, 36));
        let expected = Facts { machine: "Linux x86_64".to_owned(), libc, size: 120 };
        assert_eq!(facts(output), expected);
        assert_eq!(facts("dbdyno: Linux x86_64\ndbdyno: other\ndbdyno: 0").libc, None);
        assert_eq!(Facts::parse("fish: unknown command"), None);
    }

    #[test]
    fn other_machines_and_libraries_are_refused() {
        let check = |machine: &str, libc: &str| {
            let output = format!("dbdyno: {machine}\ndbdyno: {libc}\ndbdyno: 0");
            facts(&output).check(LibcVersion(2, 34)).map_err(|reason| reason + ".")
        };
        let here = format!("Linux {}", std::env::consts::ARCH);
        assert_eq!(check(&here, "glibc 2.34"), Ok(LibcVersion(2, 34)));
        assert_eq!(check(&here, "glibc 3.0"), Ok(LibcVersion(3, 0)));
        let error = check("Linux riscv64", "glibc 2.36").unwrap_err();
        assert_eq!(error, format!("it is Linux riscv64, and this machine is {here}."));
        assert!(check(&here, "glibc 2.31").unwrap_err().contains("version 2.31"));
        assert!(check(&here, "other").unwrap_err().contains("no GNU C library"));
    }

    #[test]
    fn needed_version_is_the_newest_in_the_program() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(needed_libc(program), LibcVersion(2, 34));
        assert_eq!(needed_libc(b"static"), LibcVersion::default());
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(needed_libc(&own) >= LibcVersion(2, 17));
    }
}
