//! Restartable sequences: code that the kernel aborts if its thread is interrupted in it.
//!
//! The kernel does so when the thread returns to user code, unless its instruction pointer was changed
//! meanwhile. A thread that runs a stub first would then continue in the middle of a sequence that
//! another thread has invalidated.

use super::raw;
use super::session::StoppedThread;
use crate::memory::ProcessMemory;

/// Offset of the pointer to the current sequence in a thread's `struct rseq`.
const CURRENT: u64 = 8;

/// Whether a thread is in a restartable sequence. False on Linux before 5.13, which does not tell.
pub(crate) fn is_in_critical_section(memory: &ProcessMemory, thread: &StoppedThread) -> bool {
    thread.is_in_user_code()
        && raw::rseq_address(thread.tid)
            .is_some_and(|area| contains(memory, area, thread.registers.rip))
}

/// Whether the current sequence of the thread with this `struct rseq` contains an address.
fn contains(memory: &ProcessMemory, area: u64, address: u64) -> bool {
    let [current] = memory.words(area.saturating_add(CURRENT), 1)[..] else { return false };
    if current == 0 {
        return false;
    }
    // Version and flags, start, size, address of the abort handler.
    match memory.words(current, 4)[..] {
        [_, start, size, _] => address.wrapping_sub(start) < size,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_contains_its_instructions_only() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let sequence = Box::new([0_u64, 0x1000, 0x20, 0x2000]);
        let mut area = Box::new([0_u64; 4]);
        let is_inside = |area: &[u64; 4], at| contains(&memory, area.as_ptr() as u64, at);
        assert!(!is_inside(&area, 0x1000), "none is current");
        area[1] = sequence.as_ptr() as u64;
        assert!(is_inside(&area, 0x1000) && is_inside(&area, 0x101f));
        assert!(!is_inside(&area, 0x0fff) && !is_inside(&area, 0x1020));
        area[1] = 8;
        assert!(!is_inside(&area, 0x1000), "unreadable");
    }
}
