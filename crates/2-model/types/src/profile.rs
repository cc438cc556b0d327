//! Where processes spend CPU time, by sampled stacks, and where they wait.

use std::collections::BTreeMap;

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

/// A function in which something was sampled, or which called one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// The name of its file, `[k]` in the kernel, `[anonymous]` outside of files.
    pub module: String,
    /// Without arguments; `None` in a stripped program that does not export it.
    pub name: Option<String>,
    /// The name of its source file, or of two with [`BETWEEN`] them if the program has it between functions of these;
    /// `None` if it is not known.
    pub source: Option<String>,
    /// Its first address as stated in the file; 0 in the kernel, outside of files, and where it was inlined.
    pub start: u64,
}

/// Between the names of two source files.
pub const BETWEEN: char = '…';

/// A file with code that was sampled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleBuild {
    /// As in [`Function::module`].
    pub module: String,
    /// The same in copies of one build only: its build ID, or a hash of its code.
    pub build: String,
}

/// The number of a [`Function`] in its [`Profile`].
pub type Frame = u32;

/// A stack and how often it was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The innermost first.
    pub frames: Vec<Frame>,
    pub samples: u64,
}

/// All that was sampled of some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub functions: Vec<Function>,
    /// Of the functions, without the kernel.
    #[serde(default)]
    pub modules: Vec<ModuleBuild>,
    pub stacks: Vec<Stack>,
    pub samples: u64,
    /// Samples whose stacks could not be followed to their start: their outer frames are missing.
    pub cut: u64,
    /// Samples that were lost because a buffer was full.
    pub lost: u64,
    /// What the kernel permitted to sample.
    #[serde(default)]
    pub scope: SampleScope,
    /// CPU time that a sample stands for; 0 if it is unknown.
    #[serde(default)]
    pub period: Nanos,
    /// The slices among the sampled ones in which nothing was sampled; `None` if there were none, as in runs of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<StatementCpu>,
}

/// Statements in some slices, and the CPU time of the system under test meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementCpu {
    pub statements: u64,
    pub cpu: Nanos,
}

/// The name of the function of the kernel that stands for CPU time without samples.
pub const NOT_SAMPLED: &str = "not sampled";

impl Profile {
    /// Whether all functions of its stacks are known, and its samples can be added up. Profiles from other machines may be
    /// damaged.
    pub fn is_consistent(&self) -> bool {
        let mut frames = self.stacks.iter().flat_map(|stack| &stack.frames);
        let mut samples = self.stacks.iter().map(|stack| stack.samples);
        frames.all(|frame| (*frame as usize) < self.functions.len())
            && samples.try_fold(self.samples, u64::checked_add).is_some()
    }
}

/// What is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleScope {
    /// All that runs on the CPUs, of which a part is kept.
    #[default]
    Cpus,
    /// The threads of some processes, and those that they start.
    Threads,
    /// The same in user mode only. The time in the kernel is added as one function, by the usage of the processes.
    UserMode,
}

/// What a thread waits for while it does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// A CPU, while it could run.
    Cpu,
    /// Another thread: a mutex, a condition variable, a semaphore.
    Lock,
    Storage,
    /// A connection to which it writes.
    Network,
    Sleep,
    Other,
    /// The next statement of its client.
    Client,
}

impl WaitKind {
    pub const ALL: [Self; 7] = [
        Self::Cpu,
        Self::Lock,
        Self::Storage,
        Self::Network,
        Self::Sleep,
        Self::Other,
        Self::Client,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "run queue",
            Self::Lock => "lock",
            Self::Storage => "storage",
            Self::Network => "network",
            Self::Sleep => "sleep",
            Self::Other => "other",
            Self::Client => "client",
        }
    }
}

/// The time of some threads in the timed part of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// In which they ran.
    pub cpu: Nanos,
    /// In which they waited.
    pub waits: BTreeMap<WaitKind, Nanos>,
}

/// The time of the threads of a system in the timed part of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceWaits {
    pub block: u32,
    pub clients: u32,
    pub statements: u64,
    pub wall: Nanos,
    /// CPU time of the system under test, as in measured slices.
    pub cpu: Nanos,
    /// Of the threads that execute statements of clients.
    pub sessions: ThreadTimes,
    /// Of all others.
    pub background: ThreadTimes,
}

/// A stack with which threads waited that execute statements of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitStack {
    pub kind: WaitKind,
    /// The innermost first.
    pub frames: Vec<Frame>,
    /// Waits of which the stack was sampled.
    pub waits: u64,
    /// Time in such waits: the share of the sampled waits, of the whole time.
    pub time: Nanos,
}

/// Where a system waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Why threads were looked at in intervals; `None` if each switch was recorded.
    pub in_intervals: Option<String>,
    pub functions: Vec<Function>,
    pub slices: Vec<SliceWaits>,
    pub stacks: Vec<WaitStack>,
    /// Records of switches that were lost because a buffer was full.
    pub lost: u64,
    /// Records of switches of all threads that were not lost; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// The slices among the recorded ones in which nothing was recorded; `None` as in [`Profile::unsampled`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<StatementCpu>,
}
