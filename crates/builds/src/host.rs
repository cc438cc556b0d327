use std::fs;
use std::io;

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

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
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
    fn cpus_with_different_features_are_distinguished() {
        let newer = TWO_ALIKE.replace("avx2", "avx2 avx512f");
        assert_ne!(HostCpu::parse(&newer), HostCpu::parse(TWO_ALIKE));
    }
}
