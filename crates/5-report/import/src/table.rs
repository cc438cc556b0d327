//! Published tables: a column per candidate, a line per microbenchmark.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use dbdyno_units::counted;

use crate::ImportError;
use crate::parse::{FORMATS, Value, at_line, in_file};

const COLUMNS_HELP: &str = "a line has a value per candidate, `-` if it is missing, and the heading a name per candidate, \
     besides maybe one such as `test` for the microbenchmarks; remove other columns, such as ratios";

/// What stands between the fields of a table.
#[derive(Clone, Copy)]
enum Separator {
    Tab,
    /// Of CSV; a field may be in quotes.
    Char(char),
    /// Of Markdown: also before the first field and behind the last one.
    Pipe,
}

impl Separator {
    fn of(text: &str) -> Self {
        let is_table = |line: &str| !line.is_empty() && !line.starts_with('#');
        let first = text.lines().map(str::trim).find(|line| is_table(line)).unwrap_or_default();
        if text.lines().any(is_rule) {
            Self::Pipe
        } else if text.contains('\t') {
            Self::Tab
        } else {
            [',', ';'].into_iter().find(|c| first.contains(*c)).map_or(Self::Tab, Self::Char)
        }
    }

    fn fields(self, line: &str) -> Vec<&str> {
        match self {
            Self::Tab => line.split('\t').map(str::trim).collect(),
            Self::Char(separator) => {
                let mut is_quoted = false;
                let mut ends = |c: char| {
                    is_quoted ^= c == '"';
                    c == separator && !is_quoted
                };
                let fields = line.split(|c: char| ends(c)).map(str::trim);
                fields.map(|field| field.trim_matches('"').trim()).collect()
            }
            Self::Pipe => {
                let line = line.trim();
                let line = line.strip_prefix('|').unwrap_or(line);
                let line = line.strip_suffix('|').unwrap_or(line);
                line.split('|').map(|field| field.trim().trim_matches(['*', '`'])).collect()
            }
        }
    }
}

/// Whether the line is the rule below the heading of a Markdown table.
fn is_rule(line: &str) -> bool {
    line.contains('|') && line.contains("--") && line.chars().all(|c| "|-: \t".contains(c))
}

/// The heading that applies to the next line.
struct Heading<'t> {
    fields: Vec<&'t str>,
    /// The candidates, and until the first line of values maybe a name for the column of microbenchmarks.
    columns: Vec<String>,
    is_new: bool,
}

/// Names for the column of microbenchmarks.
const LABELS: [&str; 8] =
    ["", "test", "tests", "microbenchmark", "benchmark", "workload", "query", "name"];

/// Headings of columns that are no candidates.
const FIGURES: &str = "tps qps latency lat avg p50 p95 p99 min max threads clients errors \
                       reconnects time ratio";

/// The values of a table.
///
/// ```text
/// col-1 : name of the first
/// col-2 : name of the second
///
/// col-1   col-2
/// 17000   16538   point-query_range=100
/// ```
///
/// Without a legend, the heading contains the names. The microbenchmark is in the first or the last column.
pub(crate) fn table(path: &Path, text: &str, clients: u32) -> Result<Vec<Value>, ImportError> {
    let wrong = |line: usize, what: String| at_line(path, line, &what, FORMATS);
    let separator = Separator::of(text);
    let mut legend: HashMap<&str, &str> = HashMap::new();
    let mut heading: Option<Heading<'_>> = None;
    let mut values = Vec::new();
    let mut after_blank = false;
    let is_skipped = |text: &str| {
        text.trim().is_empty()
            || text.starts_with('#')
            || matches!(separator, Separator::Pipe) && (!text.contains('|') || is_rule(text))
    };
    let mut lines = (1..).zip(text.lines().map(str::trim_end)).peekable();
    while let Some((line, text)) = lines.next() {
        if is_skipped(text) {
            after_blank |= text.trim().is_empty();
            continue;
        }
        if let Some((column, name)) = text.split_once(':')
            && column.trim().starts_with("col-")
        {
            legend.insert(column.trim(), name.trim());
            continue;
        }
        let fields = separator.fields(text);
        let after_blank = std::mem::take(&mut after_blank);
        let Some((name, numbers)) = name_and_numbers(&fields, heading.is_some()) else {
            let all_missing = heading.is_some() && are_missing(&fields);
            if all_missing || fields.iter().any(|field| number(field).is_some()) {
                return Err(wrong(line, format!("`{text}` has no microbenchmark's name")));
            }
            if let Some(field) = fields.iter().find(|field| has_separators(field)) {
                return Err(wrong(line, format!("`{field}` is not a throughput")));
            }
            let inner = fields
                .iter()
                .enumerate()
                .filter(|(at, field)| !field.is_empty() || (*at > 0 && at + 1 < fields.len()));
            let mut names = inner.map(|(_, field)| *field);
            while lines.next_if(|(_, text)| is_skipped(text)).is_some() {}
            let next = lines.peek().map_or(0, |(_, text)| separator.fields(text).len());
            let is_heading = names.all(|name| !is_missing(name))
                && heading.as_ref().is_none_or(|before| {
                    let ends = [fields[0], fields[fields.len() - 1]].map(str::to_lowercase);
                    let unknown = |field: &&&str| !legend.contains_key(**field);
                    fields == before.fields
                        || ends.iter().any(|end| LABELS.contains(&end.as_str()))
                        || fields.len() > 1 && fields.iter().filter(unknown).count() <= 1
                        || (after_blank || before.is_new) && next == fields.len() + 1
                });
            if !is_heading {
                return Err(wrong(line, format!("`{text}` has no throughput")));
            }
            let is_figure = |field: &&&str| {
                let lower = field.to_lowercase();
                FIGURES.split(' ').any(|figure| figure == lower)
            };
            if let Some(figure) = fields.iter().find(is_figure) {
                let what = format!("the column `{figure}` is not a candidate");
                return Err(at_line(path, line, &what, COLUMNS_HELP));
            }
            let named = |field: &&str| (*legend.get(*field).unwrap_or(field)).to_owned();
            let columns: Vec<String> = fields.iter().map(named).collect();
            if let Some(twice) = twice(&columns) {
                return Err(wrong(line, format!("two columns are called `{twice}`")));
            }
            heading = Some(Heading { fields, columns, is_new: true });
            continue;
        };
        let Some(Heading { fields: names, columns, is_new }) = &mut heading else {
            return Err(wrong(line, "there are values before any heading".to_owned()));
        };
        // The heading may contain a name for the column of microbenchmarks.
        if std::mem::take(is_new) {
            let last = columns.len() - 1;
            let (own, other) = if fields[0] == name { (0, last) } else { (last, 0) };
            let is_label =
                |at: usize| last > 0 && LABELS.contains(&names[at].to_lowercase().as_str());
            let has_label = columns.len() == fields.len();
            if has_label && !is_label(own) && is_label(other) && number(fields[other]).is_some() {
                let what = format!("`{name}` is not below `{}`, its heading", names[other]);
                return Err(wrong(line, what));
            }
            if has_label || is_label(own) {
                columns.remove(own);
            }
        }
        if numbers.len() != columns.len() {
            let [found, expected] = [numbers.len(), columns.len()].map(|count| count as u64);
            let what = format!("{} for {}", counted(found, "value"), counted(expected, "column"));
            return Err(at_line(path, line, &what, COLUMNS_HELP));
        }
        for (column, field) in columns.iter().zip(numbers) {
            let throughput = number(field).filter(|value| *value >= 0.0);
            if throughput.is_none() && !is_missing(field) {
                // The name of the microbenchmark is the last field or the first.
                let is_word = field.contains(char::is_alphabetic);
                let may_be_name = is_word && std::ptr::eq(field, &fields[0]);
                let either = match may_be_name && name == fields[fields.len() - 1] {
                    true => format!(", or `{name}` is not: one of them is the microbenchmark"),
                    false => String::new(),
                };
                return Err(wrong(line, format!("`{field}` is not a throughput{either}")));
            }
            let word = field.contains(char::is_alphabetic) && throughput.is_none();
            values.push(Value {
                file: path.to_owned(),
                line,
                candidate: column.clone(),
                microbenchmark: name.to_owned(),
                clients,
                throughput,
                word: word.then(|| (*field).to_owned()),
                ..Value::default()
            });
        }
    }
    if values.iter().all(|value| value.throughput.is_none()) {
        return Err(in_file(path, "it has no values", FORMATS));
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

/// Words for a value that was not measured, beside fields without letters and digits such as `---`.
const MISSING: &str = "na, n/a, n.a., n.a, #n/a, nan, -nan, inf, +inf, -inf, infinity, null, nil, none, \
     fail, failed, failure, error, err, timeout, timed out, crash, crashed, oom, killed, \
     abort, aborted, skip, skipped, missing, unknown, dnf, tbd";

/// Whether the field stands for a value that was not measured.
fn is_missing(field: &str) -> bool {
    let lower = field.to_lowercase();
    !field.contains(char::is_alphanumeric) || MISSING.split(", ").any(|word| word == lower)
}

/// Whether the fields of a line stand for values of which none was measured. A single empty field may
/// be the heading of the column of microbenchmarks.
fn are_missing(fields: &[&str]) -> bool {
    !matches!(fields, [] | [""]) && fields.iter().all(|field| is_missing(field))
}

fn twice(columns: &[String]) -> Option<&String> {
    let mut known = HashSet::new();
    columns.iter().find(|name| !known.insert(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String, f64)> {
        let values = table(Path::new("t.tsv"), text, 1).unwrap();
        let present = values
            .into_iter()
            .filter_map(|value| Some((value.candidate, value.microbenchmark, value.throughput?)));
        present.collect()
    }

    fn error(text: &str) -> String {
        table(Path::new("t.tsv"), text, 1).unwrap_err().to_string()
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
    fn label_of_microbenchmarks_is_not_a_candidate_with_any_number_of_values() {
        for (text, values) in [
            ("test,old,new\na,100,110,1.10\n", "3 values"),
            ("Test\told\tnew\na\t100\t110\t1.10\n", "3 values"),
            ("old;new;test\n100;110;1.10;a\n", "3 values"),
            ("| | old | new |\n|---|---|---|\n| a | 100 | 110 | 1.10 |\n", "3 values"),
            ("test,old,new\na,100\n", "1 value"),
        ] {
            let message = error(text);
            let expected = format!(": {values} for 2 columns; a line has a value per");
            assert!(message.contains(&expected), "{message}");
        }
        let message = error("test,old,new\n100,110,a\n");
        assert!(message.contains("t.tsv:2: `a` is not below `test`, its heading;"), "{message}");
        assert!(
            error("test,old,ratio\na,1,2\n").contains("`ratio` is not a candidate; a line has")
        );
        let expected = [row("base", "a", 10.0), row("test", "a", 12.0)];
        for text in [
            "base\ttest\tname\n10\t12\ta\n",
            "col-1 : base\ncol-2 : test\ncol-1\tcol-2\n10\t12\ta\n",
            "case,base,test,\na,10,12,\n",
            "base,test\na,10,12\n",
        ] {
            assert_eq!(values(text), expected, "{text}");
        }
        assert_eq!(values("test\n10\ta\n"), [row("test", "a", 10.0)]);
    }

    #[test]
    fn line_without_any_value_is_no_heading() {
        let expected = [row("old", "a", 10.0), row("new", "a", 12.0), row("new", "c", 3.0)];
        assert_eq!(values("old\tnew\n-\t-\tb\n10\t12\ta\n\tNA\tb\n-\t3\tc\n"), expected);
        assert_eq!(values("test\told\tnew\nb\t-\t–\na\t10\t12\nb\t-\t-\nc\t-\t3\n"), expected);
        assert!(error("old\tnew\n1\t2\ta\n-\tb\n").contains("t.tsv:3: 1 value for 2 columns"));
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
        let message = error("test,old,new\na,1,2\nfoo,1,x\n");
        assert!(
            message.contains("`foo` is not a throughput, or `x` is not: one of them"),
            "{message}"
        );
        for field in ["1,234", "1'234.5", "12 345", "1_234_567"] {
            let message = error(&format!("old\tnew\n1\t2\ta\n{field}\t{field}\tb\n"));
            assert!(
                message.contains(&format!("t.tsv:3: `{field}` is not a throughput")),
                "{message}"
            );
        }
        for name in ["1", "a,234", "10.5", "10.5_001", "1234_567", "1,23"] {
            assert!(!has_separators(name), "{name}");
        }
    }

    #[test]
    fn errors_have_a_line_number() {
        assert!(error("old\tnew\n1\t2\ta\n1\tb\n").contains("t.tsv:3: 1 value for 2 columns"));
        assert!(error("1\t2\ta\n").contains("t.tsv:1: there are values before any heading"));
        assert!(error("old\tnew\n1\t2\n").contains("t.tsv:2: `1\t2` has no microbenchmark's name"));
        assert!(error("old\tnew\n-\t-\n").contains("t.tsv:2: `-\t-` has no microbenchmark's name"));
        assert!(error("old\tnew\n1\tx2\ta\n").contains("t.tsv:2: `x2` is not a throughput"));
        assert!(error("old\tnew\n1\t-2\ta\n").contains("t.tsv:2: `-2` is not a throughput"));
        assert!(error("old\told\n1\t2\ta\n").contains("two columns are called `old`"));
        assert!(error("\n").contains("has no values"));
    }

    #[test]
    fn words_instead_of_values_are_missing_or_an_error_and_never_a_heading() {
        let expected = [row("my80", "b", 100.0), row("my84", "b", 110.0)];
        for words in [
            "FAILED\ttimeout",
            "nan\tinf",
            "crash\tcrash",
            "---\t...",
            "N.A.\t?",
            "-\tnull",
            "\tError",
        ] {
            for text in [
                format!("test\tmy80\tmy84\na\t{words}\nb\t100\t110\n"),
                format!("my80\tmy84\n{words}\ta\n100\t110\tb\n"),
                format!("test\tmy80\tmy84\nb\t100\t110\n\na\t{words}\n"),
            ] {
                assert_eq!(values(&text), expected, "{text}");
            }
        }
        assert_eq!(values("test\tmy80\na\t---\nb\t100\n"), [row("my80", "b", 100.0)]);
        for text in [
            "test\tmy80\tmy84\na\tbroken\tgone\nb\t100\t110\n",
            "my80\tmy84\nbroken\tgone\ta\n100\t110\tb\n",
            "my80\tmy84\n\nbroken\tgone\ta\n100\t110\tb\n",
            "my80\tmy84\n90\t95\tc\n\nbroken\tgone\ta\n100\t110\tb\n",
            "test\tmy80\nb\t1\na\tFAILED (exit 1)\n",
            "test\tmy80\nb\t1\na\t1.2k\n",
        ] {
            let message = error(text);
            assert!(message.contains("` has no throughput;"), "{text}: {message}");
        }
        assert!(error("a\tFAILED\ttimeout\nb\t1\t2\n").contains("t.tsv:1: "));
        assert!(error("my80\tmy84\n-\tFAILED\nb\t1\t2\n").contains("t.tsv:2: "));
    }

    #[test]
    fn heading_may_follow_a_title_or_a_blank_line() {
        let expected = [row("old", "a", 1.0), row("new", "a", 2.0), row("third", "a", 3.0)];
        assert_eq!(values("Results\nold\tnew\n1\t2\ta\n\nthird\n3\ta\n"), expected);
        let repeated = "old\tnew\n1\t2\ta\nold\tnew\n3\t4\tb\n";
        assert_eq!(values(repeated).len(), 4);
    }

    #[test]
    fn csv_and_markdown_are_tables() {
        let expected = [row("PS 8.0", "a", 1000.0), row("MySQL", "a", 990.5)];
        for text in [
            "test,PS 8.0,MySQL\na,1000,990.5\n",
            "\"test\";\"PS 8.0\";\"MySQL\"\n\"a\";1000;990.5\n",
            "## Today\n\nOf all:\n\n| | PS 8.0 | MySQL |\n|---|--:|---|\n| `a` | 1000 | **990.5** |\n",
        ] {
            assert_eq!(values(text), expected, "{text}");
        }
        for text in [
            "threads,tps,qps,p95\n1,100.5,2010,10.1\n",
            "| threads | PS 8.0 |\n|---|---|\n| 1 | 1000 |\n",
        ] {
            let message = error(text);
            assert!(message.contains("`threads` is not a candidate"), "{message}");
        }
        assert!(error("test,a\nx,\"1,234\"\n").contains("t.tsv:2: `1,234` is not a throughput"));
    }
}
