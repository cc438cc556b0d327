//! Errors of parsing and of layout.

use crate::Difference;

/// Why a file cannot be parsed as a module.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The file is not an ELF file, or is damaged.
    #[error("{name}: cannot be read as an ELF file: {reason}")]
    Elf {
        name: String,
        /// Message of the parser.
        reason: String,
    },
    /// An ELF file of another kind.
    #[error(
        "{name}: is {found}; only 64-bit x86-64 executables and shared libraries can be optimized"
    )]
    Unsupported {
        name: String,
        /// Kind of the file.
        found: String,
    },
    /// The unwind information is damaged.
    #[error("{name}: unwind information (.eh_frame) at offset {offset:#x}: {reason}")]
    Unwind {
        name: String,
        /// Offset in the section.
        offset: usize,
        /// Message of the parser.
        reason: String,
    },
}

/// Too few samples: a layout would treat executed code as code that is never executed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TooFewSamples {
    /// There are too few to estimate anything.
    #[error(
        "too few samples: {found} in functions that can be moved, at least {required} are required"
    )]
    Few {
        /// Samples in functions that can be moved.
        found: u64,
        /// Required number.
        required: u64,
    },
    /// Too much of the execution is in blocks without a sample.
    #[error(
        "too few samples: with {found}, about {:.1}% of the execution is in blocks of code without a \
         sample, which would be treated as never executed; at most {:.0}% are accepted",
        unsampled * 100.0,
        accepted * 100.0
    )]
    Sparse {
        /// Samples in functions that can be moved.
        found: u64,
        /// Estimated share of the execution in blocks without a sample, 0 to 1.
        unsampled: f64,
        /// Highest accepted share.
        accepted: f64,
    },
}

/// Why there is no new layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// No sample is in a function that can be moved.
    #[error(
        "none of the {samples} samples is in a function that can be moved; sample for longer, while \
         the process is busy"
    )]
    NothingHot {
        /// Number of samples, including those outside of the modules.
        samples: u64,
    },
    /// The samples do not show well enough which code is executed.
    #[error("{0}")]
    TooFewSamples(#[from] TooFewSamples),
    /// The new code is not equivalent, also without the functions that differ: a defect of dbdyno.
    #[error(
        "the new code is not equivalent: {0}; this is a defect of dbdyno: please report it with the \
         program file"
    )]
    NotEquivalent(Box<Difference>),
    /// There is no space near a module.
    #[error(
        "{module}: no {size} bytes of free addresses for new code between {earliest:#x} and {latest:#x}"
    )]
    NoSpace {
        module: String,
        /// Requested bytes.
        size: u64,
        /// Lowest start address.
        earliest: u64,
        /// Highest start address.
        latest: u64,
    },
    /// The reserved address cannot be used.
    #[error(
        "{module}: the address {given:#x} for new code is not a multiple of 4096 between \
         {earliest:#x} and {latest:#x}"
    )]
    InvalidAddress {
        module: String,
        /// The reserved address.
        given: u64,
        /// Lowest start address.
        earliest: u64,
        /// Highest start address.
        latest: u64,
    },
}
