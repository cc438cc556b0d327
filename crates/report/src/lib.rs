//! Tables, charts and exports made from a run directory.
//!
//! [`model::Report`] holds every number; [`terminal`], [`html`] and [`export`] only draw it.

pub mod assemble;
pub mod export;
mod figures;
pub mod html;
mod metric;
pub mod model;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod terminal;
