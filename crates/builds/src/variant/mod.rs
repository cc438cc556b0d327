//! Named sets of compiler settings, as data.

mod builtin;
mod words;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CompilerKind;
pub use words::{BuildType, Hardening, Lto, Optimization, Packaging};

/// A named set of compiler settings, independent of the system that is compiled with it.
///
/// The names and meanings of the built-in ones are those of the published studies, so that results
/// compare. It is also what a flag audit compares a finished build with: the intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// The name used in experiment files, reports and the cache.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// The word for build systems that know types of builds.
    pub build_type: BuildType,
    /// The optimization level.
    pub optimization: Optimization,
    /// With debug information (`-g`).
    pub debug: bool,
    /// With the system's assertions: without `-DNDEBUG`, and switched on where the system's build
    /// has an option for them.
    pub assertions: bool,
    /// Link-time optimization.
    pub lto: Lto,
    /// The oldest CPU that runs it (`-march`), such as `native`; the compiler's choice where none
    /// is named.
    pub march: Option<String>,
    /// The CPU that it is made for (`-mtune`).
    pub mtune: Option<String>,
    /// Frame pointers kept (`true`) or given up (`false`); else the compiler's choice.
    pub frame_pointers: Option<bool>,
    /// Flags that make attacks harder and code slower.
    pub hardening: Hardening,
    /// Whether the flags with which the distribution compiles its packages come first.
    pub packaging: Packaging,
    /// The linker (`-fuse-ld`); the compiler's choice where none is named.
    pub linker: Option<String>,
    /// The compiler to use where the candidate names none.
    pub compiler: Option<String>,
    /// Flags after all others.
    pub extra_flags: Vec<String>,
    /// Optimized with a profile, which an instrumented build collects before.
    #[serde(default)]
    pub pgo: bool,
    /// Optimized with a profile, for which a build with line tables is sampled before.
    #[serde(default)]
    pub autofdo: bool,
    /// Laid out anew by BOLT after the link, with a profile of its own.
    #[serde(default)]
    pub bolt: bool,
}

/// BOLT finds its way in whole functions only; it splits them itself. gcc's word for that.
pub(crate) const WHOLE_FUNCTIONS: &str = "-fno-reorder-blocks-and-partition";

/// Has the linker leave in the file what it knew about addresses: BOLT moves functions with it.
const KEEP_RELOCATIONS: &str = "-Wl,--emit-relocs";

impl Variant {
    /// Every built-in variant, the usual baseline first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        builtin::all()
    }

    /// Every built-in variant's name, in the order of [`Variant::all`].
    #[must_use]
    pub fn names() -> Vec<String> {
        builtin::all().into_iter().map(|variant| variant.name).collect()
    }

    /// The built-in variant of that name.
    ///
    /// # Errors
    /// When there is none; the error lists those there are.
    pub fn by_name(name: &str) -> Result<Self, UnknownVariant> {
        builtin::all()
            .into_iter()
            .find(|variant| variant.name == name)
            .ok_or_else(|| UnknownVariant { name: name.to_owned() })
    }

    /// The compiler flags that make this variant with a compiler of that family, without those of
    /// the distribution's packaging.
    ///
    /// `-DNDEBUG` is in all that have no assertions, those for calibration too: between two
    /// variants only code generation shall differ, not the presence of assertions.
    #[must_use]
    pub fn flags(&self, compiler: CompilerKind) -> Vec<String> {
        let mut flags = vec![self.optimization.flag().to_owned()];
        if self.debug {
            flags.push("-g".to_owned());
        }
        flags.extend(self.march.iter().map(|cpu| format!("-march={cpu}")));
        flags.extend(self.mtune.iter().map(|cpu| format!("-mtune={cpu}")));
        flags.extend(self.lto.flags(compiler).iter().map(|flag| (*flag).to_owned()));
        if let Some(kept) = self.frame_pointers {
            let sign = if kept { "no-" } else { "" };
            flags.push(format!("-f{sign}omit-frame-pointer"));
        }
        flags.extend(self.hardening.compile_flags().iter().map(|flag| (*flag).to_owned()));
        if !self.assertions {
            flags.push("-DNDEBUG".to_owned());
        }
        // clang splits no functions unless it is asked to.
        if self.bolt && compiler == CompilerKind::Gcc {
            flags.push(WHOLE_FUNCTIONS.to_owned());
        }
        flags.extend(self.extra_flags.iter().filter(|flag| !is_for_the_link(flag)).cloned());
        flags
    }

    /// The flags for the link alone, to come after those for compiling.
    #[must_use]
    pub fn link_flags(&self) -> Vec<String> {
        let hardening = self.hardening.link_flags().iter().map(|flag| (*flag).to_owned());
        let linker = self.linker.iter().map(|linker| format!("-fuse-ld={linker}"));
        let bolt = self.bolt.then(|| KEEP_RELOCATIONS.to_owned());
        let own = self.extra_flags.iter().filter(|flag| is_for_the_link(flag)).cloned();
        hardening.chain(linker).chain(bolt).chain(own).collect()
    }

    /// The same as it is before BOLT, under the name of the variant without it: what a compiler's
    /// profile is collected with, so that both have one profile.
    #[must_use]
    pub fn without_bolt(&self) -> Self {
        let name = self.name.strip_suffix(builtin::BOLT).unwrap_or(&self.name).to_owned();
        Self { name, bolt: false, ..self.clone() }
    }

    /// Whether it is meant for the CPU of the machine that compiles, and no other.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.march.as_deref() == Some("native")
    }
}

/// Whether a flag speaks to the linker alone. Compilers warn when such a flag comes with `-c`.
pub(crate) fn is_for_the_link(flag: &str) -> bool {
    ["-Wl,", "-l", "-L", "-fuse-ld="].iter().any(|prefix| flag.starts_with(prefix))
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// A name that no variant has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no variant is named `{name}`; there are: {}", Variant::names().join(", "))]
pub struct UnknownVariant {
    /// The name that was asked for.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn flags(name: &str, compiler: CompilerKind) -> String {
        Variant::by_name(name).unwrap().flags(compiler).join(" ")
    }

    #[test]
    fn the_published_names_mean_the_published_flags() {
        let flags = |name| flags(name, CompilerKind::Clang);
        assert_eq!(flags("rel_withdbg"), "-O2 -g -DNDEBUG");
        assert_eq!(flags("rel_o2"), "-O2 -DNDEBUG");
        assert_eq!(flags("rel"), "-O3 -DNDEBUG");
        assert_eq!(flags("rel_native"), "-O3 -march=native -mtune=native -DNDEBUG");
        assert_eq!(flags("rel_o2_lto"), "-O2 -flto -DNDEBUG");
        assert_eq!(flags("rel_lto"), "-O3 -flto -DNDEBUG");
        assert_eq!(flags("rel_native_lto"), "-O3 -march=native -mtune=native -flto -DNDEBUG");
        assert_eq!(flags("o1"), "-O1 -DNDEBUG");
        assert_eq!(flags("o0"), "-O0 -DNDEBUG");
    }

    #[test]
    fn gcc_links_on_all_cpus() {
        assert_eq!(flags("rel_lto", CompilerKind::Gcc), "-O3 -flto=auto -DNDEBUG");
    }

    #[test]
    fn no_two_variants_share_a_name_or_flags() {
        let names: BTreeSet<_> = Variant::names().into_iter().collect();
        let all = Variant::all();
        let flags: BTreeSet<_> =
            all.iter().map(|one| (one.flags(CompilerKind::Gcc), one.pgo, one.autofdo)).collect();
        let laid_out = all.iter().filter(|variant| variant.bolt).count();
        assert_eq!(laid_out, 21);
        assert_eq!(names.len(), all.len());
        assert_eq!(flags.len(), all.len());
    }

    #[test]
    fn settings_of_the_user_become_flags() {
        let variant = Variant {
            frame_pointers: Some(true),
            hardening: Hardening::Off,
            linker: Some("lld".to_owned()),
            lto: Lto::Thin,
            assertions: true,
            extra_flags: vec!["-fno-plt".to_owned(), "-Wl,-z,now".to_owned()],
            ..Variant::by_name("rel").unwrap()
        };
        assert_eq!(
            variant.flags(CompilerKind::Clang).join(" "),
            "-O3 -flto=thin -fno-omit-frame-pointer -fno-stack-protector -U_FORTIFY_SOURCE \
             -fno-stack-clash-protection -fcf-protection=none -fno-plt"
        );
        assert_eq!(variant.link_flags().join(" "), "-Wl,-z,norelro -fuse-ld=lld -Wl,-z,now");
    }

    #[test]
    fn what_bolt_lays_out_is_compiled_whole_and_linked_with_relocations() {
        let flags = |compiler| flags("rel_lto_pgo_bolt", compiler);
        assert_eq!(
            flags(CompilerKind::Gcc),
            "-O3 -flto=auto -DNDEBUG -fno-reorder-blocks-and-partition"
        );
        assert_eq!(flags(CompilerKind::Clang), "-O3 -flto -DNDEBUG");
        let variant = Variant::by_name("rel_lto_pgo_bolt").unwrap();
        assert_eq!(variant.link_flags(), ["-Wl,--emit-relocs"]);
        let before = variant.without_bolt();
        let same = Variant::by_name("rel_lto_pgo").unwrap();
        assert_eq!(Variant { description: same.description.clone(), ..before }, same);
    }

    #[test]
    fn a_sampled_profile_changes_no_flags_of_the_variant() {
        let (plain, sampled) = ("rel_lto", "rel_lto_autofdo");
        for compiler in [CompilerKind::Gcc, CompilerKind::Clang] {
            assert_eq!(flags(sampled, compiler), flags(plain, compiler));
        }
        let variant = Variant::by_name("rel_o2_autofdo_bolt").unwrap();
        assert!(variant.autofdo && !variant.pgo && variant.bolt);
        assert_eq!(variant.without_bolt().name, "rel_o2_autofdo");
    }

    #[test]
    fn an_unknown_name_gets_the_list() {
        let message = Variant::by_name("rel_02").unwrap_err().to_string();
        assert!(
            message.starts_with("no variant is named `rel_02`; there are: rel_withdbg, rel_o2")
        );
    }
}
