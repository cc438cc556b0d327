//! Why a function is left alone.

use serde::{Deserialize, Serialize};

/// Why a function is left alone. The names are stable: they appear in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    /// It has fewer bytes after its entry than the jump that would replace them.
    TooSmall,
    /// Bytes that are no instruction.
    Undecodable,
    /// A branch or a sample in the middle of an instruction, or extents that overlap.
    Overlapping,
    /// Starts a hardware transaction: moving or splitting those aborts them more often.
    Transaction,
    /// Makes a system call itself. Kernels, debuggers and C libraries recognise such places by
    /// their address, and there is little to gain.
    SystemCall,
    /// `loop` and `jrcxz` reach 128 bytes only.
    ShortBranch,
    /// Calls into itself: the pushed address is used as data.
    CallsInside,
    /// Calls code that uses its return address as data (`dlsym`, or a callee that pops it).
    ReturnAddressUsed,
    /// Calls code that keeps its return address for a second return (`setjmp`, `getcontext`): the
    /// copy could never be taken away.
    SavesContext,
    /// A branch goes into the bytes that the jump to the copy would replace.
    EntryBranchTarget,
    /// A call returns into the bytes that the jump to the copy would replace.
    EntryReturnAddress,
    /// The address of a place inside the bytes to be replaced is stored in data, or an indirect
    /// jump might go there.
    EntryAddressTaken,
    /// No frame description: its extent is not known for sure.
    NoUnwindInfo,
    /// A frame description that cannot be carried over.
    BadUnwindInfo,
    /// The trampoline that signal handlers return through.
    SignalFrame,
    /// Holds a restartable sequence, which the kernel knows by its address.
    RestartableSequence,
    /// The loader writes into its code.
    RelocatedText,
    /// Part of the linker's tables (PLT, `.init`, `.fini`), not a function.
    LinkerCode,
    /// Something it refers to is more than 2 GB away from the place for new code.
    OutOfReach,
    /// The limit for added memory was reached.
    OverBudget,
    /// The caller excluded it.
    Excluded,
}

impl RejectReason {
    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooSmall => "too_small",
            Self::Undecodable => "undecodable",
            Self::Overlapping => "overlapping",
            Self::Transaction => "transaction",
            Self::SystemCall => "system_call",
            Self::ShortBranch => "short_branch",
            Self::CallsInside => "calls_inside",
            Self::ReturnAddressUsed => "return_address_used",
            Self::SavesContext => "saves_context",
            Self::EntryBranchTarget => "entry_branch_target",
            Self::EntryReturnAddress => "entry_return_address",
            Self::EntryAddressTaken => "entry_address_taken",
            Self::NoUnwindInfo => "no_unwind_info",
            Self::BadUnwindInfo => "bad_unwind_info",
            Self::SignalFrame => "signal_frame",
            Self::RestartableSequence => "restartable_sequence",
            Self::RelocatedText => "relocated_text",
            Self::LinkerCode => "linker_code",
            Self::OutOfReach => "out_of_reach",
            Self::OverBudget => "over_budget",
            Self::Excluded => "excluded",
        }
    }
}
