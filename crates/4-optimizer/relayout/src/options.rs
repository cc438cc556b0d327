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
    pub function_order: FunctionOrder,
    /// Align hot loops, too.
    pub align_loops: bool,
    /// Copy jump tables whose bounds are proven, with targets in the copy.
    pub jump_tables: bool,
    /// Replace calls of linkage stubs by calls through the stub's slot, or of the target itself.
    pub bypass_plt: bool,
    /// Let virtual tables refer to the copies of functions, so that virtual calls need no entry jump.
    pub virtual_tables: bool,
    /// Address ranges whose functions are not moved, such as code that others have patched.
    pub exclude: Vec<Range<u64>>,
    /// Start addresses of functions whose copies were not equivalent, and which are not moved.
    pub unproven: Vec<u64>,
    /// How good the samples must be; `None`: any samples are used.
    pub required: Option<SampleRequirement>,
    /// Count the executions of blocks in the copies, as far as flags permit it.
    pub count: bool,
}

impl Options {
    /// The same with blocks and functions in their original order.
    #[must_use]
    pub fn in_original_order(self) -> Self {
        Self { reorder_blocks: false, function_order: FunctionOrder::Address, ..self }
    }
}

/// Order of moved functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionOrder {
    /// By address, as in the original code.
    Address,
    /// Callees follow their most frequent callers.
    Calls,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            coverage: 0.99,
            max_bytes: 16 << 20,
            copy_cold: true,
            reorder_blocks: true,
            function_order: FunctionOrder::Calls,
            align_loops: true,
            jump_tables: true,
            bypass_plt: true,
            virtual_tables: true,
            exclude: Vec::new(),
            unproven: Vec::new(),
            required: None,
            count: false,
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
    /// Size of the counters in bytes: writable memory, zeroed, for [`AddressSpace::counters`].
    pub counters: u64,
}

/// The address space of the process that the layout is for.
pub trait AddressSpace {
    /// The start of `request.size` free bytes, a multiple of 4096 in the requested range. Called once
    /// per module with functions to move. `None`: there is no space.
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64>;

    /// The address of the memory for the counters of a module's copies, a multiple of 4, near the memory
    /// that was reserved for them. Called after [`reserve`](Self::reserve) if there are any. `None`: there
    /// is no space.
    fn counters(&self, _module: usize) -> Option<u64> {
        None
    }

    /// The 8 bytes at `address`, in memory that the loader has made read-only. `None`: unknown, which
    /// is always a valid answer.
    fn read_slot(&self, address: u64) -> Option<u64>;
}
