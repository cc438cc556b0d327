//! What decoding the machine code showed.

use std::collections::BTreeMap;
use std::fmt;

use dbdyno_units::Share;
use serde::{Deserialize, Serialize};

/// What the machine code of a file shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Code {
    /// How many functions were looked at.
    pub functions: u64,
    /// Where their bounds are from.
    pub found: FunctionsFrom,
    /// How many instructions they have.
    pub instructions: u64,
    /// How many bytes were none: data among the code.
    pub undecodable: u64,
    /// How many functions call others. Those that do not may go without a frame pointer even
    /// where compilers are told to keep it.
    pub callers: u64,
    /// How many of these begin by setting up a frame pointer.
    pub framed: u64,
    /// Instructions beyond what every CPU of the architecture has. A few functions with them are
    /// what libraries do that choose at run time; very many mean that a `-march` reached them.
    pub extensions: BTreeMap<Extension, ExtensionUse>,
    /// Functions that begin a hardware transaction (`xbegin`). A layout optimizer must neither
    /// split nor move these.
    pub transactional: Vec<Function>,
}

impl Code {
    /// The share of functions that use an extension.
    #[must_use]
    pub fn share(&self, extension: Extension) -> Share {
        let functions = self.extensions.get(&extension).map_or(0, |used| used.functions);
        share(functions, self.functions)
    }

    /// Whether functions keep a frame pointer; `None` where there is no code to tell by.
    #[must_use]
    pub fn frame_pointers(&self) -> Option<bool> {
        // Some set it up later, on the way that needs it, so that half is very many.
        (self.callers >= 10).then(|| self.framed * 2 > self.callers)
    }
}

fn share(part: u64, whole: u64) -> Share {
    Share::from_fraction(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// Where the bounds of functions are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionsFrom {
    /// The table of symbols.
    Symbols,
    /// The tables for unwinding the stack, which stripped files keep.
    Unwinding,
    /// Nowhere: sections as a whole.
    Sections,
}

/// Instructions beyond the architecture's first version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extension {
    /// SSE3 to SSE4.2, POPCNT.
    Sse4,
    /// AVX.
    Avx,
    /// BMI1 and BMI2.
    Bmi,
    /// FMA, F16C, LZCNT, MOVBE.
    Fma,
    /// AVX2.
    Avx2,
    /// AVX-512 in any form.
    Avx512,
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sse4 => "SSE3 to 4.2",
            Self::Avx => "AVX",
            Self::Bmi => "BMI",
            Self::Fma => "FMA",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        })
    }
}

/// How much an extension is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionUse {
    /// In how many functions.
    pub functions: u64,
    /// How often.
    pub instructions: u64,
    /// Some of the functions.
    pub examples: Vec<Function>,
}

/// A function in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol; `None` in a stripped file.
    pub name: Option<String>,
    /// Where it is, as the file counts addresses.
    pub address: u64,
    /// How many bytes it has.
    pub size: u64,
}

impl Function {
    /// Its name as its source has it, or its address.
    #[must_use]
    pub fn readable(&self) -> String {
        match &self.name {
            Some(name) => cpp_demangle::Symbol::new(name)
                .ok()
                .and_then(|symbol| symbol.demangle().ok())
                .unwrap_or_else(|| name.clone()),
            None => format!("{:#x}", self.address),
        }
    }
}
