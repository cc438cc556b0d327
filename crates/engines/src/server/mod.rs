//! The life of a private server: find its program, make its data, start, stop, copy, clean up.
//!
//! An [`Installation`] is a program found on this machine. A [`ServerPlan`] adds the settings it
//! runs with, made for a [`DataShape`]. [`Quarters`] are where the servers of one run live, and a
//! [`Place`] is the home of one of them. [`initialise`] makes a new data directory in a place,
//! and a [`Server`] is one that runs.
//!
//! What differs between systems is behind the trait `Program`, one file per system.

mod elsewhere;
mod error;
mod installation;
mod ledger;
mod life;
mod log;
mod mariadb;
mod mysql;
mod mysql_config;
mod pause;
mod place;
mod plan;
mod postgres;
mod postgres_config;
mod postgres_lock;
mod process;
mod program;
mod quarters;
mod settings;
mod space;
mod spawn;
mod user;

use std::path::Path;

use dbdyno_record::server::ServerSystem;

pub use error::ServerError;
pub use installation::Installation;
pub use life::{Server, initialise};
pub use place::Place;
pub use plan::{DataShape, ServerPlan};
pub use quarters::Quarters;
pub use settings::ServerSettings;
pub use space::ServerSpace;

/// The numbers of the user, and of its group, that dbdyno's servers of this system run as; `None`
/// where that is who dbdyno runs as.
///
/// # Errors
/// dbdyno is root, and there is nobody else to run a server as.
pub fn user_of(system: ServerSystem) -> Result<Option<(u32, u32)>, ServerError> {
    let user = user::ServerUser::choose(program::program(system).user());
    let doing = "looking for a user to run the server as, in";
    let user = user.map_err(error::system(doing, Path::new("/etc/passwd")))?;
    Ok(user.map(|user| (user.uid, user.gid)))
}
