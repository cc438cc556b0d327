//! What the caller decides.

use std::ops::Range;

/// What to move and how much.
#[derive(Debug, Clone)]
pub struct Options {
    /// Share of the samples in the modules' functions that the chosen functions cover, 0 to 1.
    pub coverage: f64,
    /// Upper limit for the bytes of all regions together.
    pub max_bytes: u64,
    /// Copy the cold blocks of chosen functions too, apart from the hot ones. Without that, a
    /// function that takes a cold path goes on in the original code until it returns.
    pub copy_cold: bool,
    /// Lay out blocks anew. Without it, they are copied in their original order.
    pub reorder_blocks: bool,
    /// Order functions by who calls whom. Without it, by address.
    pub reorder_functions: bool,
    /// Begin hot loops where CPUs fetch them in the fewest pieces.
    pub align_loops: bool,
    /// Copy jump tables whose bounds are proven, so that their targets are in the copy.
    pub jump_tables: bool,
    /// Call through the linkage table's slot instead of its stub, or straight to the target.
    pub bypass_plt: bool,
    /// Address ranges whose functions stay (patched by someone else, say).
    pub exclude: Vec<Range<u64>>,
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
        }
    }
}

/// A request for room near a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionRequest {
    /// Index of the module in the list given to `optimize`.
    pub module: usize,
    /// Bytes needed, a multiple of 4096. An upper limit; the regions may turn out smaller.
    pub size: u64,
    /// First address at which the room may begin.
    pub earliest: u64,
    /// Last address at which the room may begin.
    pub latest: u64,
}

/// What `optimize` asks about the process.
pub trait AddressSpace {
    /// An address, a multiple of 4096 within the range asked for, at which `request.size` bytes are
    /// free. Asked once per module that has anything to move. `None`: there is no room.
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64>;

    /// The 8 bytes at `address`, which lies in memory that the loader has made read-only.
    /// `None`: not known, which is always right.
    fn read_slot(&self, address: u64) -> Option<u64>;
}
