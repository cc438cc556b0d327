//! Series of candidates: throughput relative to the first candidate, and the largest changes; main
//! effects of the settings of matrices, and certain interactions.

use dbdyno_text::{Cell, Column, Csv, Mark, Row, Table, Text, without_common_ends};
use dbdyno_units::Ratio;

use super::{Block, Chart, Output, Section, estimate_cell, titled};
use crate::charts::{Axis, LabelStyle, Line, LineChart, Plot, Point, Scale};
use crate::figures::{percent_change, plus_minus, ratio};
use crate::metric::with_clients;
use crate::model::{
    Change, Effect, Metric, Report, Series, SeriesChange, SeriesGroup, SeriesRow, Verdict, by_key,
};
use crate::words::joined;

pub(crate) fn series(report: &Report, output: Output) -> Section {
    let mut section = titled(output, "series", ["", "In order"]);
    if report.series.is_empty() {
        return section;
    }
    if output != Output::Terminal {
        section.note(KEY);
    }
    for series in &report.series {
        if output == Output::Page && report.series.len() > 1 {
            section.title(&series.name, "");
        }
        for count in report.clients() {
            let named = |one: &SeriesGroup| SeriesGroup {
                group: report.group_label(&one.group),
                ..one.clone()
            };
            let groups = series.groups.iter().filter(|group| group.clients == count);
            let groups: Vec<SeriesGroup> = groups.map(named).collect();
            let of = with_clients(&format!("{}, QPS", series.name), count, report.is_sweep());
            if output == Output::Page {
                let legend = groups.iter().enumerate();
                let legend = legend.map(|(at, group)| (Mark::Candidate(at), group.group.clone()));
                section.blocks.extend([
                    Block::Chart(Chart::Legend(legend.collect())),
                    Block::Chart(Chart::Wide(chart(report, series, &groups, count))),
                ]);
            } else {
                section.title("series", of);
                section.push(groups_table(series, &groups));
            }
        }
        if output == Output::Page {
            let mut named = series.clone();
            named.rows.iter_mut().for_each(|row| row.group = report.group_title(&row.group));
            let heat = Chart::Heat(Box::new(named), report.is_sweep());
            section.blocks.push(Block::Chart(heat));
        }
        changes(&mut section, report, series, output);
    }
    if output == Output::Terminal {
        section.note(KEY);
    }
    section
}

fn groups_table(series: &Series, groups: &[SeriesGroup]) -> Table {
    let titles = groups.iter().map(|group| Column::number(&group.group));
    let mut table = Table::new([Column::name("candidate")].into_iter().chain(titles));
    for (number, name) in series.short_names().into_iter().enumerate() {
        let cells = groups.iter().map(|group| {
            Cell::number(group.points[number].map(|point| percent_change(point.ratio)))
        });
        table.push(Row::new([Cell::text(name)].into_iter().chain(cells)));
    }
    table
}

fn changes(section: &mut Section, report: &Report, series: &Series, output: Output) {
    let listed: Vec<&SeriesChange> =
        series.changes.iter().filter(|change| change.is_listed()).collect();
    let (first, rest) = listed.split_at(listed.len().min(LISTED));
    let table = |changes: &[&SeriesChange]| changes_table(report, series, changes);
    let mut about = series.about_changes(report);
    if output == Output::Terminal {
        section.title("changes", "");
        if !first.is_empty() {
            section.push(table(first));
        }
        if !rest.is_empty() {
            about.push_str(" changes.csv has all.");
        }
        section.note(about);
        return;
    }
    section.title("Largest changes", "");
    section.note(about);
    if !first.is_empty() {
        section.push(table(first));
    }
    if !rest.is_empty() {
        let title = format!("{} more changes", rest.len());
        section.push(Block::Details(title, vec![table(rest).into()]));
    }
}

fn changes_table(report: &Report, series: &Series, changes: &[&SeriesChange]) -> Table {
    let names = series.short_names();
    let short = |name: &String| {
        let at = series.candidates.iter().position(|one| one == name);
        Cell::text(at.map_or(name, |at| &names[at]))
    };
    let columns = [
        Column::name("microbenchmark"),
        Column::text("from"),
        Column::text("to"),
        Column::number("QPS"),
        Column::text("95% interval"),
    ];
    let caption = "Changes between neighbours in the series";
    let mut table = Table::new(columns).class("changes").caption(caption);
    for change in changes {
        let name = with_clients(&change.microbenchmark, change.clients, report.is_sweep());
        let words = format!("{}: {} times {}", change.to, ratio(change.ratio), change.from);
        let (tone, word) = (change.verdict.tone(), change.verdict.word(Metric::Qps));
        let difference = Cell::text(percent_change(change.ratio)).verdict(tone, word).title(words);
        let interval = change.relative_qps.map_or_else(
            || "no interval".to_owned(),
            |one| format!("{} to {}", percent_change(one.low), percent_change(one.high)),
        );
        let (from, to) = (short(&change.from), short(&change.to));
        table.push(Row::new([Cell::text(name), from, to, difference, Cell::text(interval)]));
    }
    table
}

/// Wide and low: names of releases are below the axis.
const PLOT: Plot =
    Plot { width: 900.0, height: 286.0, left: 46.0, right: 888.0, top: 10.0, bottom: 200.0 };

fn chart(report: &Report, series: &Series, groups: &[SeriesGroup], count: u32) -> LineChart {
    let names = series.short_names();
    let share = |number: usize| number as f64 / (names.len() - 1).max(1) as f64;
    let ratios = groups.iter().flat_map(|group| group.points.iter().flatten());
    let scale = Scale::covering(ratios.map(|point| point.ratio.get()));
    let line = |(index, group): (usize, &SeriesGroup)| {
        let points = group.points.iter().enumerate().filter_map(|(number, point)| {
            let (point, change) = ((*point)?, percent_change((*point)?.ratio));
            Some(Point {
                at: share(number),
                value: point.ratio.get(),
                whisker: point.interval.map(|(low, high)| (low.get(), high.get())),
                title: format!("{}, {}: {change}", group.group, series.candidates[number]),
                bound: false,
            })
        });
        Line { mark: Mark::Candidate(index), title: String::new(), points: points.collect() }
    };
    let title = format!("Throughput relative to {}", series.candidates[0]);
    let title = with_clients(&title, count, report.is_sweep());
    let words = groups.iter().filter_map(|group| {
        let last = group.points.last()?.as_ref()?;
        Some(format!("{} {} at the end", group.group, percent_change(last.ratio)))
    });
    LineChart {
        description: format!("{title}: {}", joined(words, "; ").unwrap_or_default()),
        title,
        plot: PLOT,
        margins: (44.0, 12.0),
        axis: Axis::Linear(scale),
        labels: names.iter().enumerate().map(|(at, name)| (share(at), name.clone())).collect(),
        style: LabelStyle::Slanted,
        below: "",
        noise: report.noise.as_ref().map(|noise| noise.typical.as_fraction()),
        lines: groups.iter().enumerate().map(line).collect(),
        stalls: Vec::new(),
    }
}

/// One line per series, microbenchmark and pair of neighbours, the largest certain change first.
pub(crate) fn changes_csv(report: &Report) -> String {
    let lines =
        report.series.iter().flat_map(|series| series.changes.iter().map(move |one| (series, one)));
    Csv::of(lines)
        .column("series", |(series, _)| series.name.clone())
        .column("microbenchmark", |(_, one)| one.microbenchmark.clone())
        .column("group", |(_, one)| one.group.clone())
        .column("clients", |(_, one)| one.clients.to_string())
        .column("from", |(_, one)| one.from.clone())
        .column("to", |(_, one)| one.to.clone())
        .ratio("relative_qps", |(_, one)| Some(one.ratio))
        .ratio("ci_low", |(_, one)| Some(one.relative_qps?.low))
        .ratio("ci_high", |(_, one)| Some(one.relative_qps?.high))
        .column("verdict", |(_, one)| one.verdict.name().to_owned())
        .column("blocks", |(_, one)| one.blocks.to_string())
        .text()
}

pub(crate) const KEY: &str = "Throughput relative to the first candidate of the series, in percent: +10 is 10% more. A group is \
     the geometric mean of its microbenchmarks.";

pub(crate) const LISTED: usize = 10;

/// Candidates of which tables with a column for each are readable.
const MOST_COLUMNS: usize = 8;

/// Whether the results are shown by series first, because there are too many candidates for tables
/// with a column for each.
pub(crate) fn comes_first(report: &Report) -> bool {
    !report.series.is_empty() && report.candidates.len() > MOST_COLUMNS
}

/// The groups in the order of the other tables; their microbenchmarks in running order.
pub(crate) fn sort_by_group(rows: &mut [SeriesRow]) {
    rows.sort_by(|a, b| a.group.cmp(&b.group));
}

impl Series {
    /// The candidates' names without what all of them have in common.
    pub(crate) fn short_names(&self) -> Vec<String> {
        let names: Vec<&str> = self.candidates.iter().map(String::as_str).collect();
        names.iter().map(|name| without_common_ends(name, &names).to_owned()).collect()
    }

    /// What the list of changes contains, and what chance explains.
    pub(crate) fn about_changes(&self, report: &Report) -> String {
        let count =
            |is: fn(Verdict) -> bool| self.changes.iter().filter(|one| is(one.verdict)).count();
        let (certain, tested) = (count(Verdict::is_certain), count(Verdict::has_interval));
        let single = count(|verdict| verdict == Verdict::NoInterval);
        match (tested, single) {
            (0, 0) => return "No difference between neighbours has a verdict.".to_owned(),
            (0, _) => {
                return format!(
                    "Differences between neighbours, the largest of {single}. Single values have no \
                     interval: noise is among them."
                );
            }
            _ => {}
        }
        let by_chance = (tested as f64 * 0.05).round();
        let floor = match report.noise {
            Some(_) => ", and some of these are also outside the noise floor",
            None if report.has_control() => "; the noise floor is unknown",
            None => "; there is no control that would show the noise",
        };
        let mut text = format!(
            "{certain} of {tested} differences between neighbours are more than noise. Of so \
             many, about {by_chance} are outside their 95% interval by chance{floor}."
        );
        if single > 0 {
            text.push_str(&format!(
                " {single} more are of single values, without an interval: noise is among them."
            ));
        }
        text
    }
}

const EFFECTS_KEY: &str = "Throughput with one value of a setting divided by throughput with its first value: the \
     geometric mean over all combinations of the other settings, computed in each block.";

const NO_INTERACTION: &str = "No interaction is certain: within the intervals, the effect of each setting does not depend on \
     the others.";

pub(crate) fn effects(report: &Report, output: Output) -> Section {
    let mut section = titled(output, "effects", ["", "Effects of settings"]);
    for effects in report.effects.chunk_by(|a, b| a.matrix == b.matrix) {
        let matrix = &effects[0].matrix;
        match output {
            Output::Terminal => {
                section.title("effects", format!("of the settings of {matrix} on QPS"));
            }
            Output::Page | Output::Markdown => {
                section.title(format!("Settings of {matrix}"), "ratios of QPS, above 1 is better")
            }
        }
        section.push(effects_table(effects, report.is_sweep()));
        for sentence in interactions(effects, report.is_sweep()) {
            section.push(Text::new(sentence));
        }
    }
    if !report.effects.is_empty() {
        section.note(EFFECTS_KEY);
    }
    section
}

/// The effects of the settings of one matrix: a row per microbenchmark.
fn effects_table(effects: &[Effect], sweep: bool) -> Table {
    let mains = effects.iter().filter(|one| one.with.is_none());
    let rows = by_key(mains.map(|one| ((&one.microbenchmark, one.clients), one)));
    let settings: Vec<&Change> =
        rows.iter().take(1).flat_map(|(_, of_row)| of_row).map(|one| &one.change).collect();
    let titles = settings.iter().map(|change| Column::number(change.title()));
    let columns = [Column::name("microbenchmark")].into_iter().chain(titles);
    let caption = format!("Effects of the settings of {}", effects[0].matrix);
    let mut table = Table::new(columns).class("groups").caption(caption);
    for ((name, clients), of_row) in &rows {
        let name = Cell::text(with_clients(name, *clients, sweep));
        let cells =
            of_row.iter().map(|one| estimate_cell(one.relative_qps, Metric::Qps, one.verdict));
        table.push(Row::new([name].into_iter().chain(cells)));
    }
    // The geometric mean over the microbenchmarks; `None` of fewer than two.
    let mean = |column: usize| {
        let of_column = rows.iter().filter_map(|(_, of_row)| of_row.get(column));
        let used = of_column.filter(|one| one.verdict != Verdict::ClientBound);
        let logs = used.filter_map(|one| Some(one.relative_qps?.median.get().ln()));
        let logs: Vec<f64> = logs.collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (logs.len() > 1).then(|| ratio(Ratio::new(mean.exp())))
    };
    let means: Vec<Option<String>> = (0..settings.len()).map(mean).collect();
    if means.iter().any(Option::is_some) {
        let means = means.into_iter().map(|mean| Cell::text(mean.unwrap_or_default()));
        table.push(Row::new([Cell::text("geometric mean")].into_iter().chain(means)));
    }
    table
}

/// The certain interactions of the settings of one matrix, and how many are unknown.
fn interactions(effects: &[Effect], sweep: bool) -> Vec<String> {
    let all: Vec<&Effect> = effects.iter().filter(|one| one.with.is_some()).collect();
    let certain = all.iter().filter(|one| one.verdict.is_certain());
    let title = |one: &Effect| with_clients(&one.microbenchmark, one.clients, sweep);
    let mut sentences: Vec<String> = certain.filter_map(|one| sentence(one, &title(one))).collect();
    let unknown = all.iter().filter(|one| !one.verdict.has_interval()).count();
    if sentences.is_empty() && unknown < all.len() {
        sentences.push(NO_INTERACTION.to_owned());
    }
    if unknown > 0 {
        sentences.push(format!(
            "{unknown} of {} interactions are unknown: a combination failed, is client-bound or \
             has too few blocks.",
            all.len()
        ));
    }
    sentences
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

pub(crate) fn effects_csv(report: &Report) -> String {
    let with = |one: &Effect, of: fn(&Change) -> &String| one.with.as_ref().map(of).cloned();
    Csv::of(&report.effects)
        .column("matrix", |one| one.matrix.clone())
        .column("microbenchmark", |one| one.microbenchmark.clone())
        .column("group", |one| one.group.clone())
        .column("clients", |one| one.clients.to_string())
        .column("setting", |one| one.change.setting.clone())
        .column("value", |one| one.change.value.clone())
        .column("reference", |one| one.change.reference.clone())
        .column("with_setting", |one| with(one, |with| &with.setting).unwrap_or_default())
        .column("with_value", |one| with(one, |with| &with.value).unwrap_or_default())
        .column("with_reference", |one| with(one, |with| &with.reference).unwrap_or_default())
        .ratios(["relative_qps", "ci_low", "ci_high"], |one| one.relative_qps)
        .column("verdict", |one| one.verdict.name().to_owned())
        .column("blocks", |one| one.blocks.to_string())
        .ratios(["relative_cpu", "cpu_ci_low", "cpu_ci_high"], |one| one.relative_cpu)
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn only_changes_with_an_interval_are_counted_as_more_than_noise() {
        let mut report = sample::series(6);
        let mut series = report.series.remove(0);
        let all = series.changes.len();
        assert!(series.about_changes(&report).contains(&format!(" of {all} differences")));
        let verdicts = [Verdict::Failed, Verdict::ClientBound, Verdict::Unknown];
        for (change, verdict) in series.changes.iter_mut().zip(verdicts) {
            change.verdict = verdict;
        }
        let tested = format!(" of {} differences", all - 3);
        assert!(series.about_changes(&report).contains(&tested), "{tested}");
        series.changes[0].verdict = Verdict::Better;
        for change in &mut series.changes[1..] {
            (change.relative_qps, change.verdict) = (None, Verdict::NoInterval);
        }
        let mixed = series.about_changes(&report);
        assert!(mixed.starts_with("1 of 1 differences between neighbours are more"), "{mixed}");
        assert!(mixed.contains(&format!(" {} more are of single values", all - 1)), "{mixed}");
        (series.changes[0].relative_qps, series.changes[0].verdict) = (None, Verdict::NoInterval);
        let single = series.about_changes(&report);
        assert!(single.contains(&format!("the largest of {all}. Single")), "{single}");
        for change in &mut series.changes {
            change.verdict = Verdict::Unknown;
        }
        let unknown = series.about_changes(&report);
        assert_eq!(unknown, "No difference between neighbours has a verdict.");
    }

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
            interactions(&report.effects, false)
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
        let table = effects_table(&report.effects, false);
        let means = &table.rows.last().unwrap().cells[1..];
        assert_eq!(table.rows.last().unwrap().cells[0].text, "geometric mean");
        assert!(means.iter().all(|mean| mean.text.parse::<f64>().unwrap() < 1.2), "{means:?}");
    }
}
