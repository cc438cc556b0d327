//! Counters of the CPU and the kernel for a system under test.

use dbdyno_units::{Nanos, Share};
use serde::{Deserialize, Serialize};

words! {
    /// A counter of the CPU or the kernel, hardware first; see perf_event_open(2).
    Counter {
        /// Core clock cycles, excluding idle states; their rate follows the frequency.
        Cycles = "cycles",
        /// Retired instructions.
        Instructions = "instructions",
        /// Retired branch instructions.
        Branches = "branches",
        /// Mispredicted branches.
        BranchMisses = "branch_misses",
        /// Misses of the L1 instruction cache.
        L1iMisses = "l1i_misses",
        /// Misses of the instruction TLB.
        ItlbMisses = "itlb_misses",
        /// Page faults served without storage access.
        MinorFaults = "minor_faults",
        /// Page faults that waited for storage access.
        MajorFaults = "major_faults",
        /// Migrations of a thread to another CPU.
        CpuMigrations = "cpu_migrations",
    }
}

impl Counter {
    /// Whether the CPU counts it; otherwise the kernel does.
    pub const fn is_hardware(self) -> bool {
        !matches!(self, Self::MinorFaults | Self::MajorFaults | Self::CpuMigrations)
    }
}

/// The value of one counter, summed over all counted threads: since it was opened, or of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub counter: Counter,
    /// Events counted.
    pub count: u64,
    /// CPU time of the threads while the counter was enabled.
    pub enabled: Nanos,
    /// Part of `enabled` in which the counter was running: less than all if more counters are
    /// enabled than the CPU has, and they are multiplexed.
    pub running: Nanos,
}

impl Count {
    /// The increase since an `earlier` reading of the same counter.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            counter: self.counter,
            count: self.count.saturating_sub(earlier.count),
            enabled: self.enabled.saturating_sub(earlier.enabled),
            running: self.running.saturating_sub(earlier.running),
        }
    }

    /// The number of events in the whole time, scaled up if the counter was multiplexed; `None`
    /// if it never ran.
    pub fn estimate(&self) -> Option<f64> {
        if self.running == Nanos::ZERO {
            // Threads that did not run had no events: known to be 0.
            return (self.enabled == Nanos::ZERO).then_some(self.count as f64);
        }
        let scale = self.enabled.as_nanos() as f64 / self.running.as_nanos() as f64;
        Some(self.count as f64 * scale)
    }

    /// The share of the enabled time in which the counter was running; below 1,
    /// [`Count::estimate`] is scaled up.
    pub fn counted(&self) -> Share {
        if self.enabled == Nanos::ZERO {
            return Share::from_fraction(1.0);
        }
        let share = self.running.as_nanos() as f64 / self.enabled.as_nanos() as f64;
        Share::from_fraction(share.min(1.0))
    }
}

/// The values of all counters. A missing one is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(Vec<Count>);

impl Counts {
    /// From counts of different counters.
    pub fn new(mut counts: Vec<Count>) -> Self {
        counts.sort_unstable_by_key(|one| one.counter);
        Self(counts)
    }

    /// The value of a counter; `None` if it was not counted.
    pub fn get(&self, counter: Counter) -> Option<&Count> {
        self.0.iter().find(|one| one.counter == counter)
    }

    /// The number of events of a counter in the whole time; see [`Count::estimate`].
    pub fn estimate(&self, counter: Counter) -> Option<f64> {
        self.get(counter)?.estimate()
    }

    /// All counts, in the order of [`Counter::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &Count> {
        self.0.iter()
    }

    /// The increase of each counter since an `earlier` reading; counters in only one of the two are
    /// left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = self.0.iter().filter_map(|now| Some(now.since(earlier.get(now.counter)?)));
        Self(grown.collect())
    }

    /// CPU time of the counted threads: much less than the slice's CPU time means that threads
    /// were missed. `None` if nothing was counted.
    pub fn covered(&self) -> Option<Nanos> {
        self.0.iter().map(|one| one.enabled).max()
    }

    /// Adds the values of another thread. A counter that is unknown in one of the two becomes
    /// unknown.
    pub fn merge(&mut self, other: &Self) {
        self.0.retain_mut(|one| {
            let Some(more) = other.get(one.counter) else { return false };
            one.count += more.count;
            one.enabled += more.enabled;
            one.running += more.running;
            true
        });
    }
}

/// Which counters are available for an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counting {
    /// Available counters.
    pub counted: Vec<Counted>,
    /// Unavailable counters, with reasons.
    pub missing: Vec<Missing>,
    /// Why the energy of the CPU packages is unavailable; `None` if it is available.
    pub no_energy: Option<String>,
}

/// An available counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub counter: Counter,
    /// Whether it counts user mode only, because kernel mode is not permitted.
    pub user_only: bool,
}

/// An unavailable counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub counter: Counter,
    /// Why.
    pub reason: String,
    /// How to make it available.
    pub advice: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counter: Counter, count: u64, enabled: u64, running: u64) -> Count {
        Count {
            counter,
            count,
            enabled: Nanos::from_nanos(enabled),
            running: Nanos::from_nanos(running),
        }
    }

    #[test]
    fn counter_names_round_trip() {
        for counter in Counter::ALL {
            assert_eq!(Counter::by_name(counter.name()), Some(counter));
            assert_eq!(serde_json::to_string(&counter).unwrap(), format!("\"{}\"", counter.name()));
        }
        assert_eq!(Counter::by_name("unknown"), None);
        let hardware = Counter::ALL.into_iter().filter(|counter| counter.is_hardware());
        assert_eq!(hardware.count(), 6);
    }

    #[test]
    fn multiplexed_count_is_scaled_and_never_running_count_is_unknown() {
        let multiplexed = count(Counter::Cycles, 300, 40, 30);
        assert_eq!(multiplexed.estimate(), Some(400.0));
        assert_eq!(multiplexed.counted(), Share::from_fraction(0.75));
        let never = count(Counter::Cycles, 0, 40, 0);
        assert_eq!(never.estimate(), None);
        assert_eq!(never.counted(), Share::from_fraction(0.0));
        let idle = count(Counter::Cycles, 0, 0, 0);
        assert_eq!((idle.estimate(), idle.counted()), (Some(0.0), Share::from_fraction(1.0)));
    }

    #[test]
    fn merge_adds_threads_and_drops_counters_unknown_in_one() {
        let cycles = |n| count(Counter::Cycles, n, 10, 5);
        let faults = |n| count(Counter::MinorFaults, n, 10, 10);
        let mut both = Counts::new(vec![faults(3), cycles(8)]);
        both.merge(&Counts::new(vec![cycles(1), faults(4)]));
        let sum = [count(Counter::Cycles, 9, 20, 10), count(Counter::MinorFaults, 7, 20, 20)];
        assert_eq!(both.iter().copied().collect::<Vec<_>>(), sum);
        assert_eq!(both.estimate(Counter::Cycles), Some(18.0));
        both.merge(&Counts::new(vec![cycles(1)]));
        assert_eq!(both.estimate(Counter::MinorFaults), None);
        assert_eq!(both.covered(), Some(Nanos::from_nanos(30)));
        both.merge(&Counts::default());
        assert_eq!((both.iter().count(), both.covered()), (0, None));
    }

    #[test]
    fn difference_keeps_counters_of_both_readings_only() {
        let earlier = Counts::new(vec![count(Counter::Cycles, 1_000, 500, 500)]);
        let later = Counts::new(vec![
            count(Counter::Cycles, 4_000, 900, 600),
            count(Counter::MinorFaults, 7, 900, 900),
        ]);
        let difference = later.since(&earlier);
        let cycles = difference.get(Counter::Cycles).unwrap();
        assert_eq!((cycles.count, cycles.enabled.as_nanos()), (3_000, 400));
        // It ran a quarter of the time: four times as many.
        assert_eq!(cycles.estimate(), Some(12_000.0));
        assert_eq!(difference.get(Counter::MinorFaults), None);
    }
}
