//! Events that sample: periods that vary, so that what is sampled does not fall into step with them, and shared buffers.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;
use perf_event::Counter;
use perf_event_open_sys::ioctls;

/// How long a period stays.
const INTERVAL: Duration = Duration::from_millis(200);

/// The part by which a rate is above or below the mean at most.
const SPREAD: f64 = 0.3;

/// The golden ratio's fraction: its multiples fill an interval evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_8;

/// The period of clock events that sample CPUs.
///
/// With a constant one, a client and a server that wait for each other fall into step with the interrupts: each of
/// them delays one of both, and the next hits the same part of their work again. What a server does for 20 µs per
/// request then has, from run to run, almost none or twice its samples.
pub struct VaryingPeriod {
    mean: Nanos,
    changes: u32,
    changed: Option<Instant>,
}

impl VaryingPeriod {
    /// Periods around this one: as many samples are taken as with it. They begin elsewhere in each process, so that those
    /// of short ones are not always the same.
    pub fn around(mean: Nanos) -> Self {
        Self { mean, changes: std::process::id(), changed: None }
    }

    /// Gives the events other periods if they have had theirs for a while. Each starts anew, so this is not to be
    /// called before each sample.
    pub fn vary<'a>(&mut self, events: impl Iterator<Item = &'a Counter>) -> io::Result<()> {
        if self.changed.is_some_and(|changed| changed.elapsed() < INTERVAL) {
            return Ok(());
        }
        for event in events {
            let period = period(self.mean, self.changes).as_nanos();
            self.changes = self.changes.wrapping_add(1);
            // SAFETY: the kernel reads the number at this address before the call returns.
            if unsafe { ioctls::PERIOD(event.as_raw_fd(), (&raw const period) as u64) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        self.changed = Some(Instant::now());
        Ok(())
    }
}

/// The period with this number: rates are spread evenly around the mean one.
fn period(mean: Nanos, number: u32) -> Nanos {
    let place = (f64::from(number) * GOLDEN).fract();
    let relative_rate = 1.0 + SPREAD * (2.0 * place - 1.0);
    Nanos::from_nanos((mean.as_nanos() as f64 / relative_rate).round().max(1.0) as u64)
}

/// Lets an event write to the ring buffer of another event on the same CPU.
pub fn share_buffer(counter: &Counter, of: &Counter) -> io::Result<()> {
    // SAFETY: the argument is a file descriptor.
    match unsafe { ioctls::SET_OUTPUT(counter.as_raw_fd(), of.as_raw_fd()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use perf_event::Builder;
    use perf_event::events::Software;

    use super::*;

    #[test]
    fn rates_are_spread_evenly_around_the_mean() {
        let mean = Nanos::from_nanos(1_003_009);
        let rates: Vec<f64> =
            (0..1_000).map(|at| 1_003_009.0 / period(mean, at).as_nanos() as f64).collect();
        assert!((rates.iter().sum::<f64>() / 1e3 - 1.0).abs() < 1e-3);
        for from in [0.7, 0.85, 1.0, 1.15] {
            let inside = rates.iter().filter(|rate| (from..from + 0.15).contains(*rate)).count();
            assert!((245..=255).contains(&inside), "{inside} from {from}");
        }
        assert_eq!(period(Nanos::ZERO, 7), Nanos::from_nanos(1));
    }

    #[test]
    fn period_of_an_event_is_changed_after_a_while() {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        let Ok(event) = builder.exclude_kernel(true).sample_period(1_000_000).build() else {
            return dbdyno_fuzz::skip("perf events are not permitted here");
        };
        let mut varying =
            VaryingPeriod { changes: 0, ..VaryingPeriod::around(Nanos::from_millis(1)) };
        varying.vary([&event].into_iter()).unwrap();
        varying.vary([&event].into_iter()).unwrap();
        assert_eq!(varying.changes, 1, "of a call that came too early");
        varying.changed = Instant::now().checked_sub(INTERVAL);
        varying.vary([&event, &event].into_iter()).unwrap();
        assert_eq!(varying.changes, 3);
    }
}
