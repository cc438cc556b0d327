use dbdyno_types::MatrixLevel;
use serde::Serialize;

use super::{Estimate, Verdict};

/// The effect of a setting of a matrix on one microbenchmark: throughput with one value, divided by
/// throughput with the first value, as the geometric mean over all combinations of the other settings.
///
/// With [`Self::with`] it is an interaction: the effect with another value of the second setting,
/// divided by the effect with the second setting's first value.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    pub matrix: String,
    pub microbenchmark: String,
    /// Number of clients.
    pub clients: u32,
    /// The microbenchmark's group.
    pub group: String,
    /// The setting with its values.
    #[serde(flatten)]
    pub change: Change,
    /// The second setting of an interaction, with its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Change>,
    /// The ratio; `None` with too few blocks, or if a candidate of the matrix failed.
    pub relative_qps: Option<Estimate>,
    /// The same for CPU time per query: below 1 is better.
    pub relative_cpu: Option<Estimate>,
    /// Verdict on the ratio of throughputs.
    pub verdict: Verdict,
    /// Number of blocks in which all candidates of the matrix were measured.
    pub blocks: u64,
}

/// A setting with two values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub setting: String,
    pub value: String,
    /// The first value in the matrix, which it is compared with.
    pub reference: String,
}

impl Change {
    /// From one level to another of the same setting.
    pub(crate) fn new(reference: &MatrixLevel, level: &MatrixLevel) -> Self {
        Self {
            setting: level.setting.clone(),
            value: level.value.clone(),
            reference: reference.value.clone(),
        }
    }

    /// As a ratio: `innodb_doublewrite OFF/ON`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}/{}", self.setting, self.value, self.reference)
    }
}

impl Effect {
    /// Whether it is an interaction that is certain.
    #[must_use]
    pub fn is_certain_interaction(&self) -> bool {
        self.with.is_some() && matches!(self.verdict, Verdict::Better | Verdict::Worse)
    }
}
