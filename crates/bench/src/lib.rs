//! The schedule of blocks and slices, the worker and its hot loop.
//!
//! A *worker* is a process that holds the connections to one instance and runs slices on it when
//! told to. The *schedule* tells: it puts one slice of every candidate into each block, in random
//! order. What came out is handed on slice by slice; nothing here computes an estimate or writes
//! a file.

pub mod latency;
pub mod measure;
pub mod protocol;
pub mod schedule;
pub mod slice;
pub mod worker;
