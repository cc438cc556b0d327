//! Where processes spend CPU time: sampled stacks, unwound without frame pointers, with names and layers. And where
//! their threads wait: see [`WaitSampler`].
//!
//! One event per CPU samples everything that runs there and copies the registers and the top of the user's stack. What is
//! not of the processes of interest is dropped when the buffers are read. Stacks are unwound with the tables for exceptions
//! (`.eh_frame`), which stripped programs also have.

mod debug;
mod imports;
mod kernel;
mod layers;
mod module;
mod names;
mod sampler;
mod sources;
mod stacks;
mod waits;

pub use kernel::kernel_entry;
pub use layers::{Layers, LayersError, UNKNOWN};
pub use names::{TitledStacks, Titles, demangled};
pub use sampler::{DUMP, ProfileError, Sampler};
pub use stacks::Collector;
pub use waits::WaitSampler;
