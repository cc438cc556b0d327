//! The life of a private server: find its program, make its data, start, stop, copy, clean up.
//!
//! An [`Installation`] is a program found on this machine. A [`ServerPlan`] adds the settings it
//! runs with, made for a [`DataShape`]. [`ServerDirs`] are where the servers of one run live, and a
//! [`ServerDir`] is the home of one of them. [`initialise`] makes a new data directory in a server_dir,
//! and a [`Server`] is one that runs.
//!
//! What differs between systems is behind the trait `Program`, one file per system.

mod access;
mod disk_estimate;
mod error;
mod external_dir;
mod installation;
mod lifecycle;
mod log;
mod mariadb;
mod mysql;
mod mysql_config;
mod pause;
mod plan;
mod postgres;
mod postgres_config;
mod postgres_lock;
mod process;
mod process_registry;
mod program;
mod server_dir;
mod server_dirs;
mod spawn;
mod user;

use std::path::Path;

use dbdyno_record::server::ServerSystem;

pub use access::ServerAccess;
pub use disk_estimate::DiskEstimate;
pub use error::ServerError;
pub use installation::Installation;
pub use lifecycle::{Server, initialise};
pub use plan::{DataShape, ServerPlan};
pub use server_dir::ServerDir;
pub use server_dirs::ServerDirs;

/// The numbers of the user, and of its group, that dbdyno's servers of this system run as; `None`
/// where that is who dbdyno runs as.
///
/// # Errors
/// dbdyno is root, and there is nobody else to run a server as.
pub fn server_user(system: ServerSystem) -> Result<Option<(u32, u32)>, ServerError> {
    let user = user::ServerUser::choose(program::program(system).user());
    let doing = "looking for a user to run the server as, in";
    let user = user.map_err(error::system(doing, Path::new("/etc/passwd")))?;
    Ok(user.map(|user| (user.uid, user.gid)))
}
