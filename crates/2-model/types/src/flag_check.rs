//! Checks of the flag audit, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A check of the flag audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlagCheck {
    /// Compiled without optimization.
    Unoptimized,
    /// Another optimization level than expected.
    OptimizationLevel,
    /// No link-time optimization in any object.
    LtoMissing,
    /// Link-time optimization in some objects only.
    LtoPartial,
    /// Another form of link-time optimization than expected.
    LtoForm,
    /// Link-time optimization that was not requested.
    LtoUnexpected,
    /// Instructions beyond the baseline that were not requested.
    MarchLeaked,
    /// The requested instruction set was not used.
    MarchMissing,
    /// Instruction set extensions for single files.
    ExtensionFlags,
    /// Hardening that was not requested.
    HardeningUnexpected,
    /// Requested hardening is missing.
    HardeningMissing,
    /// Assertions are compiled in.
    AssertionsOn,
    /// Assertions are not compiled in.
    AssertionsOff,
    /// Debug information differs from what was expected.
    DebugInformation,
    /// Frame pointers differ from what was expected.
    FramePointers,
    /// The use of profiles differs from what was expected.
    Profile,
    /// Instrumented code, which is slow.
    Instrumented,
    /// Another compiler than expected.
    Compiler,
    /// The recorded command line differs from the compile database's.
    CompileDatabaseMismatch,
    /// No recorded evidence.
    Unproven,
}

impl FlagCheck {
    /// All checks.
    pub const ALL: [Self; 20] = [
        Self::Unoptimized,
        Self::OptimizationLevel,
        Self::LtoMissing,
        Self::LtoPartial,
        Self::LtoForm,
        Self::LtoUnexpected,
        Self::MarchLeaked,
        Self::MarchMissing,
        Self::ExtensionFlags,
        Self::HardeningUnexpected,
        Self::HardeningMissing,
        Self::AssertionsOn,
        Self::AssertionsOff,
        Self::DebugInformation,
        Self::FramePointers,
        Self::Profile,
        Self::Instrumented,
        Self::Compiler,
        Self::CompileDatabaseMismatch,
        Self::Unproven,
    ];

    /// The name in experiments, JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unoptimized => "unoptimized",
            Self::OptimizationLevel => "optimization-level",
            Self::LtoMissing => "lto-missing",
            Self::LtoPartial => "lto-partial",
            Self::LtoForm => "lto-form",
            Self::LtoUnexpected => "lto-unexpected",
            Self::MarchLeaked => "march-leaked",
            Self::MarchMissing => "march-missing",
            Self::ExtensionFlags => "extension-flags",
            Self::HardeningUnexpected => "hardening-unexpected",
            Self::HardeningMissing => "hardening-missing",
            Self::AssertionsOn => "assertions-on",
            Self::AssertionsOff => "assertions-off",
            Self::DebugInformation => "debug-information",
            Self::FramePointers => "frame-pointers",
            Self::Profile => "profile",
            Self::Instrumented => "instrumented",
            Self::Compiler => "compiler",
            Self::CompileDatabaseMismatch => "compile-database-mismatch",
            Self::Unproven => "unproven",
        }
    }

    /// The check of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|check| check.name() == name)
    }

    /// The meaning, as the heading of a list.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Unoptimized => "compiled without optimization",
            Self::OptimizationLevel => "different optimization level",
            Self::LtoMissing => "no link-time optimization",
            Self::LtoPartial => "link-time optimization in some objects only",
            Self::LtoForm => "different form of link-time optimization",
            Self::LtoUnexpected => "unexpected link-time optimization",
            Self::MarchLeaked => "unexpected instruction set",
            Self::MarchMissing => "instruction set not used",
            Self::ExtensionFlags => "instruction set extensions for single files",
            Self::HardeningUnexpected => "unexpected hardening",
            Self::HardeningMissing => "missing hardening",
            Self::AssertionsOn => "assertions are on",
            Self::AssertionsOff => "assertions are off",
            Self::DebugInformation => "debug information",
            Self::FramePointers => "frame pointers",
            Self::Profile => "different use of profiles",
            Self::Instrumented => "instrumented code",
            Self::Compiler => "different compiler",
            Self::CompileDatabaseMismatch => "differs from the compile database",
            Self::Unproven => "no evidence",
        }
    }
}

impl fmt::Display for FlagCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_serialized_form() {
        for check in FlagCheck::ALL {
            assert_eq!(serde_json::to_value(check).unwrap(), check.name());
            assert_eq!(FlagCheck::by_name(check.name()), Some(check));
        }
    }
}
