//! The live optimizer's hold on processes: look, sample, stop, patch, journal, undo.
//!
//! This crate puts new code into a running process and takes it out of force again. What the new
//! code is, it does not know: that is the business of the crate that makes a [`Patch`].
//!
//! - [`Process`] is a look at a process that touches nothing and refuses with a reason.
//! - [`Attachment`] reserves memory in it, installs a [`Patch`], undoes and redoes it, and frees what
//!   nobody uses. Everything is in a journal on disk before it happens.
//!
//! Three rules make it safe to end dbdyno at any moment, with `kill -9` too. The original code
//! stays where it is, so that every mixture of old and new entries is a program that runs. A
//! thread that does something for us runs code that puts everything back by itself. And the
//! kernel lets go of stopped threads when the one who stopped them ends.
//!
//! Linux on x86-64 only.

mod ab_test;
mod attached_group;
mod attachment;
mod error;
mod family;
mod identity;
mod journal;
mod maps;
mod memory;
mod module;
mod optimize;
mod patch;
mod process;
mod replace;
mod retry;
mod sample;
mod switch_plan;
pub mod symbols;
mod trace;
mod unwind;
mod watchdog;

pub use ab_test::{AbTestOutcome, AbTestResult, AbTestVerdict, WorkCounter};
pub use attached_group::{AttachedGroup, GroupSwitched, SwitchOperation};
pub use attachment::{Activation, Attachment, DEFAULT_MAX_PAUSE, redirected};
pub use error::LiveError;
pub use family::{MemberOutcome, descendants, optimize_descendants};
pub use identity::Identity;
pub use journal::{
    Area, Generation, GenerationState, JournalRecord, PatchedMapping, default_state, find_record,
    live_records,
};
pub use maps::{Mapping, Maps};
pub use memory::ProcessMemory;
pub use module::{LoadedModule, Module};
pub use optimize::{
    HotModule, HotModules, OptimizeError, Optimized, PreparedPatch, all_images, coverage,
    hot_modules, map_to_original, optimize, optimize_like,
};
pub use patch::{CodeSymbol, JumpPatch, MemoryBlock, Patch};
pub use process::{ProbeOptions, Process};
pub use replace::Switched;
pub use retry::retry_while_busy;
pub use sample::{SampleSource, Sampled, SamplingOptions, family_of, sample};
