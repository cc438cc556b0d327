//! Checks of the flag audit, by name.

words! {
    /// A check of the flag audit.
    FlagCheck {
        /// Compiled without optimization.
        Unoptimized = "unoptimized",
        /// Another optimization level than expected.
        OptimizationLevel = "optimization-level",
        /// No link-time optimization in any object.
        LtoMissing = "lto-missing",
        /// Link-time optimization in some objects only.
        LtoPartial = "lto-partial",
        /// Another form of link-time optimization than expected.
        LtoForm = "lto-form",
        /// Link-time optimization that was not requested.
        LtoUnexpected = "lto-unexpected",
        /// Instructions beyond the baseline that were not requested.
        MarchLeaked = "march-leaked",
        /// The requested instruction set was not used.
        MarchMissing = "march-missing",
        /// Instruction set extensions for single files.
        ExtensionFlags = "extension-flags",
        /// Hardening that was not requested.
        HardeningUnexpected = "hardening-unexpected",
        /// Requested hardening is missing.
        HardeningMissing = "hardening-missing",
        /// Assertions are compiled in.
        AssertionsOn = "assertions-on",
        /// Assertions are not compiled in.
        AssertionsOff = "assertions-off",
        /// Debug information differs from what was expected.
        DebugInformation = "debug-information",
        /// Frame pointers differ from what was expected.
        FramePointers = "frame-pointers",
        /// The use of profiles differs from what was expected.
        Profile = "profile",
        /// Instrumented code, which is slow.
        Instrumented = "instrumented",
        /// Another compiler than expected.
        Compiler = "compiler",
        /// The recorded command line differs from the compile database's.
        CompileDatabaseMismatch = "compile-database-mismatch",
        /// No recorded evidence.
        Unproven = "unproven",
    }
}

impl FlagCheck {
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
