//! Tables, charts and exports made from a run directory.
//!
//! [`model::Report`] contains all numbers; [`terminal`], [`html`] and [`export`] only render it.
//! [`comparison`] compares the reports of several runs, [`history`] follows them over time; [`gate`]
//! judges one by rules.

pub mod assemble;
mod charts;
pub mod comparison;
pub mod export;
mod figures;
pub mod gate;
pub mod history;
pub mod html;
mod key_results;
pub mod markdown;
mod metric;
pub mod model;
mod option_effects;
mod profile_change;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
mod sections;
mod stacks;
pub mod terminal;
mod words;

pub use option_effects::{OptionEffect, option_effects};
pub use profile_change::{ChangedTime, ProfileChange};
