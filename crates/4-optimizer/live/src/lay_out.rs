//! A layout in memory of the process, and the patch that activates it.

use std::collections::HashMap;
use std::ops::Range;

use dbdyno_relayout as relayout;
use dbdyno_relayout::{Module as Image, Options, RegionRequest, Relayout, Samples, VirtualSlot};

use crate::attachment::Attachment;
use crate::hot_modules::HotModule;
use crate::journal::Area;
use crate::optimize::OptimizeError;
use crate::patch::{BytePatch, CodeSymbol, JUMP_SIZE, MemoryBlock, Patch};
use crate::{LiveError, unwind};

/// Makes a layout in new memory of the process, which is freed again in case of an error. Returns the memory,
/// too, and whether huge pages are requested for it.
pub(crate) fn lay_out_in(
    attachment: &mut Attachment,
    hot_modules: &[HotModule],
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
    hot_modules: &[HotModule],
    samples: &Samples,
    options: &Options,
) -> Result<Relayout, OptimizeError> {
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
        None => OptimizeError::Layout { pid, has_counted, source },
    })
}

/// How memory for new code is found.
pub(crate) trait Reserve {
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

    fn reserve(
        &mut self,
        near: &Range<u64>,
        size: u64,
        huge: bool,
        counters: u64,
    ) -> Result<Area, LiveError> {
        // Only now, because a layout that is refused must not change the process.
        if !self.has_begun {
            self.attachment.begin()?;
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
pub(crate) struct FreeMemory<'a> {
    pub(crate) attachment: &'a Attachment,
    pub(crate) areas: Vec<(Area, bool)>,
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
