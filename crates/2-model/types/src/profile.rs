//! Where processes spend CPU time, by sampled stacks.

use serde::{Deserialize, Serialize};

/// A function in which something was sampled, or which called one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// The name of its file, or `[k]`.
    pub module: String,
    /// Without arguments; `None` in a stripped program that does not export it.
    pub name: Option<String>,
    /// The name of its source file; `None` if it is not known.
    pub source: Option<String>,
    /// Its first address as stated in the file; 0 in the kernel.
    pub start: u64,
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
    pub stacks: Vec<Stack>,
    pub samples: u64,
    /// Samples whose stacks could not be followed to their start: their outer frames are missing.
    pub cut: u64,
    /// Samples that were lost because a buffer was full.
    pub lost: u64,
}
