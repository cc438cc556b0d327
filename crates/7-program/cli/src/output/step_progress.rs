//! Progress of one step of a command that takes seconds: a status line on a terminal. Elsewhere the message before
//! the step tells how long it takes.

use std::time::{Duration, Instant};

use dbdyno_units::Nanos;
use indicatif::ProgressBar;

use super::display::coarse;

/// A status line with the share that is done and the time left. It is erased when this is dropped.
pub struct StepProgress {
    bar: ProgressBar,
    name: String,
    started: Instant,
}

impl StepProgress {
    /// Starts a step.
    pub fn start(name: &str) -> Self {
        let bar = super::status_line().with_message(name.to_owned());
        Self { bar, name: name.to_owned(), started: Instant::now() }
    }

    /// Shows the progress of a step that takes this time in all.
    pub fn time_passes(&self, total: Duration) {
        self.show(self.started.elapsed().as_secs_f64() / total.as_secs_f64());
    }

    fn show(&self, share: f64) {
        self.bar.set_message(text(&self.name, share, self.started.elapsed()));
        self.bar.tick();
    }
}

/// The status line after this time.
fn text(name: &str, share: f64, elapsed: Duration) -> String {
    if share <= 0.0 {
        return name.to_owned();
    }
    if share >= 1.0 {
        return format!("{name}: 100%");
    }
    let left = elapsed.mul_f64(1.0 / share - 1.0);
    format!("{name}: {:.0}%, {} left", share * 100.0, coarse(Nanos::from(left)))
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        super::set_progress_line(None);
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_in_proportion_to_what_is_done() {
        let after = |share, seconds| text("sampling", share, Duration::from_secs(seconds));
        assert_eq!(after(0.0, 0), "sampling");
        assert_eq!(after(0.25, 10), "sampling: 25%, 30 s left");
        assert_eq!(after(1.5, 20), "sampling: 100%");
    }
}
