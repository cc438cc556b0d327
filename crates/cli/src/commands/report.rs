use std::path::Path;
use std::process::ExitCode;

use dbdyno_report::{assemble, export, terminal};
use dbdyno_results::RunReader;

use crate::args::{Report, View};
use crate::error::CliError;
use crate::output;

/// Prints the report of a run and writes its exports.
pub fn report(args: &Report) -> Result<ExitCode, CliError> {
    show(&args.directory, args.view)?;
    Ok(ExitCode::SUCCESS)
}

/// The same, at the end of a run.
pub fn show(directory: &Path, view: View) -> Result<(), CliError> {
    let report = assemble::assemble(&RunReader::open(directory)?)?;
    let options = terminal::TerminalOptions {
        width: output::width(),
        color: output::color(view.color),
        three_groups: view.three_groups,
    };
    output::print(&terminal::render(&report, &options));
    let files = export::write_all(&report, directory)?;
    let names: Vec<String> =
        files.iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
    output::print(&format!("\nWritten to {}: {}\n", directory.display(), names.join(", ")));
    Ok(())
}
