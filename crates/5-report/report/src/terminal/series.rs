//! Series of candidates: candidates down, groups across, then the largest changes.

use super::paint::{Paint, plain, width, wrap};
use super::table;
use crate::figures::percent_change;
use crate::metric::{clients, with_clients};
use crate::model::{Report, Series, SeriesGroup};
use crate::series::{KEY, LISTED, difference, interval};

pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    for series in &report.series {
        for count in report.clients() {
            let groups: Vec<&SeriesGroup> =
                series.groups.iter().filter(|group| group.clients == count).collect();
            let of = match report.is_sweep() {
                true => format!("  {}, QPS, {}", plain(&series.name), clients(count)),
                false => format!("  {}, QPS", plain(&series.name)),
            };
            out.push_str(&format!("\n{}{}\n", paint.bold("series"), paint.dim(&of)));
            add(out, groups_table(series, &groups, room), paint);
        }
        out.push_str(&format!("\n{}\n", paint.bold("changes")));
        let listed = series.listed();
        if !listed.is_empty() {
            add(out, changes_table(report, series, room), paint);
        }
        let mut about = series.about_changes(report);
        if listed.len() > LISTED {
            about.push_str(" changes.csv has all.");
        }
        for line in wrap(&about, room) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
    }
    if !report.series.is_empty() {
        for line in wrap(KEY, room) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
    }
}

/// Adds a table with a rule below its heading.
fn add(out: &mut String, lines: Vec<String>, paint: Paint) {
    let mut lines = lines.into_iter();
    let heading = lines.next().unwrap_or_default();
    let rule = "─".repeat(width(&heading));
    out.push_str(&format!("{heading}\n{}\n", paint.dim(&rule)));
    for line in lines {
        out.push_str(&format!("{line}\n"));
    }
}

fn groups_table(series: &Series, groups: &[&SeriesGroup], room: usize) -> Vec<String> {
    let heading = std::iter::once("candidate".to_owned())
        .chain(groups.iter().map(|group| group.group.clone()))
        .collect();
    let names = series.short_names().into_iter().enumerate();
    let rows = names.map(|(number, name)| {
        let cells = groups.iter().map(|group| {
            group.points[number].map_or_else(|| "–".to_owned(), |point| percent_change(point.ratio))
        });
        std::iter::once(name).chain(cells).collect()
    });
    table::lines(heading, rows.collect(), 1, room)
}

fn changes_table(report: &Report, series: &Series, room: usize) -> Vec<String> {
    let heading = ["microbenchmark", "from", "to", "QPS", "95% interval"].map(str::to_owned);
    let names = series.short_names();
    let short = |name: &String| {
        let at = series.candidates.iter().position(|one| one == name);
        at.map_or_else(|| name.clone(), |at| names[at].clone())
    };
    let rows = series.listed().into_iter().take(LISTED).map(|change| {
        let microbenchmark =
            with_clients(&change.microbenchmark, change.clients, report.is_sweep());
        let (from, to) = (short(&change.from), short(&change.to));
        vec![microbenchmark, from, to, difference(change), interval(change)]
    });
    table::lines(heading.into(), rows.collect(), 3, room)
}
