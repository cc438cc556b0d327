//! Compilation of systems: sources, variants, recipes, profiles, and the build cache; also compiled
//! releases of servers, which are unpacked into the same cache.
//!
//! A [`Request`] names a [`Source`], a [`Variant`] (a named set of compiler settings), a
//! [`Compiler`] and extra flags; a [`Builder`] turns requests into [`Build`]s, each in a
//! directory of the cache that is named by its [`Fingerprint`].
//!
//! Pure functions determine a build: the flags of a variant for a system, the commands to
//! run, and what the fingerprint depends on.
//! [`Builder`] and [`Cache`] run the commands and protect the results from kills, full disks and
//! other dbdyno processes.
//!
//! This crate does not know how a build is measured.

mod apt;
mod archive;
mod bolt;
mod build_dir;
mod build_output;
mod build_record;
mod builder;
mod cache;
mod command;
mod compiler;
mod download;
mod elf;
mod error;
mod fetching;
mod inventory;
mod profile;
mod recipe;
mod release;
mod request;
mod source;
mod store;
mod trusted_tree;
pub mod variant;

pub use bolt::{Bolt, BoltCollection, BoltSamples, CachedBoltProfile};
pub use build_record::{
    BoltUsed, Build, CompilerKind, CompilerUsed, Fingerprint, ProfileUsed, RecipeOptions, System,
};
pub use builder::Builder;
pub use cache::{Cache, CacheDir, CacheDirError, CacheLease};
pub use compiler::{Compiler, installed_compilers};
pub use dbdyno_types::Sha256;
pub use dbdyno_types::build::{SourceOrigin, UnknownVariant, Variant};
pub use dbdyno_types::{ReleaseFile, ReleaseOrigin};
pub use error::{BuildError, Problem, ProblemKind, StepFailure};
pub use inventory::{CacheEntry, CacheEntryKind};
pub use profile::{
    Collection, CollectionLock, Lookup, Profile, ProfileWriter, Profiles, Profiling, SampleTools,
    SampledCode, TrainingId,
};
pub use release::{Release, Releases, suites};
pub use request::{Event, HostCpu, Request, check_compiler, check_profile_tools};
pub use source::{Commit, CommitRange, HistoryError, RangeRequest, Source, Sources};
