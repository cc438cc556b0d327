//! Comparing what was done with what was wanted.

mod asked;
mod binaries;
mod objects;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Audit;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Compiled without optimization.
    Unoptimized,
    /// Another optimization level.
    OptimizationLevel,
    /// No link-time optimization, anywhere.
    LtoMissing,
    /// Link-time optimization in some objects only.
    LtoPartial,
    /// Another form of link-time optimization.
    LtoForm,
    /// Link-time optimization that nobody asked for.
    LtoUnasked,
    /// An instruction set that nobody asked for.
    MarchLeaked,
    /// An instruction set that did not arrive.
    MarchMissing,
    /// Single extensions of the instruction set for single files.
    ExtensionFlags,
    /// Hardening that nobody asked for.
    HardeningUnasked,
    /// Hardening that did not arrive.
    HardeningMissing,
    /// Assertions are compiled in.
    AssertionsOn,
    /// Assertions are not compiled in.
    AssertionsOff,
    /// Debug information, against what was wanted.
    DebugInformation,
    /// Frame pointers, against what was wanted.
    FramePointers,
    /// Another use of profiles.
    Profile,
    /// Instrumented code, which is slow.
    Instrumented,
    /// Another compiler.
    Compiler,
    /// The compile database asked for something else.
    NotAsAsked,
    /// Nothing is recorded that could prove it.
    Unproven,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Unoptimized,
        Self::OptimizationLevel,
        Self::LtoMissing,
        Self::LtoPartial,
        Self::LtoForm,
        Self::LtoUnasked,
        Self::MarchLeaked,
        Self::MarchMissing,
        Self::ExtensionFlags,
        Self::HardeningUnasked,
        Self::HardeningMissing,
        Self::AssertionsOn,
        Self::AssertionsOff,
        Self::DebugInformation,
        Self::FramePointers,
        Self::Profile,
        Self::Instrumented,
        Self::Compiler,
        Self::NotAsAsked,
        Self::Unproven,
    ];

    /// Its name in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unoptimized => "unoptimized",
            Self::OptimizationLevel => "optimization-level",
            Self::LtoMissing => "lto-missing",
            Self::LtoPartial => "lto-partial",
            Self::LtoForm => "lto-form",
            Self::LtoUnasked => "lto-unasked",
            Self::MarchLeaked => "march-leaked",
            Self::MarchMissing => "march-missing",
            Self::ExtensionFlags => "extension-flags",
            Self::HardeningUnasked => "hardening-unasked",
            Self::HardeningMissing => "hardening-missing",
            Self::AssertionsOn => "assertions-on",
            Self::AssertionsOff => "assertions-off",
            Self::DebugInformation => "debug-information",
            Self::FramePointers => "frame-pointers",
            Self::Profile => "profile",
            Self::Instrumented => "instrumented",
            Self::Compiler => "compiler",
            Self::NotAsAsked => "not-as-asked",
            Self::Unproven => "unproven",
        }
    }

    /// The check of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|check| check.name() == name)
    }

    /// What it means, for the heading of a list.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Unoptimized => "compiled without optimization",
            Self::OptimizationLevel => "another optimization level",
            Self::LtoMissing => "no link-time optimization",
            Self::LtoPartial => "link-time optimization in some objects only",
            Self::LtoForm => "another form of link-time optimization",
            Self::LtoUnasked => "link-time optimization that nobody asked for",
            Self::MarchLeaked => "an instruction set that nobody asked for",
            Self::MarchMissing => "the instruction set did not arrive",
            Self::ExtensionFlags => "extensions of the instruction set for single files",
            Self::HardeningUnasked => "hardening that nobody asked for",
            Self::HardeningMissing => "hardening that did not arrive",
            Self::AssertionsOn => "assertions are on",
            Self::AssertionsOff => "assertions are off",
            Self::DebugInformation => "debug information",
            Self::FramePointers => "frame pointers",
            Self::Profile => "another use of profiles",
            Self::Instrumented => "instrumented code",
            Self::Compiler => "another compiler",
            Self::NotAsAsked => "not what the compile database asked for",
            Self::Unproven => "nothing recorded that proves it",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know, or allowed by name.
    Note,
    /// Suspicious: nobody said what was wanted, or it cannot be told for sure.
    Warning,
    /// It is not what was wanted.
    Offence,
}

/// Where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// One of [`Audit::objects`].
    Object(usize),
    /// One of [`Audit::binaries`].
    Binary(usize),
    /// The whole.
    Whole,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What is recorded.
    pub recorded: String,
    /// What was wanted; `None` where nobody said.
    pub wanted: Option<String>,
}

/// Checks everything against the intent of the audit.
pub(crate) fn check(audit: &Audit) -> Vec<Finding> {
    let mut findings = objects::check(audit);
    findings.extend(asked::check(audit));
    binaries::check(audit, &mut findings);
    for finding in &mut findings {
        if audit.intent.allowed.contains(&finding.check) {
            finding.severity = Severity::Note;
        }
    }
    findings.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then(a.check.cmp(&b.check)).then(a.place.cmp(&b.place))
    });
    findings
}
