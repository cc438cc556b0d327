//! The comparison as GitHub-flavoured Markdown.

use super::machines::MachineTable;
use super::{AbsoluteFigure, AbsoluteRow, Cell, Comparison, Figure, RatioRow, agreement, words};
use crate::figures::{compact, ratio};
use crate::markdown::escape::{code, plain};
use crate::markdown::sign;
use crate::markdown::table::{Align, table};
use crate::model::{GroupSummary, Verdict};

/// Render the comparison, ending with a line feed. Absolute figures of every microbenchmark only with
/// `details`, or if there are no ratios to a baseline.
#[must_use]
pub fn markdown(comparison: &Comparison, details: bool) -> String {
    let mut out = runs(comparison);
    out.push_str(&facts(comparison));
    if comparison.absolute.is_empty() {
        out.push_str(&paragraph(words::NOTHING));
    }
    if let Some(text) = words::only_in_one(comparison) {
        out.push_str(&paragraph(&text));
    }
    out.push_str(&machines(comparison));
    for candidate in comparison.relative_candidates() {
        out.push_str(&relative(comparison, candidate));
    }
    out.push_str(&absolute(comparison, details || comparison.rows.is_empty()));
    out
}

fn paragraph(text: &str) -> String {
    format!("\n{}\n", plain(text))
}

fn list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let lines: String = items.into_iter().map(|item| format!("- {}\n", plain(item))).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn runs(comparison: &Comparison) -> String {
    let titles =
        ["", "run", "directory", "started", "machine", "clients", "baseline", "noise floor"];
    let rows = comparison.columns.iter().map(|column| {
        let run = &comparison.runs[column.run];
        let words = [&run.when(), &column.machine, &column.clients.to_string(), &column.baseline];
        let mut row = vec![plain(&column.label), code(&run.name), code(&run.directory)];
        row.extend(words.map(|text| plain(text)));
        row.push(plain(&column.noise));
        row
    });
    format!(
        "## {} runs side by side\n\n{}{}",
        comparison.runs.len(),
        table(&titles.map(|title| (title, Align::Left)), rows),
        list(comparison.notes.iter().map(String::as_str))
    )
}

/// What differs between the runs.
fn facts(comparison: &Comparison) -> String {
    let facts = &comparison.facts;
    let labels: Vec<String> = comparison.runs.iter().map(|run| plain(&run.label)).collect();
    let mut heading = vec![("", Align::Left)];
    heading.extend(labels.iter().map(|label| (label.as_str(), Align::Left)));
    let mut out = String::new();
    for (title, facts) in [
        ("What differs", &facts.different),
        ("State of the machines at the start", &facts.momentary),
    ] {
        if !facts.is_empty() {
            let rows = facts.iter().map(|fact| {
                let values = fact.values.iter().map(|value| plain(value.as_deref().unwrap_or("–")));
                [plain(&fact.what)].into_iter().chain(values).collect()
            });
            out.push_str(&format!("\n### {title}\n\n{}", table(&heading, rows)));
        }
    }
    if !facts.equal.is_empty() {
        out.push_str(&paragraph(&format!("Equal: {}.", facts.equal.join("; "))));
    }
    if !facts.incomplete.is_empty() {
        let incomplete = facts.incomplete.join("; ");
        out.push_str(&paragraph(&format!("Recorded by some of the runs only: {incomplete}.")));
    }
    out
}

/// The groups on each machine, if there are several candidates, or of all shards.
fn machines(comparison: &Comparison) -> String {
    if let Some(whole) = comparison.whole() {
        return machine("All runs together: each microbenchmark is in one of them", &whole);
    }
    let mut out = String::new();
    for (index, column) in comparison.columns.iter().enumerate() {
        let table = comparison.machine(index).filter(|table| table.candidates.len() > 1);
        if let Some(table) = table {
            let directory = &comparison.runs[column.run].directory;
            out.push_str(&machine(&format!("{}: {directory}", column.label), &table));
        }
    }
    out
}

fn machine(title: &str, of: &MachineTable<'_>) -> String {
    let names: Vec<String> = of.candidates.iter().map(|name| code(name)).collect();
    let mut heading = vec![("group", Align::Left)];
    heading.extend(names.iter().map(|name| (name.as_str(), Align::Left)));
    let rows = of.groups.iter().map(|(group, cells)| {
        let cell = |cell: &Option<&GroupSummary>| match cell {
            None => "–".to_owned(),
            Some(one) => format!(
                "{} (mean {}); {} {} to {} {}",
                ratio(one.median),
                ratio(one.avg),
                code(&one.worst),
                ratio(one.min),
                code(&one.best),
                ratio(one.max)
            ),
        };
        [plain(group)].into_iter().chain(cells.iter().map(cell)).collect()
    });
    format!(
        "\n### {}\n\nRelative QPS of each group: median, mean, worst to best microbenchmark.\n\n{}",
        plain(title),
        table(&heading, rows)
    )
}

/// Ratios to the baseline of each run.
fn relative(comparison: &Comparison, candidate: &str) -> String {
    let labels: Vec<String> =
        comparison.columns.iter().map(|column| plain(&column.label)).collect();
    let columns = || labels.iter().map(|label| (label.as_str(), Align::Right));
    let mut heading = vec![("group", Align::Left)];
    heading.extend(columns());
    let summaries = comparison.summaries_of(candidate);
    let groups = summaries.iter().map(|row| {
        let medians = row.cells.iter().map(|cell| {
            cell.as_ref().map_or_else(|| "–".to_owned(), |summary| ratio(summary.median))
        });
        [plain(&row.group)].into_iter().chain(medians).collect()
    });
    let groups = match summaries.is_empty() {
        true => String::new(),
        false => format!("Medians of the groups:\n\n{}\n", table(&heading, groups)),
    };
    let mut heading = vec![("microbenchmark", Align::Left), ("group", Align::Left)];
    heading.extend(columns());
    heading.push(("runs", Align::Left));
    let rows = comparison.rows.iter().filter(|row| row.candidate == candidate);
    let rows = table(&heading, rows.map(|row| ratios(comparison, row)));
    format!(
        "\n### {}: relative QPS, above 1 is better\n{}\n{groups}Each microbenchmark; `+` better than the baseline of the same run, `-` worse, `~` within \
         noise:\n\n{rows}",
        code(candidate),
        paragraph(&words::agreement(comparison, candidate))
    )
}

fn ratios(comparison: &Comparison, row: &RatioRow) -> Vec<String> {
    let difference = match row.difference.filter(|_| row.agreement.is_difference()) {
        Some(one) => format!(": {}", agreement::describe(&one, &comparison.columns)),
        None => String::new(),
    };
    let cell = |cell: &Option<Cell>| match cell {
        None => "–".to_owned(),
        Some(Cell { ratio: Some(value), verdict, .. }) => {
            format!("{} {}", ratio(*value), sign(*verdict))
        }
        Some(Cell { verdict, .. }) => plain(verdict.name()),
    };
    let mut cells = vec![code(&row.microbenchmark), plain(&row.group)];
    cells.extend(row.cells.iter().map(cell));
    cells.push(plain(&format!("{}{difference}", row.agreement.words())));
    cells
}

fn absolute(comparison: &Comparison, tables: bool) -> String {
    if comparison.changes.is_empty() {
        return match comparison.absolute.is_empty() {
            true => String::new(),
            false => paragraph(words::NO_COUNTERPART),
        };
    }
    let mut out = format!("\n### Absolute figures\n{}", paragraph(words::CAUTION));
    for sentence in words::drift(comparison) {
        out.push_str(&paragraph(&sentence));
    }
    let changes: Vec<String> =
        comparison.changes.iter().map(|change| words::change(comparison, change)).collect();
    out.push_str(&list(changes.iter().map(String::as_str)));
    if !tables {
        return out;
    }
    out.push_str(&paragraph(words::CHANGE_KEY));
    for candidate in comparison.absolute_candidates() {
        for figure in AbsoluteFigure::ALL {
            out.push_str(&figures(comparison, candidate, figure));
        }
    }
    out
}

/// Nothing if no column has the figure.
fn figures(comparison: &Comparison, candidate: &str, figure: AbsoluteFigure) -> String {
    let of = |row: &AbsoluteRow, column: usize| {
        row.cells[column].as_ref().and_then(|cell| cell.figure(figure).copied())
    };
    let columns = 0..comparison.columns.len();
    let rows: Vec<&AbsoluteRow> = comparison
        .absolute
        .iter()
        .filter(|row| row.candidate == candidate)
        .filter(|row| columns.clone().any(|column| of(row, column).is_some()))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let label = |column: usize| plain(&comparison.columns[column].label);
    let compared = comparison.compared_columns();
    let mut titles: Vec<String> = columns.clone().map(label).collect();
    titles.extend(compared.iter().map(|(b, a)| format!("{}/{}", label(*b), label(*a))));
    let mut heading = vec![("microbenchmark", Align::Left)];
    heading.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let rows = rows.into_iter().map(|row| {
        let unit = match (figure, row.throughput_unit.as_str()) {
            (AbsoluteFigure::Qps, unit) if unit.contains("rows") => format!(" ({})", plain(unit)),
            _ => String::new(),
        };
        let mut cells = vec![format!("{}{unit}", code(&row.microbenchmark))];
        cells.extend(columns.clone().map(|column| value(of(row, column))));
        cells.extend(compared.iter().map(|(column, _)| quotient(of(row, *column))));
        cells
    });
    format!("\n#### {}: {}\n\n{}", code(candidate), figure.title(), table(&heading, rows))
}

/// `51.2k (50.9k to 51.6k)`
fn value(figure: Option<Figure>) -> String {
    let Some(Figure { value, interval, .. }) = figure else { return "–".to_owned() };
    let interval = interval.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {})", compact(low), compact(high))
    });
    format!("{}{interval}", compact(value))
}

/// `0.982 - (0.975 to 0.990)`
fn quotient(figure: Option<Figure>) -> String {
    let Some(change) = figure.and_then(|figure| figure.change) else { return "–".to_owned() };
    let ends = change.quotient.map_or_else(String::new, |quotient| {
        format!(" ({} to {})", ratio(quotient.low), ratio(quotient.high))
    });
    let verdict: Verdict = change.verdict;
    format!("{} {}{ends}", ratio(change.ratio), sign(verdict))
}
