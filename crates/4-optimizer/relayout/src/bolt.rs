//! Samples in BOLT's text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{BranchCount, Module, Samples};

/// A profile for `llvm-bolt --data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoltProfile {
    /// Content of the file.
    pub text: String,
    /// Number of samples (branches, if there are branch records) in it.
    pub written: u64,
    /// Number of samples of the module without a symbol: BOLT identifies functions by symbols only.
    pub without_symbol: u64,
}

impl BoltProfile {
    /// The samples of one module: branch records if there are any, else the sampled addresses in the
    /// format's variant without branches.
    pub fn new(module: &Module, samples: &Samples) -> Self {
        let mut profile = Self { text: String::new(), written: 0, without_symbol: 0 };
        if samples.branches().is_empty() {
            profile.write_hits(module, samples);
        } else {
            profile.write_branches(module, samples);
        }
        profile
    }

    fn write_hits(&mut self, module: &Module, samples: &Samples) {
        self.text.push_str("no_lbr cycles\n");
        let inside = samples.hits().iter().filter(|(address, _)| module.contains(**address));
        let mut lines: BTreeMap<SymbolOffset, u64> = BTreeMap::new();
        for (&address, &count) in inside {
            match SymbolOffset::of(module, address) {
                Some(location) => *lines.entry(location).or_default() += count,
                None => self.without_symbol += count,
            }
        }
        for (location, count) in lines {
            self.written += count;
            self.line(format_args!("{location} {count}"));
        }
    }

    fn write_branches(&mut self, module: &Module, samples: &Samples) {
        let mut lines: BTreeMap<(SymbolOffset, SymbolOffset), BranchCount> = BTreeMap::new();
        for (branch, &count) in samples.branches() {
            if !module.contains(branch.from) && !module.contains(branch.to) {
                continue;
            }
            let locate = |address| match module.contains(address) {
                true => SymbolOffset::of(module, address),
                false => Some(SymbolOffset::unknown()),
            };
            match (locate(branch.from), locate(branch.to)) {
                (Some(from), Some(to)) => {
                    let sum = lines.entry((from, to)).or_default();
                    sum.taken += count.taken;
                    sum.mispredicted += count.mispredicted;
                }
                _ => self.without_symbol += count.taken,
            }
        }
        for ((from, to), count) in lines {
            self.written += count.taken;
            self.line(format_args!("{from} {to} {} {}", count.mispredicted, count.taken));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// An address in BOLT's notation: symbol and offset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SymbolOffset {
    symbol: Option<String>,
    offset: u64,
}

impl SymbolOffset {
    fn of(module: &Module, address: u64) -> Option<Self> {
        let function = module.function_at(address)?;
        let symbol = Some(module.unique_symbol_at(function.start)?);
        Some(Self { symbol, offset: address - function.start })
    }

    fn unknown() -> Self {
        Self { symbol: None, offset: 0 }
    }
}

impl std::fmt::Display for SymbolOffset {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.symbol {
            Some(symbol) => {
                let escaped = symbol.replace('\\', "\\\\").replace(' ', "\\ ");
                write!(out, "1 {escaped} {:x}", self.offset)
            }
            None => write!(out, "0 [unknown] 0"),
        }
    }
}
