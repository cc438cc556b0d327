//! The system's ssh.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use dbdyno_machine::{Signal, die_with_parent, remove_secrets};

/// Options for all connections: never ask, notice a dead network, and forward nothing.
const OPTIONS: [&str; 19] = [
    "-T",
    "-x",
    "-a",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=4",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "ControlPath=none",
    "-o",
    "LogLevel=ERROR",
    "-e",
    "none",
];

/// The exit code of ssh itself.
const OWN_FAILURE: i32 = 255;

/// A failed command.
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
    command.args(OPTIONS).arg("--").arg(destination).arg(in_sh(script));
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

/// Runs a script with this input, and returns its output.
pub(crate) fn run(
    destination: &str,
    script: &str,
    input: Option<&mut (dyn Read + Send)>,
) -> Result<String, SshFailure> {
    let failed = |error: std::io::Error| SshFailure {
        message: match error.kind() {
            std::io::ErrorKind::NotFound => {
                "there is no program ssh here (Debian: apt install openssh-client)".to_owned()
            }
            _ => format!("starting ssh: {error}"),
        },
        of_ssh: true,
    };
    let mut command = command(destination, script);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    // A script that ends early closes its input; its own message is the one to show.
    let sent = match (child.stdin.take(), input) {
        (Some(mut stdin), Some(input)) => copy(input, &mut stdin),
        _ => Ok(()),
    };
    let output = child.wait_with_output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        let (errors, code) = (text(&output.stderr), output.status.code());
        let message = match (errors.is_empty(), code) {
            (false, _) => last_lines(&errors),
            (true, Some(code)) => format!("it exited with code {code}"),
            (true, None) => "it was killed".to_owned(),
        };
        return Err(SshFailure { message, of_ssh: code == Some(OWN_FAILURE) });
    }
    sent.map_err(failed)?;
    Ok(text(&output.stdout))
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> std::io::Result<()> {
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

    #[test]
    fn messages_are_the_last_lines() {
        assert_eq!(last_lines("a\n\nb\r\nc\nd\ne\n"), "b | c | d | e");
        assert_eq!(last_lines(""), "");
    }
}
