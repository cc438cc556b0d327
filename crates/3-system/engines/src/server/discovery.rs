use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use dbdyno_types::Sha256;
use dbdyno_types::server::{ServerSystem, StorageEngine};

use super::error::system;
use super::installation::{join_paths, search};
use super::program::ProgramFacts;
use super::program_output::program_output;
use super::systems::server_program;
use super::user::ServerUser;
use super::{Installation, ServerError};

impl Installation {
    /// Finds the program of `system` in the usual directories, or checks the given one, and finds the
    /// files that the storage engine needs.
    ///
    /// # Errors
    /// The program is not installed (the error names its Debian package), or is not usable.
    pub fn find(
        server_system: ServerSystem,
        engine: Option<StorageEngine>,
        path: Option<&Path>,
    ) -> Result<Self, ServerError> {
        let program = server_program(server_system);
        let ProgramFacts { names, package, user, .. } = program.facts();
        let directories = program.search_dirs();
        let file = match path {
            Some(path) => path.to_owned(),
            None => search(names, &directories).ok_or_else(|| ServerError::NotInstalled {
                what: format!("{}'s server program {}", server_system.title(), names[0]),
                searched: format!("searched PATH and {}", join_paths(&directories)),
                package,
                advice: ", or set the program's path in the experiment",
            })?,
        };
        // The link's target decides: Debian's `mysqld` is a link to MariaDB.
        let file = file.canonicalize().map_err(system("looking for the server program", &file))?;
        let printed = program_output(&file, ["--version"], user)
            .map_err(|error| does_not_start(&file, error))?;
        let version = program.version(printed.trim()).map_err(|error| ServerError::Unsuitable {
            program: file.clone(),
            system: server_system,
            message: error.to_string(),
        })?;
        let files = program.files(&file, engine)?;
        tracing::info!(program = %file.display(), version, "found a server program");
        let (file_size, sha256) = Sha256::with_size_of_file(&file)
            .map_err(system("reading the server program", &file))?;
        let sha256 = sha256.to_string();
        Ok(Self { system: server_system, program: file, version, file_size, sha256, files })
    }
}

/// The error of a program that does not print its version, with what to try.
fn does_not_start(file: &Path, error: io::Error) -> ServerError {
    let program = file.to_owned();
    if is_for_another_processor(file) {
        // The C library gives such a file to the shell, whose message would be shown.
        let reason = "it is a program for another processor".to_owned();
        return ServerError::DoesNotStart { program, reason, advice: "use a build for this one" };
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
    ServerError::DoesNotStart { program, reason, advice }
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
///
/// # Errors
/// dbdyno is root, and no other user exists to run a server as.
pub fn server_user(server_system: ServerSystem) -> Result<Option<(u32, u32)>, ServerError> {
    let user = ServerUser::choose(server_program(server_system).facts().user);
    let doing = "choosing a user to run the server as, from";
    let user = user.map_err(system(doing, Path::new("/etc/passwd")))?;
    Ok(user.map(|user| (user.uid, user.gid)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn program_for_another_processor_is_explained() {
        let mut program = fs::read("/bin/true").unwrap();
        program[18] ^= 1;
        let text = error_of(&program);
        assert!(text.contains("does not start: it is a program for another processor"), "{text}");
    }
}
