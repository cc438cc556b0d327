use std::fs;
use std::io;

/// What `-march=native` depends on: the model and the abilities of this machine's CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCpu(String);

/// The lines of `/proc/cpuinfo` from which compilers derive `native`, on x86 and on ARM. Lines
/// that change from moment to moment (`cpu MHz`) must not be here.
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
    /// Of the machine that runs this program.
    ///
    /// # Errors
    /// When `/proc/cpuinfo` cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/cpuinfo")?))
    }

    /// From the text of `/proc/cpuinfo`. CPUs that are alike count once; a machine with two
    /// kinds of cores has both.
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
    fn keeps_what_code_generation_depends_on() {
        assert_eq!(HostCpu::parse(TWO_ALIKE).as_str(), "model name: EPYC\nflags: sse avx2");
    }

    #[test]
    fn does_not_change_with_the_clock_or_the_number_of_cores() {
        let one = TWO_ALIKE.split_once("\n\n").unwrap().0.replace("2500.1", "800.0");
        assert_eq!(HostCpu::parse(&one), HostCpu::parse(TWO_ALIKE));
    }

    #[test]
    fn tells_apart_cpus_with_other_abilities() {
        let newer = TWO_ALIKE.replace("avx2", "avx2 avx512f");
        assert_ne!(HostCpu::parse(&newer), HostCpu::parse(TWO_ALIKE));
    }
}
