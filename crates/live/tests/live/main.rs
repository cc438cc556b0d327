//! Programs changed while they run.

mod copies;
mod victim;
mod whole;
