use std::fmt;

use perf_event_open_sys::bindings as perf;
use serde::{Deserialize, Serialize};

/// Something that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// Clock cycles of the core, not counting sleep: their rate follows the frequency.
    Cycles,
    /// Instructions that took effect.
    Instructions,
    /// Branches taken or not.
    Branches,
    /// Branches whose outcome or target the CPU had guessed wrong.
    BranchMisses,
    /// Accesses that the last cache level could not serve, as the kernel maps it for the CPU.
    CacheMisses,
    /// Instruction fetches that the first cache level could not serve.
    L1iMisses,
    /// Instruction address translations that the TLB did not hold.
    ItlbMisses,
    /// CPU time, in nanoseconds.
    TaskClock,
    /// Switches from one thread to another; in the kernel, whatever scope is asked for.
    ContextSwitches,
    /// Page faults, minor and major.
    PageFaults,
    /// Page faults that needed no storage.
    MinorFaults,
    /// Page faults that waited for storage.
    MajorFaults,
    /// Moves of a thread from one CPU to another; in the kernel, whatever scope is asked for.
    CpuMigrations,
}

impl Event {
    /// What the CPU counts.
    pub const HARDWARE: [Self; 7] = [
        Self::Cycles,
        Self::Instructions,
        Self::Branches,
        Self::BranchMisses,
        Self::CacheMisses,
        Self::L1iMisses,
        Self::ItlbMisses,
    ];

    /// What the kernel counts, on every machine.
    pub const SOFTWARE: [Self; 6] = [
        Self::TaskClock,
        Self::ContextSwitches,
        Self::PageFaults,
        Self::MinorFaults,
        Self::MajorFaults,
        Self::CpuMigrations,
    ];

    /// Whether the CPU counts it, and not the kernel.
    #[must_use]
    pub fn is_hardware(self) -> bool {
        Self::HARDWARE.contains(&self)
    }

    /// Whether it happens in the kernel only: counting user code alone would always show 0.
    #[must_use]
    pub const fn is_in_kernel(self) -> bool {
        matches!(self, Self::ContextSwitches | Self::CpuMigrations)
    }

    /// The name, as `perf` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::Branches => "branches",
            Self::BranchMisses => "branch-misses",
            Self::CacheMisses => "cache-misses",
            Self::L1iMisses => "L1-icache-load-misses",
            Self::ItlbMisses => "iTLB-load-misses",
            Self::TaskClock => "task-clock",
            Self::ContextSwitches => "context-switches",
            Self::PageFaults => "page-faults",
            Self::MinorFaults => "minor-faults",
            Self::MajorFaults => "major-faults",
            Self::CpuMigrations => "cpu-migrations",
        }
    }

    /// The events that are counted in the same stretches of time as this one.
    ///
    /// Of a ratio of two events, both must have seen the same time. More than two of the CPU's in
    /// a group might not fit on its four to eight counters, and the kernel then counts none of
    /// them. Those of the kernel take no counter, and one reading tells all of a group.
    pub(super) const fn group(self) -> Group {
        match self {
            Self::Cycles | Self::Instructions => Group::Work,
            Self::Branches | Self::BranchMisses => Group::Branches,
            Self::L1iMisses | Self::ItlbMisses => Group::Fetches,
            Self::CacheMisses => Group::Data,
            Self::TaskClock
            | Self::ContextSwitches
            | Self::PageFaults
            | Self::MinorFaults
            | Self::MajorFaults
            | Self::CpuMigrations => Group::Kernel,
        }
    }

    /// The kernel's type and number of the event.
    pub(super) const fn code(self) -> (u32, u64) {
        const fn hardware(id: u32) -> (u32, u64) {
            (perf::PERF_TYPE_HARDWARE, id as u64)
        }
        const fn software(id: u32) -> (u32, u64) {
            (perf::PERF_TYPE_SOFTWARE, id as u64)
        }
        const fn read_miss(cache: u32) -> (u32, u64) {
            let read = (perf::PERF_COUNT_HW_CACHE_OP_READ as u64) << 8;
            let miss = (perf::PERF_COUNT_HW_CACHE_RESULT_MISS as u64) << 16;
            (perf::PERF_TYPE_HW_CACHE, cache as u64 | read | miss)
        }
        match self {
            Self::Cycles => hardware(perf::PERF_COUNT_HW_CPU_CYCLES),
            Self::Instructions => hardware(perf::PERF_COUNT_HW_INSTRUCTIONS),
            Self::Branches => hardware(perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
            Self::BranchMisses => hardware(perf::PERF_COUNT_HW_BRANCH_MISSES),
            Self::CacheMisses => hardware(perf::PERF_COUNT_HW_CACHE_MISSES),
            Self::L1iMisses => read_miss(perf::PERF_COUNT_HW_CACHE_L1I),
            Self::ItlbMisses => read_miss(perf::PERF_COUNT_HW_CACHE_ITLB),
            Self::TaskClock => software(perf::PERF_COUNT_SW_TASK_CLOCK),
            Self::ContextSwitches => software(perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
            Self::PageFaults => software(perf::PERF_COUNT_SW_PAGE_FAULTS),
            Self::MinorFaults => software(perf::PERF_COUNT_SW_PAGE_FAULTS_MIN),
            Self::MajorFaults => software(perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
            Self::CpuMigrations => software(perf::PERF_COUNT_SW_CPU_MIGRATIONS),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Events that are counted together; see [`Event::group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Work,
    Branches,
    Fetches,
    Data,
    Kernel,
}

/// In which mode of the CPU events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The program's own instructions only.
    User,
    /// Also what the kernel does for it.
    UserAndKernel,
}
