//! Percentiles of response times: a table per microbenchmark, absolute and relative.

use super::group_table::Group;
use super::paint::{Paint, cut, plain, width};
use super::table;
use crate::figures::{plus_minus, ratio};
use crate::metric::{clients, response_times};
use crate::model::{Percentile, RelativePercentile, Report, Role};

/// Maximum width of a column with the space before it.
const COLUMN: usize = 15;

/// Render the tables of a group.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    group: Group<'_>,
    room: usize,
    paint: Paint,
) {
    let longest = report.candidates.iter().map(|one| width(&one.name)).max().unwrap_or(0);
    let names = longest.min(room.saturating_sub(Percentile::ALL.len() * COLUMN)).max(9);
    for (_, microbenchmark) in group.1 {
        let lines = response_times(report, microbenchmark);
        if lines.is_empty() {
            continue;
        }
        let name = |name: &str| cut(&plain(name), names);
        let mut rows = Vec::new();
        let mut roles = Vec::new();
        for (candidate, times, _) in &lines {
            let of = Percentile::ALL.into_iter().map(|one| one.of(times).to_string());
            rows.push([name(&candidate.name)].into_iter().chain(of).collect());
            roles.push(candidate.role);
        }
        for (candidate, _, row) in &lines {
            let Some(row) = row.filter(|row| !row.response_times.is_empty()) else { continue };
            let of = Percentile::ALL.into_iter().map(|one| cell(one.relative_of(row)));
            rows.push([name(&candidate.name)].into_iter().chain(of).collect());
            roles.push(candidate.role);
        }
        let at = match report.is_sweep() {
            true => format!(", {}", clients(microbenchmark.clients)),
            false => String::new(),
        };
        let title = format!("{}{at}", plain(&microbenchmark.name));
        let about = "  response times of events";
        out.push_str(&format!("\n{}{}\n", paint.bold(&title), paint.dim(about)));
        let titles = Percentile::ALL.map(|one| one.name().to_owned());
        let heading = ["absolute".to_owned()].into_iter().chain(titles).collect();
        // A single table, so that the columns of both parts are aligned.
        let drawn = table::lines(heading, rows, 1, room);
        out.push_str(&format!("{}\n", paint.dim(&drawn[0])));
        for (number, (text, role)) in drawn[1..].iter().zip(roles).enumerate() {
            if number == lines.len() {
                let title = format!("relative to {}, below 1 is better", plain(&report.baseline));
                out.push_str(&format!("{}\n", paint.dim(&title)));
            }
            let dim = role == Role::Control;
            out.push_str(&format!("{}\n", if dim { paint.dim(text) } else { text.clone() }));
        }
    }
}

/// The ratio with the verdict's sign and the interval: `1.204- ±0.9%`.
fn cell(percentile: Option<&RelativePercentile>) -> String {
    let Some(RelativePercentile { relative, verdict, .. }) = percentile else {
        return "–".to_owned();
    };
    match relative {
        Some(estimate) => {
            format!("{}{} {}", ratio(estimate.median), verdict.sign(), plus_minus(*estimate))
        }
        None => format!("few {}", verdict.sign()),
    }
}

/// The legend.
pub(super) const KEY: &str = "response times: of an event, from sending its first statement to \
     reading its last row, over all counted slices. The intervals of their ratios are 95%, over \
     starts or parts of the run; times are recorded with a resolution of 1%.";
