use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::Duration;

use dbdyno_units::{Nanos, Share};
use serde::{Deserialize, Serialize};

use super::hypervisor::Hardware;
use crate::clock;
use crate::fs_root::FsRoot;

/// Names and versions of the host; virtual or physical.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemFacts {
    pub host: Option<String>,
    /// The distribution, from os-release.
    pub os: Option<String>,
    pub kernel: Option<String>,
    /// The architecture that this program was compiled for.
    pub architecture: Option<String>,
    pub hardware: Option<Hardware>,
    /// The container runtime of this process; `None` if none was detected.
    pub container: Option<String>,
}

impl SystemFacts {
    pub(super) fn read(root: &FsRoot, signature: Option<&str>) -> Self {
        Self {
            host: root.text("proc/sys/kernel/hostname"),
            os: os_name(root),
            kernel: root.text("proc/sys/kernel/osrelease"),
            architecture: Some(std::env::consts::ARCH.to_owned()),
            hardware: Hardware::read(root, signature),
            container: container(root),
        }
    }
}

fn os_name(root: &FsRoot) -> Option<String> {
    // os-release(5): the second path is the vendor's copy, for hosts with an empty /etc.
    let text = root.text("etc/os-release").or_else(|| root.text("usr/lib/os-release"))?;
    let value = |name| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        Some(value.trim_matches(['"', '\'']).to_owned())
    };
    value("PRETTY_NAME=").or_else(|| value("NAME="))
}

/// Detect the container runtime by its files, none of which are guaranteed to exist.
fn container(root: &FsRoot) -> Option<String> {
    // systemd writes the name of the container manager to this file.
    if let Some(name) = root.text("run/systemd/container") {
        return Some(name);
    }
    if root.exists(".dockerenv") {
        return Some("docker".to_owned());
    }
    if root.exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    let groups = root.text("proc/1/cgroup")?;
    let marks = [("kubepods", "kubernetes"), ("docker", "docker"), ("lxc", "lxc")];
    let (_, name) = marks.into_iter().find(|(mark, _)| groups.contains(mark))?;
    Some(name.to_owned())
}

/// Kernel settings that affect results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelFacts {
    pub clock_source: Option<String>,
    pub mitigations: Option<Mitigations>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// `kernel.randomize_va_space`: 0 is off, 2 is everything.
    pub randomize_va_space: Option<u8>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
}

/// The state of each known CPU vulnerability, as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mitigations(pub BTreeMap<String, String>);

/// Formats counts: `3 active, 1 vulnerable, 16 not needed`, and `1 unknown` if the kernel cannot tell.
impl fmt::Display for Mitigations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut active, mut vulnerable, mut not_needed, mut unknown) = (0, 0, 0, 0);
        for state in self.0.values() {
            // With KVM some have a prefix: `KVM: Mitigation: Split huge pages`.
            let state = state.strip_prefix("KVM: ").unwrap_or(state);
            *match state {
                _ if state.starts_with("Mitigation") => &mut active,
                _ if state.starts_with("Vulnerable") => &mut vulnerable,
                // Without KVM, which would need a mitigation.
                "Processor vulnerable" => &mut vulnerable,
                "Not affected" => &mut not_needed,
                // `Unknown: Dependent on hypervisor status`
                _ => &mut unknown,
            } += 1;
        }
        let unknown = if unknown > 0 { format!(", {unknown} unknown") } else { String::new() };
        f.pad(&format!(
            "{active} active, {vulnerable} vulnerable, {not_needed} not needed{unknown}"
        ))
    }
}

impl KernelFacts {
    pub(super) fn read(root: &FsRoot) -> Self {
        Self {
            clock_source: root
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            mitigations: mitigations(root),
            transparent_huge_pages: root
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text).map(str::to_owned)),
            randomize_va_space: root.value("proc/sys/kernel/randomize_va_space"),
            perf_event_paranoid: None,
        }
    }
}

fn mitigations(root: &FsRoot) -> Option<Mitigations> {
    let directory = "sys/devices/system/cpu/vulnerabilities";
    let states: BTreeMap<String, String> = root
        .names(directory)
        .into_iter()
        .filter_map(|name| {
            let state = root.text(&format!("{directory}/{name}"))?;
            Some((name, state))
        })
        .collect();
    (!states.is_empty()).then_some(Mitigations(states))
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// CPU time used by others during an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    pub interval: Nanos,
    /// Share of the CPUs' time that the hypervisor gave to others while this machine had work to
    /// run.
    pub steal: Share,
    /// Share of the CPUs' time used by other processes of this machine and by its interrupts.
    pub busy_by_others: Share,
}

impl Activity {
    /// Sleep for `interval` and measure the activity meanwhile; `None` if `/proc/stat` cannot be
    /// read, or if the interval is shorter than the resolution of the kernel's counters (10 ms).
    pub fn sample(interval: Duration) -> Option<Self> {
        let root = FsRoot::this_machine();
        let take = || Some((Stat::read(&root)?, clock::process_cpu(), clock::monotonic()));
        let (before, own_before, start) = take()?;
        thread::sleep(interval);
        let (after, own_after, end) = take()?;
        let interval = end.saturating_sub(start);
        Self::between(&before, &after, own_after.saturating_sub(own_before), interval)
    }

    /// `own` is the CPU time of this process.
    fn between(before: &Stat, after: &Stat, own: Nanos, interval: Nanos) -> Option<Self> {
        let total = after.total.checked_sub(before.total).filter(|total| *total > 0)? as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / total;
        // The unit of the counters cancels out: the total time is the interval times the number of
        // CPUs.
        let machine = interval.as_secs_f64() * f64::from(after.cpus);
        let own = if machine > 0.0 { own.as_secs_f64() / machine } else { 0.0 };
        Some(Self {
            interval,
            steal: Share::from_fraction(share(after.steal, before.steal)),
            busy_by_others: Share::from_fraction((share(after.busy, before.busy) - own).max(0.0)),
        })
    }
}

/// CPU times of all CPUs since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    busy: u64,
    steal: u64,
    total: u64,
    cpus: u32,
}

impl Stat {
    fn read(root: &FsRoot) -> Option<Self> {
        Self::parse(&root.text("proc/stat")?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Option<Vec<u64>> =
            line.split_whitespace().map(|field| field.parse().ok()).collect();
        let fields = fields?;
        // The following two fields, for guests, are included in user and nice.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *fields.first_chunk()?;
        let sum = |parts: &[u64]| parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(*part));
        let busy = sum(&[user, nice, system, irq, softirq])?;
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        Some(Self {
            busy,
            steal,
            total: sum(&[busy, idle, iowait, steal])?,
            cpus: u32::try_from(text.lines().filter(is_cpu).count()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn names_of_a_host_without_container() {
        let tree = Fixture::new(&[
            ("proc/sys/kernel/hostname", "bench1\n"),
            ("proc/sys/kernel/osrelease", "6.12.1-amd64\n"),
            ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n"),
            ("proc/1/cgroup", "0::/init.scope\n"),
        ]);
        let facts = SystemFacts::read(&tree.root(), None);
        assert_eq!(facts.host.as_deref(), Some("bench1"));
        assert_eq!(facts.os.as_deref(), Some("Debian GNU/Linux 13 (trixie)"));
        assert_eq!(facts.kernel.as_deref(), Some("6.12.1-amd64"));
        assert_eq!(facts.container, None);
    }

    #[test]
    fn containers_are_detected_by_their_files() {
        let found = |path, text| container(&Fixture::new(&[(path, text)]).root());
        assert_eq!(found(".dockerenv", "").as_deref(), Some("docker"));
        assert_eq!(found("run/.containerenv", "").as_deref(), Some("podman"));
        assert_eq!(found("run/systemd/container", "lxc\n").as_deref(), Some("lxc"));
        assert_eq!(found("proc/1/cgroup", "0::/kubepods/x\n").as_deref(), Some("kubernetes"));
    }

    #[test]
    fn settings_are_read() {
        let tree = Fixture::new(&[
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n"),
            ("sys/devices/system/cpu/vulnerabilities/spectre_v1", "Mitigation: barriers\n"),
            ("sys/devices/system/cpu/vulnerabilities/retbleed", "Vulnerable\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/sys/kernel/randomize_va_space", "2\n"),
        ]);
        let facts = KernelFacts::read(&tree.root());
        assert_eq!(facts.clock_source.as_deref(), Some("tsc"));
        let mitigations = facts.mitigations.unwrap();
        assert_eq!(mitigations.0["retbleed"], "Vulnerable");
        assert_eq!(mitigations.to_string(), "1 active, 1 vulnerable, 1 not needed");
        assert_eq!(facts.transparent_huge_pages.as_deref(), Some("madvise"));
        assert_eq!(facts.randomize_va_space, Some(2));
    }

    #[test]
    fn unknown_and_kvm_mitigations_are_not_counted_as_not_needed() {
        let states = [
            "KVM: Mitigation: VMX disabled",
            "KVM: Vulnerable",
            "Processor vulnerable",
            "Unknown: Dependent on hypervisor status",
            "Not affected",
        ];
        let states = states.iter().map(|state| (state.to_string(), state.to_string()));
        let text = Mitigations(states.collect()).to_string();
        assert_eq!(text, "1 active, 2 vulnerable, 1 not needed, 1 unknown");
    }

    #[test]
    fn text_without_a_complete_bracket_is_unknown() {
        assert_eq!(chosen("always"), None);
        assert_eq!(chosen("[never"), None);
    }

    #[test]
    fn shares_are_of_all_cpus_without_this_process() {
        let before = Stat::parse("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0\ncpu1 0\n").unwrap();
        // Two CPUs for a second: 200 ticks, of which 2 stolen and 50 busy.
        let after = Stat::parse("cpu  30 5 10 140 8 2 3 2 9 9\ncpu0 0\ncpu1 0\nctxt 1\n").unwrap();
        assert_eq!(after, Stat { busy: 50, steal: 2, total: 200, cpus: 2 });
        let own = Nanos::from_millis(400);
        let activity = Activity::between(&before, &after, own, Nanos::from_secs(1)).unwrap();
        assert_eq!(activity.steal.to_string(), "1%");
        assert_eq!(activity.busy_by_others.to_string(), "5%");
    }

    #[test]
    fn interval_of_zero_gives_no_shares() {
        let stat = Stat::parse("cpu 1 2 3 4 5 6 7 8\ncpu0 1\n").unwrap();
        assert_eq!(Activity::between(&stat, &stat, Nanos::ZERO, Nanos::ZERO), None);
        assert_eq!(Stat::parse("cpu 1 2 3 4\n"), None);
    }

    #[test]
    fn shares_of_this_machine_are_between_0_and_1() {
        if let Some(activity) = Activity::sample(Duration::from_millis(50)) {
            let shares = [activity.steal, activity.busy_by_others];
            assert!(shares.iter().all(|it| (0.0..=1.0).contains(&it.as_fraction())), "{shares:?}");
        }
    }

    proptest! {
        #[test]
        fn parser_does_not_panic_on_any_text(text in "(cpu[ 0-9]{0,3}[ 0-9]{0,90}\n){0,3}.{0,20}") {
            let _ = Stat::parse(&text);
        }
    }
}
