//! Optimization: from samples to active new code.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use dbdyno_relayout as relayout;
use dbdyno_relayout::{
    AddressMap, LayoutError, Module as Image, Options, Profile, RegionRequest, Relayout, Samples,
};
use dbdyno_units::{Bytes, Nanos};
use serde::Serialize;

use crate::attachment::Attachment;
use crate::journal::{Area, GenerationState};
use crate::layouts::LayoutCandidate;
use crate::module::Module;
use crate::patch::{CodeSymbol, JumpPatch, MemoryBlock, Patch};
use crate::process::Process;
use crate::replace::Switched;
use crate::retry::retry_while_busy;
use crate::threads::threads;
use crate::unwind::{self, Unwinder};
use crate::{LiveError, LoadedModule, Maps};

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

/// The result of an optimization.
#[derive(Clone, Debug, Serialize)]
pub struct Optimized {
    /// Number of the optimization in this process.
    pub generation: u32,
    /// Optimized files, with their samples.
    pub modules: Vec<(String, u64)>,
    /// Files with samples that were not optimized, and why.
    pub left_alone: Vec<(String, String)>,
    /// Statistics of the layout.
    pub statistics: relayout::Statistics,
    /// Entries that were not redirected because they cross a page boundary.
    pub on_two_pages: usize,
    /// The switch.
    pub switched: Switched,
    /// Size of the code added to the process, in bytes.
    pub added: u64,
    /// Duration of each step.
    pub steps: Vec<(String, Nanos)>,
}

/// What an optimization would do.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedOptimization {
    /// Files to optimize, with their samples.
    pub modules: Vec<(String, u64)>,
    /// Files with samples that would not be optimized, and why.
    pub left_alone: Vec<(String, String)>,
    /// Statistics of the layout.
    pub statistics: relayout::Statistics,
    /// Entries that would not be redirected because they cross a page boundary.
    pub on_two_pages: usize,
    /// Size of the code that would be added to the process, in bytes.
    pub added: u64,
    /// Number of functions that would be redirected.
    pub entries: usize,
    /// Number of threads that would be stopped.
    pub threads: usize,
}

/// A patch made for one process, for other processes of its family: their programs and libraries are at
/// the same addresses.
#[derive(Clone, Debug)]
pub struct PreparedPatch {
    patch: Patch,
    /// Added memory, and whether huge pages are requested for it.
    areas: Vec<(Area, bool)>,
    /// The optimized files.
    files: Vec<LoadedModule>,
    /// Required content of read-only memory.
    slots: Vec<relayout::Slot>,
    profile: Profile,
}

/// Why a process was not optimized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizeError {
    /// The process could not be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// There is no new layout.
    #[error("process {pid} was not changed: {source}")]
    Layout {
        /// Process ID.
        pid: u32,
        /// The reason.
        source: LayoutError,
    },
    /// Most of the time is spent in generated code.
    #[error(
        "process {pid} was not changed: {percent}% of its samples are in {GENERATED}, and only code \
         in files can be optimized"
    )]
    Generated {
        /// Process ID.
        pid: u32,
        /// Share of the samples, in percent.
        percent: u64,
    },
}

const GENERATED: &str = "code generated at run time, by a just-in-time compiler for instance";
const NO_FILE: &str = "it is in no file";

impl OptimizeError {
    /// As [`LiveError::is_transient`].
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Live(error) if error.is_transient())
    }
}

/// Libraries that are never optimized: the loader, and the unwinder.
const EXCLUDED: [&str; 3] = ["ld-linux", "ld-musl", "libgcc_s"];
/// Minimum share of the samples for a file to be optimized.
const MIN_SHARE: f64 = 0.005;

/// Finds the files with samples.
///
/// # Errors
/// The process exited.
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
        .flat_map(|generation| &generation.entries)
        .map(JumpPatch::range)
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
    let maps: Vec<AddressMap> =
        attachment.generations().iter().map(|it| attachment.map(it.number)).collect();
    if maps.is_empty() {
        return samples.clone();
    }
    samples.to_originals(|address| {
        maps.iter().rev().find_map(|map| map.to_original(address)).unwrap_or(address)
    })
}

/// Optimizes the hot code of a process and activates it.
///
/// `samples` must be in original code: see [`map_to_original`]. `step` is called before each step.
/// The second value is for [`optimize_like`].
///
/// # Errors
/// In case of an error, nothing was changed, unless the error says otherwise.
pub fn optimize(
    attachment: &mut Attachment,
    samples: &Samples,
    options: &Options,
    step: impl FnMut(&str),
) -> Result<(Optimized, PreparedPatch), OptimizeError> {
    let candidate = LayoutCandidate::of(options.clone());
    let all = optimize_layouts(attachment, samples, &[candidate], step)?;
    Ok((all.first.done, all.first.prepared))
}

/// One of several layouts in a process.
#[derive(Clone, Debug)]
pub struct MadeLayout {
    /// How it differs from the default one.
    pub name: &'static str,
    /// The optimization.
    pub done: Optimized,
    /// For other processes and for symbols.
    pub prepared: PreparedPatch,
}

/// Several layouts of the same code in a process. The last one is active.
#[derive(Clone, Debug)]
pub struct MadeLayouts {
    /// The first one.
    pub first: MadeLayout,
    /// The others.
    pub others: Vec<MadeLayout>,
    /// Layouts after the first that could not be made, and why.
    pub skipped: Vec<(&'static str, String)>,
}

impl MadeLayouts {
    /// All layouts that were made.
    pub fn all(&self) -> impl Iterator<Item = &MadeLayout> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// Makes several layouts of the hot code of a process, and activates one after the other. Each is a generation
/// of its own: [`Attachment::activate_generation`] switches between them.
///
/// `samples` must be in original code: see [`map_to_original`]. `step` is called before each step.
///
/// # Errors
/// The first layout could not be made: see [`optimize()`]. Or the process exited, or could not be switched.
///
/// # Panics
/// There is no candidate.
pub fn optimize_layouts(
    attachment: &mut Attachment,
    samples: &Samples,
    candidates: &[LayoutCandidate],
    mut step: impl FnMut(&str),
) -> Result<MadeLayouts, OptimizeError> {
    let [first, others @ ..] = candidates else { panic!("no layout") };
    let start = Instant::now();
    step("reading programs and libraries");
    let hot = readable_modules(attachment, samples)?;
    let reading = Nanos::from(start.elapsed());
    let mut made = make(attachment, samples, &hot, first, Begin::Replace, &mut step)?;
    made.done.steps.insert(0, ("reading".to_owned(), reading));
    let mut all = MadeLayouts { first: made, others: Vec::new(), skipped: Vec::new() };
    for candidate in others {
        let (made, _) = retry_while_busy(
            || make(attachment, samples, &hot, candidate, Begin::Add, &mut step),
            OptimizeError::is_transient,
        );
        match made {
            Ok(made) => all.others.push(made),
            Err(OptimizeError::Live(LiveError::Exited { pid })) => {
                return Err(LiveError::Exited { pid }.into());
            }
            // The others can be compared without it.
            Err(error) => all.skipped.push((candidate.name, error.to_string())),
        }
    }
    Ok(all)
}

/// Makes and activates one layout.
fn make(
    attachment: &mut Attachment,
    samples: &Samples,
    hot: &HotModules,
    candidate: &LayoutCandidate,
    begin: Begin,
    step: &mut impl FnMut(&str),
) -> Result<MadeLayout, OptimizeError> {
    let mut steps = Vec::new();
    let mut start = Instant::now();
    let mut next = |name: &str| {
        steps.push((name.to_owned(), Nanos::from(start.elapsed())));
        start = Instant::now();
    };
    let hot_modules = &hot.found;
    step("optimizing the layout");
    let extents = hot_modules.iter().map(|hot_module| hot_module.image.extent());
    let options = candidate.options_for(extents);
    let (layout, areas) = lay_out_in(attachment, hot_modules, samples, &options, begin)?;
    next("layout");
    let (patch, on_two_pages) = patch(&layout);
    step("switching");
    let switched = attachment.install(&patch)?;
    next("installing");
    let done = Optimized {
        generation: attachment.generations().last().map_or(0, |last| last.number),
        modules: names(hot_modules),
        left_alone: hot.left_alone.clone(),
        statistics: layout.statistics,
        on_two_pages,
        switched,
        added: code_size(&areas),
        steps,
    };
    let files = files(&attachment.process().maps()?, hot_modules);
    let images: Vec<&Image> = hot_modules.iter().map(|hot_module| &hot_module.image).collect();
    let profile = samples.to_profile(&images);
    let prepared = PreparedPatch { patch, areas, files, slots: layout.slots, profile };
    Ok(MadeLayout { name: candidate.name, done, prepared })
}

/// Plans an optimization without changing the process: the same steps as [`optimize()`] before the first
/// change.
///
/// # Errors
/// As those of [`optimize()`] before the first change.
pub fn plan(
    attachment: &Attachment,
    samples: &Samples,
    options: &Options,
) -> Result<PlannedOptimization, OptimizeError> {
    let HotModules { found: hot_modules, left_alone, .. } = readable_modules(attachment, samples)?;
    let mut space = FreeMemory { attachment, areas: Vec::new() };
    let layout = lay_out(&mut space, &hot_modules, samples, options)?;
    let (patch, on_two_pages) = patch(&layout);
    let pid = attachment.process().pid();
    Ok(PlannedOptimization {
        modules: names(&hot_modules),
        left_alone,
        statistics: layout.statistics,
        on_two_pages,
        added: code_size(&space.areas),
        entries: patch.entries.len(),
        threads: threads(pid)?.len(),
    })
}

/// The files with samples.
pub(crate) fn readable_modules(
    attachment: &Attachment,
    samples: &Samples,
) -> Result<HotModules, OptimizeError> {
    let modules = hot_modules(attachment.process(), attachment, samples)?;
    if modules.found.is_empty() && modules.generated * 2 > samples.total() {
        let pid = attachment.process().pid();
        let percent = modules.generated * 100 / samples.total();
        return Err(OptimizeError::Generated { pid, percent });
    }
    Ok(modules)
}

/// The paths of the modules, with their samples.
fn names(modules: &[HotModule]) -> Vec<(String, u64)> {
    let name = |it: &HotModule| (it.module.path().display().to_string(), it.samples);
    modules.iter().map(name).collect()
}

fn code_size(areas: &[(Area, bool)]) -> u64 {
    areas.iter().map(|(area, _)| area.code).sum()
}

impl PreparedPatch {
    /// The samples it is based on, for any process with the same files.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Writes symbols of the new code for `perf` and debuggers. Errors are ignored.
    pub fn write_symbols(&self, attachment: &Attachment) {
        let own = attachment.generations().iter().find(|it| self.is_in(it.areas.iter()));
        if let Some(own) = own {
            attachment.write_symbols(own.number, &self.patch);
        }
    }

    /// Whether a generation has exactly its memory.
    pub(crate) fn is_in<'a>(&self, areas: impl Iterator<Item = &'a Area>) -> bool {
        self.areas.iter().map(|(area, _)| area).eq(areas)
    }
}

/// The loaded files of the hot modules.
fn files(maps: &Maps, hot_modules: &[HotModule]) -> Vec<LoadedModule> {
    let mut files = Module::loaded(maps);
    files.retain(|file| hot_modules.iter().any(|hot_module| hot_module.module.path() == file.path));
    files
}

/// Writes and activates a patch that was prepared for another process of the same family. Returns
/// `None`, without a change, if it does not fit this process.
///
/// # Errors
/// In case of an error, no function is redirected, or the journal records which ones may be.
pub fn optimize_like(
    attachment: &mut Attachment,
    prepared: &PreparedPatch,
) -> Result<Option<Switched>, LiveError> {
    let maps = attachment.process().maps()?;
    let files = Module::loaded(&maps);
    let is_loaded = |expected: &LoadedModule| {
        files.iter().any(|file| {
            let inode = |of: &LoadedModule| of.mappings.first().map(|mapping| mapping.inode);
            file.path == expected.path
                && file.range == expected.range
                && inode(file) == inode(expected)
        })
    };
    if !prepared.files.iter().all(is_loaded) {
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
            attachment.clean_up()?;
            return Ok(None);
        }
    }
    attachment.install(&prepared.patch).map(Some)
}

/// Makes a layout in new memory of the process, which is freed again in case of an error. Returns the memory,
/// too, and whether huge pages are requested for it.
pub(crate) fn lay_out_in(
    attachment: &mut Attachment,
    hot_modules: &[HotModule],
    samples: &Samples,
    options: &Options,
    begin: Begin,
) -> Result<(Relayout, Vec<(Area, bool)>), OptimizeError> {
    let mut space = NewMemory { attachment, areas: Vec::new(), begin, has_begun: false };
    let laid_out = lay_out(&mut space, hot_modules, samples, options);
    let NewMemory { attachment, areas, has_begun, .. } = space;
    match laid_out {
        Ok(layout) => Ok((layout, areas)),
        Err(error) => {
            if has_begun {
                // Free the reserved memory.
                attachment.free_never_active()?;
            }
            Err(error)
        }
    }
}

fn lay_out(
    space: &mut impl Reserve,
    hot_modules: &[HotModule],
    samples: &Samples,
    options: &Options,
) -> Result<Relayout, OptimizeError> {
    let pid = space.attachment().process().pid();
    let images: Vec<&Image> = hot_modules.iter().map(|hot_module| &hot_module.image).collect();
    let mut options = options.clone();
    options.exclude.extend(hot_modules.iter().flat_map(|hot_module| hot_module.modified.clone()));
    let counters = HashMap::new();
    let mut space = AttachedSpace { memory: space, hot_modules, counters, error: None };
    let layout = relayout::optimize_proven(&images, samples, &options, &mut space);
    let error = space.error;
    layout.map_err(|source| match error {
        Some(error) => OptimizeError::Live(error),
        None => OptimizeError::Layout { pid, source },
    })
}

/// How memory for new code is found.
trait Reserve {
    fn attachment(&self) -> &Attachment;

    /// Reserves memory within reach of `near`. `huge` requests huge pages. `counters`: size of memory for
    /// counters.
    fn reserve(
        &mut self,
        near: &Range<u64>,
        size: u64,
        huge: bool,
        counters: u64,
    ) -> Result<Area, LiveError>;
}

/// What a new generation means for the existing ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// It replaces them: see [`Attachment::begin`].
    Replace,
    /// It is compared with them: see [`Attachment::begin_another`].
    Add,
}

/// Memory that the process maps.
struct NewMemory<'a> {
    attachment: &'a mut Attachment,
    areas: Vec<(Area, bool)>,
    begin: Begin,
    /// Whether a generation was started.
    has_begun: bool,
}

impl Reserve for NewMemory<'_> {
    fn attachment(&self) -> &Attachment {
        self.attachment
    }

    fn reserve(
        &mut self,
        near: &Range<u64>,
        size: u64,
        huge: bool,
        counters: u64,
    ) -> Result<Area, LiveError> {
        // Only now, because a layout that is refused must not change the process.
        if !self.has_begun {
            match self.begin {
                Begin::Replace => self.attachment.begin()?,
                Begin::Add => self.attachment.begin_another()?,
            }
            self.has_begun = true;
        }
        let area = match counters {
            0 => self.attachment.reserve(near, size, huge)?,
            _ => self.attachment.reserve_counting(near, size, counters)?,
        };
        self.areas.push((area, huge));
        Ok(area)
    }
}

/// Free memory that stays free.
struct FreeMemory<'a> {
    attachment: &'a Attachment,
    areas: Vec<(Area, bool)>,
}

impl Reserve for FreeMemory<'_> {
    fn attachment(&self) -> &Attachment {
        self.attachment
    }

    fn reserve(
        &mut self,
        near: &Range<u64>,
        size: u64,
        huge: bool,
        counters: u64,
    ) -> Result<Area, LiveError> {
        let size = size + counters;
        let taken: Vec<Area> = self.areas.iter().map(|(area, _)| *area).collect();
        let area = self.attachment.find_free(near, size, huge, &taken)?;
        self.areas.push((area, huge));
        Ok(area)
    }
}

/// The address space of an attached process.
struct AttachedSpace<'a, R> {
    memory: &'a mut R,
    hot_modules: &'a [HotModule],
    /// Address of the counters of each module.
    counters: HashMap<usize, u64>,
    error: Option<LiveError>,
}

/// Minimum size of code for huge pages: it would exceed the CPU's TLB entries for small ones.
const HUGE_PAGE_THRESHOLD: u64 = 256 << 10;

impl<R: Reserve> relayout::AddressSpace for AttachedSpace<'_, R> {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        let near = self.hot_modules.get(request.module)?.image.extent();
        let huge = request.size >= HUGE_PAGE_THRESHOLD;
        match self.memory.reserve(&near, request.size, huge, request.counters) {
            Ok(area) => {
                self.counters.insert(request.module, area.data_range().start + unwind::DATA_SIZE);
                Some(area.address).filter(|at| (request.earliest..=request.latest).contains(at))
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    fn counters(&self, module: usize) -> Option<u64> {
        self.counters.get(&module).copied()
    }

    fn read_slot(&self, address: u64) -> Option<u64> {
        let bytes = self.memory.attachment().process().memory().read(address, 8).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// The layout as a patch, and the number of entries left out because they cannot be written atomically.
pub(crate) fn patch(layout: &Relayout) -> (Patch, usize) {
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
        symbols: layout
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

/// Size of a jump in bytes.
const JUMP: u64 = 5;

/// The jump from the copy of an entry back to it, if it is safe: only copies of the instructions
/// that the entry's own jump replaces may start inside the replaced bytes. These are not the target
/// of any branch or return, neither in the original nor in the copy.
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
