//! Waiting for another connection's lock.
//!
//! SQLite's own busy timeout sleeps 1 to 100 ms between tries, longer than a slice's transactions
//! take: throughput would measure the naps. This one starts with a few microseconds.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// After this much waiting for one lock the statement fails as busy.
const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_NAP: Duration = Duration::from_micros(5);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// What the busy handler of one connection keeps.
#[derive(Debug, Default)]
pub(super) struct BusyState {
    retries: Cell<u64>,
    waited: Cell<Duration>,
}

impl BusyState {
    pub(super) fn retries(&self) -> u64 {
        self.retries.get()
    }

    /// Naps before the next try, or says that it is enough.
    fn wait(&self, tries_so_far: u32) -> bool {
        if tries_so_far == 0 {
            self.waited.set(Duration::ZERO);
        }
        if self.waited.get() >= PATIENCE {
            return false;
        }
        let nap = FIRST_NAP.saturating_mul(1 << tries_so_far.min(16)).min(LONGEST_NAP);
        std::thread::sleep(nap);
        self.waited.set(self.waited.get() + nap);
        self.retries.set(self.retries.get() + 1);
        true
    }
}

/// The callback for `sqlite3_busy_handler`.
///
/// # Safety
/// `state` must point to the connection's [`BusyState`].
pub(super) unsafe extern "C" fn callback(state: *mut c_void, tries_so_far: c_int) -> c_int {
    // SAFETY: the connection registered its own state, which outlives the handle; SQLite calls
    // back on the thread that uses the connection.
    let state = unsafe { &*state.cast::<BusyState>() };
    c_int::from(state.wait(u32::try_from(tries_so_far).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_and_are_counted() {
        let state = BusyState::default();
        assert!(state.wait(0));
        assert!(state.wait(1));
        assert_eq!(state.retries(), 2);
        assert_eq!(state.waited.get(), FIRST_NAP * 3);
    }

    #[test]
    fn patience_ends() {
        let state = BusyState::default();
        state.waited.set(PATIENCE);
        assert!(!state.wait(7));
        assert_eq!(state.retries(), 0);
    }
}
