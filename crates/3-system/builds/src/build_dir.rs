//! The build directory of a server, which survives interruptions.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dbdyno_machine::safe_files::SafeDir;

use crate::BuildError;
use crate::compile_time::CompileTime;
use crate::prerequisites::we_are_root;
use crate::recipe::ExtraFiles;
use crate::removal::remove;
use crate::search_path;

/// The completed steps, in a file with one line per step.
pub(crate) struct Done {
    path: Option<PathBuf>,
    lines: Vec<String>,
}

/// The line for a started step.
const BEGUN: &str = "begun";

impl Done {
    /// Without a path, nothing is stored.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, BuildError> {
        let text = match path.map(fs::read_to_string) {
            None => String::new(),
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Some(Err(error)) => {
                return Err(BuildError::io("reading", path.unwrap_or(Path::new("")), error));
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
            .map_err(|error| BuildError::io("writing", path, error))
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
        .map_err(|error| BuildError::io("emptying", tree, error))
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
    let mut waiting = vec![tree.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            if meta.is_dir() {
                waiting.push(path);
            } else if meta.is_file() {
                let time = meta.modified()?;
                last = last.max(time);
                made.push((path, time));
            }
        }
    }
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
        if name.to_string_lossy().ends_with(piece.ending) && path.is_file() {
            let copy = to.join(name);
            fs::copy(&path, &copy)?;
            search_path::remove_empty_entries(&copy)?;
        }
    }
    Ok(())
}

/// Makes a directory tree readable for all users: a server does not run as root. No other user can
/// write to the tree.
pub(crate) fn open_to_all(folder: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.permissions().mode();
    let more = if meta.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    if mode & more != more {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode | more))?;
    }
    if meta.is_dir() {
        for entry in fs::read_dir(folder)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
}

/// Creates a directory of the cache and its parents, and checks that only root and dbdyno's user can
/// write to them. Those that root creates are accessible to all users: servers do not run as root.
pub(crate) fn open_folder(folder: &Path) -> io::Result<()> {
    let mode = if we_are_root() { 0o755 } else { 0o700 };
    SafeDir::create_trusted(folder, mode).map(drop).map_err(io::Error::other)
}

/// As root, checks that the server's user can access the cache.
pub(crate) fn check_reach(cache: &Path) -> Result<(), BuildError> {
    if !we_are_root() {
        return Ok(());
    }
    for inner in ["builds", "profiles", "releases"] {
        let inner = cache.join(inner);
        let real = open_folder(&inner).and_then(|()| inner.canonicalize());
        let real = real.map_err(|error| BuildError::io("creating", &inner, error))?;
        let closed = |folder: &&Path| {
            let meta = fs::metadata(folder);
            meta.is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0)
        };
        if let Some(folder) = real.ancestors().find(closed) {
            let (cache, folder) = (cache.to_owned(), folder.to_owned());
            return Err(BuildError::Unreachable { cache, folder });
        }
    }
    Ok(())
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
}
