//! Checks of the host: conditions that may distort a measurement, with advice.

use std::fmt;

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::facts::{CounterAccess, DiskFacts, Hardware, HostFacts};
use crate::{Reason, Scope};

/// The resources that a run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Total memory of all instances.
    pub memory: Option<Bytes>,
    pub disk: Option<Bytes>,
    /// CPUs that the system under test and dbdyno together can use.
    pub cpus: Option<usize>,
}

/// Severity of a finding, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Ok,
    /// Information; not a reason to postpone a run.
    Note,
    /// Likely to distort results or to make the run fail.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check's name, which is stable across versions.
    pub id: String,
    pub severity: Severity,
    /// The finding, as a sentence without a full stop.
    pub what: String,
    /// Advice; a command if possible.
    pub advice: Option<String>,
}

impl Finding {
    fn new(severity: Severity, what: impl Into<String>) -> Self {
        Self { id: String::new(), severity, what: what.into(), advice: None }
    }

    fn ok(what: impl Into<String>) -> Self {
        Self::new(Severity::Ok, what)
    }

    fn note(what: impl Into<String>) -> Self {
        Self::new(Severity::Note, what)
    }

    fn warning(what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, what)
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Check the facts for conditions that distort measurements, and against the needs of a run.
///
/// Returns one finding per check, in a fixed order. `doctor` shows all of them, a run shows the
/// warnings.
pub fn check(facts: &HostFacts, needs: &Needs) -> Vec<Finding> {
    let found = [
        ("cpus", cpus(facts, needs)),
        ("governor", governor(facts)),
        ("turbo", boost(facts)),
        ("smt", smt(facts)),
        ("virtual", hardware(facts)),
        ("load", load(facts)),
        ("steal", steal(facts)),
        ("memory", memory(facts, needs)),
        ("swap", swap(facts)),
        ("disk", check_disk(facts.disk.as_ref(), needs.disk)),
        ("counters", counters(facts)),
        ("thp", huge_pages(facts)),
        ("aslr", aslr(facts)),
        ("clock-source", clock_source(facts)),
    ];
    found.map(|(id, finding)| Finding { id: id.to_owned(), ..finding }).into()
}

/// Limits of the load average and of CPU shares of others: more disturbs measurements on few CPUs.
const MUCH_LOAD: f64 = 0.5;
const MUCH_BUSY: f64 = 0.05;
const MUCH_STEAL: f64 = 0.01;
/// Swap that was filled earlier and is not accessed is harmless.
const MUCH_SWAP: Bytes = Bytes::from_mib(64);
/// The kernel and other processes need memory and disk space too: leave 10%.
const SPARE: f64 = 1.1;

fn cpus(facts: &HostFacts, needs: &Needs) -> Finding {
    let processor = &facts.processor;
    let Some(usable) = processor.usable.or(processor.online) else {
        return Finding::note("the number of CPUs is unknown");
    };
    let is_restricted = processor.online.is_some_and(|online| online > usable);
    let cpus = match processor.online {
        Some(online) if is_restricted => format!("{usable} of {online} CPUs"),
        _ if usable == 1 => "one CPU".to_owned(),
        _ => format!("{usable} CPUs"),
    };
    // A quota of all CPUs, as besides a set of CPUs in Kubernetes, is never used up.
    if let Some(quota) = processor.quota.filter(|quota| *quota < usable as f64) {
        let what = format!(
            "a control group limits CPU time to {quota:.1} of {cpus}: its processes wait when it is \
             used up"
        );
        return Finding::warning(what)
            .advise("assign whole CPUs instead (docker run --cpuset-cpus, not --cpus)");
    }
    match needs.cpus {
        _ if usable == 1 => {
            let advice = match is_restricted {
                true => "allow this process at least 2 CPUs (taskset -c, docker run --cpuset-cpus)",
                false => "use a machine with at least 2 CPUs",
            };
            Finding::warning(format!("{cpus}: dbdyno and the system under test take turns"))
                .advise(format!("{advice}; here trust CPU time per query, not QPS"))
        }
        Some(needed) if usable < needed => {
            Finding::note(format!("{cpus} for a run that can keep {needed} busy"))
                .advise("use fewer clients, or compare CPU time per query")
        }
        _ => Finding::ok(cpus),
    }
}

fn governor(facts: &HostFacts) -> Finding {
    let Some(governors) = facts.frequency.governors.as_ref().filter(|them| !them.is_empty()) else {
        return Finding::note(unseen(facts, "the frequency governor"));
    };
    if governors.iter().all(|governor| governor == "performance") {
        return Finding::ok("the frequency governor is performance");
    }
    let names = governors.join(", ");
    let what = if governors.iter().any(|governor| governor == "powersave") {
        format!("the frequency governor is {names}: it saves power at the cost of speed")
    } else {
        format!("the frequency governor is {names}: the CPUs' speed follows the load")
    };
    Finding::warning(what).advise("sudo cpupower frequency-set -g performance")
}

fn boost(facts: &HostFacts) -> Finding {
    match facts.frequency.boost {
        None => Finding::note(unseen(facts, "turbo/boost")),
        Some(boost) if boost.on => {
            Finding::warning("turbo/boost is on: speed depends on temperature and neighbours")
                .advise(boost.command_to_switch_off())
        }
        Some(_) => Finding::ok("turbo/boost is off"),
    }
}

fn smt(facts: &HostFacts) -> Finding {
    match facts.processor.smt {
        None => Finding::note("whether cores run several threads (SMT) is unknown"),
        Some(true) => Finding::note("SMT is on: two threads of a core slow each other down")
            .advise("echo off | sudo tee /sys/devices/system/cpu/smt/control"),
        Some(false) => Finding::ok("SMT is off"),
    }
}

fn hardware(facts: &HostFacts) -> Finding {
    match &facts.system.hardware {
        None => Finding::note("whether this is a virtual machine is unknown"),
        Some(Hardware::Real { .. }) => Finding::ok("not a virtual machine"),
        Some(Hardware::Virtual { hypervisor, .. }) => {
            let name = hypervisor.as_deref().map_or(String::new(), |name| format!(" ({name})"));
            Finding::note(format!("a virtual machine{name}: its neighbours cannot be seen")).advise(
                "watch the control's ratio; for results to publish use a bare-metal machine",
            )
        }
    }
}

fn load(facts: &HostFacts) -> Finding {
    const ADVICE: &str = "see what runs: top -b -n 1 | head -n 20";
    let busy = facts.activity.map(|activity| activity.busy_by_others);
    // The average includes this user's last build or run, so it counts only without a current sample.
    match (busy, facts.load_average) {
        (Some(busy), _) if busy.as_fraction() > MUCH_BUSY => {
            Finding::warning(format!("others keep {busy} of the CPUs' time busy")).advise(ADVICE)
        }
        (Some(busy), _) => Finding::ok(format!("others keep {busy} of the CPUs' time busy")),
        (None, Some(load)) if load > MUCH_LOAD => {
            Finding::warning(format!("the load average of the last minute is {load:.2}"))
                .advise(format!("{ADVICE}; if it was you, wait a minute"))
        }
        (None, Some(load)) => Finding::ok(format!("the load average is {load:.2}")),
        (None, None) => Finding::note("the load by others is unknown"),
    }
}

fn steal(facts: &HostFacts) -> Finding {
    match facts.activity.map(|activity| activity.steal) {
        None => Finding::note("stolen CPU time was not sampled"),
        Some(steal) if steal.as_fraction() > MUCH_STEAL => {
            Finding::warning(format!("the hypervisor gives {steal} of the CPUs' time to others"))
                .advise("stop and start the virtual machine to move it, or use dedicated CPUs")
        }
        Some(steal) => Finding::ok(format!("{steal} of the CPUs' time is stolen")),
    }
}

fn memory(facts: &HostFacts, needs: &Needs) -> Finding {
    match (facts.memory.available, needs.memory) {
        (None, _) => Finding::note("the memory available is unknown"),
        (Some(available), Some(needed)) if too_little(available, needed) => Finding::warning(
            format!("{available} of memory available, {needed} needed"),
        )
        .advise("lower the cache sizes or the number of rows or candidates in the experiment"),
        (Some(available), Some(needed)) => {
            Finding::ok(format!("{available} of memory available, {needed} needed"))
        }
        (Some(available), None) => Finding::ok(format!("{available} of memory available")),
    }
}

fn swap(facts: &HostFacts) -> Finding {
    const ADVICE: &str = "sudo swapoff -a";
    match facts.memory.swap_used {
        None => Finding::note("the use of swap is unknown"),
        Some(used) if used >= MUCH_SWAP => {
            Finding::warning(format!("{used} of swap are in use")).advise(ADVICE)
        }
        Some(used) if used > Bytes::default() => {
            Finding::note(format!("{used} of swap are in use")).advise(ADVICE)
        }
        Some(_) => Finding::ok("no swap in use"),
    }
}

/// Checks the free space of a disk.
pub fn check_disk(disk: Option<&DiskFacts>, needed: Option<Bytes>) -> Finding {
    match (disk, needed) {
        (None, _) => Finding::note("the free disk space is unknown"),
        (Some(disk), Some(needed)) if too_little(disk.free, needed) => Finding::warning(format!(
            "{} free for {}, {needed} needed",
            disk.free,
            disk.path.display()
        ))
        .advise("put the run on another disk, or lower the number of rows or candidates"),
        (Some(disk), Some(needed)) => Finding::ok(format!("{} free, {needed} needed", disk.free)),
        (Some(disk), None) => Finding::ok(format!("{} free", disk.free)),
    }
}

fn counters(facts: &HostFacts) -> Finding {
    match &facts.counters {
        None => Finding::note("hardware counters were not tried"),
        Some(CounterAccess::Available(Scope::UserAndKernel)) => {
            Finding::ok("hardware counters for user and kernel code")
        }
        Some(CounterAccess::Available(Scope::User)) => {
            Finding::note("hardware counters for user code only")
                .advise("sudo sysctl kernel.perf_event_paranoid=1")
        }
        Some(CounterAccess::Unavailable(reason)) => {
            let what = match reason {
                Reason::NoHardwareCounters => reason.to_string(),
                reason => format!("no hardware counters: {reason}"),
            };
            Finding { advice: reason.advice(), ..Finding::note(what) }
        }
    }
}

fn huge_pages(facts: &HostFacts) -> Finding {
    match facts.kernel.transparent_huge_pages.as_deref() {
        None => Finding::ok("this kernel has no transparent huge pages"),
        Some("always") => Finding::warning(
            "transparent huge pages are always on: which memory gets them is chance",
        )
        .advise("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(when) => Finding::ok(format!("transparent huge pages: {when}")),
    }
}

fn aslr(facts: &HostFacts) -> Finding {
    match facts.kernel.randomize_va_space {
        None => Finding::note("whether addresses are random (ASLR) is unknown"),
        Some(0) => Finding::ok("ASLR is off"),
        Some(_) => Finding::note("ASLR is on: each start of a system is a random draw")
            .advise("let the experiment restart its systems, so that the interval covers the draw"),
    }
}

fn clock_source(facts: &HostFacts) -> Finding {
    const COMMAND: &str = "echo tsc | \
        sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
    match facts.kernel.clock_source.as_deref() {
        None => Finding::note("the clock source is unknown"),
        // These are read without a system call and have the resolution of the hardware.
        Some(source @ ("tsc" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => {
            Finding::ok(format!("the clock source is {source}"))
        }
        Some("kvm-clock") => {
            Finding::note("the clock source is kvm-clock, a little slower than tsc").advise(COMMAND)
        }
        Some(source) => Finding::warning(format!(
            "the clock source is {source}: reading it may take a microsecond"
        ))
        .advise(COMMAND),
    }
}

fn too_little(there: Bytes, needed: Bytes) -> bool {
    (there.as_bytes() as f64) < needed.as_bytes() as f64 * SPARE
}

/// Says that a frequency setting is not visible, and where it is set.
fn unseen(facts: &HostFacts, setting: &str) -> String {
    match (&facts.system.hardware, &facts.frequency.driver) {
        (_, Some(driver)) => format!("{setting} cannot be seen: {driver} has no setting for it"),
        (Some(hardware), None) if hardware.is_virtual() => {
            format!("{setting} cannot be seen: it is the hypervisor's host that decides")
        }
        _ => format!("{setting} cannot be seen: the kernel has no cpufreq driver"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use dbdyno_units::{Nanos, Share};

    use super::*;
    use crate::facts::{
        Activity, Boost, BoostControl, DiskFacts, FrequencyFacts, KernelFacts, MemoryFacts,
        ProcessorFacts, SystemFacts,
    };

    /// A machine without findings.
    fn ideal() -> HostFacts {
        HostFacts {
            system: SystemFacts {
                hardware: Some(Hardware::Real { product: None }),
                ..SystemFacts::default()
            },
            processor: ProcessorFacts {
                online: Some(8),
                smt: Some(false),
                ..ProcessorFacts::default()
            },
            frequency: FrequencyFacts {
                governors: Some(vec!["performance".into()]),
                driver: Some("acpi-cpufreq".into()),
                boost: Some(Boost { on: false, control: BoostControl::Boost }),
            },
            kernel: KernelFacts {
                clock_source: Some("tsc".into()),
                transparent_huge_pages: Some("madvise".into()),
                randomize_va_space: Some(0),
                ..KernelFacts::default()
            },
            memory: MemoryFacts {
                total: Some(Bytes::from_mib(8192)),
                available: Some(Bytes::from_mib(4096)),
                group_limit: None,
                swap_used: Some(Bytes::default()),
            },
            load_average: Some(0.1),
            activity: Some(activity(1.0, 0.0)),
            disk: Some(DiskFacts {
                path: PathBuf::from("/runs"),
                file_system: Some("ext4".into()),
                device: None,
                free: Bytes::from_mib(10_240),
                total: Bytes::from_mib(20_480),
            }),
            counters: Some(CounterAccess::Available(Scope::UserAndKernel)),
        }
    }

    fn activity(busy_percent: f64, steal_percent: f64) -> Activity {
        Activity {
            interval: Nanos::from_secs(1),
            steal: Share::from_percent(steal_percent),
            busy_by_others: Share::from_percent(busy_percent),
        }
    }

    /// The only finding on an ideal machine after one change.
    fn found(change: impl FnOnce(&mut HostFacts, &mut Needs)) -> Finding {
        let (mut facts, mut needs) = (ideal(), Needs::default());
        change(&mut facts, &mut needs);
        let mut findings = check(&facts, &needs);
        findings.retain(|finding| finding.severity != Severity::Ok);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    fn advice(finding: &Finding) -> &str {
        finding.advice.as_deref().unwrap()
    }

    #[test]
    fn ideal_machine_passes_all_checks() {
        let findings = check(&ideal(), &Needs::default());
        assert!(findings.iter().all(|it| it.severity == Severity::Ok), "{findings:?}");
        assert!(findings.iter().all(|it| it.advice.is_none()), "{findings:?}");
        let ids: Vec<&str> = findings.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "cpus",
                "governor",
                "turbo",
                "smt",
                "virtual",
                "load",
                "steal",
                "memory",
                "swap",
                "disk",
                "counters",
                "thp",
                "aslr",
                "clock-source"
            ]
        );
    }

    #[test]
    fn unknown_machine_gives_notes_but_no_warnings() {
        let findings = check(&HostFacts::default(), &Needs::default());
        assert!(findings.iter().all(|it| it.severity <= Severity::Note), "{findings:?}");
    }

    #[test]
    fn frequency_settings_are_checked() {
        let it = found(|facts, _| facts.frequency.governors = Some(vec!["schedutil".into()]));
        assert_eq!((it.id.as_str(), it.severity), ("governor", Severity::Warning));
        assert_eq!(advice(&it), "sudo cpupower frequency-set -g performance");
        let both = vec!["performance".into(), "powersave".into()];
        let it = found(|facts, _| facts.frequency.governors = Some(both));
        assert!(it.what.contains("performance, powersave: it saves power"), "{}", it.what);
        let on = Boost { on: true, control: BoostControl::NoTurbo };
        let it = found(|facts, _| facts.frequency.boost = Some(on));
        assert_eq!(advice(&it), "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo");
        let it = found(|facts, _| facts.frequency.boost = None);
        assert_eq!(it.what, "turbo/boost cannot be seen: acpi-cpufreq has no setting for it");
    }

    #[test]
    fn too_few_cpus_and_smt_are_reported() {
        let it = found(|facts, _| facts.processor.online = Some(1));
        assert_eq!((it.id.as_str(), it.severity), ("cpus", Severity::Warning));
        let it = found(|_, needs| needs.cpus = Some(17));
        assert_eq!(it.what, "8 CPUs for a run that can keep 17 busy");
        let it = found(|facts, _| facts.processor.usable = Some(1));
        assert_eq!(it.what, "1 of 8 CPUs: dbdyno and the system under test take turns");
        assert!(advice(&it).contains("taskset"), "{it:?}");
        let it = found(|facts, needs| (facts.processor.usable, needs.cpus) = (Some(2), Some(5)));
        assert_eq!(it.what, "2 of 8 CPUs for a run that can keep 5 busy");
        let it = found(|facts, _| facts.processor.quota = Some(1.5));
        assert_eq!((it.id.as_str(), it.severity), ("cpus", Severity::Warning));
        assert!(it.what.starts_with("a control group limits CPU time to 1.5 of 8 CPUs"), "{it:?}");
        let mut facts = ideal();
        (facts.processor.usable, facts.processor.quota) = (Some(2), Some(2.0));
        assert_eq!(check(&facts, &Needs::default())[0].severity, Severity::Ok);
        let it = found(|facts, _| facts.processor.smt = Some(true));
        assert_eq!((it.id.as_str(), it.severity), ("smt", Severity::Note));
    }

    #[test]
    fn load_by_others_is_the_sample_or_else_the_average() {
        let it = found(|facts, _| facts.activity = Some(activity(5.5, 0.0)));
        assert_eq!(it.what, "others keep 5.5% of the CPUs' time busy");
        let mut facts = HostFacts { load_average: Some(0.51), ..ideal() };
        assert!(check(&facts, &Needs::default()).iter().all(|it| it.severity == Severity::Ok));
        facts.activity = None;
        let load = |it: &Finding| it.id == "load" && it.severity == Severity::Warning;
        assert!(check(&facts, &Needs::default()).iter().any(load));
        let it = found(|facts, _| facts.activity = Some(activity(0.0, 1.5)));
        assert_eq!((it.id.as_str(), it.severity), ("steal", Severity::Warning));
    }

    #[test]
    fn virtual_machine_is_reported() {
        let hardware = Hardware::Virtual { hypervisor: Some("Firecracker".into()), product: None };
        let it = found(|facts, _| facts.system.hardware = Some(hardware));
        assert_eq!(it.what, "a virtual machine (Firecracker): its neighbours cannot be seen");
    }

    #[test]
    fn memory_and_disk_need_10_percent_spare() {
        let it = found(|_, needs| needs.memory = Some(Bytes::from_mib(4000)));
        assert_eq!((it.id.as_str(), it.severity), ("memory", Severity::Warning));
        let it = found(|_, needs| needs.disk = Some(Bytes::from_mib(10_000)));
        assert_eq!((it.id.as_str(), it.severity), ("disk", Severity::Warning));
        assert!(it.what.contains("/runs"), "{}", it.what);
        let needs = Needs {
            memory: Some(Bytes::from_mib(3700)),
            disk: Some(Bytes::from_mib(9000)),
            cpus: Some(8),
        };
        assert!(check(&ideal(), &needs).iter().all(|it| it.severity == Severity::Ok));
    }

    #[test]
    fn only_much_swap_is_a_warning() {
        let it = found(|facts, _| facts.memory.swap_used = Some(Bytes::from_mib(1)));
        assert_eq!((it.id.as_str(), it.severity), ("swap", Severity::Note));
        let it = found(|facts, _| facts.memory.swap_used = Some(Bytes::from_mib(64)));
        assert_eq!((it.severity, advice(&it)), (Severity::Warning, "sudo swapoff -a"));
    }

    #[test]
    fn missing_hardware_counters_have_advice() {
        let with = |access| found(|facts, _| facts.counters = Some(access));
        let it = with(CounterAccess::Unavailable(Reason::NoHardwareCounters));
        assert_eq!(
            it.what,
            "this machine has no hardware counters (virtual machine without a PMU)"
        );
        let paranoid = Reason::NotPermitted { paranoid: Some(3) };
        let it = with(CounterAccess::Unavailable(paranoid));
        assert!(it.what.ends_with("(kernel.perf_event_paranoid is 3)"), "{}", it.what);
        assert_eq!(advice(&it), "sudo sysctl kernel.perf_event_paranoid=2");
        let it = with(CounterAccess::Available(Scope::User));
        assert_eq!(advice(&it), "sudo sysctl kernel.perf_event_paranoid=1");
    }

    #[test]
    fn kernel_settings_are_checked() {
        let always = Some("always".to_owned());
        let it = found(|facts, _| facts.kernel.transparent_huge_pages = always);
        assert_eq!((it.id.as_str(), it.severity), ("thp", Severity::Warning));
        let it = found(|facts, _| facts.kernel.randomize_va_space = Some(2));
        assert_eq!((it.id.as_str(), it.severity), ("aslr", Severity::Note));
        let it = found(|facts, _| facts.kernel.clock_source = Some("hpet".into()));
        assert_eq!((it.id.as_str(), it.severity), ("clock-source", Severity::Warning));
        let it = found(|facts, _| facts.kernel.clock_source = Some("kvm-clock".into()));
        assert_eq!(it.severity, Severity::Note);
    }
}
