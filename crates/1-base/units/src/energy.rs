use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// Energy in microjoules.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Energy(u64);

impl Energy {
    /// From microjoules.
    #[must_use]
    pub const fn from_microjoules(microjoules: u64) -> Self {
        Self(microjoules)
    }

    /// In whole microjoules.
    #[must_use]
    pub const fn as_microjoules(self) -> u64 {
        self.0
    }
}

impl Add for Energy {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
