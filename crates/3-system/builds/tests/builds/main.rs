//! Tests of builds with the installed compilers and tools: sources, servers, libraries, profiles,
//! BOLT, the cache.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

mod common;

mod bolt;
mod cache;
mod mysql;
#[path = "../../../drivers/tests/it/outside.rs"]
mod outside;
mod planted;
mod profiles;
mod releases;
mod servers;
mod sources;
mod sqlite;
