//! Servers that try to get the password, a file or the memory of the client.

mod arbitrary;
mod fake;
mod mysql;
mod postgres;
