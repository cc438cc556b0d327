//! Post-link optimization with LLVM's BOLT.
//!
//! A build of a variant with `bolt` is linked so that functions can be moved: the base build. BOLT
//! instruments a copy of its artifact, and the training runs that copy. With the profile, BOLT
//! writes the artifact of another build, which shares all other files with the base.
//!
//! A profile is collected by instrumentation, which counts every branch, or by sampling the base.
//! Neither needs hardware counters, which virtual machines hide.

mod arguments;
mod profile;
mod server;
mod skipped;
mod tool;

pub use profile::{BoltCollection, BoltSamples, BoltUsed, CachedBoltProfile};
pub use tool::Bolt;

pub(crate) use server::link_all;
