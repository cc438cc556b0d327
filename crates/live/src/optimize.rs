//! From samples to new code in force.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use dbdyno_relayout as relayout;
use dbdyno_relayout::{
    AddressMap, LayoutError, Module as Image, Options, Profile, RegionRequest, Relayout, Samples,
};
use dbdyno_units::Nanos;
use serde::Serialize;

use crate::attachment::Attachment;
use crate::journal::{Area, GenerationState};
use crate::module::Module;
use crate::patch::{CodeSymbol, JumpPatch, MemoryBlock, Patch};
use crate::process::Process;
use crate::replace::Switched;
use crate::unwind::Unwinder;
use crate::{LiveError, LoadedModule, Maps};

/// A program or library with samples.
#[derive(Debug)]
pub struct HotModule {
    /// As it is in the process.
    pub module: Module,
    /// As the one who lays code out anew understands it.
    pub image: Image,
    /// Its samples.
    pub samples: u64,
    /// Where somebody else changed its code in memory.
    pub foreign: Vec<Range<u64>>,
}

/// The files that samples are in.
#[derive(Debug)]
pub struct HotModules {
    /// Those that can be optimized, most samples first.
    pub found: Vec<HotModule>,
    /// Those that cannot, and why.
    pub left_alone: Vec<(String, String)>,
    /// Samples in code that the process made while it ran, as just-in-time compilers do.
    pub generated: u64,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Optimized {
    /// Which optimization of this process.
    pub generation: u32,
    /// Files whose code was laid out anew, with their samples.
    pub modules: Vec<(String, u64)>,
    /// Files with samples that were left alone, and why.
    pub left_alone: Vec<(String, String)>,
    /// What was laid out, and what it predicts.
    pub statistics: relayout::Statistics,
    /// Entries that were not redirected because a page ends in them.
    pub on_two_pages: usize,
    /// How it was switched to.
    pub switched: Switched,
    /// Bytes of memory added to the process.
    pub added: u64,
    /// Time of each step.
    pub steps: Vec<(String, Nanos)>,
}

/// What was put in force in one process, for others that were split off from the same parent:
/// their programs and libraries lie at the same addresses.
#[derive(Clone, Debug)]
pub struct PreparedPatch {
    patch: Patch,
    /// With whether huge pages are asked for.
    areas: Vec<(Area, bool)>,
    /// The files whose code was laid out anew, as they were loaded.
    files: Vec<LoadedModule>,
    /// What read-only memory has to hold.
    slots: Vec<relayout::Slot>,
    profile: Profile,
}

/// Why no new code is in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizeError {
    /// The process could not be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing could be laid out anew.
    #[error("process {pid} was not changed: {source}")]
    Layout {
        /// The process.
        pid: u32,
        /// Why.
        source: LayoutError,
    },
    /// Most of the time goes into code that has no file.
    #[error(
        "process {pid} was not changed: {percent}% of its samples are in {GENERATED}, and only code \
         of files can be laid out anew"
    )]
    Generated {
        /// The process.
        pid: u32,
        /// The part of the samples, in percent.
        percent: u64,
    },
    /// The new code is not what it should be: a defect of dbdyno.
    #[error(
        "process {pid} was not changed, since the new code is not equivalent: {difference}; this \
         is a defect of dbdyno: please report it with the file of the program"
    )]
    NotEquivalent {
        /// The process.
        pid: u32,
        /// The first difference.
        difference: String,
    },
}

const GENERATED: &str = "code that it made while it ran, as just-in-time compilers do";
const NO_FILE: &str = "it has no file to be understood by";
impl OptimizeError {
    /// As [`LiveError::is_transient`].
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Live(error) if error.is_transient())
    }
}

/// Libraries that stay as they are: the loader, and the unwinder that has to describe the rest.
const LEFT_ALONE: [&str; 3] = ["ld-linux", "ld-musl", "libgcc_s"];
/// A file with a smaller share of the samples is not worth its room.
const LEAST_SHARE: f64 = 0.005;

/// Finds the files that the samples are in.
///
/// # Errors
/// The process is gone.
pub fn hot_modules(
    process: &Process,
    attachment: &Attachment,
    samples: &Samples,
) -> Result<HotModules, LiveError> {
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
    let least = (samples.total() as f64 * LEAST_SHARE) as u64;
    let (mut found, mut left_alone) = (Vec::new(), Vec::new());
    for (index, samples) in counts {
        let loaded = &loaded[index];
        let path = loaded.path.display().to_string();
        let name = loaded.path.file_name().unwrap_or_default().to_string_lossy();
        if LEFT_ALONE.iter().any(|start| name.starts_with(start)) {
            left_alone.push((path, "it is part of the loader or the unwinder".to_owned()));
            continue;
        }
        if samples <= least {
            continue;
        }
        match hot_module(process, attachment, loaded, samples, has_unwinder) {
            Ok(hot_module) => found.push(hot_module),
            Err(LiveError::Gone { pid }) => return Err(LiveError::Gone { pid }),
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

/// Whether the process made the code at an address itself: executable memory without a file that is
/// not ours nor the kernel's.
fn is_generated(address: u64, maps: &Maps, attachment: &Attachment) -> bool {
    let is_ours = || attachment.areas().any(|area| area.code_range().contains(&address));
    maps.at(address).is_some_and(|mapping| {
        mapping.executable && mapping.inode == 0 && !mapping.name.starts_with("[v") && !is_ours()
    })
}

/// All files that the process has code of and that can be understood, for a profile that was
/// made elsewhere.
///
/// # Errors
/// The process is gone.
pub fn all_images(process: &Process) -> Result<Vec<Image>, LiveError> {
    let maps = process.maps()?;
    let images = Module::loaded(&maps).into_iter().filter_map(|loaded| {
        let module = Module::open(process, &loaded).ok()?;
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
    let foreign = module.differences(process)?;
    // Our own entries are known.
    let ours: Vec<Range<u64>> = attachment
        .generations()
        .iter()
        .flat_map(|generation| &generation.entries)
        .map(JumpPatch::range)
        .collect();
    // Entries that lie near each other are one range here.
    let is_foreign = |range: &Range<u64>| -> Result<bool, LiveError> {
        let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let now = process.memory().read(range.start, size)?;
        let Some(original) = module.original(range) else { return Ok(true) };
        let mut bytes = (range.start..).zip(now.iter().zip(original));
        Ok(bytes.any(|(at, (a, b))| a != b && !ours.iter().any(|own| own.contains(&at))))
    };
    let mut others = Vec::new();
    for range in foreign {
        if is_foreign(&range)? {
            others.push(range);
        }
    }
    let foreign = others;
    let code: u64 = module.code().map(|range| range.end - range.start).sum();
    let changed: u64 = foreign.iter().map(|range| range.end - range.start).sum();
    if changed * 10 > code {
        return Err(LiveError::refused(
            process.pid(),
            format!("{} is not the file that was loaded", loaded.path.display()),
        ));
    }
    if let Some(obstacle) = crate::unwind::obstacle(&module, has_unwinder) {
        return Err(LiveError::refused(process.pid(), obstacle));
    }
    let name = loaded.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let image = Image::parse(&name, module.bytes(), module.bias())
        .map_err(|error| LiveError::refused(process.pid(), error.to_string()))?;
    Ok(HotModule { module, image, samples, foreign })
}

/// Samples as if the program's own code had run: those in code of ours are led back.
#[must_use]
pub fn map_to_original(attachment: &Attachment, samples: &Samples) -> Samples {
    let maps: Vec<AddressMap> =
        attachment.generations().iter().map(|it| attachment.map(it.number)).collect();
    if maps.is_empty() {
        return samples.clone();
    }
    samples.to_originals(|address| {
        maps.iter().rev().find_map(|map| map.to_original(address)).unwrap_or(address)
    })
}

/// Lays out anew what the samples say is hot, and puts it in force.
///
/// `samples` are of the program's own code: see [`map_to_original`]. `step` is called before each step.
/// The second value is for [`optimize_like`].
///
/// # Errors
/// Nothing is changed then, unless the error says so.
pub fn optimize(
    attachment: &mut Attachment,
    samples: &Samples,
    options: &Options,
    mut step: impl FnMut(&str),
) -> Result<(Optimized, PreparedPatch), OptimizeError> {
    let mut steps = Vec::new();
    let mut start = Instant::now();
    let mut next = |name: &str| {
        steps.push((name.to_owned(), Nanos::from(start.elapsed())));
        start = Instant::now();
    };
    step("reading programs and libraries");
    let HotModules { found: hot_modules, left_alone, generated } =
        hot_modules(attachment.process(), attachment, samples)?;
    if hot_modules.is_empty() && generated * 2 > samples.total() {
        let (pid, percent) = (attachment.process().pid(), generated * 100 / samples.total());
        return Err(OptimizeError::Generated { pid, percent });
    }
    next("reading");
    step("laying out code");
    attachment.begin()?;
    next("freeing old code");
    let laid_out = lay_out(attachment, &hot_modules, samples, options);
    let (layout, areas) = match laid_out {
        Ok(done) => done,
        Err(error) => {
            // What was reserved is of no use any more.
            attachment.retire_unused()?;
            attachment.free()?;
            return Err(error);
        }
    };
    next("laying out");
    let (patch, on_two_pages) = patch(&layout);
    step("switching");
    let switched = attachment.install(&patch)?;
    next("installing");
    let done = Optimized {
        generation: attachment.generations().last().map_or(0, |last| last.number),
        modules: hot_modules
            .iter()
            .map(|hot_module| (hot_module.module.path().display().to_string(), hot_module.samples))
            .collect(),
        left_alone,
        statistics: layout.statistics,
        on_two_pages,
        switched,
        added: areas.iter().map(|(area, _)| area.code).sum(),
        steps,
    };
    let files = files(&attachment.process().maps()?, &hot_modules);
    let images: Vec<&Image> = hot_modules.iter().map(|hot_module| &hot_module.image).collect();
    let profile = samples.to_profile(&images);
    Ok((done, PreparedPatch { patch, areas, files, slots: layout.slots, profile }))
}

impl PreparedPatch {
    /// The samples that it was made of, for any process of the same files.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn patch(&self) -> &Patch {
        &self.patch
    }

    /// Whether a generation has these areas.
    pub(crate) fn is_in<'a>(&self, areas: impl Iterator<Item = &'a Area>) -> bool {
        self.areas.iter().map(|(area, _)| area).eq(areas)
    }
}

/// Those of the files of a process that the hot_modules are.
fn files(maps: &Maps, hot_modules: &[HotModule]) -> Vec<LoadedModule> {
    let mut files = Module::loaded(maps);
    files.retain(|file| hot_modules.iter().any(|hot_module| hot_module.module.path() == file.path));
    files
}

/// Puts in force what was prepared in another process of the same family. `None` where it does
/// not fit, and has to be laid out anew: nothing was changed.
///
/// # Errors
/// Nothing leads to the new code then, or the journal says what does.
pub fn optimize_like(
    attachment: &mut Attachment,
    prepared: &PreparedPatch,
) -> Result<Option<Switched>, LiveError> {
    let maps = attachment.process().maps()?;
    let files = Module::loaded(&maps);
    let same = |wanted: &LoadedModule| {
        files.iter().any(|file| {
            let inode = |of: &LoadedModule| of.mappings.first().map(|mapping| mapping.inode);
            file.path == wanted.path && file.range == wanted.range && inode(file) == inode(wanted)
        })
    };
    if !prepared.files.iter().all(same) {
        return Ok(None);
    }
    for slot in &prepared.slots {
        if attachment.process().memory().read(slot.address, 8)? != slot.content.to_le_bytes() {
            return Ok(None);
        }
    }
    attachment.begin()?;
    for (area, huge) in &prepared.areas {
        if !attachment.reserve_same(area, *huge)? {
            attachment.retire_unused()?;
            attachment.free()?;
            return Ok(None);
        }
    }
    attachment.install(&prepared.patch).map(Some)
}

fn lay_out(
    attachment: &mut Attachment,
    hot_modules: &[HotModule],
    samples: &Samples,
    options: &Options,
) -> Result<(Relayout, Vec<(Area, bool)>), OptimizeError> {
    let pid = attachment.process().pid();
    let images: Vec<&Image> = hot_modules.iter().map(|hot_module| &hot_module.image).collect();
    let mut options = options.clone();
    options.exclude.extend(hot_modules.iter().flat_map(|hot_module| hot_module.foreign.clone()));
    let mut room = Room { attachment, hot_modules, refused: None, areas: Vec::new() };
    let layout = relayout::optimize(&images, samples, &options, &mut room);
    let (refused, areas) = (room.refused, room.areas);
    let layout = layout.map_err(|source| match refused {
        Some(error) => OptimizeError::Live(error),
        None => OptimizeError::Layout { pid, source },
    })?;
    relayout::verify(&images, &layout).map_err(|difference| OptimizeError::NotEquivalent {
        pid,
        difference: difference.to_string(),
    })?;
    Ok((layout, areas))
}

/// What the layout wants to know of the process.
struct Room<'a> {
    attachment: &'a mut Attachment,
    hot_modules: &'a [HotModule],
    refused: Option<LiveError>,
    areas: Vec<(Area, bool)>,
}

/// Code of at least this size gets huge pages: it would fill the CPU's buffer of small ones.
const HUGE_FROM: u64 = 256 << 10;

impl relayout::AddressSpace for Room<'_> {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        let near = self.hot_modules.get(request.module)?.image.extent();
        let huge = request.size >= HUGE_FROM;
        match self.attachment.reserve(&near, request.size, huge) {
            Ok(range) => {
                let area = self.attachment.areas().find(|area| area.address == range.start);
                self.areas.extend(area.map(|area| (*area, huge)));
                Some(range.start).filter(|at| (request.earliest..=request.latest).contains(at))
            }
            Err(error) => {
                self.refused = Some(error);
                None
            }
        }
    }

    fn read_slot(&self, address: u64) -> Option<u64> {
        let bytes = self.attachment.process().memory().read(address, 8).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// The layout as what is put into the process; and how many entries are left out because they
/// cannot be replaced in one go.
fn patch(layout: &Relayout) -> (Patch, usize) {
    let mut entries: Vec<JumpPatch> = layout
        .entries
        .iter()
        .map(|entry| JumpPatch {
            address: entry.address,
            original: entry.original.to_vec(),
            patch: entry.patch.to_vec(),
        })
        .collect();
    let all = entries.len();
    entries.retain(JumpPatch::is_on_one_page);
    let on_two_pages = all - entries.len();
    let exits = layout.entries.iter().filter_map(|entry| exit(layout, entry)).collect();
    let patch = Patch {
        blocks: layout
            .regions
            .iter()
            .map(|region| MemoryBlock { address: region.address, bytes: region.bytes.clone() })
            .collect(),
        entries,
        exits,
        frames: layout.frames.iter().map(|section| section.address).collect(),
        names: layout
            .symbols
            .iter()
            .map(|symbol| CodeSymbol {
                range: symbol.address..symbol.address + symbol.size,
                name: symbol.name.clone(),
            })
            .collect(),
        map: layout.map.clone(),
    };
    (patch, on_two_pages)
}

/// Bytes of a jump.
const JUMP: u64 = 5;

/// What leads from the copy of an entry back to it, where that is safe: nothing but the
/// instructions that the entry's own jump replaces may start inside the bytes replaced. Nobody
/// branches or returns to those, in the original nor in the copy.
fn exit(layout: &Relayout, entry: &relayout::EntryPatch) -> Option<JumpPatch> {
    let inside = entry.address + 1..entry.address + JUMP;
    let is_safe = (entry.copy + 1..entry.copy + JUMP)
        .filter_map(|at| layout.map.to_original(at))
        .all(|original| inside.contains(&original));
    let bytes = layout.regions.iter().find_map(|region| {
        let start = usize::try_from(entry.copy.checked_sub(region.address)?).ok()?;
        region.bytes.get(start..start + JUMP as usize)
    })?;
    let distance = entry.address.wrapping_sub(entry.copy + JUMP) as u32;
    let exit = JumpPatch {
        address: entry.copy,
        original: bytes.to_vec(),
        patch: [&[0xe9], &distance.to_le_bytes()[..]].concat(),
    };
    (is_safe && exit.is_on_one_page()).then_some(exit)
}

/// How much of the samples in code that can be laid out falls on functions that are laid out
/// anew now, 0 to 1; `None` without samples. Low when the work has moved elsewhere.
#[must_use]
pub fn coverage(attachment: &Attachment, maps: &Maps, samples: &Samples) -> Option<f64> {
    let active = attachment.generations().iter().find(|it| it.state == GenerationState::Active)?;
    let map = attachment.map(active.number);
    let files = Module::loaded(maps);
    let (mut inside, mut all) = (0, 0);
    for (address, count) in samples.hits() {
        let is_ours = active.areas.iter().any(|area| area.code_range().contains(address));
        if is_ours || map.to_copy(*address).is_some() {
            inside += count;
        }
        if is_ours || files.iter().any(|file| file.range.contains(address)) {
            all += count;
        }
    }
    (all > 0).then(|| inside as f64 / all as f64)
}
