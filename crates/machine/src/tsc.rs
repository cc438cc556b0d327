//! Ticks: the cheapest clock there is, for timing single events.
//!
//! A query that takes under a microsecond cannot afford two calls of the system's clock.
//! Reading the CPU's own counter costs some 10 ns and no branch. Its unit is whatever the CPU
//! says, so a [`Calibration`] converts differences of ticks into time, after the hot loop.
//!
//! The hot loop is generic over [`TickSource`]; [`Ticks::run`] picks the source once and calls
//! the loop's copy for it, so that no branch on the source is left inside.

use std::thread;
use std::time::Duration;

use dbdyno_units::Nanos;

use crate::clock;

/// A source of ticks, a type without values: which one is used is known at compile time.
pub trait TickSource: Copy + Send + Sync + 'static {
    /// What reports call it.
    const NAME: &'static str;

    /// Whether its ticks are of one length, on every CPU, in every power state.
    fn is_reliable() -> bool;

    /// The ticks since some fixed moment.
    ///
    /// Neither source waits for earlier instructions to finish: an event of a few nanoseconds
    /// may seem shorter or longer by a handful. A fence would cost more than it corrects for
    /// events of a microsecond.
    fn now() -> u64;
}

/// The CPU's constant-rate counter: the time stamp counter on x86-64, `cntvct_el0` on aarch64.
#[derive(Clone, Copy, Debug)]
pub struct Tsc;

impl TickSource for Tsc {
    const NAME: &'static str = if cfg!(target_arch = "x86_64") { "tsc" } else { "cntvct" };

    #[cfg(target_arch = "x86_64")]
    fn is_reliable() -> bool {
        use std::arch::x86_64::__cpuid;
        // "Invariant TSC" is what Linux shows as constant_tsc and nonstop_tsc. A hypervisor that
        // may move the guest to a machine of another frequency hides it.
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT
            && __cpuid(POWER_MANAGEMENT).edx & INVARIANT_TSC != 0
    }

    #[cfg(target_arch = "aarch64")]
    fn is_reliable() -> bool {
        // The architecture promises one rate for all CPUs, asleep or not.
        true
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_reliable() -> bool {
        false
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn now() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction; Linux forbids it to a process only on
        // that process's own request (prctl PR_SET_TSC).
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn now() -> u64 {
        let ticks: u64;
        // SAFETY: Linux lets user programs read the virtual counter; reading has no effect.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    #[inline(always)]
    fn now() -> u64 {
        MonotonicTicks::now()
    }
}

/// The system's monotonic clock as ticks of one nanosecond: dearer, and right everywhere.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicTicks;

impl TickSource for MonotonicTicks {
    const NAME: &'static str = "monotonic";

    fn is_reliable() -> bool {
        true
    }

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

    /// Measures a source against the monotonic clock, sleeping for `duration` meanwhile.
    ///
    /// Each end is known to about 30 ns: 10 ms give about 6 parts in a million. The result is
    /// [`Calibration::NANOS`] where not a tick or not a nanosecond passed.
    #[must_use]
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

    /// Ticks in a nanosecond; also the counter's frequency in gigahertz.
    #[must_use]
    pub const fn ticks_per_nano(self) -> f64 {
        self.ticks_per_nano
    }

    /// The time that `ticks` took, rounded to a nanosecond.
    #[must_use]
    pub fn to_nanos(self, ticks: u64) -> Nanos {
        Nanos::from_nanos((ticks as f64 / self.ticks_per_nano).round() as u64)
    }

    /// The ticks that `time` takes, rounded: for a deadline to compare ticks with.
    #[must_use]
    pub fn to_ticks(self, time: Nanos) -> u64 {
        (time.as_nanos() as f64 * self.ticks_per_nano).round() as u64
    }
}

/// The same moment on both clocks: of several readings, the one that took least, since a longer
/// one was interrupted.
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

/// A computation that reads ticks, to be compiled once for each source.
pub trait WithTicks {
    /// What it returns.
    type Output;

    /// Runs it with the ticks of `T`, whose length `calibration` says.
    fn run<T: TickSource>(self, calibration: Calibration) -> Self::Output;
}

/// The source of ticks chosen for this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ticks {
    /// [`Tsc`], calibrated.
    Tsc(Calibration),
    /// [`MonotonicTicks`].
    Monotonic,
}

impl Ticks {
    /// The CPU's counter where it is reliable, calibrated for `duration`; else the clock.
    #[must_use]
    pub fn choose(duration: Duration) -> Self {
        if Tsc::is_reliable() {
            Self::Tsc(Calibration::measure::<Tsc>(duration))
        } else {
            Self::Monotonic
        }
    }

    /// What reports call the source.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tsc(_) => Tsc::NAME,
            Self::Monotonic => MonotonicTicks::NAME,
        }
    }

    /// The length of the source's ticks.
    #[must_use]
    pub const fn calibration(self) -> Calibration {
        match self {
            Self::Tsc(calibration) => calibration,
            Self::Monotonic => Calibration::NANOS,
        }
    }

    /// Runs `work` with the chosen source.
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

    /// How long a sleep took, on both clocks.
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
    fn both_sources_agree_with_the_clock() {
        for ticks in [Ticks::choose(Duration::from_millis(20)), Ticks::Monotonic] {
            let (by_ticks, by_clock) = ticks.run(Sleep(Duration::from_millis(20)));
            let off = (by_ticks.as_secs_f64() / by_clock.as_secs_f64() - 1.0).abs();
            // Loose on purpose: the test may share its CPU with a whole build.
            assert!(off < 0.01, "{}: {by_ticks} against {by_clock}", ticks.name());
        }
    }

    #[test]
    fn ticks_never_go_back() {
        let mut last = Tsc::now();
        for _ in 0..10_000 {
            let now = Tsc::now();
            assert!(now >= last || !Tsc::is_reliable());
            last = now;
        }
    }

    #[test]
    fn converts_both_ways() {
        let calibration = Calibration { ticks_per_nano: 2.5 };
        assert_eq!(calibration.to_nanos(2_500), Nanos::from_micros(1));
        assert_eq!(calibration.to_ticks(Nanos::from_micros(1)), 2_500);
        assert_eq!(Calibration::NANOS.to_nanos(7), Nanos::from_nanos(7));
    }
}
