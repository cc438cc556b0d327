//! The process half of the live optimizer: probe, sample, stop, patch, journal and undo.
//!
//! - [`Process`] probes a process without changing it, and refuses unsupported ones with a reason;
//!   [`probe`](probe()) reports all that forbids to optimize it.
//! - [`Attachment`] reserves memory in a process, installs a [`Patch`], undoes and redoes it, and frees
//!   unused memory. Every change is recorded in a journal on disk first.
//! - [`optimize`](optimize()) makes a patch from samples, with the layout of `dbdyno-relayout`.
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
mod replace;
mod sample;
mod server_optimizer;
mod status;
pub mod symbols;
mod target;
#[cfg(test)]
mod testing;
mod threads;
mod trace;
mod unwind;
mod watch;
mod watchdog;

pub use ab_test::{
    AbTest, AbTestOutcome, AbTestResult, AbTestVerdict, Effect, KeepRule, WorkCounter,
};
pub use arch::check_platform;
pub use attachment::{Activation, Attachment, DEFAULT_MAX_PAUSE, MAX_CODE};
pub use count::{
    Counted, CountingOptions, CountingReport, PreparedCounting, count, end_counting_after_input,
};
pub use error::{Failure, LiveError};
pub use job::{
    DryRun, Event, Events, OptimizeJob, Outcome, ProcessProfile, ProfileReport, Supervision,
};
pub use journal::{
    Area, Generation, GenerationState, JournalRecord, PatchedMapping, find_record, live_records,
    state_dir,
};
pub use memory::{Mapping, Maps, ProcessMemory};
pub use module::{
    HotModule, HotModules, LoadedModule, Module, all_images, coverage, hot_modules, map_to_original,
};
pub use optimize::{
    OptimizeError, Optimized, PlannedOptimization, PreparedPatch, optimize, optimize_like, plan,
};
pub use patch::{BytePatch, CodeSymbol, MemoryBlock, Patch, PatchList};
pub use probe::{CheckResult, Probe, ProbeCheck, probe};
pub use process::{ProbeOptions, Process};
pub use replace::Switched;
pub use sample::{
    DEFAULT_FREQUENCY, SampleSource, Sampled, SamplingCost, SamplingOptions, SamplingPlan,
    SamplingRequest, family_of, sample,
};
pub use server_optimizer::{OptimizedServer, ServerOptimizeError, ServerOptimizer, ServerOptions};
pub use status::{
    GenerationStatus, KnownStatus, ProcessStatus, Switch, SwitchReport, process_statuses,
    switch_all,
};
pub use target::{
    AttachedGroup, GroupSwitched, Member, MemberOutcome, SwitchOperation, Target, descendants,
    optimize_descendants,
};
pub use threads::raise_priority;
pub use watch::{WatchReport, WatchRules, WatchStage, watch};
