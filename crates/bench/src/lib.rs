//! The schedule of slices, and the worker that runs them.
//!
//! A [`worker`] is a process that holds the connections to one instance and runs a slice when it
//! receives a request. A [`schedule`] is the order of the slices and their length: it puts one
//! slice of every candidate into each block, in random order, and does no I/O. Nothing here
//! computes an estimate or writes to the run directory.

pub mod latency;
pub mod protocol;
pub mod schedule;
pub mod slice;
pub mod worker;
