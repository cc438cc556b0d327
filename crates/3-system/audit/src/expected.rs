//! The expected properties of a build's objects.

use std::collections::BTreeSet;
use std::fmt;

use dbdyno_types::{FlagCheck as Check, words};
use serde::{Deserialize, Serialize};

use crate::effective::{
    Family, Fortify, LtoForm, Optimization, Profile, StackProtector, UnknownWord, by_word,
    is_baseline,
};
use crate::flags::{CommandContext, interpret};

/// The expected properties of a build's objects. `None` is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The variant's name, for messages.
    pub name: Option<String>,
    pub compiler: Option<Family>,
    pub optimization: Option<Optimization>,
    pub lto: Option<ExpectedLto>,
    pub march: Option<ExpectedMarch>,
    pub debug: Option<bool>,
    pub frame_pointers: Option<bool>,
    pub stack_protector: Option<StackProtector>,
    /// `_FORTIFY_SOURCE`.
    pub fortify: Option<Fortify>,
    /// With `-fstack-clash-protection`.
    pub stack_clash: Option<bool>,
    /// With `-fcf-protection` or `-mbranch-protection`.
    pub control_flow: Option<bool>,
    pub assertions: Option<bool>,
    pub profile: Option<Profile>,
    /// Checks whose findings are notes only.
    pub ignored: BTreeSet<Check>,
}

words! {
    /// The expected form of link-time optimization.
    ExpectedLto {
        None = "none",
        /// Any form.
        On = "on",
        /// clang's ThinLTO.
        Thin = "thin",
        /// Objects without machine code.
        Slim = "slim",
        /// Objects that also have machine code.
        Fat = "fat",
    }
}

impl ExpectedLto {
    pub(crate) fn is_met_by(self, lto: LtoForm) -> bool {
        match self {
            Self::None => !lto.is_on(),
            Self::On => lto.is_on(),
            Self::Thin => matches!(lto, LtoForm::Thin | LtoForm::Linked),
            Self::Slim => matches!(lto, LtoForm::Slim | LtoForm::Linked),
            Self::Fat => matches!(lto, LtoForm::Fat | LtoForm::Linked),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpectedMarch {
    /// The default of compilers that were configured without another one.
    Baseline,
    /// The compiler's default, if it was configured with another one: of this name.
    Default(String),
    /// That of the machine that compiled it.
    Native,
    Named(String),
}

impl ExpectedMarch {
    pub(crate) fn is_met_by(&self, march: &str) -> bool {
        match self {
            Self::Baseline => is_baseline(march),
            // gcc records the name of the machine's CPU.
            Self::Native => {
                march == "native" || !(is_baseline(march) || march.starts_with("x86-64-v"))
            }
            Self::Named(name) | Self::Default(name) => march == name,
        }
    }

    /// The default of a compiler, of this name if it is known.
    pub fn default_of(march: Option<String>) -> Self {
        march.filter(|march| !is_baseline(march)).map_or(Self::Baseline, Self::Default)
    }
}

impl fmt::Display for ExpectedMarch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Baseline => "the baseline",
            Self::Native => "native",
            Self::Named(name) | Self::Default(name) => name,
        })
    }
}

/// The keys of [`Expected::set`].
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
    "ignore",
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidExpectation(String);

impl Expected {
    /// The expectations for a build compiled with exactly these flags.
    ///
    /// Debug information and assertions are checked only if a flag sets them. Link-time
    /// optimization, instruction set, profiles and hardening are always checked: without a flag,
    /// they are expected to be off.
    pub fn of_flags<S: AsRef<str>>(flags: &[S]) -> Self {
        let flags: Vec<String> = flags.iter().map(|flag| flag.as_ref().to_owned()).collect();
        let implied = interpret(CommandContext::default(), &flags);
        Self {
            optimization: implied.optimization,
            lto: implied.lto.map(|lto| match lto {
                LtoForm::None => ExpectedLto::None,
                LtoForm::Thin => ExpectedLto::Thin,
                LtoForm::Fat => ExpectedLto::Fat,
                // Distributions may add `-ffat-lto-objects`, with the same result.
                LtoForm::Slim | LtoForm::Linked => ExpectedLto::On,
            }),
            march: Some(match implied.march.as_deref() {
                None => ExpectedMarch::Baseline,
                Some("native") => ExpectedMarch::Native,
                Some(name) => ExpectedMarch::Named(name.to_owned()),
            }),
            debug: implied.debug.filter(|debug| *debug),
            frame_pointers: flags.iter().rev().find_map(|flag| match flag.as_str() {
                "-fno-omit-frame-pointer" => Some(true),
                "-fomit-frame-pointer" => Some(false),
                _ => None,
            }),
            stack_protector: Some(implied.stack_protector.unwrap_or(StackProtector::Off)),
            fortify: Some(implied.fortify.unwrap_or(Fortify::Off)),
            stack_clash: Some(implied.stack_clash.unwrap_or(false)),
            control_flow: Some(implied.control_flow.unwrap_or(false)),
            assertions: implied.assertions,
            profile: implied.profile,
            ..Self::default()
        }
    }

    /// Sets one property: `optimization=O3`, `lto=on`, `march=native`, `hardening=off`.
    pub fn set(&mut self, expectation: &str) -> Result<(), InvalidExpectation> {
        let (key, value) = expectation.split_once('=').ok_or_else(|| {
            let advice = "write KEY=VALUE, such as optimization=O3";
            InvalidExpectation(format!("`{expectation}` has no value; {advice}"))
        })?;
        let invalid = |error: UnknownWord| InvalidExpectation(format!("{key}: {error}"));
        let unknown = |what, known: &'static str| invalid(UnknownWord::new(value, what, known));
        let on_off = || match value {
            "on" | "yes" | "true" => Ok(true),
            "off" | "no" | "false" => Ok(false),
            _ => Err(unknown("value", "on, off")),
        };
        match key {
            "compiler" => {
                self.compiler = Some(by_word(Family::WORDS, value, "compiler").map_err(invalid)?);
            }
            "optimization" | "O" => {
                let level = value.strip_prefix('-').unwrap_or(value);
                let level = by_word(Optimization::WORDS, level, "optimization level");
                self.optimization = Some(level.map_err(invalid)?);
            }
            "lto" => {
                self.lto = Some(match value {
                    "off" => ExpectedLto::None,
                    "full" => ExpectedLto::On,
                    _ => ExpectedLto::by_name(value).ok_or_else(|| {
                        unknown("form of link-time optimization", "off, on, thin, slim, fat")
                    })?,
                });
            }
            "march" => {
                self.march = Some(match value {
                    "baseline" => ExpectedMarch::Baseline,
                    "native" => ExpectedMarch::Native,
                    "" => {
                        let known = "baseline, native, or a value of -march";
                        return Err(unknown("instruction set", known));
                    }
                    name if is_baseline(name) => ExpectedMarch::Baseline,
                    name => ExpectedMarch::Named(name.to_owned()),
                });
            }
            "debug" => self.debug = Some(on_off()?),
            "frame-pointers" => self.frame_pointers = Some(on_off()?),
            "stack-protector" => {
                self.stack_protector = Some(match value {
                    "on" => StackProtector::Some,
                    _ => {
                        by_word(StackProtector::WORDS, value, "stack protector").map_err(invalid)?
                    }
                });
            }
            "fortify" => {
                self.fortify = Some(match value {
                    "off" | "0" => Fortify::Off,
                    "on" => Fortify::On,
                    _ => Fortify::Level(
                        value.parse().map_err(|_| unknown("value", "on, off, 1, 2, 3"))?,
                    ),
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
            "profile" => {
                let profile = by_word(Profile::WORDS, value, "use of a profile");
                self.profile = Some(profile.map_err(invalid)?);
            }
            "ignore" => {
                self.ignored.insert(by_word(Check::WORDS, value, "check").map_err(invalid)?);
            }
            _ => {
                let nearest = KEYS.iter().map(|name| (strsim::jaro_winkler(key, name), *name));
                let nearest = nearest.filter(|(likeness, _)| *likeness > 0.75);
                let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name);
                let nearest = nearest.map(|name| format!(" (did you mean `{name}`?)"));
                let (nearest, keys) = (nearest.unwrap_or_default(), KEYS.join(", "));
                let text = format!("unknown key `{key}`{nearest}; valid keys: {keys}");
                return Err(InvalidExpectation(text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(expectations: &[&str]) -> Expected {
        let mut expected = Expected::default();
        for expectation in expectations {
            expected.set(expectation).unwrap();
        }
        expected
    }

    #[test]
    fn flags_imply_expectations() {
        let expected =
            Expected::of_flags(&["-O3", "-march=native", "-mtune=native", "-flto", "-DNDEBUG"]);
        assert_eq!(expected.optimization, Some(Optimization::O3));
        assert_eq!(expected.lto, Some(ExpectedLto::On));
        assert_eq!(expected.march, Some(ExpectedMarch::Native));
        assert_eq!(expected.assertions, Some(false));
        assert_eq!(expected.debug, None);
        assert_eq!(expected.stack_protector, Some(StackProtector::Off));
        let plain = Expected::of_flags(&["-O2", "-g", "-D_FORTIFY_SOURCE=2"]);
        assert_eq!(plain.lto, Some(ExpectedLto::None));
        assert_eq!(plain.march, Some(ExpectedMarch::Baseline));
        assert_eq!(plain.debug, Some(true));
        assert_eq!(plain.assertions, None);
        assert_eq!(plain.fortify, Some(Fortify::Level(2)));
    }

    #[test]
    fn expectations_are_parsed() {
        let expected =
            parsed(&["optimization=-O3", "lto=thin", "march=x86-64-v3", "ignore=unoptimized"]);
        assert_eq!(expected.optimization, Some(Optimization::O3));
        assert_eq!(expected.lto, Some(ExpectedLto::Thin));
        assert_eq!(expected.march, Some(ExpectedMarch::Named("x86-64-v3".to_owned())));
        assert!(expected.ignored.contains(&Check::Unoptimized));
        assert_eq!(parsed(&["hardening=off"]).stack_clash, Some(false));
        assert_eq!(parsed(&["hardening=on"]).stack_protector, Some(StackProtector::Some));
    }

    #[test]
    fn invalid_expectation_lists_valid_keys_and_values() {
        let error =
            |expectation: &str| Expected::default().set(expectation).unwrap_err().to_string();
        assert!(error("O3").contains("KEY=VALUE"), "{}", error("O3"));
        assert!(error("optimisation=O3").contains("did you mean `optimization`?"));
        assert!(error("optimization=O7").contains("O0, Og"));
        assert!(error("debug=maybe").contains("unknown value `maybe`; valid values: on, off"));
        assert!(error("ignore=x").contains("unknown check `x`; valid values: unoptimized"));
    }

    #[test]
    fn native_excludes_baseline_and_x86_64_levels() {
        assert!(ExpectedMarch::Native.is_met_by("znver3"));
        assert!(ExpectedMarch::Native.is_met_by("native"));
        assert!(!ExpectedMarch::Native.is_met_by("x86-64"));
        assert!(!ExpectedMarch::Native.is_met_by("x86-64-v3"));
        assert!(ExpectedMarch::Baseline.is_met_by("x86-64"));
        assert!(ExpectedMarch::Baseline.is_met_by("armv8-a+crc"));
        assert!(!ExpectedMarch::Baseline.is_met_by("znver3"));
    }
}
