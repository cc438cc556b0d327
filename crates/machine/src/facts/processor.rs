use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::fs_root::FsRoot;
use crate::{CpuSet, Topology};

/// Instruction set extensions that compilers use or that databases ask for at run time.
const FLAGS_OF_INTEREST: [&str; 11] = [
    // x86-64
    "sse4_2", "aes", "sha_ni", "avx2", "avx512f", "avx512bw", "amx_tile",
    // aarch64, where "aes" is called the same
    "asimd", "atomics", "crc32", "sve",
];

/// The CPUs, as built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessorFacts {
    /// The model's name.
    pub model: Option<String>,
    /// CPUs that are switched on, hardware threads counted singly.
    pub online: Option<usize>,
    /// Cores that are switched on.
    pub cores: Option<usize>,
    /// Whether cores run more than one thread.
    pub smt: Option<bool>,
    /// Sockets.
    pub sockets: Option<usize>,
    /// NUMA nodes that have CPUs.
    pub numa_nodes: Option<usize>,
    /// Sizes of the first CPU's caches.
    pub caches: CacheSizes,
    /// Those instruction set extensions that matter here.
    pub flags: Option<Vec<String>>,
    /// The time stamp counter; `None` on a machine that is not x86.
    pub tsc: Option<TscFacts>,
}

/// Sizes of the caches that one CPU uses, shared ones in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheSizes {
    /// First level, data.
    pub l1d: Option<Bytes>,
    /// First level, instructions.
    pub l1i: Option<Bytes>,
    /// Second level.
    pub l2: Option<Bytes>,
    /// Third level.
    pub l3: Option<Bytes>,
}

/// What the CPU promises of its time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TscFacts {
    /// Its rate does not follow the CPU's frequency.
    pub constant: bool,
    /// It goes on while the CPU sleeps.
    pub nonstop: bool,
    /// Its frequency is stated by the CPU or hypervisor, not measured by the kernel.
    pub known_frequency: bool,
}

impl ProcessorFacts {
    pub(super) fn read(root: &FsRoot) -> Self {
        let info = root.text("proc/cpuinfo").unwrap_or_default();
        let topology = Topology::read(root);
        // Called "flags" on x86 and "Features" on aarch64.
        let flags: Option<Vec<&str>> = field(&info, "flags")
            .or_else(|| field(&info, "Features"))
            .map(|flags| flags.split_whitespace().collect());
        let has = |flag| flags.as_ref().is_some_and(|flags| flags.contains(&flag));
        let online = CpuSet::online_at(root).map(|cpus| cpus.len());
        Self {
            model: model(root, &info),
            online,
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

/// Reads sizes as sysfs writes them: `32K`.
fn parse_size(text: &str) -> Option<Bytes> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let size: u64 = digits.parse().ok()?;
    size.checked_mul(1 << shift).map(Bytes::from_bytes)
}

/// The value of a line `name : value`, the first CPU's.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

fn model(root: &FsRoot, info: &str) -> Option<String> {
    if let Some(name) = field(info, "model name") {
        return Some(name.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    // aarch64 has numbers only, and some machines' firmware a name.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn an_x86_machine() {
        let tree = Fixture::new(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nflags\t\t: fpu avx2 aes constant_tsc nonstop_tsc\n\nprocessor\t: 1\n",
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
        assert_eq!((facts.online, facts.cores, facts.smt), (Some(2), Some(2), Some(false)));
        assert_eq!(facts.caches.l1d, Some(Bytes::from_kib(48)));
        assert_eq!(facts.caches.l3, Some(Bytes::from_mib(32)));
        assert_eq!(facts.caches.l2, None);
        assert_eq!(facts.flags.unwrap(), ["aes", "avx2"]);
        let tsc = TscFacts { constant: true, nonstop: true, known_frequency: false };
        assert_eq!(facts.tsc, Some(tsc));
    }

    #[test]
    fn an_arm_machine() {
        let info = "processor : 0\nFeatures : fp asimd atomics\nCPU implementer : 0x41\nCPU part : 0xd40\n";
        let facts = ProcessorFacts::read(&Fixture::new(&[("proc/cpuinfo", info)]).root());
        assert_eq!(facts.model.as_deref(), Some("Arm Neoverse V1"));
        assert_eq!(facts.flags.unwrap(), ["asimd", "atomics"]);
        assert_eq!(facts.tsc, None);
    }

    #[test]
    fn sizes_of_any_text() {
        assert_eq!(parse_size("2M"), Some(Bytes::from_mib(2)));
        assert_eq!(parse_size("512"), Some(Bytes::from_bytes(512)));
        assert_eq!(parse_size("K"), None);
        assert_eq!(parse_size("\u{e9}"), None);
        assert_eq!(parse_size("99999999999999999999M"), None);
    }
}
