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
    /// `now` is `None` if nothing is mapped.
    fn new(entry: &BytePatch, now: Option<Vec<u8>>, is_unloaded: bool) -> Self {
        match now {
            None => Self::Unloaded,
            // Also in a copy of the code that was mapped in its place.
            Some(now) if now == entry.patch => Self::Patch,
            Some(_) if is_unloaded => Self::Unloaded,
            Some(now) if now == entry.original => Self::Original,
            Some(now) => Self::Other(now),
        }
    }
}

/// The current bytes at the addresses of all entries of a generation.
fn found(process: &Process, generation: &Generation) -> Result<Vec<Found>, LiveError> {
    let maps = process.maps()?;
    let memory = PagedReader::new(process.memory());
    let found = |entry: &BytePatch| {
        let now = match memory.read(entry.address, entry.patch.len()) {
            Ok(now) => Some(now),
            Err(error) if is_unmapped(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Found::new(entry, now, is_unloaded(generation, entry, &maps)))
    };
    generation.entries.iter().map(found).collect()
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
    let found = found(process, generation)?;
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

impl Attachment {
    /// How much of a generation is active.
    pub(super) fn activation_of(&self, generation: &Generation) -> Result<Activation, LiveError> {
        redirected(&self.process, generation).map(|(_, activation)| activation)
    }

    /// Number of entries of a generation that lead to its code.
    pub(super) fn patched_entries(&self, generation: &Generation) -> Result<usize, LiveError> {
        let found = found(&self.process, generation)?;
        Ok(found.iter().filter(|it| **it == Found::Patch).count())
    }

    /// How much of each generation is active.
    pub(super) fn activations(&self) -> Result<Vec<Activation>, LiveError> {
        self.generations().iter().map(|generation| self.activation_of(generation)).collect()
    }

    /// Whether a thread may enter a generation: through its entries, or through bytes that another
    /// program has written over them and may restore.
    pub(super) fn may_be_entered(&self, generation: &Generation) -> Result<bool, LiveError> {
        let others = self.generations().iter().filter(|it| it.number != generation.number);
        let of_others: HashSet<(u64, &[u8])> =
            others.flat_map(|it| &it.entries).map(|it| (it.address, &*it.patch)).collect();
        let found = found(&self.process, generation)?;
        Ok(generation.entries.iter().zip(found).any(|(entry, found)| match found {
            Found::Patch => true,
            Found::Original | Found::Unloaded => false,
            Found::Other(bytes) => !of_others.contains(&(entry.address, &bytes)),
        }))
    }

    /// Removes entries from the journal whose library was unloaded.
    pub(super) fn forget_unloaded(&mut self) -> Result<(), LiveError> {
        let mut unloaded = HashSet::new();
        for generation in self.generations() {
            let found = found(&self.process, generation)?;
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
                generation.entries.retain(|entry| !unloaded.contains(&(number, entry.address)));
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
        let found =
            |now: Option<u8>, unloaded| Found::new(&entry, now.map(|byte| vec![byte]), unloaded);
        assert_eq!(found(None, true), Found::Unloaded);
        assert_eq!(found(Some(1), false), Found::Original);
        assert_eq!(found(Some(2), false), Found::Patch);
        assert_eq!(found(Some(3), false), Found::Other(vec![3]));
        // Another file may have a function with the same first bytes.
        assert_eq!(found(Some(1), true), Found::Unloaded);
        assert_eq!(found(Some(3), true), Found::Unloaded);
        // A jump to the new code is always kept.
        assert_eq!(found(Some(2), true), Found::Patch);
    }
}
