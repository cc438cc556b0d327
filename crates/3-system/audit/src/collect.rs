//! Reading of the files of a build into an audit.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::audit::{Audit, Evidence, FlagSet, ObjectRecord, Unreadable};
use crate::binary::Binary;
use crate::database::{CompileCommand, Database, clean, component};
use crate::error::{AuditError, ReadError};
use crate::expected::Expected;
use crate::flags::{CommandContext, has_meaning, interpret, normal};
use crate::read::{FileKind, Linked, Unit, full_source, linked, map, objects, thin_members};

/// Time between reports of progress.
const PERIOD: Duration = Duration::from_secs(2);

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
///
/// Reports progress every few seconds, from several threads.
pub fn build_watched(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Audit, AuditError> {
    let database = compile_db.map(Database::read).transpose()?;
    let found = find_files(objects_dir)?;
    let members = found.thin_members();
    if found.objects.is_empty() && linked.is_empty() {
        return Err(AuditError::new(format!(
            "no objects, archives or programs below {}; name the directory that the build was \
             made in, where its .o files are",
            objects_dir.display()
        )));
    }
    // Linked files take longest, so they come first.
    let linked = linked.iter().map(|path| Job { path, kind: JobKind::Linked });
    let objects = found.objects.iter().map(|path| Job { path, kind: JobKind::Objects });
    let members = members.iter().map(|path| Job { path, kind: JobKind::Member });
    let jobs: Vec<Job<'_>> = linked.chain(objects).chain(members).collect();
    let mut assembly = Assembly::new(objects_dir, database.as_ref());
    for (job, read) in jobs.iter().zip(map_parallel(&jobs, watch, Job::read)) {
        match read {
            Ok(None) => {}
            Ok(Some(contents)) => assembly.add(job.path, contents),
            Err(error) if job.kind == JobKind::Linked => {
                return Err(AuditError::damaged(job.path, &error));
            }
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
    let job = if kind == FileKind::Linked { JobKind::Linked } else { JobKind::Objects };
    let contents = Job { path, kind: job }
        .read()
        .map_err(|error| AuditError::damaged(path, &error))?
        .ok_or_else(|| AuditError::not_compiled(path))?;
    let root = path.parent().unwrap_or(Path::new(""));
    let mut assembly = Assembly::new(root, database.as_ref());
    assembly.add(path, contents);
    let members = if kind == FileKind::ThinArchive { thin_members(path) } else { Vec::new() };
    for member in members {
        match (Job { path: &member, kind: JobKind::Member }).read() {
            Ok(contents) => contents.into_iter().for_each(|one| assembly.add(&member, one)),
            Err(error) => assembly.unreadable(&member, &error),
        }
    }
    let audit = assembly.audit().checked_against(expected.clone());
    Ok(Audit { root: clean(path), ..audit })
}

struct Job<'a> {
    path: &'a Path,
    kind: JobKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JobKind {
    /// A program or a shared library.
    Linked,
    /// An object or an archive that was found.
    Objects,
    /// A file that a thin archive names.
    Member,
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
            Err(error) if error.kind() != ErrorKind::NotFound || self.kind == JobKind::Linked => {
                return Err(error.into());
            }
            Ok(Some(data)) => data,
            Ok(None) | Err(_) if self.kind == JobKind::Member => {
                return Err(ReadError(
                    "a thin archive names it, and it does not exist, or is empty".to_owned(),
                ));
            }
            Ok(None) | Err(_) => return Ok(None),
        };
        if self.kind == JobKind::Linked {
            return Ok(Some(Contents::Linked(Box::new(linked(self.path, &data)?))));
        }
        let (mut units, mut broken) = objects(self.path, &data)?;
        for unit in units.iter_mut().filter(|unit| unit.member.is_none()) {
            unit.bytes = data.len() as u64;
        }
        broken.extend(units.iter().filter_map(|unit| unit.missing.as_ref()).map(|missing| {
            let file = missing.display();
            ReadError(format!("its debug information is in {file}, which cannot be read"))
        }));
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
    let last_report = Mutex::new(Instant::now());
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
                    // Unless another thread is reporting.
                    if let Ok(mut last_report) = last_report.try_lock()
                        && last_report.elapsed() >= PERIOD
                    {
                        *last_report = Instant::now();
                        watch(Progress { done, of: items.len() });
                    }
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
    /// Those archives that contain only names of files.
    thin: Vec<PathBuf>,
}

impl FoundFiles {
    /// The objects that thin archives name and that were not found themselves.
    fn thin_members(&self) -> Vec<PathBuf> {
        let mut members: Vec<PathBuf> =
            self.thin.iter().flat_map(|path| thin_members(path)).collect();
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| clean(path));
        let mut known: HashSet<PathBuf> = match members.is_empty() {
            true => HashSet::new(),
            false => self.objects.iter().map(real).collect(),
        };
        members.retain(|path| known.insert(real(path)));
        members
    }
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
                    Ok(Some(FileKind::ThinArchive)) => {
                        found.thin.push(path.clone());
                        found.objects.push(path);
                    }
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

/// Collects the contents of all files and builds the audit.
struct Assembly<'a> {
    root: PathBuf,
    /// The canonical root, as in the compile database.
    real_root: PathBuf,
    database: Option<&'a Database>,
    objects: Vec<(PathBuf, Unit)>,
    linked: Vec<(PathBuf, Unit)>,
    binaries: Vec<Binary>,
    unreadable: Vec<Unreadable>,
}

impl<'a> Assembly<'a> {
    fn new(root: &Path, database: Option<&'a Database>) -> Self {
        Self {
            root: clean(root),
            real_root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            database,
            objects: Vec::new(),
            linked: Vec::new(),
            binaries: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    fn add(&mut self, path: &Path, contents: Contents) {
        let name = self.relative(path);
        match contents {
            Contents::Objects(units, broken) => {
                self.objects.extend(units.into_iter().map(|unit| (name.clone(), unit)));
                broken.iter().for_each(|error| self.unreadable(path, error));
            }
            Contents::Linked(linked) => {
                self.binaries.push(Binary { path: name.clone(), ..linked.binary });
                self.linked.extend(linked.units.into_iter().map(|unit| (name.clone(), unit)));
            }
        }
    }

    fn unreadable(&mut self, path: &Path, error: &ReadError) {
        self.unreadable.push(Unreadable { path: self.relative(path), reason: error.to_string() });
    }

    fn relative(&self, path: &Path) -> PathBuf {
        let path = clean(path);
        path.strip_prefix(&self.root).map(Path::to_owned).unwrap_or(path)
    }

    fn audit(self) -> Audit {
        let Self { root, real_root, database, mut objects, linked, binaries, unreadable } = self;
        leave_out_copies(&mut objects);
        let units = if objects.is_empty() { linked } else { objects };
        let sources = SourceRoot::of(&units);
        let mut sets = Sets::default();
        let records = units
            .into_iter()
            .map(|(file, unit)| {
                let source = full_source(&unit);
                let requested = database.and_then(|database| {
                    let member = unit.member.as_deref();
                    database.find(&real_root.join(&file), member, source.as_deref())
                });
                record(file, unit, source, requested, &sources, &mut sets)
            })
            .collect();
        // `.` is empty after it was cleaned.
        let root = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
        Audit {
            root,
            expected: Expected::default(),
            objects: records,
            flag_sets: sets.sets,
            binaries,
            findings: Vec::new(),
            unreadable,
            compile_commands: database.map(Database::len),
        }
    }
}

fn record(
    file: PathBuf,
    mut unit: Unit,
    source: Option<String>,
    requested: Option<&CompileCommand>,
    sources: &SourceRoot,
    sets: &mut Sets,
) -> ObjectRecord {
    if unit.effective.compiler.is_none() && requested.is_some_and(CompileCommand::is_assembly) {
        unit.take_as_assembled();
    }
    let mut effective = unit.effective;
    let mut evidence = unit.evidence;
    if let Some(requested) = requested {
        let context = CommandContext {
            compiler: effective.compiler.as_ref(),
            macros: true,
            ..CommandContext::default()
        };
        let intended = interpret(context, &normal(&requested.flags));
        // gcc records no macros, so the requested ones are the best information available.
        effective.assertions = effective.assertions.or(intended.assertions);
        effective.fortify = effective.fortify.or(intended.fortify);
        evidence.push(Evidence::Database);
    }
    let is_own_object = unit.text.is_some() || unit.bytes > 0;
    let source = source.map(|source| sources.below(&source));
    let component = match (&source, is_own_object) {
        (Some(source), false) => component(Path::new(source)),
        _ => component(&file),
    };
    ObjectRecord {
        file,
        member: unit.member,
        component,
        source,
        effective,
        flags: unit.flags.map(|flags| sets.index(&flags)),
        requested: requested.map(|command| sets.index(&command.flags)),
        evidence,
        text: unit.text,
        code: unit.code,
    }
}

/// Removes archive members that also exist as separate objects. Another object may have the same name and
/// size, but then what is recorded differs, or makes no difference.
fn leave_out_copies(objects: &mut Vec<(PathBuf, Unit)>) {
    let name_of = |path: &Path| {
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let mut alone: HashMap<(String, u64), Vec<&Unit>> = HashMap::new();
    for (path, unit) in objects.iter().filter(|(_, unit)| unit.member.is_none()) {
        alone.entry((name_of(path), unit.bytes)).or_default().push(unit);
    }
    let is_copy = |unit: &Unit| {
        let member = unit.member.as_ref()?;
        let same = alone.get(&(member.clone(), unit.bytes))?;
        Some(same.iter().any(|object| {
            object.flags == unit.flags
                && object.effective == unit.effective
                && full_source(object) == full_source(unit)
        }))
    };
    let copies: Vec<bool> = objects.iter().map(|(_, unit)| is_copy(unit) == Some(true)).collect();
    let mut copies = copies.into_iter();
    objects.retain(|_| copies.next() != Some(true));
}

/// Command lines without duplicates.
#[derive(Default)]
struct Sets {
    sets: Vec<FlagSet>,
    by_flags: HashMap<Vec<String>, usize>,
}

impl Sets {
    fn index(&mut self, flags: &[String]) -> usize {
        let flags = normal(flags);
        if let Some(index) = self.by_flags.get(&flags) {
            return *index;
        }
        let index = self.sets.len();
        let others = flags.iter().filter(|flag| !has_meaning(flag)).cloned().collect();
        self.by_flags.insert(flags.clone(), index);
        self.sets.push(FlagSet { flags, others });
        index
    }
}

/// The common directory of most sources. Source names are displayed, and compared between builds,
/// relative to it.
struct SourceRoot(PathBuf);

impl SourceRoot {
    fn of(units: &[(PathBuf, Unit)]) -> Self {
        let sources: Vec<PathBuf> =
            units.iter().filter_map(|(_, unit)| full_source(unit)).map(PathBuf::from).collect();
        let mut root = PathBuf::from("/");
        loop {
            let mut counts: HashMap<PathBuf, usize> = HashMap::new();
            for source in &sources {
                // The next directory of the path; never the file itself.
                let below = source.parent().and_then(|parent| parent.strip_prefix(&root).ok());
                if let Some(next) = below.and_then(|below| below.components().next()) {
                    *counts.entry(root.join(next)).or_default() += 1;
                }
            }
            // A few sources are outside: those of the C library, generated ones.
            match counts.into_iter().max_by_key(|(_, count)| *count) {
                Some((next, count)) if count * 5 >= sources.len() * 4 => root = next,
                _ => return Self(root),
            }
        }
    }

    fn below(&self, source: &str) -> String {
        match Path::new(source).strip_prefix(&self.0) {
            Ok(below) if self.0 != Path::new("/") => below.to_string_lossy().into_owned(),
            _ => source.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_of_the_working_directory_names_it() {
        assert_eq!(Assembly::new(Path::new("./"), None).audit().root, Path::new("."));
        assert_eq!(Assembly::new(Path::new("a/.."), None).audit().root, Path::new("."));
    }
}
