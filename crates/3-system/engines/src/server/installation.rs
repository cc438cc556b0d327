//! Server programs on this machine: those in the usual directories, and releases that are installed side by side.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use dbdyno_types::Sha256;
use dbdyno_types::server::{ServerSystem, StorageEngine};
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use super::ServerError;
use super::error::system;
use super::launcher::program_output;
use super::systems::{ProgramFacts, ReleaseFolders, server_program};
use super::user::ServerUser;

/// A server program on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    pub system: ServerSystem,
    /// The server program, links resolved.
    pub program: PathBuf,
    /// Its version as printed, such as `10.11.19-MariaDB`.
    pub version: String,
    pub file_size: Bytes,
    /// SHA-256 of the program file, 64 hexadecimal digits.
    pub sha256: String,
    /// The state of the program file when its checksum was read.
    pub(crate) file_state: FileState,
    pub(crate) files: ProgramFiles,
}

/// What differs if a file is another one, or was written to: its device, its inode, and the seconds and nanoseconds of
/// its last change, which nobody can set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileState(u64, u64, i64, i64);

impl From<Metadata> for FileState {
    fn from(file: Metadata) -> Self {
        Self(file.dev(), file.ino(), file.ctime(), file.ctime_nsec())
    }
}

/// Files that belong to a server program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramFiles {
    /// The program that creates a data directory.
    pub(crate) init_program: PathBuf,
    /// The plugin directory, if the server must be configured with it.
    pub(crate) plugin_dir: Option<PathBuf>,
}

/// The first program with one of these names, in the order of the names; searches `PATH`, then
/// `directories`.
pub(crate) fn search(names: &[&str], directories: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = env::split_paths(&path).chain(directories.iter().cloned()).collect();
    names.iter().find_map(|name| {
        all.iter().map(|directory| directory.join(name)).find(|file| is_executable(file))
    })
}

/// Whether the file exists and is executable.
pub(crate) fn is_executable(file: &Path) -> bool {
    fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

pub(crate) fn join_paths(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.as_os_str()).collect();
    names.join(OsStr::new(", ")).to_string_lossy().into_owned()
}

impl Installation {
    /// Finds the program of `system` in the usual directories, or checks the given one, and finds the
    /// files that the storage engine needs.
    pub fn find(
        server_system: ServerSystem,
        engine: Option<StorageEngine>,
        path: Option<&Path>,
    ) -> Result<Self, ServerError> {
        let program = server_program(server_system);
        let ProgramFacts { names, package, user, search_dirs, .. } = program.facts();
        let directories = search_dirs();
        let file = match path {
            Some(path) => path.to_owned(),
            None => search(names, &directories).ok_or_else(|| {
                ServerError::not_installed(
                    &format!("{}'s server program {}", server_system.title(), names[0]),
                    &format!("searched PATH and {}", join_paths(&directories)),
                    package,
                    ", or set the program's path in the experiment",
                )
            })?,
        };
        // The link's target decides: Debian's `mysqld` is a link to MariaDB.
        let file = file.canonicalize().map_err(system("looking for the server program", &file))?;
        let printed = program_output(&file, ["--version"], user)
            .map_err(|error| does_not_start(&file, error))?;
        let version = program
            .version(printed.trim())
            .map_err(|error| ServerError::unsuitable(&file, server_system, error))?;
        let files = program.files(&file, engine)?;
        tracing::info!(program = %file.display(), version, "found a server program");
        let reading = || -> io::Result<_> {
            let opened = File::open(&file)?;
            Ok((FileState::from(opened.metadata()?), Sha256::with_size_of(opened)?))
        };
        let (file_state, (file_size, sha256)) =
            reading().map_err(system("reading the server program", &file))?;
        let (system, program, sha256) = (server_system, file, sha256.to_string());
        Ok(Self { system, program, version, file_size, sha256, file_state, files })
    }

    /// Checks that a process runs the program whose checksum is known: the file may have been exchanged since.
    pub(crate) fn check_process(&self, pid: u32) -> Result<(), ServerError> {
        let mut file = PathBuf::from(format!("/proc/{pid}/exe"));
        // The program of a script is its shell, and that of another user's process may be hidden.
        let mut start = [0; 2];
        let read = File::open(&self.program).and_then(|mut file| file.read_exact(&mut start));
        if fs::metadata(&file).is_err() || read.is_ok() && start == *b"#!" {
            file.clone_from(&self.program);
        }
        let is_same = || -> io::Result<bool> {
            let opened = File::open(&file)?;
            let is_unchanged = FileState::from(opened.metadata()?) == self.file_state;
            Ok(is_unchanged || Sha256::with_size_of(opened)?.1.to_string() == self.sha256)
        };
        match is_same().map_err(system("reading the server program", &file))? {
            true => Ok(()),
            false => Err(ServerError::new(format!(
                "{} was exchanged after its checksum was read: start a new run",
                self.program.display()
            ))),
        }
    }
}

/// The error of a program that does not print its version, with what to try.
fn does_not_start(file: &Path, error: io::Error) -> ServerError {
    let not_started = |reason: &str, advice: &str| {
        ServerError::new(format!("{} does not start: {reason}; {advice}", file.display()))
    };
    if is_for_another_processor(file) {
        // The C library gives such a file to the shell, whose message would be shown.
        return not_started("it is a program for another processor", "use a build for this one");
    }
    let reason = error.to_string();
    let advice = if error.kind() == io::ErrorKind::NotFound {
        "the loader that it names does not exist on this machine (`readelf -l` shows it): use a \
         release of Debian, `release = { debian = \"…\" }`, which has its own, or a build for this \
         system"
    } else if reason.contains("version `") && reason.contains("not found") {
        "it was built for a newer system: use a release of Debian, `release = { debian = \"…\" }`, \
         which has its own C library, or an older build"
    } else if reason.contains("error while loading shared libraries") {
        "install the package that has the library; `ldd` lists all that are missing"
    } else if reason.contains("kernel too old") {
        "the release needs a newer kernel than that of this machine: use an older suite"
    } else {
        return system("running with --version, as the user for servers,", file)(error);
    };
    not_started(&reason, advice)
}

/// Whether a file is a program for another processor than this one is.
fn is_for_another_processor(file: &Path) -> bool {
    // Signature, word size and byte order, and the processor, of an ELF header.
    let header = |path: &Path| {
        let mut bytes = [0; 20];
        File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
        let [processor, more] = [bytes[18], bytes[19]];
        bytes.starts_with(b"\x7fELF").then(|| (bytes[4], bytes[5], processor, more))
    };
    let own = header(Path::new("/proc/self/exe"));
    header(file).is_some_and(|other| own.is_some_and(|own| own != other))
}

/// User id and group id that servers of this system run as; `None` for dbdyno's own.
pub fn server_user(server_system: ServerSystem) -> Result<Option<(u32, u32)>, ServerError> {
    let user = ServerUser::choose(server_program(server_system).facts().user);
    let doing = "choosing a user to run the server as, from";
    let user = user.map_err(system(doing, Path::new("/etc/passwd")))?;
    Ok(user.map(|user| (user.uid, user.gid)))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledRelease {
    /// The name to use in an experiment, such as `8.0.37`.
    pub name: String,
    pub program: PathBuf,
}

impl Installation {
    /// Finds the release with this name in the usual directories, such as `~/opt/mysql/8.0.37`, or of the
    /// program that is used without a name. `8.0` is the newest release whose name begins with `8.0.`
    /// or `8.0-`.
    pub fn of_release(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        name: &str,
    ) -> Result<Self, ServerError> {
        let all = installed_releases(system);
        match named(&all, name) {
            Some(release) => Self::find(system, engine, Some(&release.program)),
            None => {
                let places = places(system, &Roots::of_this_machine());
                let places: Vec<PathBuf> = places.iter().map(Place::pattern).collect();
                Err(ServerError::new(format!(
                    "{} has no release `{name}` (searched {}){}; `dbdyno list releases` shows what is \
                     here and what can be fetched",
                    system.title(),
                    join_paths(&places),
                    nearest(&all, name)
                )))
            }
        }
    }
}

/// Names the release whose name has the longest start in common with `name`.
fn nearest(found: &[InstalledRelease], name: &str) -> String {
    let common = |other: &&InstalledRelease| {
        name.chars().zip(other.name.chars()).take_while(|(a, b)| a == b).count()
    };
    match found.iter().max_by_key(common) {
        None => "; none was found".to_owned(),
        Some(InstalledRelease { name, .. }) if found.len() == 1 => {
            format!("; the only one is `{name}`")
        }
        Some(InstalledRelease { name, .. }) => format!("; nearest is `{name}`"),
    }
}

/// The installed releases of a system, sorted by name. The program that is used without a name is among them,
/// by its version.
pub fn installed_releases(system: ServerSystem) -> Vec<InstalledRelease> {
    let mut all = releases_in(system, &places(system, &Roots::of_this_machine()));
    if let Ok(Installation { program, version, .. }) = Installation::find(system, None, None) {
        let is_known = |release: &InstalledRelease| {
            release.program.canonicalize().is_ok_and(|known| known == program)
        };
        let name = numbers_of(&version).to_owned();
        if !name.is_empty() && !all.iter().any(|release| is_known(release) || release.name == name)
        {
            all.push(InstalledRelease { name, program });
            all.sort();
        }
    }
    all
}

/// An installed release in a directory with this name, such as `/opt/mysql-8.0.33`, or one that continues it after a dot
/// or hyphen.
pub fn release_in_directory(system: ServerSystem, name: &str) -> Option<InstalledRelease> {
    let all = releases_in(system, &places(system, &Roots::of_this_machine()));
    all.into_iter().find(|release| is_in_directory(release, name))
}

fn is_in_directory(release: &InstalledRelease, name: &str) -> bool {
    let folder = release.program.ancestors().nth(2).and_then(Path::file_name);
    let rest = folder.and_then(OsStr::to_str).and_then(|folder| folder.strip_prefix(name));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

/// The release with this name, or the newest one of this series.
fn named<'a>(all: &'a [InstalledRelease], name: &str) -> Option<&'a InstalledRelease> {
    let exact = all.iter().find(|release| release.name == name);
    let of_series = all.iter().filter_map(|release| {
        let rest = release.name.strip_prefix(name)?;
        // Archives have names such as `8.0.37-linux-glibc2.28-x86_64`.
        rest.starts_with(['.', '-']).then_some((release, rest))
    });
    // Of the same version, the name with the fewest additions.
    let newest = of_series.max_by_key(|(_, rest)| -> (Vec<u64>, Reverse<usize>) {
        let numbers = numbers_of(rest).split('.').map(|part| part.parse().unwrap_or(0));
        (numbers.collect(), Reverse(rest.len()))
    });
    exact.or_else(|| newest.map(|(release, _)| release))
}

/// The numbers and dots at the start of a version.
fn numbers_of(version: &str) -> &str {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    version[..end].trim_end_matches('.')
}

/// Where releases are searched for.
struct Roots {
    /// Directories of the user, with a directory per system.
    homes: Vec<PathBuf>,
    /// dbdeployer's directory of MySQL and its forks, if the user moved it.
    sandbox_binaries: Option<PathBuf>,
    system: PathBuf,
}

impl Roots {
    fn of_this_machine() -> Self {
        let path = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            homes: path("HOME").into_iter().map(|home| home.join("opt")).collect(),
            sandbox_binaries: path("SANDBOX_BINARY"),
            system: PathBuf::from("/"),
        }
    }
}

/// Directories `parent/prefixNAME`.
struct Place {
    parent: PathBuf,
    prefix: &'static str,
}

impl Place {
    fn pattern(&self) -> PathBuf {
        self.parent.join(format!("{}NAME", self.prefix))
    }
}

fn places(system: ServerSystem, roots: &Roots) -> Vec<Place> {
    let ReleaseFolders { names, prefixes, packages, sandboxes } =
        server_program(system).facts().releases;
    let mut all = Vec::new();
    let mut add = |parent: PathBuf, prefix| all.push(Place { parent, prefix });
    if sandboxes {
        roots.sandbox_binaries.iter().for_each(|parent| add(parent.clone(), ""));
    }
    let opt = roots.system.join("opt");
    for parent in roots.homes.iter().chain([&opt]) {
        names.iter().for_each(|name| add(parent.join(name), ""));
        prefixes.iter().for_each(|prefix| add(parent.clone(), prefix));
    }
    prefixes.iter().for_each(|prefix| add(roots.system.join("usr/local"), prefix));
    packages.iter().for_each(|(parent, prefix)| add(roots.system.join(parent), prefix));
    all
}

/// The releases in these places, sorted by name, each name once: the first place counts.
fn releases_in(system: ServerSystem, places: &[Place]) -> Vec<InstalledRelease> {
    let mut all: Vec<InstalledRelease> = Vec::new();
    for Place { parent, prefix } in places {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file_name.strip_prefix(prefix).filter(|name| !name.is_empty()) else {
                continue;
            };
            let known = all.iter().any(|release| release.name == name);
            if let Some(program) = program_in(system, &entry.path()).filter(|_| !known) {
                all.push(InstalledRelease { name: name.to_owned(), program });
            }
        }
    }
    all.sort();
    all
}

/// The server program below the directory of a release.
fn program_in(system: ServerSystem, folder: &Path) -> Option<PathBuf> {
    let find = |name: &str| {
        let files = ["bin", "sbin", "libexec"].map(|inner| folder.join(inner).join(name));
        files.into_iter().find(|file| is_executable(file))
    };
    let ProgramFacts { names, not_beside, .. } = server_program(system).facts();
    match not_beside.and_then(find) {
        Some(_) => None,
        None => find(names.first()?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// The error of a program with this content.
    fn error_of(content: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("mysqld");
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        loop {
            let error = Installation::find(ServerSystem::MySql, None, Some(&file)).unwrap_err();
            let text = error.to_string();
            // A process that another test is starting may still hold the file.
            if !text.contains("Text file busy") {
                return text;
            }
        }
    }

    #[test]
    fn program_without_its_loader_is_explained() {
        // A program whose loader is elsewhere, as that of another system.
        let mut program = fs::read("/bin/true").unwrap();
        let loader = b"/lib64/ld-linux";
        let alternative = b"/lib/ld-linux";
        let at = [&loader[..], &alternative[..]]
            .into_iter()
            .find_map(|name| program.windows(name.len()).position(|part| part == name))
            .unwrap();
        program[at + 1] = b'x';
        let text = error_of(&program);
        assert!(text.contains("does not start") && text.contains("loader"), "{text}");
        assert!(text.contains("release = { debian"), "{text}");
    }

    #[test]
    fn program_that_lacks_libraries_is_explained() {
        let script = |message: &str| format!("#!/bin/sh\necho \"{message}\" >&2\nexit 127\n");
        let library = "mysqld: error while loading shared libraries: libaio.so.1: cannot open";
        let text = error_of(script(library).as_bytes());
        assert!(text.contains("libaio.so.1") && text.contains("`ldd`"), "{text}");
        let newer = "mysqld: libc.so.6: version \\`GLIBC_2.38' not found (required by mysqld)";
        let text = error_of(script(newer).as_bytes());
        assert!(text.contains("GLIBC_2.38") && text.contains("a newer system"), "{text}");
        let text = error_of(script("FATAL: kernel too old").as_bytes());
        assert!(text.contains("an older suite"), "{text}");
        // Anything else is passed on.
        let text = error_of(script("something else").as_bytes());
        assert!(text.contains("running with --version") && text.contains("something else"));
    }

    fn installation(program: &Path) -> Installation {
        let opened = File::open(program).unwrap();
        Installation {
            system: ServerSystem::MySql,
            program: program.to_owned(),
            version: String::new(),
            file_size: Bytes::default(),
            file_state: opened.metadata().unwrap().into(),
            sha256: Sha256::with_size_of(opened).unwrap().1.to_string(),
            files: ProgramFiles { init_program: program.to_owned(), plugin_dir: None },
        }
    }

    /// Checks a process that runs a copy of `sleep`, started in the program's directory.
    fn check_started(installation: &Installation) -> Result<(), ServerError> {
        let program = &installation.program;
        let mut child = loop {
            match Command::new(program).arg("60").current_dir(program.parent().unwrap()).spawn() {
                // A process that another test is starting may still hold the file.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                started => break started.unwrap(),
            }
        };
        let checked = installation.check_process(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        checked
    }

    /// As releases of Debian are, whose programs name a loader in the unpacked tree.
    #[test]
    fn program_with_its_own_loader_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let (program, loader) = (dir.path().join("mysqld"), dir.path().join("ld"));
        let mut content = fs::read("/bin/sleep").unwrap();
        let inside = content.windows(4).position(|bytes| bytes == b"/ld-").unwrap();
        let start = content[..inside].iter().rposition(|byte| *byte == 0).unwrap() + 1;
        let end = inside + content[inside..].iter().position(|byte| *byte == 0).unwrap();
        fs::copy(OsStr::from_bytes(&content[start..end]), &loader).unwrap();
        // Relative to the working directory, so that it is short enough wherever this is.
        content[start..end].fill(0);
        content[start..start + 2].copy_from_slice(b"ld");
        fs::write(&program, content).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        check_started(&installation(&program)).unwrap();
        fs::remove_file(&loader).unwrap();
        let without = Command::new(&program).arg("0").current_dir(dir.path()).status();
        assert!(without.is_err(), "it has another loader");
    }

    #[test]
    fn exchanged_program_is_not_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let (program, other) = (dir.path().join("mysqld"), dir.path().join("other"));
        fs::copy("/bin/sleep", &program).unwrap();
        let installation = installation(&program);
        let check = || check_started(&installation);
        check().unwrap();
        // The same content in another file.
        fs::copy(&program, &other).unwrap();
        fs::rename(&other, &program).unwrap();
        check().unwrap();
        let mut content = fs::read(&program).unwrap();
        content.push(0);
        fs::write(&other, content).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&other, &program).unwrap();
        let error = check().unwrap_err().to_string();
        assert!(error.contains("was exchanged"), "{error}");
    }

    #[test]
    fn program_for_another_processor_is_explained() {
        let mut program = fs::read("/bin/true").unwrap();
        program[18] ^= 1;
        let text = error_of(&program);
        assert!(text.contains("does not start: it is a program for another processor"), "{text}");
    }

    #[test]
    fn releases_are_found_in_the_usual_layouts() {
        let dir = tempfile::tempdir().unwrap();
        let program = |path: &str| {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let own = program("home/opt/mysql/8.0.37/bin/mysqld");
        program("opt/mysql/8.0.37/bin/mysqld");
        program("usr/local/mysql-8.4.0/bin/mysqld");
        program("home/opt/mysql/10.11.6/bin/mariadbd");
        program("home/opt/mysql/10.11.6/bin/mysqld");
        program("opt/mariadb-11.4/bin/mariadbd");
        program("usr/lib/postgresql/17/bin/postgres");
        program("usr/pgsql-16/bin/postgres");
        fs::create_dir_all(dir.path().join("opt/mysql/empty/bin")).unwrap();
        let roots = Roots {
            homes: vec![dir.path().join("home/opt")],
            sandbox_binaries: None,
            system: dir.path().to_owned(),
        };
        let releases = |system| releases_in(system, &places(system, &roots));
        let names = |system| -> Vec<String> {
            releases(system).into_iter().map(|release| release.name).collect()
        };
        assert_eq!(names(ServerSystem::MySql), ["8.0.37", "8.4.0"]);
        assert_eq!(releases(ServerSystem::MySql)[0].program, own);
        let in_directory = |name| {
            let all = releases(ServerSystem::MySql);
            all.iter().filter(|release| is_in_directory(release, name)).count()
        };
        assert_eq!(["mysql-8.4.0", "mysql-8.4", "mysql-8.0.37"].map(in_directory), [1, 1, 0]);
        assert_eq!(names(ServerSystem::MariaDb), ["10.11.6", "11.4"]);
        assert_eq!(names(ServerSystem::PostgreSql), ["16", "17"]);
    }

    #[test]
    fn series_selects_its_newest_release() {
        let release = |name: &str| InstalledRelease { name: name.to_owned(), program: name.into() };
        let all = ["10.11.9", "10.11.19", "10.1.48", "8.0", "8.0.37"].map(release);
        let found = |name| named(&all, name).map(|release| release.name.as_str());
        assert_eq!(found("10.11"), Some("10.11.19"));
        assert_eq!(found("10.1"), Some("10.1.48"));
        assert_eq!(found("8.0"), Some("8.0"));
        assert_eq!(found("10.11.9"), Some("10.11.9"));
        assert_eq!(found("11"), None);
        let all = ["ps8.0.37", "ps8.0.9", "8.4.5-linux-glibc2.28-x86_64", "8.4.4", "8.4.4-debug"];
        let all = all.map(release);
        let found = |name| named(&all, name).map(|release| release.name.as_str());
        assert_eq!(found("ps8.0"), Some("ps8.0.37"));
        assert_eq!(found("8.4.5"), Some("8.4.5-linux-glibc2.28-x86_64"));
        assert_eq!(found("8.4"), Some("8.4.5-linux-glibc2.28-x86_64"));
        assert_eq!(found("8.4.4"), Some("8.4.4"));
        assert_eq!(found("8.4.5-lin"), None);
        let debug = ["8.4.4", "8.4.4-debug"].map(release);
        assert_eq!(named(&debug, "8.4").unwrap().name, "8.4.4");
        assert_eq!(numbers_of("10.11.19-MariaDB-0+deb12u1"), "10.11.19");
        assert_eq!(numbers_of("18beta1"), "18");
    }

    #[test]
    fn unknown_release_is_explained() {
        let error = Installation::of_release(ServerSystem::MySql, None, "1.2.3").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("MySQL has no release `1.2.3`"), "{text}");
        assert!(
            text.contains("/opt/mysql/NAME") && text.contains("dbdyno list releases"),
            "{text}"
        );
    }
}
