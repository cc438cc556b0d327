//! Where an instance keeps its data.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_engines::clone_file;
use dbdyno_engines::server::ServerDir;
use dbdyno_engines::sqlite::Sqlite;
use dbdyno_hosts::HostDir;

use crate::error::RunError;

/// Where an instance keeps its data.
#[derive(Clone, Debug)]
pub(crate) enum DataLocation {
    /// A directory with a SQLite database file.
    Directory(PathBuf),
    /// A private server's directory, with its data and its configuration.
    ServerDir(ServerDir),
    /// The same on another host.
    HostDir(HostDir),
    /// A schema on an existing server, which cannot be copied.
    Schema,
}

impl DataLocation {
    /// Whether complete data is here; false for a schema, where this is unknown.
    pub fn exists(&self) -> bool {
        match self {
            Self::Directory(directory) => Sqlite::file_in(directory).exists(),
            Self::ServerDir(server_dir) => server_dir.exists(),
            Self::HostDir(host_dir) => host_dir.exists(),
            Self::Schema => false,
        }
    }

    /// Whether the data can be copied.
    pub const fn can_be_copied(&self) -> bool {
        !matches!(self, Self::Schema)
    }

    /// Whether a later session can use the data. What is on a host is removed with the connection.
    pub const fn outlives_session(&self) -> bool {
        !matches!(self, Self::HostDir(_))
    }

    /// Prepares the location for new data.
    pub fn make(&self) -> Result<(), RunError> {
        match self {
            Self::Directory(directory) => fs::create_dir_all(directory).map_err(at(directory)),
            Self::ServerDir(_) | Self::HostDir(_) | Self::Schema => Ok(()),
        }
    }

    /// Removes the data, with the logs and journals of a database file: a stale one would be
    /// replayed into the next database. The database must be closed.
    pub fn remove(&self) -> Result<(), RunError> {
        match self {
            Self::Directory(directory) => match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(at(directory)(error))
                }
                _ => Ok(()),
            },
            Self::ServerDir(server_dir) => Ok(server_dir.remove()?),
            Self::HostDir(host_dir) => Ok(host_dir.remove()?),
            Self::Schema => Ok(()),
        }
    }

    /// The directory of the database's files on this machine.
    pub fn files(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(directory) => Some(directory.clone()),
            Self::ServerDir(server_dir) => Some(server_dir.data()),
            Self::HostDir(_) | Self::Schema => None,
        }
    }

    /// Replaces `to` by a copy of the data, completely or not at all. Both databases must be closed.
    /// Does nothing for a schema.
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
            (Self::HostDir(from), Self::HostDir(host_dir)) => {
                to.remove()?;
                Ok(from.clone_to(host_dir)?)
            }
            (Self::Directory(_) | Self::ServerDir(_) | Self::HostDir(_) | Self::Schema, _) => {
                Ok(())
            }
        }
    }

    /// Moves the data to the empty location `to`. The database must be closed.
    pub fn move_to(&self, to: &Self) -> Result<(), RunError> {
        match (self, to) {
            (Self::Directory(from), Self::Directory(to)) => fs::rename(from, to).map_err(at(to)),
            (Self::ServerDir(from), Self::ServerDir(to)) => Ok(from.rename_to(to)?),
            (Self::HostDir(from), Self::HostDir(to)) => Ok(from.rename_to(to)?),
            (Self::Directory(_) | Self::ServerDir(_) | Self::HostDir(_) | Self::Schema, _) => {
                Ok(())
            }
        }
    }
}

fn copy_database(from: &Path, to: &Path) -> Result<(), RunError> {
    let (from, to) = (Sqlite::file_in(from), Sqlite::file_in(to));
    let (from_log, to_log) = (Sqlite::log_of(&from), Sqlite::log_of(&to));
    // The log may hold committed changes that are not in the file yet.
    if from_log.exists() {
        clone_file(&from_log, &to_log)?;
    }
    Ok(clone_file(&from, &to)?)
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::Io { path, source }
}
