//! Which kernel event a counter is, and which counters are read together.

use dbdyno_types::Counter;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, ReadFormat};
use serde::{Deserialize, Serialize};

/// The CPU modes in which events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// User mode only.
    User,
    /// User and kernel mode.
    UserAndKernel,
}

/// Counters that are scheduled and read together; see [`group_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupKind {
    Work,
    Branches,
    Fetches,
    Software,
}

/// The group of a counter.
///
/// Both counters of a ratio must cover the same time. More than two hardware counters in a group
/// might not fit on the CPU's four to eight, and the kernel then counts none of them. Software
/// counters need no hardware, and one system call reads all of them.
pub(super) const fn group_of(counter: Counter) -> GroupKind {
    match counter {
        Counter::Cycles | Counter::Instructions => GroupKind::Work,
        Counter::Branches | Counter::BranchMisses => GroupKind::Branches,
        Counter::L1iMisses | Counter::ItlbMisses => GroupKind::Fetches,
        Counter::MinorFaults | Counter::MajorFaults | Counter::CpuMigrations => GroupKind::Software,
    }
}

/// Whether the event only happens in kernel mode: in user mode the count would always be 0.
pub(super) const fn is_kernel_only(counter: Counter) -> bool {
    matches!(counter, Counter::CpuMigrations)
}

/// A stopped counter of one thread (0 for the calling one) and of all threads and processes that it
/// starts after the opening.
pub(super) fn builder(counter: Counter, scope: Scope, thread: u32) -> Builder<'static> {
    const fn read_miss(which: CacheId) -> Cache {
        Cache { which, operation: CacheOp::READ, result: CacheResult::MISS }
    }
    let mut builder = match counter {
        Counter::Cycles => Builder::new(Hardware::CPU_CYCLES),
        Counter::Instructions => Builder::new(Hardware::INSTRUCTIONS),
        Counter::Branches => Builder::new(Hardware::BRANCH_INSTRUCTIONS),
        Counter::BranchMisses => Builder::new(Hardware::BRANCH_MISSES),
        Counter::L1iMisses => Builder::new(read_miss(CacheId::L1I)),
        Counter::ItlbMisses => Builder::new(read_miss(CacheId::ITLB)),
        Counter::MinorFaults => Builder::new(Software::PAGE_FAULTS_MIN),
        Counter::MajorFaults => Builder::new(Software::PAGE_FAULTS_MAJ),
        Counter::CpuMigrations => Builder::new(Software::CPU_MIGRATIONS),
    };
    let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    builder.read_format(times | ReadFormat::GROUP).inherit(true).any_cpu();
    builder.exclude_kernel(scope == Scope::User).exclude_hv(true);
    match thread {
        0 => builder.observe_self(),
        thread => builder.observe_pid(thread.cast_signed()),
    };
    builder
}
