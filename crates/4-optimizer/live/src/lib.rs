//! The process half of the live optimizer: probe, sample, stop, patch, journal and undo.
//!
//! - [`Process`] probes a process without changing it, and refuses unsupported ones with a reason;
//!   [`probe`](probe()) reports all that forbids to optimize it.
//! - [`Attachment`] reserves memory in a process, installs a [`Patch`], undoes and redoes it, and frees
//!   unused memory. Every change is recorded in a journal on disk first.
//! - [`optimize`](optimize()) makes a patch from samples, with the layout of `dbdyno-relayout`.
//! - [`InstructionCounting`] counts the instructions that functions execute.
//! - [`OptimizeJob`] is the whole job: sample, count, lay out, switch, compare, keep or undo.
//!
//! dbdyno may be killed at any moment: the original code stays in place, so that the process runs
//! correctly with every mixture of redirected and other functions. A thread that runs code for dbdyno
//! restores its state itself. And the kernel resumes stopped threads when dbdyno ends.
//!
//! Linux on x86-64 only: elsewhere, [`check_platform`] says so.

mod ab_test;
mod arch;
mod attachment;
mod count;
mod error;
mod job;
mod journal;
mod memory;
mod module;
mod optimize;
mod patch;
mod probe;
mod process;
mod process_lock;
mod replace;
mod sample;
mod server_optimizer;
pub mod symbols;
mod target;

mod trace;
mod unwind;
mod watch;
mod watchdog;

pub use ab_test::{AbTest, Effect, KeepRule, WorkCounter};
pub use arch::check_platform;
pub use attachment::{Activation, Attachment, DEFAULT_MAX_PAUSE, MAX_CODE};
pub use count::{
    Counted, CountingOptions, InstructionCounting, SampledFunction, count, end_counting_after_input,
};
pub use error::LiveError;
pub use job::{
    DryRun, Event, Events, OptimizeJob, Outcome, PlannedCounting, ProcessProfile, Supervision,
    optimize_by_samples,
};
pub use journal::{
    Area, Generation, GenerationState, JournalRecord, find_record, live_records, remove_exited,
    state_dir,
};
pub use memory::Maps;
pub use module::{LoadedModule, Module, all_images, coverage, hot_modules, map_to_original};
pub use optimize::{NewCode, OptimizeError, Optimized, optimize, plan};
pub use patch::{BytePatch, Patch};
pub use probe::{CheckResult, Probe, probe};
pub use process::{ProbeOptions, Process, raise_priority};
pub use replace::Switched;
pub use sample::{Sampled, SamplingOptions, SamplingRequest, sample};
pub use server_optimizer::{OptimizedServer, ServerOptimizeError, ServerOptimizer, ServerOptions};
pub use target::{
    AttachedGroup, GenerationStatus, Member, MemberOutcome, ProcessStatus, Switch, SwitchOperation,
    SwitchReport, Target, descendants, optimize_descendants, process_statuses, switch_all,
};
pub use watch::{WatchReport, WatchRules, watch};
