//! The files of a process in which its samples are.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use dbdyno_relayout::{AddressMap, Module as Image, Samples};
use dbdyno_units::Bytes;

use crate::attachment::Attachment;
use crate::journal::GenerationState;
use crate::module::Module;
use crate::patch::BytePatch;
use crate::process::Process;
use crate::unwind::{self, Unwinder};
use crate::{LiveError, LoadedModule, Maps};

/// Where samples without a file are.
pub(crate) const GENERATED: &str =
    "code generated at run time, by a just-in-time compiler for instance";
/// Why such code is left alone.
const NO_FILE: &str = "it is in no file";
/// Size from which on no further files of a process are read.
const MAX_MODULES: Bytes = Bytes::from_mib(2048);

/// A program or library with samples.
#[derive(Debug)]
pub struct HotModule {
    /// The module in the process.
    pub module: Module,
    /// The same module, parsed for the layout.
    pub image: Image,
    /// Number of samples in it.
    pub samples: u64,
    /// Addresses at which another program changed its code in memory.
    pub modified: Vec<Range<u64>>,
}

/// The files with samples.
#[derive(Debug)]
pub struct HotModules {
    /// Files that can be optimized, most samples first.
    pub found: Vec<HotModule>,
    /// Files that cannot be optimized, and why.
    pub left_alone: Vec<(String, String)>,
    /// Number of samples in code that the process generated at run time.
    pub generated: u64,
}

/// Libraries that are never optimized: the loader, and the unwinder.
const EXCLUDED: [&str; 3] = ["ld-linux", "ld-musl", "libgcc_s"];
/// Minimum share of the samples for a file to be optimized.
const MIN_SHARE: f64 = 0.005;

/// Finds the files with samples.
///
/// # Errors
/// The process exited.
pub fn hot_modules(attachment: &Attachment, samples: &Samples) -> Result<HotModules, LiveError> {
    let process = attachment.process();
    let maps = process.maps()?;
    let mut counts: HashMap<usize, u64> = HashMap::new();
    let mut generated = 0;
    let loaded = Module::loaded(&maps);
    for (address, count) in samples.hits() {
        if let Some(index) = loaded.iter().position(|it| it.range.contains(address)) {
            *counts.entry(index).or_default() += count;
        } else if is_generated(*address, &maps, attachment) {
            generated += count;
        }
    }
    let has_unwinder = Unwinder::of(process)?.is_some();
    let least = (samples.total() as f64 * MIN_SHARE) as u64;
    let (mut found, mut left_alone) = (Vec::new(), Vec::new());
    let mut total = Bytes::from_bytes(0);
    for (index, samples) in counts {
        let loaded = &loaded[index];
        let path = loaded.path.display().to_string();
        let name = loaded.path.file_name().unwrap_or_default().to_string_lossy();
        if EXCLUDED.iter().any(|start| name.starts_with(start)) {
            left_alone.push((path, "it is part of the loader or the unwinder".to_owned()));
            continue;
        }
        if samples <= least {
            continue;
        }
        if total > MAX_MODULES {
            left_alone.push((path, format!("all files together are larger than {MAX_MODULES}")));
            continue;
        }
        match hot_module(process, attachment, loaded, samples, has_unwinder) {
            Ok(hot_module) => {
                total = total + Bytes::from_bytes(hot_module.module.bytes().len() as u64);
                found.push(hot_module);
            }
            Err(LiveError::Exited { pid }) => return Err(LiveError::Exited { pid }),
            Err(error) => left_alone.push((path, error.to_string())),
        }
    }
    if generated > least {
        left_alone.push((GENERATED.to_owned(), NO_FILE.to_owned()));
    }
    found.sort_by_key(|hot_module| std::cmp::Reverse(hot_module.samples));
    left_alone.sort();
    Ok(HotModules { found, left_alone, generated })
}

/// Whether an address is in code that the process generated: executable memory without a file that
/// belongs neither to dbdyno nor to the kernel.
fn is_generated(address: u64, maps: &Maps, attachment: &Attachment) -> bool {
    let is_added = || attachment.areas().any(|area| area.code_range().contains(&address));
    maps.at(address).is_some_and(|mapping| {
        mapping.executable && mapping.inode == 0 && !mapping.name.starts_with("[v") && !is_added()
    })
}

/// All files with code in the process that can be parsed, for a profile of another process.
///
/// # Errors
/// The process exited.
pub fn all_images(process: &Process) -> Result<Vec<Image>, LiveError> {
    let maps = process.maps()?;
    let mut total = Bytes::from_bytes(0);
    let images = Module::loaded(&maps).into_iter().filter_map(|loaded| {
        if total > MAX_MODULES {
            return None;
        }
        let module = Module::open(process, &loaded).ok()?;
        total = total + Bytes::from_bytes(module.bytes().len() as u64);
        let name = loaded.path.file_name()?.to_string_lossy().into_owned();
        Image::parse(&name, module.bytes(), module.bias()).ok()
    });
    Ok(images.collect())
}

fn hot_module(
    process: &Process,
    attachment: &Attachment,
    loaded: &LoadedModule,
    samples: u64,
    has_unwinder: bool,
) -> Result<HotModule, LiveError> {
    let module = Module::open(process, loaded)?;
    let differences = module.differences(process)?;
    let own_entries: Vec<Range<u64>> = attachment
        .generations()
        .iter()
        .flat_map(|generation| generation.entries.iter())
        .map(BytePatch::range)
        .collect();
    // A range may contain several of dbdyno's entries.
    let is_modified = |range: &Range<u64>| -> Result<bool, LiveError> {
        let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let now = process.memory().read(range.start, size)?;
        let Some(original) = module.original(range) else { return Ok(true) };
        let mut bytes = (range.start..).zip(now.iter().zip(original));
        Ok(bytes.any(|(at, (a, b))| a != b && !own_entries.iter().any(|own| own.contains(&at))))
    };
    let mut modified = Vec::new();
    for range in differences {
        if is_modified(&range)? {
            modified.push(range);
        }
    }
    let code: u64 = module.code().map(|range| range.end - range.start).sum();
    let changed: u64 = modified.iter().map(|range| range.end - range.start).sum();
    if changed * 10 > code {
        return Err(LiveError::refused(
            process.pid(),
            format!("{} differs from the file that was loaded", loaded.path.display()),
        ));
    }
    if let Some(obstacle) = unwind::obstacle(&module, has_unwinder) {
        return Err(LiveError::refused(process.pid(), obstacle));
    }
    let name = loaded.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let image = Image::parse(&name, module.bytes(), module.bias())
        .map_err(|error| LiveError::refused(process.pid(), error.to_string()))?;
    Ok(HotModule { module, image, samples, modified })
}

/// The samples with addresses in new code replaced by those of the original code.
#[must_use]
pub fn map_to_original(attachment: &Attachment, samples: &Samples) -> Samples {
    let generations = attachment.generations().iter();
    let maps: Vec<Arc<AddressMap>> = generations.map(|it| attachment.map(it.number)).collect();
    if maps.is_empty() {
        return samples.clone();
    }
    samples.to_originals(|address| {
        maps.iter().rev().find_map(|map| map.to_original(address)).unwrap_or(address)
    })
}

/// Share of the samples in files that is in active optimized functions, 0 to 1; `None` without samples. It
/// is low if the workload has changed.
#[must_use]
pub fn coverage(attachment: &Attachment, maps: &Maps, samples: &Samples) -> Option<f64> {
    let active = attachment.generations().iter().find(|it| it.state == GenerationState::Active)?;
    let map = attachment.map(active.number);
    let files = Module::loaded(maps);
    let (mut inside, mut all) = (0, 0);
    for (address, count) in samples.hits() {
        let is_new = active.areas.iter().any(|area| area.code_range().contains(address));
        if is_new || map.to_copy(*address).is_some() {
            inside += count;
        }
        if is_new || files.iter().any(|file| file.range.contains(address)) {
            all += count;
        }
    }
    (all > 0).then(|| inside as f64 / all as f64)
}
