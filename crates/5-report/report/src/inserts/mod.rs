//! The insert benchmark's part of a report: figures and output.

mod assemble;
mod csv;
pub(crate) mod figures;

pub(crate) use assemble::assemble;
#[cfg(any(test, feature = "sample"))]
pub(crate) use assemble::assemble_steps;
pub(crate) use csv::{series_csv, steps_csv};

#[cfg(test)]
mod tests;
