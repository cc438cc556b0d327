//! Energy consumption of the CPU packages, from the kernel's powercap interface (RAPL).

use std::fs::File;
use std::os::unix::fs::FileExt;

use dbdyno_units::Energy;

use crate::FsRoot;

/// The directory of power zones.
const ZONES: &str = "sys/class/powercap";

/// The energy counters of all CPU packages of this machine.
///
/// They include all CPUs and all processes.
#[derive(Debug)]
pub struct Power {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    file: File,
    /// The counter wraps around after this many microjoules.
    range: u64,
}

/// Why the energy is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPower {
    /// The kernel has no energy counters.
    #[error("the kernel shows no energy of CPU packages (no RAPL in /sys/class/powercap)")]
    None,
    /// This user may not read it.
    #[error(
        "/sys/class/powercap shows the energy of CPU packages to root only (chmod a+r \
         /sys/class/powercap/*/energy_uj)"
    )]
    NotPermitted,
}

/// The values of all energy counters at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerReading(Vec<u64>);

impl Power {
    pub fn open() -> Result<Self, NoPower> {
        Self::under(&FsRoot::this_machine())
    }

    fn under(root: &FsRoot) -> Result<Self, NoPower> {
        let mut packages = Vec::new();
        for zone in root.names(ZONES) {
            let zone = format!("{ZONES}/{zone}");
            // Other zones are parts of packages or, on some laptops, the whole system.
            let name = root.text(&format!("{zone}/name")).unwrap_or_default();
            if !name.starts_with("package-") {
                continue;
            }
            // The MMIO interface lists the same packages again.
            if zone.contains("-mmio") {
                continue;
            }
            let file = File::open(root.path(&format!("{zone}/energy_uj")))
                .map_err(|_| NoPower::NotPermitted)?;
            let range = root.value(&format!("{zone}/max_energy_range_uj")).unwrap_or(u64::MAX);
            packages.push(Package { file, range });
        }
        if packages.is_empty() { Err(NoPower::None) } else { Ok(Self { packages }) }
    }

    /// The current values; `None` if one cannot be read.
    pub fn read(&self) -> Option<PowerReading> {
        self.packages.iter().map(Package::read).collect::<Option<_>>().map(PowerReading)
    }

    /// The energy consumed between two readings. A counter may wrap around once in between, which
    /// takes minutes.
    pub fn between(&self, earlier: &PowerReading, later: &PowerReading) -> Energy {
        let packages = self.packages.iter().zip(earlier.0.iter().zip(&later.0));
        let grown = packages.map(|(package, (then, now))| match now.checked_sub(*then) {
            Some(grown) => grown,
            None => (package.range - then.min(&package.range)).saturating_add(*now),
        });
        Energy::from_microjoules(grown.sum())
    }
}

impl Package {
    fn read(&self) -> Option<u64> {
        let mut buffer = [0; 32];
        let length = self.file.read_at(&mut buffer, 0).ok()?;
        std::str::from_utf8(&buffer[..length]).ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    fn zone(name: &str, kind: &str, energy: &str) -> Vec<(String, String)> {
        let file = |file: &str, text: &str| (format!("{ZONES}/{name}/{file}"), text.to_owned());
        vec![
            file("name", kind),
            file("energy_uj", energy),
            file("max_energy_range_uj", "1000000\n"),
        ]
    }

    fn tree(zones: &[Vec<(String, String)>]) -> Fixture {
        let files: Vec<(&str, &str)> =
            zones.iter().flatten().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        Fixture::new(&files)
    }

    #[test]
    fn packages_are_summed_without_parts_and_duplicates() {
        let tree = tree(&[
            zone("intel-rapl:0", "package-0\n", "100\n"),
            zone("intel-rapl:0:0", "core\n", "7\n"),
            zone("intel-rapl:1", "package-1\n", "999990\n"),
            zone("intel-rapl-mmio:0", "package-0\n", "100\n"),
        ]);
        let power = Power::under(&tree.root()).unwrap();
        let earlier = power.read().unwrap();
        assert_eq!(earlier, PowerReading(vec![100, 999_990]));
        assert_eq!(power.between(&earlier, &earlier), Energy::from_microjoules(0));
        // The second one has wrapped around.
        let later = PowerReading(vec![150, 20]);
        assert_eq!(power.between(&earlier, &later), Energy::from_microjoules(50 + 10 + 20));
    }

    #[test]
    fn missing_counters_and_missing_permission_differ() {
        let none = tree(&[zone("intel-rapl:0:0", "core\n", "7\n")]);
        assert_eq!(Power::under(&none.root()).unwrap_err(), NoPower::None);
        let hidden = tree(&[zone("intel-rapl:0", "package-0\n", "7\n")]);
        let file = hidden.root().path("sys/class/powercap/intel-rapl:0/energy_uj");
        std::fs::remove_file(file).unwrap();
        assert_eq!(Power::under(&hidden.root()).unwrap_err(), NoPower::NotPermitted);
    }
}
