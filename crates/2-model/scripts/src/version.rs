//! The versions of sysbench whose scripts can be run.

use serde::{Deserialize, Serialize};

/// The version of sysbench that a script is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// 1.0, which also knows the names of 0.5.
    #[default]
    #[serde(rename = "1.0")]
    V1_0,
    /// 1.1, which has the Zipfian distribution.
    #[serde(rename = "1.1")]
    V1_1,
}

impl Version {
    /// All versions with their names.
    pub const ALL: [(&'static str, Self); 2] = [("1.0", Self::V1_0), ("1.1", Self::V1_1)];

    /// Whether it is the default, for smaller files.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The name of the release that scripts see.
    pub(crate) const fn release(self) -> &'static str {
        match self {
            Self::V1_0 => "1.0.20",
            Self::V1_1 => "1.1.0",
        }
    }
}
