//! Several process IDs where one is needed, as from `--pid $(pidof NAME)`.

use std::fs;

use dbdyno_live::descendants;
use dbdyno_units::visible;

use crate::error::CliError;

/// Longest command line to print, in characters.
const COMMAND_LENGTH: usize = 60;

/// Refuses more than one process, with a list to choose from.
///
/// # Errors
/// There are `more` than one.
pub(super) fn refuse(pid: u32, more: &[u32]) -> Result<(), CliError> {
    if more.is_empty() {
        return Ok(());
    }
    let all: Vec<u32> = std::iter::once(pid).chain(more.iter().copied()).collect();
    let parent = all.iter().copied().find(|pid| {
        let below = descendants(*pid);
        all.iter().all(|other| other == pid || below.contains(other))
    });
    let lines = all.iter().map(|pid| line(*pid, &command(*pid)));
    Err(CliError::Usage(message(&lines.collect::<String>(), all.len(), parent)))
}

/// Refuses process IDs that follow no `--pid`.
///
/// # Errors
/// There are some.
pub(super) fn refuse_without_option(pids: &[u32]) -> Result<(), CliError> {
    match pids {
        [] => Ok(()),
        [pid, ..] => Err(CliError::Usage(format!("unexpected {pid}: write --pid {pid}"))),
    }
}

fn message(lines: &str, count: usize, parent: Option<u32>) -> String {
    let advice = match parent {
        Some(parent) => format!(
            "All are descendants of process {parent}. To include them, use: --pid {parent} --family"
        ),
        None => "Run the command once for each process that you mean.".to_owned(),
    };
    format!("--pid accepts one process, but {count} are given:\n{lines}{advice}")
}

fn line(pid: u32, command: &str) -> String {
    let mut text: String = command.chars().take(COMMAND_LENGTH).collect();
    if text.len() < command.len() {
        text.push('…');
    }
    format!("  {pid:>7}  {text}\n")
}

/// The command line of a process.
fn command(pid: u32) -> String {
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(words) => {
            let text = String::from_utf8_lossy(&words).replace('\0', " ");
            visible(text.trim_end()).into_owned()
        }
        Err(_) => "does not exist or has exited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_processes_are_refused_with_a_list_and_advice() {
        assert!(refuse(1, &[]).is_ok());
        let me = std::process::id();
        let error = refuse(me, &[2_147_483_000]).unwrap_err().to_string();
        assert!(error.contains("accepts one process, but 2 are given"), "{error}");
        assert!(error.contains("2147483000  does not exist"), "{error}");
        assert!(error.contains("once for each"), "{error}");
        let family = message("", 3, Some(12));
        assert!(family.ends_with("use: --pid 12 --family"), "{family}");
        assert!(line(7, &"x".repeat(100)).ends_with("x…\n"));
    }
}
