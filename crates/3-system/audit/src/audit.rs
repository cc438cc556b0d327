//! The audit of a build or a file.

use std::path::PathBuf;

use dbdyno_types::FlagCheck as Check;
use serde::{Deserialize, Serialize};

use crate::binary::Binary;
use crate::code::Function;
use crate::expected::Expected;
use crate::finding::{Finding, Severity};
use crate::record::{FlagSet, ObjectRecord};

/// The audit of a build or a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// The audited directory or file.
    pub root: PathBuf,
    pub expected: Expected,
    /// The compiled source files.
    pub objects: Vec<ObjectRecord>,
    /// The command lines of the objects, each once.
    pub flag_sets: Vec<FlagSet>,
    /// The linked files.
    pub binaries: Vec<Binary>,
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Files that look like objects but cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The number of commands in the compile database, if one was read.
    pub compile_commands: Option<usize>,
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    pub reason: String,
}

impl Audit {
    /// Whether there are violations.
    #[must_use]
    pub fn has_violations(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Violation)
    }

    /// The functions with hardware transactions in all linked files, which layout optimizers must
    /// not change.
    pub fn transactional(&self) -> impl Iterator<Item = (&Binary, &Function)> {
        self.binaries.iter().flat_map(|binary| {
            let functions = binary.code.iter().flat_map(|code| &code.transactional);
            functions.map(move |function| (binary, function))
        })
    }

    /// The number of findings of one severity per check.
    #[must_use]
    pub fn counts(&self, severity: Severity) -> Vec<(Check, usize)> {
        let mut counts: Vec<(Check, usize)> = Vec::new();
        for finding in self.findings.iter().filter(|finding| finding.severity == severity) {
            match counts.iter_mut().find(|(check, _)| *check == finding.check) {
                Some((_, count)) => *count += 1,
                None => counts.push((finding.check, 1)),
            }
        }
        counts
    }
}
