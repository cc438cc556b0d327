//! Where an instance's data lives: a directory, a server's directory, or a schema of a server that is not
//! ours to copy.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_engines::clone_file;
use dbdyno_engines::server::ServerDir;
use dbdyno_engines::sqlite::Sqlite;

use crate::error::RunError;

/// Where an instance's data lives.
#[derive(Clone, Debug)]
pub(crate) enum DataLocation {
    /// A directory with a SQLite database file.
    Directory(PathBuf),
    /// A private server's data and its configuration.
    ServerDir(ServerDir),
    /// A schema on a server that runs already.
    Schema,
}

impl DataLocation {
    /// Whether complete data is here. Nobody knows that of a schema.
    pub fn exists(&self) -> bool {
        match self {
            Self::Directory(directory) => Sqlite::file_in(directory).exists(),
            Self::ServerDir(server_dir) => server_dir.exists(),
            Self::Schema => false,
        }
    }

    /// Whether the data can be copied, so that one load serves all and a state can be kept.
    pub const fn can_be_copied(&self) -> bool {
        !matches!(self, Self::Schema)
    }

    /// Gets ready for data to be made here.
    pub fn make(&self) -> Result<(), RunError> {
        match self {
            Self::Directory(directory) => fs::create_dir_all(directory).map_err(at(directory)),
            Self::ServerDir(_) | Self::Schema => Ok(()),
        }
    }

    /// Removes what is here, with the logs and journals beside a database file: one left over
    /// from another database would be replayed into the next. Nobody must have it open.
    pub fn remove(&self) -> Result<(), RunError> {
        match self {
            Self::Directory(directory) => match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(at(directory)(error))
                }
                _ => Ok(()),
            },
            Self::ServerDir(server_dir) => Ok(server_dir.remove()?),
            Self::Schema => Ok(()),
        }
    }

    /// Where the database's files are, if they are ours.
    pub fn files(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(directory) => Some(directory.clone()),
            Self::ServerDir(server_dir) => Some(server_dir.data()),
            Self::Schema => None,
        }
    }

    /// Makes `to` a copy of what is here, whole or not at all. Nobody must work with either.
    pub fn copy_to(&self, to: &Self) -> Result<(), RunError> {
        match (self, to) {
            (Self::Directory(from), Self::Directory(directory)) => {
                let mut unfinished = directory.clone().into_os_string();
                unfinished.push(".part");
                let unfinished = Self::Directory(unfinished.into());
                unfinished.remove()?;
                unfinished.make()?;
                if let Self::Directory(unfinished) = &unfinished {
                    copy_database(from, unfinished)?;
                }
                to.remove()?;
                unfinished.move_to(to)
            }
            (Self::ServerDir(from), Self::ServerDir(server_dir)) => {
                to.remove()?;
                Ok(from.clone_to(server_dir)?)
            }
            (Self::Directory(_) | Self::ServerDir(_) | Self::Schema, _) => Ok(()),
        }
    }

    /// Moves what is here to `to`, where nothing is. Nobody must have it open.
    pub fn move_to(&self, to: &Self) -> Result<(), RunError> {
        match (self, to) {
            (Self::Directory(from), Self::Directory(to)) => fs::rename(from, to).map_err(at(to)),
            (Self::ServerDir(from), Self::ServerDir(to)) => Ok(from.rename_to(to)?),
            (Self::Directory(_) | Self::ServerDir(_) | Self::Schema, _) => Ok(()),
        }
    }
}

fn copy_database(from: &Path, to: &Path) -> Result<(), RunError> {
    let (from, to) = (Sqlite::file_in(from), Sqlite::file_in(to));
    let (from_log, to_log) = (Sqlite::log_of(&from), Sqlite::log_of(&to));
    // What is only in the log would be lost without it.
    if from_log.exists() {
        clone_file(&from_log, &to_log)?;
    }
    Ok(clone_file(&from, &to)?)
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::Io { path, source }
}
