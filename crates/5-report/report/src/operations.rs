//! Cost per operation, like the published per-operation tables: absolute figures, then the same
//! figures relative to the baseline.

use crate::metric::Metric;
use crate::model::{
    Absolute, CandidateRecord, CounterFigure, Estimate, MicrobenchmarkRows, Report, Role, Row,
};

/// One column of a per-operation table.
pub(crate) struct Figure {
    /// The heading in narrow tables.
    pub(crate) short: &'static str,
    /// The heading in wide tables.
    pub(crate) long: &'static str,
    of: fn(&Absolute) -> Option<f64>,
    relative: Relative,
    /// The counter figure whose ratio has an interval, for tables with intervals.
    counter: Option<CounterFigure>,
}

impl Figure {
    /// The interval of the ratio; `None` for figures and rows without one.
    pub(crate) fn interval(&self, row: &Row) -> Option<Estimate> {
        row.relative_counters.get(&self.counter?).copied()
    }
}

/// How to calculate a figure relative to the baseline's.
enum Relative {
    /// The ratio from pairs of slices.
    Paired(fn(&Row) -> Option<f64>),
    /// The ratio from pairs of slices; the quotient if the value is zero in some slices.
    PairedOrQuotient(fn(&Row) -> Option<f64>),
    /// The quotient of both values.
    Quotient,
    /// Not shown.
    Nothing,
}

/// All columns of the cost per operation, in order.
pub(crate) const COSTS: [Figure; 10] = [
    Figure {
        short: "QPS",
        long: "QPS",
        of: |own| Some(own.qps?.per_second()),
        relative: Relative::Paired(|row| Some(Metric::Qps.ratio(row)?.get())),
        counter: None,
    },
    Figure {
        short: "cpu/q",
        long: "CPU µs",
        of: |own| own.cpu_us_per_query,
        relative: Relative::Paired(|row| Some(Metric::Cpu.ratio(row)?.get())),
        counter: None,
    },
    Figure {
        short: "usr/q",
        long: "user µs",
        of: |own| own.user_us_per_query,
        relative: Relative::Quotient,
        counter: None,
    },
    Figure {
        short: "sys/q",
        long: "system µs",
        of: |own| own.system_us_per_query,
        relative: Relative::Quotient,
        counter: None,
    },
    Figure {
        short: "cs/q",
        long: "context switches",
        of: |own| own.cs_per_query,
        relative: Relative::Paired(|row| Some(row.relative_cs?.median.get())),
        counter: None,
    },
    Figure {
        short: "pf/q",
        long: "page faults",
        of: |own| own.page_faults_per_query,
        relative: Relative::Quotient,
        counter: None,
    },
    Figure {
        short: "rd/q",
        long: "bytes read",
        of: |own| own.read_bytes_per_query,
        relative: Relative::Quotient,
        counter: None,
    },
    Figure {
        short: "wr/q",
        long: "bytes written",
        of: |own| own.written_bytes_per_query,
        relative: Relative::Quotient,
        counter: None,
    },
    Figure {
        short: "client",
        long: "client's CPU µs",
        of: |own| own.client_cpu_us_per_query,
        relative: Relative::Quotient,
        counter: None,
    },
    Figure {
        short: "busy",
        long: "client's CPUs, %",
        of: |own| Some(own.client_busy?.as_percent()),
        relative: Relative::Nothing,
        counter: None,
    },
];

/// A column of a counter figure.
macro_rules! counted {
    ($short:literal, $long:literal, $figure:ident) => {
        Figure {
            short: $short,
            long: $long,
            of: |own| own.counters.get(&CounterFigure::$figure).copied(),
            relative: Relative::PairedOrQuotient(|row| {
                Some(row.relative_counters.get(&CounterFigure::$figure)?.median.get())
            }),
            counter: Some(CounterFigure::$figure),
        }
    };
}

/// All columns of counter figures, in order.
pub(crate) const COUNTS: [Figure; 10] = [
    counted!("ins/q", "instructions", InstructionsPerQuery),
    counted!("cyc/q", "cycles", CyclesPerQuery),
    counted!("IPC", "IPC", InstructionsPerCycle),
    counted!("L1i/k", "L1i misses per 1,000 instr.", L1iMissesPer1000Instructions),
    counted!("iTLB/k", "iTLB misses per 1,000 instr.", ItlbMissesPer1000Instructions),
    counted!("brm/k", "branch misses per 1,000 instr.", BranchMissesPer1000Instructions),
    counted!("minf/q", "minor page faults", MinorFaultsPerQuery),
    counted!("majf/q", "major page faults", MajorFaultsPerQuery),
    counted!("migr/q", "CPU migrations", CpuMigrationsPerQuery),
    counted!("µJ/q", "µJ of the package", MicrojoulesPerQuery),
];

/// A candidate's absolute figures, and the same relative to the baseline's.
pub(crate) struct Line<'a> {
    pub(crate) candidate: &'a CandidateRecord,
    /// `None` for the baseline.
    pub(crate) row: Option<&'a Row>,
    pub(crate) absolute: Vec<Option<f64>>,
    /// `None` for the baseline.
    pub(crate) relative: Option<Vec<Option<f64>>>,
}

/// The table of one microbenchmark, with the figures that are known for at least one candidate.
pub(crate) fn table<'a>(
    report: &'a Report,
    microbenchmark: &'a MicrobenchmarkRows,
    all: &'static [Figure],
) -> (Vec<&'static Figure>, Vec<Line<'a>>) {
    let rows: Vec<(&CandidateRecord, &Absolute, Option<&'a Row>)> = report
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
    let figures: Vec<&Figure> = all
        .iter()
        .filter(|figure| rows.iter().any(|(_, own, _)| (figure.of)(own).is_some()))
        .collect();
    let line = |(candidate, own, row): &(&'a CandidateRecord, &Absolute, Option<&'a Row>)| Line {
        candidate,
        row: *row,
        absolute: figures.iter().map(|figure| (figure.of)(own)).collect(),
        relative: row.map(|row| {
            figures.iter().map(|figure| relative(figure, &microbenchmark.baseline, row)).collect()
        }),
    };
    let lines = rows.iter().map(line).collect();
    (figures, lines)
}

fn relative(figure: &Figure, baseline: &Absolute, row: &Row) -> Option<f64> {
    let quotient = || {
        let (own, base) = ((figure.of)(&row.absolute)?, (figure.of)(baseline)?);
        (base > 0.0).then_some(own / base)
    };
    match figure.relative {
        Relative::Paired(ratio) => ratio(row),
        Relative::PairedOrQuotient(ratio) => ratio(row).or_else(quotient),
        Relative::Quotient => quotient(),
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
            let figures = table(report, &report.microbenchmarks[0], &COSTS).0;
            figures.iter().map(|figure| figure.short).collect()
        };
        assert_eq!(shorts(&sample::report()), ["QPS", "cpu/q", "cs/q", "pf/q"]);
        assert_eq!(
            shorts(&sample::servers()),
            ["QPS", "cpu/q", "usr/q", "sys/q", "cs/q", "pf/q", "rd/q", "wr/q", "client", "busy"]
        );
        assert_eq!(shorts(&sample::imported()), ["QPS"]);
    }

    #[test]
    fn only_counted_figures_have_a_column() {
        let shorts = |report: &Report| -> Vec<&str> {
            let figures = table(report, &report.microbenchmarks[0], &COUNTS).0;
            figures.iter().map(|figure| figure.short).collect()
        };
        let few = ["scan_range=100"];
        assert!(shorts(&sample::report_of(&few)).is_empty());
        assert_eq!(shorts(&sample::only_kernel_counters(&few)), ["minf/q", "majf/q", "migr/q"]);
        let counted = sample::counted(&few);
        assert_eq!(shorts(&counted).len(), COUNTS.len());
        let (figures, lines) = table(&counted, &counted.microbenchmarks[0], &COUNTS);
        let row = lines[1].row.unwrap();
        let relative = lines[1].relative.as_ref().unwrap();
        let ipc = figures.iter().position(|figure| figure.short == "IPC").unwrap();
        assert_eq!(
            Some(relative[ipc].unwrap()),
            figures[ipc].interval(row).map(|e| e.median.get())
        );
        // No interval if slices have a value of zero, and no ratio to zero.
        let minor = figures.iter().position(|figure| figure.short == "minf/q").unwrap();
        assert_eq!((relative[minor], figures[minor].interval(row)), (Some(1.0), None));
        assert_eq!(relative[minor + 1], None);
    }

    #[test]
    fn ratio_of_pairs_is_preferred_to_the_quotient() {
        let mut report = sample::servers();
        let row = &mut report.microbenchmarks[0].rows[0];
        row.relative_cpu.as_mut().unwrap().median = Ratio::new(7.0);
        row.absolute.user_us_per_query = Some(30.0);
        report.microbenchmarks[0].baseline.user_us_per_query = Some(20.0);
        let (_, lines) = table(&report, &report.microbenchmarks[0], &COSTS);
        assert!(lines[0].relative.is_none());
        let relative = lines[1].relative.as_ref().unwrap();
        assert_eq!((relative[1], relative[2]), (Some(7.0), Some(1.5)));
    }
}
