//! What the machine is and in what state: part of every result.
//!
//! A fact that this machine does not tell is `None`, and a report says so with the reason: see
//! [`HostFacts::rows`]. All readers take a [`FsRoot`], so that tests run on the files of machines
//! that are not there.

mod activity;
mod disk;
mod frequency;
mod hypervisor;
mod kernel;
mod memory;
mod processor;
mod rows;
mod system;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use activity::Activity;
pub use disk::DiskFacts;
pub use frequency::{Boost, BoostControl, FrequencyFacts};
pub use hypervisor::{Hardware, hypervisor_signature};
pub use kernel::{KernelFacts, Mitigations};
pub use memory::MemoryFacts;
pub use processor::{CacheSizes, ProcessorFacts, TscFacts};
pub use system::SystemFacts;

use dbdyno_record::Counter;

use crate::counters::{Counters, Reason, Scope, Target, paranoid};
use crate::fs_root::FsRoot;

/// The facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Names and versions; virtual or not.
    pub system: SystemFacts,
    /// The CPUs, as built.
    pub processor: ProcessorFacts,
    /// What decides the CPUs' frequency.
    pub frequency: FrequencyFacts,
    /// The kernel's settings.
    pub kernel: KernelFacts,
    /// Memory and swap.
    pub memory: MemoryFacts,
    /// Load average over the last minute, what this process adds to it included.
    pub load_average: Option<f64>,
    /// What others did meanwhile; `None` unless sampled.
    pub activity: Option<Activity>,
    /// Where data will lie.
    pub disk: Option<DiskFacts>,
    /// Whether hardware events can be counted; `None` where nobody tried.
    pub counters: Option<CounterAccess>,
}

/// Whether hardware events can be counted by this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterAccess {
    /// They can, in this scope.
    Available(Scope),
    /// They cannot.
    Unavailable(Reason),
}

impl CounterAccess {
    /// Tries to count cycles of this thread.
    #[must_use]
    pub fn probe() -> Self {
        let counters =
            Counters::open(&[Counter::Cycles], &Target::ThisThread, Scope::UserAndKernel);
        match counters.unavailable().next() {
            Some(unavailable) => Self::Unavailable(unavailable.reason.clone()),
            None => {
                Self::Available(counters.counted().next().map_or(Scope::User, |(_, scope)| scope))
            }
        }
    }
}

impl HostFacts {
    /// Gathers the facts about this machine, and about the file system that holds `disk` (or
    /// will hold it: then about that of its nearest directory that exists).
    ///
    /// Takes a few milliseconds. What others do on the machine takes an interval to see: use
    /// [`HostFacts::gather_over`] for it.
    #[must_use]
    pub fn gather(disk: &Path) -> Self {
        Self {
            disk: DiskFacts::read(&FsRoot::this_machine(), disk),
            counters: Some(CounterAccess::probe()),
            ..Self::read(&FsRoot::this_machine(), hypervisor_signature().as_deref())
        }
    }

    /// Gathers the facts and sleeps for `interval` to sample what others do; a second is enough
    /// to tell shares of a percent (the kernel counts in steps of 10 ms per CPU).
    #[must_use]
    pub fn gather_over(disk: &Path, interval: Duration) -> Self {
        let activity = Activity::sample(interval);
        Self { activity, ..Self::gather(disk) }
    }

    /// The facts that files under `root` tell. `signature` is what the CPU says of a
    /// hypervisor ([`hypervisor_signature`]).
    #[must_use]
    pub fn read(root: &FsRoot, signature: Option<&str>) -> Self {
        Self {
            system: SystemFacts::read(root, signature),
            processor: ProcessorFacts::read(root),
            frequency: FrequencyFacts::read(root),
            kernel: KernelFacts { perf_event_paranoid: paranoid(root), ..KernelFacts::read(root) },
            memory: MemoryFacts::read(root),
            load_average: memory::load_average(root),
            activity: None,
            disk: None,
            counters: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn an_empty_machine_tells_nothing_and_that_is_no_error() {
        let facts = HostFacts::read(&Fixture::new(&[]).root(), None);
        let architecture = facts.system.architecture.clone();
        assert_eq!(
            facts,
            HostFacts {
                system: SystemFacts { architecture, ..SystemFacts::default() },
                ..HostFacts::default()
            }
        );
    }

    #[test]
    fn facts_travel_through_json_and_older_ones_still_load() {
        let facts = HostFacts::gather_over(Path::new("/tmp/not/there"), Duration::from_millis(20));
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&json).unwrap(), facts);
        assert_eq!(serde_json::from_str::<HostFacts>("{}").unwrap(), HostFacts::default());
    }

    #[test]
    fn every_linux_tells_the_basics() {
        let facts = HostFacts::gather(Path::new("/tmp"));
        assert!(facts.system.kernel.is_some());
        assert!(facts.memory.total.is_some());
        assert!(facts.disk.is_some());
        assert!(facts.counters.is_some());
    }
}
