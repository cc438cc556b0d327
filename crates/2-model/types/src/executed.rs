//! Instructions that functions executed, counted by block.

use serde::{Deserialize, Serialize};

/// Instructions that a function executed, without what it called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedFunction {
    /// The name of its file.
    pub module: String,
    /// Its first address as stated in the file.
    pub start: u64,
    pub instructions: u64,
}

/// What a system under test executed for some statements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Executed {
    Counted {
        statements: u64,
        /// The functions that were counted and executed.
        functions: Vec<ExecutedFunction>,
    },
    NotCounted {
        reason: String,
    },
}
