//! Reading of the files of a build into an audit.

mod assemble;

use std::fs;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use assemble::Assembly;

use crate::audit::Audit;
use crate::database::{Database, clean};
use crate::error::{AuditError, ReadError};
use crate::expected::Expected;
use crate::read::{FileKind, Linked, Unit, linked, map, objects};

/// The progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub of: usize,
}

/// Audits a build: all objects and archives below `objects_dir`, and the files `linked` from them.
/// `compile_db` is the build tool's `compile_commands.json`.
///
/// Without objects, the compilation units recorded in the linked files are used.
pub fn build(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    build_watched(objects_dir, linked, compile_db, expected, &|_| {})
}

/// Like [`build()`]; reports progress after each file, from several threads.
pub fn build_watched(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Audit, AuditError> {
    let database = compile_db.map(Database::read).transpose()?;
    let found = find_files(objects_dir)?;
    if found.objects.is_empty() && linked.is_empty() {
        return Err(AuditError::new(format!(
            "no objects, archives or programs below {}; name the directory that the build was \
             made in, where its .o files are",
            objects_dir.display()
        )));
    }
    // Linked files take longest, so they come first.
    let linked = linked.iter().map(|path| Job { path, is_linked: true });
    let objects = found.objects.iter().map(|path| Job { path, is_linked: false });
    let jobs: Vec<Job<'_>> = linked.chain(objects).collect();
    let mut assembly = Assembly::new(objects_dir, database.as_ref());
    for (job, read) in jobs.iter().zip(map_parallel(&jobs, watch, Job::read)) {
        match read {
            Ok(None) => {}
            Ok(Some(contents)) => assembly.add(job.path, contents),
            Err(error) if job.is_linked => return Err(AuditError::damaged(job.path, &error)),
            Err(error) => assembly.unreadable(job.path, &error),
        }
    }
    Ok(assembly.audit().checked_against(expected.clone()))
}

/// Audits one file: a program, a library, an object or an archive.
pub fn binary(
    path: &Path,
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    let database = compile_db.map(Database::read).transpose()?;
    let kind = FileKind::of(path).map_err(|error| AuditError::read(path, &error))?;
    let Some(kind) = kind else { return Err(AuditError::not_compiled(path)) };
    let contents = Job { path, is_linked: kind == FileKind::Linked }
        .read()
        .map_err(|error| AuditError::damaged(path, &error))?
        .ok_or_else(|| AuditError::not_compiled(path))?;
    let root = path.parent().unwrap_or(Path::new(""));
    let mut assembly = Assembly::new(root, database.as_ref());
    assembly.add(path, contents);
    let audit = assembly.audit().checked_against(expected.clone());
    Ok(Audit { root: clean(path), ..audit })
}

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
            Err(error) if error.kind() == ErrorKind::NotFound && !self.is_linked => {
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

/// Applies `work` to all items on one thread per CPU. The results are in the order of the items.
fn map_parallel<T: Sync, R: Send>(
    items: &[T],
    watch: &(dyn Fn(Progress) + Sync),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    // If a thread panicked, `thread::scope` panics too, so a poisoned lock needs no
                    // handling.
                    results
                        .lock()
                        .unwrap_or_else(|broken| broken.into_inner())
                        .push((index, result));
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    watch(Progress { done, of: items.len() });
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|broken| broken.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Directories in which build tools test the compiler.
const TRIALS: [&str; 5] =
    ["CMakeScratch", "CMakeTmp", "CompilerIdC", "CompilerIdCXX", "meson-private"];

/// The compiled files in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFiles {
    /// Objects and archives of objects, by name.
    pub objects: Vec<PathBuf>,
    /// Programs and shared libraries, by name.
    pub linked: Vec<PathBuf>,
}

/// Searches a directory recursively, without following symbolic links. Skips files that are removed
/// meanwhile, as in a running build. What cannot be read otherwise is listed with the objects, since it may be
/// or contain one.
pub fn find_files(directory: &Path) -> Result<FoundFiles, AuditError> {
    let mut found = FoundFiles::default();
    let entries = fs::read_dir(directory).map_err(|error| AuditError::read(directory, &error))?;
    let mut waiting = vec![entries];
    while let Some(entries) = waiting.pop() {
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                let is_trial = TRIALS.iter().any(|trial| entry.file_name() == *trial);
                if !is_trial {
                    match fs::read_dir(&path) {
                        Ok(entries) => waiting.push(entries),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(_) => found.objects.push(path),
                    }
                }
            } else if kind.is_file() {
                match FileKind::of(&path) {
                    Ok(Some(FileKind::Object | FileKind::Archive)) => found.objects.push(path),
                    Ok(Some(FileKind::Linked)) => found.linked.push(path),
                    Ok(None) => {}
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(_) => found.objects.push(path),
                }
            }
        }
    }
    found.objects.sort();
    found.linked.sort();
    Ok(found)
}
