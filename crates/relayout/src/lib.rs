//! Machine code in, equivalent machine code in a better order out.
//!
//! This is the pure half of the live optimizer: it knows x86-64 code, ELF, unwind information and
//! profiles. It knows no processes and no files: bytes in, bytes out. All addresses are absolute,
//! as in the process that the modules are mapped in, unless a name says `offset`.
//!
//! # The promise
//!
//! The original code stays as it is. Every instruction of a copy stands for exactly one original
//! instruction and leaves the machine in the same state, except for code addresses (the return
//! addresses that its calls push). So control may go from a copy to the original at any
//! instruction, and a thread that is stopped at an original instruction may be moved to the same
//! instruction of the copy. [`verify`] proves it for a finished [`Relayout`] by decoding both
//! sides again.
//!
//! # How it is used
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use dbdyno_relayout::{Module, Options, RegionRequest, Samples, AddressSpace, optimize, verify};
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
//! Every module with copied functions gets one [`FrameSection`]: a complete `.eh_frame` section
//! with a terminator, inside the module's read-only region, with absolute addresses, so it must
//! lie at exactly the address given. Register it with
//! `__register_frame_info(section.address, object)` where `object` is at least 64 zeroed, writable
//! bytes that stay mapped (libgcc needs 48) and undo with `__deregister_frame_info`. In libgcc up
//! to 12 the call takes a mutex and allocates nothing; from 13 on it may allocate. Both must
//! therefore be called by a thread of the process while its other threads run, after the regions
//! are mapped and before the entries are patched. Statically linked libgcc (`mariadbd` of some
//! vendors) has an unwinder per module: register with each one that throws through the copy.
//!
//! # Moving threads, doing it again
//!
//! [`Relayout::map`] tells the copy of an original instruction and the original of a copied one.
//! Samples taken while a copy runs are led back to the original with [`Samples::to_originals`]
//! before the next [`optimize`]; nothing ever depends on an earlier copy.

mod block_counts;
mod bolt;
mod bytes;
mod call_clustering;
mod code;
mod code_references;
mod eh_frame;
mod emit;
mod error;
mod exceptions;
mod executions;
mod ext_tsp;
mod flow;
mod frame;
mod graph;
mod layout;
mod map;
mod module;
mod optimize;
mod options;
mod prediction;
mod reject_reason;
mod relayout;
mod samples;
mod select;
mod tables;
mod verify;

pub use bolt::BoltProfile;
pub use error::{LayoutError, ModuleError};
pub use executions::{ExecutedRange, Executions};
pub use map::AddressMap;
pub use module::{Function, Module};
pub use optimize::optimize;
pub use options::{AddressSpace, Options, RegionRequest};
pub use reject_reason::RejectReason;
pub use relayout::{
    EntryPatch, FrameSection, PredictedEffect, Protection, Region, Relayout, Slot, Statistics,
    Symbol, TableCopy,
};
pub use samples::{Branch, BranchCount, ModuleProfile, Profile, Samples};
pub use verify::{Difference, verify};
