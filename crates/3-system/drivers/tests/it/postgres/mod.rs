//! The PostgreSQL driver with a real server (Debian's package `postgresql`), and with simulated ones.

mod answers;
mod copy;
mod encryption;
mod failures;
mod fake_servers;
mod login;
mod non_blocking;
mod server;
