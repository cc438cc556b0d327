//! Checks of the host: conditions that may distort a measurement, with advice.

use std::fmt;

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::facts::{CounterAccess, Hardware, HostFacts};
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
    fn new(id: &str, severity: Severity, what: impl Into<String>) -> Self {
        Self { id: id.to_owned(), severity, what: what.into(), advice: None }
    }

    fn ok(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Ok, what)
    }

    fn note(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Note, what)
    }

    fn warning(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Warning, what)
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
    vec![
        cpus(facts, needs),
        governor(facts),
        boost(facts),
        smt(facts),
        hardware(facts),
        load(facts),
        steal(facts),
        memory(facts, needs),
        swap(facts),
        disk(facts, needs),
        counters(facts),
        huge_pages(facts),
        aslr(facts),
        clock_source(facts),
    ]
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
    const ID: &str = "cpus";
    let processor = &facts.processor;
    let Some(usable) = processor.usable.or(processor.online) else {
        return Finding::note(ID, "the number of CPUs is unknown");
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
        return Finding::warning(ID, what)
            .advise("assign whole CPUs instead (docker run --cpuset-cpus, not --cpus)");
    }
    match needs.cpus {
        _ if usable == 1 => {
            let advice = match is_restricted {
                true => "allow this process at least 2 CPUs (taskset -c, docker run --cpuset-cpus)",
                false => "use a machine with at least 2 CPUs",
            };
            Finding::warning(ID, format!("{cpus}: dbdyno and the system under test take turns"))
                .advise(format!("{advice}; here trust CPU time per query, not QPS"))
        }
        Some(needed) if usable < needed => {
            Finding::note(ID, format!("{cpus} for a run that can keep {needed} busy"))
                .advise("use fewer clients, or compare CPU time per query")
        }
        _ => Finding::ok(ID, cpus),
    }
}

fn governor(facts: &HostFacts) -> Finding {
    const ID: &str = "governor";
    let Some(governors) = facts.frequency.governors.as_ref().filter(|them| !them.is_empty()) else {
        return Finding::note(ID, unseen(facts, "the frequency governor"));
    };
    if governors.iter().all(|governor| governor == "performance") {
        return Finding::ok(ID, "the frequency governor is performance");
    }
    let names = governors.join(", ");
    let what = if governors.iter().any(|governor| governor == "powersave") {
        format!("the frequency governor is {names}: it saves power at the cost of speed")
    } else {
        format!("the frequency governor is {names}: the CPUs' speed follows the load")
    };
    Finding::warning(ID, what).advise("sudo cpupower frequency-set -g performance")
}

fn boost(facts: &HostFacts) -> Finding {
    const ID: &str = "turbo";
    match facts.frequency.boost {
        None => Finding::note(ID, unseen(facts, "turbo/boost")),
        Some(boost) if boost.on => {
            Finding::warning(ID, "turbo/boost is on: speed depends on temperature and neighbours")
                .advise(boost.command_to_switch_off())
        }
        Some(_) => Finding::ok(ID, "turbo/boost is off"),
    }
}

fn smt(facts: &HostFacts) -> Finding {
    const ID: &str = "smt";
    match facts.processor.smt {
        None => Finding::note(ID, "whether cores run several threads (SMT) is unknown"),
        Some(true) => Finding::note(ID, "SMT is on: two threads of a core slow each other down")
            .advise("echo off | sudo tee /sys/devices/system/cpu/smt/control"),
        Some(false) => Finding::ok(ID, "SMT is off"),
    }
}

fn hardware(facts: &HostFacts) -> Finding {
    const ID: &str = "virtual";
    match &facts.system.hardware {
        None => Finding::note(ID, "whether this is a virtual machine is unknown"),
        Some(Hardware::Real { .. }) => Finding::ok(ID, "not a virtual machine"),
        Some(Hardware::Virtual { hypervisor, .. }) => {
            let name = hypervisor.as_deref().map_or(String::new(), |name| format!(" ({name})"));
            Finding::note(ID, format!("a virtual machine{name}: its neighbours cannot be seen"))
                .advise(
                    "watch the control's ratio; for results to publish use a bare-metal machine",
                )
        }
    }
}

fn load(facts: &HostFacts) -> Finding {
    const ID: &str = "load";
    const ADVICE: &str = "see what runs: top -b -n 1 | head -n 20";
    let busy = facts.activity.map(|activity| activity.busy_by_others);
    // A current sample is preferred to the average, which may include this user's last build.
    match (busy, facts.load_average) {
        (Some(busy), _) if busy.as_fraction() > MUCH_BUSY => {
            Finding::warning(ID, format!("others keep {busy} of the CPUs' time busy"))
                .advise(ADVICE)
        }
        (_, Some(load)) if load > MUCH_LOAD => {
            Finding::warning(ID, format!("the load average of the last minute is {load:.2}"))
                .advise(format!("{ADVICE}; if it was you, wait a minute"))
        }
        (Some(busy), _) => Finding::ok(ID, format!("others keep {busy} of the CPUs' time busy")),
        (None, Some(load)) => Finding::ok(ID, format!("the load average is {load:.2}")),
        (None, None) => Finding::note(ID, "the load by others is unknown"),
    }
}

fn steal(facts: &HostFacts) -> Finding {
    const ID: &str = "steal";
    match facts.activity.map(|activity| activity.steal) {
        None => Finding::note(ID, "stolen CPU time was not sampled"),
        Some(steal) if steal.as_fraction() > MUCH_STEAL => Finding::warning(
            ID,
            format!("the hypervisor gives {steal} of the CPUs' time to others"),
        )
        .advise("stop and start the virtual machine to move it, or use dedicated CPUs"),
        Some(steal) => Finding::ok(ID, format!("{steal} of the CPUs' time is stolen")),
    }
}

fn memory(facts: &HostFacts, needs: &Needs) -> Finding {
    const ID: &str = "memory";
    match (facts.memory.available, needs.memory) {
        (None, _) => Finding::note(ID, "the memory available is unknown"),
        (Some(available), Some(needed)) if too_little(available, needed) => {
            Finding::warning(ID, format!("{available} of memory available, {needed} needed"))
                .advise(
                    "lower the cache sizes or the number of rows or candidates in the experiment",
                )
        }
        (Some(available), Some(needed)) => {
            Finding::ok(ID, format!("{available} of memory available, {needed} needed"))
        }
        (Some(available), None) => Finding::ok(ID, format!("{available} of memory available")),
    }
}

fn swap(facts: &HostFacts) -> Finding {
    const ID: &str = "swap";
    const ADVICE: &str = "sudo swapoff -a";
    match facts.memory.swap_used {
        None => Finding::note(ID, "the use of swap is unknown"),
        Some(used) if used >= MUCH_SWAP => {
            Finding::warning(ID, format!("{used} of swap are in use")).advise(ADVICE)
        }
        Some(used) if used > Bytes::default() => {
            Finding::note(ID, format!("{used} of swap are in use")).advise(ADVICE)
        }
        Some(_) => Finding::ok(ID, "no swap in use"),
    }
}

fn disk(facts: &HostFacts, needs: &Needs) -> Finding {
    const ID: &str = "disk";
    match (&facts.disk, needs.disk) {
        (None, _) => Finding::note(ID, "the free disk space is unknown"),
        (Some(disk), Some(needed)) if too_little(disk.free, needed) => Finding::warning(
            ID,
            format!("{} free for {}, {needed} needed", disk.free, disk.path.display()),
        )
        .advise("put the run on another disk, or lower the number of rows or candidates"),
        (Some(disk), Some(needed)) => {
            Finding::ok(ID, format!("{} free, {needed} needed", disk.free))
        }
        (Some(disk), None) => Finding::ok(ID, format!("{} free", disk.free)),
    }
}

fn counters(facts: &HostFacts) -> Finding {
    const ID: &str = "counters";
    match &facts.counters {
        None => Finding::note(ID, "hardware counters were not tried"),
        Some(CounterAccess::Available(Scope::UserAndKernel)) => {
            Finding::ok(ID, "hardware counters for user and kernel code")
        }
        Some(CounterAccess::Available(Scope::User)) => {
            Finding::note(ID, "hardware counters for user code only")
                .advise("sudo sysctl kernel.perf_event_paranoid=1")
        }
        Some(CounterAccess::Unavailable(reason)) => {
            let what = match reason {
                Reason::NoHardwareCounters => reason.to_string(),
                reason => format!("no hardware counters: {reason}"),
            };
            Finding { advice: reason.advice(), ..Finding::note(ID, what) }
        }
    }
}

fn huge_pages(facts: &HostFacts) -> Finding {
    const ID: &str = "thp";
    match facts.kernel.transparent_huge_pages.as_deref() {
        None => Finding::ok(ID, "this kernel has no transparent huge pages"),
        Some("always") => Finding::warning(
            ID,
            "transparent huge pages are always on: which memory gets them is chance",
        )
        .advise("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(when) => Finding::ok(ID, format!("transparent huge pages: {when}")),
    }
}

fn aslr(facts: &HostFacts) -> Finding {
    const ID: &str = "aslr";
    match facts.kernel.randomize_va_space {
        None => Finding::note(ID, "whether addresses are random (ASLR) is unknown"),
        Some(0) => Finding::ok(ID, "ASLR is off"),
        Some(_) => Finding::note(ID, "ASLR is on: each start of a system is a random draw")
            .advise("let the experiment restart its systems, so that the interval covers the draw"),
    }
}

fn clock_source(facts: &HostFacts) -> Finding {
    const ID: &str = "clock-source";
    const COMMAND: &str = "echo tsc | \
        sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
    match facts.kernel.clock_source.as_deref() {
        None => Finding::note(ID, "the clock source is unknown"),
        // These are read without a system call and have the resolution of the hardware.
        Some(source @ ("tsc" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => {
            Finding::ok(ID, format!("the clock source is {source}"))
        }
        Some("kvm-clock") => {
            Finding::note(ID, "the clock source is kvm-clock, a little slower than tsc")
                .advise(COMMAND)
        }
        Some(source) => Finding::warning(
            ID,
            format!("the clock source is {source}: reading it may take a microsecond"),
        )
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
mod tests;
