//! How much CPU time the work of a process takes, without knowing its work.
//!
//! A thread of a server waits for its client after each request, so voluntary context switches are about
//! proportional to the work done.

use std::collections::HashMap;
use std::fs;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Minimum number of waits from which on the time per wait is used.
const MIN_WAITS: u64 = 100;

/// CPU time and waits of a process in some period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) time: Duration,
    pub(super) cpu: Duration,
    pub(super) waits: u64,
}

impl Work {
    /// Whether there were enough waits.
    pub(super) fn is_countable(self) -> bool {
        self.waits >= MIN_WAITS && !self.cpu.is_zero()
    }

    /// CPU time in seconds per wait; `None` if there were too few.
    fn per_wait(self) -> Option<f64> {
        self.is_countable().then(|| self.cpu.as_secs_f64() / self.waits as f64)
    }

    /// CPU time per wait, relative to that in another period. `None`: unknown.
    pub(super) fn relative_to(self, other: Self) -> Option<f64> {
        let before = other.per_wait()?;
        // Few waits may be due to the counters themselves, so they are used, too.
        let now = self.cpu.as_secs_f64() / self.waits.max(1) as f64;
        (!self.cpu.is_zero()).then_some(now / before)
    }

    /// Mean number of CPUs in use.
    pub(super) fn cpus(self) -> f64 {
        self.cpu.as_secs_f64() / self.time.as_secs_f64().max(1e-9)
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.cpu += other.cpu;
        self.waits += other.waits;
    }
}

/// CPU time in nanoseconds and waits of each thread so far.
pub(super) struct WorkSnapshot {
    at: Instant,
    threads: HashMap<String, (u64, u64)>,
}

impl WorkSnapshot {
    /// Reads the threads of a process. A thread that has exited is left out.
    pub(super) fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let thread = |task: fs::DirEntry| {
            let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let name = task.file_name().to_string_lossy().into_owned();
            Some((name, (first_number(&times)?, waits(&status)?)))
        };
        Self { at: Instant::now(), threads: tasks.filter_map(thread).collect() }
    }

    /// What the threads that also exist now have done since.
    pub(super) fn until_now(self, pid: u32) -> Work {
        let now = Self::of(pid);
        let mut work = Work { time: now.at - self.at, ..Work::default() };
        for (name, (cpu, waits)) in &now.threads {
            if let Some((cpu_before, waits_before)) = self.threads.get(name) {
                work.cpu += Duration::from_nanos(cpu.saturating_sub(*cpu_before));
                work.waits += waits.saturating_sub(*waits_before);
            }
        }
        work
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn waits(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_is_measured() {
        let before = WorkSnapshot::of(std::process::id());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::black_box(start);
        }
        (0..150).for_each(|_| std::thread::sleep(Duration::from_micros(10)));
        let work = before.until_now(std::process::id());
        assert!(work.cpu >= Duration::from_millis(5) && work.waits >= 100, "{work:?}");
        assert!(work.relative_to(work) == Some(1.0) && work.cpus() > 0.0, "{work:?}");
    }

    #[test]
    fn time_per_wait_is_unknown_if_there_were_few_waits_before() {
        let work =
            |waits| Work { time: Duration::from_secs(1), cpu: Duration::from_secs(1), waits };
        assert_eq!(work(500).relative_to(work(99)), None);
        assert_eq!(work(500).relative_to(work(1_000)), Some(2.0));
        // A process that hardly waits any more is slow.
        assert_eq!(work(10).relative_to(work(1_000)), Some(100.0));
        assert_eq!(work(0).relative_to(work(1_000)), Some(1_000.0));
        assert_eq!(Work { waits: 1, ..Work::default() }.relative_to(work(1_000)), None);
    }
}
