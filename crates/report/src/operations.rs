//! What one operation costs, in the manner of the published per-operation tables: a block of
//! absolute figures, then the same relative to the baseline.

use crate::metric::Metric;
use crate::model::{Absolute, CandidateSummary, MicrobenchmarkRows, Report, Role, Row};

/// One column of a per-operation table.
pub(crate) struct Figure {
    /// The heading where room is short.
    pub(crate) short: &'static str,
    /// The heading in words.
    pub(crate) long: &'static str,
    of: fn(&Absolute) -> Option<f64>,
    relative: Relative,
}

/// What a figure is relative to the baseline's.
enum Relative {
    /// The ratio from pairs of slices.
    Paired(fn(&Row) -> Option<f64>),
    /// The quotient of the two.
    Quotient,
    /// Of no meaning.
    Nothing,
}

/// All columns, in order.
const FIGURES: [Figure; 10] = [
    Figure {
        short: "QPS",
        long: "QPS",
        of: |own| Some(own.qps?.per_second()),
        relative: Relative::Paired(|row| Some(Metric::Qps.ratio(row)?.get())),
    },
    Figure {
        short: "cpu/q",
        long: "CPU µs",
        of: |own| own.cpu_us_per_query,
        relative: Relative::Paired(|row| Some(Metric::Cpu.ratio(row)?.get())),
    },
    Figure {
        short: "usr/q",
        long: "user µs",
        of: |own| own.user_us_per_query,
        relative: Relative::Quotient,
    },
    Figure {
        short: "sys/q",
        long: "system µs",
        of: |own| own.system_us_per_query,
        relative: Relative::Quotient,
    },
    Figure {
        short: "cs/q",
        long: "context switches",
        of: |own| own.cs_per_query,
        relative: Relative::Paired(|row| Some(row.relative_cs?.median.get())),
    },
    Figure {
        short: "pf/q",
        long: "page faults",
        of: |own| own.page_faults_per_query,
        relative: Relative::Quotient,
    },
    Figure {
        short: "rd/q",
        long: "bytes read",
        of: |own| own.read_bytes_per_query,
        relative: Relative::Quotient,
    },
    Figure {
        short: "wr/q",
        long: "bytes written",
        of: |own| own.written_bytes_per_query,
        relative: Relative::Quotient,
    },
    Figure {
        short: "client",
        long: "client's CPU µs",
        of: |own| own.client_cpu_us_per_query,
        relative: Relative::Quotient,
    },
    Figure {
        short: "busy",
        long: "client's CPUs, %",
        of: |own| Some(own.client_busy?.as_percent()),
        relative: Relative::Nothing,
    },
];

/// A candidate's line: its absolute figures, and the same relative to the baseline's.
pub(crate) struct Line<'a> {
    pub(crate) candidate: &'a CandidateSummary,
    pub(crate) absolute: Vec<Option<f64>>,
    /// `None` for the baseline.
    pub(crate) relative: Option<Vec<Option<f64>>>,
}

/// The table of one microbenchmark: only figures that are known of somebody.
pub(crate) fn table<'a>(
    report: &'a Report,
    microbenchmark: &'a MicrobenchmarkRows,
) -> (Vec<&'static Figure>, Vec<Line<'a>>) {
    let rows: Vec<(&CandidateSummary, &Absolute, Option<&Row>)> = report
        .candidates
        .iter()
        .filter_map(|candidate| match candidate.role {
            Role::Baseline => Some((candidate, &microbenchmark.baseline, None)),
            Role::Candidate | Role::Control => {
                let mut rows = microbenchmark.rows.iter();
                let row = rows.find(|row| row.candidate == candidate.name)?;
                Some((candidate, &row.absolute, Some(row)))
            }
        })
        .collect();
    let figures: Vec<&Figure> = FIGURES
        .iter()
        .filter(|figure| rows.iter().any(|(_, own, _)| (figure.of)(own).is_some()))
        .collect();
    let line = |(candidate, own, row): &(&'a CandidateSummary, &Absolute, Option<&Row>)| Line {
        candidate,
        absolute: figures.iter().map(|figure| (figure.of)(own)).collect(),
        relative: row.map(|row| {
            figures.iter().map(|figure| relative(figure, &microbenchmark.baseline, row)).collect()
        }),
    };
    let lines = rows.iter().map(line).collect();
    (figures, lines)
}

fn relative(figure: &Figure, baseline: &Absolute, row: &Row) -> Option<f64> {
    match figure.relative {
        Relative::Paired(ratio) => ratio(row),
        Relative::Quotient => {
            let (own, base) = ((figure.of)(&row.absolute)?, (figure.of)(baseline)?);
            (base > 0.0).then_some(own / base)
        }
        Relative::Nothing => None,
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;
    use crate::sample;

    #[test]
    fn only_known_figures_have_a_column() {
        let shorts = |report: &Report| -> Vec<&str> {
            table(report, &report.microbenchmarks[0]).0.iter().map(|figure| figure.short).collect()
        };
        assert_eq!(shorts(&sample::report()), ["QPS", "cpu/q", "cs/q", "pf/q"]);
        assert_eq!(
            shorts(&sample::servers()),
            ["QPS", "cpu/q", "usr/q", "sys/q", "cs/q", "pf/q", "rd/q", "wr/q", "client", "busy"]
        );
        assert_eq!(shorts(&sample::imported()), ["QPS"]);
    }

    #[test]
    fn ratios_come_from_pairs_where_there_are_some() {
        let mut report = sample::servers();
        let row = &mut report.microbenchmarks[0].rows[0];
        row.relative_cpu.as_mut().unwrap().median = Ratio::new(7.0);
        row.absolute.user_us_per_query = Some(30.0);
        report.microbenchmarks[0].baseline.user_us_per_query = Some(20.0);
        let (_, lines) = table(&report, &report.microbenchmarks[0]);
        assert!(lines[0].relative.is_none());
        let relative = lines[1].relative.as_ref().unwrap();
        assert_eq!((relative[1], relative[2]), (Some(7.0), Some(1.5)));
    }
}
