//! Putting it together: which files are read, and what is kept of them.

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

/// What was found in a build or a file, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// The directory or the file that was audited.
    pub root: PathBuf,
    /// What it was checked against.
    #[serde(alias = "intent")]
    pub expected: Expected,
    /// What is known of each compiled source file.
    pub objects: Vec<ObjectRecord>,
    /// The command lines that objects share.
    pub flag_sets: Vec<FlagSet>,
    /// The linked files.
    pub binaries: Vec<Binary>,
    /// What is not as it should be, the worst first.
    pub findings: Vec<Finding>,
    /// Files that look like objects and cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The compile database, if one was read: how many commands it has.
    #[serde(alias = "asked")]
    pub compile_commands: Option<usize>,
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Which.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// How far reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Files that are read.
    pub done: usize,
    /// Files that there are.
    pub of: usize,
}

impl Audit {
    /// Whether something is not what was expected.
    #[must_use]
    pub fn has_violations(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Violation)
    }

    /// The same files, judged by other expectations.
    #[must_use]
    pub fn checked_against(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self.findings = check(&self);
        self
    }

    /// The functions with hardware transactions in all linked files: what a layout optimizer must
    /// leave alone.
    pub fn transactional(&self) -> impl Iterator<Item = (&Binary, &crate::Function)> {
        self.binaries.iter().flat_map(|binary| {
            let functions = binary.code.iter().flat_map(|code| &code.transactional);
            functions.map(move |function| (binary, function))
        })
    }

    /// The directories of the build, and what is known of the objects in each.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        components(self)
    }

    /// The checks of the findings of one severity, each with the number of its findings.
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

/// Audits a build: all objects and archives below `objects_dir`, and the `linked` files that were
/// made of them. `compile_db` is what the build tool asked for (`compile_commands.json`).
///
/// Where there are no objects any more, the units that linked files tell of take their place.
///
/// # Errors
/// When the directory, a linked file or the compile database cannot be read, or there is nothing
/// to audit. Objects that are broken are listed in the audit instead.
pub fn build(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    build_watched(objects_dir, linked, compile_db, expected, &|_| {})
}

/// As [`build()`], and tells how far it has come: from several threads, after each file.
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
        // These take longest, and come first so that no thread is left alone with one.
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
    /// It was there a moment ago, or it is empty: a build at work.
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
