//! Return addresses of signal handlers.

use crate::LiveError;
use crate::maps::Maps;
use crate::memory::ProcessMemory;

/// The code of glibc and musl that signal handlers return to: `mov $15, %rax; syscall`.
const PATTERNS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// The addresses in a process's C library that signal handlers return to, ascending.
///
/// # Errors
/// The process exited.
pub(crate) fn signal_returns(pid: u32, memory: &ProcessMemory) -> Result<Vec<u64>, LiveError> {
    let maps = Maps::of(pid)?;
    let mut found = Vec::new();
    let code = maps
        .all()
        .iter()
        .filter(|mapping| mapping.executable && mapping.readable && is_c_library(&mapping.name));
    for mapping in code {
        let size = usize::try_from(mapping.range.end - mapping.range.start).unwrap_or(usize::MAX);
        let bytes = memory.read(mapping.range.start, size)?;
        let system_calls = bytes.windows(2).enumerate().filter(|(_, pair)| **pair == [0x0f, 0x05]);
        for (offset, _) in system_calls {
            let end = offset + 2;
            let starts = PATTERNS.iter().filter_map(|pattern| {
                let start = end.checked_sub(pattern.len())?;
                (bytes[start..end] == **pattern).then_some(mapping.range.start + start as u64)
            });
            found.extend(starts);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_c_library(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-2", "libpthread", "ld-musl", "libc.musl"]
        .iter()
        .any(|start| name.starts_with(start))
}
