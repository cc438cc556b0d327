//! Reading of the files of a build into an audit.

mod assemble;
mod parallel;

use std::io;
use std::path::{Path, PathBuf};

use crate::audit::Audit;
use crate::database::Database;
use crate::error::{AuditError, ReadError};
use crate::expected::Expected;
use crate::paths::clean;
use crate::read::{FileKind, Linked, Unit, linked, map, objects};
use crate::walk;
use assemble::Assembly;

/// The progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Files read so far.
    pub done: usize,
    /// All files.
    pub of: usize,
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
    // Linked files take longest, so they come first.
    let linked = linked.iter().map(|path| Job { path, is_linked: true });
    let objects = found.objects.iter().map(|path| Job { path, is_linked: false });
    let jobs: Vec<Job<'_>> = linked.chain(objects).collect();
    let mut assembly = Assembly::new(objects_dir, database.as_ref());
    for (job, read) in jobs.iter().zip(parallel::map(&jobs, watch, Job::read)) {
        match read {
            Ok(None) => {}
            Ok(Some(contents)) => assembly.add(job.path, contents),
            Err(source) if job.is_linked => {
                return Err(AuditError::Broken { path: job.path.to_owned(), source });
            }
            Err(error) => assembly.unreadable(job.path, &error),
        }
    }
    Ok(assembly.audit().checked_against(expected.clone()))
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
    let Some(kind) = kind else { return Err(AuditError::NotCompiled(path.to_owned())) };
    let contents = Job { path, is_linked: kind == FileKind::Linked }
        .read()
        .map_err(|source| AuditError::Broken { path: path.to_owned(), source })?
        .ok_or_else(|| AuditError::NotCompiled(path.to_owned()))?;
    let root = path.parent().unwrap_or(Path::new(""));
    let mut assembly = Assembly::new(root, database.as_ref());
    assembly.add(path, contents);
    let audit = assembly.audit().checked_against(expected.clone());
    Ok(Audit { root: clean(path), ..audit })
}

/// A file to read.
struct Job<'a> {
    path: &'a Path,
    /// Whether it is a program or a shared library; otherwise, an object or an archive.
    is_linked: bool,
}

/// The contents of a file.
enum Contents {
    /// The units, and the errors of unreadable archive members.
    Objects(Vec<Unit>, Vec<ReadError>),
    Linked(Box<Linked>),
}

impl Job<'_> {
    /// Reads the file; `None` if it is empty, or an object that was removed: the build is running.
    fn read(&self) -> Result<Option<Contents>, ReadError> {
        let data = match map(self.path) {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_linked => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if self.is_linked {
            return Ok(Some(Contents::Linked(Box::new(linked(self.path, &data)?))));
        }
        let (mut units, broken) = objects(&data)?;
        for unit in units.iter_mut().filter(|unit| unit.member.is_none()) {
            unit.bytes = data.len() as u64;
        }
        Ok(Some(Contents::Objects(units, broken)))
    }
}
