//! What a load generator spends between two moments.

use std::io;

use dbdyno_machine::{CpuSet, Usage, clock};
use dbdyno_units::Nanos;

use crate::mode_samples::ModeSamples;

/// Measures a process that runs on some CPUs.
#[derive(Debug)]
pub struct Meter {
    pid: u32,
    usage: Usage,
    /// `None` where this user may not look at what runs.
    samples: Option<ModeSamples>,
    started: Nanos,
}

/// What a process did and spent in one or more stretches of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// CPU time in its own code.
    pub user: Nanos,
    /// CPU time in its own code and in the kernel, to the nanosecond.
    pub cpu: Nanos,
    /// Length of the stretches.
    pub wall: Nanos,
    /// Statements that it had executed.
    pub statements: u64,
}

impl Meter {
    /// Starts to measure the process `pid`, which runs on `cpus`.
    ///
    /// # Errors
    /// There is no such process.
    pub fn start(pid: u32, cpus: &CpuSet) -> io::Result<Self> {
        let samples = ModeSamples::start(cpus).ok();
        Ok(Self { pid, usage: Usage::of(pid)?, samples, started: clock::monotonic() })
    }

    /// Ends the measuring; the process has had so many `statements` executed.
    ///
    /// # Errors
    /// The process has ended.
    pub fn finish(self, statements: u64) -> io::Result<Spent> {
        let wall = clock::monotonic() - self.started;
        let used = Usage::of(self.pid)?.since(&self.usage);
        let user = match self.samples {
            Some(samples) => samples.finish(self.pid)?,
            None => used.user,
        };
        Ok(Spent { user, cpu: used.cpu, wall, statements })
    }

    /// Where the line between a process's own code and the kernel's comes from here.
    #[must_use]
    pub fn method(cpus: &CpuSet) -> &'static str {
        match ModeSamples::start(cpus) {
            Ok(_) => {
                "CPU time by the process's clock, its part in user mode by 5000 samples a second"
            }
            Err(_) => {
                "CPU time by the process's clock, its part in user mode by the kernel's ticks, which \
                 are few: run as root, or with kernel.perf_event_paranoid at 0, for a finer timer"
            }
        }
    }
}

impl Spent {
    /// Adds another stretch.
    pub fn add(&mut self, other: &Self) {
        self.user += other.user;
        self.cpu += other.cpu;
        self.wall += other.wall;
        self.statements += other.statements;
    }

    /// CPU time in its own code per statement, in µs.
    #[must_use]
    pub fn user_us(&self) -> f64 {
        self.us_per_statement(self.user)
    }

    /// CPU time per statement, in µs.
    #[must_use]
    pub fn cpu_us(&self) -> f64 {
        self.us_per_statement(self.cpu)
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
    fn stretches_add_up() {
        let second = |statements, micros| Spent {
            user: Nanos::from_micros(micros),
            cpu: Nanos::from_micros(4 * micros),
            wall: Nanos::from_secs(1),
            statements,
        };
        let mut spent = Spent::default();
        spent.add(&second(100, 500));
        spent.add(&second(300, 300));
        assert_eq!((spent.user_us(), spent.cpu_us(), spent.qps()), (2.0, 8.0, 200.0));
    }

    #[test]
    fn a_process_that_computes_spends_user_time() {
        let cpus = CpuSet::allowed().unwrap();
        let meter = Meter::start(std::process::id(), &cpus).unwrap();
        let started = clock::thread_cpu();
        while clock::thread_cpu() - started < Nanos::from_millis(60) {
            // Long stretches in user mode between the looks at the clock.
            (0..100_000).for_each(|n| {
                std::hint::black_box(n);
            });
        }
        let spent = meter.finish(1).unwrap();
        assert!(spent.cpu >= Nanos::from_millis(60), "{spent:?}");
        assert!(spent.user.as_secs_f64() > 0.5 * spent.cpu.as_secs_f64(), "{spent:?}");
    }
}
