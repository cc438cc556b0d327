//! What one operation costs, and what was counted: a table per microbenchmark, absolute and relative.

use super::group_table::Group;
use super::paint::{Paint, cut, left, plain, right, width};
use crate::figures::{compact, ratio, tiny};
use crate::metric::clients;
use crate::model::{Report, Role};
use crate::operations::{COSTS, COUNTS, Figure, Line, table};
use dbdyno_units::Ratio;

/// Room for a figure, the space before it included.
const COLUMN: usize = 7;

/// What a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// What one operation costs.
    Costs,
    /// What the CPU and the kernel counted.
    Counts,
}

impl Of {
    const fn figures(self) -> &'static [Figure] {
        match self {
            Self::Costs => &COSTS,
            Self::Counts => &COUNTS,
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Costs => "  per operation",
            Self::Counts => "  counted",
        }
    }

    const fn write(self) -> fn(f64) -> String {
        match self {
            Self::Costs => compact,
            Self::Counts => tiny,
        }
    }
}

/// Draws the tables of a group.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    (of, group): (Of, Group<'_>),
    room: usize,
    paint: Paint,
) {
    for (_, microbenchmark) in group.1 {
        let (figures, lines) = table(report, microbenchmark, of.figures());
        if figures.is_empty() {
            continue;
        }
        let longest = report.candidates.iter().map(|one| width(&one.name)).max().unwrap_or(0);
        let names = longest.min(room.saturating_sub(figures.len() * COLUMN)).max(9);
        let at = match report.is_sweep() {
            true => format!(", {}", clients(microbenchmark.clients)),
            false => String::new(),
        };
        let title = format!("{}{at}", plain(&microbenchmark.name));
        out.push_str(&format!("\n{}{}\n", paint.bold(&title), paint.dim(of.about())));
        let mut heading = left("absolute", names);
        for figure in &figures {
            heading.push_str(&right(figure.short, COLUMN));
        }
        out.push_str(&format!("{}\n", paint.dim(&heading)));
        let write =
            |out: &mut String, line: &Line<'_>, cells: &[Option<f64>], of: fn(f64) -> String| {
                let mut text = left(&cut(&plain(&line.candidate.name), names), names);
                for cell in cells {
                    let cell = cell.map_or_else(|| "–".to_owned(), of);
                    text.push_str(&right(&cell, COLUMN));
                }
                let dim = line.candidate.role == Role::Control;
                out.push_str(&if dim { paint.dim(&text) } else { text });
                out.push('\n');
            };
        for line in &lines {
            write(out, line, &line.absolute, of.write());
        }
        out.push_str(&format!(
            "{}\n",
            paint.dim(&format!("relative to {}", plain(&report.baseline)))
        ));
        for line in &lines {
            if let Some(relative) = &line.relative {
                write(out, line, relative, |value| ratio(Ratio::new(value)));
            }
        }
    }
}

/// What the short headings mean.
pub(super) const KEY: &str = "per operation: cpu/q is the CPU time of the system under \
     test per query in µs, with what a server does in the background between its slices; usr/q and \
     sys/q that of its slices in user mode and in the kernel; cs/q and pf/q its context \
     switches and page faults; rd/q and wr/q bytes from and to storage; client the load \
     generator's own CPU time in µs, and busy the percentage of its CPUs that it used. QPS, cpu/q \
     and cs/q are compared slice by slice, the others as a whole.";
