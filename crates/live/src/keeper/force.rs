//! What of a generation is in force, by the bytes that are in the memory.

use std::collections::HashSet;

use super::{InForce, Keeper};
use crate::LiveError;
use crate::journal::Generation;

impl Keeper {
    /// What of a generation is in force.
    pub(super) fn in_force(&self, generation: &Generation) -> Result<InForce, LiveError> {
        let mut patched = 0;
        for entry in &generation.entries {
            let now = self.process.memory().read(entry.address, entry.patch.len())?;
            patched += usize::from(now == entry.patch);
        }
        Ok(match patched {
            0 => InForce::No,
            n if n == generation.entries.len() => InForce::Yes,
            _ => InForce::Partly,
        })
    }

    /// The same of each generation.
    pub(super) fn each_in_force(&self) -> Result<Vec<InForce>, LiveError> {
        self.generations().iter().map(|generation| self.in_force(generation)).collect()
    }

    /// Whether something may lead into a generation: its own entries, or what somebody else has
    /// written over them, and may take back.
    pub(super) fn may_be_entered(&self, generation: &Generation) -> Result<bool, LiveError> {
        let others = self.generations().iter().filter(|it| it.number != generation.number);
        let of_others: HashSet<(u64, &[u8])> =
            others.flat_map(|it| &it.entries).map(|it| (it.address, &*it.patch)).collect();
        for entry in &generation.entries {
            let now = self.process.memory().read(entry.address, entry.patch.len())?;
            if now != entry.original && !of_others.contains(&(entry.address, &now)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
