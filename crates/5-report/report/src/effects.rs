//! Effects of settings as tables: shared by the terminal report and the HTML page.

use dbdyno_units::Ratio;

use crate::figures::{plus_minus, ratio};
use crate::metric::with_clients;
use crate::model::{Change, Effect, Report, Verdict};

/// What the tables show.
pub(crate) const KEY: &str = "Throughput with one value of a setting divided by throughput with its first \
     value: the geometric mean over all combinations of the other settings, computed in each block.";

/// The sentence if no interaction is certain.
const NO_INTERACTION: &str = "No interaction is certain: within the intervals, the effect of each setting does not depend on \
     the others.";

/// The main effects of one matrix: a column per changed value, a row per microbenchmark.
pub(crate) struct EffectTable<'r> {
    pub matrix: &'r str,
    pub changes: Vec<&'r Change>,
    /// Each microbenchmark with the number of clients in a sweep, and its effects.
    pub rows: Vec<(String, Vec<&'r Effect>)>,
    /// Sentences about interactions; none if the matrix has a single setting.
    pub interactions: Vec<String>,
}

/// The tables of a report, in the order of the experiment.
pub(crate) fn tables(report: &Report) -> Vec<EffectTable<'_>> {
    let of_matrix = report.effects.chunk_by(|a, b| a.matrix == b.matrix);
    of_matrix.map(|effects| table(effects, report.is_sweep())).collect()
}

fn table(effects: &[Effect], sweep: bool) -> EffectTable<'_> {
    let row = |one: &Effect| (one.microbenchmark.clone(), one.clients);
    let title = |one: &Effect| with_clients(&one.microbenchmark, one.clients, sweep);
    let rows: Vec<(String, Vec<&Effect>)> = effects
        .chunk_by(|a, b| row(a) == row(b))
        .map(|of_row| (title(&of_row[0]), of_row.iter().filter(|one| one.with.is_none()).collect()))
        .collect();
    let changes = rows.first().map(|(_, effects)| effects.iter().map(|one| &one.change).collect());
    let all: Vec<&Effect> = effects.iter().filter(|one| one.with.is_some()).collect();
    let certain = all.iter().filter(|one| one.is_certain_interaction());
    let mut interactions: Vec<String> =
        certain.filter_map(|one| sentence(one, &title(one))).collect();
    let unknown = all.iter().filter(|one| !one.verdict.has_interval()).count();
    if interactions.is_empty() && unknown < all.len() {
        interactions.push(NO_INTERACTION.to_owned());
    }
    if unknown > 0 {
        let of = all.len();
        interactions.push(format!(
            "{unknown} of {of} interactions are unknown: a combination failed, is client-bound or has \
             too few blocks."
        ));
    }
    EffectTable {
        matrix: effects.first().map_or("", |one| &one.matrix),
        changes: changes.unwrap_or_default(),
        rows,
        interactions,
    }
}

/// An interaction in words.
fn sentence(effect: &Effect, microbenchmark: &str) -> Option<String> {
    let (with, estimate) = (effect.with.as_ref()?, effect.relative_qps?);
    Some(format!(
        "{microbenchmark}: the ratio {} with {} = {} is {} {} times the ratio with {} = {}.",
        effect.change.title(),
        with.setting,
        with.value,
        ratio(estimate.median),
        plus_minus(estimate),
        with.setting,
        with.reference
    ))
}

impl EffectTable<'_> {
    /// The geometric mean of each column without client-bound values; `None` for fewer than two.
    pub(crate) fn means(&self) -> Vec<Option<Ratio>> {
        let mean = |column: usize| {
            let values: Vec<f64> = self
                .rows
                .iter()
                .filter_map(|(_, effects)| effects.get(column))
                .filter(|effect| effect.verdict != Verdict::ClientBound)
                .filter_map(|effect| Some(effect.relative_qps?.median.get().ln()))
                .collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (values.len() > 1).then(|| Ratio::new(mean.exp()))
        };
        (0..self.changes.len()).map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn unknown_interactions_are_not_called_uncertain() {
        let names = ["scan_range=100", "insert_range=100"];
        let sentences = |fail: &[&str]| {
            let mut report = sample::matrix(&names, true);
            for effect in &mut report.effects {
                if fail.contains(&effect.microbenchmark.as_str()) {
                    (effect.verdict, effect.relative_qps) = (Verdict::Failed, None);
                }
            }
            tables(&report).remove(0).interactions
        };
        assert_eq!(sentences(&[]), [NO_INTERACTION]);
        let some = sentences(&names[1..]);
        assert_eq!(some[0], NO_INTERACTION);
        assert!(some[1].starts_with("1 of 2 interactions are unknown"), "{some:?}");
        let [all] = &sentences(&names)[..] else { panic!("one sentence") };
        assert!(all.starts_with("2 of 2 interactions are unknown"), "{all}");
    }

    #[test]
    fn client_bound_values_are_not_in_the_mean() {
        let names = ["scan_range=100", "insert_range=100", "point-query_range=100"];
        let mut report = sample::matrix(&names, true);
        for effect in report.effects.iter_mut().filter(|one| one.microbenchmark == names[2]) {
            effect.verdict = Verdict::ClientBound;
            effect.relative_qps =
                Some(sample::interval(Ratio::new(9.0), Ratio::new(8.0), Ratio::new(10.0)));
        }
        let means = tables(&report)[0].means();
        assert!(means.iter().flatten().all(|mean| mean.get() < 1.2), "{means:?}");
        assert!(means.iter().all(Option::is_some), "{means:?}");
    }
}
