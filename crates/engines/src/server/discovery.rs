use std::path::Path;

use dbdyno_record::server::{ServerSystem, StorageEngine};

use super::error::system;
use super::installation::{join_paths, search, size_and_sha256};
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
            .map_err(system("running with --version, as the user for servers,", &file))?;
        let version = program.version(printed.trim()).map_err(|error| ServerError::Unsuitable {
            program: file.clone(),
            system: server_system,
            message: error.to_string(),
        })?;
        let files = program.files(&file, engine)?;
        tracing::info!(program = %file.display(), version, "found a server program");
        let (file_size, sha256) =
            size_and_sha256(&file).map_err(system("reading the server program", &file))?;
        Ok(Self { system: server_system, program: file, version, file_size, sha256, files })
    }
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
