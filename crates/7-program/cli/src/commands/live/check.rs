//! `dbdyno live status --check`: whether processes can be optimized.

use std::process::ExitCode;

use dbdyno_live::{CheckResult, LiveError, Probe, ProbeOptions, probe};
use serde_json::json;

use super::Session;
use crate::error::CliError;
use crate::output;

/// Checks one process, or all that have a journal.
pub(super) fn check(session: &Session, pid: Option<u32>) -> Result<ExitCode, CliError> {
    let listed = || {
        let records = dbdyno_live::live_records(&session.state);
        records.into_iter().map(|record| record.identity.pid).collect()
    };
    let pids: Vec<u32> = pid.map_or_else(listed, |pid| vec![pid]);
    let mut probes = Vec::new();
    for listed in pids {
        match probe(listed, ProbeOptions::default(), &session.state) {
            Ok(probe) => probes.push(probe),
            // It exited since it was listed.
            Err(LiveError::Exited { .. }) if pid.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut lines: String = probes.iter().map(text).collect();
    if lines.is_empty() {
        lines = session.nothing_optimized(pid);
    }
    session.print(&json!(probes), &lines);
    let is_forbidden = probes.iter().any(|probe| !probe.optimizable);
    Ok(if is_forbidden { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(probe: &Probe) -> String {
    let program = probe.program.as_ref().map(|path| format!(" {}", path.display()));
    let can = if probe.optimizable { "can" } else { "cannot" };
    let mut text =
        format!("Process {}:{} {can} be optimized\n", probe.pid, program.unwrap_or_default());
    for check in &probe.checks {
        let mark = match check.result {
            CheckResult::Ok => "ok       ",
            CheckResult::Note => "note     ",
            CheckResult::Forbidden => "FORBIDDEN",
        };
        let line = format!("{}: {}", check.id.replace('-', " "), check.what);
        output::wrapped(&mut text, &format!("  {mark} "), &line);
    }
    text
}
