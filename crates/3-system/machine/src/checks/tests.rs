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
    let it = found(|facts, _| facts.load_average = Some(0.51));
    assert_eq!((it.id.as_str(), it.severity), ("load", Severity::Warning));
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
    assert_eq!(it.what, "this machine has no hardware counters (virtual machine without a PMU)");
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
