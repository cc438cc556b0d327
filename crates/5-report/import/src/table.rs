//! Published tables: a column per candidate, a line per microbenchmark.
//!
//! ```text
//! col-1 : name of the first
//! col-2 : name of the second
//!
//! col-1   col-2
//! 17000   16538   point-query_range=100
//! ```
//!
//! Fields are separated by tabs. Without a legend, the heading contains the names. The
//! microbenchmark is in the first or the last column.

use std::path::Path;

use crate::error::ImportError;
use crate::value::{Measure, Value};

const HELP: &str = "a table has a heading with a name per column, and lines with a throughput per \
     column and the microbenchmark's name, separated by tabs";

/// The values of a table.
pub(crate) fn read(path: &Path, text: &str, clients: u32) -> Result<Vec<Value>, ImportError> {
    let wrong = |line: usize, what: String| ImportError::Line {
        path: path.to_owned(),
        line,
        what,
        help: HELP,
    };
    let mut legend: Vec<(&str, &str)> = Vec::new();
    let mut heading: Option<Vec<String>> = None;
    // Whether no line has followed the heading yet.
    let mut is_new = false;
    let mut values = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim_end();
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some((column, name)) = text.split_once(':')
            && column.trim().starts_with("col-")
        {
            legend.push((column.trim(), name.trim()));
            continue;
        }
        let fields: Vec<&str> = text.split('\t').map(str::trim).collect();
        let Some((name, numbers)) = name_and_numbers(&fields, heading.is_some()) else {
            let all_missing = heading.is_some() && are_missing(&fields);
            if all_missing || fields.iter().any(|field| number(field).is_some()) {
                return Err(wrong(line, format!("`{text}` has no microbenchmark's name")));
            }
            if let Some(field) = fields.iter().find(|field| has_separators(field)) {
                return Err(wrong(line, format!("`{field}` is no throughput")));
            }
            let named = |field: &&str| {
                let found = legend.iter().rev().find(|(column, _)| column == field);
                found.map_or(*field, |(_, name)| *name).to_owned()
            };
            let columns: Vec<String> = fields.iter().map(named).collect();
            if let Some(twice) = twice(&columns) {
                return Err(wrong(line, format!("two columns are called `{twice}`")));
            }
            (heading, is_new) = (Some(columns), true);
            continue;
        };
        let Some(columns) = &mut heading else {
            return Err(wrong(line, "there are values before any heading".to_owned()));
        };
        // The heading may contain a name for the column of microbenchmarks.
        if columns.len() == fields.len() && is_new {
            let own = if fields[0] == name { 0 } else { columns.len() - 1 };
            columns.remove(own);
        }
        is_new = false;
        if numbers.len() != columns.len() {
            let (found, wanted) = (numbers.len(), columns.len());
            return Err(wrong(line, format!("{found} values for {wanted} columns")));
        }
        for (column, field) in columns.iter().zip(numbers) {
            let throughput = number(field).filter(|value| *value >= 0.0);
            if throughput.is_none() && !is_missing(field) {
                return Err(wrong(line, format!("`{field}` is no throughput")));
            }
            values.push(Value {
                file: path.to_owned(),
                candidate: column.clone(),
                microbenchmark: name.to_owned(),
                clients,
                block: 0,
                throughput,
                measure: Measure::Table,
            });
        }
    }
    if values.iter().all(|value| value.throughput.is_none()) {
        return Err(ImportError::File {
            path: path.to_owned(),
            what: "it holds no values".to_owned(),
            help: HELP,
        });
    }
    Ok(values)
}

/// A line's microbenchmark and values; `None` for a heading, and for a line without a name. After a
/// heading, a line may have no value at all: `-\t-\tname`.
fn name_and_numbers<'a, 'f>(
    fields: &'f [&'a str],
    after_heading: bool,
) -> Option<(&'a str, &'f [&'a str])> {
    let is_value = |field: &&str| number(field).is_some() || is_missing(field);
    let (last, before) = fields.split_last()?;
    let (first, behind) = fields.split_first()?;
    let holds_values = |fields: &[&str]| {
        fields.iter().any(|field| number(field).is_some()) || after_heading && are_missing(fields)
    };
    if !is_value(last) && holds_values(before) {
        Some((last, before))
    } else if !is_value(first) && holds_values(behind) {
        Some((first, behind))
    } else {
        None
    }
}

fn number(field: &str) -> Option<f64> {
    field.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Whether the field is a number whose thousands are separated: `1,234.5`.
fn has_separators(field: &str) -> bool {
    let whole = field.split_once('.').map_or(field, |(whole, _)| whole);
    let mut groups = whole.split([',', '\'', ' ', '_']);
    let are_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let first = groups.next().unwrap_or_default();
    let rest: Vec<&str> = groups.collect();
    (1..=3).contains(&first.len())
        && are_digits(first)
        && !rest.is_empty()
        && rest.iter().all(|group| group.len() == 3 && are_digits(group))
}

/// Whether the field stands for a value that was not measured.
fn is_missing(field: &str) -> bool {
    field.is_empty() || ["-", "–", "NA", "N/A"].contains(&field)
}

/// Whether the fields of a line stand for values of which none was measured. A single empty field may
/// be the heading of the column of microbenchmarks.
fn are_missing(fields: &[&str]) -> bool {
    !matches!(fields, [] | [""]) && fields.iter().all(|field| is_missing(field))
}

fn twice(columns: &[String]) -> Option<&String> {
    let (at, _) = columns.iter().enumerate().find(|(at, name)| columns[..*at].contains(name))?;
    columns.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String, f64)> {
        let values = read(Path::new("t.tsv"), text, 1).unwrap();
        let present = values
            .into_iter()
            .filter_map(|value| Some((value.candidate, value.microbenchmark, value.throughput?)));
        present.collect()
    }

    fn error(text: &str) -> String {
        read(Path::new("t.tsv"), text, 1).unwrap_err().to_string()
    }

    fn row(candidate: &str, microbenchmark: &str, value: f64) -> (String, String, f64) {
        (candidate.to_owned(), microbenchmark.to_owned(), value)
    }

    #[test]
    fn legend_names_the_columns() {
        let text = "col-1 : old\ncol-2 : new\n\ncol-1\tcol-2\n10\t12.5\ta\n-\t3\tb\n";
        assert_eq!(
            values(text),
            [row("old", "a", 10.0), row("new", "a", 12.5), row("new", "b", 3.0)]
        );
    }

    #[test]
    fn heading_names_the_columns_and_microbenchmarks_may_be_first() {
        let expected = [row("old", "a", 10.0), row("new", "a", 12.0)];
        assert_eq!(values("old\tnew\n10\t12\ta\n"), expected);
        assert_eq!(values("test\told\tnew\na\t10\t12\n"), expected);
        assert_eq!(values("old\tnew\ttest\n10\t12\ta\n"), expected);
    }

    #[test]
    fn line_without_any_value_is_no_heading() {
        let expected = [row("old", "a", 10.0), row("new", "a", 12.0), row("new", "c", 3.0)];
        assert_eq!(values("old\tnew\n-\t-\tb\n10\t12\ta\n\tNA\tb\n-\t3\tc\n"), expected);
        assert_eq!(values("test\told\tnew\nb\t-\t–\na\t10\t12\nb\t-\t-\nc\t-\t3\n"), expected);
        assert!(error("old\tnew\n1\t2\ta\n-\tb\n").contains("t.tsv:3: 1 values for 2 columns"));
    }

    #[test]
    fn every_block_of_a_table_may_have_a_heading() {
        let expected = [row("old", "a", 10.0), row("new", "a", 12.0), row("third", "a", 9.0)];
        assert_eq!(values("test\told\tnew\na\t10\t12\n\ntest\tthird\na\t9\n"), expected);
        assert_eq!(values("old\tnew\ttest\n10\t12\ta\n\nthird\ttest\n9\ta\n"), expected);
        assert_eq!(values("\told\tnew\na\t10\t12\n\n\tthird\na\t9\n"), expected);
    }

    #[test]
    fn every_block_of_a_table_may_have_a_legend() {
        let text = "col-1 : old\ncol-2 : new\ncol-1\tcol-2\n10\t12\ta\n\n\
                    col-1 : third\ncol-1\tcol-2\n9\t11\ta\n";
        let expected = [("old", 10.0), ("new", 12.0), ("third", 9.0), ("new", 11.0)];
        assert_eq!(values(text), expected.map(|(candidate, value)| row(candidate, "a", value)));
    }

    #[test]
    fn numbers_with_separators_are_no_heading() {
        for field in ["1,234", "1'234.5", "12 345", "1_234_567"] {
            let message = error(&format!("old\tnew\n1\t2\ta\n{field}\t{field}\tb\n"));
            assert!(message.contains(&format!("t.tsv:3: `{field}` is no throughput")), "{message}");
        }
        for name in ["1", "a,234", "10.5", "10.5_001", "1234_567", "1,23"] {
            assert!(!has_separators(name), "{name}");
        }
    }

    #[test]
    fn errors_have_a_line_number() {
        assert!(error("old\tnew\n1\t2\ta\n1\tb\n").contains("t.tsv:3: 1 values for 2 columns"));
        assert!(error("1\t2\ta\n").contains("t.tsv:1: there are values before any heading"));
        assert!(error("old\tnew\n1\t2\n").contains("t.tsv:2: `1\t2` has no microbenchmark's name"));
        assert!(error("old\tnew\n-\t-\n").contains("t.tsv:2: `-\t-` has no microbenchmark's name"));
        assert!(error("old\tnew\n1\tx2\ta\n").contains("t.tsv:2: `x2` is no throughput"));
        assert!(error("old\tnew\n1\t-2\ta\n").contains("t.tsv:2: `-2` is no throughput"));
        assert!(error("old\told\n1\t2\ta\n").contains("two columns are called `old`"));
        assert!(error("\n").contains("holds no values"));
    }
}
