use serde::{Deserialize, Serialize};

use crate::fs_root::FsRoot;

/// What decides the CPUs' frequency. All unknown in most virtual machines: the host decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrequencyFacts {
    /// The governors in force, each once; mostly one for all CPUs.
    pub governors: Option<Vec<String>>,
    /// The driver.
    pub driver: Option<String>,
    /// Frequencies above the nominal one.
    pub boost: Option<Boost>,
}

/// Frequencies above the nominal one (Intel: Turbo Boost), which last only as long as
/// temperature, power and the other cores allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    /// Whether the CPUs may use them.
    pub on: bool,
    /// Where that is set.
    pub control: BoostControl,
}

/// The file that allows or forbids boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoostControl {
    /// `intel_pstate/no_turbo`, which forbids.
    NoTurbo,
    /// `cpufreq/boost`, which allows, for all CPUs.
    Boost,
}

impl Boost {
    /// The command that switches boost off.
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
    fn governors_are_told_once_each() {
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
    fn boost_is_allowed_by_one_file_and_forbidden_by_the_other() {
        let boost = |path, text| FrequencyFacts::read(&Fixture::new(&[(path, text)]).root()).boost;
        let intel = boost("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n").unwrap();
        assert!(!intel.on);
        let amd = boost("sys/devices/system/cpu/cpufreq/boost", "1\n").unwrap();
        assert!(amd.on);
        assert!(amd.command_to_switch_off().starts_with("echo 0"));
        assert_eq!(boost("unrelated", "1\n"), None);
    }
}
