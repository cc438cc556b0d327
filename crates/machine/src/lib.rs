//! Host facts and checks, CPU sets, CPU clocks, resource usage, hardware counters.
//!
//! What a dynamometer must know of the machine it stands on, and nothing of what it measures:
//!
//! - [`HostFacts`] is what the machine is; [`check`] says what of it may spoil a measurement.
//! - [`CpuSet`], [`Topology`] and [`CpuAssignment`] decide who runs where, and pin processes there.
//! - [`clock`] and [`tsc`] tell the time: exactly, or at the cost of a few cycles.
//! - [`Usage`] and [`Counters`] tell what a process spent, [`ProcessTree`] what it did together with
//!   its children.
//! - [`Power`] tells what energy the CPU packages take.
//! - [`IdlePreventer`] keeps CPUs from sleeping.
//! - [`aslr`] takes the random draw out of a child's address space.
//!
//! Linux only, on x86-64 and aarch64.

pub mod aslr;
mod checks;
pub mod clock;
pub mod counters;
mod cpu_assignment;
mod cpus;
mod device;
pub mod facts;
mod fs_root;
mod idle_preventer;
mod own_usage;
mod pin;
mod power;
pub mod process_tree;
mod quota;
mod stat;
mod thread_usage;
mod topology;
pub mod tsc;
pub mod usage;

pub use checks::{Finding, Needs, Severity, check};
pub use counters::{Counters, Event, Reading, Reason, Scope, Target, Unavailable};
pub use cpu_assignment::CpuAssignment;
pub use cpus::{CpuSet, CpuSetError};
pub use device::{BlockDevice, DeviceUsage};
pub use facts::{Activity, HostFacts};
pub use fs_root::FsRoot;
pub use idle_preventer::{IdlePreventer, IdlePreventerError};
pub use own_usage::OwnUsage;
pub use pin::{CpuMask, PinError, pin_current_thread, pin_process};
pub use power::{NoPower, Power, PowerReading};
pub use process_tree::{ProcessTree, ProcessTreeDelta, ProcessTreeUsage};
pub use thread_usage::ThreadUsage;
pub use topology::Topology;
pub use tsc::{Calibration, MonotonicTicks, TickSource, Ticks, Tsc, WithTicks};
pub use usage::{Usage, Used};
