//! Optimization: from samples to a layout in memory of the process, and to active new code.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use dbdyno_relayout as relayout;
use dbdyno_relayout::{
    LayoutError, Module as Image, Options, Profile, RegionRequest, Relayout, Samples, Slot,
    Statistics, TooFewSamples, VirtualSlot,
};
use dbdyno_units::Nanos;
use serde::Serialize;

use crate::attachment::Attachment;
use crate::journal::{Area, Generation};
use crate::module::{GENERATED, HotModule, HotModules, Module, hot_modules};
use crate::patch::{BytePatch, JUMP_SIZE, Patch};
use crate::process::threads;
use crate::replace::Switched;
use crate::{LiveError, LoadedModule, Maps, unwind};

/// New code for a process, made or to be made.
#[derive(Clone, Debug, Serialize)]
pub struct NewCode {
    /// Optimized files, with their samples.
    pub modules: Vec<(String, u64)>,
    /// Files with samples that are not optimized, and why.
    pub left_alone: Vec<(String, String)>,
    pub statistics: Statistics,
    /// Entries that are not redirected because they cross a page boundary.
    pub on_two_pages: usize,
    /// Slots of virtual tables that refer to it.
    pub virtual_slots: usize,
    /// Its size, in bytes.
    pub added: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Optimized {
    /// Number of the optimization in this process.
    pub generation: u32,
    #[serde(flatten)]
    pub code: NewCode,
    pub switched: Switched,
    pub steps: Vec<(String, Nanos)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedOptimization {
    #[serde(flatten)]
    pub code: NewCode,
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
    files: Vec<LoadedModule>,
    /// Required content of read-only memory.
    slots: Vec<Slot>,
    profile: Profile,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizeError {
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("process {pid} {}: {source}{}", unchanged(*has_counted), reasons(source, left_alone))]
    Layout {
        pid: u32,
        /// Whether code that counted its executions stays in its memory.
        has_counted: bool,
        /// Files with samples that cannot be optimized, and why.
        left_alone: Vec<(String, String)>,
        source: LayoutError,
    },
    #[error("cancelled; the code that was active before is active again")]
    Cancelled,
}

/// What is unchanged after a refusal.
const fn unchanged(has_counted: bool) -> &'static str {
    match has_counted {
        false => "was not changed",
        true => "was not optimized, and keeps the code that counted its executions, inactive",
    }
}

/// Why no function can be moved, or so few.
fn reasons(source: &LayoutError, left_alone: &[(String, String)]) -> String {
    let files =
        || left_alone.iter().map(|(file, why)| format!("; {file} is left alone: {why}")).collect();
    match source {
        LayoutError::NothingHot { rejected, .. }
            if left_alone.is_empty() && rejected.0.is_empty() =>
        {
            "; sample for longer, while the process is busy".to_owned()
        }
        LayoutError::NothingHot { .. }
        | LayoutError::TooFewSamples(TooFewSamples::Few { .. }, _) => files(),
        _ => String::new(),
    }
}

impl OptimizeError {
    /// As [`LiveError::is_transient`].
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Live(error) if error.is_transient())
    }
}

/// Optimizes the hot code of a process and activates it.
///
/// `samples` must be in original code: see [`map_to_original`](crate::map_to_original). `step` is called before each step.
/// The second value is for [`optimize_like`].
///
/// # Errors
/// In case of an error, nothing was changed, unless the error says otherwise.
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
    let modules = readable_modules(attachment, samples)?;
    next("reading");
    step("optimizing the layout");
    let (layout, areas) = lay_out_in(attachment, &modules, samples, options)?;
    next("layout");
    let (patch, code) = new_code(attachment, &modules, &layout, &areas);
    step("switching");
    let switched = attachment.install(&patch)?;
    next("installing");
    let generation = attachment.generations().last().map_or(0, |last| last.number);
    let done = Optimized { generation, code, switched, steps };
    let files = files(&attachment.process().maps()?, &modules.found);
    let images: Vec<&Image> = modules.found.iter().map(|hot_module| &hot_module.image).collect();
    let profile = samples.to_profile(&images);
    Ok((done, PreparedPatch { patch, areas, files, slots: layout.slots, profile }))
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
    let modules = readable_modules(attachment, samples)?;
    let mut space = FreeMemory { attachment, areas: Vec::new() };
    let layout = lay_out(&mut space, &modules, samples, options)?;
    let (patch, code) = new_code(attachment, &modules, &layout, &space.areas);
    let entries = patch.entries.len() - code.virtual_slots;
    Ok(PlannedOptimization { code, entries, threads: threads(attachment.process().pid())?.len() })
}

fn new_code(
    attachment: &Attachment,
    modules: &HotModules,
    layout: &Relayout,
    areas: &[(Area, bool)],
) -> (Patch, NewCode) {
    let slots = attachment.known_slots(&layout.virtual_slots);
    let (patch, on_two_pages) = patch(layout, &slots);
    let name = |it: &HotModule| (it.module.path().display().to_string(), it.samples);
    let code = NewCode {
        modules: modules.found.iter().map(name).collect(),
        left_alone: modules.left_alone.clone(),
        statistics: layout.statistics.clone(),
        on_two_pages,
        virtual_slots: slots.len(),
        added: areas.iter().map(|(area, _)| area.code).sum(),
    };
    (patch, code)
}

/// The files with samples.
pub(crate) fn readable_modules(
    attachment: &Attachment,
    samples: &Samples,
) -> Result<HotModules, OptimizeError> {
    let modules = hot_modules(attachment, samples)?;
    if modules.found.is_empty() && modules.generated * 2 > samples.total() {
        let pid = attachment.process().pid();
        let percent = modules.generated * 100 / samples.total();
        let what = format!(
            "process {pid} was not changed: {percent}% of its samples are in {GENERATED}, and only code \
             in files can be optimized"
        );
        return Err(LiveError::Failed(what).into());
    }
    Ok(modules)
}

impl PreparedPatch {
    /// The samples it is based on, for any process with the same files.
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

    /// Whether a generation is this patch.
    pub(crate) fn is_generation(&self, generation: &Generation) -> bool {
        self.is_in(generation.areas.iter()) && *self.patch.entries == *generation.entries
    }

    /// Whether all its memory is mapped in a process.
    pub(crate) fn is_mapped_in(&self, attachment: &Attachment) -> Result<bool, LiveError> {
        for (area, _) in &self.areas {
            if !attachment.is_mapped(area)? {
                return Ok(false);
            }
        }
        Ok(true)
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
    hot_modules: &HotModules,
    samples: &Samples,
    options: &Options,
) -> Result<(Relayout, Vec<(Area, bool)>), OptimizeError> {
    let mut space = NewMemory { attachment, areas: Vec::new(), has_begun: false };
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

pub(crate) fn lay_out(
    space: &mut impl Reserve,
    modules: &HotModules,
    samples: &Samples,
    options: &Options,
) -> Result<Relayout, OptimizeError> {
    let hot_modules = &modules.found[..];
    let pid = space.attachment().process().pid();
    let has_counted = space.attachment().generations().iter().any(|it| it.counts);
    let images: Vec<&Image> = hot_modules.iter().map(|hot_module| &hot_module.image).collect();
    let mut options = options.clone();
    options.exclude.extend(hot_modules.iter().flat_map(|hot_module| hot_module.modified.clone()));
    let counters = HashMap::new();
    let mut space = AttachedSpace { memory: space, hot_modules, counters, error: None };
    let layout = relayout::optimize_proven(&images, samples, &options, &mut space);
    let error = space.error;
    layout.map_err(|source| match error {
        Some(error) => OptimizeError::Live(error),
        None => {
            let left_alone = modules.left_alone.clone();
            OptimizeError::Layout { pid, has_counted, left_alone, source }
        }
    })
}

/// How memory for new code is found.
pub(crate) trait Reserve {
    fn attachment(&self) -> &Attachment;

    /// Reserves memory within reach of `near` for code, with huge pages if it is large, and for its counters.
    fn reserve(&mut self, near: &Range<u64>, request: &RegionRequest) -> Result<Area, LiveError>;
}

/// Memory that the process maps.
struct NewMemory<'a> {
    attachment: &'a mut Attachment,
    areas: Vec<(Area, bool)>,
    /// Whether a generation was started.
    has_begun: bool,
}

impl Reserve for NewMemory<'_> {
    fn attachment(&self) -> &Attachment {
        self.attachment
    }

    fn reserve(&mut self, near: &Range<u64>, request: &RegionRequest) -> Result<Area, LiveError> {
        // Only now, because a layout that is refused must not change the process.
        if !self.has_begun {
            self.attachment.begin()?;
            self.has_begun = true;
        }
        let huge = is_huge(request);
        let area = match request.counters {
            0 => self.attachment.reserve(near, request.size, huge)?,
            counters => self.attachment.reserve_counting(near, request.size, counters)?,
        };
        self.areas.push((area, huge));
        Ok(area)
    }
}

/// Free memory that stays free.
pub(crate) struct FreeMemory<'a> {
    pub(crate) attachment: &'a Attachment,
    pub(crate) areas: Vec<(Area, bool)>,
}

impl Reserve for FreeMemory<'_> {
    fn attachment(&self) -> &Attachment {
        self.attachment
    }

    fn reserve(&mut self, near: &Range<u64>, request: &RegionRequest) -> Result<Area, LiveError> {
        let (size, huge) = (request.size + request.counters, is_huge(request));
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

/// Whether code is to have huge pages: it would exceed the CPU's TLB entries for small ones.
const fn is_huge(request: &RegionRequest) -> bool {
    request.size >= 256 << 10
}

impl<R: Reserve> relayout::AddressSpace for AttachedSpace<'_, R> {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        let near = self.hot_modules.get(request.module)?.image.extent();
        match self.memory.reserve(&near, request) {
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

/// The layout as a patch with these slots of virtual tables, and the number of entries left out because they cannot be
/// written atomically.
pub(crate) fn patch(layout: &Relayout, slots: &[VirtualSlot]) -> (Patch, usize) {
    let mut entries: Vec<BytePatch> = layout
        .entries
        .iter()
        .map(|entry| BytePatch {
            address: entry.address,
            original: entry.original.to_vec(),
            patch: entry.patch.to_vec(),
        })
        .collect();
    let all = entries.len();
    entries.retain(BytePatch::is_on_one_page);
    let on_two_pages = all - entries.len();
    entries.extend(slots.iter().map(|slot| BytePatch {
        address: slot.address,
        original: slot.function.to_le_bytes().to_vec(),
        patch: slot.copy.to_le_bytes().to_vec(),
    }));
    let exits = layout.entries.iter().filter_map(|entry| exit(layout, entry)).collect();
    let patch = Patch {
        blocks: layout.regions.clone(),
        entries,
        exits,
        frames: layout.frames.iter().map(|section| section.address).collect(),
        symbols: layout.symbols.clone(),
        map: layout.map.clone(),
    };
    (patch, on_two_pages)
}

const JUMP: u64 = JUMP_SIZE as u64;

/// The jump from the copy of an entry back to it, if it is safe: only copies of the instructions
/// that the entry's own jump replaces may start inside the replaced bytes. These are not the target
/// of any branch or return, neither in the original nor in the copy.
fn exit(layout: &Relayout, entry: &relayout::EntryPatch) -> Option<BytePatch> {
    let inside = entry.address + 1..entry.address + JUMP;
    let is_safe = (entry.copy + 1..entry.copy + JUMP)
        .filter_map(|at| layout.map.to_original(at))
        .all(|original| inside.contains(&original));
    let bytes = layout.regions.iter().find_map(|region| {
        let start = usize::try_from(entry.copy.checked_sub(region.address)?).ok()?;
        region.bytes.get(start..start + JUMP as usize)
    })?;
    let distance = entry.address.wrapping_sub(entry.copy + JUMP) as u32;
    let exit = BytePatch {
        address: entry.copy,
        original: bytes.to_vec(),
        patch: [&[0xe9], &distance.to_le_bytes()[..]].concat(),
    };
    (is_safe && exit.is_on_one_page()).then_some(exit)
}
