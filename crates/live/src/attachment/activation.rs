//! What of a generation is in force, by the bytes that are in the memory.

use std::collections::HashSet;

use super::{Activation, Attachment};
use crate::LiveError;
use crate::journal::Generation;
use crate::maps::Maps;
use crate::patch::JumpPatch;
use crate::process::Process;

/// What is where an entry of ours was written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// What leads into our code.
    Patch,
    /// What the program has there.
    Original,
    /// Something else: of another generation, or of somebody else.
    Other(Vec<u8>),
    /// Not the file that it was written in: a library was unloaded.
    Gone,
}

impl Found {
    /// `now` is `None` where nothing is mapped.
    fn new(entry: &JumpPatch, now: Option<Vec<u8>>, has_moved_out: bool) -> Self {
        match now {
            None => Self::Gone,
            // Code that was copied into other memory and mapped in its place has it still.
            Some(now) if now == entry.patch => Self::Patch,
            Some(_) if has_moved_out => Self::Gone,
            Some(now) if now == entry.original => Self::Original,
            Some(now) => Self::Other(now),
        }
    }
}

/// What is where the entries of a generation were written.
fn found(process: &Process, generation: &Generation) -> Result<Vec<Found>, LiveError> {
    let maps = process.maps()?;
    let found = |entry: &JumpPatch| {
        let now = match process.memory().read(entry.address, entry.patch.len()) {
            Ok(now) => Some(now),
            Err(error) if is_unmapped(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Found::new(entry, now, has_moved_out(generation, entry, &maps)))
    };
    generation.entries.iter().map(found).collect()
}

fn has_moved_out(generation: &Generation, entry: &JumpPatch, maps: &Maps) -> bool {
    generation.homes.iter().any(|home| home.has_moved_out(entry.address, maps))
}

fn is_unmapped(error: &LiveError) -> bool {
    matches!(error, LiveError::System { source, .. } if source.raw_os_error() == Some(libc::EIO))
}

/// How many of a generation's entries lead into it, and what of it is in force then.
///
/// # Errors
/// The process is gone.
pub fn redirected(
    process: &Process,
    generation: &Generation,
) -> Result<(usize, Activation), LiveError> {
    let found = found(process, generation)?;
    let there = found.iter().filter(|it| **it != Found::Gone).count();
    let redirected = found.iter().filter(|it| **it == Found::Patch).count();
    let in_force = match redirected {
        0 => Activation::Inactive,
        n if n == there => Activation::Full,
        _ => Activation::Partial,
    };
    Ok((redirected, in_force))
}

impl Attachment {
    /// What of a generation is in force.
    pub(super) fn in_force(&self, generation: &Generation) -> Result<Activation, LiveError> {
        redirected(&self.process, generation).map(|(_, in_force)| in_force)
    }

    /// The same of each generation.
    pub(super) fn each_in_force(&self) -> Result<Vec<Activation>, LiveError> {
        self.generations().iter().map(|generation| self.in_force(generation)).collect()
    }

    /// Whether something may lead into a generation: its own entries, or what somebody else has
    /// written over them, and may take back.
    pub(super) fn may_be_entered(&self, generation: &Generation) -> Result<bool, LiveError> {
        let others = self.generations().iter().filter(|it| it.number != generation.number);
        let of_others: HashSet<(u64, &[u8])> =
            others.flat_map(|it| &it.entries).map(|it| (it.address, &*it.patch)).collect();
        let found = found(&self.process, generation)?;
        Ok(generation.entries.iter().zip(found).any(|(entry, found)| match found {
            Found::Patch => true,
            Found::Original | Found::Gone => false,
            Found::Other(bytes) => !of_others.contains(&(entry.address, &bytes)),
        }))
    }

    /// Takes entries off the record whose library was unloaded.
    pub(super) fn forget_gone(&mut self) -> Result<(), LiveError> {
        let mut gone = HashSet::new();
        for generation in self.generations() {
            let found = found(&self.process, generation)?;
            let entries = generation.entries.iter().zip(found);
            let entries = entries.filter(|(_, found)| *found == Found::Gone);
            gone.extend(entries.map(|(entry, _)| (generation.number, entry.address)));
        }
        if gone.is_empty() {
            return Ok(());
        }
        self.journal.change(|record| {
            for generation in &mut record.generations {
                let number = generation.number;
                generation.entries.retain(|entry| !gone.contains(&(number, entry.address)));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_library_that_was_unloaded_are_gone() {
        let entry = JumpPatch { address: 0x1000, original: vec![1], patch: vec![2] };
        let found = |now: Option<u8>, moved| Found::new(&entry, now.map(|byte| vec![byte]), moved);
        assert_eq!(found(None, true), Found::Gone);
        assert_eq!(found(Some(1), false), Found::Original);
        assert_eq!(found(Some(2), false), Found::Patch);
        assert_eq!(found(Some(3), false), Found::Other(vec![3]));
        // Another file may begin a function in the same way.
        assert_eq!(found(Some(1), true), Found::Gone);
        assert_eq!(found(Some(3), true), Found::Gone);
        // What leads into our code is never forgotten.
        assert_eq!(found(Some(2), true), Found::Patch);
    }
}
