//! Progress on standard error.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use dbdyno_run::RunEvent;
use dbdyno_units::Nanos;

/// Shows the current step and the estimated time left.
///
/// On a terminal one line is updated; elsewhere a line is printed every ten seconds.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    last: Cell<Option<Instant>>,
    terminal: bool,
}

impl Progress {
    /// Starts the clock.
    #[must_use]
    pub fn start() -> Self {
        Self { started: Instant::now(), last: Cell::new(None), terminal: stderr().is_terminal() }
    }

    /// Shows the step `what`, with `share` (0 to 1) of all work done.
    pub fn show(&self, share: f64, what: &str) {
        let between =
            if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        if self.last.get().is_some_and(|last| last.elapsed() < between) {
            return;
        }
        self.last.set(Some(Instant::now()));
        let left = time_left(Nanos::from(self.started.elapsed()), share)
            .map_or_else(String::new, |left| format!(", {left} left"));
        let (start, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(stderr(), "{start}{:3.0}%{left}: {what}{end}", share * 100.0);
    }

    /// Shows the progress of the benchmark's only run.
    pub fn follow(&self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Stage(what) => self.show(0.0, what),
            RunEvent::Microbenchmark { number, of, name, passes: (pass, passes) } => {
                let done = (number - 1) as f64 / *of as f64;
                self.show((f64::from(pass - 1) + done) / f64::from(*passes), name);
            }
            _ => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// In whole seconds; `None` while too little is done for an estimate.
fn time_left(elapsed: Nanos, share: f64) -> Option<Nanos> {
    const ENOUGH: f64 = 0.005;
    let seconds = elapsed.as_secs_f64() * (1.0 - share) / share;
    (share >= ENOUGH).then(|| Nanos::from_secs_f64(seconds.ceil()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_extrapolated_from_the_share_done() {
        assert_eq!(time_left(Nanos::from_secs(30), 0.25), Some(Nanos::from_secs(90)));
        assert_eq!(time_left(Nanos::from_secs(30), 1.0), Some(Nanos::ZERO));
        assert_eq!(time_left(Nanos::from_secs(30), 0.0), None);
    }
}
