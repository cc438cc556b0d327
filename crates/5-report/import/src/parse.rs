//! Parsers of what is imported: published tables, and the summary that sysbench 1.0 and later print at the
//! end of a run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dbdyno_types::Latencies;
use dbdyno_units::Nanos;

use crate::ImportError;

#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) file: PathBuf,
    pub(crate) candidate: String,
    pub(crate) microbenchmark: String,
    pub(crate) clients: u32,
    /// Its number among the values of its candidate, microbenchmark and number of clients, in the order of
    /// the files. It pairs the values of candidates.
    pub(crate) block: u32,
    /// In the unit of its source; `None` where a table has none.
    pub(crate) throughput: Option<f64>,
    pub(crate) measure: Measure,
}

/// Numbers the values of each candidate, and removes missing ones: a value that a table has no
/// figure for must not shift the pairs after it.
pub(crate) fn number_blocks(values: &mut Vec<Value>) {
    let mut next: HashMap<(String, String, u32), u32> = HashMap::new();
    for value in values.iter_mut() {
        let of = (value.candidate.clone(), value.microbenchmark.clone(), value.clients);
        let block = next.entry(of).or_default();
        value.block = *block;
        *block += 1;
    }
    values.retain(|value| value.throughput.is_some());
}

/// Data other than the throughput.
#[derive(Clone, Debug)]
pub(crate) enum Measure {
    /// None. Throughput is in the published unit: millions of rows for scans.
    Table,
    /// The summary printed by sysbench. Throughput is in statements per second.
    Sysbench(Box<Sysbench>),
}

/// The summary printed by sysbench.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sysbench {
    pub(crate) queries: u64,
    pub(crate) transactions: u64,
    pub(crate) transactions_per_second: f64,
    /// Statements that failed with an expected error, such as a deadlock, and were repeated.
    pub(crate) ignored_errors: u64,
    pub(crate) reconnects: u64,
    pub(crate) time: Nanos,
    pub(crate) events: u64,
    /// Response times in milliseconds, with sysbench's labels: min, avg, max, 95th percentile.
    pub(crate) latency: Vec<(String, f64)>,
    /// From the histogram; empty if it was not printed.
    pub(crate) latencies: Latencies,
}

fn in_file(path: &Path, what: &str, help: &str) -> ImportError {
    ImportError::Input(format!("{}: {what}; {help}", path.display()))
}

fn at_line(path: &Path, line: usize, what: &str, help: &str) -> ImportError {
    ImportError::Input(format!("{}:{line}: {what}; {help}", path.display()))
}

/// The values of a file, and the text to keep of it. Tables do not contain the number of clients.
pub(crate) fn parse(
    path: &Path,
    content: &str,
    clients: u32,
) -> Result<(Vec<Value>, String), ImportError> {
    if is_output(content) {
        let values = sysbench(path, content)?;
        let text = values.iter().map(describe).collect();
        Ok((values, text))
    } else {
        Ok((table(path, content, clients)?, content.to_owned()))
    }
}

const SYSBENCH_HELP: &str = "give the whole output of `sysbench … run`, of version 1.0 or later";

/// Whether the text is sysbench output, as opposed to a table.
fn is_output(text: &str) -> bool {
    text.contains("SQL statistics:") || text.lines().any(|line| line.starts_with("sysbench 1."))
}

/// The values of a file; several if it contains several outputs.
fn sysbench(path: &Path, text: &str) -> Result<Vec<Value>, ImportError> {
    let (candidate, microbenchmark) = names_of(path)?;
    let mut outputs: Vec<Output> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(threads) = text.strip_prefix("Number of threads:") {
            outputs.push(Output { threads: threads.trim().parse().ok(), ..Output::default() });
        } else if let Some(output) = outputs.last_mut() {
            output.line(text).map_err(|what| at_line(path, line, &what, SYSBENCH_HELP))?;
        }
    }
    let wrong = |what: &str| in_file(path, what, SYSBENCH_HELP);
    if outputs.is_empty() {
        return Err(wrong("it does not say its number of threads"));
    }
    let value = |output: Output| {
        let clients =
            output.threads.ok_or_else(|| wrong("its number of threads is not a number"))?;
        let throughput = output
            .queries_per_second
            .filter(|_| output.found.queries > 0)
            .ok_or_else(|| wrong("it counts no queries: the run did not come to its end"))?;
        Ok(Value {
            file: path.to_owned(),
            candidate: candidate.clone(),
            microbenchmark: microbenchmark.clone(),
            clients,
            block: 0,
            throughput: Some(throughput),
            measure: Measure::Sysbench(Box::new(output.whole())),
        })
    };
    outputs.into_iter().map(value).collect()
}

/// A one-line description of a value.
fn describe(value: &Value) -> String {
    let (Measure::Sysbench(found), Some(throughput)) = (&value.measure, value.throughput) else {
        return String::new();
    };
    let latency: Vec<String> =
        found.latency.iter().map(|(label, millis)| format!("{label} {millis} ms")).collect();
    format!(
        "  {}, {}, {} threads: {} queries/s, {} transactions/s, {} ignored errors, \
         {} reconnects, {}\n",
        value.candidate,
        value.microbenchmark,
        value.clients,
        throughput,
        found.transactions_per_second,
        found.ignored_errors,
        found.reconnects,
        latency.join(", ")
    )
}

/// Parse `CANDIDATE.MICROBENCHMARK.txt`. Names of microbenchmarks contain dots, those of candidates
/// do not. A number before the suffix, as in `….2.txt`, distinguishes repeated runs.
fn names_of(path: &Path) -> Result<(String, String), ImportError> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let stem = match stem.rsplit_once('.') {
        Some((before, number))
            if before.contains('.') && number.chars().all(|c| c.is_ascii_digit()) =>
        {
            before
        }
        _ => stem,
    };
    match stem.split_once('.') {
        Some((candidate, microbenchmark))
            if !candidate.is_empty() && !microbenchmark.is_empty() =>
        {
            Ok((candidate.to_owned(), microbenchmark.to_owned()))
        }
        _ => Err(in_file(
            path,
            "its name does not say what was measured",
            "call it CANDIDATE.MICROBENCHMARK.txt",
        )),
    }
}

/// The parsed part of an output.
#[derive(Default)]
struct Output {
    threads: Option<u32>,
    queries_per_second: Option<f64>,
    found: Sysbench,
    in_latency: bool,
    in_histogram: bool,
    histogram: Vec<(u64, u64)>,
}

impl Output {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with("Latency histogram") {
            self.in_histogram = true;
            return Ok(());
        }
        if self.in_histogram {
            if let Some((value, rest)) = line.split_once('|') {
                let count = rest.trim_start_matches('*').trim();
                let millis: f64 = number_of("a latency", value.trim())?;
                self.histogram.push((nanos(millis), number_of("a count", count)?));
                return Ok(());
            }
            self.in_histogram = line.contains("distribution");
            return Ok(());
        }
        let Some((label, value)) = line.trim().split_once(':') else { return Ok(()) };
        let value = value.trim();
        let found = &mut self.found;
        match label {
            "queries" => {
                let (count, rate) = count_and_rate(value)?;
                (found.queries, self.queries_per_second) = (count, Some(rate));
            }
            "transactions" => {
                (found.transactions, found.transactions_per_second) = count_and_rate(value)?;
            }
            "ignored errors" => found.ignored_errors = count_and_rate(value)?.0,
            "reconnects" => found.reconnects = count_and_rate(value)?.0,
            "total time" => {
                found.time =
                    Nanos::from_secs_f64(number_of("a time", value.trim_end_matches('s'))?);
            }
            "total number of events" => found.events = number_of("a count", value)?,
            "Latency (ms)" => self.in_latency = true,
            "Threads fairness" => self.in_latency = false,
            "sum" => {}
            _ if self.in_latency => {
                found.latency.push((label.to_owned(), number_of("a latency", value)?));
            }
            _ => {}
        }
        Ok(())
    }

    fn whole(self) -> Sysbench {
        Sysbench { latencies: Latencies::new(self.histogram), ..self.found }
    }
}

/// `33584  (16767.81 per sec.)`
fn count_and_rate(text: &str) -> Result<(u64, f64), String> {
    let inside = text.split_once('(').and_then(|(count, rate)| {
        Some((count.trim(), rate.trim_end().strip_suffix("per sec.)")?.trim()))
    });
    let (count, rate) =
        inside.ok_or_else(|| format!("`{text}` is not a count with a rate per second"))?;
    Ok((number_of("a count", count)?, number_of("a rate", rate)?))
}

fn number_of<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

fn nanos(millis: f64) -> u64 {
    (millis * 1e6).round() as u64
}

const TABLE_HELP: &str = "a table has a heading with a name per column, and lines with a throughput per \
     column and the microbenchmark's name, separated by tabs";

/// The values of a table: a column per candidate, a line per microbenchmark.
///
/// ```text
/// col-1 : name of the first
/// col-2 : name of the second
///
/// col-1   col-2
/// 17000   16538   point-query_range=100
/// ```
///
/// Fields are separated by tabs. Without a legend, the heading contains the names. The
/// microbenchmark is in the first or the last column.
fn table(path: &Path, text: &str, clients: u32) -> Result<Vec<Value>, ImportError> {
    let wrong = |line: usize, what: String| at_line(path, line, &what, TABLE_HELP);
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
                return Err(wrong(line, format!("`{field}` is not a throughput")));
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
                return Err(wrong(line, format!("`{field}` is not a throughput")));
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
        return Err(in_file(path, "it has no values", TABLE_HELP));
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

    const READ_ONLY: &str = include_str!("../tests/data/ten_six.read-only_range=100.txt");
    const POINT: &str = include_str!("../tests/data/ten_six.point-query_range=100.txt");

    fn sources(path: &str, text: &str) -> Result<Vec<Value>, ImportError> {
        sysbench(Path::new(path), text)
    }

    fn found(value: &Value) -> &Sysbench {
        let Measure::Sysbench(found) = &value.measure else { panic!("{value:?}") };
        found
    }

    #[test]
    fn all_printed_values_are_parsed() {
        let values = sources("dir/ten_six.read-only_range=100.txt", READ_ONLY).unwrap();
        assert_eq!(values.len(), 1);
        let value = &values[0];
        assert_eq!((value.candidate.as_str(), value.clients), ("ten_six", 2));
        assert_eq!(value.microbenchmark, "read-only_range=100");
        assert_eq!(value.throughput, Some(16_767.81));
        let found = found(value);
        assert_eq!((found.queries, found.transactions, found.events), (33_584, 2_099, 2_099));
        assert_eq!(found.transactions_per_second, 1_047.99);
        assert_eq!(found.time, Nanos::from_micros(2_002_400));
        assert_eq!((found.ignored_errors, found.reconnects), (0, 0));
        let latency: Vec<(&str, f64)> =
            found.latency.iter().map(|(label, millis)| (label.as_str(), *millis)).collect();
        assert_eq!(
            latency,
            [("min", 0.5), ("avg", 1.9), ("max", 12.27), ("95th percentile", 3.82)]
        );
        assert!(found.latencies.counts().is_empty());
    }

    #[test]
    fn histogram_contains_every_event() {
        let values = sources("ten_six.point-query_range=100.txt", POINT).unwrap();
        let found = found(&values[0]);
        let events: u64 = found.latencies.counts().iter().map(|(_, count)| count).sum();
        assert_eq!((events, found.events), (56_303, 56_303));
        let longest = found.latencies.counts().iter().map(|(nanos, _)| *nanos).max();
        assert_eq!(longest, Some(8_130_000));
    }

    #[test]
    fn appended_outputs_are_repeats() {
        let twice = format!("{READ_ONLY}\n{}", READ_ONLY.replace("16767.81", "16000.00"));
        let values = sources("a.b.txt", &twice).unwrap();
        let throughputs: Vec<f64> = values.iter().filter_map(|value| value.throughput).collect();
        assert_eq!(throughputs, [16_767.81, 16_000.0]);
    }

    #[test]
    fn file_name_determines_candidate_and_microbenchmark() {
        let names = |name: &str| names_of(Path::new(name)).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(names("x/innodb.oltp_read_only.txt"), pair("innodb", "oltp_read_only"));
        assert_eq!(
            names("my.random-points.pre_range=10.txt"),
            pair("my", "random-points.pre_range=10")
        );
        assert_eq!(names("my.oltp_insert.12.txt"), pair("my", "oltp_insert"));
        let error = names_of(Path::new("out.txt")).unwrap_err().to_string();
        assert!(error.ends_with("call it CANDIDATE.MICROBENCHMARK.txt"), "{error}");
    }

    #[test]
    fn truncated_output_is_an_error() {
        let (begin, _) = READ_ONLY.split_once("SQL statistics:").unwrap();
        assert!(is_output(begin));
        let error = sources("a.b.txt", begin).unwrap_err().to_string();
        assert!(error.contains("did not come to its end"), "{error}");
        let odd = READ_ONLY.replace("33584  (", "many  (");
        let error = sources("a.b.txt", &odd).unwrap_err().to_string();
        assert!(error.contains("a.b.txt:22: `many` is not a count"), "{error}");
    }

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
        assert!(error("old\tnew\n1\t2\ta\n1\tb\n").contains("t.tsv:3: 1 values for 2 columns"));
        assert!(error("1\t2\ta\n").contains("t.tsv:1: there are values before any heading"));
        assert!(error("old\tnew\n1\t2\n").contains("t.tsv:2: `1\t2` has no microbenchmark's name"));
        assert!(error("old\tnew\n-\t-\n").contains("t.tsv:2: `-\t-` has no microbenchmark's name"));
        assert!(error("old\tnew\n1\tx2\ta\n").contains("t.tsv:2: `x2` is not a throughput"));
        assert!(error("old\tnew\n1\t-2\ta\n").contains("t.tsv:2: `-2` is not a throughput"));
        assert!(error("old\told\n1\t2\ta\n").contains("two columns are called `old`"));
        assert!(error("\n").contains("has no values"));
    }
}
