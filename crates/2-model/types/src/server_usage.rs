use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Resource usage of a server during one slice, over all its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// CPU time, with nanosecond resolution.
    pub cpu: Nanos,
    /// CPU time between the end of its previous slice and the start of this one's lead-in: work in
    /// the background during the slices of others. `None` for the first slice of a microbenchmark,
    /// and for a server that other clients may use.
    pub background_cpu: Option<Nanos>,
    /// Part of `cpu` in user mode, with the resolution of the kernel's tick: accurate only in sums
    /// over many slices.
    pub user: Nanos,
    /// Part of `cpu` in the kernel, with the same resolution as `user`.
    pub system: Nanos,
    /// Context switches; `None` if unknown.
    pub context_switches: Option<u64>,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Bytes read from storage; `None` if the user lacks the permission to read it.
    pub read_from_storage: Option<Bytes>,
    /// Bytes of pages made dirty, and of direct writes; `None` as in `read_from_storage`.
    pub written_to_storage: Option<Bytes>,
}
