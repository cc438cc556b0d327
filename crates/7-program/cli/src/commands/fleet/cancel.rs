//! `dbdyno fleet cancel`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dbdyno_fleet::{Controller, FleetDirectory, FleetError, Slurm, totals};

use super::{follow, statuses};
use crate::args::FleetCancel;
use crate::error::CliError;
use crate::output;

/// How long to wait for the process that follows the jobs.
const WAIT: Duration = Duration::from_secs(10 * 60);

/// Cancels a fleet run: by the process that follows it, or itself if there is none.
pub fn cancel(args: &FleetCancel) -> Result<ExitCode, CliError> {
    loop {
        match FleetDirectory::open(&args.directory) {
            Ok((directory, record)) => {
                Slurm::check()?;
                let mut controller = Controller::new(record, Slurm, directory);
                controller.cancel();
                if let Some(code) = follow::until_end(&mut controller, false)? {
                    return Ok(code);
                }
                break;
            }
            Err(FleetError::InUse { .. }) => {
                ask(&args.directory)?;
                // It may have ended, or been killed, before it saw the request.
                if FleetDirectory::read(&args.directory)?.1.has_ended() {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (directory, record) = FleetDirectory::read(&args.directory)?;
    output::print(&format!("{}\n", totals(&statuses(&directory, &record))));
    Ok(ExitCode::SUCCESS)
}

/// Asks the process that follows the jobs to cancel, and waits for its end.
fn ask(directory: &Path) -> Result<(), CliError> {
    let (directory, _) = FleetDirectory::read(directory)?;
    directory.ask_to_cancel()?;
    let started = Instant::now();
    while directory.is_controlled() {
        if started.elapsed() > WAIT {
            let message = "the dbdyno that follows the jobs does not end";
            return Err(CliError::Other(message.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
