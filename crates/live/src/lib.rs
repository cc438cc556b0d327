//! The live optimizer's hold on processes: look, sample, stop, patch, journal, undo.
//!
//! This crate puts new code into a running process and takes it out of force again. What the new
//! code is, it does not know: that is the business of the crate that makes a [`Patch`].
//!
//! - [`Process`] is a look at a process that touches nothing and refuses with a reason.
//! - [`Keeper`] reserves memory in it, installs a [`Patch`], undoes and redoes it, and frees what
//!   nobody uses. Everything is in a journal on disk before it happens.
//!
//! Three rules make it safe to end dbdyno at any moment, with `kill -9` too. The original code
//! stays where it is, so that every mixture of old and new entries is a program that runs. A
//! thread that does something for us runs code that puts everything back by itself. And the
//! kernel lets go of stopped threads when the one who stopped them ends.
//!
//! Linux on x86-64 only.

mod error;
mod family;
mod held;
mod identity;
mod journal;
mod judge;
mod keeper;
mod look;
mod maps;
mod memory;
mod module;
pub mod names;
mod optimize;
mod patch;
mod patience;
mod plan;
mod sample;
mod switch;
mod trace;
mod unwind;
mod watchdog;

pub use error::LiveError;
pub use family::{Joined, descendants, optimize_descendants};
pub use held::{Held, Switch, SwitchedAll};
pub use identity::Identity;
pub use journal::{Area, Generation, Home, Record, State, all, default_state, look_up};
pub use judge::{Judged, Judgement, Verdict, Work};
pub use keeper::{InForce, Keeper, STOP_BOUND, redirected};
pub use look::{Permit, Process};
pub use maps::{Mapping, Maps};
pub use memory::Memory;
pub use module::{Loaded, Module};
pub use optimize::{
    Optimized, OptimizingError, Prepared, Subject, Subjects, all_images, coverage, led_back,
    optimize, optimize_like, subjects,
};
pub use patch::{Block, Entry, Equivalence, Name, Patch};
pub use patience::patiently;
pub use sample::{Sampled, Sampling, Source, family_of, sample};
pub use switch::Switched;
