//! Cost per operation and counter figures: a table per microbenchmark, absolute and relative.

use super::group_table::Group;
use super::paint::{Paint, cut, plain, width};
use super::table;
use crate::figures::{compact, ratio, tiny};
use crate::metric::clients;
use crate::model::{Report, Role};
use crate::operations::{COSTS, COUNTS, Figure, Line};
use dbdyno_units::Ratio;

/// Maximum width of a figure with the space before it.
const COLUMN: usize = 7;

/// Content of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Cost per operation.
    Costs,
    /// Counter figures.
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

/// Render the tables of a group.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    (of, group): (Of, Group<'_>),
    room: usize,
    paint: Paint,
) {
    for (_, microbenchmark) in group.1 {
        let (figures, lines) = crate::operations::table(report, microbenchmark, of.figures());
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
        let name = |line: &Line<'_>| cut(&plain(&line.candidate.name), names);
        let cells = |line: &Line<'_>, figures: &[Option<f64>], of: fn(f64) -> String| {
            let figures = figures.iter().map(|figure| figure.map_or_else(|| "–".to_owned(), of));
            [name(line)].into_iter().chain(figures).collect::<Vec<String>>()
        };
        let titles = figures.iter().map(|figure| figure.short);
        let heading = ["absolute"].into_iter().chain(titles).map(str::to_owned).collect();
        let absolute = lines.iter().map(|line| cells(line, &line.absolute, of.write()));
        let compared = lines.iter().filter(|line| line.relative.is_some());
        let relative = compared.clone().filter_map(|line| {
            Some(cells(line, line.relative.as_ref()?, |value| ratio(Ratio::new(value))))
        });
        // A single table, so that the columns of both parts are aligned.
        let drawn = table::lines(heading, absolute.chain(relative).collect(), 1, room);
        let drawn_of = lines.iter().chain(compared);
        out.push_str(&format!("{}\n", paint.dim(&drawn[0])));
        for (number, (text, line)) in drawn[1..].iter().zip(drawn_of).enumerate() {
            if number == lines.len() {
                let title = format!("relative to {}", plain(&report.baseline));
                out.push_str(&format!("{}\n", paint.dim(&title)));
            }
            let dim = line.candidate.role == Role::Control;
            out.push_str(&format!("{}\n", if dim { paint.dim(text) } else { text.clone() }));
        }
    }
}

/// The legend of the short headings.
pub(super) const KEY: &str = "per operation: cpu/q is the CPU time of the system under \
     test per query in µs, with what a server does in the background between its slices; usr/q and \
     sys/q that of its slices in user mode and in the kernel; cs/q and pf/q its context \
     switches and page faults; rd/q and wr/q bytes from and to storage; client the load \
     generator's own CPU time in µs, and busy the percentage of its CPUs that it used. QPS, cpu/q \
     and cs/q are compared slice by slice, the others as a whole.";
