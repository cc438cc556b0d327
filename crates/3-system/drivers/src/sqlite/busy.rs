//! Waiting for another connection's lock.
//!
//! SQLite's busy timeout sleeps 1 to 100 ms between retries, longer than the transactions it waits for:
//! throughput would depend on the sleeps. This handler starts with a few microseconds.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Total wait for one lock, after which the statement fails with `SQLITE_BUSY`.
const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_SLEEP: Duration = Duration::from_micros(5);
const MAX_SLEEP: Duration = Duration::from_millis(1);

/// State of a connection's busy handler.
#[derive(Debug, Default)]
pub(super) struct BusyState {
    retries: Cell<u64>,
    waited: Cell<Duration>,
}

impl BusyState {
    pub(super) fn retries(&self) -> u64 {
        self.retries.get()
    }

    /// Sleeps before the next retry; false if the timeout has expired.
    fn wait(&self, attempts: u32) -> bool {
        if attempts == 0 {
            self.waited.set(Duration::ZERO);
        }
        if self.waited.get() >= TIMEOUT {
            return false;
        }
        let sleep = FIRST_SLEEP.saturating_mul(1 << attempts.min(16)).min(MAX_SLEEP);
        std::thread::sleep(sleep);
        self.waited.set(self.waited.get() + sleep);
        self.retries.set(self.retries.get() + 1);
        true
    }
}

/// The callback for `sqlite3_busy_handler`.
///
/// # Safety
/// `state` must point to the connection's [`BusyState`].
pub(super) unsafe extern "C" fn callback(state: *mut c_void, attempts: c_int) -> c_int {
    // SAFETY: the connection registered its own state, which outlives the handle; SQLite calls
    // back on the thread that uses the connection.
    let state = unsafe { &*state.cast::<BusyState>() };
    c_int::from(state.wait(u32::try_from(attempts).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_and_are_counted() {
        let state = BusyState::default();
        assert!(state.wait(0));
        assert!(state.wait(1));
        assert_eq!(state.retries(), 2);
        assert_eq!(state.waited.get(), FIRST_SLEEP * 3);
    }

    #[test]
    fn timeout_ends_the_wait() {
        let state = BusyState::default();
        state.waited.set(TIMEOUT);
        assert!(!state.wait(7));
        assert_eq!(state.retries(), 0);
    }
}
