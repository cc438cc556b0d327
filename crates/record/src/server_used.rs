use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// What a server spent during one slice, over all its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUsed {
    /// CPU time, to the nanosecond.
    pub cpu: Nanos,
    /// CPU time between the end of its slice before this one and the start of this one's lead-in:
    /// what it does in the background while others have their turn. `None` where nothing of the
    /// same microbenchmark came before, and for a server that is not dbdyno's alone.
    pub background_cpu: Option<Nanos>,
    /// Of it, in user mode, in steps of the kernel's tick: right only in sums over many slices.
    pub user: Nanos,
    /// Of it, in the kernel, as above.
    pub system: Nanos,
    /// Context switches; `None` where unknown.
    pub context_switches: Option<u64>,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Fetched from storage; `None` where this user may not know.
    pub read_from_storage: Option<Bytes>,
    /// Made dirty or written around the page cache; `None` as above.
    pub written_to_storage: Option<Bytes>,
}
