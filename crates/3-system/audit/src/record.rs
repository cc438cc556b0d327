//! The record of an object.

use std::fmt;
use std::path::PathBuf;

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::effective::Effective;

/// One compiled source file: an object, a member of an archive, or a unit of a linked file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// The file, relative to the audited directory if it is below it.
    pub file: PathBuf,
    /// The member of that file, if it is an archive.
    pub member: Option<String>,
    /// The source file, if it is recorded.
    pub source: Option<String>,
    /// The directory of the build.
    pub component: String,
    /// The effective flags, from all evidence.
    pub effective: Effective,
    /// Its recorded command line, as an index into [`crate::Audit::flag_sets`].
    pub flags: Option<usize>,
    /// Its command line in the compile database, as an index into [`crate::Audit::flag_sets`].
    pub requested: Option<usize>,
    /// The sources of information used.
    pub evidence: Vec<Evidence>,
    /// The size of its machine code.
    pub text: Option<Bytes>,
    /// Properties of its machine code; read only if no command line is recorded.
    pub code: Option<Code>,
}

impl ObjectRecord {
    /// A display name: the object or the archive member; for a unit of a linked file its source.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.member, &self.source) {
            (Some(member), _) => format!("{}({member})", self.file.display()),
            (None, Some(source)) if !self.is_object_file() => source.clone(),
            _ => self.file.display().to_string(),
        }
    }

    /// Whether the file is a single object, not an archive or a linked file.
    fn is_object_file(&self) -> bool {
        self.text.is_some()
            || self.evidence.contains(&Evidence::Bitcode)
            || self.file.extension().is_some_and(|ending| ending == "o")
    }

    /// Whether its flags can be checked; not for assembled files.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.effective.compiler.as_ref().is_none_or(|compiler| compiler.family.is_checked())
    }
}

/// A source of information about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The producer in the debug information (`DW_AT_producer`).
    Debug,
    /// The section with recorded command lines.
    CommandLine,
    /// The options of link-time optimization.
    LtoOptions,
    /// LLVM bitcode: attributes of functions.
    Bitcode,
    /// Names of called functions.
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

/// A command line: its flags without file names and duplicates, in the order of their last use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FlagSet {
    /// All flags.
    pub flags: Vec<String>,
    /// The flags that the audit does not interpret.
    pub others: Vec<String>,
}
