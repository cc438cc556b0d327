//! The life cycle of a private server: find its program, create its data, start, stop, copy, clean up.
//!
//! An [`Installation`] is a server program found on this machine. A [`ServerPlan`] adds the settings
//! that it runs with, derived from a [`DataShape`]. [`ServerDirs`] holds the directories of all
//! servers of one run, and a [`ServerDir`] belongs to one of them. [`initialise`] creates a data
//! directory, and a [`Server`] is a running server.
//!
//! The modules form layers; each uses only those before it:
//!
//! 1. `error`, `user`, `postgres_lock`: no other module of `server`
//! 2. `process`, `registry`: which servers run, and killing those that outlived their owner
//! 3. `server_dirs`: where data, logs and sockets are
//! 4. `launcher`: running programs
//! 5. `systems`: the trait that systems implement; MariaDB, MySQL, PostgreSQL
//! 6. `access`, `installation`, `plan`, `process_search`, `lifecycle`: work for any system

mod access;
mod error;
mod installation;
mod launcher;
mod lifecycle;
mod plan;
mod postgres_lock;
mod process;
mod process_search;
mod registry;
mod server_dirs;
mod systems;
mod user;

pub use access::{Network, ServerAccess};
pub use error::ServerError;
pub use installation::{
    Installation, InstalledRelease, installed_releases, release_in_directory, server_user,
};
pub use launcher::says_disk_full;
pub use lifecycle::{Server, initialise};
pub use plan::{DataShape, DiskEstimate, PROPERTIES, Property, ServerPlan, check_settings};
pub use process_search::{ProcessDoubt, ProcessFound, ProcessSearch};
pub use server_dirs::{LOG_FILE, ServerDir, ServerDirs, external_servers};
