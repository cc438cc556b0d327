//! Where a candidate needs another CPU time per query than the baseline: layers and functions.

use dbdyno_text::{Cell, Column, Csv, Row, Table, Tone, cut};

use super::{Output, Section, instructions};
use crate::figures::{compact, micros, number, ratio};
use crate::metric::with_clients;
use crate::model::Row as Compared;
use crate::model::{MicrobenchmarkRows, ProfileDifference, ProfileRow, Report};

/// So many functions of a candidate are shown; the table in CSV has all.
const SHOWN: usize = 15;

const LONGEST_IN_TABLE: usize = 44;

pub(crate) const KEY: &str = "profile: CPU time per query in µs, of a function without what it calls. Shares are those of \
     samples in slices of their own, scaled to the CPU time of measured slices: rows add up to it. Grey: not certain, \
     with 5% false discoveries among those that are. More time is slower work or more work: counters of the engine tell.";

/// The tables of all profiled microbenchmarks, of one candidate if it is named, and what they mean.
pub(crate) fn profiles(report: &Report, candidate: Option<&str>, output: Output) -> Section {
    let mut section = Section::new("profile", "");
    for member in &report.microbenchmarks {
        let rows =
            member.rows.iter().filter(|row| candidate.is_none_or(|one| row.candidate == one));
        let tables: Vec<Table> = rows.flat_map(|row| tables(report, row, output)).collect();
        if tables.is_empty() {
            continue;
        }
        let title = with_clients(&member.name, member.clients, report.is_sweep());
        section.title(title, "where CPU time is spent");
        tables.into_iter().for_each(|table| section.push(table));
    }
    if !section.blocks.is_empty() {
        section.note(KEY);
    }
    section
}

/// The tables of a microbenchmark on the page.
pub(crate) fn of_microbenchmark(report: &Report, member: &MicrobenchmarkRows) -> Vec<Table> {
    member.rows.iter().flat_map(|row| tables(report, row, Output::Page)).collect()
}

fn tables(report: &Report, row: &Compared, output: Output) -> Vec<Table> {
    let Some(profile) = &row.profile else { return Vec::new() };
    let ProfileDifference { layers, functions, .. } = profile;
    let of = |title: &str, rows: &[ProfileRow], most: usize| {
        let numbers = [report.baseline.as_str(), row.candidate.as_str(), "difference"];
        let numbers = numbers.map(|title| Column::number(cut(title, 14)));
        let name = Column::name(title).most(LONGEST_IN_TABLE);
        let is_counted = title == "function" && profile.instructions.is_some();
        let executed = is_counted.then(|| Column::number("instructions per query"));
        let mut table = Table::new([name].into_iter().chain(numbers).chain(executed))
            .class("facts operations")
            .caption(format!("{title} of {}", row.candidate));
        let write = if output == Output::Terminal { compact } else { micros };
        for one in rows.iter().take(most) {
            let cells = [
                Cell::text(&one.name),
                Cell::text(write(one.baseline_us)),
                Cell::text(write(one.us)),
                difference(one, write),
            ];
            let executed = is_counted.then(|| instructions::cell(profile, &one.name));
            table.push(Row::new(cells.into_iter().chain(executed)));
        }
        table
    };
    vec![of("layer", layers, usize::MAX), of("function", functions, SHOWN)]
}

fn difference(one: &ProfileRow, write: fn(f64) -> String) -> Cell {
    let sign = if one.difference() < 0.0 { "−" } else { "+" };
    let text = format!("{sign}{} ±{}", write(one.difference().abs()), write(one.half_width_us));
    let tone = match one.certain {
        false => Tone::Noise,
        true if one.difference() < 0.0 => Tone::Better,
        true => Tone::Worse,
    };
    Cell::text(text).verdict(tone, if one.certain { "certain" } else { "not certain" })
}

/// What a candidate's CPU time per query is and where the difference is, in sentences.
pub(crate) fn sentences(
    report: &Report,
    member: &MicrobenchmarkRows,
    row: &Compared,
) -> Vec<String> {
    let Some(profile) = &row.profile else { return Vec::new() };
    let total = |of: fn(&ProfileRow) -> f64| profile.layers.iter().map(of).sum::<f64>();
    let (own, base) = (total(|one| one.us), total(|one| one.baseline_us));
    let (verb, difference) = if own < base { ("less", base - own) } else { ("more", own - base) };
    let mut sentences = vec![format!(
        "{}: {} needs {} µs {verb} CPU time per query than {} ({} against {})",
        member.name,
        row.candidate,
        compact(difference),
        report.baseline,
        compact(own),
        compact(base)
    )];
    let certain = |rows: &[ProfileRow]| -> Vec<String> {
        let all = rows.iter().filter(|one| one.certain).take(3);
        let text = |one: &ProfileRow| {
            let sign = if one.difference() < 0.0 { "−" } else { "+" };
            format!("{} {sign}{} µs", one.name, compact(one.difference().abs()))
        };
        all.map(text).collect()
    };
    for (what, rows) in [("layers", &profile.layers), ("functions", &profile.functions)] {
        let named = certain(rows);
        sentences.push(match named.is_empty() {
            true => format!("no difference of {what} is certain"),
            false => format!("{what}: {}", named.join(", ")),
        });
    }
    sentences.extend(instructions::sentences(profile, [&row.candidate, &report.baseline]));
    let cost = |at: usize| profile.cost[at].map_or_else(|| "unknown".to_owned(), ratio);
    sentences.push(format!(
        "{} and {} samples; sampling cost: CPU time per query was {} and {} times that of measured slices; {} of the \
         stacks were cut",
        profile.samples[1], profile.samples[0], cost(1), cost(0), profile.cut
    ));
    sentences
}

/// One line per microbenchmark, candidate and function.
pub(crate) fn functions_csv<'r>(report: &'r Report) -> String {
    let lines = report.microbenchmarks.iter().flat_map(|of| {
        let of_row = move |row: &'r Compared| {
            let all = row.profile.iter().flat_map(|profile| {
                let layers = profile.layers.iter().map(|one| ("layer", one));
                layers.chain(profile.functions.iter().map(|one| ("function", one)))
            });
            all.map(move |(kind, one)| (of, row, kind, one))
        };
        of.rows.iter().flat_map(of_row)
    });
    Csv::of(lines)
        .column("microbenchmark", |(of, ..)| of.name.clone())
        .column("clients", |(of, ..)| of.clients.to_string())
        .column("candidate", |(_, row, ..)| row.candidate.clone())
        .column("baseline", |_| report.baseline.clone())
        .column("kind", |(_, _, kind, _)| (*kind).to_owned())
        .column("name", |(.., one)| one.name.clone())
        .column("baseline_us_per_query", |(.., one)| number(Some(one.baseline_us)))
        .column("us_per_query", |(.., one)| number(Some(one.us)))
        .column("difference_us", |(.., one)| number(Some(one.difference())))
        .column("half_width_us", |(.., one)| number(Some(one.half_width_us)))
        .column("certain", |(.., one)| one.certain.to_string())
        .column("baseline_instructions_per_query", |(_, row, kind, one)| {
            number(executed(row, kind, &one.name)[1])
        })
        .column("instructions_per_query", |(_, row, kind, one)| {
            number(executed(row, kind, &one.name)[0])
        })
        .text()
}

/// Executed instructions per query of a function, of the candidate and the baseline.
fn executed(row: &Compared, kind: &str, name: &str) -> [Option<f64>; 2] {
    let profile = row.profile.as_ref().filter(|_| kind == "function");
    profile.map(|profile| instructions::of_function(profile, name)).unwrap_or_default()
}
