//! The schedule of slices, and the worker that runs them.
//!
//! A [`worker`] is a process that holds the connections to one instance and runs slices on
//! request. A [`schedule`] determines the order and length of the slices: each block contains one
//! slice of every candidate, in random order. It does no I/O. This crate does not compute
//! estimates or write to the run directory.

pub mod latency;
pub mod protocol;
pub mod schedule;
pub mod slice;
pub mod worker;
