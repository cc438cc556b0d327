//! Machine code laid out anew after the link, by LLVM's BOLT.
//!
//! A build of a variant with `bolt` is linked so that functions can be moved: the base. BOLT makes
//! an instrumented copy of its artifact, training runs that, and with the profile BOLT makes the
//! artifact of another build, in which everything else is the base's.
//!
//! A profile is collected by instrumentation, which counts every branch, or by sampling the base as
//! it is. Neither needs counters of the CPU, which virtual machines hide.

mod arguments;
mod profile;
mod server;
mod skipped;
mod tool;

pub use profile::{BoltCollection, BoltProfile, BoltSamples, BoltUsed};
pub use tool::Bolt;

pub(crate) use server::link_all;
