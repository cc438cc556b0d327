use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CompilerKind;

/// An enumeration of which each value has one word, in experiment files and in `build.json`.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// The word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }

            /// The value of this word; `None` if it is no word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.word() == word)
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
    /// A type of build, as cmake calls them. It decides more than flags: servers have defaults
    /// for each.
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
        /// What is quick to do.
        O1 = "O1",
        /// What nearly always pays.
        O2 = "O2",
        /// What often pays and makes code larger.
        O3 = "O3",
        /// For size.
        Os = "Os",
        /// For debugging.
        Og = "Og",
        /// `O3` without the standard's rules for numbers.
        Ofast = "Ofast",
    }
}

impl Optimization {
    /// The compiler's flag.
    #[must_use]
    pub const fn flag(self) -> &'static str {
        match self {
            Self::O0 => "-O0",
            Self::O1 => "-O1",
            Self::O2 => "-O2",
            Self::O3 => "-O3",
            Self::Os => "-Os",
            Self::Og => "-Og",
            Self::Ofast => "-Ofast",
        }
    }
}

words! {
    /// Link-time optimization.
    Lto {
        /// None.
        Off = "off",
        /// Of the whole program.
        Full = "full",
        /// In parts with summaries of the others; clang's. gcc always works in parts.
        Thin = "thin",
        /// Of the whole program, with objects that also hold finished machine code.
        Fat = "fat",
    }
}

impl Lto {
    /// The compiler's flags. gcc's link uses all CPUs, which changes the time it takes and not the
    /// code: it makes as many parts either way.
    #[must_use]
    pub const fn flags(self, compiler: CompilerKind) -> &'static [&'static str] {
        match (self, compiler) {
            (Self::Off, _) => &[],
            (Self::Full | Self::Thin, CompilerKind::Gcc) => &["-flto=auto"],
            (Self::Full, CompilerKind::Clang) => &["-flto"],
            (Self::Thin, CompilerKind::Clang) => &["-flto=thin"],
            (Self::Fat, CompilerKind::Gcc) => &["-flto=auto", "-ffat-lto-objects"],
            (Self::Fat, CompilerKind::Clang) => &["-flto", "-ffat-lto-objects"],
        }
    }
}

words! {
    /// Flags that make attacks harder and code slower.
    Hardening {
        /// What compiler and system do by themselves.
        Default = "default",
        /// As distributions compile their packages.
        On = "on",
        /// All off, those that are on by default too.
        Off = "off",
    }
}

impl Hardening {
    pub(super) const fn compile_flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::On => &[
                "-fstack-protector-strong",
                "-D_FORTIFY_SOURCE=2",
                "-fstack-clash-protection",
                #[cfg(target_arch = "x86_64")]
                "-fcf-protection=full",
            ],
            Self::Off => &[
                "-fno-stack-protector",
                "-U_FORTIFY_SOURCE",
                "-fno-stack-clash-protection",
                #[cfg(target_arch = "x86_64")]
                "-fcf-protection=none",
            ],
        }
    }

    pub(super) const fn link_flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::On => &["-Wl,-z,relro", "-Wl,-z,now"],
            Self::Off => &["-Wl,-z,norelro"],
        }
    }
}

words! {
    /// The flags that a distribution compiles its packages with, as `dpkg-buildflags` prints them.
    ///
    /// MySQL's build adds them to the build type `RelWithDebInfo` and to no other: on a
    /// distribution whose flags contain `-flto`, that type is the faster one for this reason
    /// alone.
    Packaging {
        /// Not added.
        None = "none",
        /// Added, as they are on this machine.
        Flags = "flags",
        /// Added, with the link-time optimization that some distributions have by default.
        FlagsWithLto = "flags-with-lto",
    }
}
