//! Compiler settings, presets and locations of sources, as plain data.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use crate::sha256::Sha256;

/// A named set of compiler settings, independent of the system that is compiled.
///
/// Presets have the names and meanings of the published studies, so that results are comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// The name used in experiment files, reports and the cache.
    pub name: String,
    pub description: String,
    /// The build type for CMake.
    pub build_type: BuildType,
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
    pub fn all() -> Vec<Self> {
        all_presets()
    }

    /// The names of all presets, in the order of [`Variant::all`].
    pub fn names() -> Vec<String> {
        all_presets().into_iter().map(|preset| preset.name).collect()
    }

    /// The preset of that name.
    ///
    /// # Errors
    /// There is no such preset; the error lists all names.
    pub fn by_name(name: &str) -> Result<Self, UnknownVariant> {
        let preset = all_presets().into_iter().find(|preset| preset.name == name);
        preset.ok_or_else(|| UnknownVariant { name: name.to_owned() })
    }

    /// The preset with the same settings.
    pub fn equal_preset(&self) -> Option<Self> {
        all_presets().into_iter().find(|preset| {
            let Self { name, description, .. } = preset.clone();
            *preset == Self { name, description, ..self.clone() }
        })
    }

    /// The variant without BOLT, with the name of the equal preset, if any. The compiler's profile
    /// is collected with this variant, so that both have the same profile.
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

/// All presets, the usual baseline first.
fn all_presets() -> Vec<Variant> {
    let mut presets = releases();
    let with_pgo = |pgo: Pgo, name: &str, description: &str| {
        let presets = releases().into_iter();
        let preset = move |preset| Variant { pgo, ..suffixed(preset, name, description) };
        presets.map(preset).collect::<Vec<_>>()
    };
    presets.extend(with_pgo(Pgo::Instrument, "pgo", "with an instrumented profile"));
    presets.extend(with_pgo(Pgo::Sample, "autofdo", "with a sampled profile"));
    let with_bolt = |preset: &Variant| Variant {
        bolt: true,
        ..suffixed(preset.clone(), "bolt", "optimized by BOLT")
    };
    presets.extend(presets.iter().map(with_bolt).collect::<Vec<_>>());
    presets.extend(calibration());
    presets
}

fn suffixed(preset: Variant, name: &str, description: &str) -> Variant {
    Variant {
        name: format!("{}_{name}", preset.name),
        description: format!("{}, {description}", preset.description),
        ..preset
    }
}

/// The presets that are also combined with PGO and BOLT.
fn releases() -> Vec<Variant> {
    vec![
        Variant {
            build_type: BuildType::RelWithDebInfo,
            optimization: Optimization::O2,
            debug: true,
            ..release("rel_withdbg", "release with debug information: -O2 -g")
        },
        Variant { optimization: Optimization::O2, ..release("rel_o2", "release at -O2") },
        release("rel", "release: -O3"),
        native(release("rel_native", "release for this machine's CPU: -O3 -march=native")),
        Variant {
            optimization: Optimization::O2,
            lto: Lto::Full,
            ..release("rel_o2_lto", "release at -O2 with link-time optimization")
        },
        Variant {
            lto: Lto::Full,
            ..release("rel_lto", "release with link-time optimization: -O3 -flto")
        },
        native(Variant {
            lto: Lto::Full,
            ..release(
                "rel_native_lto",
                "release for this machine's CPU with link-time optimization",
            )
        }),
    ]
}

fn calibration() -> Vec<Variant> {
    let at =
        |optimization, name, description| Variant { optimization, ..release(name, description) };
    vec![
        at(Optimization::O1, "o1", "-O1, for calibration: an obvious difference"),
        at(Optimization::O0, "o0", "no optimization, for calibration; compiles quickly"),
    ]
}

fn release(name: &str, description: &str) -> Variant {
    Variant {
        name: name.to_owned(),
        description: description.to_owned(),
        build_type: BuildType::Release,
        optimization: Optimization::O3,
        debug: false,
        assertions: false,
        lto: Lto::Off,
        march: None,
        mtune: None,
        frame_pointers: None,
        hardening: Hardening::Default,
        packaging: Packaging::None,
        linker: None,
        compiler: None,
        extra_flags: Vec::new(),
        pgo: Pgo::Off,
        bolt: false,
    }
}

fn native(variant: Variant) -> Variant {
    let native = Some("native".to_owned());
    Variant { march: native.clone(), mtune: native, ..variant }
}

words! {
    /// A CMake build type. Servers have different defaults for each.
    BuildType {
        /// Optimized, without debug information.
        Release = "Release",
        /// Optimized, with debug information.
        RelWithDebInfo = "RelWithDebInfo",
    }
}

words! {
    /// An optimization level.
    Optimization {
        /// None.
        O0 = "O0",
        /// For debugging.
        Og = "Og",
        /// Basic optimizations.
        O1 = "O1",
        /// For size.
        Os = "Os",
        /// Minimum size, regardless of speed.
        Oz = "Oz",
        /// The usual level of distributions.
        O2 = "O2",
        /// All optimizations; larger code.
        O3 = "O3",
        /// `O3`, and optimizations that change floating-point results.
        Ofast = "Ofast",
    }
}

words! {
    /// Link-time optimization.
    Lto {
        /// None.
        Off = "off",
        /// Of the whole program.
        Full = "full",
        /// clang's ThinLTO: in parts, with summaries. gcc always works in parts.
        Thin = "thin",
        /// Of the whole program; objects also contain machine code.
        Fat = "fat",
    }
}

words! {
    /// Compiler flags that harden code and make it slower.
    Hardening {
        /// The compiler's and the system's defaults.
        Default = "default",
        /// The flags that distributions use for their packages.
        On = "on",
        /// All off, including those that are on by default.
        Off = "off",
    }
}

words! {
    /// The flags that the distribution compiles its packages with (`dpkg-buildflags`).
    ///
    /// MySQL's build adds them to the build type `RelWithDebInfo` only. Where they contain `-flto`,
    /// that type is faster for this reason alone.
    Packaging {
        /// Not added.
        None = "none",
        /// Added, as they are on this machine.
        Flags = "flags",
        /// Added, with the link-time optimization that some distributions have by default.
        FlagsWithLto = "flags-with-lto",
    }
}

words! {
    /// Profile-guided optimization.
    Pgo {
        /// None.
        Off = "off",
        /// With the counts of an instrumented build.
        Instrument = "instrument",
        /// With samples of a build that has line tables (AutoFDO).
        Sample = "sample",
    }
}

words! {
    /// How a profile for BOLT is collected.
    BoltProfileMethod {
        /// By an instrumented copy, which counts every branch.
        Instrumentation = "instrumentation",
        /// By sampling the build itself, without branch records.
        Samples = "samples",
    }
}

words! {
    /// A tool that configures a source. Sources that use CMake have no choice.
    ConfigureTool {
        /// The script `configure`, then make.
        Autoconf = "autoconf",
        /// meson, then ninja.
        Meson = "meson",
    }
}

impl Optimization {
    /// The compiler flag.
    pub fn flag(self) -> String {
        format!("-{self}")
    }
}

/// The location of a system's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceOrigin {
    /// Part of this program: SQLite only.
    #[default]
    Bundled,
    /// A directory of the user, used in place and never modified.
    Path(#[serde(deserialize_with = "path")] PathBuf),
    /// A compressed archive that contains one directory.
    Tarball {
        /// A URL or file path.
        location: String,
        /// The SHA-256 of the archive; required for a URL.
        sha256: Option<Sha256>,
    },
    /// A git repository.
    Git {
        /// A URL or path.
        url: String,
        /// A tag or a full commit hash.
        revision: String,
    },
    /// A Debian source package.
    Debian {
        /// The name of the source package.
        package: String,
        /// The Debian release: `bookworm` or newer.
        suite: String,
        /// The package's version; `None` for the newest.
        version: Option<String>,
    },
}

/// Reads a path. Earlier versions stored it in a table.
fn path<'d, D: Deserializer<'d>>(deserializer: D) -> Result<PathBuf, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Plain(PathBuf),
        Table { path: PathBuf },
    }
    let (Stored::Plain(path) | Stored::Table { path }) = Stored::deserialize(deserializer)?;
    Ok(path)
}

impl fmt::Display for SourceOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled with dbdyno"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Tarball { location, .. } => f.write_str(location),
            Self::Git { url, revision } => write!(f, "{url} at {revision}"),
            Self::Debian { package, suite, version: None } => {
                write!(f, "Debian source package {package} in {suite}")
            }
            Self::Debian { package, suite, version: Some(version) } => {
                write!(f, "Debian source package {package} {version} in {suite}")
            }
        }
    }
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

    #[test]
    fn path_is_read_in_both_stored_forms() {
        let path = SourceOrigin::Path(PathBuf::from("/s"));
        for text in [r#"{"path":"/s"}"#, r#"{"path":{"path":"/s"}}"#] {
            assert_eq!(serde_json::from_str::<SourceOrigin>(text).unwrap(), path);
        }
        assert_eq!(serde_json::to_string(&path).unwrap(), r#"{"path":"/s"}"#);
    }
}
