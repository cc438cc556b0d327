//! `dbdyno live`: the live optimizer. Arguments in, text out: `dbdyno_live` does the work.

mod optimize;
mod text;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use dbdyno_live::{
    DEFAULT_MAX_PAUSE, LiveError, ProbeOptions, Switch, Target, descendants,
    end_counting_after_input, live_records, probe, process_statuses, switch_all,
};
use dbdyno_text::{Block, Paint, Text, write_blocks};
use dbdyno_units::visible;
use serde_json::{Value, json};

use crate::args::{AttachOptions, Live, LiveCommand, Status, TargetProcess, Undo};
use crate::error::CliError;
use crate::output;

/// Settings of all commands.
struct Session {
    state: PathBuf,
    json: bool,
}

/// Optimizes running processes, lists them, undoes and redoes optimizations.
pub fn live(args: &Live) -> Result<ExitCode, CliError> {
    dbdyno_live::check_platform()?;
    let state = dbdyno_live::state_dir(args.state.as_deref())?;
    dbdyno_live::remove_exited(&state);
    let session = Session { state, json: args.json };
    match &args.command {
        LiveCommand::Optimize(optimize) => optimize::optimize(&session, optimize),
        LiveCommand::Status(status) => session.status(status),
        LiveCommand::Undo(undo) => session.undo(undo),
        LiveCommand::Redo(target) => {
            refuse_several(target.pid, &target.more.pids)?;
            let pids = members(target.pid, target.family);
            session.switch(pids, Some(target.pid), &target.options, Switch::Redo)
        }
        LiveCommand::Watch(watch) => optimize::watch(&session, watch),
        LiveCommand::GuardCounting(target) => session.guard_counting(target),
    }
}

impl Session {
    /// Prints a result, as JSON or as text.
    fn print(&self, value: &Value, blocks: &[Block]) {
        if self.json {
            return output::print_json(&format!("{value:#}\n"));
        }
        let mut text = String::new();
        write_blocks(&mut text, blocks, output::width(), Paint::new(false));
        output::print(&text);
    }

    /// That no process is optimized, or not this one.
    fn nothing_optimized(&self, pid: Option<u32>) -> Block {
        let what = pid.map_or_else(
            || "No process is optimized".to_owned(),
            |pid| format!("Process {pid} is not optimized"),
        );
        let text = format!("{what}, according to the journals in {}.", self.state.display());
        Text::new(text).into()
    }

    fn status(&self, status: &Status) -> Result<ExitCode, CliError> {
        match status.pid {
            Some(pid) => refuse_several(pid, &status.more.pids)?,
            None => refuse_without_option(&status.more.pids)?,
        }
        if status.check {
            return self.check(status.pid);
        }
        let statuses = process_statuses(&self.state, status.pid);
        let mut blocks: Vec<Block> = statuses.iter().flat_map(text::status).collect();
        if blocks.is_empty() {
            blocks.push(self.nothing_optimized(status.pid));
        }
        self.print(&json!(statuses), &blocks);
        Ok(ExitCode::SUCCESS)
    }

    /// Checks whether one process, or all that have a journal, can be optimized.
    fn check(&self, pid: Option<u32>) -> Result<ExitCode, CliError> {
        let pids = pid.map_or_else(|| self.listed(), |pid| vec![pid]);
        let mut probes = Vec::new();
        for listed in pids {
            match probe(listed, ProbeOptions::default(), &self.state) {
                Ok(probe) => probes.push(probe),
                // It exited since it was listed.
                Err(LiveError::Exited { .. }) if pid.is_none() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut blocks: Vec<Block> = probes.iter().flat_map(text::probe).collect();
        if blocks.is_empty() {
            blocks.push(self.nothing_optimized(pid));
        }
        self.print(&json!(probes), &blocks);
        let is_forbidden = probes.iter().any(|probe| !probe.optimizable);
        Ok(if is_forbidden { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The processes with a journal.
    fn listed(&self) -> Vec<u32> {
        live_records(&self.state).into_iter().map(|record| record.identity.pid).collect()
    }

    fn undo(&self, undo: &Undo) -> Result<ExitCode, CliError> {
        if let Some(pid) = undo.pid {
            refuse_several(pid, &undo.more.pids)?;
            return self.switch(members(pid, undo.family), Some(pid), &undo.options, Switch::Undo);
        }
        refuse_without_option(&undo.more.pids)?;
        let pids = self.listed();
        if pids.is_empty() {
            self.print(&json!([]), &[self.nothing_optimized(None)]);
            return Ok(ExitCode::SUCCESS);
        }
        self.switch(pids, None, &undo.options, Switch::Undo)
    }

    /// Switches processes. If there is a `root`, the others are its descendants.
    fn switch(
        &self,
        pids: impl IntoIterator<Item = u32>,
        root: Option<u32>,
        options: &AttachOptions,
        switch: Switch,
    ) -> Result<ExitCode, CliError> {
        // On a busy machine, reading the files of a process would take seconds.
        dbdyno_live::raise_priority();
        let target = self.target(root.unwrap_or(0), options);
        let (reports, error_of_root) = switch_all(&target, root, pids, switch, options.max_pause());
        if error_of_root.is_none() || !reports.is_empty() {
            let blocks: Vec<_> = reports.iter().map(|it| text::switched(it, switch)).collect();
            self.print(&json!(reports), &blocks);
        }
        let has_failed = reports.iter().any(|it| it.has_failed(switch));
        let code = if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        match error_of_root {
            // Only its descendants were optimized.
            Some(LiveError::NotOptimized { .. }) if !reports.is_empty() => Ok(code),
            Some(error) => Err(error.into()),
            None => Ok(code),
        }
    }

    fn target(&self, pid: u32, options: &AttachOptions) -> Target {
        let probe = ProbeOptions::WITHOUT_CALLS;
        let max_pause = options.max_pause().unwrap_or(DEFAULT_MAX_PAUSE);
        Target { pid, family: false, state: self.state.clone(), probe, max_pause }
    }

    /// Waits until the dbdyno that started this process has ended, and then activates the original code, if
    /// code that counts is active. SIGINT, SIGTERM and SIGHUP are ignored.
    fn guard_counting(&self, process: &TargetProcess) -> Result<ExitCode, CliError> {
        // They may be sent to dbdyno and its guard together, as `systemctl stop` does.
        ctrlc::set_handler(|| ())
            .map_err(|error| CliError::Other(format!("handling signals: {error}")))?;
        if end_counting_after_input(&self.target(process.pid, &process.options))? {
            output::note(&text::counting_ended(process.pid));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The process and, if requested, its descendants. They are listed after the process was switched: those that are
/// forked later are as it is then.
fn members(pid: u32, family: bool) -> impl Iterator<Item = u32> {
    let below = family.then_some(pid).into_iter().flat_map(descendants);
    std::iter::once(pid).chain(below)
}

/// Longest command line to print, in characters.
const COMMAND_LENGTH: usize = 60;

/// Refuses more than one process, with a list to choose from.
fn refuse_several(pid: u32, more: &[u32]) -> Result<(), CliError> {
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
fn refuse_without_option(pids: &[u32]) -> Result<(), CliError> {
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
        Ok(words) if words.is_empty() => "a thread of the kernel, or it has exited".to_owned(),
        Ok(words) => {
            let text = String::from_utf8_lossy(&words).replace('\0', " ");
            visible(text.trim_end()).into_owned()
        }
        Err(_) => "does not exist or has exited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_forked_until_the_first_one_was_switched_are_members() {
        let me = std::process::id();
        let mut all = members(me, true);
        assert_eq!(all.next(), Some(me));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let is_member = all.any(|pid| pid == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_member);
        assert_eq!(members(me, false).count(), 1);
    }

    #[test]
    fn several_processes_are_refused_with_a_list_and_advice() {
        assert!(refuse_several(1, &[]).is_ok());
        let me = std::process::id();
        let error = refuse_several(me, &[2_147_483_000]).unwrap_err().to_string();
        assert!(error.contains("accepts one process, but 2 are given"), "{error}");
        assert!(error.contains("2147483000  does not exist"), "{error}");
        assert!(error.contains("once for each"), "{error}");
        let family = message("", 3, Some(12));
        assert!(family.ends_with("use: --pid 12 --family"), "{family}");
        assert!(line(7, &"x".repeat(100)).ends_with("x…\n"));
    }
}
