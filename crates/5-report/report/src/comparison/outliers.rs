//! Runs whose absolute figures are far from those of others on equal machines: a node of a cluster that is
//! slower than its equals.
//!
//! The deviation of a run is the median of ln(QPS ÷ median QPS of all) over its candidates and
//! microbenchmarks. It is compared with the spread of these deviations, the median absolute deviation,
//! which an outlier does not change (Iglewicz and Hoaglin, 1993, with their limit of 3.5).

use dbdyno_stats::median;
use dbdyno_units::Ratio;

use super::absolute::Sources;
use super::{AbsoluteRow, Column, RunInfo};
use crate::figures::ratio;

/// The fewest runs of which one can be an outlier.
const FEWEST: usize = 3;

/// The limit of Iglewicz and Hoaglin.
const LIMIT: f64 = 3.5;

/// The median absolute deviation times this is the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The smallest spread: equal machines differ by about as much, and of few runs the spread may be 0 by
/// chance.
const SMALLEST_SPREAD: f64 = 0.01;

/// A run that is far from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outlier {
    /// Index among the columns that are compared.
    column: usize,
    /// Its QPS relative to the median of all.
    ratio: f64,
    /// Its distance from the median in standard deviations.
    deviations: f64,
}

/// Sentences about the outliers among columns of the same machine, data and number of clients, by the
/// candidates that are equal in all of them.
pub(super) fn notes(runs: &[RunInfo], sources: &Sources<'_>, rows: &[AbsoluteRow]) -> Vec<String> {
    let columns = sources.columns;
    let mut notes = Vec::new();
    let kind = |column: &Column| (column.machine.clone(), column.data.clone(), column.clients);
    let mut seen = Vec::new();
    for column in columns {
        if seen.contains(&kind(column)) {
            continue;
        }
        seen.push(kind(column));
        let equal: Vec<usize> =
            (0..columns.len()).filter(|index| kind(&columns[*index]) == kind(column)).collect();
        let qps = |row: &AbsoluteRow| -> Vec<Option<f64>> {
            equal.iter().map(|index| Some(row.cells[*index].as_ref()?.qps?.value)).collect()
        };
        let is_equal = |row: &&AbsoluteRow| {
            let mut candidates = sources.candidates.iter();
            candidates.find(|candidate| candidate.name == row.candidate).is_some_and(|candidate| {
                equal.iter().all(|column| sources.is_equal(candidate, equal[0], *column))
            })
        };
        let figures: Vec<Vec<Option<f64>>> = rows.iter().filter(is_equal).map(qps).collect();
        for Outlier { column, ratio: of_median, deviations } in outliers(&figures, equal.len()) {
            let column = &columns[equal[column]];
            let word = if of_median < 1.0 { "slower" } else { "faster" };
            notes.push(format!(
                "{} ({}) is an outlier, {word} than its equals: its QPS is {} times the median of {} \
                 runs on equal machines, {deviations:.0} standard deviations away",
                column.label,
                runs[column.run].directory,
                ratio(Ratio::new(of_median)),
                equal.len(),
            ));
        }
    }
    notes
}

/// The outliers among `columns`, from rows with a value for each of them.
fn outliers(rows: &[Vec<Option<f64>>], columns: usize) -> Vec<Outlier> {
    if columns < FEWEST {
        return Vec::new();
    }
    let mut logarithms: Vec<Vec<f64>> = vec![Vec::new(); columns];
    for row in rows {
        let known: Vec<f64> = row.iter().flatten().copied().filter(|value| *value > 0.0).collect();
        // A row that some runs lack would compare each with others.
        if known.len() < columns {
            continue;
        }
        let Some(middle) = median(&known) else { continue };
        for (of_column, value) in logarithms.iter_mut().zip(&known) {
            of_column.push((value / middle).ln());
        }
    }
    let deviations: Option<Vec<f64>> = logarithms.iter().map(|of| median(of)).collect();
    let Some(deviations) = deviations else { return Vec::new() };
    let Some(middle) = median(&deviations) else { return Vec::new() };
    let distances: Vec<f64> = deviations.iter().map(|one| (one - middle).abs()).collect();
    let spread = median(&distances).unwrap_or_default() * MAD_TO_SIGMA;
    let spread = spread.max(SMALLEST_SPREAD);
    let outlier = |(column, deviation): (usize, &f64)| {
        let deviations = (deviation - middle).abs() / spread;
        (deviations > LIMIT).then(|| Outlier { column, ratio: deviation.exp(), deviations })
    };
    deviations.iter().enumerate().filter_map(outlier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(factors: &[f64]) -> Vec<Vec<Option<f64>>> {
        let qps = [1000.0, 50.0, 20_000.0];
        // Some noise of each figure.
        let noise = |row: usize, column: usize| 1.0 + 0.002 * ((row * 7 + column * 3) % 5) as f64;
        (0..3)
            .map(|row| {
                let value =
                    |(column, factor): (usize, &f64)| Some(qps[row] * factor * noise(row, column));
                factors.iter().enumerate().map(value).collect()
            })
            .collect()
    }

    #[test]
    fn slow_node_among_equal_ones_is_an_outlier() {
        let found = outliers(&rows(&[1.0, 1.0, 0.8, 1.01, 0.99]), 5);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].column, 2);
        assert!((found[0].ratio - 0.8).abs() < 0.02, "{found:?}");
        let found = outliers(&rows(&[0.7, 1.0, 1.0]), 3);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn nodes_that_all_differ_or_are_few_have_no_outlier() {
        for factors in [&[1.0, 1.02, 0.98][..], &[0.8, 0.9, 1.0, 1.1, 1.2], &[0.5, 1.0]] {
            assert_eq!(outliers(&rows(factors), factors.len()), [], "{factors:?}");
        }
    }

    #[test]
    fn figures_that_one_run_lacks_are_not_used() {
        let mut all = rows(&[1.0, 1.0, 0.5]);
        for row in &mut all {
            row[0] = None;
        }
        assert_eq!(outliers(&all, 3), []);
    }
}
