//! Table layout: the most detailed arrangement that fits the width.

use dbdyno_units::Qps;

use crate::figures::compact;
use crate::metric::{Metric, compared};
use crate::model::{Absolute, MicrobenchmarkRows, Report};
use dbdyno_text::{left, plain, right, width};

/// Format of a candidate's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// `1.038 + [1.034, 1.042]`
    Ends,
    /// `1.038+ ±0.4%`
    PlusMinus,
    /// `1.038+` with `±0.4%` on the line below.
    TwoLines,
}

impl Cell {
    pub(super) const fn columns(self) -> usize {
        match self {
            Self::Ends => 22,
            Self::PlusMinus => 12,
            Self::TwoLines => 7,
        }
    }
}

/// The arrangement of one metric's tables.
pub(super) struct Layout {
    pub(super) metric: Metric,
    pub(super) cell: Cell,
    /// Whether the baseline's figure is complete instead of abbreviated as `412k`.
    full: bool,
    /// Whether rows are numbers of clients, below the microbenchmark's name.
    pub(super) sweep: bool,
    pub(super) name_columns: usize,
    pub(super) base_columns: usize,
    /// Spaces before a cell.
    pub(super) gap: usize,
    /// Candidates per table.
    pub(super) per_table: usize,
}

impl Layout {
    /// Choose a layout. Preferences in this order: all candidates in one table, both ends of the
    /// interval, one line per row, the baseline's complete figure. The table is only split if
    /// nothing else fits.
    pub(super) fn choose(report: &Report, metric: Metric, room: usize) -> Self {
        let sweep = report.is_sweep();
        let names = report.microbenchmarks.iter().map(|m| width(&label(m)));
        let name_columns = match sweep {
            true => CLIENTS.len() + 2,
            false => names.max().unwrap_or(0).max(MICROBENCHMARK.len()),
        };
        let candidates = compared(report).len().max(1);
        let layout = |cell, full| {
            let bases = report.microbenchmarks.iter().map(|m| &m.baseline);
            let bases = bases.map(|base| width(&base_figure(metric, base, full)));
            let base_columns = bases.max().unwrap_or(0).max(base_title(metric).len());
            Self {
                metric,
                cell,
                full,
                sweep,
                name_columns,
                base_columns,
                gap: 1,
                per_table: candidates,
            }
        };
        let mut tightest = layout(Cell::TwoLines, false);
        for cell in [Cell::Ends, Cell::PlusMinus, Cell::TwoLines] {
            for full in [true, false] {
                let mut layout = layout(cell, full);
                if layout.columns() <= room {
                    layout.gap = if layout.columns() + candidates <= room { 2 } else { 1 };
                    return layout;
                }
            }
        }
        let rest = room.saturating_sub(tightest.name_columns + 1 + tightest.base_columns);
        tightest.per_table = (rest / (tightest.gap + tightest.cell.columns())).max(1);
        tightest
    }

    /// The width of the whole table.
    pub(super) fn columns(&self) -> usize {
        self.columns_of(self.per_table)
    }

    /// The width of a table with `candidates`.
    pub(super) fn columns_of(&self, candidates: usize) -> usize {
        self.name_columns + 1 + self.base_columns + candidates * (self.gap + self.cell.columns())
    }

    /// The heading of the first column.
    pub(super) fn name_title(&self) -> String {
        if self.sweep { right(CLIENTS, self.name_columns) } else { MICROBENCHMARK.to_owned() }
    }

    /// The first column: the name, or the number of clients.
    pub(super) fn name(&self, microbenchmark: &MicrobenchmarkRows) -> String {
        match self.sweep {
            true => right(&microbenchmark.clients.to_string(), self.name_columns),
            false => left(&label(microbenchmark), self.name_columns),
        }
    }

    /// The baseline's absolute figure.
    pub(super) fn base(&self, absolute: &Absolute) -> String {
        base_figure(self.metric, absolute, self.full)
    }
}

const MICROBENCHMARK: &str = "microbenchmark";

const CLIENTS: &str = "clients";

/// The heading of the baseline's figures.
pub(super) const fn base_title(metric: Metric) -> &'static str {
    match metric {
        Metric::Qps => "QPS",
        Metric::Cpu => "CPU µs",
    }
}

/// A microbenchmark's name, with the unit if throughput does not count statements.
pub(super) fn label(microbenchmark: &MicrobenchmarkRows) -> String {
    let name = plain(&microbenchmark.name);
    if microbenchmark.throughput_unit == "statements/s" {
        name
    } else {
        format!("{name} ({})", plain(&microbenchmark.throughput_unit))
    }
}

fn base_figure(metric: Metric, absolute: &Absolute, full: bool) -> String {
    let figure = match metric {
        Metric::Qps => absolute.qps.map(Qps::per_second),
        Metric::Cpu => absolute.cpu_us_per_query,
    };
    match figure {
        None => "–".to_owned(),
        Some(figure) if full => Qps::from_per_second(figure).to_string(),
        Some(figure) => compact(figure),
    }
}
