//! Unused executable memory of a process with space for a few instructions.

use std::ops::Range;

use crate::LiveError;
use crate::journal::BorrowedCode;
use crate::maps::{Mapping, Maps};
use crate::memory::ProcessMemory;
use crate::patch::PAGE;

const PROGRAM_HEADER: usize = 56;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// Finds `size` executable bytes that the process never uses: the last page of a code segment is mapped
/// completely, but unused after the end of the segment.
///
/// # Errors
/// There are no such bytes.
pub(crate) fn find_unused_code(
    pid: u32,
    memory: &ProcessMemory,
    size: usize,
) -> Result<BorrowedCode, LiveError> {
    let maps = Maps::of(pid)?;
    for header in maps.all().iter().filter(|mapping| starts_file(mapping)) {
        for tail in tails(memory, &maps, header).unwrap_or_default() {
            // Aligned for the word at its start.
            let start = tail.start.next_multiple_of(16);
            if start + size as u64 <= tail.end {
                return Ok(BorrowedCode { address: start, original: memory.read(start, size)? });
            }
        }
    }
    Err(LiveError::refused(pid, "its code segments have no unused space for a few instructions"))
}

fn starts_file(mapping: &Mapping) -> bool {
    mapping.inode != 0 && mapping.offset == 0 && mapping.readable
}

/// The unused ends of the executable segments of a file.
fn tails(memory: &ProcessMemory, maps: &Maps, header: &Mapping) -> Option<Vec<Range<u64>>> {
    let start = memory.read(header.range.start, 64).ok()?;
    let number = |at: usize, count: usize| {
        let bytes = start.get(at..at + count)?;
        Some(bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte)))
    };
    if start.get(..5)? != [0x7f, b'E', b'L', b'F', 2] {
        return None;
    }
    let (offset, count) = (number(32, 8)?, number(56, 2)?);
    let headers = memory
        .read(header.range.start + offset, usize::try_from(count).ok()? * PROGRAM_HEADER)
        .ok()?;
    let loads: Vec<(u32, u64, u64)> = headers
        .chunks_exact(PROGRAM_HEADER)
        .filter_map(|header| {
            let word =
                |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
            let kind = word(0)?;
            (kind as u32 == PT_LOAD).then_some(((kind >> 32) as u32, word(16)?, word(40)?))
        })
        .collect();
    let bias = header.range.start.wrapping_sub(loads.first()?.1 / PAGE * PAGE);
    let tails = loads.iter().filter(|(flags, ..)| flags & PF_X != 0).filter_map(|(_, at, size)| {
        let end = bias.wrapping_add(at + size);
        let mapping = maps.at(end.checked_sub(1)?)?;
        let same_file = mapping.executable && mapping.inode == header.inode;
        let tail = end..end.next_multiple_of(PAGE).min(mapping.range.end);
        same_file.then_some(tail)
    });
    Some(tails.collect())
}
