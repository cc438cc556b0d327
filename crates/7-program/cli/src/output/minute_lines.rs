//! Progress lines for a log file: one for each minute in which nothing else was printed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

/// Longest time without a line.
const INTERVAL: Duration = Duration::from_secs(60);

/// Prints the current status once a minute, from a thread: some stages report nothing while they run.
pub struct MinuteLines {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

impl MinuteLines {
    /// Starts the thread; `print` receives each line. Without a thread, no lines are printed.
    pub fn start(print: impl Fn(&str) + Send + 'static) -> Self {
        let state = Mutex::new(State::new(Instant::now()));
        let shared = Arc::new(Shared { state, stopped: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || of_thread.run(print)).ok();
        Self { shared, thread }
    }

    /// Sets the status.
    pub fn set_status(&self, status: &str) {
        self.shared.lock().set_status(status, Instant::now());
    }

    /// Notes that another line was printed.
    pub fn printed(&self) {
        self.shared.lock().printed = Instant::now();
    }
}

impl Drop for MinuteLines {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, print: impl Fn(&str)) {
        let mut state = self.lock();
        while !state.is_stopped {
            let wait = state.until_due(Instant::now());
            let waited = self.stopped.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(line) = state.due(Instant::now()) {
                print(&line);
            }
        }
    }
}

/// The current status, and when a line was last printed.
struct State {
    status: String,
    /// When the stage or microbenchmark of the status began.
    since: Instant,
    printed: Instant,
    is_stopped: bool,
}

impl State {
    const fn new(now: Instant) -> Self {
        Self { status: String::new(), since: now, printed: now, is_stopped: false }
    }

    /// Sets the status. Its text before a colon names the stage or microbenchmark.
    fn set_status(&mut self, status: &str, now: Instant) {
        if stage(status) != stage(&self.status) {
            self.since = now;
        }
        status.clone_into(&mut self.status);
    }

    /// Time until a line is due.
    fn until_due(&self, now: Instant) -> Duration {
        INTERVAL.saturating_sub(now.saturating_duration_since(self.printed))
    }

    /// The line to print now, if one is due.
    fn due(&mut self, now: Instant) -> Option<String> {
        if self.is_stopped || !self.until_due(now).is_zero() {
            return None;
        }
        self.printed = now;
        let elapsed = Nanos::from_secs(now.saturating_duration_since(self.since).as_secs());
        let status = &self.status;
        (!status.is_empty()).then(|| format!("{status} ({elapsed} so far)"))
    }
}

fn stage(status: &str) -> &str {
    status.split(": ").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_due_after_a_minute_without_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        assert_eq!(state.due(at(60)), None, "there is no status yet");
        state.set_status("[1/2] scan: block 3/90", at(70));
        assert_eq!(state.due(at(119)), None);
        state.set_status("[1/2] scan: block 9/90", at(125));
        assert_eq!(state.due(at(130)).unwrap(), "[1/2] scan: block 9/90 (60 s so far)");
        assert_eq!(state.due(at(131)), None);
        state.printed = at(150);
        assert_eq!(state.due(at(200)), None, "another line was printed");
        state.set_status("settling", at(205));
        assert_eq!(state.due(at(210)).unwrap(), "settling (5 s so far)");
        state.is_stopped = true;
        assert_eq!(state.due(at(900)), None);
    }

    #[test]
    fn thread_ends_when_dropped() {
        let started = Instant::now();
        drop(MinuteLines::start(|_| {}));
        assert!(started.elapsed() < INTERVAL);
    }
}
