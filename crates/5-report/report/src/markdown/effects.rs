//! Main effects of the settings of matrices, and certain interactions.

use super::escape::{code, plain};
use super::table::{Align, table};
use super::{estimate, sign};
use crate::effects::{EffectTable, KEY, tables};
use crate::figures::ratio;
use crate::model::{Effect, Report};

/// A section per matrix; nothing without a matrix.
pub(super) fn sections(report: &Report) -> String {
    tables(report).iter().map(section).collect()
}

fn section(of: &EffectTable<'_>) -> String {
    let titles: Vec<String> = of.changes.iter().map(|change| code(&change.title())).collect();
    let mut heading = vec![("microbenchmark", Align::Left)];
    heading.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let mut rows: Vec<Vec<String>> = of
        .rows
        .iter()
        .map(|(name, effects)| [code(name)].into_iter().chain(effects.iter().map(cell)).collect())
        .collect();
    let means = of.means();
    if means.iter().any(Option::is_some) {
        let means = means.into_iter().map(|mean| mean.map_or_else(String::new, ratio));
        rows.push(["geometric mean".to_owned()].into_iter().chain(means).collect());
    }
    let interactions: String =
        of.interactions.iter().map(|one| format!("\n{}\n", plain(one))).collect();
    format!(
        "\n### Effects of the settings of {} on QPS\n\n{}{interactions}\n{KEY}\n",
        code(of.matrix),
        table(&heading, rows)
    )
}

fn cell(effect: &&Effect) -> String {
    match effect.relative_qps {
        Some(one) => estimate(one, effect.verdict),
        None => sign(effect.verdict),
    }
}
