//! The cost of sampling: how much of a CPU's time its interrupts take.

use std::io;
use std::time::{Duration, Instant};

use dbdyno_machine::ThreadUsage;
use dbdyno_stats::median;
use dbdyno_units::{Nanos, Share};

use super::SampleSource;
use super::events::{EventOptions, Events};

/// Shortest gap between two readings of the clock that is an interrupt: a reading takes some 30 ns.
const SHORTEST_INTERRUPT: Duration = Duration::from_nanos(400);
/// Longest gap that is an interrupt: a longer one is another virtual machine's time on the CPU.
const LONGEST_INTERRUPT: Duration = Duration::from_micros(250);
/// Duration of one of the measurements whose median counts.
const TIME: Duration = Duration::from_millis(10);
/// Number of measurements without and with sampling.
const REPETITIONS: usize = 5;

/// The cost of sampling on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingCost {
    /// Time per sample.
    pub per_sample: Nanos,
    /// Share of a busy thread's time that other interrupts take.
    pub other: Share,
}

impl SamplingCost {
    /// Measures it in this thread, with and without sampling this thread only.
    ///
    /// # Errors
    /// The kernel does not permit sampling.
    pub(super) fn measure(options: EventOptions, cpus: &[usize]) -> io::Result<Self> {
        let own_thread = rustix::thread::gettid().as_raw_nonzero().get();
        let mut events = Events::for_threads(options, cpus, &[own_thread])?;
        let (mut other, mut all) = (Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            other.push(interrupted(TIME));
            events.enable()?;
            all.push(interrupted(TIME));
            events.disable()?;
        }
        let [other, all] = [other, all].map(|shares| median(&shares).unwrap_or_default());
        Ok(Self::of(other, all, options.frequency))
    }

    /// The cost from the share of time that interrupts take without and with sampling.
    fn of(other: f64, all: f64, frequency: u32) -> Self {
        let per_second = (all - other).max(0.0) / f64::from(frequency);
        let per_sample = Nanos::from(Duration::from_secs_f64(per_second));
        Self { per_sample, other: Share::from_fraction(other) }
    }

    /// Share of a busy CPU's time at a rate of samples per second.
    #[must_use]
    pub fn overhead(&self, frequency: u32) -> Share {
        Share::from_fraction(self.per_sample.as_secs_f64() * f64::from(frequency))
    }

    /// The present overhead, if all threads of the machine are sampled.
    pub(super) fn present_overhead(&self, time: Duration) -> Share {
        Share::from_fraction((interrupted(time) - self.other.as_fraction()).max(0.0))
    }
}

/// Share of this thread's time that interrupts take.
fn interrupted(time: Duration) -> f64 {
    let (mut own, mut lost) = (Duration::ZERO, Duration::ZERO);
    let switches = || ThreadUsage::now().context_switches;
    let mut switched = switches();
    let start = Instant::now();
    let mut last = start;
    while last - start < time {
        let now = Instant::now();
        let gap = now - last;
        last = now;
        if gap < SHORTEST_INTERRUPT {
            own += gap;
            continue;
        }
        // A gap in which another thread ran is not an interrupt.
        let before = std::mem::replace(&mut switched, switches());
        if switched == before && gap <= LONGEST_INTERRUPT {
            own += gap;
            lost += gap;
        }
        last = Instant::now();
    }
    if own.is_zero() { 0.0 } else { lost.as_secs_f64() / own.as_secs_f64() }
}

/// The source of samples and its cost on this machine, measured in this thread at a rate.
///
/// # Errors
/// The kernel permits no sampling.
pub(super) fn measure(frequency: u32, cpus: &[usize]) -> io::Result<(SampleSource, SamplingCost)> {
    let mut refused = None;
    for source in SampleSource::BEST_FIRST {
        match SamplingCost::measure(EventOptions { source, frequency }, cpus) {
            Ok(cost) => return Ok((source, cost)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_proportional_to_the_rate() {
        let cost = SamplingCost::of(0.01, 0.17, 8_000);
        assert_eq!(cost.per_sample, Nanos::from_micros(20));
        assert_eq!(cost.overhead(2_000).to_string(), "4%");
        // Interrupts that are rarer with sampling than without are noise.
        assert_eq!(SamplingCost::of(0.02, 0.01, 8_000).per_sample, Nanos::ZERO);
    }

    #[test]
    fn cost_of_a_sample_is_measured() {
        let (_, cost) = measure(7_999, &super::super::online_cpus().unwrap()).unwrap();
        let least = Nanos::from_nanos(50)..Nanos::from_micros(125);
        assert!(least.contains(&cost.per_sample), "{cost:?}");
    }
}
