//! The energy that the CPU packages take, as the kernel tells it (RAPL).

use std::fs::File;
use std::os::unix::fs::FileExt;

use dbdyno_units::Energy;

use crate::FsRoot;

/// Where the kernel shows the zones whose energy it knows.
const ZONES: &str = "sys/class/powercap";

/// The energy of all CPU packages of this machine, to be read again and again.
///
/// It is everybody's: of all CPUs, whoever is at work on them.
#[derive(Debug)]
pub struct Power {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    file: File,
    /// After this many microjoules its count starts again at 0.
    range: u64,
}

/// Why the energy is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPower {
    /// The kernel shows none.
    #[error("the kernel shows no energy of CPU packages (no RAPL in /sys/class/powercap)")]
    None,
    /// This user may not read it.
    #[error(
        "/sys/class/powercap shows the energy of CPU packages to root only (chmod a+r \
         /sys/class/powercap/*/energy_uj)"
    )]
    NotPermitted,
}

/// What the packages showed at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerReading(Vec<u64>);

impl Power {
    /// Opens the counts of all packages.
    ///
    /// # Errors
    /// Why there are none.
    pub fn open() -> Result<Self, NoPower> {
        Self::under(&FsRoot::this_machine())
    }

    fn under(root: &FsRoot) -> Result<Self, NoPower> {
        let mut packages = Vec::new();
        for zone in root.names(ZONES) {
            let zone = format!("{ZONES}/{zone}");
            // Beside packages there are their parts, and the whole board on some laptops.
            let name = root.text(&format!("{zone}/name")).unwrap_or_default();
            if !name.starts_with("package-") {
                continue;
            }
            // The older way through memory shows the same packages again.
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

    /// The present counts; `None` where one cannot be read.
    #[must_use]
    pub fn read(&self) -> Option<PowerReading> {
        self.packages.iter().map(Package::read).collect::<Option<_>>().map(PowerReading)
    }

    /// What was taken between two readings that are not so far apart that a count came full
    /// circle twice, which takes minutes.
    #[must_use]
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
    fn packages_add_up_and_their_parts_and_doubles_do_not_count() {
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
        // The second has come full circle.
        let later = PowerReading(vec![150, 20]);
        assert_eq!(power.between(&earlier, &later), Energy::from_microjoules(50 + 10 + 20));
    }

    #[test]
    fn none_and_no_permission_are_told_apart() {
        let none = tree(&[zone("intel-rapl:0:0", "core\n", "7\n")]);
        assert_eq!(Power::under(&none.root()).unwrap_err(), NoPower::None);
        let hidden = tree(&[zone("intel-rapl:0", "package-0\n", "7\n")]);
        let file = hidden.root().path("sys/class/powercap/intel-rapl:0/energy_uj");
        std::fs::remove_file(file).unwrap();
        assert_eq!(Power::under(&hidden.root()).unwrap_err(), NoPower::NotPermitted);
    }
}
