//! Agreement of the runs on one ratio: by the difference between them, not by their verdicts alone.

use std::collections::BTreeSet;

use dbdyno_stats::{Difference, RunValue, largest_difference};
use serde::Serialize;

use super::{Column, RatioCell};
use crate::model::Verdict;

/// Agreement of several runs. Only cells with the verdict faster, slower or within noise count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// All verdicts are equal, and no difference between the runs is certain.
    Agree(Verdict),
    /// The runs agree at each number of clients, on different verdicts.
    AgreeByClients,
    /// All are faster, or all slower, but by sizes that certainly differ.
    SizeDiffers(Verdict),
    /// One run shows a difference from the baseline, another one none, and the runs certainly
    /// differ.
    Differ,
    /// One run is faster, another one slower, and the runs certainly differ.
    Contradict,
    /// The verdicts differ, but no difference between the runs is certain; or no run shows a difference
    /// from its baseline, although their ratios differ.
    NotCertain,
    /// Fewer than two verdicts.
    Unknown,
}

impl Agreement {
    /// The agreement of the columns, and the largest difference between two of them. If a run has several
    /// columns, only those with the same number of clients are compared; of several numbers, the one
    /// with the worst agreement counts.
    pub(super) fn of_columns(
        cells: &[Option<RatioCell>],
        columns: &[Column],
    ) -> (Self, Option<Difference>) {
        let is_sweep = columns.windows(2).any(|pair| pair[0].run == pair[1].run);
        if !is_sweep {
            return Self::of(cells);
        }
        let numbers: BTreeSet<u32> = columns.iter().map(|column| column.clients).collect();
        let at = |clients: u32| {
            let cells = cells.iter().zip(columns);
            let cells: Vec<Option<RatioCell>> =
                cells.map(|(cell, column)| cell.filter(|_| column.clients == clients)).collect();
            Self::of(&cells)
        };
        let worse = |one: (Self, Option<Difference>), other: (Self, Option<Difference>)| match (
            one.0, other.0,
        ) {
            (Self::Agree(one), Self::Agree(other)) if one != other => (Self::AgreeByClients, None),
            (first, second) if second.rank() > first.rank() => other,
            _ => one,
        };
        numbers.into_iter().map(at).reduce(worse).unwrap_or((Self::Unknown, None))
    }

    /// How much the runs disagree; unknown is least.
    const fn rank(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Agree(_) => 1,
            Self::AgreeByClients => 2,
            Self::NotCertain => 3,
            Self::SizeDiffers(_) => 4,
            Self::Differ => 5,
            Self::Contradict => 6,
        }
    }

    /// The agreement of the columns, whatever their numbers of clients.
    pub(super) fn of(cells: &[Option<RatioCell>]) -> (Self, Option<Difference>) {
        use Verdict::{Better, WithinNoise, Worse};
        let usable = |cell: &&RatioCell| matches!(cell.verdict, Better | Worse | WithinNoise);
        let value = |cell: &Option<RatioCell>| {
            let cell = cell.as_ref().filter(usable)?;
            Some(RunValue::of(&cell.estimate?, cell.floor))
        };
        let verdicts: Vec<Verdict> =
            cells.iter().flatten().filter(usable).map(|cell| cell.verdict).collect();
        let [first, _, ..] = verdicts[..] else { return (Self::Unknown, None) };
        let values: Vec<Option<RunValue>> = cells.iter().map(value).collect();
        let largest = largest_difference(&values);
        let certain = largest.is_some_and(|difference| difference.quotient.is_certain());
        let same = verdicts.iter().all(|verdict| *verdict == first);
        let opposite = verdicts.contains(&Better) && verdicts.contains(&Worse);
        let agreement = match (certain, same) {
            (false, true) => Self::Agree(first),
            (false, false) => Self::NotCertain,
            // No run shows a difference, but their ratios are apart.
            (true, true) if first == WithinNoise => Self::NotCertain,
            (true, true) => Self::SizeDiffers(first),
            (true, _) if opposite => Self::Contradict,
            (true, _) => Self::Differ,
        };
        (agreement, largest)
    }

    /// The text in tables and exports.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Agree(Verdict::Better) => "agree: faster",
            Self::Agree(Verdict::Worse) => "agree: slower",
            Self::Agree(_) => "agree: within noise",
            Self::AgreeByClients => "agree: by number of clients",
            Self::SizeDiffers(_) => "same direction, different size",
            Self::Differ => "differ",
            Self::Contradict => "contradict",
            Self::NotCertain => "not certain",
            Self::Unknown => "unknown",
        }
    }

    /// The sign at the end of a line.
    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Agree(_) | Self::AgreeByClients => "=",
            Self::SizeDiffers(_) => "s",
            Self::Differ => "d",
            Self::Contradict => "x",
            Self::NotCertain => "~",
            Self::Unknown => "",
        }
    }

    /// Whether the runs certainly differ.
    pub(super) const fn is_difference(self) -> bool {
        matches!(self, Self::SizeDiffers(_) | Self::Differ | Self::Contradict)
    }
}
