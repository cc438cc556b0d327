//! The files of a process: loaded modules, and those with samples.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dbdyno_machine::safe_files::check_regular;
use dbdyno_relayout::{AddressMap, Module as Image, Samples};
use dbdyno_units::Bytes;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, elf};

use crate::attachment::Attachment;
use crate::journal::GenerationState;
use crate::memory::{Mapping, Maps};
use crate::patch::{BytePatch, PAGE};
use crate::process::Process;
use crate::unwind::Unwinder;
use crate::{LiveError, unwind};

/// A file with code that is mapped in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedModule {
    /// Path in the process's file system.
    pub path: PathBuf,
    /// From the start of its first mapping to the end of its last one.
    pub range: Range<u64>,
    pub mappings: Vec<Mapping>,
}

/// A program or library in a process, with the content of its file.
#[derive(Clone, Debug)]
pub struct Module {
    path: PathBuf,
    bias: u64,
    /// Executable segments: addresses in the process, and offsets in the file.
    code: Vec<(Range<u64>, usize)>,
    bytes: Vec<u8>,
}

/// Maximum size of a file.
const MAX_SIZE: Bytes = Bytes::from_mib(1024);

impl Module {
    /// All files with code in the process, by address.
    pub fn loaded(maps: &Maps) -> Vec<LoadedModule> {
        let mut found: Vec<LoadedModule> = Vec::new();
        for mapping in maps.all().iter().filter(|mapping| mapping.inode != 0) {
            let path = Path::new(mapping.name.trim_end_matches(" (deleted)"));
            // A mapping of the first byte belongs to another copy of the file.
            let same = found.iter_mut().rev().find(|loaded| {
                loaded.path == path
                    && loaded.mappings.first().is_some_and(|first| first.inode == mapping.inode)
            });
            match same {
                Some(loaded) if mapping.offset != 0 => {
                    loaded.range.end = mapping.range.end;
                    loaded.mappings.push(mapping.clone());
                }
                _ => found.push(LoadedModule {
                    path: path.to_owned(),
                    range: mapping.range.clone(),
                    mappings: vec![mapping.clone()],
                }),
            }
        }
        found.retain(|loaded| loaded.mappings.iter().any(|mapping| mapping.executable));
        found
    }

    /// The first loaded file whose name has this prefix.
    pub fn with_prefix(maps: &Maps, prefix: &str) -> Option<LoadedModule> {
        Self::loaded(maps).into_iter().find(|loaded| {
            let name = loaded.path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        })
    }

    /// Reads the file.
    ///
    /// Opens the mapped file if permitted, even if it was deleted or replaced; otherwise by path. Compare
    /// it with [`Module::differences`].
    pub fn open(process: &Process, loaded: &LoadedModule) -> Result<Self, LiveError> {
        let pid = process.pid();
        let bytes = read(pid, loaded)?;
        let broken = |what: &str| refused_file(pid, &loaded.path, what);
        let file = ElfFile64::<Endianness>::parse(&*bytes)
            .map_err(|error| broken(&format!("is not a 64-bit ELF file: {error}")))?;
        let endian = file.endian();
        let segments: Vec<_> = file
            .elf_program_headers()
            .iter()
            .filter(|header| header.p_type(endian) == elf::PT_LOAD)
            .collect();
        let first = segments.first().ok_or_else(|| broken("has no loadable segment"))?;
        let start = first.p_vaddr(endian) / PAGE * PAGE;
        let bias = loaded.range.start.wrapping_sub(start);
        let mut code = Vec::new();
        let mut size: u64 = 0;
        for header in segments.iter().filter(|header| header.p_flags(endian).contains(elf::PF_X)) {
            let part = header.data(endian, &*bytes).map_err(|()| broken("ends within its code"))?;
            size += part.len() as u64;
            let at = bias.wrapping_add(header.p_vaddr(endian));
            let end = at.checked_add(part.len() as u64);
            let end = end.ok_or_else(|| broken("has code at an invalid address"))?;
            let offset = usize::try_from(header.p_offset(endian)).unwrap_or(usize::MAX);
            code.push((at..end, offset));
        }
        if size > bytes.len() as u64 {
            return Err(broken("has the same code in several segments"));
        }
        Ok(Self { path: loaded.path.clone(), bias, code, bytes })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Address in the process minus link-time address.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// Addresses of the code in the process.
    pub fn code(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.code.iter().map(|(range, _)| range.clone())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it defines a function that other files can call.
    pub(crate) fn defines(&self, function: &str) -> bool {
        let Ok(file) = ElfFile64::<Endianness>::parse(&*self.bytes) else { return false };
        let mut symbols = file.dynamic_symbols();
        symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok(function))
    }

    /// The bytes of the file at these addresses; `None` if they are not all code.
    pub fn original(&self, range: &Range<u64>) -> Option<&[u8]> {
        let (code, offset) = self
            .code
            .iter()
            .find(|(code, _)| code.start <= range.start && range.end <= code.end)?;
        let start = offset + usize::try_from(range.start - code.start).ok()?;
        self.bytes.get(start..start + usize::try_from(range.end.checked_sub(range.start)?).ok()?)
    }

    /// Address ranges in which the code in the process differs from the file, merged if they are less
    /// than 16 bytes apart.
    pub fn differences(&self, process: &Process) -> Result<Vec<Range<u64>>, LiveError> {
        const NEAR: u64 = 16;
        let mut different: Vec<Range<u64>> = Vec::new();
        for (range, offset) in &self.code {
            let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let memory = process.memory().read(range.start, size)?;
            let shorter = || refused_file(process.pid(), &self.path, "is shorter than its mapping");
            let file = self.bytes.get(*offset..offset.saturating_add(size)).ok_or_else(shorter)?;
            // Whole pages first, because nearly all are equal.
            for (page, (a, b)) in memory.chunks(4096).zip(file.chunks(4096)).enumerate() {
                if a == b {
                    continue;
                }
                let bytes = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b);
                for (index, _) in bytes {
                    let at = range.start + page as u64 * PAGE + index as u64;
                    match different.last_mut() {
                        Some(last) if at < last.end + NEAR => last.end = at + 1,
                        _ => different.push(at..at + 1),
                    }
                }
            }
        }
        Ok(different)
    }
}

/// The refusal of a process because of one of its files.
fn refused_file(pid: u32, path: &Path, what: &str) -> LiveError {
    LiveError::refused(pid, format!("{} {what}", path.display()))
}

fn read(pid: u32, loaded: &LoadedModule) -> Result<Vec<u8>, LiveError> {
    let mapped = loaded.mappings.iter().find_map(|mapping| {
        let (start, end) = (mapping.range.start, mapping.range.end);
        open(&PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))).ok()
    });
    let by_name = PathBuf::from(format!("/proc/{pid}/root{}", loaded.path.display()));
    let deleted = loaded.mappings.iter().any(|mapping| mapping.name.ends_with(" (deleted)"));
    let file = match mapped {
        Some(file) => file,
        None if deleted => {
            let what = "was deleted or replaced after it was loaded; only root can still read it";
            return Err(refused_file(pid, &loaded.path, what));
        }
        None => open(&by_name).map_err(LiveError::file("opening", &by_name))?,
    };
    content(file).map_err(LiveError::file("reading", &loaded.path))
}

/// Opens a file that the process chose: without waiting, as a pipe would.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// The content of a regular file. A device can be mapped, too, and has no end.
fn content(file: File) -> io::Result<Vec<u8>> {
    check_regular(&file, MAX_SIZE)?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(MAX_SIZE.as_bytes()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

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
    pub module: Module,
    /// The same module, parsed for the layout.
    pub image: Image,
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
    pub generated: u64,
}

/// Libraries that are never optimized: the loader, and the unwinder.
const EXCLUDED: [&str; 3] = ["ld-linux", "ld-musl", "libgcc_s"];
/// Minimum share of the samples for a file to be optimized.
const MIN_SHARE: f64 = 0.005;

/// Finds the files with samples.
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
            Err(LiveError::Refused { reason, .. }) => left_alone.push((path, reason)),
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
        let what = "differs from the file that was loaded";
        return Err(refused_file(process.pid(), &loaded.path, what));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_limited_size_are_read() {
        let refused = |path: &Path| content(open(path).unwrap()).unwrap_err().to_string();
        // It has no end.
        assert!(refused(Path::new("/dev/zero")).contains("not a regular file"));
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // Opening it would wait for a writer.
        assert!(refused(&pipe).contains("not a regular file"));
        let large = directory.path().join("large");
        File::create(&large).unwrap().set_len(MAX_SIZE.as_bytes() + 1).unwrap();
        assert!(refused(&large).contains("larger than"));
    }
}
