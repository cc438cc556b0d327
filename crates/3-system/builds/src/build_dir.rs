//! The build directory of a server, which survives interruptions: completed steps and compile time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use dbdyno_units::Nanos;

use crate::BuildError;
use crate::elf::remove_empty_entries;
use crate::error::io_error;
use crate::recipe::ExtraFiles;
use crate::store::remove;
use crate::trusted_tree::visit;

/// The completed steps, in a file with one line per step.
pub(crate) struct Done {
    path: Option<PathBuf>,
    lines: Vec<String>,
}

const BEGUN: &str = "begun";

impl Done {
    /// Without a path, nothing is stored.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, BuildError> {
        let text = match path.map(fs::read_to_string) {
            None => String::new(),
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Some(Err(error)) => {
                return Err(BuildError::io("reading", path.unwrap_or(Path::new("")), &error));
            }
        };
        Ok(Self {
            path: path.map(Path::to_owned),
            lines: text.lines().map(str::to_owned).collect(),
        })
    }

    pub(crate) fn contains(&self, command: &str) -> bool {
        self.lines.iter().any(|line| line == command)
    }

    /// Whether a step was started and not completed.
    pub(crate) fn interrupted(&self) -> bool {
        self.lines.last().is_some_and(|line| line == BEGUN)
    }

    pub(crate) fn begin(&mut self) -> Result<(), BuildError> {
        if self.interrupted() { Ok(()) } else { self.add(BEGUN) }
    }

    pub(crate) fn add(&mut self, line: &str) -> Result<(), BuildError> {
        self.lines.push(line.to_owned());
        let Some(path) = &self.path else { return Ok(()) };
        File::options()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| writeln!(file, "{line}"))
            .map_err(io_error("writing", path))
    }
}

/// Empties a build directory that was not configured by this command, because configure tools
/// remember former options; and one whose source was last changed after it was started, because its
/// objects may be of a source that was edited and restored.
pub(crate) fn restart_unless_valid(
    first: &str,
    source_changed: Option<SystemTime>,
    done: &Path,
    tree: &Path,
) -> Result<(), BuildError> {
    // Directories of earlier versions have no such file.
    let started = fs::metadata(started(done)).and_then(|meta| meta.modified()).ok();
    let is_edited = started.is_some() && source_changed > started;
    if Done::open(Some(done))?.contains(first) && !is_edited { Ok(()) } else { empty(tree, done) }
}

/// Empties a build directory, so that the next attempt starts from nothing.
pub(crate) fn empty(tree: &Path, done: &Path) -> Result<(), BuildError> {
    CompileTime::forget(done);
    // If killed here, no step counts as completed.
    remove(done)
        .and_then(|()| fs::remove_dir_all(tree))
        .and_then(|()| fs::create_dir_all(tree))
        .and_then(|()| fs::write(started(done), ""))
        .map_err(io_error("emptying", tree))
}

/// The file whose modification time is that of the first attempt.
fn started(done: &Path) -> PathBuf {
    done.with_file_name("started")
}

/// Files written this long before the last write are complete.
const DOUBT: Duration = Duration::from_secs(10);

/// Removes the objects, archives and programs that were written last: a killed compiler leaves
/// incomplete files, which make considers complete.
pub(crate) fn remove_incomplete(tree: &Path) -> io::Result<()> {
    let mut made = Vec::new();
    let mut last = SystemTime::UNIX_EPOCH;
    visit(tree, &mut |path, meta| {
        if meta.is_file() {
            let time = meta.modified()?;
            last = last.max(time);
            made.push((path.to_owned(), time));
        }
        Ok(())
    })?;
    let doubtful = last.checked_sub(DOUBT).unwrap_or(SystemTime::UNIX_EPOCH);
    for (path, time) in made {
        if time >= doubtful && is_compiled(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Whether a compiler or a linker wrote the file. A linker's output may be empty, or start with
/// zeros, until it is complete.
fn is_compiled(path: &Path) -> bool {
    let mut start = [0_u8; 8];
    let name = path.to_string_lossy();
    if [".o", ".a", ".so", ".bc"].iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    let read = File::open(path).and_then(|mut file| io::Read::read(&mut file, &mut start));
    read.is_ok_and(|length| {
        let start = &start[..length];
        start.starts_with(b"\x7fELF") || start.iter().all(|byte| *byte == 0)
    })
}

/// Copies additional files into an installed server. Programs and libraries do not search for
/// libraries in the current directory.
pub(crate) fn copy(piece: &ExtraFiles, server: &Path) -> io::Result<()> {
    let to = server.join(piece.to);
    fs::create_dir_all(&to)?;
    let from = if piece.from.is_dir() {
        let entries = fs::read_dir(&piece.from)?.map(|entry| Ok(entry?.path()));
        entries.collect::<io::Result<Vec<PathBuf>>>()?
    } else {
        vec![piece.from.clone()]
    };
    for path in from {
        let Some(name) = path.file_name() else { continue };
        // A link without a version is for linking: programs load the library by the name that it leads to.
        let is_for_linking = path.is_symlink() && path.extension().is_some_and(|end| end == "so");
        let is_wanted = name.to_string_lossy().ends_with(piece.ending) && !is_for_linking;
        if is_wanted && path.is_file() {
            let copy = to.join(name);
            fs::copy(&path, &copy)?;
            remove_empty_entries(&copy)?;
        }
    }
    Ok(())
}

/// The time of a build in progress is stored this often, so that it outlives a kill.
const EVERY: Duration = Duration::from_secs(1);

/// Measures the time of a build that may be interrupted and resumed.
pub(crate) struct CompileTime {
    path: Option<PathBuf>,
    before: Nanos,
    start: Instant,
    stored: Instant,
}

impl CompileTime {
    /// Continues from the time that is stored beside `done`, the file with the completed steps. Without
    /// a path, nothing is stored.
    pub(crate) fn start(done: Option<&Path>) -> Self {
        let path = done.map(beside);
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let before =
            text.and_then(|text| text.trim().parse().ok()).map_or(Nanos::ZERO, Nanos::from_nanos);
        let start = Instant::now();
        Self { path, before, start, stored: start }
    }

    pub(crate) fn total(&self) -> Nanos {
        self.before + Nanos::from(self.start.elapsed())
    }

    /// Stores the time if that was not done lately. A failure is not an error of the build.
    pub(crate) fn store_sometimes(&mut self) {
        if self.stored.elapsed() >= EVERY {
            self.store();
        }
    }

    pub(crate) fn store(&mut self) {
        self.stored = Instant::now();
        let Some(path) = &self.path else { return };
        if let Err(error) = fs::write(path, self.total().as_nanos().to_string()) {
            tracing::warn!(path = %path.display(), %error, "the compile time is not stored");
        }
    }

    /// Forgets the time stored beside `done`: the next attempt starts from nothing.
    pub(crate) fn forget(done: &Path) {
        let _ = fs::remove_file(beside(done));
    }
}

fn beside(done: &Path) -> PathBuf {
    done.with_file_name("time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_steps_survive_an_interruption() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("done");
        let mut done = Done::open(Some(&path)).unwrap();
        assert!(!done.interrupted());
        done.begin().unwrap();
        done.add("configure").unwrap();
        done.begin().unwrap();
        let mut again = Done::open(Some(&path)).unwrap();
        assert!(again.interrupted() && again.contains("configure"));
        again.begin().unwrap();
        again.add("make").unwrap();
        assert!(!Done::open(Some(&path)).unwrap().interrupted());
    }

    #[test]
    fn other_configuration_empties_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (done, tree) = (dir.path().join("done"), dir.path().join("tree"));
        fs::create_dir(&tree).unwrap();
        let remembered = tree.join("CMakeCache.txt");
        let begin = || {
            fs::write(&remembered, "PLUGIN_X=NO").unwrap();
            restart_unless_valid("cmake -DX", None, &done, &tree).unwrap();
            remembered.exists()
        };
        assert!(!begin());
        fs::write(&done, "begun\n").unwrap();
        assert!(!begin() && !done.exists());
        fs::write(&done, "begun\ncmake -DY\n").unwrap();
        assert!(!begin());
        fs::write(&done, "begun\ncmake -DX\nbegun\n").unwrap();
        assert!(begin() && done.exists());
    }

    #[test]
    fn no_step_is_completed_while_a_directory_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (done, tree) = (dir.path().join("done"), dir.path().join("tree"));
        fs::write(&done, "begun\ncmake\n").unwrap();
        // It cannot be emptied, because it is no directory.
        fs::write(&tree, "").unwrap();
        empty(&tree, &done).unwrap_err();
        assert!(!done.exists());
    }

    #[test]
    fn only_the_last_compiled_files_are_removed() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("inner")).unwrap();
        let now = SystemTime::now();
        let file = |name: &str, text: &str, age: u64| {
            let path = tree.path().join(name);
            fs::write(&path, text).unwrap();
            let time = now - Duration::from_secs(age);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let old = file("old.o", "x", 60);
        let half = file("inner/half.o", "x", 1);
        let program = file("program", "\x7fELF half", 2);
        let unwritten = file("postgres", "", 2);
        let header = file("generated.h", "int x;", 0);
        remove_incomplete(tree.path()).unwrap();
        assert!(old.exists() && header.exists());
        assert!(!half.exists() && !program.exists() && !unwritten.exists());
    }

    #[test]
    fn extra_files_are_copied_by_suffix() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.sql", "b.txt"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let server = dir.path().join("server");
        let piece = ExtraFiles { from: dir.path().to_owned(), to: "share", ending: ".sql" };
        copy(&piece, &server).unwrap();
        assert!(server.join("share/a.sql").exists());
        assert!(!server.join("share/b.txt").exists());
    }

    #[test]
    fn libraries_are_copied_without_the_links_that_only_linkers_need() {
        let dir = tempfile::tempdir().unwrap();
        let (from, server) = (dir.path().join("lib"), dir.path().join("server"));
        fs::create_dir(&from).unwrap();
        for name in ["liba.so.1.2", "libb.so"] {
            fs::write(from.join(name), "x").unwrap();
        }
        for (link, target) in [("liba.so", "liba.so.1"), ("liba.so.1", "liba.so.1.2")] {
            std::os::unix::fs::symlink(target, from.join(link)).unwrap();
        }
        copy(&ExtraFiles { from, to: "lib", ending: "" }, &server).unwrap();
        for (name, is_there) in
            [("liba.so", false), ("liba.so.1", true), ("liba.so.1.2", true), ("libb.so", true)]
        {
            assert_eq!(server.join("lib").join(name).is_file(), is_there, "{name}");
        }
    }

    #[test]
    fn time_of_earlier_attempts_is_included_until_the_build_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let done = dir.path().join("done");
        fs::write(beside(&done), "5000000000").unwrap();
        let (five, minute) = (Nanos::from_secs(5), Nanos::from_secs(60));
        let mut time = CompileTime::start(Some(&done));
        assert!(time.total() >= five && time.total() < minute);
        time.store();
        assert!(CompileTime::start(Some(&done)).total() >= five);
        CompileTime::forget(&done);
        assert!(CompileTime::start(Some(&done)).total() < five);
        assert!(CompileTime::start(None).total() < five);
    }
}
