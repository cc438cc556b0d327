//! A sweep over numbers of clients: throughput, CPU per query and relative QPS as lines.
//!
//! The axis of clients is logarithmic, as their number doubles from one to the next in most
//! sweeps. Every point shows its values as a tooltip; the table below the charts has them as text.

use dbdyno_text::{Cell, Column, Row as TableRow, Table};
use maud::{Markup, html};

use super::document::{self, breakable, inline, with_heading};
use crate::charts::{Axis, LabelStyle, Line, LineChart, Plot, Point, Scale};
use crate::figures::{compact, micros, ratio};
use crate::metric::{Grouping, clients};
use crate::model::{
    Absolute, CandidateRecord, CounterFigure, Estimate, Metric, MicrobenchmarkRows, Report, Row,
    Verdict, distinct,
};
use crate::sections::groups::drawn;
use crate::sections::operations::values;
use crate::sections::sweep as sections;
use crate::sections::{Output, candidate, estimated, interval, mark};
use crate::words::{capitalized, joined};

const PLOT: Plot =
    Plot { width: 360.0, height: 220.0, left: 46.0, right: 348.0, top: 10.0, bottom: 190.0 };

/// Draws a card per microbenchmark; nothing without a sweep.
pub(super) fn render(report: &Report) -> Markup {
    if !report.is_sweep() {
        return Markup::default();
    }
    let names = distinct(report.microbenchmarks.iter().map(|one| one.name.as_str()));
    let content = html! {
        p.muted {
            "The axis of clients is logarithmic. Whiskers are the interquartile range of the slices; for \
             ratios they are the 95% confidence interval."
        }
        ul.legend {
            @for candidate in &report.candidates {
                li { (inline(mark(report, &candidate.name, candidate.role))) (candidate.name) }
            }
        }
        @if !report.scaling.is_empty() {
            h3 { "More clients against fewer" }
            @for (class, grouping) in [("view five", Grouping::Five), ("view three", Grouping::Three)] {
                @let section = sections::scaling(report, grouping, Output::Page);
                div class=(class) { (document::blocks(&section.blocks)) }
            }
        }
        @for name in names { (Sweep::new(report, name).card()) }
    };
    with_heading("sweep", "By number of clients", content)
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
                    @for (figure, title) in CounterFigure::OF_SWEEPS {
                        (self.amounts(capitalized(title), |own| {
                            Some((*own.counters.get(&figure)?, None))
                        }))
                    }
                }
                @if !self.report.scaling.is_empty() {
                    (document::table(&sections::steps(self.report, Some(name), Output::Page)))
                }
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

    /// Amounts from 0: throughput, CPU time.
    fn amounts(&self, title: String, value: impl Fn(&Absolute) -> Option<Value>) -> Markup {
        let lines = self.lines(|own, _| value(own), &compact);
        let points = lines.iter().flat_map(|line| &line.points);
        let highest = points
            .map(|point| point.whisker.map_or(point.value, |(_, high)| high.max(point.value)));
        let scale = Scale::from_zero(highest);
        self.chart(title, scale, lines, &compact)
    }

    fn relative_qps(&self) -> Markup {
        let rows = self.steps.iter().flat_map(|step| &step.rows);
        let estimates: Vec<Estimate> = rows.filter_map(|row| drawn(Metric::Qps, row)).collect();
        let write = |value| format!("{value:.3}");
        let relative = |_: &Absolute, row: Option<&Row>| {
            let interval = row?.relative_qps.map(|e| (e.low.get(), e.high.get()));
            Some((row?.ratio(Metric::Qps)?.get(), interval))
        };
        let title = format!("QPS relative to {}", self.report.baseline);
        let lines = self.lines(relative, &write);
        self.chart(title, Scale::of_estimates(&estimates), lines, &write)
    }

    fn chart(
        &self,
        title: String,
        scale: Scale,
        lines: Vec<Line>,
        write: &dyn Fn(f64) -> String,
    ) -> Markup {
        let words = lines.iter().filter_map(|line| {
            let is_own =
                |one: &&CandidateRecord| mark(self.report, &one.name, one.role) == line.mark;
            let name = &self.report.candidates.iter().find(is_own)?.name;
            let (first, last) = (line.points.first()?, line.points.last()?);
            let (from, to) = (write(first.value), write(last.value));
            let at = |point: &Point| {
                let step = self.steps.iter().find(|step| self.at(step.clients) == point.at);
                step.map_or_else(String::new, |step| clients(step.clients))
            };
            Some(format!("{name} {from} at {}, {to} at {}", at(first), at(last)))
        });
        let words = joined(words, "; ").unwrap_or_default();
        let labels =
            self.steps.iter().map(|step| (self.at(step.clients), step.clients.to_string()));
        LineChart {
            description: format!("{title}: {words}"),
            title,
            plot: PLOT,
            margins: (8.0, 8.0),
            axis: Axis::Linear(scale),
            labels: labels.collect(),
            style: LabelStyle::Grid,
            below: "clients",
            noise: None,
            lines,
            stalls: Vec::new(),
        }
        .draw()
    }

    /// The position of a number of clients on the axis, which is logarithmic.
    fn at(&self, clients: u32) -> f64 {
        let log = |clients: u32| f64::from(clients.max(1)).log2();
        let of = |step: Option<&&MicrobenchmarkRows>| log(step.map_or(1, |step| step.clients));
        let (first, last) = (of(self.steps.first()), of(self.steps.last()));
        if last > first { (log(clients) - first) / (last - first) } else { 0.5 }
    }

    /// The line of each candidate that has values.
    fn lines(
        &self,
        value: impl Fn(&Absolute, Option<&Row>) -> Option<Value>,
        write: &dyn Fn(f64) -> String,
    ) -> Vec<Line> {
        let point = |step: &&'a MicrobenchmarkRows, candidate: &CandidateRecord| {
            let (own, row) = values(step, candidate)?;
            let (value, whisker) = value(own, row)?;
            let bound = row.is_some_and(|row| row.verdict_of(Metric::Qps) == Verdict::ClientBound);
            let range = whisker.map_or_else(String::new, |(low, high)| {
                format!(" ({} to {})", write(low), write(high))
            });
            let remark = if bound { ", client-bound" } else { "" };
            let (name, at) = (&candidate.name, clients(step.clients));
            let title = format!("{name}, {at}: {}{range}{remark}", write(value));
            Some(Point { at: self.at(step.clients), value, whisker, title, bound })
        };
        let line = |candidate: &CandidateRecord| Line {
            mark: mark(self.report, &candidate.name, candidate.role),
            title: String::new(),
            points: self.steps.iter().filter_map(|step| point(step, candidate)).collect(),
        };
        let all = self.report.candidates.iter().map(line);
        all.filter(|line| !line.points.is_empty()).collect()
    }

    fn table(&self) -> Markup {
        let titles = self.steps.iter().map(|step| Column::number(clients(step.clients)));
        let columns = [Column::name("Candidate")].into_iter().chain(titles);
        let mut table = Table::new(columns).class("facts").caption("Values over clients");
        self.rows(&mut table, "throughput", |own, _| Some(Cell::number(Some(own.qps?))));
        self.rows(&mut table, "CPU per query, µs", |own, _| {
            Some(Cell::text(micros(own.cpu_us_per_query?)))
        });
        for (counter, title) in CounterFigure::OF_SWEEPS {
            self.rows(&mut table, title, |own, _| {
                Some(Cell::text(micros(*own.counters.get(&counter)?)))
            });
            self.rows(&mut table, &format!("relative {title}"), |_, row| {
                row?.relative_counters.get(&counter).copied().map(estimated)
            });
        }
        self.rows(&mut table, "relative QPS", |_, row| {
            let value = ratio(row?.ratio(Metric::Qps)?);
            let interval = row?.relative_qps.map(interval).unwrap_or_default();
            Some(Cell::text(value).interval(Some(interval)))
        });
        html! { details { summary { "Values" } (document::table(&table)) } }
    }

    /// A row per candidate that has values.
    fn rows(
        &self,
        table: &mut Table,
        title: &str,
        cell: impl Fn(&Absolute, Option<&Row>) -> Option<Cell>,
    ) {
        table.part(title);
        for one in &self.report.candidates {
            let values = self.steps.iter().map(|step| values(step, one));
            let cells = values.map(|values| values.and_then(|(own, row)| cell(own, row)));
            let cells: Vec<Option<Cell>> = cells.collect();
            if cells.iter().any(Option::is_some) {
                let name = candidate(self.report, &one.name, one.role);
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(Cell::dash));
                table.push(TableRow::new([name].into_iter().chain(cells)));
            }
        }
        // A title without rows.
        if table.rows.last().is_some_and(|row| row.part.is_some()) {
            table.rows.pop();
        }
    }
}
