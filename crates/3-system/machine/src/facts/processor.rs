use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::control_groups::cpu_quota;
use crate::fs_root::FsRoot;
use crate::{CpuSet, Topology};

/// Instruction set extensions that compilers use or that databases detect at run time.
const FLAGS_OF_INTEREST: [&str; 11] = [
    // x86-64
    "sse4_2", "aes", "sha_ni", "avx2", "avx512f", "avx512bw", "amx_tile",
    // aarch64; "aes" has the same name
    "asimd", "atomics", "crc32", "sve",
];

/// Hardware properties of the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessorFacts {
    pub model: Option<String>,
    /// The version of the first CPU's microcode, as the kernel prints it.
    pub microcode: Option<String>,
    /// Online CPUs, counting hardware threads.
    pub online: Option<usize>,
    /// CPUs that this process may use, by its affinity and its control group; `None` if unknown.
    pub usable: Option<usize>,
    /// The lowest quota of CPU time of this process's control groups, as a number of CPUs; `None` without
    /// one, or if it is unknown.
    pub quota: Option<f64>,
    /// Online cores.
    pub cores: Option<usize>,
    /// Whether cores have more than one thread.
    pub smt: Option<bool>,
    pub sockets: Option<usize>,
    /// Number of NUMA nodes with CPUs.
    pub numa_nodes: Option<usize>,
    /// Cache sizes of the first CPU.
    pub caches: CacheSizes,
    /// Those of the relevant instruction set extensions that the CPU has.
    pub flags: Option<Vec<String>>,
    /// The time stamp counter; `None` if the machine is not x86.
    pub tsc: Option<TscFacts>,
}

/// Sizes of the caches that one CPU uses, including shared ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheSizes {
    pub l1d: Option<Bytes>,
    pub l1i: Option<Bytes>,
    pub l2: Option<Bytes>,
    pub l3: Option<Bytes>,
}

/// Properties of the CPU's time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TscFacts {
    /// Its rate is independent of the CPU's frequency.
    pub constant: bool,
    /// It continues in sleep states.
    pub nonstop: bool,
    /// Its frequency is known from the CPU or hypervisor, not measured by the kernel.
    pub known_frequency: bool,
}

impl ProcessorFacts {
    pub(super) fn read(root: &FsRoot) -> Self {
        let info = root.text("proc/cpuinfo").unwrap_or_default();
        let topology = Topology::read(root);
        // The field is "flags" on x86 and "Features" on aarch64.
        let flags: Option<Vec<&str>> = field(&info, "flags")
            .or_else(|| field(&info, "Features"))
            .map(|flags| flags.split_whitespace().collect());
        let has = |flag| flags.as_ref().is_some_and(|flags| flags.contains(&flag));
        let online = CpuSet::online_at(root).map(|cpus| cpus.len());
        Self {
            model: model(root, &info),
            microcode: field(&info, "microcode").map(str::to_owned),
            online,
            // Not in files: see `HostFacts::gather`.
            usable: None,
            quota: cpu_quota(root),
            cores: Some(topology.cores.len()).filter(|cores| *cores > 0),
            smt: root.flag("sys/devices/system/cpu/smt/active").or_else(|| topology.has_smt()),
            sockets: topology.sockets,
            numa_nodes: topology.numa_nodes,
            caches: CacheSizes::read(root),
            flags: flags.as_ref().map(|_| {
                let known = FLAGS_OF_INTEREST.iter().filter(|flag| has(flag));
                known.map(|flag| (*flag).to_owned()).collect()
            }),
            tsc: field(&info, "flags").map(|_| TscFacts {
                constant: has("constant_tsc"),
                nonstop: has("nonstop_tsc"),
                known_frequency: has("tsc_known_freq"),
            }),
        }
    }
}

impl CacheSizes {
    fn read(root: &FsRoot) -> Self {
        let mut sizes = Self::default();
        let caches = "sys/devices/system/cpu/cpu0/cache";
        for name in root.names(caches).iter().filter(|name| name.starts_with("index")) {
            let text = |fact: &str| root.text(&format!("{caches}/{name}/{fact}"));
            let size = text("size").and_then(|size| parse_size(&size));
            match (text("level").as_deref(), text("type").as_deref()) {
                (Some("1"), Some("Data")) => sizes.l1d = size,
                (Some("1"), Some("Instruction")) => sizes.l1i = size,
                (Some("2"), _) => sizes.l2 = size,
                (Some("3"), _) => sizes.l3 = size,
                _ => {}
            }
        }
        sizes
    }
}

/// Parse sizes in the format of sysfs: `32K`.
fn parse_size(text: &str) -> Option<Bytes> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let size: u64 = digits.parse().ok()?;
    size.checked_mul(1 << shift).map(Bytes::from_bytes)
}

/// The value of the first line `name : value`, which is that of the first CPU.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

fn model(root: &FsRoot, info: &str) -> Option<String> {
    if let Some(name) = field(info, "model name") {
        return Some(name.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    // aarch64 only has numbers; on some machines the firmware has a name.
    let numbers = (field(info, "CPU implementer"), field(info, "CPU part"));
    if let (Some(maker), Some(part)) = numbers {
        let name = match (maker, part) {
            ("0x41", "0xd03") => "Arm Cortex-A53",
            ("0x41", "0xd08") => "Arm Cortex-A72",
            ("0x41", "0xd0b") => "Arm Cortex-A76",
            ("0x41", "0xd0c") => "Arm Neoverse N1",
            ("0x41", "0xd40") => "Arm Neoverse V1",
            ("0x41", "0xd49") => "Arm Neoverse N2",
            ("0x41", "0xd4f") => "Arm Neoverse V2",
            ("0xc0", "0xac3") => "Ampere-1",
            ("0xc0", "0xac4") => "Ampere-1a",
            _ => return Some(format!("implementer {maker}, part {part}")),
        };
        return Some(name.to_owned());
    }
    root.text("proc/device-tree/model")
}

/// Settings that affect the CPUs' frequency. In most virtual machines all are unknown, since they
/// belong to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrequencyFacts {
    /// The active governors without duplicates; usually one for all CPUs.
    pub governors: Option<Vec<String>>,
    pub driver: Option<String>,
    /// Frequencies above the nominal one.
    pub boost: Option<Boost>,
}

/// Frequencies above the nominal one (Intel: Turbo Boost), available only while temperature, power
/// and the load of other cores permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    pub on: bool,
    /// The file with the setting.
    pub control: BoostControl,
}

/// The file that enables or disables boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoostControl {
    /// `intel_pstate/no_turbo`: 1 disables boost.
    NoTurbo,
    /// `cpufreq/boost`: 1 enables boost, for all CPUs.
    Boost,
}

impl Boost {
    /// The command that disables boost.
    pub const fn command_to_switch_off(self) -> &'static str {
        match self.control {
            BoostControl::NoTurbo => {
                "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
            }
            BoostControl::Boost => "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
        }
    }
}

impl FrequencyFacts {
    pub(super) fn read(root: &FsRoot) -> Self {
        let policies = "sys/devices/system/cpu/cpufreq";
        let of_policies = |fact: &str| {
            let names = root.names(policies);
            let names = names.iter().filter(|name| name.starts_with("policy"));
            let mut values: Vec<String> =
                names.filter_map(|name| root.text(&format!("{policies}/{name}/{fact}"))).collect();
            values.sort();
            values.dedup();
            values
        };
        let no_turbo = root.flag("sys/devices/system/cpu/intel_pstate/no_turbo");
        let boost = root.flag(&format!("{policies}/boost"));
        Self {
            governors: Some(of_policies("scaling_governor")).filter(|found| !found.is_empty()),
            driver: of_policies("scaling_driver").into_iter().next(),
            boost: match (no_turbo, boost) {
                (Some(no_turbo), _) => {
                    Some(Boost { on: !no_turbo, control: BoostControl::NoTurbo })
                }
                (None, Some(on)) => Some(Boost { on, control: BoostControl::Boost }),
                (None, None) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn x86_machine_is_read() {
        let tree = Fixture::new(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nmicrocode\t: 0xd0003d1\nflags\t\t: fpu avx2 aes constant_tsc nonstop_tsc\n\nprocessor\t: 1\n",
            ),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/smt/active", "0\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/type", "Unified\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n"),
        ]);
        let facts = ProcessorFacts::read(&tree.root());
        assert_eq!(facts.model.as_deref(), Some("Some CPU @ 3GHz"));
        assert_eq!(facts.microcode.as_deref(), Some("0xd0003d1"));
        assert_eq!((facts.online, facts.cores, facts.smt), (Some(2), Some(2), Some(false)));
        assert_eq!(facts.caches.l1d, Some(Bytes::from_kib(48)));
        assert_eq!(facts.caches.l3, Some(Bytes::from_mib(32)));
        assert_eq!(facts.caches.l2, None);
        assert_eq!(facts.flags.unwrap(), ["aes", "avx2"]);
        let tsc = TscFacts { constant: true, nonstop: true, known_frequency: false };
        assert_eq!(facts.tsc, Some(tsc));
    }

    #[test]
    fn arm_machine_is_read() {
        let info = "processor : 0\nFeatures : fp asimd atomics\nCPU implementer : 0x41\nCPU part : 0xd40\n";
        let facts = ProcessorFacts::read(&Fixture::new(&[("proc/cpuinfo", info)]).root());
        assert_eq!(facts.model.as_deref(), Some("Arm Neoverse V1"));
        assert_eq!(facts.flags.unwrap(), ["asimd", "atomics"]);
        assert_eq!(facts.tsc, None);
    }

    #[test]
    fn cache_size_is_parsed_or_unknown() {
        assert_eq!(parse_size("2M"), Some(Bytes::from_mib(2)));
        assert_eq!(parse_size("512"), Some(Bytes::from_bytes(512)));
        assert_eq!(parse_size("K"), None);
        assert_eq!(parse_size("\u{e9}"), None);
        assert_eq!(parse_size("99999999999999999999M"), None);
    }

    #[test]
    fn governors_are_listed_once() {
        let tree = Fixture::new(&[
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpufreq/policy2/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "intel_pstate\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
        ]);
        let facts = FrequencyFacts::read(&tree.root());
        assert_eq!(facts.governors.unwrap(), ["performance", "powersave"]);
        assert_eq!(facts.driver.as_deref(), Some("intel_pstate"));
        assert_eq!(facts.boost, Some(Boost { on: true, control: BoostControl::NoTurbo }));
    }

    #[test]
    fn boost_is_read_from_either_file() {
        let boost = |path, text| FrequencyFacts::read(&Fixture::new(&[(path, text)]).root()).boost;
        let intel = boost("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n").unwrap();
        assert!(!intel.on);
        let amd = boost("sys/devices/system/cpu/cpufreq/boost", "1\n").unwrap();
        assert!(amd.on);
        assert!(amd.command_to_switch_off().starts_with("echo 0"));
        assert_eq!(boost("unrelated", "1\n"), None);
    }
}
