//! A sweep: key results by group and number of clients, and results with more clients relative to
//! those with fewer.

use dbdyno_units::{Qps, Ratio};

use super::paint::{Paint, cut, plain, width, wrap};
use super::{LONGEST_NAME, table};
use crate::figures::{plus_minus, ratio};
use crate::metric::{Grouping, Metric, compared};
use crate::model::{Estimate, Report, Role, ScalingRow, Verdict};
use crate::scaling::{
    KEY, NOT_INTERLEAVED, PLUS_MINUS, by_group, is_any_not_interleaved, known_metrics,
};

/// Width of a ratio with its sign and the space before it.
const RATIO: usize = 9;

/// Render the medians of each group: a row per group and candidate, a column per number of clients.
pub(super) fn key_results(
    out: &mut String,
    report: &Report,
    grouping: Grouping,
    room: usize,
    paint: Paint,
) {
    if !report.is_sweep() {
        return;
    }
    for metric in [Metric::Qps, Metric::Cpu].into_iter().filter(|one| one.is_known(report)) {
        let summaries = metric.summaries(report, grouping);
        let groups: Vec<&str> = grouping.groups(&report.microbenchmarks).into_keys().collect();
        let mut rows = Vec::new();
        for group in groups {
            for candidate in compared(report) {
                let of = |clients| {
                    let mut all = summaries.iter();
                    let found = all.find(|one| {
                        (one.group.as_str(), one.clients, &one.candidate)
                            == (group, clients, &candidate.name)
                    })?;
                    Some((found.median, metric.verdict_of_group(report, found)))
                };
                let cells = report.clients().into_iter().map(|clients| median(of(clients)));
                rows.push(Row {
                    group: group.to_owned(),
                    name: candidate.name.clone(),
                    role: candidate.role,
                    cells: cells.collect(),
                });
            }
        }
        let about = format!("{}, {}", metric.title(), metric.better());
        let titles = report.clients().iter().map(u32::to_string).collect();
        let title = ("key results by number of clients", about.as_str());
        matrix(out, title, "candidate", (titles, rows), room, paint);
    }
}

/// Render results with more clients relative to those with fewer, by group.
pub(super) fn scaling(
    out: &mut String,
    report: &Report,
    grouping: Grouping,
    room: usize,
    paint: Paint,
) {
    if report.scaling.is_empty() {
        return;
    }
    let medians = by_group(report, grouping);
    let clients = report.clients();
    let mut rows = Vec::new();
    for of_one in medians.chunk_by(|a, b| (a.group, a.candidate) == (b.group, b.candidate)) {
        let first = &of_one[0];
        for (what, _, of) in known_metrics(&medians) {
            let at = |clients: &u32| of_one.iter().find(|one| one.clients == *clients).and_then(of);
            let cells = clients.iter().skip(1).map(|clients| median(at(clients))).collect();
            rows.push(Row {
                group: first.group.to_owned(),
                name: format!("{} {what}", cut(&plain(first.candidate), LONGEST_NAME - 4)),
                role: first.role,
                cells,
            });
        }
    }
    let titles = clients.windows(2).map(|pair| format!("{} : {}", pair[1], pair[0])).collect();
    let title = ("more clients against fewer", "medians of the groups");
    matrix(out, title, "candidate", (titles, rows), room, paint);
    for line in wrap(KEY, room) {
        out.push_str(&format!("{}\n", paint.dim(&line)));
    }
}

/// Render the same by microbenchmark, with intervals: a row per candidate and number of clients.
pub(super) fn steps(out: &mut String, report: &Report, room: usize, paint: Paint) {
    for rows in report.scaling.chunk_by(|a, b| a.microbenchmark == b.microbenchmark) {
        let title = plain(&rows[0].microbenchmark);
        let about = "  relative to the next smaller number of clients";
        out.push_str(&format!("\n{}{}\n", paint.bold(&title), paint.dim(about)));
        let heading = ["candidate", "clients", "QPS", "relative QPS", "p99", "relative p99"];
        let cells = rows.iter().enumerate().map(|(number, row)| {
            let repeated = number > 0 && rows[number - 1].candidate == row.candidate;
            step(row, repeated)
        });
        let heading = heading.map(str::to_owned).to_vec();
        let lines = table::lines(heading, cells.collect(), 1, room);
        out.push_str(&format!("{}\n", paint.dim(&lines[0])));
        for (line, row) in lines[1..].iter().zip(rows) {
            let dim = row.role == Role::Control;
            out.push_str(&format!("{}\n", if dim { paint.dim(line) } else { line.clone() }));
        }
    }
    if report.scaling.is_empty() {
        return;
    }
    let turns = is_any_not_interleaved(report).then_some(NOT_INTERLEAVED);
    for line in [PLUS_MINUS].into_iter().chain(turns).flat_map(|note| wrap(note, room)) {
        out.push_str(&format!("{}\n", paint.dim(&line)));
    }
}

fn step(row: &ScalingRow, repeated: bool) -> Vec<String> {
    let name = if repeated { String::new() } else { cut(&plain(&row.candidate), LONGEST_NAME) };
    let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let ratio_cell = |estimate: Option<Estimate>, verdict: Verdict| match estimate {
        Some(one) => format!("{}{} {:>5}", ratio(one.median), verdict.sign(), of_ratio(one)),
        None if verdict == Verdict::Failed => format!("fail {}", verdict.sign()),
        None => format!("few {}", verdict.sign()),
    };
    let to = row.to_previous.as_ref();
    let turns = if to.is_some_and(|to| !to.interleaved) { "*" } else { "" };
    vec![
        name,
        format!("{}{turns}", row.clients),
        known(row.qps.map(|qps: Qps| qps.to_string())),
        to.map_or_else(String::new, |to| ratio_cell(to.relative_qps, to.verdict)),
        known(row.p99.map(|p99| p99.to_string())),
        to.map_or_else(String::new, |to| match row.p99 {
            Some(_) => ratio_cell(to.relative_p99, to.p99_verdict),
            None => "–".to_owned(),
        }),
    ]
}

/// ± the distance to the farther end of the interval, in percent of the ratio.
fn of_ratio(estimate: Estimate) -> String {
    let share = |end: Ratio| Ratio::new(end.get() / estimate.median.get());
    let [low, high] = [share(estimate.low), share(estimate.high)];
    plus_minus(Estimate { median: Ratio::ONE, low, high, ..estimate })
}

struct Row {
    group: String,
    name: String,
    role: Role,
    cells: Vec<String>,
}

/// A matrix with a row per group and name. Columns that do not fit are in further tables.
fn matrix(
    out: &mut String,
    (title, about): (&str, &str),
    name: &str,
    (titles, rows): (Vec<String>, Vec<Row>),
    room: usize,
    paint: Paint,
) {
    let names = rows.iter().map(|row| width(&row.name)).max().unwrap_or(0).min(LONGEST_NAME);
    let groups = rows.iter().map(|row| width(&row.group)).max().unwrap_or(0);
    let fitting = room.saturating_sub(names + groups + 4) / RATIO;
    let columns: Vec<usize> = (0..titles.len()).collect();
    out.push_str(&format!("\n{}  {}\n", paint.bold(title), paint.dim(about)));
    for columns in columns.chunks(fitting.max(1)) {
        let heading = ["group", name].into_iter().map(str::to_owned);
        // The sign follows the ratio: a title ends above the ratio.
        let heading =
            heading.chain(columns.iter().map(|at| format!("{}  ", titles[*at]))).collect();
        let mut before = "";
        let mut cells = Vec::new();
        for row in &rows {
            let group = if before == row.group { String::new() } else { plain(&row.group) };
            before = &row.group;
            let labels = [group, cut(&plain(&row.name), LONGEST_NAME)];
            let values = columns.iter().map(|at| row.cells[*at].clone());
            cells.push(labels.into_iter().chain(values).collect());
        }
        let mut lines = table::lines(heading, cells, 2, room).into_iter();
        out.push_str(&format!("{}\n", paint.dim(&lines.next().unwrap_or_default())));
        for (line, row) in lines.zip(&rows) {
            let dim = row.role == Role::Control;
            out.push_str(&format!("{}\n", if dim { paint.dim(&line) } else { line }));
        }
    }
}

fn median(median: Option<(Ratio, Verdict)>) -> String {
    median.map_or_else(
        || "–  ".to_owned(),
        |(value, verdict)| format!("{} {}", ratio(value), verdict.sign()),
    )
}
