//! Stopping threads of another process and running code in them.

mod inject;
mod priorities;
mod raw;
mod seccomp;
mod session;
mod stacks;
mod stub;
mod system_calls;

pub(crate) use inject::{call_functions, check_filters, make_system_calls};
pub(crate) use priorities::restore_priorities;
pub(crate) use session::StoppedProcess;
pub(crate) use stacks::{KnownCode, Stacks, is_code_in_use, ranges_in_use};
pub(crate) use stub::{
    FunctionCall, StubData, SystemCall, find_unused_code, size_of_functions, size_of_system_calls,
};
pub(crate) use system_calls::{BlockedThreads, is_in_critical_section};
