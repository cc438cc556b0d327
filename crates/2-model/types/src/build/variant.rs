//! Compiler settings: presets by name, and overrides in an experiment.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BuildType, Hardening, Lto, Optimization, Packaging, Pgo, presets};

/// A named set of compiler settings, independent of the system that is compiled.
///
/// Presets have the names and meanings of the published studies, so that results are comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// The name used in experiment files, reports and the cache.
    pub name: String,
    /// A one-line description.
    pub description: String,
    /// The build type for CMake.
    pub build_type: BuildType,
    /// The optimization level.
    pub optimization: Optimization,
    /// With debug information (`-g`).
    pub debug: bool,
    /// With assertions: without `-DNDEBUG`, and with the system's own option for them.
    pub assertions: bool,
    /// Link-time optimization.
    pub lto: Lto,
    /// `-march`, such as `native`; `None` for the compiler's default.
    pub march: Option<String>,
    /// `-mtune`; `None` for the compiler's default.
    pub mtune: Option<String>,
    /// Whether frame pointers are kept; `None` for the compiler's default.
    pub frame_pointers: Option<bool>,
    /// Hardening flags.
    pub hardening: Hardening,
    /// Whether the distribution's flags are added before all others.
    pub packaging: Packaging,
    /// `-fuse-ld`; `None` for the compiler's default.
    pub linker: Option<String>,
    /// The compiler for candidates without `compiler`.
    pub compiler: Option<String>,
    /// Flags after all others.
    pub extra_flags: Vec<String>,
    /// Profile-guided optimization.
    #[serde(flatten, with = "pgo_flags")]
    pub pgo: Pgo,
    /// Whether BOLT rewrites the code layout after linking, with a separate profile.
    #[serde(default)]
    pub bolt: bool,
}

impl Variant {
    /// All presets, the usual baseline first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        presets::all()
    }

    /// The names of all presets, in the order of [`Variant::all`].
    #[must_use]
    pub fn names() -> Vec<String> {
        presets::all().into_iter().map(|preset| preset.name).collect()
    }

    /// The preset of that name.
    ///
    /// # Errors
    /// There is no such preset; the error lists all names.
    pub fn by_name(name: &str) -> Result<Self, UnknownVariant> {
        let preset = presets::all().into_iter().find(|preset| preset.name == name);
        preset.ok_or_else(|| UnknownVariant { name: name.to_owned() })
    }

    /// The preset with the same settings.
    #[must_use]
    pub fn equal_preset(&self) -> Option<Self> {
        presets::all().into_iter().find(|preset| {
            let Self { name, description, .. } = preset.clone();
            *preset == Self { name, description, ..self.clone() }
        })
    }

    /// The variant without BOLT, with the name of the equal preset, if any. The compiler's profile
    /// is collected with this variant, so that both have the same profile.
    #[must_use]
    pub fn without_bolt(&self) -> Self {
        let variant = Self { bolt: false, ..self.clone() };
        variant.equal_preset().unwrap_or(variant)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Serializer of PGO as two flags, the format of `build.json`.
mod pgo_flags {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Pgo;

    #[derive(Serialize, Deserialize)]
    struct Flags {
        #[serde(default)]
        pgo: bool,
        #[serde(default)]
        autofdo: bool,
    }

    pub fn serialize<S: Serializer>(pgo: &Pgo, serializer: S) -> Result<S::Ok, S::Error> {
        let (instrument, sample) = (*pgo == Pgo::Instrument, *pgo == Pgo::Sample);
        Flags { pgo: instrument, autofdo: sample }.serialize(serializer)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Pgo, D::Error> {
        Ok(match Flags::deserialize(deserializer)? {
            Flags { pgo: true, .. } => Pgo::Instrument,
            Flags { autofdo: true, .. } => Pgo::Sample,
            Flags { .. } => Pgo::Off,
        })
    }
}

/// Settings of an experiment that override a preset. `None` keeps the preset's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariantOverrides {
    /// The name of the preset.
    pub base: String,
    /// [`Variant::build_type`].
    pub build_type: Option<BuildType>,
    /// [`Variant::optimization`].
    pub optimization: Option<Optimization>,
    /// [`Variant::debug`].
    pub debug: Option<bool>,
    /// [`Variant::assertions`].
    pub assertions: Option<bool>,
    /// [`Variant::lto`].
    pub lto: Option<Lto>,
    /// [`Variant::march`].
    pub march: Option<String>,
    /// [`Variant::mtune`].
    pub mtune: Option<String>,
    /// [`Variant::frame_pointers`].
    pub frame_pointers: Option<bool>,
    /// [`Variant::hardening`].
    pub hardening: Option<Hardening>,
    /// [`Variant::packaging`].
    pub packaging: Option<Packaging>,
    /// [`Variant::linker`].
    pub linker: Option<String>,
    /// [`Variant::compiler`].
    pub compiler: Option<String>,
    /// Added to [`Variant::extra_flags`].
    pub flags: Vec<String>,
    /// [`Variant::pgo`].
    pub pgo: Option<Pgo>,
    /// [`Variant::bolt`].
    pub bolt: Option<bool>,
}

impl VariantOverrides {
    /// Merges `over` into `self`; settings of `over` take precedence.
    #[must_use]
    pub fn overlaid(self, over: Self) -> Self {
        Self {
            base: self.base,
            build_type: over.build_type.or(self.build_type),
            optimization: over.optimization.or(self.optimization),
            debug: over.debug.or(self.debug),
            assertions: over.assertions.or(self.assertions),
            lto: over.lto.or(self.lto),
            march: over.march.or(self.march),
            mtune: over.mtune.or(self.mtune),
            frame_pointers: over.frame_pointers.or(self.frame_pointers),
            hardening: over.hardening.or(self.hardening),
            packaging: over.packaging.or(self.packaging),
            linker: over.linker.or(self.linker),
            compiler: over.compiler.or(self.compiler),
            flags: [self.flags, over.flags].concat(),
            pgo: over.pgo.or(self.pgo),
            bolt: over.bolt.or(self.bolt),
        }
    }

    /// The preset with the overrides, under the given name.
    ///
    /// # Errors
    /// There is no such preset.
    pub fn resolve(&self, name: &str) -> Result<Variant, UnknownVariant> {
        let base = Variant::by_name(&self.base)?;
        let own = self.clone();
        Ok(Variant {
            name: name.to_owned(),
            description: format!("{} with settings of the experiment", self.base),
            build_type: own.build_type.unwrap_or(base.build_type),
            optimization: own.optimization.unwrap_or(base.optimization),
            debug: own.debug.unwrap_or(base.debug),
            assertions: own.assertions.unwrap_or(base.assertions),
            lto: own.lto.unwrap_or(base.lto),
            march: own.march.or(base.march),
            mtune: own.mtune.or(base.mtune),
            frame_pointers: own.frame_pointers.or(base.frame_pointers),
            hardening: own.hardening.unwrap_or(base.hardening),
            packaging: own.packaging.unwrap_or(base.packaging),
            linker: own.linker.or(base.linker),
            compiler: own.compiler.or(base.compiler),
            extra_flags: [base.extra_flags, own.flags].concat(),
            pgo: own.pgo.unwrap_or(base.pgo),
            bolt: own.bolt.unwrap_or(base.bolt),
        })
    }

    /// A name for `base` with these overrides, such as `rel+Os+lto-thin`.
    #[must_use]
    pub fn name(&self, base: &str) -> String {
        let on = |set: Option<bool>, word: &str| {
            set.map(|set| if set { word.to_owned() } else { format!("no-{word}") })
        };
        let parts = [
            self.build_type.map(|kind| kind.to_string()),
            self.optimization.map(|level| level.to_string()),
            on(self.debug, "debug"),
            on(self.assertions, "assertions"),
            self.lto.map(|lto| format!("lto-{lto}")),
            self.march.clone(),
            self.mtune.as_ref().map(|cpu| format!("tune-{cpu}")),
            on(self.frame_pointers, "frame-pointers"),
            self.hardening.map(|hardening| format!("hardening-{hardening}")),
            self.packaging.map(|packaging| format!("packaging-{packaging}")),
            self.linker.clone(),
            self.pgo.map(|pgo| format!("pgo-{pgo}")),
            on(self.bolt, "bolt"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        [vec![base.to_owned()], parts].concat().join("+")
    }
}

/// The error for an unknown preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant `{name}`; presets: {}", Variant::names().join(", "))]
pub struct UnknownVariant {
    pub name: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The settings of a preset as overrides of `rel`.
    fn dimensions(preset: &Variant) -> VariantOverrides {
        VariantOverrides {
            base: "rel".to_owned(),
            build_type: Some(preset.build_type),
            optimization: Some(preset.optimization),
            debug: Some(preset.debug),
            lto: Some(preset.lto),
            march: preset.march.clone(),
            mtune: preset.mtune.clone(),
            pgo: Some(preset.pgo),
            bolt: Some(preset.bolt),
            ..VariantOverrides::default()
        }
    }

    #[test]
    fn every_preset_round_trips_through_its_dimensions_and_its_json() {
        let presets = Variant::all();
        assert_eq!(presets.len(), 44);
        let names: BTreeSet<_> = Variant::names().into_iter().collect();
        assert_eq!(names.len(), presets.len());
        for preset in presets {
            let resolved = dimensions(&preset).resolve("any").unwrap();
            assert_eq!(resolved.equal_preset().as_ref(), Some(&preset));
            assert_eq!(Variant::by_name(&preset.name).as_ref(), Ok(&preset));
            let text = serde_json::to_string(&preset).unwrap();
            assert_eq!(serde_json::from_str::<Variant>(&text).unwrap(), preset);
        }
    }

    #[test]
    fn name_lists_the_dimensions_of_a_preset() {
        for preset in Variant::all() {
            let name = &preset.name;
            let pgo = match preset.pgo {
                Pgo::Off => "",
                Pgo::Instrument => "_pgo",
                Pgo::Sample => "_autofdo",
            };
            let bolt = if preset.bolt { "_bolt" } else { "" };
            assert!(name.ends_with(&format!("{pgo}{bolt}")), "{name}");
            assert_eq!(name.contains("_native"), preset.march.is_some(), "{name}");
            assert_eq!(name.contains("_lto"), preset.lto != Lto::Off, "{name}");
            assert_eq!(preset.without_bolt().name, name.trim_end_matches("_bolt"));
        }
    }

    #[test]
    fn unknown_words_and_presets_are_errors() {
        assert!(serde_json::from_str::<VariantOverrides>(r#"{"lto":"thick"}"#).is_err());
        let stored = r#"{"base":"rel","lto":"thin","optimization":null,"flags":[]}"#;
        let overrides: VariantOverrides = serde_json::from_str(stored).unwrap();
        assert_eq!(overrides.resolve("mine").unwrap().lto, Lto::Thin);
        let message = Variant::by_name("rel_02").unwrap_err().to_string();
        assert!(message.starts_with("unknown variant `rel_02`; presets: rel_withdbg"), "{message}");
        let unknown = VariantOverrides { base: "rell".to_owned(), ..VariantOverrides::default() };
        assert!(unknown.resolve("mine").is_err());
    }

    #[test]
    fn overrides_have_a_name_of_their_parts() {
        let own = VariantOverrides {
            optimization: Some(Optimization::Os),
            lto: Some(Lto::Thin),
            frame_pointers: Some(false),
            ..VariantOverrides::default()
        };
        assert_eq!(own.name("rel"), "rel+Os+lto-thin+no-frame-pointers");
    }
}
