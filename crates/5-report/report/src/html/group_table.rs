//! The table of one group: a row per microbenchmark with a chart and the values of all candidates.

use maud::{Markup, html};

use super::View;
use super::elements::{breakable, or_dash};
use super::lanes::{self, Lane, point_estimate};
use super::marker::Marker;
use super::scale::Scale;
use super::verdict::{class, sign};
use crate::figures::{ends, ratio};
use crate::metric::{Metric, clients, compared, missing};
use crate::model::{CandidateRecord, Estimate, MicrobenchmarkRows, Report, Row, Verdict};

/// Up to this many candidates the table fits a wide window, and its head may stick to the top.
const FITTING_CANDIDATES: usize = 5;

pub(super) fn render(report: &Report, view: View) -> Markup {
    html! {
        div class=(view.class()) {
            @for (group, members) in view.grouping.groups(&report.microbenchmarks) {
                (GroupTable::new(report, view.metric, &members).draw(group, &members))
            }
        }
    }
}

struct GroupTable<'a> {
    report: &'a Report,
    metric: Metric,
    scale: Scale,
    candidates: Vec<&'a CandidateRecord>,
}

impl<'a> GroupTable<'a> {
    fn new(report: &'a Report, metric: Metric, members: &[(usize, &MicrobenchmarkRows)]) -> Self {
        let rows = members.iter().flat_map(|(_, microbenchmark)| &microbenchmark.rows);
        let estimates: Vec<Estimate> = rows.filter_map(|row| drawn_estimate(metric, row)).collect();
        let candidates = compared(report);
        Self { report, metric, scale: Scale::of_estimates(&estimates), candidates }
    }

    fn draw(&self, group: &str, members: &[(usize, &MicrobenchmarkRows)]) -> Markup {
        let mut rows = members.iter().flat_map(|(_, member)| &member.rows);
        let hint = match self.metric {
            Metric::Qps if rows.all(|row| row.trusted_metric == Metric::Cpu) => {
                "; prefer CPU per query here"
            }
            _ => "",
        };
        let baseline = match self.metric {
            Metric::Qps => "Baseline QPS",
            Metric::Cpu => "Baseline CPU µs",
        };
        html! {
            h3 { (group) " " small { (self.metric.title()) ", " (self.metric.better()) (hint) } }
            div.scroll.compare.fits[self.candidates.len() <= FITTING_CANDIDATES]
                tabindex="0" role="region" aria-label=(group) {
                table {
                    thead { tr {
                        th scope="col" { "Microbenchmark" }
                        th.num.base scope="col" { (baseline) }
                        (lanes::column_head(&self.scale))
                        @for (index, candidate) in self.candidates.iter().enumerate() {
                            th.num scope="col" {
                                (Marker::new(index, candidate.role).label(&candidate.name))
                            }
                        }
                    } }
                    tbody {
                        @for (index, microbenchmark) in members { (self.row(*index, microbenchmark)) }
                    }
                }
            }
        }
    }

    fn row(&self, index: usize, microbenchmark: &MicrobenchmarkRows) -> Markup {
        let baseline = &microbenchmark.baseline;
        let value = match self.metric {
            Metric::Qps => baseline.qps.map(|qps| qps.to_string()),
            Metric::Cpu => baseline.cpu_us_per_query.map(crate::figures::micros),
        };
        let unit = &microbenchmark.throughput_unit;
        let names_unit = self.metric == Metric::Qps && unit != "statements/s";
        html! {
            tr {
                th scope="row" {
                    a.open href={ "#m" (index) } {
                        (breakable(&microbenchmark.name))
                        @if self.report.is_sweep() {
                            " " small { (clients(microbenchmark.clients)) }
                        }
                    }
                }
                td.num.base data-c="baseline" {
                    (or_dash(value))
                    @if names_unit { " " small { (unit) } }
                }
                td.chart { (self.chart(microbenchmark)) }
                @for candidate in &self.candidates { (self.cell(microbenchmark, candidate)) }
            }
        }
    }

    fn cell(&self, microbenchmark: &MicrobenchmarkRows, candidate: &CandidateRecord) -> Markup {
        let name = &candidate.name;
        let Some(row) = row_of(microbenchmark, candidate) else {
            let word = missing(self.report, name);
            return html! { td.num.failed[word == "failed"] data-c=(name) { (word) } };
        };
        let verdict = self.metric.verdict(row);
        html! {
            td.num.(class(verdict)) data-c=(name) {
                @match self.metric.ratio(row) {
                    Some(value) => {
                        b { (ratio(value)) } " " (sign(verdict, self.metric))
                        small { (or_dash(self.metric.estimate(row).map(ends))) }
                    }
                    None if verdict == Verdict::Failed => { "failed" }
                    None if !self.metric.is_measured(row) => { "–" }
                    None => { "too few blocks" }
                }
            }
        }
    }

    fn chart(&self, microbenchmark: &MicrobenchmarkRows) -> Markup {
        let lane = |(index, candidate): (usize, &&CandidateRecord)| {
            let row = row_of(microbenchmark, candidate)?;
            Some(Lane {
                marker: Marker::new(index, candidate.role),
                class: class(self.metric.verdict(row)),
                estimate: drawn_estimate(self.metric, row)?,
            })
        };
        let lanes: Vec<Option<Lane>> = self.candidates.iter().enumerate().map(lane).collect();
        let noise = self.metric.noise(self.report).map(|noise| noise.as_fraction());
        lanes::chart(&self.scale, noise, &lanes)
    }
}

fn row_of<'a>(
    microbenchmark: &'a MicrobenchmarkRows,
    candidate: &CandidateRecord,
) -> Option<&'a Row> {
    microbenchmark.rows.iter().find(|row| row.candidate == candidate.name)
}

/// The estimate as it is drawn.
fn drawn_estimate(metric: Metric, row: &Row) -> Option<Estimate> {
    metric.estimate(row).or_else(|| metric.ratio(row).map(point_estimate))
}
