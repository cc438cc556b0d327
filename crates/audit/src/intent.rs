//! What a variant should have: plain data to check objects against.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::effective::{Family, Fortify, Lto, Optimization, Profile, StackProtector, is_baseline};
use crate::flags::{Speaker, interpret};
use crate::read::Machine;

/// What the objects of a build should have. What is `None` is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The variant that it is about, for messages.
    pub name: Option<String>,
    /// Which compiler.
    pub compiler: Option<Family>,
    /// The optimization level.
    pub optimization: Option<Optimization>,
    /// Link-time optimization.
    pub lto: Option<WantedLto>,
    /// The instruction set.
    pub march: Option<WantedMarch>,
    /// With debug information.
    pub debug: Option<bool>,
    /// With frame pointers.
    pub frame_pointers: Option<bool>,
    /// The stack protector.
    pub stack_protector: Option<StackProtector>,
    /// `_FORTIFY_SOURCE`.
    pub fortify: Option<Fortify>,
    /// With probes of large stack frames.
    pub stack_clash: Option<bool>,
    /// With marked targets of indirect jumps.
    pub control_flow: Option<bool>,
    /// With assertions.
    pub assertions: Option<bool>,
    /// With a profile.
    pub profile: Option<Profile>,
    /// Checks whose findings are only noted.
    pub allowed: BTreeSet<Check>,
}

/// Which form of link-time optimization is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WantedLto {
    /// None.
    None,
    /// Any.
    On,
    /// clang's in parts.
    Thin,
    /// Objects without machine code.
    Slim,
    /// Objects with machine code besides.
    Fat,
}

impl WantedLto {
    pub(crate) fn is_met_by(self, lto: Lto) -> bool {
        match self {
            Self::None => !lto.is_on(),
            Self::On => lto.is_on(),
            Self::Thin => matches!(lto, Lto::Thin | Lto::Linked),
            Self::Slim => matches!(lto, Lto::Slim | Lto::Linked),
            Self::Fat => matches!(lto, Lto::Fat | Lto::Linked),
        }
    }
}

impl fmt::Display for WantedLto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::On => "on",
            Self::Thin => "thin",
            Self::Slim => "slim",
            Self::Fat => "fat",
        })
    }
}

/// Which instruction set is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WantedMarch {
    /// What runs everywhere: nothing was asked for.
    Baseline,
    /// That of the machine that compiles.
    Native,
    /// This one.
    Named(String),
}

impl WantedMarch {
    pub(crate) fn is_met_by(&self, march: &str) -> bool {
        match self {
            Self::Baseline => is_baseline(march),
            // gcc writes down the name of the machine's CPU.
            Self::Native => {
                march == "native" || !(is_baseline(march) || march.starts_with("x86-64-v"))
            }
            Self::Named(name) => march == name,
        }
    }
}

impl fmt::Display for WantedMarch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Baseline => "the baseline",
            Self::Native => "native",
            Self::Named(name) => name,
        })
    }
}

/// What can be wanted.
const KEYS: [&str; 14] = [
    "compiler",
    "optimization",
    "lto",
    "march",
    "debug",
    "frame-pointers",
    "stack-protector",
    "fortify",
    "stack-clash",
    "control-flow",
    "hardening",
    "assertions",
    "profile",
    "allow",
];

/// A wish that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWant {
    /// There is no `=` in it.
    #[error("`{0}` names no value; write KEY=VALUE, such as optimization=O3")]
    NoValue(String),
    /// Nothing of this name can be wanted.
    #[error("nothing named `{key}` can be wanted{}; there are: {}", did_you_mean(nearest), KEYS.join(", "))]
    Key {
        /// What was named.
        key: String,
        /// What is spelled most like it.
        nearest: Option<&'static str>,
    },
    /// The value makes no sense for it.
    #[error("{key}: {reason}")]
    Value {
        /// What was to be wanted.
        key: String,
        /// What is wrong with the value.
        reason: String,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (is it `{name}`?)"))
}

impl Intent {
    /// What these flags mean when a build is given them and nothing else: a variant's own.
    ///
    /// Debug information and assertions are only checked if the flags speak of them. Link-time
    /// optimization, the instruction set, profiles and the flags of distributions are checked
    /// either way: what was not asked for should not be there.
    #[must_use]
    pub fn of_flags<S: AsRef<str>>(flags: &[S]) -> Self {
        let flags: Vec<String> = flags.iter().map(|flag| flag.as_ref().to_owned()).collect();
        let speaker =
            Speaker { compiler: None, language: None, machine: Machine::default(), macros: false };
        let said = interpret(speaker, &flags);
        Self {
            optimization: said.optimization,
            lto: said.lto.map(|lto| match lto {
                Lto::None => WantedLto::None,
                Lto::Thin => WantedLto::Thin,
                Lto::Fat => WantedLto::Fat,
                // Distributions may keep machine code besides, with the same result.
                Lto::Slim | Lto::Linked => WantedLto::On,
            }),
            march: Some(match said.march.as_deref() {
                None => WantedMarch::Baseline,
                Some("native") => WantedMarch::Native,
                Some(name) => WantedMarch::Named(name.to_owned()),
            }),
            debug: said.debug.filter(|debug| *debug),
            frame_pointers: flags.iter().rev().find_map(|flag| match flag.as_str() {
                "-fno-omit-frame-pointer" => Some(true),
                "-fomit-frame-pointer" => Some(false),
                _ => None,
            }),
            stack_protector: Some(said.stack_protector.unwrap_or(StackProtector::Off)),
            fortify: Some(said.fortify.unwrap_or(Fortify::Off)),
            stack_clash: Some(said.stack_clash.unwrap_or(false)),
            control_flow: Some(said.control_flow.unwrap_or(false)),
            assertions: said.assertions,
            profile: said.profile,
            ..Self::default()
        }
    }

    /// Adds a wish: `optimization=O3`, `lto=on`, `march=native`, `hardening=off`.
    ///
    /// # Errors
    /// When nothing of that name can be wanted, or not with that value.
    pub fn want(&mut self, wish: &str) -> Result<(), BadWant> {
        let (key, value) = wish.split_once('=').ok_or_else(|| BadWant::NoValue(wish.to_owned()))?;
        let reason = |reason: String| BadWant::Value { key: key.to_owned(), reason };
        let on_off = || on_off(value).map_err(reason);
        match key {
            "compiler" => self.compiler = Some(word(key, value)?),
            "optimization" | "O" => {
                let level = value.strip_prefix('-').unwrap_or(value);
                self.optimization = Some(word(key, level)?);
            }
            "lto" => {
                self.lto = Some(match value {
                    "none" | "off" => WantedLto::None,
                    "on" | "full" => WantedLto::On,
                    "thin" => WantedLto::Thin,
                    "slim" => WantedLto::Slim,
                    "fat" => WantedLto::Fat,
                    _ => {
                        return Err(reason(format!(
                            "`{value}` is none of: on, off, thin, slim, fat"
                        )));
                    }
                });
            }
            "march" => {
                self.march = Some(match value {
                    "baseline" => WantedMarch::Baseline,
                    "native" => WantedMarch::Native,
                    "" => return Err(reason("it names no instruction set".to_owned())),
                    name if is_baseline(name) => WantedMarch::Baseline,
                    name => WantedMarch::Named(name.to_owned()),
                });
            }
            "debug" => self.debug = Some(on_off()?),
            "frame-pointers" => self.frame_pointers = Some(on_off()?),
            "stack-protector" => {
                self.stack_protector = Some(match value {
                    "on" => StackProtector::Some,
                    _ => word(key, value)?,
                });
            }
            "fortify" => {
                self.fortify =
                    Some(match value {
                        "off" | "0" => Fortify::Off,
                        "on" => Fortify::On,
                        _ => Fortify::Level(value.parse().map_err(|_| {
                            reason(format!("`{value}` is none of: on, off, 1, 2, 3"))
                        })?),
                    });
            }
            "stack-clash" => self.stack_clash = Some(on_off()?),
            "control-flow" => self.control_flow = Some(on_off()?),
            "hardening" => {
                let on = on_off()?;
                self.stack_protector =
                    Some(if on { StackProtector::Some } else { StackProtector::Off });
                self.fortify = Some(if on { Fortify::On } else { Fortify::Off });
                // Not all distributions have these.
                self.stack_clash = (!on).then_some(false);
                self.control_flow = (!on).then_some(false);
            }
            "assertions" => self.assertions = Some(on_off()?),
            "profile" => self.profile = Some(word(key, value)?),
            "allow" => {
                let check = Check::by_name(value).ok_or_else(|| {
                    let names: Vec<&str> = Check::ALL.iter().map(|check| check.name()).collect();
                    reason(format!("`{value}` is no check; there are: {}", names.join(", ")))
                })?;
                self.allowed.insert(check);
            }
            _ => {
                let nearest = KEYS.iter().map(|name| (strsim::jaro_winkler(key, name), *name));
                let nearest = nearest.filter(|(likeness, _)| *likeness > 0.75);
                let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name);
                return Err(BadWant::Key { key: key.to_owned(), nearest });
            }
        }
        Ok(())
    }
}

fn word<T>(key: &str, value: &str) -> Result<T, BadWant>
where
    T: std::str::FromStr,
    T::Err: fmt::Display,
{
    value
        .parse()
        .map_err(|error: T::Err| BadWant::Value { key: key.to_owned(), reason: error.to_string() })
}

fn on_off(value: &str) -> Result<bool, String> {
    match value {
        "on" | "yes" | "true" => Ok(true),
        "off" | "no" | "false" => Ok(false),
        _ => Err(format!("`{value}` is neither `on` nor `off`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(wishes: &[&str]) -> Intent {
        let mut intent = Intent::default();
        for wish in wishes {
            intent.want(wish).unwrap();
        }
        intent
    }

    #[test]
    fn flags_say_what_should_be_there_and_what_should_not() {
        let intent =
            Intent::of_flags(&["-O3", "-march=native", "-mtune=native", "-flto", "-DNDEBUG"]);
        assert_eq!(intent.optimization, Some(Optimization::O3));
        assert_eq!(intent.lto, Some(WantedLto::On));
        assert_eq!(intent.march, Some(WantedMarch::Native));
        assert_eq!(intent.assertions, Some(false));
        assert_eq!(intent.debug, None);
        assert_eq!(intent.stack_protector, Some(StackProtector::Off));
        let plain = Intent::of_flags(&["-O2", "-g", "-D_FORTIFY_SOURCE=2"]);
        assert_eq!(plain.lto, Some(WantedLto::None));
        assert_eq!(plain.march, Some(WantedMarch::Baseline));
        assert_eq!(plain.debug, Some(true));
        assert_eq!(plain.assertions, None);
        assert_eq!(plain.fortify, Some(Fortify::Level(2)));
    }

    #[test]
    fn wishes_are_read() {
        let intent =
            wanted(&["optimization=-O3", "lto=thin", "march=x86-64-v3", "allow=unoptimized"]);
        assert_eq!(intent.optimization, Some(Optimization::O3));
        assert_eq!(intent.lto, Some(WantedLto::Thin));
        assert_eq!(intent.march, Some(WantedMarch::Named("x86-64-v3".to_owned())));
        assert!(intent.allowed.contains(&Check::Unoptimized));
        assert_eq!(wanted(&["hardening=off"]).stack_clash, Some(false));
        assert_eq!(wanted(&["hardening=on"]).stack_protector, Some(StackProtector::Some));
    }

    #[test]
    fn bad_wishes_name_what_is_possible() {
        let error = |wish: &str| Intent::default().want(wish).unwrap_err().to_string();
        assert!(error("O3").contains("KEY=VALUE"), "{}", error("O3"));
        assert!(error("optimisation=O3").contains("is it `optimization`?"));
        assert!(error("optimization=O7").contains("there are: O0, Og"));
        assert!(error("debug=maybe").contains("neither `on` nor `off`"));
        assert!(error("allow=x").contains("there are: unoptimized"));
    }

    #[test]
    fn native_is_anything_but_the_baseline_and_its_levels() {
        assert!(WantedMarch::Native.is_met_by("znver3"));
        assert!(WantedMarch::Native.is_met_by("native"));
        assert!(!WantedMarch::Native.is_met_by("x86-64"));
        assert!(!WantedMarch::Native.is_met_by("x86-64-v3"));
        assert!(WantedMarch::Baseline.is_met_by("x86-64"));
        assert!(WantedMarch::Baseline.is_met_by("armv8-a+crc"));
        assert!(!WantedMarch::Baseline.is_met_by("znver3"));
    }
}
