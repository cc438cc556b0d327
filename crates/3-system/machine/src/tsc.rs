//! Ticks: the fastest clock, for timing single events.
//!
//! For a query of less than a microsecond, two calls of the system clock would be too expensive.
//! Reading the CPU's counter takes about 10 ns without a branch. Its unit depends on the CPU; a
//! [`Calibration`] converts differences of ticks to time after the hot loop.
//!
//! The hot loop is generic over [`TickSource`]; [`Ticks::run`] selects the source once and calls
//! the instance of the loop for it, so that the loop does not branch on the source.

use std::thread;
use std::time::Duration;

use dbdyno_units::Nanos;

use crate::clock;

/// A source of ticks, as a type without values, so that the source is known at compile time.
pub trait TickSource: Copy + Send + Sync + 'static {
    /// The ticks since a fixed point in time.
    ///
    /// The sources do not wait for earlier instructions to complete: an event may appear a few
    /// nanoseconds shorter or longer. For events of a microsecond, a fence would cost more than it
    /// corrects.
    fn now() -> u64;
}

/// The CPU's constant-rate counter: the time stamp counter on x86-64, `cntvct_el0` on aarch64.
#[derive(Clone, Copy, Debug)]
pub struct Tsc;

impl Tsc {
    /// Whether ticks have the same length on every CPU and in every power state.
    #[cfg(target_arch = "x86_64")]
    fn is_reliable() -> bool {
        use std::arch::x86_64::__cpuid;
        // Linux shows "Invariant TSC" as constant_tsc and nonstop_tsc. A hypervisor that may move
        // the guest to a machine with another frequency hides it.
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT
            && __cpuid(POWER_MANAGEMENT).edx & INVARIANT_TSC != 0
    }

    #[cfg(target_arch = "aarch64")]
    fn is_reliable() -> bool {
        // The architecture guarantees one rate for all CPUs, including sleep states.
        true
    }
}

impl TickSource for Tsc {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn now() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction; Linux disables it only for processes that
        // request it (prctl PR_SET_TSC).
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn now() -> u64 {
        let ticks: u64;
        // SAFETY: Linux allows user programs to read the virtual counter; reading has no side
        // effect.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
}

/// The system's monotonic clock as ticks of one nanosecond: slower, but always reliable.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicTicks;

impl TickSource for MonotonicTicks {
    #[inline(always)]
    fn now() -> u64 {
        clock::monotonic().as_nanos()
    }
}

/// The length of a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    ticks_per_nano: f64,
}

impl Calibration {
    /// Ticks of one nanosecond.
    pub const NANOS: Self = Self { ticks_per_nano: 1.0 };

    /// Calibrate a source against the monotonic clock, sleeping for `duration`.
    ///
    /// Each end has an error of about 30 ns, so 10 ms give about 6 parts per million. The result is
    /// [`Calibration::NANOS`] if either clock did not advance.
    pub fn measure<T: TickSource>(duration: Duration) -> Self {
        let (start_ticks, start) = moment::<T>();
        thread::sleep(duration);
        let (end_ticks, end) = moment::<T>();
        let ticks = end_ticks.saturating_sub(start_ticks);
        let time = end.saturating_sub(start).as_nanos();
        if ticks == 0 || time == 0 {
            return Self::NANOS;
        }
        Self { ticks_per_nano: ticks as f64 / time as f64 }
    }

    /// The duration of `ticks`, rounded to a nanosecond.
    pub fn to_nanos(self, ticks: u64) -> Nanos {
        Nanos::from_nanos((ticks as f64 / self.ticks_per_nano).round() as u64)
    }

    /// The number of ticks in `time`, rounded; for comparing ticks with a deadline.
    pub fn to_ticks(self, time: Nanos) -> u64 {
        (time.as_nanos() as f64 * self.ticks_per_nano).round() as u64
    }
}

/// Both clocks at the same time: the fastest of several readings, since slower ones may have been
/// interrupted.
fn moment<T: TickSource>() -> (u64, Nanos) {
    let mut best = (u64::MAX, 0, Nanos::ZERO);
    for _ in 0..16 {
        let before = T::now();
        let time = clock::monotonic();
        let width = T::now().saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, time);
        }
    }
    (best.1, best.2)
}

/// A computation that reads ticks and is compiled once per source.
pub trait WithTicks {
    type Output;

    /// Run with the ticks of `T`, whose length is in `calibration`.
    fn run<T: TickSource>(self, calibration: Calibration) -> Self::Output;
}

/// The source of ticks selected for this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ticks {
    /// [`Tsc`], calibrated.
    Tsc(Calibration),
    Monotonic,
}

impl Ticks {
    /// The CPU's counter if it is reliable, calibrated for `duration`; otherwise the system clock.
    pub fn choose(duration: Duration) -> Self {
        if Tsc::is_reliable() {
            Self::Tsc(Calibration::measure::<Tsc>(duration))
        } else {
            Self::Monotonic
        }
    }

    pub const fn calibration(self) -> Calibration {
        match self {
            Self::Tsc(calibration) => calibration,
            Self::Monotonic => Calibration::NANOS,
        }
    }

    /// Run `work` with the selected source.
    pub fn run<W: WithTicks>(self, work: W) -> W::Output {
        match self {
            Self::Tsc(calibration) => work.run::<Tsc>(calibration),
            Self::Monotonic => work.run::<MonotonicTicks>(Calibration::NANOS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures a sleep with both clocks.
    struct Sleep(Duration);

    impl WithTicks for Sleep {
        type Output = (Nanos, Nanos);

        fn run<T: TickSource>(self, calibration: Calibration) -> (Nanos, Nanos) {
            let (start_ticks, start) = moment::<T>();
            thread::sleep(self.0);
            let (end_ticks, end) = moment::<T>();
            (calibration.to_nanos(end_ticks - start_ticks), end - start)
        }
    }

    #[test]
    fn both_sources_match_the_monotonic_clock() {
        for ticks in [Ticks::choose(Duration::from_millis(20)), Ticks::Monotonic] {
            let (by_ticks, by_clock) = ticks.run(Sleep(Duration::from_millis(20)));
            let off = (by_ticks.as_secs_f64() / by_clock.as_secs_f64() - 1.0).abs();
            // The limit is high because other load on this CPU may interrupt the test.
            assert!(off < 0.01, "{ticks:?}: {by_ticks} against {by_clock}");
        }
    }

    #[test]
    fn ticks_do_not_decrease() {
        let mut last = Tsc::now();
        for _ in 0..10_000 {
            let now = Tsc::now();
            assert!(now >= last || !Tsc::is_reliable());
            last = now;
        }
    }

    #[test]
    fn ticks_and_time_convert_in_both_directions() {
        let calibration = Calibration { ticks_per_nano: 2.5 };
        assert_eq!(calibration.to_nanos(2_500), Nanos::from_micros(1));
        assert_eq!(calibration.to_ticks(Nanos::from_micros(1)), 2_500);
        assert_eq!(Calibration::NANOS.to_nanos(7), Nanos::from_nanos(7));
    }
}
