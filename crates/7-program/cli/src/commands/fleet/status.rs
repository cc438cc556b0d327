//! `dbdyno fleet status`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dbdyno_fleet::{FleetDirectory, lines, poll_interval, totals};

use super::{exit_code, resume_with, statuses};
use crate::args::FleetStatus;
use crate::commands::{INTERRUPTED, stop_on_signals};
use crate::error::CliError;
use crate::output::{self, FleetDisplay};

/// Shows what each node does. Only reads: jobs are followed by `fleet run`.
pub fn status(args: &FleetStatus) -> Result<ExitCode, CliError> {
    if args.watch {
        return watch(args);
    }
    let (directory, record) = FleetDirectory::read(&args.directory)?;
    let all = statuses(&directory, &record);
    if args.json {
        let text = serde_json::to_string_pretty(&all)
            .map_err(|error| CliError::Other(format!("encoding the status: {error}")))?;
        output::print_json(&format!("{text}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = lines(&record, &all, output::width()).join("\n");
    text.push_str(&format!("\n{}\n", totals(&all)));
    output::print(&text);
    note_uncontrolled(&directory, record.has_ended());
    Ok(ExitCode::SUCCESS)
}

fn watch(args: &FleetStatus) -> Result<ExitCode, CliError> {
    let stop = stop_on_signals("leaving; the jobs go on")?;
    let display = FleetDisplay::new();
    let mut is_first = true;
    loop {
        let (directory, record) = FleetDirectory::read(&args.directory)?;
        display.show(&record, &statuses(&directory, &record), None);
        if std::mem::take(&mut is_first) {
            note_uncontrolled(&directory, record.has_ended());
        }
        if record.has_ended() {
            display.finish();
            return Ok(exit_code(&record));
        }
        let (started, pause) = (Instant::now(), Duration::from(poll_interval(record.tasks.len())));
        while started.elapsed() < pause {
            if stop.load(Ordering::Relaxed) {
                display.finish();
                return Ok(ExitCode::from(INTERRUPTED));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Says how to go on if no process follows the jobs.
fn note_uncontrolled(directory: &FleetDirectory, has_ended: bool) {
    if !has_ended && !directory.is_controlled() {
        let resume = resume_with(directory.path());
        output::note(&format!(
            "no dbdyno follows the jobs: this is what was known last. Continue with: {resume}"
        ));
    }
}
