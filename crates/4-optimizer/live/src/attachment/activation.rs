//! Detects how much of a generation is active from the memory of the process.

use std::collections::HashSet;

use super::{Activation, Attachment};
use crate::LiveError;
use crate::journal::Generation;
use crate::maps::Maps;
use crate::memory::PagedReader;
use crate::patch::BytePatch;
use crate::process::Process;

/// The current bytes at the address of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The jump to the new code.
    Patch,
    /// The original bytes.
    Original,
    /// Other bytes: of another generation, or of another program.
    Other(Vec<u8>),
    /// A file other than the patched one: the library was unloaded.
    Unloaded,
}

impl Found {
    fn new(entry: &BytePatch, now: &[u8], is_unloaded: impl FnOnce() -> bool) -> Self {
        match now {
            // Also in a copy of the code that was mapped in its place.
            now if now == entry.patch => Self::Patch,
            _ if is_unloaded() => Self::Unloaded,
            now if now == entry.original => Self::Original,
            now => Self::Other(now.to_vec()),
        }
    }
}

/// The memory of a process at one time: generations have entries on the same pages.
struct MemorySnapshot<'a> {
    maps: Maps,
    memory: PagedReader<'a>,
}

impl<'a> MemorySnapshot<'a> {
    fn of(process: &'a Process) -> Result<Self, LiveError> {
        Ok(Self { maps: process.maps()?, memory: PagedReader::new(process.memory()) })
    }

    /// The current bytes at the addresses of all entries of a generation.
    fn found(&self, generation: &Generation) -> Result<Vec<Found>, LiveError> {
        let found = |entry: &BytePatch| {
            let is_unloaded = || is_unloaded(generation, entry, &self.maps);
            let found = self.memory.inspect(entry.address, entry.patch.len(), |now| {
                Found::new(entry, now, is_unloaded)
            });
            match found {
                Err(error) if is_unmapped(&error) => Ok(Found::Unloaded),
                found => found,
            }
        };
        generation.entries.iter().map(found).collect()
    }

    /// The number of redirected functions of a generation, and how much of it is active.
    fn redirected(&self, generation: &Generation) -> Result<(usize, Activation), LiveError> {
        let found = self.found(generation)?;
        let loaded = found.iter().filter(|it| **it != Found::Unloaded).count();
        let patched = found.iter().filter(|it| **it == Found::Patch).count();
        let activation = match patched {
            0 => Activation::Inactive,
            n if n == loaded => Activation::Full,
            _ => Activation::Partial,
        };
        let entries = generation.entries.iter().zip(&found);
        let functions = entries.filter(|(entry, found)| entry.is_jump() && **found == Found::Patch);
        Ok((functions.count(), activation))
    }
}

fn is_unloaded(generation: &Generation, entry: &BytePatch, maps: &Maps) -> bool {
    generation.mappings.iter().any(|mapping| mapping.was_replaced_at(entry.address, maps))
}

fn is_unmapped(error: &LiveError) -> bool {
    matches!(error, LiveError::System { source, .. } if source.raw_os_error() == Some(libc::EIO))
}

/// The number of redirected functions of a generation, and how much of it is active.
///
/// # Errors
/// The process exited.
pub fn redirected(
    process: &Process,
    generation: &Generation,
) -> Result<(usize, Activation), LiveError> {
    MemorySnapshot::of(process)?.redirected(generation)
}

impl Attachment {
    /// How much of a generation is active.
    pub(super) fn activation_of(&self, generation: &Generation) -> Result<Activation, LiveError> {
        redirected(&self.process, generation).map(|(_, activation)| activation)
    }

    /// Number of entries of a generation that lead to its code.
    pub(super) fn patched_entries(&self, generation: &Generation) -> Result<usize, LiveError> {
        let found = MemorySnapshot::of(&self.process)?.found(generation)?;
        Ok(found.iter().filter(|it| **it == Found::Patch).count())
    }

    /// How much of each generation is active.
    pub(super) fn activations(&self) -> Result<Vec<Activation>, LiveError> {
        let memory = MemorySnapshot::of(&self.process)?;
        self.generations().iter().map(|it| memory.redirected(it).map(|(_, it)| it)).collect()
    }

    /// Whether a thread may enter a generation: through its entries, or through bytes that another
    /// program has written over them and may restore.
    pub(super) fn may_be_entered(&self, generation: &Generation) -> Result<bool, LiveError> {
        let others = self.generations().iter().filter(|it| it.number != generation.number);
        let of_others: HashSet<(u64, &[u8])> =
            others.flat_map(|it| it.entries.iter()).map(|it| (it.address, &*it.patch)).collect();
        let found = MemorySnapshot::of(&self.process)?.found(generation)?;
        Ok(generation.entries.iter().zip(found).any(|(entry, found)| match found {
            Found::Patch => true,
            Found::Original | Found::Unloaded => false,
            Found::Other(bytes) => !of_others.contains(&(entry.address, &bytes)),
        }))
    }

    /// Removes entries from the journal whose library was unloaded.
    pub(super) fn forget_unloaded(&mut self) -> Result<(), LiveError> {
        let mut unloaded = HashSet::new();
        let memory = MemorySnapshot::of(&self.process)?;
        for generation in self.generations() {
            let found = memory.found(generation)?;
            let entries = generation.entries.iter().zip(found);
            let entries = entries.filter(|(_, found)| *found == Found::Unloaded);
            unloaded.extend(entries.map(|(entry, _)| (generation.number, entry.address)));
        }
        if unloaded.is_empty() {
            return Ok(());
        }
        self.journal.change(|record| {
            for generation in &mut record.generations {
                let number = generation.number;
                let is_loaded = |entry: &&BytePatch| !unloaded.contains(&(number, entry.address));
                let loaded: Vec<_> = generation.entries.iter().filter(is_loaded).cloned().collect();
                generation.entries = loaded.into();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_an_unloaded_library_are_unloaded() {
        let entry = BytePatch { address: 0x1000, original: vec![1], patch: vec![2] };
        let found = |now: u8, unloaded: bool| Found::new(&entry, &[now], || unloaded);
        assert_eq!(found(1, false), Found::Original);
        assert_eq!(found(2, false), Found::Patch);
        assert_eq!(found(3, false), Found::Other(vec![3]));
        // Another file may have a function with the same first bytes.
        assert_eq!(found(1, true), Found::Unloaded);
        assert_eq!(found(3, true), Found::Unloaded);
        // A jump to the new code is always kept.
        assert_eq!(found(2, true), Found::Patch);
    }
}
