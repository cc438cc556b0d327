use serde::{Deserialize, Serialize};

use crate::fs_root::FsRoot;

/// Settings that affect the CPUs' frequency. In most virtual machines all are unknown, since they
/// belong to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrequencyFacts {
    /// The active governors without duplicates; usually one for all CPUs.
    pub governors: Option<Vec<String>>,
    /// The cpufreq driver.
    pub driver: Option<String>,
    /// Frequencies above the nominal one.
    pub boost: Option<Boost>,
}

/// Frequencies above the nominal one (Intel: Turbo Boost), available only while temperature, power
/// and the load of other cores permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    /// Whether boost is enabled.
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
    #[must_use]
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
