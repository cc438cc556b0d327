//! CPU time and throughput of a load generator over a period of time.

use std::io;

use dbdyno_machine::{CpuSet, ProcessTree, ProcessTreeUsage, clock};
use dbdyno_units::Nanos;

use crate::mode_samples::ModeSamples;

/// Measures a process that is pinned to some CPUs.
pub struct Meter {
    pid: u32,
    process: ProcessTree,
    before: ProcessTreeUsage,
    /// `None` if this user may not sample CPUs.
    samples: Option<ModeSamples>,
    started: Nanos,
}

/// CPU time and statements of a process over one or more periods of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuCost {
    /// User CPU time.
    pub user: Nanos,
    /// User and system CPU time, to the nanosecond.
    pub cpu: Nanos,
    /// The part of it in which the process polled in vain.
    pub polling: Nanos,
    /// Wall-clock time.
    pub wall: Nanos,
    /// Statements executed.
    pub statements: u64,
}

impl Meter {
    /// Starts to measure the process `pid`, which is pinned to `cpus`.
    ///
    /// # Errors
    /// There is no such process.
    pub fn start(pid: u32, cpus: &CpuSet) -> io::Result<Self> {
        let samples = ModeSamples::start(cpus).ok();
        let mut process = ProcessTree::of(pid)?;
        let before = process.read()?;
        Ok(Self { pid, process, before, samples, started: clock::monotonic() })
    }

    /// Ends the measurement, in which `statements` were executed.
    ///
    /// # Errors
    /// The process has ended.
    pub fn finish(mut self, statements: u64) -> io::Result<CpuCost> {
        let wall = clock::monotonic() - self.started;
        let used = self.process.read()?.since(&self.before);
        let user = match self.samples {
            Some(samples) => samples.finish(self.pid)?,
            None => used.user,
        };
        Ok(CpuCost { user, cpu: used.cpu, polling: Nanos::ZERO, wall, statements })
    }

    /// How user CPU time is measured on this machine.
    #[must_use]
    pub fn method(cpus: &CpuSet) -> &'static str {
        match ModeSamples::start(cpus) {
            Ok(_) => "CPU time by the process's clock; user CPU time by 5000 samples a second",
            Err(_) => {
                "CPU time by the process's clock; user CPU time by the kernel's ticks, which is \
                 coarse: run as root, or set kernel.perf_event_paranoid to 0, for a finer timer"
            }
        }
    }
}

impl CpuCost {
    /// Adds another period.
    pub fn add(&mut self, other: &Self) {
        self.user += other.user;
        self.cpu += other.cpu;
        self.polling += other.polling;
        self.wall += other.wall;
        self.statements += other.statements;
    }

    /// User CPU time per statement, in µs.
    #[must_use]
    pub fn user_us(&self) -> f64 {
        self.us_per_statement(self.user)
    }

    /// User and system CPU time per statement without polling, in µs.
    #[must_use]
    pub fn work_us(&self) -> f64 {
        self.us_per_statement(self.cpu.saturating_sub(self.polling))
    }

    /// Statements per second.
    #[must_use]
    pub fn qps(&self) -> f64 {
        self.statements as f64 / self.wall.as_secs_f64()
    }

    fn us_per_statement(&self, time: Nanos) -> f64 {
        time.as_secs_f64() * 1e6 / self.statements as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_add_up() {
        let second = |statements, micros| CpuCost {
            user: Nanos::from_micros(micros),
            cpu: Nanos::from_micros(6 * micros),
            polling: Nanos::from_micros(2 * micros),
            wall: Nanos::from_secs(1),
            statements,
        };
        let mut cost = CpuCost::default();
        cost.add(&second(100, 500));
        cost.add(&second(300, 300));
        assert_eq!((cost.user_us(), cost.work_us(), cost.qps()), (2.0, 8.0, 200.0));
    }

    #[test]
    fn computing_process_uses_user_time() {
        let cpus = CpuSet::allowed().unwrap();
        let meter = Meter::start(std::process::id(), &cpus).unwrap();
        let started = clock::thread_cpu();
        while clock::thread_cpu() - started < Nanos::from_millis(60) {
            // Long periods in user mode between readings of the clock.
            (0..100_000).for_each(|n| {
                std::hint::black_box(n);
            });
        }
        let cost = meter.finish(1).unwrap();
        assert!(cost.cpu >= Nanos::from_millis(60), "{cost:?}");
        assert!(cost.user.as_secs_f64() > 0.5 * cost.cpu.as_secs_f64(), "{cost:?}");
    }
}
