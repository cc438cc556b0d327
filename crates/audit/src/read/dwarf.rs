//! The first entry of each compilation unit: who compiled which file, and how.
//!
//! A build has gigabytes of debug information; nothing of it is touched beyond these entries, the
//! abbreviations and the strings that they name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gimli::{
    AttributeValue, DebugAbbrev, DebugInfo, DebugLineStr, DebugStr, DebugStrOffsets,
    DebugStrOffsetsBase, EndianSlice, Reader, Relocate, RelocateReader, RunTimeEndian, UnitHeader,
    UnitType,
};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

use super::producer_cache::Producers;
use crate::flags::Producer;

/// Room for a unit's header and its first entry. What lies behind is not relocated.
const WINDOW: u64 = 4_096;

/// A compilation unit.
#[derive(Clone, Debug)]
pub(super) struct DebugUnit {
    pub(super) producer: Producer,
    /// The source file as the compiler was given it.
    pub(super) source: Option<String>,
    /// The directory that it was started in.
    pub(super) directory: Option<String>,
}

/// All compilation units; those of debug information that is broken off are missing.
pub(super) fn units(file: &object::File<'_>) -> Vec<DebugUnit> {
    // Slim objects have debug information for the link only; fat ones have both.
    ["", ".gnu.debuglto_"]
        .into_iter()
        .map(|prefix| units_in(file, prefix))
        .find(|units| !units.is_empty())
        .unwrap_or_default()
}

fn units_in(file: &object::File<'_>, prefix: &str) -> Vec<DebugUnit> {
    let section = |name: &str| file.section_by_name(&format!("{prefix}{name}"));
    let content = |name: &str| -> Cow<'_, [u8]> {
        section(name).and_then(|section| section.uncompressed_data().ok()).unwrap_or_default()
    };
    let info = content(".debug_info");
    if info.is_empty() {
        return Vec::new();
    }
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let windows = windows(&info, endian);
    let relocatable = file.kind() == object::ObjectKind::Relocatable;
    let relocations = |name: &str, windows: &[u64]| {
        section(name)
            .filter(|_| relocatable)
            .map_or_else(Moves::default, |section| Moves::read(file, &section, windows))
    };
    let info_moves = relocations(".debug_info", &windows);
    let offset_moves = relocations(".debug_str_offsets", &[0]);
    let (abbrev, strings, line_strings, offsets) = (
        content(".debug_abbrev"),
        content(".debug_str"),
        content(".debug_line_str"),
        content(".debug_str_offsets"),
    );
    let none = Moves::default();
    let reader = |data, moves| RelocateReader::new(EndianSlice::new(data, endian), moves);
    let sections = Sections {
        abbrev: DebugAbbrev::from(reader(&abbrev, &none)),
        strings: DebugStr::from(reader(&strings, &none)),
        line_strings: DebugLineStr::from(reader(&line_strings, &none)),
        offsets: DebugStrOffsets::from(reader(&offsets, &offset_moves)),
    };
    let info = DebugInfo::from(reader(&info, &info_moves));
    let mut producers = Producers::default();
    let mut units = Vec::new();
    let mut headers = info.units();
    while let Ok(Some(header)) = headers.next() {
        if !matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. })
            && let Some(unit) = sections.unit(&header, &mut producers)
        {
            units.push(unit);
        }
    }
    units
}

/// Where the units begin. Their lengths are never relocated.
fn windows(info: &[u8], endian: RunTimeEndian) -> Vec<u64> {
    let info = DebugInfo::from(EndianSlice::new(info, endian));
    let mut headers = info.units();
    let mut windows = Vec::new();
    while let Ok(Some(header)) = headers.next() {
        windows.extend(header.debug_info_offset().map(|offset| offset.0 as u64));
    }
    windows
}

type Slice<'a> = RelocateReader<EndianSlice<'a, RunTimeEndian>, &'a Moves>;

struct Sections<'a> {
    abbrev: DebugAbbrev<Slice<'a>>,
    strings: DebugStr<Slice<'a>>,
    line_strings: DebugLineStr<Slice<'a>>,
    offsets: DebugStrOffsets<Slice<'a>>,
}

impl<'a> Sections<'a> {
    fn unit(&self, header: &UnitHeader<Slice<'a>>, producers: &mut Producers) -> Option<DebugUnit> {
        let abbreviations = header.abbreviations(&self.abbrev).ok()?;
        let mut entries = header.entries(&abbreviations);
        let entry = entries.next_dfs().ok()??;
        if entry.tag() != gimli::DW_TAG_compile_unit {
            return None;
        }
        let base = match entry.attr_value(gimli::DW_AT_str_offsets_base) {
            Some(AttributeValue::DebugStrOffsetsBase(base)) => base,
            // Behind the header of the section.
            _ => DebugStrOffsetsBase(if header.version() >= 5 { 8 } else { 0 }),
        };
        let text = |name| self.text(header, base, entry.attr_value(name)?);
        let producer = text(gimli::DW_AT_producer)?;
        Some(DebugUnit {
            producer: producers.parse(producer),
            source: text(gimli::DW_AT_name),
            directory: text(gimli::DW_AT_comp_dir),
        })
    }

    fn text(
        &self,
        header: &UnitHeader<Slice<'a>>,
        base: DebugStrOffsetsBase<usize>,
        value: AttributeValue<Slice<'a>>,
    ) -> Option<String> {
        let bytes = match value {
            AttributeValue::String(text) => text,
            AttributeValue::DebugStrRef(offset) => self.strings.get_str(offset).ok()?,
            AttributeValue::DebugLineStrRef(offset) => self.line_strings.get_str(offset).ok()?,
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let offset = self.offsets.get_str_offset(header.format(), base, index).ok()?;
                self.strings.get_str(offset).ok()?
            }
            _ => return None,
        };
        bytes.to_string_lossy().ok().map(Cow::into_owned)
    }
}

/// What is added to the numbers at some places of a section of an object that is not linked.
#[derive(Clone, Debug, Default)]
struct Moves {
    /// By place: what to add, and whether to what stands there.
    at: BTreeMap<usize, (u64, bool)>,
}

impl Moves {
    /// Those in the windows that begin at these places, which must be in ascending order, as
    /// assemblers and linkers leave the relocations, too.
    fn read<'data>(
        file: &object::File<'data>,
        section: &object::Section<'data, '_>,
        windows: &[u64],
    ) -> Self {
        let end = windows.last().map_or(0, |last| last.saturating_add(WINDOW));
        let mut at = BTreeMap::new();
        for (offset, relocation) in section.relocations() {
            if offset > end {
                break;
            }
            let before = windows.partition_point(|start| *start <= offset);
            let near = before
                .checked_sub(1)
                .and_then(|index| windows.get(index))
                .is_some_and(|start| offset - start < WINDOW);
            let address = match relocation.target() {
                RelocationTarget::Symbol(symbol) => {
                    file.symbol_by_index(symbol).ok().map(|symbol| symbol.address())
                }
                RelocationTarget::Section(_) | RelocationTarget::Absolute => Some(0),
                _ => None,
            };
            if let (true, Some(address), Ok(offset)) = (near, address, usize::try_from(offset)) {
                let added = address.wrapping_add_signed(relocation.addend());
                at.insert(offset, (added, relocation.has_implicit_addend()));
            }
        }
        Self { at }
    }

    fn moved(&self, offset: usize, value: u64) -> u64 {
        match self.at.get(&offset) {
            Some((added, true)) => value.wrapping_add(*added),
            Some((added, false)) => *added,
            None => value,
        }
    }
}

impl Relocate<usize> for &Moves {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.moved(offset, value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        gimli::ReaderOffset::from_u64(self.moved(offset, value as u64))
    }
}
