//! A sweep over numbers of clients: throughput, CPU per query and relative QPS as lines.
//!
//! The axis of clients is logarithmic, as their number doubles from one to the next in most
//! sweeps. Every point shows its values as a tooltip; the table below the charts has them as text.

mod chart;
mod scaling;

use maud::{Markup, display, html};

use super::elements::{breakable, scrollable, section};
use super::lanes::point_estimate;
use super::marker::Marker;
use super::scale::Scale;
use crate::figures::micros;
use crate::figures::{compact, ends, ratio};
use crate::metric::{Metric, clients};
use crate::model::CounterFigure;
use crate::model::{
    Absolute, CandidateRecord, Estimate, MicrobenchmarkRows, Report, Role, Row, Verdict,
};
use chart::{Chart, Point, Series};

/// Draws a card per microbenchmark; nothing without a sweep.
pub(super) fn render(report: &Report) -> Markup {
    if !report.is_sweep() {
        return Markup::default();
    }
    let mut names: Vec<&str> = Vec::new();
    for microbenchmark in &report.microbenchmarks {
        if !names.contains(&microbenchmark.name.as_str()) {
            names.push(&microbenchmark.name);
        }
    }
    let content = html! {
        p.muted {
            "The axis of clients is logarithmic. Whiskers are the interquartile range of the slices; for \
             ratios they are the 95% confidence interval."
        }
        ul.legend {
            @for candidate in &report.candidates {
                li { (marker(report, candidate).inline()) (candidate.name) }
            }
        }
        (scaling::by_group(report))
        @for name in names { (Sweep::new(report, name).card()) }
    };
    section("sweep", "By number of clients", content)
}

fn marker(report: &Report, candidate: &CandidateRecord) -> Marker {
    Marker::of(report, &candidate.name, candidate.role)
}

/// One microbenchmark at all numbers of clients, in ascending order.
struct Sweep<'a> {
    report: &'a Report,
    steps: Vec<&'a MicrobenchmarkRows>,
}

/// A value with the ends of its whisker.
type Value = (f64, Option<(f64, f64)>);

impl<'a> Sweep<'a> {
    fn new(report: &'a Report, name: &str) -> Self {
        let mut steps: Vec<&MicrobenchmarkRows> =
            report.microbenchmarks.iter().filter(|one| one.name == name).collect();
        steps.sort_by_key(|step| step.clients);
        Self { report, steps }
    }

    fn card(&self) -> Markup {
        let name = self.steps.first().map_or("", |step| step.name.as_str());
        html! {
            article.card.sweep {
                h3 { (breakable(name)) }
                div.charts {
                    (self.throughput())
                    (self.amounts("CPU per query, µs".to_owned(), |own| {
                        Some((own.cpu_us_per_query?, own.cpu_middle_half))
                    }))
                    (self.relative_qps())
                    @for figure in CounterFigure::OF_SWEEPS {
                        (self.amounts(capitalized(figure.title()), |own| {
                            Some((*own.counters.get(&figure)?, None))
                        }))
                    }
                }
                (scaling::of_microbenchmark(self.report, name))
                (self.table())
            }
        }
    }

    fn throughput(&self) -> Markup {
        let unit = self.steps.first().map_or("", |step| step.throughput_unit.as_str());
        self.amounts(format!("Throughput, {unit}"), |own| {
            let ends = own.qps_middle_half.map(|(low, high)| (low.per_second(), high.per_second()));
            Some((own.qps?.per_second(), ends))
        })
    }

    /// A chart from 0; nothing where no value is known.
    fn amounts(&self, title: String, value: impl Fn(&Absolute) -> Option<Value>) -> Markup {
        let series = self.series(|own, _| value(own));
        let points = series.iter().flat_map(|series| &series.points);
        let highest = points
            .map(|point| point.whisker.map_or(point.value, |(_, high)| high.max(point.value)));
        let scale = Scale::from_zero(highest);
        Chart { title, clients: &self.clients(), scale, series, write: compact }.draw()
    }

    fn relative_qps(&self) -> Markup {
        let estimate =
            |row: &Row| row.relative_qps.or_else(|| Metric::Qps.ratio(row).map(point_estimate));
        let rows = self.steps.iter().flat_map(|step| &step.rows);
        let estimates: Vec<Estimate> = rows.filter_map(estimate).collect();
        let series = self.series(|_, row| {
            let interval = row?.relative_qps.map(|e| (e.low.get(), e.high.get()));
            Some((Metric::Qps.ratio(row?)?.get(), interval))
        });
        let title = format!("QPS relative to {}", self.report.baseline);
        let scale = Scale::of_estimates(&estimates);
        let write = |value| format!("{value:.3}");
        Chart { title, clients: &self.clients(), scale, series, write }.draw()
    }

    fn clients(&self) -> Vec<u32> {
        self.steps.iter().map(|step| step.clients).collect()
    }

    /// A candidate's own values at one number of clients, and its row unless it is the baseline.
    fn values(
        step: &'a MicrobenchmarkRows,
        candidate: &CandidateRecord,
    ) -> Option<(&'a Absolute, Option<&'a Row>)> {
        if candidate.role == Role::Baseline {
            return Some((&step.baseline, None));
        }
        let row = step.rows.iter().find(|row| row.candidate == candidate.name)?;
        Some((&row.absolute, Some(row)))
    }

    /// The lines of all candidates that have a point.
    fn series(&self, value: impl Fn(&Absolute, Option<&Row>) -> Option<Value>) -> Vec<Series> {
        let point = |step: &&'a MicrobenchmarkRows, candidate: &CandidateRecord| {
            let (own, row) = Self::values(step, candidate)?;
            let (value, whisker) = value(own, row)?;
            let verdict = row.map(|row| Metric::Qps.verdict(row));
            let client_bound = verdict == Some(Verdict::ClientBound);
            Some(Point { clients: step.clients, value, whisker, client_bound })
        };
        let series = |candidate: &CandidateRecord| Series {
            name: candidate.name.clone(),
            marker: marker(self.report, candidate),
            points: self.steps.iter().filter_map(|step| point(step, candidate)).collect(),
        };
        let all = self.report.candidates.iter().map(series);
        all.filter(|series| !series.points.is_empty()).collect()
    }

    /// The values of the charts as a table.
    fn table(&self) -> Markup {
        let content = html! {
            table.facts {
                thead { tr {
                    th scope="col" { "Candidate" }
                    @for step in &self.steps { th.num scope="col" { (clients(step.clients)) } }
                } }
                (self.rows("throughput", |own, _| Some(html! { (display(own.qps?)) })))
                (self.rows("CPU per query, µs", |own, _| {
                    Some(html! { (micros(own.cpu_us_per_query?)) })
                }))
                @for figure in CounterFigure::OF_SWEEPS {
                    @let title = figure.title();
                    (self.rows(title, |own, _| {
                        Some(html! { (micros(*own.counters.get(&figure)?)) })
                    }))
                    (self.rows(&format!("relative {title}"), |_, row| {
                        let estimate = row?.relative_counters.get(&figure)?;
                        Some(html! { b { (ratio(estimate.median)) } small { (ends(*estimate)) } })
                    }))
                }
                (self.rows("relative QPS", |_, row| {
                    let interval = row?.relative_qps.map_or_else(String::new, ends);
                    let value = ratio(Metric::Qps.ratio(row?)?);
                    Some(html! { b { (value) } small { (interval) } })
                }))
            }
        };
        html! {
            details { summary { "Values" } (scrollable("Values over clients", content)) }
        }
    }

    /// The table's rows of one value, for candidates of which it is known.
    fn rows(
        &self,
        title: &str,
        cell: impl Fn(&Absolute, Option<&Row>) -> Option<Markup>,
    ) -> Markup {
        let cells = |candidate: &CandidateRecord| -> Vec<Option<Markup>> {
            let values = self.steps.iter().map(|step| Self::values(step, candidate));
            values.map(|values| values.and_then(|(own, row)| cell(own, row))).collect()
        };
        html! {
            tbody {
                tr { th.block scope="rowgroup" colspan=(self.steps.len() + 1) { (title) } }
                @for candidate in &self.report.candidates {
                    @let cells = cells(candidate);
                    @if cells.iter().any(Option::is_some) {
                        tr {
                            th scope="row" { (marker(self.report, candidate).label(&candidate.name)) }
                            @for cell in cells { td.num { (cell.unwrap_or_else(|| html! { "–" })) } }
                        }
                    }
                }
            }
        }
    }
}

/// A title with a capital letter; a name that starts like `iTLB` stays.
fn capitalized(title: &str) -> String {
    let mut letters = title.chars();
    let Some(first) = letters.next() else { return String::new() };
    if letters.clone().next().is_some_and(char::is_uppercase) {
        return title.to_owned();
    }
    first.to_uppercase().chain(letters).collect()
}
