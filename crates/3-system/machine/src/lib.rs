//! Facts and checks of the host, CPU sets, clocks, resource usage of processes, counters.
//!
//! Everything dbdyno needs to know about the machine it runs on, independent of databases:
//!
//! - [`HostFacts`] describes the machine; [`check`] lists what may distort a measurement.
//! - [`CpuSet`], [`Topology`] and [`CpuAssignment`] decide which CPUs the systems under test and
//!   dbdyno use, and pin processes there.
//! - [`clock`] and [`tsc`] read the time: in nanoseconds, or in a few cycles.
//! - [`ProcessIdentity`] tells a process from a later one with the same ID.
//! - [`ProcessTree`] and [`Counters`] read what processes used.
//! - [`Power`] reads the energy consumption of the CPU packages.
//! - [`safe_files`] opens what other users can write, and checks directories that dbdyno trusts.
//! - [`remove_secrets`] keeps passwords from programs that need none.
//! - [`IdlePreventer`] keeps CPUs from entering idle states.
//!
//! Linux only, on x86-64 and aarch64.

mod cache_path;
mod checks;
pub mod clock;
mod control_groups;
pub mod counters;
mod cpu_assignment;
mod cpus;
mod device;
pub mod facts;
mod fs_root;
mod idle_preventer;
mod kernel_calls;
mod listener;
mod own_usage;
mod pin;
mod power;
mod proc_stat;
mod process_identity;
pub mod process_tree;
mod quota;
pub mod safe_files;
mod secrets;
mod thread_usage;
mod topology;
pub mod tsc;

pub use cache_path::default_cache_path;
pub use checks::{Finding, Needs, Severity, check};
pub use counters::{Counters, Reason, Scope, Target, Unavailable};
pub use cpu_assignment::CpuAssignment;
pub use cpus::{CpuSet, CpuSetError};
pub use device::BlockDevice;
pub use facts::{Activity, HostFacts};
pub use fs_root::FsRoot;
pub use idle_preventer::{IdlePreventer, IdlePreventerError};
pub use kernel_calls::{FileSystemSpace, die_with_parent, set_minimal_timer_slack};
pub use listener::{TcpListener, listener, tcp_listener};
pub use own_usage::OwnUsage;
pub use pin::{CpuMask, PinError, pin_current_thread, pin_process, threads_of, while_pinned};
pub use power::{NoPower, Power, PowerReading};
pub use proc_stat::ProcStat;
pub use process_identity::ProcessIdentity;
pub use process_tree::{ProcessTree, ProcessTreeDelta, ProcessTreeUsage};
pub use quota::has_cpu_quota;
pub use rustix::process::Signal;
pub use secrets::remove_secrets;
pub use thread_usage::ThreadUsage;
pub use topology::Topology;
pub use tsc::{Calibration, MonotonicTicks, TickSource, Ticks, Tsc, WithTicks};
