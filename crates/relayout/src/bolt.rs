//! Samples in BOLT's text format, for comparison with a static optimizer on the same profile.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{BranchCount, Module, Samples};

/// A profile for `llvm-bolt --data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoltProfile {
    /// The file's content.
    pub text: String,
    /// Samples (or branches, where there are any) that are in it.
    pub written: u64,
    /// Those of the module that are not: BOLT knows functions by their symbols only.
    pub without_symbol: u64,
}

impl BoltProfile {
    /// The samples of one module. With branch records, those are written; else the sampled
    /// addresses, in the format's variant for profiles without branches.
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
                Some(place) => *lines.entry(place).or_default() += count,
                None => self.without_symbol += count,
            }
        }
        for (place, count) in lines {
            self.written += count;
            self.line(format_args!("{place} {count}"));
        }
    }

    fn write_branches(&mut self, module: &Module, samples: &Samples) {
        let mut lines: BTreeMap<(SymbolOffset, SymbolOffset), BranchCount> = BTreeMap::new();
        for (branch, &count) in samples.branches() {
            if !module.contains(branch.from) && !module.contains(branch.to) {
                continue;
            }
            let place = |address| match module.contains(address) {
                true => SymbolOffset::of(module, address),
                false => Some(SymbolOffset::elsewhere()),
            };
            match (place(branch.from), place(branch.to)) {
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
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A place as BOLT names it: symbol and offset.
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

    fn elsewhere() -> Self {
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
