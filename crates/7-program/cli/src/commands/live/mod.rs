//! `dbdyno live`: the live optimizer.

mod check;
mod counting;
mod counting_guard;
mod effect;
mod optimize;
mod profile;
mod several;
mod text;
mod watch;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dbdyno_live::{
    Activation, Attachment, Generation, GenerationState, JournalRecord, LiveError, MAX_CODE,
    ProbeOptions, Process, SwitchOperation, exceptions_take_lock, redirected, retry_while_busy,
    symbols,
};
use dbdyno_machine::ProcessIdentity;
use dbdyno_units::Bytes;
use serde_json::{Value, json};

use crate::args::{AttachOptions, Live, LiveCommand, Status, Undo};
use crate::error::CliError;
use crate::output;

/// What is done with processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Undo,
    Redo,
}

impl Operation {
    /// What was done afterwards, and the operation.
    fn parts(self) -> (&'static str, SwitchOperation) {
        match self {
            Self::Undo => ("undone", Attachment::undo),
            Self::Redo => ("redone", Attachment::redo),
        }
    }
}

/// Settings of all commands.
struct Session {
    state: PathBuf,
    json: bool,
}

/// Optimizes running processes, lists them, undoes and redoes optimizations.
pub fn live(args: &Live) -> Result<ExitCode, CliError> {
    let state = dbdyno_live::state_dir(args.state.as_deref())?;
    let session = Session { state, json: args.json };
    match &args.command {
        LiveCommand::Optimize(optimize) => optimize::optimize(&session, optimize),
        LiveCommand::Status(status) => session.status(status),
        LiveCommand::Undo(undo) => session.undo(undo),
        LiveCommand::Redo(target) => {
            several::refuse(target.pid, &target.more.pids)?;
            let pids = members(target.pid, target.family);
            session.switch(pids, Some(target.pid), &target.options, Operation::Redo)
        }
        LiveCommand::Watch(watch) => watch::watch(&session, watch),
        LiveCommand::GuardCounting(target) => counting_guard::guard(&session, target),
    }
}

impl Session {
    fn attach(
        &self,
        pid: u32,
        probe: ProbeOptions,
        max_pause: Duration,
    ) -> Result<Attachment, LiveError> {
        Attachment::open(Process::open(pid, probe)?, &self.state, max_pause)
    }

    /// As [`Session::attach`]. Ends counting that an interrupted dbdyno left active.
    fn attach_to_optimize(
        &self,
        pid: u32,
        probe: ProbeOptions,
        max_pause: Duration,
    ) -> Result<Attachment, LiveError> {
        let mut attachment = self.attach(pid, probe, max_pause)?;
        if attachment.end_abandoned_counting()? {
            output::note(&counting_guard::ended(pid));
        }
        Ok(attachment)
    }

    fn print(&self, value: &Value, text: &str) {
        if self.json {
            output::print_json(&format!("{value:#}\n"));
        } else {
            output::print(text);
        }
    }

    fn undo(&self, undo: &Undo) -> Result<ExitCode, CliError> {
        if let Some(pid) = undo.pid {
            several::refuse(pid, &undo.more.pids)?;
            let pids = members(pid, undo.family);
            return self.switch(pids, Some(pid), &undo.options, Operation::Undo);
        }
        several::refuse_without_option(&undo.more.pids)?;
        let records = dbdyno_live::live_records(&self.state);
        let pids: Vec<u32> = records.iter().map(|record| record.identity.pid).collect();
        if pids.is_empty() {
            self.print(&json!([]), &self.nothing_optimized(None));
            return Ok(ExitCode::SUCCESS);
        }
        self.switch(pids, None, &undo.options, Operation::Undo)
    }

    /// That no process is optimized, or not this one.
    fn nothing_optimized(&self, pid: Option<u32>) -> String {
        let what = pid.map_or_else(
            || "No process is optimized".to_owned(),
            |pid| format!("Process {pid} is not optimized"),
        );
        format!("{what}, according to the journals in {}.\n", self.state.display())
    }

    fn status(&self, status: &Status) -> Result<ExitCode, CliError> {
        match status.pid {
            Some(pid) => several::refuse(pid, &status.more.pids)?,
            None => several::refuse_without_option(&status.more.pids)?,
        }
        if status.check {
            return check::check(self, status.pid);
        }
        let mut values = Vec::new();
        let mut lines = String::new();
        for record in dbdyno_live::live_records(&self.state) {
            if status.pid.is_some_and(|pid| pid != record.identity.pid) {
                continue;
            }
            let options = ProbeOptions { allow_seccomp: true, ..ProbeOptions::default() };
            let process = Process::open(record.identity.pid, options);
            let gdb = symbols::gdb_script(&self.state, &record.identity);
            let described = process.and_then(|process| describe(&process, &record, gdb));
            // It may have exited, or be stopped or traced by another program.
            let (value, text) = described.unwrap_or_else(|error| unknown(&record, &error));
            values.push(value);
            lines.push_str(&text);
        }
        if lines.is_empty() {
            lines = self.nothing_optimized(status.pid);
        }
        self.print(&json!(values), &lines);
        Ok(ExitCode::SUCCESS)
    }

    /// Switches processes. If there is a `first` one, the others are its descendants, and are not redone if it
    /// cannot be.
    fn switch(
        &self,
        pids: impl IntoIterator<Item = u32>,
        first: Option<u32>,
        options: &AttachOptions,
        operation: Operation,
    ) -> Result<ExitCode, CliError> {
        let (done, switch) = operation.parts();
        // On a busy machine, reading the files of a process would take seconds.
        dbdyno_live::raise_priority();
        // The process executes no call for a switch, so its system call filter does not matter.
        let probe = ProbeOptions { allow_seccomp: true, ..options.probe() };
        let mut values = Vec::new();
        let mut lines = String::new();
        let mut code = ExitCode::SUCCESS;
        let mut error_of_first = None;
        for pid in pids {
            let attached = self.attach(pid, probe, options.max_pause());
            let outcome = attached.and_then(|mut attachment| {
                // Half of it is the worst state to be left in.
                let is_partial =
                    |error: &LiveError| matches!(error, LiveError::ChangedInPart { .. });
                let switched = retry_while_busy(|| switch(&mut attachment), is_partial).0?;
                let now = attachment.activation()?;
                Ok((switched, now))
            });
            match outcome {
                Ok((switched, now)) => {
                    values.push(json!({ "pid": pid, "switched": switched, "activation": now }));
                    let how = text::switched(&switched);
                    lines.push_str(&format!("Process {pid}: {done}; {how}.\n"));
                }
                Err(error) if Some(pid) == first => {
                    if operation == Operation::Redo {
                        return Err(error.into());
                    }
                    error_of_first = Some(error);
                }
                Err(error) if self.has_nothing(pid, first, &error) => {}
                Err(error) => {
                    code = ExitCode::FAILURE;
                    values.push(json!({ "pid": pid, "error": error.to_string() }));
                    lines.push_str(&format!("Process {pid}: not {done}: {error}\n"));
                }
            }
        }
        if error_of_first.is_none() || !values.is_empty() {
            self.print(&json!(values), &lines);
        }
        match error_of_first {
            // Only its descendants were optimized.
            Some(LiveError::NotOptimized { .. }) if !values.is_empty() => Ok(code),
            Some(error) => Err(error.into()),
            None => Ok(code),
        }
    }

    /// Whether this error means that a process, or a descendant of `parent`, has no optimized code.
    fn has_nothing(&self, pid: u32, parent: Option<u32>, error: &LiveError) -> bool {
        match error {
            // A session may exit, or never have been optimized.
            LiveError::Exited { .. }
            | LiveError::NotOptimized { .. }
            | LiveError::NothingToRedo { .. } => true,
            // The probe refused it. A process that executed another program has inherited nothing.
            LiveError::Refused { .. } => {
                let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
                let has_journal = ProcessIdentity::of(pid)
                    .ok()
                    .and_then(|identity| dbdyno_live::find_record(&self.state, &identity).ok()?)
                    .is_some();
                !has_journal && parent.is_none_or(|parent| program(pid) != program(parent))
            }
            _ => false,
        }
    }
}

/// The process and, if requested, its descendants. They are listed after the process was switched: those that are
/// forked later are as it is then.
fn members(pid: u32, family: bool) -> impl Iterator<Item = u32> {
    let descendants = family.then_some(pid).into_iter().flat_map(dbdyno_live::descendants);
    std::iter::once(pid).chain(descendants)
}

/// The status of a process that cannot be probed.
fn unknown(record: &JournalRecord, error: &LiveError) -> (Value, String) {
    let (pid, program) = (record.identity.pid, &record.program);
    let value = json!({ "pid": pid, "program": program, "error": error.to_string() });
    (value, format!("Process {pid}: {}\n  unknown: {error}\n", program.display()))
}

fn describe(
    process: &Process,
    record: &JournalRecord,
    gdb: Option<PathBuf>,
) -> Result<(Value, String), LiveError> {
    let mut text = format!("Process {}: {}\n", record.identity.pid, record.program.display());
    let mut generations = Vec::new();
    for generation in &record.generations {
        let (patched, activation) = redirected(process, generation)?;
        let code = generation.code_size();
        let entries = generation.entries.iter().filter(|entry| entry.is_jump()).count();
        generations.push(json!({
            "number": generation.number,
            "state": generation.state,
            "made": generation.made,
            "entries": entries,
            "redirected": patched,
            "activation": activation,
            "counts": generation.counts,
            "bytes": code,
        }));
        let state = match (generation.state, activation) {
            (_, Activation::Full | Activation::Partial) if generation.counts => {
                "counts executions, which is slow; interrupted; `dbdyno live undo` ends it"
            }
            (GenerationState::Active, _) => "active",
            (GenerationState::Inactive, _) => "inactive; `dbdyno live redo` activates it",
            (GenerationState::Retired, _) => "replaced; its code is kept",
            (GenerationState::Freeing, _) => "replaced; being freed",
            (GenerationState::Preparing, _) => "interrupted; the next optimization removes it",
            (GenerationState::Switching, Activation::Inactive) => "interrupted; inactive",
            (GenerationState::Switching, _) => {
                "interrupted; `dbdyno live undo` or `redo` finishes it"
            }
        };
        text.push_str(&format!(
            "  optimization {}: {patched} of {} functions redirected, {} of code; {state}\n",
            generation.number,
            entries,
            Bytes::from_bytes(code),
        ));
    }
    let code = |generations: &mut dyn Iterator<Item = &Generation>| {
        Bytes::from_bytes(generations.map(Generation::code_size).sum())
    };
    let all = code(&mut record.generations.iter());
    let is_replaced = |it: &&Generation| it.state == GenerationState::Retired;
    let kept = code(&mut record.generations.iter().filter(is_replaced));
    let takes_lock = exceptions_take_lock(process, &record.generations)?;
    let value = json!({
        "pid": record.identity.pid,
        "program": record.program,
        "exceptions_take_lock": takes_lock,
        "generations": generations,
        "code_bytes": all.as_bytes(),
        "kept_bytes": kept.as_bytes(),
        "max_code_bytes": MAX_CODE.as_bytes(),
        "gdb": gdb,
    });
    if kept.as_bytes() > 0 {
        text.push_str(&format!(
            "  memory: {all} of at most {MAX_CODE}, {kept} of it replaced code that is kept; `dbdyno live \
             optimize --unmap` frees what no thread uses\n"
        ));
    }
    if takes_lock {
        text.push_str(
            "  warning: with libgcc 12 or older each C++ exception takes a lock that all threads share\n",
        );
    }
    if let Some(script) = gdb {
        text.push_str(&format!("  gdb: source {}\n", script.display()));
    }
    Ok((value, text))
}

/// A number of seconds given as an option.
fn seconds(value: f64, option: &str) -> Result<Duration, CliError> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) if (0.1..=3600.0).contains(&value) => Ok(time),
        _ => Err(CliError::Usage(format!("{option} {value}: must be 0.1 to 3600 seconds"))),
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
}
