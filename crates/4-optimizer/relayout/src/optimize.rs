//! From samples to a new layout.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::block_counts::{SortedSamples, adjust_estimates, observations};
use crate::emit::{EmittedCode, Emitter, PAGE};
use crate::flags::counter_places;
use crate::layout::{MovedFunction, Prediction};
use crate::select::Selector;
use crate::verify::{Difference, differences};
use crate::{
    AddressMap, AddressSpace, EntryPatch, Module, Options, RegionRequest, RejectReason, Relayout,
    Samples, Statistics, TooFewSamples, VirtualSlot, layout,
};

/// Reach of a relative address, less a margin for the instructions at both ends.
pub const REACH: u64 = (1 << 31) - (1 << 20);
/// Lowest address that can be mapped, because null pointers must fault: the kernel's default limit.
pub const LOWEST_ADDRESS: u64 = 1 << 16;

/// Why there is no new layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// No sample is in a function that can be moved.
    #[error("none of the {samples} samples is in a function that can be moved{rejected}")]
    NothingHot {
        /// Number of samples, including those outside of the modules.
        samples: u64,
        rejected: Rejected,
    },
    /// The samples do not show well enough which code is executed.
    #[error("{0}{1}")]
    TooFewSamples(TooFewSamples, Rejected),
    /// The new code is not equivalent, also without the functions that differ: a defect of dbdyno.
    #[error(
        "the new code is not equivalent: {0}; this is a defect of dbdyno: please report it with the \
         program file"
    )]
    NotEquivalent(Box<Difference>),
    /// There is no space near a module.
    #[error(
        "{module}: no {size} bytes of free addresses for new code between {earliest:#x} and {latest:#x}"
    )]
    NoSpace { module: String, size: u64, earliest: u64, latest: u64 },
    /// The reserved address cannot be used.
    #[error(
        "{module}: the address {given:#x} for new code is not a multiple of 4096 between \
         {earliest:#x} and {latest:#x}"
    )]
    InvalidAddress { module: String, given: u64, earliest: u64, latest: u64 },
}

/// Hot functions that cannot be moved: for each reason their number and samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected(pub Vec<(RejectReason, u64, u64)>);

impl Rejected {
    fn of(statistics: &Statistics) -> Self {
        let samples = |reason| statistics.rejected_samples.get(reason).copied().unwrap_or(0);
        let all = statistics.rejected.iter();
        Self(all.map(|(reason, count)| (*reason, *count, samples(reason))).collect())
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (reason, functions, samples)) in self.0.iter().enumerate() {
            let start = if number == 0 { "; functions that cannot be moved: " } else { ", " };
            let reason = reason.name().replace('_', " ");
            write!(f, "{start}{functions} with {samples} samples ({reason})")?;
        }
        Ok(())
    }
}

/// Copies the hot functions of the modules in a better layout, in passes: choose, count, split, order, keep within the
/// limit, place, emit, predict. [`optimize_proven`](crate::optimize_proven) adds the last one: prove.
///
/// # Errors
/// No hot function can be moved, the samples do not meet [`Options::required`], or there is no space for
/// new code. Space is reserved only after the samples were checked.
pub fn optimize(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    address_space: &mut dyn AddressSpace,
) -> Result<Relayout, LayoutError> {
    let mut statistics = Statistics { samples: samples.total(), ..Statistics::default() };
    let hot = choose(modules, samples, options, &mut statistics);
    let mut moved = count_and_split(modules, &hot, samples, options, &mut statistics);
    if let Some(required) = &options.required {
        let checked = required.check(&statistics.precision);
        checked.map_err(|few| {
            let is_sparse = matches!(few, TooFewSamples::Sparse { .. });
            let rejected = if is_sparse { Rejected::default() } else { Rejected::of(&statistics) };
            LayoutError::TooFewSamples(few, rejected)
        })?;
    }
    adjust_estimates(&mut moved);
    for moved in &mut moved {
        layout::order_functions(moved, options);
    }
    keep_within(modules, &mut moved, options, &mut statistics);
    let mut layout = place_and_emit(modules, &moved, options, address_space, statistics)?;
    if layout.entries.is_empty() {
        let rejected = Rejected::of(&layout.statistics);
        return Err(LayoutError::NothingHot { samples: samples.total(), rejected });
    }
    predict(&moved, &layout.map, &mut layout.statistics);
    Ok(layout)
}

/// Places the copies near their modules, and writes them and what leads to them.
fn place_and_emit(
    modules: &[&Module],
    moved: &[Vec<MovedFunction>],
    options: &Options,
    address_space: &mut dyn AddressSpace,
    statistics: Statistics,
) -> Result<Relayout, LayoutError> {
    let layout = Relayout { statistics, ..Relayout::default() };
    let mut emitted = EmittedCode { layout, ..EmittedCode::default() };
    for (index, (module, moved)) in modules.iter().zip(moved).enumerate() {
        if moved.is_empty() {
            continue;
        }
        let before = emitted.pairs.len();
        emit(index, module, moved, options, address_space, &mut emitted)?;
        let copies: HashMap<u64, u64> = emitted.pairs[before..].iter().copied().collect();
        let entries = moved.iter().filter_map(|moved| entry(module, moved, &copies));
        emitted.layout.entries.extend(entries);
        // A layout that counts is active for milliseconds.
        if options.virtual_tables && !options.count {
            emitted.layout.virtual_slots.extend(redirected_slots(module, moved, &copies));
        }
    }
    let EmittedCode { mut layout, pairs, originals } = emitted;
    layout.entries.sort_unstable_by_key(|entry| entry.address);
    layout.virtual_slots.sort_unstable_by_key(|slot| slot.address);
    layout.symbols.sort_unstable_by_key(|symbol| symbol.address);
    layout.map = AddressMap::new(pairs, originals);
    Ok(layout)
}

/// Counts what was moved, and predicts the effect.
fn predict(moved: &[Vec<MovedFunction>], map: &AddressMap, statistics: &mut Statistics) {
    let mut prediction = Prediction::default();
    for moved in moved.iter().flatten() {
        statistics.functions_moved += 1;
        statistics.samples_moved += moved.samples;
        statistics.functions_counted += u64::from(moved.is_counted);
        statistics.jump_tables_seen += moved.movable.graph.tables.len() as u64;
        statistics.jump_tables_copied += moved.movable.tables.len() as u64;
        prediction.add(moved, map);
    }
    statistics.effect = prediction.effect();
}

struct HotFunction {
    module: usize,
    function: usize,
    samples: u64,
}

/// The functions that cover the requested share of the samples, hottest first.
fn choose(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    statistics: &mut Statistics,
) -> Vec<HotFunction> {
    let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (&address, &count) in samples.hits() {
        let found = modules
            .iter()
            .enumerate()
            .find_map(|(module, candidate)| Some((module, candidate.function_index(address)?)));
        if let Some(found) = found {
            *counts.entry(found).or_default() += count;
        }
    }
    let mut hot: Vec<HotFunction> = counts
        .into_iter()
        .map(|((module, function), samples)| HotFunction { module, function, samples })
        .collect();
    hot.sort_by_key(|hot| std::cmp::Reverse(hot.samples));
    let total: u64 = hot.iter().map(|hot| hot.samples).sum();
    statistics.samples_in_functions = total;
    statistics.functions_sampled = hot.len() as u64;
    let requested = total as f64 * options.coverage;
    let mut sum = 0;
    hot.retain(|hot| {
        let keep = (sum as f64) < requested;
        sum += hot.samples;
        keep
    });
    statistics.functions_seen = hot.len() as u64;
    hot
}

/// Analyzes the hot functions, counts the executions of their blocks, and splits these into hot and cold ones, each in
/// their new order. Returns the functions that can be moved, by module.
fn count_and_split(
    modules: &[&Module],
    hot: &[HotFunction],
    samples: &Samples,
    options: &Options,
    statistics: &mut Statistics,
) -> Vec<Vec<MovedFunction>> {
    let sorted = SortedSamples::new(samples);
    let mut selectors: Vec<Option<Selector>> = modules.iter().map(|_| None).collect();
    let mut moved: Vec<Vec<MovedFunction>> = modules.iter().map(|_| Vec::new()).collect();
    for (rank, hot) in hot.iter().enumerate() {
        let module = modules[hot.module];
        let function = &module.functions()[hot.function];
        let selector = selectors[hot.module].get_or_insert_with(|| Selector::new(module, options));
        let movable = match selector.analyze(function) {
            Ok(movable) => movable,
            Err(reason) => {
                reject(statistics, reason, hot.samples);
                continue;
            }
        };
        let is_counted = sorted.is_counted(&movable.graph);
        let flow = sorted.block_counts(&movable.graph);
        let counters = match options.count {
            true => counter_places(module, &movable.graph, movable.patch),
            false => Vec::new(),
        };
        let observed = observations(&sorted, &movable.graph);
        if counters.iter().any(Option::is_some) {
            statistics.precision.add_counted(observed.iter().sum());
        } else {
            statistics.precision.add(&observed);
        }
        if options.count && counters.iter().all(Option::is_none) {
            statistics.uncountable.push(module.name_at(movable.start));
        }
        let (hot_blocks, cold) = layout::arrange(&movable.graph, &flow, movable.patch, options);
        moved[hot.module].push(MovedFunction {
            rank,
            samples: hot.samples,
            movable,
            flow,
            hot: hot_blocks,
            cold,
            counters,
            is_counted,
        });
    }
    moved
}

fn reject(statistics: &mut Statistics, reason: RejectReason, samples: u64) {
    *statistics.rejected.entry(reason).or_default() += 1;
    *statistics.rejected_samples.entry(reason).or_default() += samples;
}

/// Drops cold code, then functions, coldest first, until the rest fits into the limit.
fn keep_within(
    modules: &[&Module],
    moved: &mut [Vec<MovedFunction>],
    options: &Options,
    statistics: &mut Statistics,
) {
    let mut with_cold = moved.iter().flatten().map(|moved| moved.rank + 1).max().unwrap_or(0);
    let mut kept = with_cold;
    loop {
        let sizes = modules.iter().zip(&*moved).map(|(module, moved)| {
            if moved.is_empty() {
                return 0;
            }
            // Code that is out of reach is reported when it is emitted.
            Emitter::new(module, moved, options).size_limit().unwrap_or(0)
        });
        if sizes.sum::<u64>() <= options.max_bytes || kept == 0 {
            return;
        }
        if with_cold > 0 {
            with_cold /= 2;
        } else {
            kept = kept * 3 / 4;
        }
        for moved in &mut *moved {
            moved.retain(|moved| {
                if moved.rank >= kept {
                    reject(statistics, RejectReason::OverBudget, moved.samples);
                }
                moved.rank < kept
            });
            for moved in moved.iter_mut().filter(|moved| moved.rank >= with_cold) {
                moved.cold.clear();
            }
        }
    }
}

fn emit(
    index: usize,
    module: &Module,
    moved: &[MovedFunction],
    options: &Options,
    address_space: &mut dyn AddressSpace,
    emitted: &mut EmittedCode,
) -> Result<(), LayoutError> {
    let mut emission = Emitter::new(module, moved, options);
    let extent = module.extent();
    let no_space = |size: u64, earliest: u64, latest: u64| LayoutError::NoSpace {
        module: module.name().to_owned(),
        size,
        earliest,
        latest,
    };
    let size = emission.size_limit().ok_or_else(|| no_space(0, extent.start, extent.end))?;
    let earliest = extent.end.saturating_sub(REACH).max(LOWEST_ADDRESS).next_multiple_of(PAGE);
    let latest = extent.start.saturating_add(REACH).saturating_sub(size) & !(PAGE - 1);
    let counters = emission.counters_size();
    let request = RegionRequest { module: index, size, earliest, latest, counters };
    let base = if earliest <= latest { address_space.reserve(&request) } else { None };
    let base = base.ok_or_else(|| no_space(size, earliest, latest))?;
    if base % PAGE != 0 || !(earliest..=latest).contains(&base) {
        let module = module.name().to_owned();
        return Err(LayoutError::InvalidAddress { module, given: base, earliest, latest });
    }
    let counters = match counters {
        0 => 0,
        size => address_space.counters(index).ok_or_else(|| no_space(size, earliest, latest))?,
    };
    let written = emission.write(base, counters, address_space, emitted);
    written.ok_or_else(|| no_space(size, earliest, latest))
}

fn entry(module: &Module, moved: &MovedFunction, copies: &HashMap<u64, u64>) -> Option<EntryPatch> {
    let copy = *copies.get(&moved.movable.patch)?;
    let distance = copy.wrapping_sub(moved.movable.patch + EntryPatch::SIZE) as u32;
    let mut patch = [0xe9; 5];
    patch[1..].copy_from_slice(&distance.to_le_bytes());
    Some(EntryPatch {
        function: moved.movable.start,
        address: moved.movable.patch,
        original: module.bytes(moved.movable.patch, 5)?.try_into().ok()?,
        patch,
        copy,
    })
}

/// The slots of virtual tables that may refer to copies of the moved functions.
fn redirected_slots(
    module: &Module,
    moved: &[MovedFunction],
    copies: &HashMap<u64, u64>,
) -> Vec<VirtualSlot> {
    let callable =
        moved.iter().filter(|moved| !moved.movable.address_taken).map(|moved| moved.movable.start);
    let callable: HashSet<u64> = callable.collect();
    let slots = module.virtual_slots().iter().filter(|(_, function)| callable.contains(function));
    let redirected = slots.filter_map(|&(address, function)| {
        Some(VirtualSlot { address, function, copy: *copies.get(&function)? })
    });
    redirected.collect()
}

/// Maximum number of layouts. Each one is without the functions that differed in those before.
const ATTEMPTS: usize = 5;

/// As [`optimize`], followed by the proof of [`verify`](crate::verify). Functions for which it fails
/// are left where they are, as [`RejectReason::Unproven`](crate::RejectReason::Unproven), with the difference in
/// [`Statistics::unproven`](crate::Statistics::unproven).
pub fn optimize_proven(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    address_space: &mut dyn AddressSpace,
) -> Result<Relayout, LayoutError> {
    optimize_checked(modules, samples, options, address_space, differences)
}

fn optimize_checked(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    address_space: &mut dyn AddressSpace,
    differences: impl Fn(&[&Module], &Relayout) -> Vec<Difference>,
) -> Result<Relayout, LayoutError> {
    let mut options = options.clone();
    let mut space = ReusedSpace { space: address_space, given: HashMap::new() };
    let mut unproven = Vec::new();
    for remaining in (0..ATTEMPTS).rev() {
        let mut relayout = optimize(modules, samples, &options, &mut space)?;
        let mut found = differences(modules, &relayout);
        if found.is_empty() {
            relayout.statistics.unproven = unproven;
            return Ok(relayout);
        }
        match found.iter().map(|difference| difference.start).collect::<Option<Vec<u64>>>() {
            Some(starts) if remaining > 0 => options.unproven.extend(starts),
            _ => return Err(LayoutError::NotEquivalent(Box::new(found.swap_remove(0)))),
        }
        unproven.extend(found.iter().map(Difference::to_string));
    }
    unreachable!("the last attempt returns")
}

/// An address space in which the memory of an earlier attempt is used again.
struct ReusedSpace<'a> {
    space: &'a mut dyn AddressSpace,
    /// The request and the address of the memory for each module.
    given: HashMap<usize, (RegionRequest, u64)>,
}

impl AddressSpace for ReusedSpace<'_> {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        if let Some((given, address)) = self.given.get(&request.module)
            && given.size >= request.size
            && given.counters >= request.counters
            && (request.earliest..=request.latest).contains(address)
        {
            return Some(*address);
        }
        let address = self.space.reserve(request)?;
        self.given.insert(request.module, (request.clone(), address));
        Some(address)
    }

    fn counters(&self, module: usize) -> Option<u64> {
        self.space.counters(module)
    }

    fn read_slot(&self, address: u64) -> Option<u64> {
        self.space.read_slot(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DifferenceKind, RejectReason};

    /// Free memory at the highest possible address, and how often it was reserved.
    struct Counted(u64);

    impl AddressSpace for Counted {
        fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
            self.0 += 1;
            Some(request.latest & !0xfff)
        }

        fn read_slot(&self, _address: u64) -> Option<u64> {
            None
        }
    }

    fn libc() -> Module {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        Module::parse("libc.so.6", &file, 0x7f12_3456_7000).unwrap()
    }

    fn samples(module: &Module) -> Samples {
        let mut samples = Samples::default();
        for function in module.functions().iter().take(500) {
            samples.add_hit(function.start, 1);
        }
        samples
    }

    fn difference(function: u64, start: Option<u64>) -> Difference {
        let (original, copy) = (function, 0);
        let kind = DifferenceKind::Other("invented");
        Difference { function: format!("f{function:x}"), start, original, copy, kind }
    }

    #[test]
    fn unproven_functions_are_left_alone() {
        let module = libc();
        let samples = samples(&module);
        let moved = |relayout: &Relayout| -> Vec<u64> {
            relayout.entries.iter().map(|entry| entry.function).collect()
        };
        let all = optimize_proven(&[&module], &samples, &Options::default(), &mut Counted(0));
        let all = moved(&all.unwrap());
        let bad = [all[3], all[7]];

        let mut space = Counted(0);
        // One difference for each attempt, as if the second had hidden behind the first.
        let check = |_: &[&Module], relayout: &Relayout| -> Vec<Difference> {
            let entries = moved(relayout);
            let found = bad.iter().find(|start| entries.contains(start));
            found.map(|&start| difference(start, Some(start))).into_iter().collect()
        };
        let relayout =
            optimize_checked(&[&module], &samples, &Options::default(), &mut space, check).unwrap();

        let expected: Vec<u64> = all.iter().copied().filter(|start| !bad.contains(start)).collect();
        assert_eq!(expected, moved(&relayout));
        assert_eq!(Some(&2), relayout.statistics.rejected.get(&RejectReason::Unproven));
        assert_eq!(2, relayout.statistics.unproven.len());
        assert!(relayout.statistics.unproven[0].ends_with("invented"));
        assert_eq!(1, space.0, "memory is reserved once");
    }

    #[test]
    fn differences_that_remain_are_an_error() {
        let module = libc();
        let samples = samples(&module);
        let start = module.functions()[0].start;
        for start in [None, Some(start)] {
            let result = optimize_checked(
                &[&module],
                &samples,
                &Options::default(),
                &mut Counted(0),
                |_, _| vec![difference(0x40, start)],
            );
            let error = result.unwrap_err().to_string();
            assert!(error.contains("the new code is not equivalent: f40"), "{error}");
        }
    }
}
