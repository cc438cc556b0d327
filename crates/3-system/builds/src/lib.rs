//! Compilation of systems: sources, variants, recipes, profiles, and the build cache; also compiled
//! releases of servers, which are unpacked into the same cache.
//!
//! A [`Request`] names a [`Source`], a [`Variant`] (a named set of compiler settings), a
//! [`Compiler`] and extra flags; a [`Builder`] turns requests into [`Build`]s, each in a
//! directory of the cache that is named by its [`Fingerprint`].
//!
//! Pure functions determine a build: [`recipe::flags`] the flags of a variant for a system,
//! [`recipe::plan`] the commands to run, and [`Ingredients`] what the fingerprint depends on.
//! [`Builder`] and [`Cache`] run the commands and protect the results from kills, full disks and
//! other dbdyno processes.
//!
//! This crate does not know how a build is measured.

mod apt;
mod archive;
mod artifact;
mod binary;
mod bolt;
mod build_dir;
mod builder;
mod cache;
mod cache_dir;
mod child;
mod command;
mod compile_database;
mod compile_time;
mod compiler;
mod error;
mod failure;
mod fetching;
mod fingerprint;
mod host;
mod inventory;
mod job;
mod lock;
mod packaging;
mod prepare;
mod prerequisites;
mod profile;
pub mod recipe;
mod release;
mod removal;
mod request;
mod samples;
mod search_path;
mod shell;
mod source;
mod system;
mod trusted_tree;
pub mod variant;
mod watch;

pub use artifact::{Build, CompilerUsed};
pub use bolt::{Bolt, BoltCollection, BoltSamples, BoltUsed, CachedBoltProfile};
pub use builder::Builder;
pub use cache::{Cache, CacheLease};
pub use cache_dir::{CacheDir, CacheDirError};
pub use compiler::{Compiler, CompilerError, CompilerKind, installed_compilers};
pub use dbdyno_types::Sha256;
pub use dbdyno_types::build::{SourceOrigin, UnknownVariant, Variant};
pub use dbdyno_types::{ReleaseFile, ReleaseOrigin};
pub use error::{BuildError, StepFailure};
pub use fingerprint::{Fingerprint, Ingredients};
pub use host::HostCpu;
pub use inventory::{CacheEntry, CacheEntryKind};
pub use packaging::PackagingFlags;
pub use prepare::{check_compiler, check_profile_tools};
pub use profile::{
    Collection, CollectionLock, Lookup, Profile, ProfileUsed, ProfileWriter, Profiles, Profiling,
    TrainingId,
};
pub use release::{Release, Releases, suites};
pub use request::{Event, Request};
pub use samples::{SampleTools, SampledCode};
pub use source::{Commit, CommitRange, HistoryError, RangeRequest, Source, Sources};
pub use system::System;
