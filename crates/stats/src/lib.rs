//! Estimates with their uncertainty: paired ratios, group summaries, the noise floor.
