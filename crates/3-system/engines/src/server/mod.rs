//! The life cycle of a private server: find its program, create its data, start, stop, copy, clean up.
//!
//! An [`Installation`] is a server program found on this machine. A [`ServerPlan`] adds the settings
//! that it runs with, derived from a [`DataShape`]. [`ServerDirs`] holds the directories of all
//! servers of one run, and a [`ServerDir`] belongs to one of them. [`initialise`] creates a data
//! directory, and a [`Server`] is a running server.
//!
//! The modules form layers; each uses only those before it:
//!
//! 1. `error`, `user`, `private_dir`, `command`, `postgres_lock`, `access`, `network`, `process_search`: no other module of
//!    `server`
//! 2. `process`, `registry_file`, `process_registry`, `stale_servers`: which servers run, and killing
//!    those that outlived their owner
//! 3. `server_dir`, `external_dir`, `server_dirs`: where data, logs and sockets are
//! 4. `log`, `child_guard`, `launcher`, `pause`, `program_output`: running programs
//! 5. `installation`, `plan`, `program`: what is run, and the trait that systems implement
//! 6. `systems`: MariaDB, MySQL, PostgreSQL
//! 7. `discovery`, `releases`, `planning`, `disk_estimate`, `lifecycle`: work for any system

mod access;
mod certificate;
mod child_guard;
mod command;
mod discovery;
mod disk_estimate;
mod error;
mod external_dir;
mod installation;
mod launcher;
mod lifecycle;
mod log;
mod network;
mod pause;
mod plan;
mod planning;
mod postgres_lock;
mod private_dir;
mod process;
mod process_registry;
mod process_search;
mod program;
mod program_output;
mod registry_file;
mod releases;
mod server_dir;
mod server_dirs;
mod stale_servers;
mod systems;
mod user;

pub use access::ServerAccess;
pub use discovery::server_user;
pub use disk_estimate::DiskEstimate;
pub use error::ServerError;
pub use external_dir::external_servers;
pub use installation::Installation;
pub use lifecycle::{Server, initialise};
pub use network::Network;
pub use plan::{DataShape, ServerPlan};
pub use planning::check_settings;
pub use process_search::{ProcessDoubt, ProcessFound, ProcessSearch};
pub use releases::{InstalledRelease, installed_releases};
pub use server_dir::ServerDir;
pub use server_dirs::ServerDirs;
