//! Facts about the host and its state, stored with every result.
//!
//! A fact that cannot be read is `None`, and reports give the reason: see [`HostFacts::rows`]. All
//! readers take a [`FsRoot`], so that tests can use copies of other machines' files.

mod hypervisor;
mod memory;
mod processor;
mod system;

use std::path::Path;
use std::time::Duration;

use dbdyno_types::{Counter, host_fact};
use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Reason, Target, paranoid};
use crate::fs_root::FsRoot;
use crate::{CpuSet, Scope};

pub use hypervisor::{Hardware, hypervisor_signature};
pub use memory::{DiskFacts, MemoryFacts, total_memory};
pub use processor::{Boost, BoostControl, CacheSizes, FrequencyFacts, ProcessorFacts, TscFacts};
pub use system::{Activity, KernelFacts, Mitigations, SystemFacts};

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
    pub fn gather_over(disk: &Path, interval: Duration) -> Self {
        let activity = Activity::sample(interval);
        Self { activity, ..Self::gather(disk) }
    }

    /// Read the facts from files under `root`. `signature` is the hypervisor signature of the CPU
    /// ([`hypervisor_signature`]).
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

/// Prefix of the reason for a missing value.
const MISSING: &str = "not available";

/// Maximum width of a value, so that reports fit 80 columns.
const WIDEST: usize = 56;

impl HostFacts {
    /// The facts as text: label and value, in display order.
    ///
    /// A value has at most 56 characters. An unknown one is `not available` with the reason.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Rows(Vec::new());
        self.system_rows(&mut rows);
        self.processor_rows(&mut rows);
        self.kernel_rows(&mut rows);
        self.state_rows(&mut rows);
        rows.0
    }

    fn system_rows(&self, rows: &mut Rows) {
        let system = &self.system;
        rows.add("host", system.host.as_ref(), "no kernel.hostname");
        rows.add("operating system", system.os.as_ref(), "no os-release file");
        let kernel = system.kernel.as_ref().map(|release| {
            let architecture = system.architecture.as_deref().unwrap_or_default();
            format!("{release} {architecture}").trim_end().to_owned()
        });
        rows.add("kernel", kernel, "no kernel.osrelease");
        rows.add("hypervisor", system.hardware.as_ref(), "nothing tells");
        rows.add("container", Some(system.container.as_deref().unwrap_or("none seen")), "");
    }

    fn processor_rows(&self, rows: &mut Rows) {
        let processor = &self.processor;
        rows.add(host_fact::CPU, processor.model.as_ref(), "no name in /proc/cpuinfo");
        rows.add("microcode", processor.microcode.as_ref(), "not in /proc/cpuinfo");
        let counts = [
            (processor.online, "CPU"),
            (processor.cores, "core"),
            (processor.sockets, "socket"),
            (processor.numa_nodes, "NUMA node"),
        ];
        let counts = counts.into_iter().filter_map(|(count, unit)| {
            let count = count?;
            Some(format!("{count} {unit}{}", if count == 1 { "" } else { "s" }))
        });
        let restricted = processor.usable.filter(|usable| Some(*usable) < processor.online);
        let usable = restricted.map(|usable| format!("{usable} usable"));
        let counts: Vec<String> = counts.chain(usable).collect();
        rows.add(host_fact::CPUS_ONLINE, some_list(&counts, ", "), "no topology in sysfs");
        rows.add("SMT", processor.smt.map(on_off), "no topology in sysfs");
        rows.add("caches", caches(&processor.caches), "the machine does not describe them");
        let flags = processor.flags.as_deref().and_then(|flags| some_list(flags, " "));
        rows.add("CPU flags", flags, "none of interest in /proc/cpuinfo");
        let tsc = processor.tsc.map(|tsc| {
            let promises = [
                (tsc.constant, "constant"),
                (tsc.nonstop, "nonstop"),
                (tsc.known_frequency, "known frequency"),
            ];
            let kept: Vec<&str> =
                promises.into_iter().filter_map(|(kept, name)| kept.then_some(name)).collect();
            some_list(&kept, ", ").unwrap_or_else(|| "no promises".to_owned())
        });
        rows.add("time stamp counter", tsc, "not an x86 machine");
        let frequency = &self.frequency;
        let decided = match &self.system.hardware {
            Some(hardware) if hardware.is_virtual() => "the hypervisor's host decides",
            _ => "no cpufreq in sysfs",
        };
        let governors = frequency.governors.as_deref().and_then(|them| some_list(them, ", "));
        rows.add("frequency governor", governors, decided);
        rows.add("frequency driver", frequency.driver.as_ref(), decided);
        let boost = match frequency.driver {
            Some(_) => "its driver has no setting",
            None => decided,
        };
        rows.add("turbo/boost", frequency.boost.map(|boost| on_off(boost.on)), boost);
    }

    fn kernel_rows(&self, rows: &mut Rows) {
        let kernel = &self.kernel;
        rows.add("clock source", kernel.clock_source.as_ref(), "no clocksource in sysfs");
        rows.add("mitigations", kernel.mitigations.as_ref(), "not in sysfs");
        let pages = kernel.transparent_huge_pages.as_ref();
        rows.add("transparent huge pages", pages, "not in this kernel");
        let aslr = kernel.randomize_va_space.map(|level| match level {
            0 => "off".to_owned(),
            level => format!("on (kernel.randomize_va_space = {level})"),
        });
        rows.add("ASLR", aslr, "no kernel.randomize_va_space");
        rows.add(
            "perf_event_paranoid",
            kernel.perf_event_paranoid,
            "no perf events in this kernel",
        );
        let counters = self.counters.as_ref().map(|access| match access {
            CounterAccess::Available(Scope::UserAndKernel) => "user and kernel code".to_owned(),
            CounterAccess::Available(Scope::User) => "user code only".to_owned(),
            CounterAccess::Unavailable(reason) => format!("{MISSING}: {}", reason.in_short()),
        });
        rows.add("hardware counters", counters, "not tried");
    }

    fn state_rows(&self, rows: &mut Rows) {
        let memory = self.memory.total.zip(self.memory.available);
        let memory = memory.map(|(total, free)| match self.memory.group_limit {
            None => format!("{total}, {free} of it available"),
            Some(limit) => format!("{total}, cgroup limit {limit}, {free} available"),
        });
        rows.add(host_fact::MEMORY, memory, "not in /proc/meminfo");
        rows.add(host_fact::SWAP, self.memory.swap_used, "not in /proc/meminfo");
        let load = self.load_average.map(|load| format!("{load:.2}"));
        rows.add(host_fact::LOAD, load, "no /proc/loadavg");
        let shares = self.activity.map(|activity| (activity.busy_by_others, activity.steal));
        let (busy, steal) = shares.unzip();
        rows.add(host_fact::USED_BY_OTHERS, busy, "not sampled");
        rows.add(host_fact::STOLEN, steal, "not sampled");
        let disk = self.disk.as_ref();
        let space = disk.map(|disk| {
            let file_system = disk.file_system.as_deref().unwrap_or("unknown file system");
            format!("{file_system}, {} of {} free", disk.free, disk.total)
        });
        rows.add(host_fact::DISK, space, "its path cannot be looked at");
        rows.add("disk device", disk.and_then(|disk| disk.device.as_ref()), "not in mountinfo");
    }
}

struct Rows(Vec<(String, String)>);

impl Rows {
    fn add(&mut self, label: &str, value: Option<impl ToString>, reason: &str) {
        let value = value.map_or_else(|| format!("{MISSING}: {reason}"), |it| it.to_string());
        self.0.push((label.to_owned(), shortened(&value)));
    }
}

fn shortened(value: &str) -> String {
    if value.chars().count() <= WIDEST {
        return value.to_owned();
    }
    let kept: String = value.chars().take(WIDEST - 1).collect();
    format!("{}…", kept.trim_end())
}

fn some_list<T: AsRef<str>>(items: &[T], separator: &str) -> Option<String> {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    (!items.is_empty()).then(|| items.join(separator))
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn caches(sizes: &CacheSizes) -> Option<String> {
    let sizes = [("L1d", sizes.l1d), ("L1i", sizes.l1i), ("L2", sizes.l2), ("L3", sizes.l3)];
    let known: Vec<String> =
        sizes.into_iter().filter_map(|(name, size)| Some(format!("{name} {}", size?))).collect();
    some_list(&known, ", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::facts::{FrequencyFacts, Hardware, ProcessorFacts, SystemFacts};
    use crate::fs_root::fixture::Fixture;
    use crate::{FsRoot, Reason};

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

    fn value<'a>(rows: &'a [(String, String)], label: &str) -> &'a str {
        &rows.iter().find(|(it, _)| it == label).unwrap().1
    }

    #[test]
    fn unknown_facts_have_a_reason() {
        let rows = HostFacts::default().rows();
        for (label, value) in &rows {
            let reason = value.strip_prefix("not available: ");
            assert!(label == "container" || reason.is_some_and(|it| !it.is_empty()), "{label}");
        }
        assert_eq!(value(&rows, "CPU used by others"), "not available: not sampled");
    }

    #[test]
    fn boost_of_a_virtual_machine_is_set_by_its_host() {
        let hardware = Hardware::Virtual { hypervisor: Some("KVM".into()), product: None };
        let facts = HostFacts {
            system: SystemFacts { hardware: Some(hardware), ..SystemFacts::default() },
            counters: Some(CounterAccess::Unavailable(Reason::NoHardwareCounters)),
            ..HostFacts::default()
        };
        let rows = facts.rows();
        assert_eq!(value(&rows, "hypervisor"), "KVM");
        assert_eq!(value(&rows, "turbo/boost"), "not available: the hypervisor's host decides");
        assert_eq!(value(&rows, "hardware counters"), "not available: none in this machine");
    }

    #[test]
    fn turbo_that_a_driver_cannot_set_is_not_a_missing_driver() {
        let frequency =
            FrequencyFacts { driver: Some("amd-pstate".into()), ..FrequencyFacts::default() };
        let rows = HostFacts { frequency, ..HostFacts::default() }.rows();
        assert_eq!(value(&rows, "turbo/boost"), "not available: its driver has no setting");
        assert_eq!(value(&rows, "frequency governor"), "not available: no cpufreq in sysfs");
    }

    #[test]
    fn cpus_that_may_not_be_used_are_shown() {
        let cpus = |usable| {
            let processor = ProcessorFacts {
                online: Some(8),
                cores: Some(4),
                usable,
                ..ProcessorFacts::default()
            };
            let rows = HostFacts { processor, ..HostFacts::default() }.rows();
            value(&rows, "CPUs online").to_owned()
        };
        assert_eq!(cpus(Some(2)), "8 CPUs, 4 cores, 2 usable");
        assert_eq!(
            (cpus(Some(8)), cpus(None)),
            ("8 CPUs, 4 cores".into(), "8 CPUs, 4 cores".into())
        );
    }

    #[test]
    fn rows_of_this_machine_fit_80_columns() {
        for facts in
            [HostFacts::gather(Path::new("/tmp")), HostFacts::read(&FsRoot::this_machine(), None)]
        {
            for (label, value) in facts.rows() {
                assert!(label.chars().count() <= 22, "{label}");
                assert!(value.chars().count() <= WIDEST, "{value}");
            }
        }
        assert_eq!(shortened(&"x".repeat(60)).chars().count(), WIDEST);
    }
}
