use std::collections::BTreeMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::limits;
use crate::code::{Function, FunctionsFrom};

/// The address and size of a function.
#[derive(Clone, Debug)]
pub(super) struct Bounds<'data> {
    /// Not copied: many symbols can share a long name.
    pub(super) name: Option<&'data [u8]>,
    pub(super) address: u64,
    pub(super) size: u64,
}

impl Bounds<'_> {
    pub(super) fn function(&self) -> Function {
        Function { name: self.name.map(limits::name), address: self.address, size: self.size }
    }
}

/// The functions of a file.
pub(super) struct Functions<'data> {
    /// By section index, from symbols; sorted by address.
    by_section: BTreeMap<usize, Vec<Bounds<'data>>>,
    /// From unwind tables, which have no sections; sorted by address.
    by_address: Vec<Bounds<'data>>,
}

impl<'data> Functions<'data> {
    pub(super) fn of_section(&self, section: &object::Section<'_, '_>) -> &[Bounds<'data>] {
        if let Some(functions) = self.by_section.get(&section.index().0) {
            return functions;
        }
        let end = section.address().saturating_add(section.size());
        let first = self.by_address.partition_point(|f| f.address < section.address());
        let last = self.by_address.partition_point(|f| f.address < end);
        &self.by_address[first..last]
    }
}

/// The functions according to symbols or, in a stripped file, unwind tables.
pub(super) fn bounds<'data>(file: &object::File<'data>) -> (Functions<'data>, FunctionsFrom) {
    let mut by_section: BTreeMap<usize, Vec<Bounds<'data>>> = BTreeMap::new();
    for symbol in file.symbols() {
        let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
        if let (true, Some(section)) = (is_function, symbol.section_index()) {
            by_section.entry(section.0).or_default().push(Bounds {
                name: symbol.name_bytes().ok(),
                address: symbol.address(),
                size: symbol.size(),
            });
        }
    }
    for functions in by_section.values_mut() {
        sort(functions);
    }
    if !by_section.is_empty() {
        return (Functions { by_section, by_address: Vec::new() }, FunctionsFrom::Symbols);
    }
    let mut by_address = by_unwinding(file).unwrap_or_default();
    sort(&mut by_address);
    let from = match by_address.is_empty() {
        true => FunctionsFrom::Sections,
        false => FunctionsFrom::Unwinding,
    };
    name_exported(file, &mut by_address);
    (Functions { by_section, by_address }, from)
}

/// Sorts by address and keeps one function per address: the largest.
fn sort(functions: &mut Vec<Bounds<'_>>) {
    functions.sort_by(|a, b| a.address.cmp(&b.address).then(b.size.cmp(&a.size)));
    functions.dedup_by_key(|function| function.address);
}

/// The functions according to `.eh_frame`. `None` for unlinked objects, where the addresses are not
/// yet known.
fn by_unwinding<'data>(file: &object::File<'data>) -> Option<Vec<Bounds<'data>>> {
    if file.kind() == object::ObjectKind::Relocatable {
        return None;
    }
    let section = file.section_by_name(".eh_frame")?;
    let data = section.data().ok()?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut frames = EhFrame::from(EndianSlice::new(data, endian));
    frames.set_address_size(if file.is_64() { 8 } else { 4 });
    let address_of = |name: &str| file.section_by_name(name).map(|section| section.address());
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = address_of(".text") {
        bases = bases.set_text(text);
    }
    if let Some(got) = address_of(".got") {
        bases = bases.set_got(got);
    }
    let mut entries = frames.entries(&bases);
    let mut functions = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            && fde.len() > 0
        {
            let (address, size) = (fde.initial_address(), fde.len());
            functions.push(Bounds { name: None, address, size });
        }
    }
    Some(functions)
}

/// Adds names of exported functions, which a stripped file keeps.
fn name_exported<'data>(file: &object::File<'data>, functions: &mut [Bounds<'data>]) {
    for symbol in file.dynamic_symbols() {
        if symbol.kind() == SymbolKind::Text
            && symbol.is_definition()
            && let Ok(index) =
                functions.binary_search_by_key(&symbol.address(), |function| function.address)
        {
            functions[index].name = symbol.name_bytes().ok();
        }
    }
}
