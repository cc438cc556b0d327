//! Programs changed while they run.

mod copies;
mod killed;
mod victim;
mod whole;
