use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::Sha256;

/// What `-march=native` depends on: the model and features of this machine's CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCpu(String);

/// The keys of `/proc/cpuinfo` from which compilers derive `native`, on x86 and ARM. Values that
/// change over time (`cpu MHz`) must not be included.
const RELEVANT: [&str; 11] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "cache size",
    "flags",
    "Features",
    "CPU implementer",
    "CPU part",
    "CPU variant",
];

impl HostCpu {
    /// Reads the CPU of this machine.
    ///
    /// # Errors
    /// When `/proc/cpuinfo` cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/cpuinfo")?))
    }

    /// Parses the text of `/proc/cpuinfo`. Equal CPUs count once; a machine with two kinds of cores
    /// has both.
    #[must_use]
    pub fn parse(cpuinfo: &str) -> Self {
        let mut kinds: Vec<String> = Vec::new();
        for processor in cpuinfo.split("\n\n") {
            let lines: Vec<String> = processor
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, _)| RELEVANT.contains(key))
                .map(|(key, value)| format!("{key}: {value}"))
                .collect();
            let kind = lines.join("\n");
            if !kind.is_empty() && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.sort_unstable();
        Self(kinds.join("\n\n"))
    }

    /// The features of this CPU that another one does not have: code for this CPU may need them. On a machine
    /// with several kinds of cores, each of them counts.
    #[must_use]
    pub fn features_missing_on(&self, other: &Self) -> Vec<String> {
        let own: BTreeSet<&str> = self.kinds().flat_map(features).collect();
        let is_everywhere =
            |feature: &&str| other.kinds().all(|kind| features(kind).any(|one| one == *feature));
        own.into_iter().filter(|one| !is_everywhere(one)).map(str::to_owned).collect()
    }

    /// The name of its model, such as `AMD EPYC 7763`; ARM has numbers only.
    #[must_use]
    pub fn model(&self) -> String {
        let value = |key: &str| self.0.lines().find_map(|line| line.strip_prefix(key));
        if let Some(name) = value("model name: ") {
            return name.to_owned();
        }
        let numbers = (value("CPU implementer: "), value("CPU part: "));
        match numbers {
            (Some(implementer), Some(part)) => format!("implementer {implementer}, part {part}"),
            _ => "unknown".to_owned(),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.split("\n\n")
    }

    /// A short name of this type of CPU, in hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        Sha256::of(self.0.as_bytes()).to_string()[..16].to_owned()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The features in the lines of one kind of CPU.
fn features(kind: &str) -> impl Iterator<Item = &str> {
    let lists = kind.lines().filter_map(|line| {
        line.strip_prefix("flags: ").or_else(|| line.strip_prefix("Features: "))
    });
    lists.flat_map(str::split_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_ALIKE: &str = "processor\t: 0\nmodel name\t: EPYC\ncpu MHz\t\t: 2500.1\nflags\t\t: \
                             sse avx2\n\nprocessor\t: 1\nmodel name\t: EPYC\ncpu MHz\t\t: \
                             3100.9\nflags\t\t: sse avx2\n\n";

    #[test]
    fn only_lines_that_affect_code_generation_are_kept() {
        assert_eq!(HostCpu::parse(TWO_ALIKE).as_str(), "model name: EPYC\nflags: sse avx2");
    }

    #[test]
    fn host_is_independent_of_clock_and_core_count() {
        let one = TWO_ALIKE.split_once("\n\n").unwrap().0.replace("2500.1", "800.0");
        assert_eq!(HostCpu::parse(&one), HostCpu::parse(TWO_ALIKE));
    }

    #[test]
    fn missing_features_are_those_of_any_core() {
        let both = HostCpu::parse(TWO_ALIKE);
        let newer = HostCpu::parse(&TWO_ALIKE.replace("avx2", "avx2 avx512f"));
        assert!(both.features_missing_on(&newer).is_empty());
        assert_eq!(newer.features_missing_on(&both), ["avx512f"]);
        let (one, other) = TWO_ALIKE.split_once("\n\n").unwrap();
        let mixed = HostCpu::parse(&format!("{}\n\n{other}", one.replace("avx2", "")));
        assert_eq!(both.features_missing_on(&mixed), ["avx2"]);
        assert_eq!(both.features_missing_on(&HostCpu::parse("")), ["avx2", "sse"]);
        assert_eq!(both.model(), "EPYC");
        let arm = "processor: 0\nFeatures: fp asimd\nCPU implementer: 0x41\nCPU part: 0xd0c\n";
        assert_eq!(HostCpu::parse(arm).model(), "implementer 0x41, part 0xd0c");
    }

    #[test]
    fn cpus_with_different_features_are_distinguished() {
        let newer = TWO_ALIKE.replace("avx2", "avx2 avx512f");
        assert_ne!(HostCpu::parse(&newer), HostCpu::parse(TWO_ALIKE));
    }
}
