//! Audits of builds and files.

mod assemble;
mod parallel;

use std::path::{Path, PathBuf};

use dbdyno_record::FlagCheck as Check;
use serde::{Deserialize, Serialize};

use crate::binary::Binary;
use crate::check::{Finding, Severity, check};
use crate::components::{Component, components};
use crate::database::Database;
use crate::expected::Expected;
use crate::paths::clean;
use crate::read::{FileKind, Linked, Unit, linked, map, objects};
use crate::record::{FlagSet, ObjectRecord};
use crate::{AuditError, walk};
use assemble::Assembly;

/// The audit of a build or a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// The audited directory or file.
    pub root: PathBuf,
    /// The expectations.
    #[serde(alias = "intent")]
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
    #[serde(alias = "asked")]
    pub compile_commands: Option<usize>,
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Files read so far.
    pub done: usize,
    /// All files.
    pub of: usize,
}

impl Audit {
    /// Whether there are violations.
    #[must_use]
    pub fn has_violations(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Violation)
    }

    /// The same files, checked against other expectations.
    #[must_use]
    pub fn checked_against(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self.findings = check(&self);
        self
    }

    /// The functions with hardware transactions in all linked files, which layout optimizers must
    /// not change.
    pub fn transactional(&self) -> impl Iterator<Item = (&Binary, &crate::Function)> {
        self.binaries.iter().flat_map(|binary| {
            let functions = binary.code.iter().flat_map(|code| &code.transactional);
            functions.map(move |function| (binary, function))
        })
    }

    /// The directories of the build with a summary of their objects.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        components(self)
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

/// Audits a build: all objects and archives below `objects_dir`, and the files `linked` from them.
/// `compile_db` is the build tool's `compile_commands.json`.
///
/// Without objects, the compilation units recorded in the linked files are used.
///
/// # Errors
/// When the directory, a linked file or the compile database cannot be read, or there is nothing
/// to audit. Unreadable objects are listed in the audit.
pub fn build(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    build_watched(objects_dir, linked, compile_db, expected, &|_| {})
}

/// Like [`build()`]; reports progress after each file, from several threads.
///
/// # Errors
/// As [`build()`].
pub fn build_watched(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Audit, AuditError> {
    let database = compile_db.map(Database::read).transpose()?;
    let found = walk::find(objects_dir)?;
    if found.objects.is_empty() && linked.is_empty() {
        return Err(AuditError::Nothing(objects_dir.to_owned()));
    }
    let jobs: Vec<Job<'_>> = linked
        .iter()
        // Linked files take longest, so they come first.
        .map(|path| Job::Linked(path))
        .chain(found.objects.iter().map(|path| Job::Objects(path)))
        .collect();
    let mut assembly = Assembly::new(objects_dir, database.as_ref());
    for (job, read) in jobs.iter().zip(parallel::map(&jobs, watch, Job::read)) {
        match (job, read) {
            (_, Err(Failed::Gone)) => {}
            (Job::Objects(path), Ok(Read::Objects(units, broken))) => {
                assembly.objects(path, units);
                for reason in broken {
                    assembly.unreadable(path, reason);
                }
            }
            (Job::Linked(path), Ok(Read::Linked(linked))) => assembly.linked(path, *linked),
            (Job::Objects(path), Err(Failed::Broken(reason))) => {
                assembly.unreadable(path, reason);
            }
            (Job::Linked(path), Err(Failed::Broken(reason))) => {
                return Err(AuditError::Broken { path: (*path).to_owned(), reason });
            }
            (Job::Objects(_), Ok(Read::Linked(_))) | (Job::Linked(_), Ok(Read::Objects(..))) => {}
        }
    }
    Ok(finished(assembly, expected))
}

/// Audits one file: a program, a library, an object or an archive.
///
/// # Errors
/// When the file cannot be read or is none of these, or the compile database cannot be read.
pub fn binary(
    path: &Path,
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    let database = compile_db.map(Database::read).transpose()?;
    let kind = FileKind::of(path).map_err(|error| AuditError::read(path, error))?;
    let job = match kind {
        Some(FileKind::Linked) => Job::Linked(path),
        Some(FileKind::Object | FileKind::Archive) => Job::Objects(path),
        None => return Err(AuditError::NotCompiled(path.to_owned())),
    };
    let root = path.parent().unwrap_or(Path::new(""));
    let mut assembly = Assembly::new(root, database.as_ref());
    match job.read() {
        Ok(Read::Linked(linked)) => assembly.linked(path, *linked),
        Ok(Read::Objects(units, broken)) => {
            assembly.objects(path, units);
            for reason in broken {
                assembly.unreadable(path, reason);
            }
        }
        Err(Failed::Broken(reason)) => {
            return Err(AuditError::Broken { path: path.to_owned(), reason });
        }
        Err(Failed::Gone) => return Err(AuditError::NotCompiled(path.to_owned())),
    }
    let mut audit = finished(assembly, expected);
    audit.root = clean(path);
    Ok(audit)
}

fn finished(assembly: Assembly<'_>, expected: &Expected) -> Audit {
    assembly.audit().checked_against(expected.clone())
}

/// A file to read.
enum Job<'a> {
    Objects(&'a Path),
    Linked(&'a Path),
}

enum Read {
    Objects(Vec<Unit>, Vec<String>),
    Linked(Box<Linked>),
}

enum Failed {
    Broken(String),
    /// Removed or empty: the build is running.
    Gone,
}

impl Job<'_> {
    fn read(&self) -> Result<Read, Failed> {
        let (Self::Objects(path) | Self::Linked(path)) = self;
        let data = match map(path) {
            Ok(Some(data)) => data,
            Ok(None) => return Err(Failed::Gone),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(match self {
                    Self::Objects(_) => Failed::Gone,
                    Self::Linked(_) => Failed::Broken(error.to_string()),
                });
            }
            Err(error) => return Err(Failed::Broken(error.to_string())),
        };
        match self {
            Self::Objects(_) => objects(&data)
                .map(|(mut units, broken)| {
                    for unit in units.iter_mut().filter(|unit| unit.member.is_none()) {
                        unit.bytes = data.len() as u64;
                    }
                    Read::Objects(units, broken)
                })
                .map_err(Failed::Broken),
            Self::Linked(_) => linked(path, &data)
                .map(|linked| Read::Linked(Box::new(linked)))
                .map_err(Failed::Broken),
        }
    }
}
