//! The audit of a build or a file: objects, findings, components, and its JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use dbdyno_types::FlagCheck as Check;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::binary::{Binary, Code, Function};
use crate::effective::{Effective, LtoForm, Optimization};
use crate::error::AuditError;
use crate::expected::Expected;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// The audited directory or file.
    pub root: PathBuf,
    pub expected: Expected,
    pub objects: Vec<ObjectRecord>,
    /// The command lines of the objects, each once.
    pub flag_sets: Vec<FlagSet>,
    pub binaries: Vec<Binary>,
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Files that look like objects but cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The number of commands in the compile database, if one was read.
    pub compile_commands: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    pub path: PathBuf,
    pub reason: String,
}

impl Audit {
    /// Whether there are violations.
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
}

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
    pub text: Option<Bytes>,
    /// Properties of its machine code; read only if no command line is recorded.
    pub code: Option<Code>,
}

impl ObjectRecord {
    /// A display name: the object or the archive member; for a unit of a linked file its source.
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
    pub fn is_checked(&self) -> bool {
        self.effective.is_checked()
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

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For information, or ignored by name.
    Note,
    /// Suspicious: without an expectation, or the evidence is not conclusive.
    Warning,
    /// Differs from what was expected.
    Violation,
}

/// The location of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Location {
    /// One of [`crate::Audit::objects`].
    Object(usize),
    /// One of [`crate::Audit::binaries`].
    Binary(usize),
    Whole,
}

/// A difference between what is recorded and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check that failed.
    pub check: Check,
    pub severity: Severity,
    pub location: Location,
    pub recorded: String,
    /// The expected value, if there was an expectation.
    pub expected: Option<String>,
}

/// A directory of a build with a summary of its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// The directory, relative to the build.
    pub name: String,
    /// Number of checked objects: those of gcc, clang or an unknown compiler.
    pub objects: usize,
    /// Number of different recorded command lines.
    pub flag_sets: usize,
    /// Number of objects per optimization level; objects with an unknown level are not counted.
    pub optimization: BTreeMap<Optimization, usize>,
    /// Number of objects per form of link-time optimization.
    pub lto: BTreeMap<LtoForm, usize>,
    /// Number of objects per instruction set.
    pub march: BTreeMap<String, usize>,
    /// Number of objects with violations.
    pub offending: usize,
    /// Total size of machine code; `None` if no object's is known.
    pub text: Option<Bytes>,
}

impl Audit {
    /// The directories of the build with a summary of their objects.
    pub fn components(&self) -> Vec<Component> {
        let offending: BTreeSet<usize> = self
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Violation)
            .filter_map(|finding| match finding.location {
                Location::Object(index) => Some(index),
                Location::Binary(_) | Location::Whole => None,
            })
            .collect();
        let mut components: BTreeMap<&str, Component> = BTreeMap::new();
        let mut sets: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (index, object) in self.objects.iter().enumerate().filter(|(_, o)| o.is_checked()) {
            let component = components.entry(&object.component).or_default();
            component.objects += 1;
            component.offending += usize::from(offending.contains(&index));
            let effective = &object.effective;
            if let Some(level) = effective.optimization {
                *component.optimization.entry(level).or_default() += 1;
            }
            if let Some(form) = effective.lto {
                *component.lto.entry(form).or_default() += 1;
            }
            if let Some(march) = &effective.march {
                *component.march.entry(march.clone()).or_default() += 1;
            }
            if let Some(text) = object.text {
                component.text = Some(component.text.unwrap_or_default() + text);
            }
            sets.entry(&object.component).or_default().extend(object.flags);
        }
        components
            .into_iter()
            .map(|(name, component)| Component {
                name: name.to_owned(),
                flag_sets: sets.get(name).map_or(0, BTreeSet::len),
                ..component
            })
            .collect()
    }
}

/// The version of the JSON format. Must be increased whenever the format changes or different data
/// is read from files. Changes to findings do not count: they are recomputed whenever an audit is
/// loaded.
pub const VERSION: u32 = 6;

/// Converts an audit, its components and, if given, its difference from a baseline to JSON.
pub fn to_json(audit: &Audit, difference: Option<&Difference>) -> Value {
    let components = audit.components();
    let mut whole = json!({ "version": VERSION, "audit": audit, "components": components });
    if let Some(difference) = difference {
        whole["difference"] = json!(difference);
    }
    whole
}

/// Whether the text is [`to_json`]'s output of this version, so that reading the files again would
/// give the same audit.
pub fn is_current(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Whole {
        version: u32,
    }
    serde_json::from_slice::<Whole>(text).is_ok_and(|whole| whole.version == VERSION)
}

pub fn from_json(text: &[u8]) -> Result<Audit, AuditError> {
    #[derive(Deserialize)]
    struct Whole {
        version: u32,
        audit: Value,
    }
    let invalid = |error: serde_json::Error| AuditError::new(error.to_string());
    let whole: Whole = serde_json::from_slice(text).map_err(invalid)?;
    if whole.version != VERSION {
        let text = format!("unsupported version {} (expected {VERSION})", whole.version);
        return Err(AuditError::new(text));
    }
    serde_json::from_value(whole.audit).map_err(invalid)
}

/// The difference of a build's command lines from the baseline's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Number of files with a recorded command line in both builds.
    pub compared: usize,
    /// Number of those with the same command line.
    pub same: usize,
    /// Flags that are not in the baseline, the most frequent first.
    pub added: Vec<Change>,
    /// Flags that are only in the baseline.
    pub removed: Vec<Change>,
    pub files: Vec<FileDifference>,
    /// Files that are not in the baseline.
    pub only_here: Vec<String>,
    /// Files that are only in the baseline.
    pub only_in_baseline: Vec<String>,
    /// Sizes of linked files of the same name.
    pub sizes: Vec<SizeDifference>,
}

/// A flag with the number of files in which it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub flag: String,
    pub files: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDifference {
    pub file: String,
    /// Flags that are not in the baseline.
    pub added: Vec<String>,
    /// Flags that are only in the baseline.
    pub removed: Vec<String>,
}

/// Sizes of one linked file in both builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeDifference {
    pub file: String,
    /// Its `.text`: in the baseline, and here.
    pub text: (Option<Bytes>, Option<Bytes>),
    /// Its size after `strip`: in the baseline, and here.
    pub stripped: (Option<Bytes>, Option<Bytes>),
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::Expected;

    fn empty() -> Audit {
        Audit {
            root: PathBuf::from("/build"),
            expected: Expected { name: Some("rel".to_owned()), ..Expected::default() },
            objects: Vec::new(),
            flag_sets: Vec::new(),
            binaries: Vec::new(),
            findings: Vec::new(),
            unreadable: Vec::new(),
            compile_commands: None,
        }
    }

    #[test]
    fn audit_round_trips() {
        let text = to_json(&empty(), None).to_string();
        assert_eq!(from_json(text.as_bytes()).unwrap(), empty());
        assert!(is_current(text.as_bytes()));
    }

    #[test]
    fn unknown_version_is_refused() {
        for version in [VERSION + 1, VERSION - 1] {
            let expected = format!("version {version} (expected {VERSION})");
            let mut whole = to_json(&empty(), None);
            whole["version"] = json!(version);
            let text = whole.to_string();
            assert!(!is_current(text.as_bytes()));
            let error = from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&expected), "{error}");
        }
        assert!(from_json(b"{}").is_err());
        assert!(from_json(b"").is_err());
    }
}
