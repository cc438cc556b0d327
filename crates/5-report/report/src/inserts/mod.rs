//! The insert benchmark's part of a report: figures and output.

mod assemble;
mod csv;
mod figures;
mod html;
mod terminal;

pub(crate) use assemble::assemble;
#[cfg(any(test, feature = "sample"))]
pub(crate) use assemble::assemble_steps;
pub(crate) use csv::{series_csv, steps_csv};
pub(crate) use html::render as html;
pub(crate) use terminal::render as terminal;

#[cfg(test)]
mod tests;
