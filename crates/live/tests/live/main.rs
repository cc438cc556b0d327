//! Programs changed while they run.

mod copies;
mod killed;
mod mariadb;
mod victim;
mod whole;
