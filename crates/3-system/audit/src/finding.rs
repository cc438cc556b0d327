//! Findings of an audit.

use dbdyno_types::FlagCheck as Check;
use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For information, or ignored by name.
    Note,
    /// Suspicious: without an expectation, or the evidence is not conclusive.
    Warning,
    /// Differs from what was expected.
    Violation,
}

/// The location of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Location {
    /// One of [`crate::Audit::objects`].
    Object(usize),
    /// One of [`crate::Audit::binaries`].
    Binary(usize),
    /// The build as a whole.
    Whole,
}

/// A difference between what is recorded and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check that failed.
    pub check: Check,
    pub severity: Severity,
    pub location: Location,
    /// The recorded value.
    pub recorded: String,
    /// The expected value, if there was an expectation.
    pub expected: Option<String>,
}
