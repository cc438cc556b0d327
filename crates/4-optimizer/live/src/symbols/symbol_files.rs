//! Symbols and frame descriptions for debuggers: object files in the journal's directory, and a gdb
//! script that loads them at the addresses of the new code.
//!
//! gdb finds code by mapped files, and the new code is in none. Without frame descriptions it guesses
//! the return address of functions without a frame pointer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::write::{Object, StandardSection, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

use crate::patch::{CodeSymbol, MemoryBlock, Patch};

/// Path of the script.
pub(super) fn script(directory: &Path) -> PathBuf {
    directory.join("names.gdb")
}

/// Writes the files of a generation and updates the script. Errors are ignored.
pub(crate) fn write(directory: &Path, number: u32, patch: &Patch) {
    // A killed dbdyno may have left files of an earlier generation with this number.
    remove(directory, number);
    for (index, code) in modules(patch).iter().enumerate() {
        let path = directory.join(file_name(number, index, code));
        let _ = code.to_object().map(|bytes| fs::write(path, bytes));
    }
    let _ = write_script(directory, None);
}

/// Removes the files of a freed generation. The script never refers to a missing file.
pub(crate) fn forget(directory: &Path, number: u32) {
    let _ = write_script(directory, Some(number));
    remove(directory, number);
}

fn remove(directory: &Path, number: u32) {
    for (path, _) in files(directory).into_iter().filter(|(path, _)| is_of(path, number)) {
        let _ = fs::remove_file(path);
    }
}

fn is_of(path: &Path, number: u32) -> bool {
    name(path).starts_with(&prefix(number))
}

fn write_script(directory: &Path, without: Option<u32>) -> io::Result<()> {
    let mut text = String::new();
    let is_left_out = |path: &Path| without.is_some_and(|number| is_of(path, number));
    for (path, sections) in files(directory).into_iter().filter(|(path, _)| !is_left_out(path)) {
        // gdb only interprets these two characters inside quotation marks.
        let path = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        text.push_str(&format!("add-symbol-file \"{path}\" {sections}\n"));
    }
    if text.is_empty() {
        return fs::remove_file(script(directory));
    }
    let new = directory.join("names.gdb.new");
    fs::write(&new, text)?;
    fs::rename(new, script(directory))
}

/// The code of one module and its frame descriptions.
struct ModuleCode<'a> {
    code: &'a MemoryBlock,
    frames: Option<MemoryBlock>,
    symbols: Vec<&'a CodeSymbol>,
}

/// The code of a patch by module. The frame descriptions of a module follow its code.
fn modules(patch: &Patch) -> Vec<ModuleCode<'_>> {
    let mut modules: Vec<ModuleCode<'_>> = Vec::new();
    let mut blocks: Vec<&MemoryBlock> = patch.blocks.iter().collect();
    blocks.sort_by_key(|block| block.address);
    for block in blocks {
        let range = block.address..block.address + block.bytes.len() as u64;
        let inside = |symbol: &&CodeSymbol| range.contains(&symbol.range.start);
        let symbols: Vec<&CodeSymbol> = patch.symbols.iter().filter(inside).collect();
        if !symbols.is_empty() {
            modules.push(ModuleCode { code: block, frames: None, symbols });
        } else if let Some(last) = modules.last_mut() {
            let list = patch.frames.iter().find(|list| range.contains(list));
            last.frames = list.and_then(|list| frames(block, *list)).or(last.frames.take());
        }
    }
    modules
}

/// A list of frames, with the length of zero that ends it.
fn frames(block: &MemoryBlock, list: u64) -> Option<MemoryBlock> {
    let start = usize::try_from(list.checked_sub(block.address)?).ok()?;
    let all = block.bytes.get(start..)?;
    let mut end = 0;
    loop {
        let length = u32::from_le_bytes(all.get(end..end + 4)?.try_into().ok()?);
        end += 4 + usize::try_from(length).ok()?;
        if length == 0 {
            return Some(MemoryBlock { address: list, bytes: all.get(..end)?.to_vec() });
        }
    }
}

impl ModuleCode<'_> {
    /// A relocatable object file; the reader has to specify the addresses of its sections.
    fn to_object(&self) -> object::write::Result<Vec<u8>> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.section_id(StandardSection::Text);
        object.append_section_data(text, &self.code.bytes, 16);
        if let Some(frames) = &self.frames {
            let id = object.add_section(Vec::new(), b".eh_frame".into(), SectionKind::ReadOnlyData);
            object.append_section_data(id, &frames.bytes, 8);
        }
        for symbol in &self.symbols {
            object.add_symbol(Symbol {
                name: symbol.name.clone().into_bytes(),
                value: symbol.range.start - self.code.address,
                size: symbol.range.end - symbol.range.start,
                kind: SymbolKind::Text,
                scope: SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(text),
                flags: SymbolFlags::None,
            });
        }
        object.write()
    }
}

fn prefix(number: u32) -> String {
    format!("code-{number}-")
}

/// The file name, which has the addresses of the sections: `code-GENERATION-INDEX-CODE-FRAMES.o`.
fn file_name(number: u32, index: usize, module: &ModuleCode<'_>) -> String {
    let frames = module.frames.as_ref().map_or(0, |frames| frames.address);
    format!("{}{index}-{:x}-{frames:x}.o", prefix(number), module.code.address)
}

/// The files in the directory and their section addresses in gdb's syntax.
fn files(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, String)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let sections = sections(&name(&path))?;
            Some((path, sections))
        })
        .collect();
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sections(name: &str) -> Option<String> {
    let fields: Vec<&str> = name.strip_prefix("code-")?.strip_suffix(".o")?.split('-').collect();
    let [_, _, code, frames] = fields[..] else { return None };
    Some(match frames {
        "0" => format!("0x{code}"),
        _ => format!("0x{code} -s .eh_frame 0x{frames}"),
    })
}
