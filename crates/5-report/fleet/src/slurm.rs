//! Slurm: what its programs print, and calling them.

mod advice;
mod commands;
mod listing;
mod script;

pub use commands::Slurm;
pub use script::job_script;
