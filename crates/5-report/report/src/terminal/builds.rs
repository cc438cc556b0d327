//! Compiled builds: what compilers recorded, and differences between command lines.

use super::paint::{Paint, cut, left, plain, right, width, wrap};
use super::table;
use crate::builds::{Audited, Property, audited, files, relative, signed, unmatched};
use crate::model::Report;
use crate::words::{NO_COMMON_FILE, SAME_FLAGS, build_remarks};
use dbdyno_units::Bytes;

/// Number of kinds of differences per candidate; the HTML page lists all.
const MAX_KINDS: usize = 4;

/// Maximum width of a candidate's name.
const NAME: usize = 24;

/// Render a row per build and the differences between command lines. Properties that are the same
/// for all builds are listed below the table.
pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    let builds = audited(report);
    if builds.is_empty() {
        return;
    }
    let (same, differing): (Vec<Property>, Vec<Property>) =
        Property::ALL.into_iter().partition(|property| is_same(*property, &builds));
    properties(out, &builds, &differing, room, paint);
    let mut notes: Vec<String> = Vec::new();
    if let [first, ..] = &builds[..] {
        notes.push(in_all(first, &same, builds.len()));
    }
    for build in &builds {
        notes.extend(exceptions(build));
    }
    for note in notes {
        for (number, line) in wrap(&plain(&note), room.saturating_sub(2).max(40)).iter().enumerate()
        {
            let indent = if number == 0 { "" } else { "  " };
            out.push_str(&format!("{}\n", paint.dim(&format!("{indent}{line}"))));
        }
    }
    command_lines(out, report, &builds, room, paint);
}

fn is_same(property: Property, builds: &[Audited<'_>]) -> bool {
    let mut values = builds.iter().map(|build| property.of(build.audit).most);
    let first = values.next();
    values.all(|value| Some(&value) == first.as_ref())
}

fn properties(
    out: &mut String,
    builds: &[Audited<'_>],
    differing: &[Property],
    room: usize,
    paint: Paint,
) {
    let title = "builds, by what compilers recorded";
    let cells: Vec<Vec<String>> = builds
        .iter()
        .map(|build| {
            let cell = |property: &Property| {
                let value = property.of(build.audit);
                let sign = if value.rest.is_empty() { "" } else { "*" };
                format!("{}{sign}", short(*property, &value.most))
            };
            differing.iter().map(cell).collect()
        })
        .collect();
    let titles = differing.iter().map(|property| property.title());
    let heading = ["candidate"].into_iter().chain(titles).chain(["text", "stripped"]);
    let heading: Vec<String> = heading.map(str::to_owned).collect();
    let baseline = builds.first();
    let rows = builds.iter().zip(cells).enumerate().map(|(number, (build, cells))| {
        let other = baseline.filter(|_| number > 0).map(|baseline| baseline.build);
        let (text, stripped) = (Some(build.build.text_size), build.build.stripped_size);
        let size = |own: Option<Bytes>, other: Option<Bytes>| {
            let absolute = own.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string());
            relative(own, other).unwrap_or(absolute)
        };
        let name = cut(&plain(&build.candidate.name), NAME);
        let cells = cells.into_iter().map(|cell| plain(&cell));
        let sizes = [
            size(text, other.map(|other| other.text_size)),
            size(stripped, other.and_then(|other| other.stripped_size)),
        ];
        [name].into_iter().chain(cells).chain(sizes).collect()
    });
    out.push_str(&format!("\n{}\n", paint.bold(title)));
    for line in table::lines(heading, rows.collect(), 1 + differing.len(), room) {
        out.push_str(&format!("{line}\n"));
    }
}

/// The short text of a cell.
fn short(property: Property, value: &str) -> String {
    if property != Property::Hardening {
        return value.to_owned();
    }
    let words = value.split(", ").map(|word| match word {
        word if word.starts_with("stack protector") => "protector",
        word if word.starts_with("fortify") => "fortify",
        "stack clash" => "clash",
        "control flow" => "branches",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn in_all(first: &Audited<'_>, same: &[Property], builds: usize) -> String {
    let words: Vec<String> = same
        .iter()
        .filter_map(|property| {
            let most = property.of(first.audit).most;
            // Not listed if unknown for all.
            let text = match property {
                _ if most == "–" => return None,
                Property::Objects if most == "1" => "1 object".to_owned(),
                Property::Objects => format!("{most} objects"),
                Property::Optimization => format!("-{most}"),
                other => format!("{} {most}", other.title()),
            };
            Some(text)
        })
        .collect();
    match (words.is_empty(), builds) {
        (true, _) => String::new(),
        (false, 1) => words.join("; "),
        (false, _) => format!("in all: {}", words.join("; ")),
    }
}

/// Exceptions among a build's objects, ignored violations and warnings.
fn exceptions(build: &Audited<'_>) -> Vec<String> {
    let Audited { candidate, audit, .. } = build;
    let mut notes = Vec::new();
    let rest: Vec<String> = Property::ALL
        .into_iter()
        .flat_map(|property| {
            let rest = property.of(audit).rest;
            rest.into_iter().map(move |text| property.exception(&text))
        })
        .collect();
    if !rest.is_empty() {
        notes.push(format!("* {}: {}", candidate.name, rest.join("; ")));
    }
    let remarks = build_remarks(build).into_iter();
    notes.extend(remarks.map(|remark| format!("{}: {remark}", candidate.name)));
    notes
}

fn command_lines(
    out: &mut String,
    report: &Report,
    builds: &[Audited<'_>],
    room: usize,
    paint: Paint,
) {
    let compared: Vec<_> = builds
        .iter()
        .filter_map(|build| Some((build, build.audit.against_baseline.as_ref()?)))
        .collect();
    if compared.is_empty() {
        return;
    }
    let title = format!("command lines against {}", plain(&report.baseline));
    out.push_str(&format!("\n{}\n", paint.bold(&title)));
    let names = compared.iter().map(|(build, _)| width(&build.candidate.name)).max();
    let names = names.unwrap_or(0).min(24);
    for (build, lines) in compared {
        let mut label = left(&plain(&build.candidate.name), names);
        let mut add = |what: &str, words: &[String]| {
            let mut what = right(what, 11);
            for line in lines_of(words, room.saturating_sub(names + 15).max(24)) {
                out.push_str(&format!("{label}  {what}  {}\n", plain(&line)));
                label = " ".repeat(names);
                what = " ".repeat(11);
            }
        };
        if lines.same > 0 {
            add(&files(lines.same), &[SAME_FLAGS.to_owned()]);
        }
        for kind in lines.kinds.iter().take(MAX_KINDS) {
            let flags = signed(kind).into_iter().map(|(sign, flag)| format!("{sign} {flag}"));
            add(&files(kind.files), &flags.collect::<Vec<_>>());
        }
        if lines.kinds.len() > MAX_KINDS {
            let rest = lines.kinds.len() - MAX_KINDS;
            let count = lines.kinds.iter().skip(MAX_KINDS).map(|kind| kind.files).sum();
            let kinds = if rest == 1 { "kind" } else { "kinds" };
            add(&files(count), &[format!("{rest} more {kinds} of difference: see report.html")]);
        }
        if let Some(text) = unmatched(lines.only_here, lines.only_in_baseline) {
            add("", &[text]);
        }
        if lines.compared == 0 {
            add("", &[NO_COMMON_FILE.to_owned()]);
        }
    }
}

/// Wrap words; a flag stays on the line of its sign.
fn lines_of(words: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if width(line) + 2 + width(word) <= columns => {
                line.push_str("  ");
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}
