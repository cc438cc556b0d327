//! Short names of candidates for tables, if their own ones are too long: those of a matrix have all
//! settings in their names.

use std::collections::BTreeMap;

use super::layout::Layout;
use super::paint::{Paint, break_name, cut, plain, width, wrap};
use crate::metric::Metric;
use crate::model::{Report, Role};
use crate::words::letter;

/// Maximum number of lines of a name in a heading.
const LINES: usize = 3;

/// Characters at which a name or a part of it may be cut.
const SEPARATORS: &[char] = &['.', '-', '_', ' '];

/// The candidates' names in tables.
pub(super) struct ShortNames {
    /// Pairs of a candidate's name and its short name, in the report's order.
    names: Vec<(String, String)>,
}

impl ShortNames {
    /// `None` if the names fit into tables of this width.
    pub(super) fn of(report: &Report, room: usize) -> Option<Self> {
        let columns = Layout::choose(report, Metric::Qps, room).cell.columns();
        let fit = |names: &[&str]| {
            let lines = |name: &&str| break_name(&plain(name), columns).len();
            let mut cuts: Vec<String> =
                names.iter().map(|name| cut(&plain(name), super::LONGEST_NAME)).collect();
            cuts.sort_unstable();
            let are_different = cuts.windows(2).all(|pair| pair[0] != pair[1]);
            are_different && names.iter().all(|name| lines(name) <= LINES)
        };
        let named = report.candidates.iter().filter(|one| one.role != Role::Control);
        let names: Vec<&str> = named.map(|one| one.name.as_str()).collect();
        if fit(&names) {
            return None;
        }
        let mut short = without_common_parts(&names);
        // Values may be as long as names.
        if !fit(&short.iter().map(String::as_str).collect::<Vec<_>>()) {
            short = (0..names.len()).map(letter).collect();
        }
        let names = names.into_iter().map(str::to_owned).zip(short).collect();
        Some(Self { names })
    }

    /// The report with short names.
    pub(super) fn apply(&self, report: &Report) -> Report {
        let short = |name: &mut String| {
            if let Some((_, short)) = self.names.iter().find(|(long, _)| long == name) {
                name.clone_from(short);
            }
        };
        let mut renamed = report.clone();
        short(&mut renamed.baseline);
        renamed.candidates.iter_mut().for_each(|one| short(&mut one.name));
        let rows = renamed.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows);
        rows.for_each(|one| short(&mut one.candidate));
        let groups = renamed.groups.iter_mut().chain(&mut renamed.three_groups);
        groups.for_each(|one| short(&mut one.candidate));
        renamed.counter_groups.iter_mut().for_each(|one| short(&mut one.candidate));
        renamed.scaling.iter_mut().for_each(|one| short(&mut one.candidate));
        renamed.failures.iter_mut().for_each(|one| short(&mut one.candidate));
        renamed.optimizations.iter_mut().for_each(|one| short(&mut one.candidate));
        renamed
    }

    /// The legend.
    pub(super) fn legend(&self, out: &mut String, room: usize, paint: Paint) {
        out.push_str(&format!("\n{}\n", paint.bold("names in tables")));
        let columns = self.names.iter().map(|(_, short)| width(short)).max().unwrap_or(0);
        for (long, short) in &self.names {
            let mut label = format!("  {:<columns$}  ", plain(short));
            for line in wrap(&plain(long), room.saturating_sub(columns + 4)) {
                out.push_str(&format!("{label}{line}\n"));
                label = " ".repeat(columns + 4);
            }
        }
    }
}

/// The names without what those have in common that begin with the same part, up to the first dot:
/// `maria.doublewrite-ON.flush_neighbors-0` is `ON.0`, or `maria.ON.0` beside names that begin
/// otherwise. All full names if a short one would be empty or not unique.
fn without_common_parts(names: &[&str]) -> Vec<String> {
    let start = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let mut families: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        families.entry(start(name)).or_default().push(name);
    }
    let are_single = families.values().all(|family| family.len() == 1);
    let short = |name: &&str| -> String {
        if are_single {
            return distinct(name, names);
        }
        let first = start(name);
        let family = &families[&first];
        let own = distinct(name, family);
        match (family.len(), families.len()) {
            (1, _) => (*name).to_owned(),
            (_, 1) => own,
            _ => format!("{first}.{own}"),
        }
    };
    let short: Vec<String> = names.iter().map(short).collect();
    let mut sorted = short.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let is_valid = sorted.len() == names.len() && !sorted.iter().any(String::is_empty);
    if is_valid { short } else { names.iter().map(|&name| name.to_owned()).collect() }
}

/// The parts of `name` that differ in `names`: of each part between dots if all have as many, of the
/// whole names otherwise.
fn distinct(name: &str, names: &[&str]) -> String {
    let parts = |name: &'_ str| -> Vec<String> { name.split('.').map(str::to_owned).collect() };
    let own = parts(name);
    if names.iter().any(|other| parts(other).len() != own.len()) {
        return without_common_ends(name, names).to_owned();
    }
    let differing = own.iter().enumerate().filter_map(|(at, part)| {
        let others: Vec<String> = names.iter().map(|other| parts(other)[at].clone()).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let differs = others.iter().any(|other| other != part);
        differs.then(|| without_common_ends(part, &others).to_owned())
    });
    differing.collect::<Vec<String>>().join(".")
}

/// The name without the start and the end that all names have, as far as these end at separators.
fn without_common_ends<'a>(name: &'a str, names: &[&str]) -> &'a str {
    let starts = name.match_indices(SEPARATORS).map(|(at, separator)| at + separator.len());
    let start = starts
        .filter(|at| names.iter().all(|other| other.starts_with(&name[..*at])))
        .max()
        .unwrap_or(0);
    let ends = name.match_indices(SEPARATORS).map(|(at, _)| at);
    let end = ends
        .filter(|at| *at > start)
        .filter(|at| {
            names.iter().all(|other| other[start.min(other.len())..].ends_with(&name[*at..]))
        })
        .min()
        .unwrap_or(name.len());
    &name[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::terminal::{TerminalOptions, render};

    /// The sample with other names of candidates.
    fn named(names: &[&str]) -> Report {
        let report = sample::report_of(&["scan_range=100", "insert_range=100"]);
        let old = report.candidates.iter().map(|one| one.name.clone());
        let names = old.zip(names.iter().map(|&name| name.to_owned())).collect();
        let mut report = ShortNames { names }.apply(&report);
        sample::refresh(&mut report);
        report
    }

    fn draw(report: &Report) -> String {
        let options =
            TerminalOptions { width: 80, color: false, three_groups: false, details: true };
        render(report, &options)
    }

    #[test]
    fn long_names_are_short_in_tables_and_full_in_the_key_results() {
        let report = named(&[
            "maria.doublewrite-ON.flush_neighbors-0",
            "maria.doublewrite-ON.flush_neighbors-1",
            "maria.doublewrite-OFF.flush_neighbors-0",
            "maria.doublewrite-OFF.flush_neighbors-1",
        ]);
        let text = draw(&report);
        let (start, key_results) = text.split_once("\nkey results").unwrap();
        let (_, tables) = start.split_once("\nnames in tables\n").unwrap();
        let (legend, tables) = tables.split_once("\n\n").unwrap();
        assert_eq!(
            legend,
            "  ON.0   maria.doublewrite-ON.flush_neighbors-0\n  \
             ON.1   maria.doublewrite-ON.flush_neighbors-1\n  \
             OFF.0  maria.doublewrite-OFF.flush_neighbors-0\n  \
             OFF.1  maria.doublewrite-OFF.flush_neighbors-1"
        );
        assert!(!tables.contains("doublewrite"), "{tables}");
        assert!(key_results.contains("maria.doublewrite-OFF.flush_neighbors-1"), "{key_results}");
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
    }

    #[test]
    fn names_without_a_short_form_become_letters() {
        let text = draw(&named(&[
            "one-with-a-long-name-that-is-its-own",
            "another-with-no-common-part-at-all",
        ]));
        assert!(text.contains("  A  one-with-a-long-name-that-is-its-own\n"), "{text}");
        assert!(!draw(&named(&["one", "other"])).contains("names in tables"));
    }

    #[test]
    fn names_of_a_matrix_become_its_values() {
        let names = [
            "maria.doublewrite-ON.flush_neighbors-0",
            "maria.doublewrite-ON.flush_neighbors-1",
            "maria.doublewrite-OFF.flush_neighbors-0",
            "maria.doublewrite-OFF.flush_neighbors-1",
        ];
        assert_eq!(without_common_parts(&names), ["ON.0", "ON.1", "OFF.0", "OFF.1"]);
        let with_another = [&names[..2], &["postgresql"]].concat();
        assert_eq!(without_common_parts(&with_another), ["maria.0", "maria.1", "postgresql"]);
    }

    #[test]
    fn common_ends_are_cut_at_separators() {
        let names = ["mariadb-pool-128-mb-debian", "mariadb-pool-1280-mb-debian"];
        assert_eq!(without_common_parts(&names), ["128", "1280"]);
        let prefixes = ["server", "server-tuned"];
        assert_eq!(without_common_parts(&prefixes), prefixes);
        // The common end overlaps the common start.
        assert_eq!(without_common_parts(&["a-b-a-b", "a-b"]), ["b-a-b", "b"]);
    }

    #[test]
    fn letters_follow_the_alphabet() {
        assert_eq!([0, 25, 26, 27].map(letter), ["A", "Z", "A2", "B2"]);
    }
}
