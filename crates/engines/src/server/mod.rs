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
mod spawn;
mod user;

pub use error::ServerError;
pub use installation::Installation;
pub use life::{Server, initialise};
pub use place::Place;
pub use plan::{DataShape, ServerPlan};
pub use quarters::Quarters;
pub use settings::ServerSettings;
