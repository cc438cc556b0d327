//! Facts about the host and its state, stored with every result.
//!
//! A fact that cannot be read is `None`, and reports give the reason: see [`HostFacts::rows`]. All
//! readers take a [`FsRoot`], so that tests can use copies of other machines' files.

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

use dbdyno_types::Counter;

use crate::CpuSet;
use crate::counters::{Counters, Reason, Scope, Target, paranoid};
use crate::fs_root::FsRoot;

/// Facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Names and versions; virtual or physical.
    pub system: SystemFacts,
    /// The CPUs' hardware properties.
    pub processor: ProcessorFacts,
    /// Settings that affect the CPUs' frequency.
    pub frequency: FrequencyFacts,
    /// Kernel settings.
    pub kernel: KernelFacts,
    /// Memory and swap.
    pub memory: MemoryFacts,
    /// Load average over the last minute, including this process.
    pub load_average: Option<f64>,
    /// Activity of other processes and virtual machines; `None` if not sampled.
    pub activity: Option<Activity>,
    /// The file system for the data.
    pub disk: Option<DiskFacts>,
    /// Whether hardware events can be counted; `None` if not tried.
    pub counters: Option<CounterAccess>,
}

/// Whether this user can count hardware events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterAccess {
    Available(Scope),
    Unavailable(Reason),
}

impl CounterAccess {
    /// Try to count cycles of this thread.
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
    /// Gather the facts about this machine, and about the file system that contains `disk`. If
    /// `disk` does not exist, its nearest existing ancestor is used.
    ///
    /// Takes a few milliseconds. The activity of others is not sampled, since that takes an
    /// interval: see [`HostFacts::gather_over`].
    #[must_use]
    pub fn gather(disk: &Path) -> Self {
        let facts = Self::read(&FsRoot::this_machine(), hypervisor_signature().as_deref());
        let usable = CpuSet::allowed().ok().map(|cpus| cpus.len());
        Self {
            processor: ProcessorFacts { usable, ..facts.processor },
            disk: DiskFacts::read(&FsRoot::this_machine(), disk),
            counters: Some(CounterAccess::probe()),
            ..facts
        }
    }

    /// Gather the facts, and sleep for `interval` to sample the activity of others. One second is
    /// enough to measure shares below 1% (the kernel counts in steps of 10 ms per CPU).
    #[must_use]
    pub fn gather_over(disk: &Path, interval: Duration) -> Self {
        let activity = Activity::sample(interval);
        Self { activity, ..Self::gather(disk) }
    }

    /// Read the facts from files under `root`. `signature` is the hypervisor signature of the CPU
    /// ([`hypervisor_signature`]).
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
    fn missing_files_are_unknown_facts_and_no_error() {
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
    fn facts_survive_json_and_older_ones_can_be_read() {
        let facts = HostFacts::gather_over(Path::new("/tmp/not/there"), Duration::from_millis(20));
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&json).unwrap(), facts);
        assert_eq!(serde_json::from_str::<HostFacts>("{}").unwrap(), HostFacts::default());
    }

    #[test]
    fn basic_facts_are_known_on_every_linux() {
        let facts = HostFacts::gather(Path::new("/tmp"));
        assert!(facts.system.kernel.is_some());
        assert!(facts.memory.total.is_some());
        assert!(facts.disk.is_some());
        assert!(facts.counters.is_some());
    }

    #[test]
    fn usable_cpus_are_those_of_the_affinity() {
        let usable = || HostFacts::gather(Path::new("/tmp")).processor.usable;
        let one: CpuSet = CpuSet::allowed().unwrap().first().into_iter().collect();
        let pinned = std::thread::spawn(move || {
            crate::pin_current_thread(&one).unwrap();
            usable()
        });
        assert_eq!(pinned.join().unwrap(), Some(1));
    }
}
