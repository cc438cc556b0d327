use std::fmt;

/// A named set of compiler settings, independent of the system that is compiled with it.
///
/// Names and meanings are those of the published studies, so that results compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name used in experiment files, reports and the cache.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// The optimization level, such as `-O2`.
    pub optimization: &'static str,
    /// With debug information (`-g`).
    pub debug: bool,
    /// With link-time optimization (`-flto`).
    pub lto: bool,
    /// For the CPU of the machine that compiles, and no other (`-march=native -mtune=native`).
    pub native: bool,
}

const RELEASE: Variant = Variant {
    name: "rel",
    description: "release: -O3",
    optimization: "-O3",
    debug: false,
    lto: false,
    native: false,
};

const ALL: [Variant; 9] = [
    Variant {
        name: "rel_withdbg",
        description: "release with debug information: -O2 -g; what distributions start from",
        optimization: "-O2",
        debug: true,
        ..RELEASE
    },
    Variant { name: "rel_o2", description: "release at -O2", optimization: "-O2", ..RELEASE },
    RELEASE,
    Variant {
        name: "rel_native",
        description: "release for the CPU of this machine: -O3 -march=native -mtune=native",
        native: true,
        ..RELEASE
    },
    Variant {
        name: "rel_o2_lto",
        description: "release at -O2 with link-time optimization",
        optimization: "-O2",
        lto: true,
        ..RELEASE
    },
    Variant {
        name: "rel_lto",
        description: "release with link-time optimization: -O3 -flto",
        lto: true,
        ..RELEASE
    },
    Variant {
        name: "rel_native_lto",
        description: "release for the CPU of this machine with link-time optimization",
        lto: true,
        native: true,
        ..RELEASE
    },
    Variant {
        name: "o1",
        description: "-O1: for calibration, a difference that any measurement must see",
        optimization: "-O1",
        ..RELEASE
    },
    Variant {
        name: "o0",
        description: "no optimization: for calibration, and quick to compile",
        optimization: "-O0",
        ..RELEASE
    },
];

impl Variant {
    /// Every variant, the usual baseline first.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &ALL
    }

    /// Every variant's name, in the order of [`Variant::all`].
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|variant| variant.name)
    }

    /// The variant of that name.
    ///
    /// # Errors
    /// When there is none; the error lists those there are.
    pub fn by_name(name: &str) -> Result<&'static Self, UnknownVariant> {
        ALL.iter()
            .find(|variant| variant.name == name)
            .ok_or_else(|| UnknownVariant { name: name.to_owned() })
    }

    /// The compiler flags that make this variant.
    ///
    /// `-DNDEBUG` is in all of them, those for calibration too: between two variants only code
    /// generation shall differ, not the presence of assertions.
    #[must_use]
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![self.optimization];
        if self.debug {
            flags.push("-g");
        }
        if self.native {
            flags.extend(["-march=native", "-mtune=native"]);
        }
        if self.lto {
            flags.push("-flto");
        }
        flags.push("-DNDEBUG");
        flags
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// A name that no variant has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no variant is named `{name}`; there are: {}", Variant::names().collect::<Vec<_>>().join(", "))]
pub struct UnknownVariant {
    /// The name that was asked for.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_published_names_mean_the_published_flags() {
        let flags = |name| Variant::by_name(name).unwrap().flags().join(" ");
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
    fn no_two_variants_share_a_name_or_flags() {
        let names: BTreeSet<_> = Variant::names().collect();
        let flags: BTreeSet<_> = Variant::all().iter().map(Variant::flags).collect();
        assert_eq!(names.len(), Variant::all().len());
        assert_eq!(flags.len(), Variant::all().len());
    }

    #[test]
    fn an_unknown_name_gets_the_list() {
        let message = Variant::by_name("rel_02").unwrap_err().to_string();
        assert!(
            message.starts_with("no variant is named `rel_02`; there are: rel_withdbg, rel_o2")
        );
    }
}
