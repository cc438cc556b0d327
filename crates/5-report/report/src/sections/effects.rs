//! Main effects of the settings of matrices, and certain interactions.

use dbdyno_text::{Cell, Column, Row, Table, Text, csv};
use dbdyno_units::Ratio;

use super::{Output, Section, estimate_cell};
use crate::export::ratio as exported;
use crate::figures::{plus_minus, ratio};
use crate::metric::{Metric, with_clients};
use crate::model::{Change, Effect, Report, Verdict};

const KEY: &str = "Throughput with one value of a setting divided by throughput with its first value: the \
     geometric mean over all combinations of the other settings, computed in each block.";

const NO_INTERACTION: &str = "No interaction is certain: within the intervals, the effect of each setting does not depend on \
     the others.";

pub(crate) fn effects(report: &Report, output: Output) -> Section {
    let mut section = Section::new("effects", "Effects of settings");
    if output == Output::Terminal {
        section.title.clear();
    }
    for effects in report.effects.chunk_by(|a, b| a.matrix == b.matrix) {
        let of = EffectTable::new(effects, report.is_sweep());
        match output {
            Output::Terminal => {
                section.title("effects", format!("of the settings of {} on QPS", of.matrix));
            }
            Output::Page | Output::Markdown => section
                .title(format!("Settings of {}", of.matrix), "ratios of QPS, above 1 is better"),
        }
        section.push(of.table());
        for sentence in of.interactions {
            section.push(Text::new(sentence));
        }
    }
    if !report.effects.is_empty() {
        section.note(KEY);
    }
    section
}

/// The effects of the settings of one matrix: a row per microbenchmark.
struct EffectTable<'r> {
    matrix: &'r str,
    changes: Vec<&'r Change>,
    rows: Vec<(String, Vec<&'r Effect>)>,
    /// Sentences about interactions.
    interactions: Vec<String>,
}

impl<'r> EffectTable<'r> {
    fn new(effects: &'r [Effect], sweep: bool) -> Self {
        let row = |one: &Effect| (one.microbenchmark.clone(), one.clients);
        let title = |one: &Effect| with_clients(&one.microbenchmark, one.clients, sweep);
        let mains = |of_row: &'r [Effect]| of_row.iter().filter(|one| one.with.is_none()).collect();
        let rows: Vec<(String, Vec<&Effect>)> = effects
            .chunk_by(|a, b| row(a) == row(b))
            .map(|of_row| (title(&of_row[0]), mains(of_row)))
            .collect();
        let changes = rows.first().map(|(_, all)| all.iter().map(|one| &one.change).collect());
        let all: Vec<&Effect> = effects.iter().filter(|one| one.with.is_some()).collect();
        let certain = all.iter().filter(|one| one.is_certain_interaction());
        let mut interactions: Vec<String> =
            certain.filter_map(|one| sentence(one, &title(one))).collect();
        let unknown = all.iter().filter(|one| !one.verdict.has_interval()).count();
        if interactions.is_empty() && unknown < all.len() {
            interactions.push(NO_INTERACTION.to_owned());
        }
        if unknown > 0 {
            interactions.push(format!(
                "{unknown} of {} interactions are unknown: a combination failed, is client-bound or \
                 has too few blocks.",
                all.len()
            ));
        }
        let matrix = effects.first().map_or("", |one| &one.matrix);
        Self { matrix, changes: changes.unwrap_or_default(), rows, interactions }
    }

    fn table(&self) -> Table {
        let settings = self.changes.iter().map(|change| Column::number(change.title()));
        let columns = [Column::name("microbenchmark")].into_iter().chain(settings);
        let caption = format!("Effects of the settings of {}", self.matrix);
        let mut table = Table::new(columns).class("groups").caption(caption);
        for (name, effects) in &self.rows {
            let cells =
                effects.iter().map(|one| estimate_cell(one.relative_qps, Metric::Qps, one.verdict));
            table.push(Row::new([Cell::text(name)].into_iter().chain(cells)));
        }
        let means = self.means();
        if means.iter().any(Option::is_some) {
            let means =
                means.into_iter().map(|mean| Cell::text(mean.map_or_else(String::new, ratio)));
            table.push(Row::new([Cell::text("geometric mean")].into_iter().chain(means)));
        }
        table
    }

    /// The geometric mean over the microbenchmarks by setting; `None` of fewer than two.
    fn means(&self) -> Vec<Option<Ratio>> {
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

/// One line per effect and interaction.
pub(crate) fn effects_csv(report: &Report) -> String {
    let with = |one: &Effect, of: fn(&Change) -> &String| one.with.as_ref().map(of).cloned();
    csv(
        &[
            ("matrix", &|one: &&Effect| one.matrix.clone()),
            ("microbenchmark", &|one| one.microbenchmark.clone()),
            ("group", &|one| one.group.clone()),
            ("clients", &|one| one.clients.to_string()),
            ("setting", &|one| one.change.setting.clone()),
            ("value", &|one| one.change.value.clone()),
            ("reference", &|one| one.change.reference.clone()),
            ("with_setting", &|one| with(one, |with| &with.setting).unwrap_or_default()),
            ("with_value", &|one| with(one, |with| &with.value).unwrap_or_default()),
            ("with_reference", &|one| with(one, |with| &with.reference).unwrap_or_default()),
            ("relative_qps", &|one| exported(one.relative_qps.map(|qps| qps.median))),
            ("ci_low", &|one| exported(one.relative_qps.map(|qps| qps.low))),
            ("ci_high", &|one| exported(one.relative_qps.map(|qps| qps.high))),
            ("verdict", &|one| one.verdict.name().to_owned()),
            ("blocks", &|one| one.blocks.to_string()),
            ("relative_cpu", &|one| exported(one.relative_cpu.map(|cpu| cpu.median))),
            ("cpu_ci_low", &|one| exported(one.relative_cpu.map(|cpu| cpu.low))),
            ("cpu_ci_high", &|one| exported(one.relative_cpu.map(|cpu| cpu.high))),
        ],
        &report.effects,
    )
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
            EffectTable::new(&report.effects, false).interactions
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
        let means = EffectTable::new(&report.effects, false).means();
        assert!(means.iter().flatten().all(|mean| mean.get() < 1.2), "{means:?}");
        assert!(means.iter().all(Option::is_some), "{means:?}");
    }
}
