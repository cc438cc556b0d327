use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::fs_root::FsRoot;

/// Memory and swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryFacts {
    /// Memory available to the kernel.
    pub total: Option<Bytes>,
    /// Memory available to programs without swapping.
    pub available: Option<Bytes>,
    /// Used swap; zero without swap.
    pub swap_used: Option<Bytes>,
}

impl MemoryFacts {
    pub(super) fn read(root: &FsRoot) -> Self {
        root.text("proc/meminfo").map_or_else(Self::default, |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let size = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024).map(Bytes::from_bytes)
        };
        let swap = size("SwapTotal:").zip(size("SwapFree:"));
        Self {
            total: size("MemTotal:"),
            available: size("MemAvailable:"),
            swap_used: swap.map(|(total, free)| {
                Bytes::from_bytes(total.as_bytes().saturating_sub(free.as_bytes()))
            }),
        }
    }
}

/// The load average over the last minute.
pub(super) fn load_average(root: &FsRoot) -> Option<f64> {
    root.text("proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn memory_and_load_are_read() {
        let tree = Fixture::new(&[
            (
                "proc/meminfo",
                "MemTotal:  1024 kB\nMemFree:  1 kB\nMemAvailable:  512 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n",
            ),
            ("proc/loadavg", "0.42 0.30 0.20 1/234 5678\n"),
        ]);
        let facts = MemoryFacts::read(&tree.root());
        assert_eq!(facts.total, Some(Bytes::from_mib(1)));
        assert_eq!(facts.available, Some(Bytes::from_kib(512)));
        assert_eq!(facts.swap_used, Some(Bytes::from_kib(10)));
        assert_eq!(load_average(&tree.root()), Some(0.42));
    }

    #[test]
    fn unparsable_values_are_unknown() {
        assert_eq!(
            MemoryFacts::parse("MemTotal: many kB\nSwapTotal: 1 kB"),
            MemoryFacts::default()
        );
    }
}
