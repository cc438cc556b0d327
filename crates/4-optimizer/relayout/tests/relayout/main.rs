//! Copies of compiled and installed code: equivalence, rejected functions, damaged files, profiles.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod counters;
mod damaged;
mod execution;
mod installed;
mod profiles;
mod rejected;
mod support;
