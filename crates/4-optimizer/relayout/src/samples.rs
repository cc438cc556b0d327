//! Samples of executed code, and where they come from: processes, and recordings of executed ranges.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Module;
use crate::block_counts::{SCALE, SortedSamples};
use crate::code::{Graph, InstKind, decode};
use crate::code_references::CodeReferences;
use crate::flow::Flow;
use crate::frame::Frame;
use crate::module::Function;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Branch {
    pub from: u64,
    pub to: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchCount {
    pub taken: u64,
    pub mispredicted: u64,
}

/// Code that was executed without a taken branch in it: between two consecutive branch records, or from
/// the last one to the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FallThrough {
    /// Address of the first instruction: the target of a branch.
    pub first: u64,
    /// Address of the last instruction: the next taken branch, or the sampled instruction.
    pub last: u64,
}

/// Maximum size of a [`FallThrough`] in bytes. Larger ones are records of two threads, or damaged.
const MAX_FALL_THROUGH: u64 = 1 << 16;

/// Samples of a process by absolute address. User space only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    hits: HashMap<u64, u64>,
    branches: HashMap<Branch, BranchCount>,
    fall_throughs: HashMap<FallThrough, u64>,
    block_counts: HashMap<u64, u64>,
}

impl Samples {
    pub fn add_hit(&mut self, address: u64, count: u64) {
        *self.hits.entry(address).or_default() += count;
    }

    pub fn add_branch(&mut self, branch: Branch, count: BranchCount) {
        let sum = self.branches.entry(branch).or_default();
        sum.taken += count.taken;
        sum.mispredicted += count.mispredicted;
    }

    /// Adds executions of code between branch records. Impossible ones are ignored.
    pub fn add_fall_through(&mut self, code: FallThrough, count: u64) {
        if code.last.checked_sub(code.first).is_some_and(|size| size <= MAX_FALL_THROUGH) {
            *self.fall_throughs.entry(code).or_default() += count;
        }
    }

    /// Adds executions of the block at an original address, from a [counter](crate::Counter). 0 means that it
    /// was not executed.
    pub fn add_block_count(&mut self, block: u64, count: u64) {
        let sum = self.block_counts.entry(block).or_default();
        *sum = sum.saturating_add(count);
    }

    pub fn add_all(&mut self, other: &Self) {
        for (&address, &count) in &other.hits {
            self.add_hit(address, count);
        }
        for (&branch, &count) in &other.branches {
            self.add_branch(branch, count);
        }
        for (&code, &count) in &other.fall_throughs {
            self.add_fall_through(code, count);
        }
        for (&block, &count) in &other.block_counts {
            self.add_block_count(block, count);
        }
    }

    /// The same samples at the addresses of the original code. `original` maps an address of a copy
    /// to its original, and returns every other address unchanged.
    pub fn to_originals(&self, original: impl Fn(u64) -> u64) -> Self {
        let mut mapped = Self { block_counts: self.block_counts.clone(), ..Self::default() };
        for (&address, &count) in &self.hits {
            mapped.add_hit(original(address), count);
        }
        for (branch, &count) in &self.branches {
            let branch = Branch { from: original(branch.from), to: original(branch.to) };
            mapped.add_branch(branch, count);
        }
        for (&code, &count) in &self.fall_throughs {
            if original(code.first) == code.first && original(code.last) == code.last {
                mapped.add_fall_through(code, count);
                continue;
            }
            // The originals of neighbours in a copy may be apart.
            for address in code.first..=code.last {
                let at = original(address);
                if at != address {
                    mapped.add_fall_through(FallThrough { first: at, last: at }, count);
                }
            }
        }
        mapped
    }

    pub fn hits(&self) -> &HashMap<u64, u64> {
        &self.hits
    }

    pub fn branches(&self) -> &HashMap<Branch, BranchCount> {
        &self.branches
    }

    pub fn fall_throughs(&self) -> &HashMap<FallThrough, u64> {
        &self.fall_throughs
    }

    pub fn block_counts(&self) -> &HashMap<u64, u64> {
        &self.block_counts
    }

    /// Number of sampled instruction pointers.
    pub fn total(&self) -> u64 {
        self.hits.values().sum()
    }

    /// The samples in the given modules, in a form that is valid for any process with the same
    /// files.
    pub fn to_profile(&self, modules: &[&Module]) -> Profile {
        let mut profiles: Vec<ModuleProfile> =
            modules.iter().map(|module| ModuleProfile::empty(module)).collect();
        let locate = |address: u64| {
            let index = modules.iter().position(|module| module.contains(address))?;
            Some((index, modules[index].to_offset(address)))
        };
        for (&address, &count) in &self.hits {
            if let Some((index, offset)) = locate(address) {
                profiles[index].hits.insert(offset, count);
            }
        }
        for (&block, &count) in &self.block_counts {
            if let Some((index, offset)) = locate(block) {
                profiles[index].block_counts.insert(offset, count);
            }
        }
        // Branches between modules are left out: each profile describes one file.
        for (branch, &count) in &self.branches {
            if let (Some((index, from)), Some((to_index, to))) =
                (locate(branch.from), locate(branch.to))
                && index == to_index
            {
                profiles[index].branches.push((from, to, count));
            }
        }
        for (code, &count) in &self.fall_throughs {
            if let (Some((index, first)), Some((last_index, last))) =
                (locate(code.first), locate(code.last))
                && index == last_index
            {
                profiles[index].fall_throughs.push((first, last, count));
            }
        }
        for profile in &mut profiles {
            profile.branches.sort_unstable_by_key(|&(from, to, _)| (from, to));
            profile.fall_throughs.sort_unstable();
        }
        profiles.retain(|profile| !profile.is_empty());
        Profile { modules: profiles }
    }
}

/// Samples by file and offset, for storage and for other processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    #[serde(deserialize_with = "countable")]
    pub modules: Vec<ModuleProfile>,
}

/// The most samples of a profile that is read: ten years on 100 CPUs. Sums of them cannot overflow, also
/// after they were scaled.
const MAX_SAMPLES: u64 = 1 << 48;

/// Refuses modules with more samples than anybody can have taken: the file may be from somebody else.
fn countable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ModuleProfile>, D::Error> {
    let modules = Vec::<ModuleProfile>::deserialize(from)?;
    let hits = modules.iter().flat_map(|module| module.hits.values().copied());
    let branches = modules.iter().flat_map(|module| &module.branches);
    let branches = branches.flat_map(|(_, _, count)| [count.taken, count.mispredicted]);
    let fall_throughs = modules.iter().flat_map(|module| &module.fall_throughs);
    let fall_throughs = fall_throughs.map(|(_, _, count)| *count);
    let counts = modules.iter().flat_map(|module| module.block_counts.values().copied());
    match hits.chain(branches).chain(fall_throughs).chain(counts).fold(0, u64::saturating_add) {
        0..=MAX_SAMPLES => Ok(modules),
        _ => Err(D::Error::custom(format!("it has more than {MAX_SAMPLES} samples"))),
    }
}

/// The samples of one file. Offsets are link-time addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleProfile {
    pub name: String,
    /// Build ID of the file in hexadecimal. `None`: it has none, and modules are matched by name.
    pub build_id: Option<String>,
    pub hits: BTreeMap<u64, u64>,
    /// Taken branches inside the module: from, to, counts.
    pub branches: Vec<(u64, u64, BranchCount)>,
    /// Executions between branches: first and last instruction, count.
    #[serde(default)]
    pub fall_throughs: Vec<(u64, u64, u64)>,
    /// Counted executions of blocks, by the offset of the block.
    #[serde(default)]
    pub block_counts: BTreeMap<u64, u64>,
}

impl ModuleProfile {
    fn empty(module: &Module) -> Self {
        Self {
            name: module.name().to_owned(),
            build_id: module.build_id().map(str::to_owned),
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.hits.is_empty()
            && self.branches.is_empty()
            && self.fall_throughs.is_empty()
            && self.block_counts.is_empty()
    }

    fn matches(&self, module: &Module) -> bool {
        match (&self.build_id, module.build_id()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, None) => self.name == module.name(),
            _ => false,
        }
    }
}

impl Profile {
    /// The samples at their addresses in a process with these modules, and the names of the
    /// profile's modules that match none of them.
    pub fn to_samples(&self, modules: &[&Module]) -> (Samples, Vec<String>) {
        let mut samples = Samples::default();
        let mut unused = Vec::new();
        for profile in &self.modules {
            let Some(module) = modules.iter().find(|module| profile.matches(module)) else {
                unused.push(profile.name.clone());
                continue;
            };
            for (&offset, &count) in &profile.hits {
                samples.add_hit(module.to_address(offset), count);
            }
            for (&offset, &count) in &profile.block_counts {
                samples.add_block_count(module.to_address(offset), count);
            }
            for &(from, to, count) in &profile.branches {
                let branch = Branch { from: module.to_address(from), to: module.to_address(to) };
                samples.add_branch(branch, count);
            }
            for &(first, last, count) in &profile.fall_throughs {
                let (first, last) = (module.to_address(first), module.to_address(last));
                samples.add_fall_through(FallThrough { first, last }, count);
            }
        }
        (samples, unused)
    }
}

/// Executions of a module's code, estimated from samples.
///
/// Time in a block is proportional to its executions times its instructions, and control that enters
/// a block leaves it. So the samples of a function also give counts for blocks that are too short to
/// be sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Executions {
    /// Executed code and its executions, on a scale that is the same for all code of a module.
    pub ranges: Vec<(FallThrough, u64)>,
    /// Executed direct calls and their counts, by address. Includes jumps to other functions.
    pub calls: Vec<(Branch, u64)>,
    /// Number of samples in the functions of these blocks.
    pub samples: u64,
}

impl Executions {
    /// Estimates the executions from the samples in the module.
    pub fn of(module: &Module, samples: &Samples) -> Self {
        let sorted = SortedSamples::new(samples);
        let references = CodeReferences::of(module);
        let mut all = Self::default();
        for function in module.functions() {
            let hits = sorted.hits_in(function.range());
            let found: u64 = hits.iter().map(|(_, count)| count).sum();
            if found == 0 {
                continue;
            }
            all.samples += found;
            match graph_of(module, function, &references) {
                Some(graph) => all.add(&graph, &sorted.block_counts(&graph)),
                // Without a graph, each sampled instruction is a block.
                None => {
                    let one = |at| FallThrough { first: at, last: at };
                    all.ranges.extend(hits.iter().map(|&(at, count)| (one(at), count * SCALE)));
                }
            }
        }
        // Functions may overlap.
        all.ranges.sort_unstable();
        all.ranges.dedup_by_key(|(range, _)| range.first);
        all.calls.sort_unstable();
        all.calls.dedup_by_key(|(call, _)| *call);
        all
    }

    fn add(&mut self, graph: &Graph, flow: &Flow) {
        for (block, &count) in flow.blocks.iter().enumerate().filter(|(_, count)| **count > 0) {
            let code = graph.code(block);
            let Some(last) = code.last() else { continue };
            let range = FallThrough { first: graph.start(block), last: last.address };
            self.ranges.push((range, count));
            for inst in code {
                match inst.kind {
                    InstKind::Jump(to) if graph.extent().contains(&to) => {}
                    InstKind::Call(to) | InstKind::Jump(to) => {
                        self.calls.push((Branch { from: inst.address, to }, count));
                    }
                    _ => {}
                }
            }
        }
    }
}

pub(crate) fn graph_of(
    module: &Module,
    function: &Function,
    references: &CodeReferences,
) -> Option<Graph> {
    let code = decode(module, function).ok()?;
    let frame = Frame::read(module, function).ok();
    let entered = references.all_entered(function.range(), frame.as_ref());
    Graph::new(module, code, &entered).ok()
}

/// A profile for `llvm-bolt --data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoltProfile {
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
                false => Some(SymbolOffset { symbol: None, offset: 0 }),
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
