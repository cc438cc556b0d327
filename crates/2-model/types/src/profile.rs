//! Where processes spend CPU time, by sampled stacks.

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
}

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
