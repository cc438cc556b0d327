//! Retries while a process is too busy to be stopped.

use std::thread;
use std::time::Duration;

/// Maximum number of retries.
const RETRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// Calls `operation` until it succeeds or fails with an error that is not transient, with a limited
/// number of retries. Also returns the number of retries.
///
/// # Errors
/// The last error of `operation`.
pub fn retry_while_busy<T, E>(
    mut operation: impl FnMut() -> Result<T, E>,
    is_transient: impl Fn(&E) -> bool,
) -> (Result<T, E>, u32) {
    for retries in 0..RETRIES {
        match operation() {
            Err(error) if is_transient(&error) => thread::sleep(PAUSE),
            outcome => return (outcome, retries),
        }
    }
    (operation(), RETRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_are_retried_and_others_are_not() {
        let mut left = 2;
        let mut operation = || {
            left -= 1;
            if left > 0 { Err("busy") } else { Ok(left) }
        };
        assert_eq!(retry_while_busy(&mut operation, |error| *error == "busy"), (Ok(0), 1));
        let failing = || Err::<(), _>("exited");
        assert_eq!(retry_while_busy(failing, |error| *error == "busy"), (Err("exited"), 0));
    }
}
