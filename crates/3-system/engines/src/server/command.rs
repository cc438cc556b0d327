//! Running programs of servers: their environment and their exit status.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use dbdyno_machine::Signal;

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
