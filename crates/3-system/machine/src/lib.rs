//! Facts and checks of the host, CPU sets, clocks, resource usage of processes, counters.
//!
//! Everything dbdyno needs to know about the machine it runs on, independent of databases:
//!
//! - [`HostFacts`] describes the machine; [`check`] lists what may distort a measurement.
//! - [`CpuSet`], [`Topology`] and [`CpuAssignment`] decide which CPUs the systems under test and
//!   dbdyno use, and pin processes there.
//! - [`clock`] and [`tsc`] read the time: in nanoseconds, or in a few cycles.
//! - [`ProcessIdentity`] tells a process from a later one with the same ID.
//! - [`Mapping`] describes a part of a process's memory.
//! - [`ProcessTree`] and [`Counters`] read what processes used.
//! - [`Power`] reads the energy consumption of the CPU packages.
//! - [`safe_files`] opens what other users can write, and checks directories that dbdyno trusts.
//! - [`remove_secrets`] keeps passwords from programs that need none.
//! - [`IdlePreventer`] keeps CPUs from entering idle states.
//! - [`VaryingPeriod`] keeps what is sampled from falling into step with the samples.
//!
//! Linux only, on x86-64 and aarch64.

mod checks;
pub mod clock;
mod control_groups;
pub mod counters;
mod cpu_assignment;
mod cpus;
mod environment;
pub mod facts;
mod fs_root;
mod idle_preventer;
mod kernel_calls;
mod listener;
mod mapping;
mod power;
mod proc_stat;
pub mod process_tree;
pub mod safe_files;
mod sampling;
pub mod tsc;
mod usage;

pub use checks::{Finding, Needs, Severity, check, check_disk};
pub use control_groups::has_cpu_quota;
pub use counters::{Counters, Reason, Scope, Target, Unavailable};
pub use cpu_assignment::CpuAssignment;
pub use cpus::{
    CpuMask, CpuSet, CpuSetError, PinError, Topology, pin_current_thread, pin_process, threads_of,
    while_pinned,
};
pub use environment::{default_cache_path, remove_secrets};
pub use facts::{Activity, HostFacts, total_memory};
pub use fs_root::FsRoot;
pub use idle_preventer::{IdlePreventer, IdlePreventerError};
pub use kernel_calls::{FileSystemSpace, die_with_parent, has_exited, set_minimal_timer_slack};
pub use listener::{TcpListener, listener, tcp_listener};
pub use mapping::Mapping;
pub use power::{NoPower, Power, PowerReading};
pub use proc_stat::{ProcStat, ProcessIdentity, process_ids};
pub use process_tree::{ProcessTree, ProcessTreeDelta, ProcessTreeUsage};
pub use rustix::process::Signal;
pub use sampling::{VaryingPeriod, share_buffer};
pub use tsc::{Calibration, MonotonicTicks, TickSource, Ticks, Tsc, WithTicks};
pub use usage::{BlockDevice, OwnUsage, ThreadUsage};
