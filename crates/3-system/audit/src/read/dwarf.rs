//! Reader for the first entry of each DWARF compilation unit: compiler, command line and source
//! file.
//!
//! A build can have gigabytes of debug information. Only these entries, their abbreviations and
//! their strings are read.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugInfo, DebugLineStr, DebugStr, DebugStrOffsets,
    DebugStrOffsetsBase, EndianSlice, Reader, Relocate, RelocateReader, RunTimeEndian, UnitHeader,
    UnitType,
};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

use crate::error::ReadError;
use crate::flags::Producer;
use crate::read::{Budget, content, map};

/// Size limit of a unit's header and first entry, in bytes. Relocations beyond it are ignored.
const WINDOW: u64 = 4_096;

/// Maximum number of abbreviation tables in memory.
const MAX_TABLES: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct DebugUnit {
    /// `Err`: it is in this file, which does not exist (`-gsplit-dwarf`).
    pub(super) producer: Result<Producer, PathBuf>,
    /// The source file as the compiler was given it.
    pub(super) source: Option<String>,
    /// The working directory of the compiler.
    pub(super) directory: Option<String>,
    /// Whether it has code. A source may have none that is compiled.
    pub(super) has_code: bool,
}

/// All compilation units; those after a truncation are missing. What is split off is read from files that
/// compilers name, or that are beside `path`.
pub(super) fn units(file: &object::File<'_>, path: &Path) -> Result<Vec<DebugUnit>, ReadError> {
    // Slim objects have debug information only for the linker; fat ones have both.
    for prefix in ["", ".gnu.debuglto_"] {
        let mut units = units_in(file, prefix, "")?;
        for unit in &mut units {
            let Err(named) = &unit.producer else { continue };
            let beside = named.file_name().map(|name| path.with_file_name(name));
            let mut found =
                [Some(named.clone()), beside].into_iter().flatten().filter_map(split_off);
            if let Some(split) = found.next() {
                unit.producer = split.producer;
                unit.source = unit.source.take().or(split.source);
            }
        }
        if !units.is_empty() {
            return Ok(units);
        }
    }
    Ok(Vec::new())
}

/// The unit in a file of split debug information.
fn split_off(path: PathBuf) -> Option<DebugUnit> {
    let data = map(&path).ok()??;
    let file = object::File::parse(&*data).ok()?;
    units_in(&file, "", ".dwo").ok()?.into_iter().find(|unit| unit.producer.is_ok())
}

fn units_in(
    file: &object::File<'_>,
    prefix: &str,
    suffix: &str,
) -> Result<Vec<DebugUnit>, ReadError> {
    let section = |name: &str| file.section_by_name(&format!("{prefix}{name}{suffix}"));
    let content = |name: &str| section(name).map_or(Ok(Cow::default()), |one| content(&one));
    let info = content(".debug_info")?;
    if info.is_empty() {
        return Ok(Vec::new());
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
        content(".debug_abbrev")?,
        content(".debug_str")?,
        content(".debug_line_str")?,
        content(".debug_str_offsets")?,
    );
    let size = [&info, &strings, &line_strings].map(|section| section.len()).iter().sum();
    let none = Moves::default();
    let reader = |data, moves| RelocateReader::new(EndianSlice::new(data, endian), moves);
    let sections = Sections {
        abbrev: DebugAbbrev::from(reader(&abbrev, &none)),
        strings: DebugStr::from(reader(&strings, &none)),
        line_strings: DebugLineStr::from(reader(&line_strings, &none)),
        offsets: DebugStrOffsets::from(reader(&offsets, &offset_moves)),
        budget: Budget::of_sections(size),
        abbreviations: RefCell::default(),
    };
    let info = DebugInfo::from(reader(&info, &info_moves));
    let mut producers = Producers::new();
    let mut units = Vec::new();
    let mut headers = info.units();
    while let Ok(Some(header)) = headers.next() {
        if !matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. })
            && let Some(unit) = sections.unit(&header, &mut producers)
        {
            units.push(unit);
        }
        sections.budget.check()?;
    }
    Ok(units)
}

/// The offsets of the units. Unit lengths are never relocated.
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

/// Cache of parsed producers: a thousand units of a binary share a few.
type Producers = HashMap<String, Producer>;

struct Sections<'a> {
    abbrev: DebugAbbrev<Slice<'a>>,
    strings: DebugStr<Slice<'a>>,
    line_strings: DebugLineStr<Slice<'a>>,
    offsets: DebugStrOffsets<Slice<'a>>,
    budget: Budget,
    /// By offset: many units share a table.
    abbreviations: RefCell<HashMap<usize, Arc<Abbreviations>>>,
}

impl<'a> Sections<'a> {
    fn unit(&self, header: &UnitHeader<Slice<'a>>, producers: &mut Producers) -> Option<DebugUnit> {
        let abbreviations = self.abbreviations(header)?;
        let mut entries = header.entries(&abbreviations);
        let entry = entries.next_dfs().ok()??;
        if ![gimli::DW_TAG_compile_unit, gimli::DW_TAG_skeleton_unit].contains(&entry.tag()) {
            return None;
        }
        let base = match entry.attr_value(gimli::DW_AT_str_offsets_base) {
            Some(AttributeValue::DebugStrOffsetsBase(base)) => base,
            // After the header of the section.
            _ => DebugStrOffsetsBase(if header.version() >= 5 { 8 } else { 0 }),
        };
        let text = |name| self.text(header, base, entry.attr_value(name)?);
        let directory = text(gimli::DW_AT_comp_dir);
        let producer = match text(gimli::DW_AT_producer) {
            Some(text) => {
                Ok(producers.entry(text).or_insert_with_key(|text| Producer::parse(text)).clone())
            }
            None => {
                let name =
                    text(gimli::DW_AT_dwo_name).or_else(|| text(gimli::DW_AT_GNU_dwo_name))?;
                Err(Path::new(directory.as_deref().unwrap_or_default()).join(name))
            }
        };
        let addresses = [gimli::DW_AT_low_pc, gimli::DW_AT_ranges];
        let has_code = addresses.into_iter().any(|name| entry.attr(name).is_some());
        Some(DebugUnit { producer, source: text(gimli::DW_AT_name), directory, has_code })
    }

    fn abbreviations(&self, header: &UnitHeader<Slice<'a>>) -> Option<Arc<Abbreviations>> {
        let offset = header.debug_abbrev_offset().0;
        let mut known = self.abbreviations.borrow_mut();
        if let Some(found) = known.get(&offset) {
            return Some(Arc::clone(found));
        }
        let found = Arc::new(header.abbreviations(&self.abbrev).ok()?);
        if known.len() >= MAX_TABLES {
            known.clear();
        }
        known.insert(offset, Arc::clone(&found));
        Some(found)
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
        self.budget.take(bytes.len());
        self.budget.check().ok()?;
        bytes.to_string_lossy().ok().map(Cow::into_owned)
    }
}

/// Relocations of a section of an object that is not linked.
#[derive(Clone, Debug, Default)]
struct Moves {
    /// By offset: the value, and whether it is added to the value in the section or replaces it.
    at: BTreeMap<usize, (u64, bool)>,
}

impl Moves {
    /// Reads the relocations in the windows that start at the given offsets, in ascending order.
    /// Assemblers and linkers also write relocations in ascending order.
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
