//! One module per command.

mod check;
mod doctor;
mod list;
mod report;
mod run;
mod worker;

pub use check::check;
pub use doctor::doctor;
pub use list::list;
pub use report::report;
pub use run::run;
pub use worker::worker;

use std::path::Path;

use dbdyno_builds::Variant;
use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::{Known, parse};

use crate::error::CliError;

/// Reads an experiment file; returns its text, too.
fn read_experiment(file: &Path) -> Result<(Experiment, String), CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| CliError::Read { path: file.to_owned(), source })?;
    let variants: Vec<&str> = Variant::names().collect();
    let known = Known { variants: &variants };
    let experiment = parse(&file.display().to_string(), &text, &known)
        .map_err(|problems| CliError::Experiment(problems.to_string()))?;
    Ok((experiment, text))
}
