//! The MySQL driver with a real MariaDB server (Debian's package `mariadb-server`).

mod login;
mod non_blocking;
mod server;
mod statements;
