//! Options of a layout, and the address space it is for.

use std::ops::Range;

use crate::SampleRequirement;

/// What to move.
#[derive(Debug, Clone)]
pub struct Options {
    /// Share of the samples in the modules' functions that the moved functions cover, 0 to 1.
    pub coverage: f64,
    /// Upper limit for the size of all regions together, in bytes.
    pub max_bytes: u64,
    /// Also copy the cold blocks of moved functions, separate from the hot ones. Otherwise a function
    /// that takes a cold path continues in the original code until it returns.
    pub copy_cold: bool,
    /// Reorder blocks. Otherwise they are copied in their original order.
    pub reorder_blocks: bool,
    /// Order functions by call frequency. Otherwise by address.
    pub reorder_functions: bool,
    /// Align hot loops to the blocks in which CPUs fetch code.
    pub align_loops: bool,
    /// Copy jump tables whose bounds are proven, with targets in the copy.
    pub jump_tables: bool,
    /// Replace calls of linkage stubs by calls through the stub's slot, or of the target itself.
    pub bypass_plt: bool,
    /// Address ranges whose functions are not moved, such as code that others have patched.
    pub exclude: Vec<Range<u64>>,
    /// Start addresses of functions whose copies were not equivalent, and which are not moved.
    pub unproven: Vec<u64>,
    /// How good the samples must be; `None`: any samples are used.
    pub required: Option<SampleRequirement>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            coverage: 0.99,
            max_bytes: 16 << 20,
            copy_cold: true,
            reorder_blocks: true,
            reorder_functions: true,
            align_loops: true,
            jump_tables: true,
            bypass_plt: true,
            exclude: Vec::new(),
            unproven: Vec::new(),
            required: None,
        }
    }
}

/// A request for free addresses near a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionRequest {
    /// Index of the module in the list given to `optimize`.
    pub module: usize,
    /// Size in bytes, a multiple of 4096. An upper limit; the regions may become smaller.
    pub size: u64,
    /// Lowest start address.
    pub earliest: u64,
    /// Highest start address.
    pub latest: u64,
}

/// The address space of the process that the layout is for.
pub trait AddressSpace {
    /// The start of `request.size` free bytes, a multiple of 4096 in the requested range. Called once
    /// per module with functions to move. `None`: there is no space.
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64>;

    /// The 8 bytes at `address`, in memory that the loader has made read-only. `None`: unknown, which
    /// is always a valid answer.
    fn read_slot(&self, address: u64) -> Option<u64>;
}
