//! Stopping threads of another process and making them do things.

mod inject;
mod raw;
mod restart;
mod scratch;
mod session;
mod stacks;
mod stub;

pub(crate) use inject::{call_functions, make_system_calls};
pub(crate) use scratch::Scratch;
pub(crate) use session::{StoppedProcess, on_own_thread};
pub(crate) use stacks::{KnownCode, Stacks, is_code_in_use, ranges_in_use, restorers};
pub(crate) use stub::{FunctionCall, StubData, SystemCall, size_of_system_calls};
