//! Values of compiler settings, each with the word that experiments and `build.json` use for it.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// All values with their words.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value),)+];

            /// The word for this value.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }

            /// The value of a word; `None` if it is unknown.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    };
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
    #[must_use]
    pub fn flag(self) -> String {
        format!("-{self}")
    }
}
