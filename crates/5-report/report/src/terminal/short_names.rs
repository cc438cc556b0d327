//! Short names of candidates for tables, if their own ones are too long: those of a matrix have all
//! settings in their names.

use super::layout::Layout;
use crate::metric::Metric;
use crate::model::{Report, Role};
use crate::sections::{LONGEST_NAME, Section};
use dbdyno_text::{Fact, Facts, break_name, cut, plain};

/// Maximum number of lines of a name in a heading.
const LINES: usize = 3;

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
                names.iter().map(|name| cut(&plain(name), LONGEST_NAME)).collect();
            cuts.sort_unstable();
            let are_different = cuts.windows(2).all(|pair| pair[0] != pair[1]);
            are_different && names.iter().all(|name| lines(name) <= LINES)
        };
        let named = report.candidates.iter().filter(|one| one.role != Role::Control);
        let names: Vec<&str> = named.map(|one| one.name.as_str()).collect();
        let short = dbdyno_text::short_names(&names, fit)?;
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

    /// What the short names are.
    pub(super) fn legend(&self) -> Section {
        let mut section = Section::new("names", "names in tables");
        let names = self.names.iter().map(|(long, short)| Fact::new(short, long));
        section.push(Facts::new(names).indent(2));
        section
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_text::width;

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
}
