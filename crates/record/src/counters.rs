//! What the CPU and the kernel count for a system under test.

use std::fmt;

use dbdyno_units::{Nanos, Share};
use serde::{Deserialize, Serialize};

/// Something that the CPU or the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Clock cycles of the core, not counting sleep.
    Cycles,
    /// Instructions that took effect.
    Instructions,
    /// Branches taken or not.
    Branches,
    /// Branches whose outcome or target the CPU had guessed wrong.
    BranchMisses,
    /// Instruction fetches that the first cache level could not serve.
    L1iMisses,
    /// Instruction address translations that the TLB did not hold.
    ItlbMisses,
    /// Page faults that needed no storage.
    MinorFaults,
    /// Page faults that waited for storage.
    MajorFaults,
    /// Moves of a thread from one CPU to another.
    CpuMigrations,
}

impl Counter {
    /// Every one: first what the CPU counts, then what the kernel counts.
    pub const ALL: [Self; 9] = [
        Self::Cycles,
        Self::Instructions,
        Self::Branches,
        Self::BranchMisses,
        Self::L1iMisses,
        Self::ItlbMisses,
        Self::MinorFaults,
        Self::MajorFaults,
        Self::CpuMigrations,
    ];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::Branches => "branches",
            Self::BranchMisses => "branch_misses",
            Self::L1iMisses => "l1i_misses",
            Self::ItlbMisses => "itlb_misses",
            Self::MinorFaults => "minor_faults",
            Self::MajorFaults => "major_faults",
            Self::CpuMigrations => "cpu_migrations",
        }
    }

    /// The counter of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|counter| counter.name() == name)
    }

    /// Whether the CPU counts it, and not the kernel.
    #[must_use]
    pub const fn is_hardware(self) -> bool {
        !matches!(self, Self::MinorFaults | Self::MajorFaults | Self::CpuMigrations)
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one counter showed of a slice, over all threads that were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The counter.
    pub counter: Counter,
    /// How many were seen.
    pub count: u64,
    /// CPU time of the threads, in which the counter was wanted.
    pub enabled: Nanos,
    /// For how long of it the counter was at work: shorter where more are wanted than the CPU
    /// has, and they take turns.
    pub running: Nanos,
}

impl Count {
    /// How many there were in the whole time: an estimate where the counter took turns, and
    /// `None` where its turn never came.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        if self.running == Nanos::ZERO {
            // Threads that did not run at all had none: known, not unknown.
            return (self.enabled == Nanos::ZERO).then_some(self.count as f64);
        }
        let turns = self.enabled.as_nanos() as f64 / self.running.as_nanos() as f64;
        Some(self.count as f64 * turns)
    }

    /// For what share of the time it was at work: below 1 it took turns, and its count for the
    /// whole time is an estimate.
    #[must_use]
    pub fn counted(&self) -> Share {
        if self.enabled == Nanos::ZERO {
            return Share::from_fraction(1.0);
        }
        let share = self.running.as_nanos() as f64 / self.enabled.as_nanos() as f64;
        Share::from_fraction(share.min(1.0))
    }
}

/// What all counters showed of a slice. One that is missing is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(Vec<Count>);

impl Counts {
    /// From counts of different counters.
    #[must_use]
    pub fn new(mut counts: Vec<Count>) -> Self {
        counts.sort_unstable_by_key(|one| one.counter);
        Self(counts)
    }

    /// What a counter showed; `None` where it did not count.
    #[must_use]
    pub fn get(&self, counter: Counter) -> Option<&Count> {
        self.0.iter().find(|one| one.counter == counter)
    }

    /// How many there were in the whole time; see [`Count::estimate`].
    #[must_use]
    pub fn estimate(&self, counter: Counter) -> Option<f64> {
        self.get(counter)?.estimate()
    }

    /// All of them, in the order of [`Counter::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &Count> {
        self.0.iter()
    }

    /// CPU time of the threads that were counted: more than a slice's CPU time it cannot be, and
    /// much less means that threads were missed. `None` where nothing was counted.
    #[must_use]
    pub fn covered(&self) -> Option<Nanos> {
        self.0.iter().map(|one| one.enabled).max()
    }

    /// Adds what another thread showed. What is unknown of one of the two is unknown.
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

/// What is counted of an instance, and what cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counting {
    /// What is counted.
    pub counted: Vec<Counted>,
    /// What is not, and why.
    pub missing: Vec<Missing>,
    /// Why the energy of the CPU packages is unknown; `None` where it is known.
    pub no_energy: Option<String>,
}

/// A counter that is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The counter.
    pub counter: Counter,
    /// Whether it counts in user mode only, because the kernel may not be watched.
    pub user_only: bool,
}

/// A counter that is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The counter.
    pub counter: Counter,
    /// Why.
    pub reason: String,
    /// What to do about it.
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
    fn names_lead_back_to_their_counters() {
        for counter in Counter::ALL {
            assert_eq!(Counter::from_name(counter.name()), Some(counter));
            assert_eq!(serde_json::to_string(&counter).unwrap(), format!("\"{}\"", counter.name()));
        }
        assert_eq!(Counter::from_name("joy"), None);
        let hardware = Counter::ALL.into_iter().filter(|counter| counter.is_hardware());
        assert_eq!(hardware.count(), 6);
    }

    #[test]
    fn a_counter_that_took_turns_is_an_estimate_and_one_without_a_turn_unknown() {
        let turns = count(Counter::Cycles, 300, 40, 30);
        assert_eq!(turns.estimate(), Some(400.0));
        assert_eq!(turns.counted(), Share::from_fraction(0.75));
        let never = count(Counter::Cycles, 0, 40, 0);
        assert_eq!(never.estimate(), None);
        assert_eq!(never.counted(), Share::from_fraction(0.0));
        let idle = count(Counter::Cycles, 0, 0, 0);
        assert_eq!((idle.estimate(), idle.counted()), (Some(0.0), Share::from_fraction(1.0)));
    }

    #[test]
    fn threads_add_up_and_what_is_unknown_of_one_is_unknown() {
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
}
