//! What can be wrong with the input as a whole.

/// Why a file is no module that can be understood.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The file is not ELF, or damaged.
    #[error("{name}: cannot be read as an ELF file: {reason}")]
    Elf {
        /// The module.
        name: String,
        /// What the reader says.
        reason: String,
    },
    /// An ELF file of another kind.
    #[error(
        "{name}: is {found}; only 64-bit x86-64 executables and shared libraries can be laid out \
         anew"
    )]
    Unsupported {
        /// The module.
        name: String,
        /// What it is instead.
        found: String,
    },
    /// Its unwind information is damaged.
    #[error("{name}: unwind information (.eh_frame) at offset {offset:#x}: {reason}")]
    Unwind {
        /// The module.
        name: String,
        /// Offset into the section.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Why nothing was laid out.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// No sample lies in code that is understood.
    #[error(
        "none of the {samples} samples lies in a function of the given modules that can be moved; \
         sample while the process is busy, and for longer"
    )]
    NothingHot {
        /// All samples, also those outside of the modules.
        samples: u64,
    },
    /// There was no room near a module.
    #[error("{module}: no room of {size} bytes for new code between {earliest:#x} and {latest:#x}")]
    NoRoom {
        /// The module.
        module: String,
        /// Bytes asked for.
        size: u64,
        /// First address at which the region may begin.
        earliest: u64,
        /// Last address at which the region may begin.
        latest: u64,
    },
    /// The region that was given cannot be used.
    #[error(
        "{module}: the place {given:#x} for new code must be a multiple of 4096 between \
         {earliest:#x} and {latest:#x}"
    )]
    BadPlace {
        /// The module.
        module: String,
        /// The address given.
        given: u64,
        /// First address at which the region may begin.
        earliest: u64,
        /// Last address at which the region may begin.
        latest: u64,
    },
}
