//! What is kept of each object.

use std::fmt;
use std::path::PathBuf;

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::effective::Effective;

/// One compiled source file: an object, a member of an archive, or a unit of a linked file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// The file it is in, relative to the audited directory where it is below it.
    pub file: PathBuf,
    /// The member of that file, if it is an archive.
    pub member: Option<String>,
    /// The source file, if it is recorded.
    pub source: Option<String>,
    /// The directory of the build that it belongs to.
    pub component: String,
    /// What its compiler did, from all that is known of it.
    pub effective: Effective,
    /// Its recorded command line, among [`crate::Audit::flag_sets`].
    pub flags: Option<usize>,
    /// The command line that the compile database has for it, among the same.
    #[serde(alias = "asked")]
    pub requested: Option<usize>,
    /// What the figures are from.
    pub evidence: Vec<Evidence>,
    /// How much machine code it has, if that is its own.
    pub text: Option<Bytes>,
    /// What its machine code shows; only looked at where no command line is recorded.
    pub code: Option<Code>,
}

impl ObjectRecord {
    /// A name for people: the object, its member; for a unit of a linked file its source.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.member, &self.source) {
            (Some(member), _) => format!("{}({member})", self.file.display()),
            (None, Some(source)) if !self.is_object_file() => source.clone(),
            _ => self.file.display().to_string(),
        }
    }

    /// Whether the file is this one object.
    fn is_object_file(&self) -> bool {
        self.text.is_some()
            || self.evidence.contains(&Evidence::Bitcode)
            || self.file.extension().is_some_and(|ending| ending == "o")
    }

    /// Whether it has flags that can be checked: not, if an assembler made it.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.effective.compiler.as_ref().is_none_or(|compiler| compiler.family.is_checked())
    }
}

/// What something is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The producer that debug information names.
    Debug,
    /// The section that command lines are recorded in.
    CommandLine,
    /// The options of link-time optimization.
    LtoOptions,
    /// LLVM's bitcode: attributes of functions.
    Bitcode,
    /// Names of the functions that it calls.
    Symbols,
    /// Its machine code.
    Code,
    /// The compile database.
    Database,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Debug => "debug information",
            Self::CommandLine => "recorded command lines",
            Self::LtoOptions => "options of link-time optimization",
            Self::Bitcode => "bitcode",
            Self::Symbols => "symbols",
            Self::Code => "machine code",
            Self::Database => "compile database",
        })
    }
}

/// A command line: its flags without names of files, each once, in the order of their last use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FlagSet {
    /// All of them.
    pub flags: Vec<String>,
    /// Those among them that nothing here interprets.
    pub others: Vec<String>,
}
