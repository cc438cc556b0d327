//! The time that a build has taken, over all attempts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

/// The time of a build in progress is stored this often, so that it outlives a kill.
const EVERY: Duration = Duration::from_secs(1);

/// Measures the time of a build that may be interrupted and resumed.
pub(crate) struct CompileTime {
    path: Option<PathBuf>,
    before: Nanos,
    start: Instant,
    stored: Instant,
}

impl CompileTime {
    /// Continues from the time that is stored beside `done`, the file with the completed steps. Without
    /// a path, nothing is stored.
    pub(crate) fn start(done: Option<&Path>) -> Self {
        let path = done.map(beside);
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let before =
            text.and_then(|text| text.trim().parse().ok()).map_or(Nanos::ZERO, Nanos::from_nanos);
        let start = Instant::now();
        Self { path, before, start, stored: start }
    }

    /// The time of all attempts.
    pub(crate) fn total(&self) -> Nanos {
        self.before + Nanos::from(self.start.elapsed())
    }

    /// Stores the time if that was not done lately. A failure is not an error of the build.
    pub(crate) fn store_sometimes(&mut self) {
        if self.stored.elapsed() >= EVERY {
            self.store();
        }
    }

    /// Stores the time.
    pub(crate) fn store(&mut self) {
        self.stored = Instant::now();
        let Some(path) = &self.path else { return };
        if let Err(error) = fs::write(path, self.total().as_nanos().to_string()) {
            tracing::warn!(path = %path.display(), %error, "the compile time is not stored");
        }
    }

    /// Forgets the time stored beside `done`: the next attempt starts from nothing.
    pub(crate) fn forget(done: &Path) {
        let _ = fs::remove_file(beside(done));
    }
}

fn beside(done: &Path) -> PathBuf {
    done.with_file_name("time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_earlier_attempts_is_included_until_the_build_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let done = dir.path().join("done");
        fs::write(beside(&done), "5000000000").unwrap();
        let (five, minute) = (Nanos::from_secs(5), Nanos::from_secs(60));
        let mut time = CompileTime::start(Some(&done));
        assert!(time.total() >= five && time.total() < minute);
        time.store();
        assert!(CompileTime::start(Some(&done)).total() >= five);
        CompileTime::forget(&done);
        assert!(CompileTime::start(Some(&done)).total() < five);
        assert!(CompileTime::start(None).total() < five);
    }
}
