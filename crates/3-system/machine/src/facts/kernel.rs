use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fs_root::FsRoot;

/// Kernel settings that affect results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelFacts {
    pub clock_source: Option<String>,
    /// CPU vulnerabilities and their mitigations.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

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
}
