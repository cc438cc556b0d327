//! Programs and libraries loaded in a process, and their files.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dbdyno_machine::safe_files::check_regular;
use dbdyno_units::Bytes;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, elf};

use crate::LiveError;
use crate::maps::{Mapping, Maps};
use crate::patch::PAGE;
use crate::process::Process;

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
    range: Range<u64>,
    /// Executable segments: addresses in the process, and offsets in the file.
    code: Vec<(Range<u64>, usize)>,
    bytes: Vec<u8>,
}

/// Maximum size of a file.
const MAX_SIZE: Bytes = Bytes::from_mib(1024);

impl Module {
    /// All files with code in the process, by address.
    #[must_use]
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
    #[must_use]
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
    ///
    /// # Errors
    /// It cannot be read, or is not a 64-bit ELF file.
    pub fn open(process: &Process, loaded: &LoadedModule) -> Result<Self, LiveError> {
        let pid = process.pid();
        let bytes = read(pid, loaded)?;
        let broken =
            |what: &str| LiveError::refused(pid, format!("{} {what}", loaded.path.display()));
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
        Ok(Self { path: loaded.path.clone(), bias, range: loaded.range.clone(), code, bytes })
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Address in the process minus link-time address.
    #[must_use]
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// Addresses in the process.
    #[must_use]
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Addresses of the code in the process.
    pub fn code(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.code.iter().map(|(range, _)| range.clone())
    }

    /// Content of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it defines a function that other files can call.
    #[must_use]
    pub(crate) fn defines(&self, function: &str) -> bool {
        let Ok(file) = ElfFile64::<Endianness>::parse(&*self.bytes) else { return false };
        let mut symbols = file.dynamic_symbols();
        symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok(function))
    }

    /// The bytes of the file at these addresses; `None` if they are not all code.
    #[must_use]
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
    ///
    /// # Errors
    /// The process exited, or its code cannot be read.
    pub fn differences(&self, process: &Process) -> Result<Vec<Range<u64>>, LiveError> {
        const NEAR: u64 = 16;
        let mut different: Vec<Range<u64>> = Vec::new();
        for (range, offset) in &self.code {
            let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let memory = process.memory().read(range.start, size)?;
            let file = self.bytes.get(*offset..offset.saturating_add(size)).ok_or_else(|| {
                let what = format!("{} is shorter than its mapping", self.path.display());
                LiveError::refused(process.pid(), what)
            })?;
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
            return Err(LiveError::refused(
                pid,
                format!(
                    "{} was deleted or replaced after it was loaded; only root can still read it",
                    loaded.path.display()
                ),
            ));
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
