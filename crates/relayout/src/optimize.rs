//! The whole way: from samples to a new layout.

use std::collections::BTreeMap;

use crate::emit::{Emission, Emitted, Moved, PAGE};
use crate::select::{PATCH, Selector};
use crate::{
    AddressMap, Entry, Module, OptimizeError, Options, Place, Reason, Relayout, Samples,
    Statistics, Surroundings,
};

/// How far a relative address reaches, less what the entries' jumps and instructions need.
const REACH: u64 = (1 << 31) - (1 << 20);
/// Nothing is mapped below; the kernel's default limit.
const LOWEST: u64 = 1 << 16;

/// Lays out the hot functions of the modules anew.
///
/// # Errors
/// When nothing hot can be moved, or there is no room for new code.
pub fn optimize(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    surroundings: &mut dyn Surroundings,
) -> Result<Relayout, OptimizeError> {
    let mut statistics = Statistics { samples: samples.total(), ..Statistics::default() };
    let hot = hot_functions(modules, samples, options, &mut statistics);
    let mut result = Emitted::default();
    let mut entries = Vec::new();
    let mut frames = Vec::new();
    for (index, module) in modules.iter().enumerate() {
        let hot = hot.iter().filter(|hot| hot.module == index);
        let moved = choose(module, hot, options, &mut statistics);
        if moved.is_empty() {
            continue;
        }
        let emitted = emit(index, module, &moved, options, surroundings)?;
        statistics.hot_bytes += emitted.hot_bytes;
        statistics.cold_bytes += emitted.cold_bytes;
        statistics.data_bytes += emitted.data_bytes;
        statistics.stubs_bypassed += emitted.stubs_bypassed;
        let copies: BTreeMap<u64, u64> = emitted.pairs.iter().copied().collect();
        for moved in &moved {
            entries.extend(entry(index, module, moved, &copies));
        }
        frames.extend(emitted.frames.clone());
        result.append(emitted);
    }
    if entries.is_empty() {
        return Err(OptimizeError::NothingHot { samples: samples.total() });
    }
    entries.sort_unstable_by_key(|entry| entry.address);
    result.symbols.sort_unstable_by_key(|symbol| symbol.address);
    Ok(Relayout {
        regions: result.regions,
        entries,
        frames,
        symbols: result.symbols,
        tables: result.tables,
        slots: result.slots,
        map: AddressMap::new(result.pairs, result.originals),
        statistics,
    })
}

/// A function with samples.
struct Hot {
    module: usize,
    function: usize,
    samples: u64,
}

/// The functions that cover the wanted share of the samples, hottest first.
fn hot_functions(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    statistics: &mut Statistics,
) -> Vec<Hot> {
    let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (&address, &count) in samples.hits() {
        let place = modules
            .iter()
            .enumerate()
            .find_map(|(module, candidate)| Some((module, candidate.function_index(address)?)));
        if let Some(place) = place {
            *counts.entry(place).or_default() += count;
        }
    }
    let mut hot: Vec<Hot> = counts
        .into_iter()
        .map(|((module, function), samples)| Hot { module, function, samples })
        .collect();
    hot.sort_by_key(|hot| std::cmp::Reverse(hot.samples));
    let total: u64 = hot.iter().map(|hot| hot.samples).sum();
    statistics.samples_in_functions = total;
    statistics.functions_sampled = hot.len() as u64;
    let wanted = total as f64 * options.coverage;
    let mut sum = 0;
    hot.retain(|hot| {
        let keep = (sum as f64) < wanted;
        sum += hot.samples;
        keep
    });
    statistics.functions_seen = hot.len() as u64;
    hot
}

/// Understands the hot functions; those that can be moved.
fn choose<'a>(
    module: &Module,
    hot: impl Iterator<Item = &'a Hot>,
    options: &Options,
    statistics: &mut Statistics,
) -> Vec<Moved> {
    let mut moved = Vec::new();
    let mut selector = None;
    for hot in hot {
        let function = &module.functions()[hot.function];
        let selector = selector.get_or_insert_with(|| Selector::new(module, options));
        match selector.look(function) {
            Ok(understood) => {
                statistics.functions_moved += 1;
                statistics.samples_moved += hot.samples;
                moved.push(Moved {
                    start: understood.start,
                    patch: understood.patch,
                    hot: (0..understood.graph.blocks.len()).collect(),
                    cold: Vec::new(),
                    graph: understood.graph,
                    frame: understood.frame,
                    tables: understood.tables,
                });
            }
            Err(reason) => reject(statistics, reason, hot.samples),
        }
    }
    moved
}

fn reject(statistics: &mut Statistics, reason: Reason, samples: u64) {
    *statistics.rejected.entry(reason).or_default() += 1;
    *statistics.rejected_samples.entry(reason).or_default() += samples;
}

fn emit(
    index: usize,
    module: &Module,
    moved: &[Moved],
    options: &Options,
    surroundings: &mut dyn Surroundings,
) -> Result<Emitted, OptimizeError> {
    let mut emission = Emission::new(index, module, moved, options);
    let extent = module.extent();
    let no_room = |size: u64, earliest: u64, latest: u64| OptimizeError::NoRoom {
        module: module.name().to_owned(),
        size,
        earliest,
        latest,
    };
    let size = emission.size_limit().ok_or_else(|| no_room(0, extent.start, extent.end))?;
    let earliest = extent.end.saturating_sub(REACH).max(LOWEST).next_multiple_of(PAGE);
    let latest = (extent.start + REACH).saturating_sub(size) & !(PAGE - 1);
    let place = Place { module: index, size, earliest, latest };
    let base = if earliest <= latest { surroundings.place(&place) } else { None };
    let base = base.ok_or_else(|| no_room(size, earliest, latest))?;
    if base % PAGE != 0 || !(earliest..=latest).contains(&base) {
        let module = module.name().to_owned();
        return Err(OptimizeError::BadPlace { module, given: base, earliest, latest });
    }
    emission.write(base, surroundings).ok_or_else(|| no_room(size, earliest, latest))
}

fn entry(
    index: usize,
    module: &Module,
    moved: &Moved,
    copies: &BTreeMap<u64, u64>,
) -> Option<Entry> {
    let copy = *copies.get(&moved.patch)?;
    let distance = copy.wrapping_sub(moved.patch + PATCH) as u32;
    let mut patch = [0xe9; 5];
    patch[1..].copy_from_slice(&distance.to_le_bytes());
    Some(Entry {
        module: index,
        function: moved.start,
        name: module.name_at(moved.start),
        address: moved.patch,
        original: module.bytes(moved.patch, 5)?.try_into().ok()?,
        patch,
        copy,
    })
}
