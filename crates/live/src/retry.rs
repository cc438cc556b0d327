//! Trying again while a process is too busy to be stopped.

use std::thread;
use std::time::Duration;

/// How often it is tried again.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// Does something as soon as it can be done; also how often the process was too busy.
///
/// # Errors
/// Those of `work` that are not passing, and the last one that is.
pub fn retry_while_busy<T, E>(
    mut work: impl FnMut() -> Result<T, E>,
    is_transient: impl Fn(&E) -> bool,
) -> (Result<T, E>, u32) {
    for refused in 0..ATTEMPTS {
        match work() {
            Err(error) if is_transient(&error) => thread::sleep(PAUSE),
            outcome => return (outcome, refused),
        }
    }
    (work(), ATTEMPTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_nothing_else() {
        let mut left = 2;
        let mut work = || {
            left -= 1;
            if left > 0 { Err("busy") } else { Ok(left) }
        };
        assert_eq!(retry_while_busy(&mut work, |error| *error == "busy"), (Ok(0), 1));
        assert_eq!(
            retry_while_busy(|| Err::<(), _>("gone"), |error| *error == "busy"),
            (Err("gone"), 0)
        );
    }
}
