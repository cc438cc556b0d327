//! Copies the hot functions of x86-64 code in a better layout.
//!
//! The layout half of the live optimizer: it knows machine code, ELF, unwind information and profiles,
//! but no processes and no files. All addresses are absolute, as in the process that the modules are
//! mapped in, unless a name says `offset`.
//!
//! # Guarantee
//!
//! The original code stays unchanged. Every instruction of a copy corresponds to exactly one original
//! instruction and has the same effect, except for code addresses (the return addresses that its
//! calls push). So control may pass from a copy to the original at any instruction, and a thread that
//! is stopped at an original instruction may be moved to its copy. [`verify`] proves this for a
//! finished [`Relayout`] by decoding both sides again.
//!
//! With [`Options::count`], a copy also contains instructions that increment [counters](Counter) of
//! executed blocks, where no flag that they change is used. Their counts, added to the [`Samples`] with
//! [`Samples::add_block_count`], replace the estimates from samples in the next layout.
//!
//! # Usage
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use dbdyno_relayout::{AddressSpace, Module, Options, RegionRequest, Samples, optimize, verify};
//!
//! struct Process;
//! impl AddressSpace for Process {
//!     fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
//!         Some(request.latest & !0xfff) // find `request.size` free bytes in the given range
//!     }
//!     fn read_slot(&self, _address: u64) -> Option<u64> {
//!         None // or read 8 bytes of the process
//!     }
//! }
//!
//! let file = std::fs::read("/usr/sbin/mariadbd")?;
//! let module = Module::parse("mariadbd", &file, 0x5555_5555_4000)?;
//! let mut samples = Samples::default();
//! samples.add_hit(0x5555_5600_0000, 1);
//! let modules = [&module];
//! let relayout = optimize(&modules, &samples, &Options::default(), &mut Process)?;
//! verify(&modules, &relayout)?;
//! for entry in &relayout.entries {
//!     println!("{:x}: {:02x?} becomes {:02x?}", entry.address, entry.original, entry.patch);
//! }
//! # Ok(()) }
//! ```
//!
//! # Unwind information
//!
//! Every module with copied functions gets one [`FrameSection`]: a complete `.eh_frame` section with a
//! terminator, in the module's read-only region. Its addresses are absolute, so it must be placed at
//! exactly the given address. Register it with `__register_frame_info(section.address, object)`, where
//! `object` is at least 64 zeroed, writable bytes that stay mapped (libgcc needs 48), and remove it
//! with `__deregister_frame_info`. Up to libgcc 12 these calls take a mutex and do not allocate; from
//! 13 on they may allocate. So a thread of the process must call them while its other threads run,
//! after the regions are mapped and before the entries are patched. A statically linked libgcc
//! (`mariadbd` of some vendors) has an unwinder per module: register with each one that throws through
//! the copy.
//!
//! # Repeated optimization
//!
//! [`Relayout::map`] maps original instructions to their copies and back. Map samples taken in a copy
//! to the original with [`Samples::to_originals`] before the next [`optimize`]: a layout never depends
//! on an earlier copy.

mod block_counts;
mod bytes;
mod code;
mod code_references;
mod emit;
mod executed;
mod ext_tsp;
mod flags;
mod flow;
mod frame;
mod jump_tables;
mod layout;
mod module;
mod optimize;
mod options;
mod relayout;
mod samples;
mod select;
mod verify;
mod virtual_tables;

pub use executed::{ExecutedFunction, executed_functions};
pub use module::{Function, Module, ModuleError};
pub use optimize::{LOWEST_ADDRESS, LayoutError, REACH, Rejected, optimize, optimize_proven};
pub use options::{
    AddressSpace, FunctionOrder, Options, RegionRequest, SamplePrecision, SampleRequirement,
    TooFewSamples,
};
pub use relayout::{
    AddressMap, Counter, EntryPatch, FrameSection, PredictedEffect, Region, Relayout, Slot,
    Statistics, Symbol, TableCopy, VirtualSlot,
};
pub use samples::{
    BoltProfile, Branch, BranchCount, Executions, FallThrough, ModuleProfile, Profile, Samples,
};
pub use select::RejectReason;
pub use verify::{Difference, DifferenceKind, verify};
