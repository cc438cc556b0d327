//! `dbdyno live`: the live optimizer.

mod optimize;
mod text;
mod watch;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dbdyno_live::{
    Activation, Attachment, GenerationState, Identity, JournalRecord, LiveError, ProbeOptions,
    Process, SwitchOperation, redirected, symbols,
};
use serde_json::{Value, json};

use crate::args::{Care, Chosen, Live, LiveCommand, Whom};
use crate::error::CliError;
use crate::output;

/// What all of its commands share.
struct Session {
    state: PathBuf,
    json: bool,
}

/// Optimizes running processes, says what is optimized, undoes it.
pub fn live(args: &Live) -> Result<ExitCode, CliError> {
    let state = args.state.clone().unwrap_or_else(dbdyno_live::default_state);
    let session = Session { state, json: args.json };
    match &args.command {
        LiveCommand::Optimize(optimize) => optimize::optimize(&session, optimize),
        LiveCommand::Status(whom) => session.status(whom),
        LiveCommand::Undo(chosen) => session.switch(chosen, "undone", Attachment::undo),
        LiveCommand::Redo(chosen) => session.switch(chosen, "in force again", Attachment::redo),
        LiveCommand::Watch(watch) => watch::watch(&session, watch),
    }
}

/// What is permitted, and for how long threads may stand still.
fn limits(care: &Care) -> (ProbeOptions, Duration) {
    (ProbeOptions { seccomp: care.allow_seccomp }, Duration::from_millis(care.stop_bound))
}

impl Session {
    fn attachment(&self, pid: u32, care: &Care) -> Result<Attachment, LiveError> {
        let (probe, max_pause) = limits(care);
        Attachment::open(Process::open(pid, probe)?, &self.state, max_pause)
    }

    fn print(&self, value: &Value, text: &str) {
        if self.json {
            output::print(&format!("{value:#}\n"));
        } else {
            output::print(text);
        }
    }

    fn status(&self, whom: &Whom) -> Result<ExitCode, CliError> {
        let mut values = Vec::new();
        let mut lines = String::new();
        for record in dbdyno_live::live_records(&self.state) {
            if whom.pid.is_some_and(|pid| pid != record.identity.pid) {
                continue;
            }
            let process = Process::open(record.identity.pid, ProbeOptions { seccomp: true });
            let gdb = symbols::gdb_script(&self.state, &record.identity);
            let described = process.and_then(|process| describe(&process, &record, gdb));
            // It may have ended meanwhile, or be stopped or traced by somebody.
            let (value, text) = described.unwrap_or_else(|error| unknown(&record, &error));
            values.push(value);
            lines.push_str(&text);
        }
        if lines.is_empty() {
            lines = format!(
                "Nothing is optimized, as far as is on record in {}.\n",
                self.state.display()
            );
        }
        self.print(&json!(values), &lines);
        Ok(ExitCode::SUCCESS)
    }

    fn switch(
        &self,
        chosen: &Chosen,
        done: &str,
        switch: SwitchOperation,
    ) -> Result<ExitCode, CliError> {
        let mut values = Vec::new();
        let mut lines = String::new();
        let mut code = ExitCode::SUCCESS;
        for pid in members(chosen) {
            let outcome = self.attachment(pid, &chosen.care).and_then(|mut attachment| {
                let switched = switch(&mut attachment)?;
                let now = attachment.now()?;
                Ok((switched, now))
            });
            match outcome {
                Ok((switched, now)) => {
                    values.push(json!({ "pid": pid, "switched": switched, "in_force": now }));
                    let how = text::switched(&switched);
                    lines.push_str(&format!("Process {pid}: {done}; {how}.\n"));
                }
                Err(error) if pid == chosen.pid => return Err(error.into()),
                Err(error) if self.has_nothing(pid, chosen.pid, &error) => {}
                Err(error) => {
                    code = ExitCode::FAILURE;
                    values.push(json!({ "pid": pid, "error": error.to_string() }));
                    lines.push_str(&format!("Process {pid}: not {done}: {error}\n"));
                }
            }
        }
        self.print(&json!(values), &lines);
        Ok(code)
    }

    /// Whether a member of a family has nothing of ours, with which this error came.
    fn has_nothing(&self, pid: u32, parent: u32, error: &LiveError) -> bool {
        match error {
            // A session may end, or never have been optimized.
            LiveError::Exited { .. }
            | LiveError::NotOptimized { .. }
            | LiveError::NothingToRedo { .. } => true,
            // Refused without a look at what it has. Who became another program has inherited
            // nothing.
            LiveError::Refused { .. } => {
                let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
                let is_on_record = Identity::of(pid)
                    .and_then(|identity| dbdyno_live::find_record(&self.state, &identity))
                    .is_ok_and(|record| record.is_some());
                !is_on_record && program(pid) != program(parent)
            }
            _ => false,
        }
    }
}

/// The process, then those that descend from it if wanted.
fn members(chosen: &Chosen) -> Vec<u32> {
    let mut members = vec![chosen.pid];
    if chosen.family {
        members.extend(dbdyno_live::descendants(chosen.pid));
    }
    members
}

/// What is told of a process that cannot be looked at.
fn unknown(record: &JournalRecord, error: &LiveError) -> (Value, String) {
    let (pid, program) = (record.identity.pid, &record.program);
    let value = json!({ "pid": pid, "program": program, "error": error.to_string() });
    (value, format!("Process {pid}: {}\n  not known: {error}\n", program.display()))
}

fn describe(
    process: &Process,
    record: &JournalRecord,
    gdb: Option<PathBuf>,
) -> Result<(Value, String), LiveError> {
    let mut text = format!("Process {}: {}\n", record.identity.pid, record.program.display());
    let mut generations = Vec::new();
    for generation in &record.generations {
        let (patched, in_force) = redirected(process, generation)?;
        let code: u64 = generation.areas.iter().map(|area| area.code).sum();
        generations.push(json!({
            "number": generation.number,
            "state": generation.state,
            "made": generation.made,
            "entries": generation.entries.len(),
            "redirected": patched,
            "in_force": in_force,
            "bytes": code,
        }));
        let state = match (generation.state, in_force) {
            (GenerationState::Active, _) => "in force",
            (GenerationState::Inactive, _) => "undone; `dbdyno live redo` puts it in force again",
            (GenerationState::Retired | GenerationState::Freeing, _) => {
                "replaced; freed when threads have left it"
            }
            (GenerationState::Preparing, _) => {
                "was not finished; `dbdyno live undo` or the next one clears it"
            }
            (GenerationState::Switching, Activation::Inactive) => {
                "was interrupted; nothing of it is in force"
            }
            (GenerationState::Switching, _) => {
                "was interrupted; `dbdyno live undo` or `redo` finishes it"
            }
        };
        text.push_str(&format!(
            "  optimization {}: {patched} of {} functions redirected, {} of code; {state}\n",
            generation.number,
            generation.entries.len(),
            dbdyno_units::Bytes::from_bytes(code),
        ));
    }
    let value = json!({
        "pid": record.identity.pid,
        "program": record.program,
        "generations": generations,
        "gdb": gdb,
    });
    if let Some(script) = gdb {
        text.push_str(&format!("  gdb: source {}\n", script.display()));
    }
    Ok((value, text))
}
