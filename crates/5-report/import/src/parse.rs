//! The values of an imported file: of a [table](crate::table), or of the summaries that [pgbench](crate::pgbench)
//! and sysbench print at the end of a run.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use dbdyno_types::Latencies;
use dbdyno_units::Nanos;

use crate::pgbench::{is_pgbench, pgbench};
use crate::table::table;
use crate::{ImportError, SYSBENCH};

#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    pub(crate) file: PathBuf,
    /// Of the file: its line in a table, or the first line of an output.
    pub(crate) line: usize,
    pub(crate) candidate: String,
    pub(crate) microbenchmark: String,
    pub(crate) clients: u32,
    /// Its number among the values of its candidate, microbenchmark and number of clients, in the order of
    /// the files. It pairs the values of candidates.
    pub(crate) block: u32,
    /// Statements per second of sysbench, transactions per second of pgbench; in tables the published unit, millions
    /// of rows for scans. `None` where a table has none.
    pub(crate) throughput: Option<f64>,
    /// The word that a table has in its place.
    pub(crate) word: Option<String>,
    /// `None` in tables, which contain nothing but throughput.
    pub(crate) summary: Option<Box<Summary>>,
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

/// The summary that sysbench or pgbench prints.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    /// Those that throughput counts.
    pub(crate) queries: u64,
    /// Queries by kind: reads, writes, others.
    pub(crate) kinds: [u64; 3],
    /// The script that a line before sysbench's output names, such as `./oltp_insert.sh`, without its directory
    /// and suffix; the transaction type of pgbench.
    pub(crate) script: Option<String>,
    pub(crate) transactions: u64,
    pub(crate) transactions_per_second: f64,
    /// Statements that failed with an expected error, such as a deadlock, and were repeated.
    pub(crate) ignored_errors: u64,
    pub(crate) reconnects: u64,
    pub(crate) time: Nanos,
    pub(crate) events: u64,
    /// Response times in milliseconds, with the program's labels: min, avg, max, 95th percentile, a statement.
    pub(crate) latency: Vec<(String, f64)>,
    /// Transactions per second of the reports during the run.
    pub(crate) progress: Vec<f64>,
    /// From the histogram; empty if it was not printed.
    pub(crate) latencies: Latencies,
}

pub(crate) fn in_file(path: &Path, what: &str, help: &str) -> ImportError {
    ImportError::Input(format!("{}: {what}; {help}", path.display()))
}

pub(crate) fn at_line(path: &Path, line: usize, what: &str, help: &str) -> ImportError {
    ImportError::Input(format!("{}:{line}: {what}; {help}", path.display()))
}

/// The values of a file, and the text to keep of it. Tables do not contain the number of clients, and no
/// output contains its candidate, which is that of the file's name, or else `directory`.
pub(crate) fn parse(
    path: &Path,
    content: &str,
    clients: u32,
    directory: Option<&str>,
) -> Result<(Vec<Value>, String), ImportError> {
    let outputs = if is_pgbench(content) {
        Some(pgbench(path, content, directory)?)
    } else if is_output(content) {
        Some(sysbench(path, content, directory)?)
    } else {
        None
    };
    if let Some(values) = outputs {
        let text = values.iter().map(describe).collect();
        return Ok((values, text));
    }
    if let Some(format) = other_format(content) {
        return Err(in_file(path, &format!("it is {format}"), FORMATS));
    }
    let mut values = table(path, content, clients)?;
    for value in values.iter_mut().filter(|_| directory.is_some()) {
        value.candidate = format!("{}.{}", directory.unwrap_or_default(), value.candidate);
    }
    Ok((values, content.to_owned()))
}

/// What can be imported.
pub(crate) const FORMATS: &str = "dbdyno imports the output of `sysbench … run` and of pgbench, and tables with a name per \
     candidate in the heading, and lines with a throughput per candidate and the microbenchmark's name, separated by \
     tabs, commas or `|`";

/// A known format that is not imported.
fn other_format(text: &str) -> Option<&'static str> {
    let text = text.trim_start();
    let array = text.strip_prefix('[').map(str::trim_start);
    // Other lines begin with a bracket, too: `[ 10s ] thds: 8`.
    if text.starts_with('{') || array.is_some_and(|inside| inside.starts_with(['{', '[', '"'])) {
        Some("JSON")
    } else if text.starts_with('<') {
        Some("HTML or XML")
    } else if text.contains("[OVERALL], ") {
        Some("output of YCSB")
    } else if text.starts_with("HammerDB CLI") || text.contains("Vuser 1:") {
        Some("a log of HammerDB")
    } else {
        None
    }
}

const SYSBENCH_HELP: &str = "give the whole output of `sysbench … run`";

/// Whether the text is sysbench output, as opposed to a table.
fn is_output(text: &str) -> bool {
    let heads = ["SQL statistics:", "OLTP test statistics:"];
    let is_banner =
        |line: &str| ["sysbench 0.", "sysbench 1."].iter().any(|it| line.starts_with(it));
    heads.iter().any(|head| text.contains(head)) || text.lines().any(is_banner)
}

/// The values of a file; several if it contains several outputs.
fn sysbench(path: &Path, text: &str, directory: Option<&str>) -> Result<Vec<Value>, ImportError> {
    let (candidate, microbenchmark) = names_of(path, directory)?;
    let mut outputs: Vec<Output> = Vec::new();
    // Before an output there may be the command of its script.
    let mut script = None;
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(threads) = text.strip_prefix("Number of threads:") {
            let found = Summary { script: script.take(), ..Summary::default() };
            let threads = threads.trim().parse().ok();
            outputs.push(Output { line, threads, found, ..Output::default() });
        } else {
            script = script_in(text).or(script);
            if let Some(output) = outputs.last_mut() {
                output.line(text).map_err(|what| at_line(path, line, &what, SYSBENCH_HELP))?;
            }
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
            .throughput()
            .filter(|_| output.found.queries > 0)
            .ok_or_else(|| no_queries(path, text, &output))?;
        if output.found.time == Nanos::ZERO || output.found.events == 0 {
            let what = "it has no general statistics: the run did not come to its end";
            return Err(at_line(path, output.line, what, SYSBENCH_HELP));
        }
        let latencies = Latencies::new(output.histogram);
        Ok(Value {
            file: path.to_owned(),
            line: output.line,
            candidate: candidate.clone(),
            microbenchmark: microbenchmark.clone(),
            clients,
            throughput: Some(throughput),
            summary: Some(Box::new(Summary { latencies, ..output.found })),
            ..Value::default()
        })
    };
    outputs.into_iter().map(value).collect()
}

/// A one-line description of a value.
fn describe(value: &Value) -> String {
    let (Some(found), Some(throughput)) = (&value.summary, value.throughput) else {
        return String::new();
    };
    let Value { candidate, microbenchmark, clients, .. } = value;
    let Summary { transactions_per_second, ignored_errors, reconnects, progress, .. } = &**found;
    let queries = match throughput == *transactions_per_second {
        true => String::new(),
        false => format!("{throughput} queries/s, "),
    };
    let latency = found.latency.iter().map(|(label, millis)| format!(", {label} {millis} ms"));
    let latency: String = latency.collect();
    let reports = match progress.len() {
        0 => String::new(),
        count => {
            let least = progress.iter().copied().fold(f64::INFINITY, f64::min);
            let most = progress.iter().copied().fold(0.0, f64::max);
            format!(", {least} to {most} transactions/s in {count} reports")
        }
    };
    format!(
        "  {candidate}, {microbenchmark}, {clients} threads: {queries}{transactions_per_second} \
         transactions/s, {ignored_errors} ignored errors, {reconnects} reconnects{latency}{reports}\n"
    )
}

/// The transactions per second in a report during a run: `[ 10s ] thds: 8 tps: 99.50 …` of sysbench,
/// `progress: 5.0 s, 99.5 tps, …` of pgbench.
pub(crate) fn progress_in(line: &str) -> Option<f64> {
    let rate = if line.starts_with('[') {
        line.split_once("tps:")?.1.trim_start().split([' ', ',']).next()
    } else {
        let (before, _) = line.strip_prefix("progress:")?.split_once(" tps")?;
        before.rsplit(' ').next()
    };
    rate?.parse().ok().filter(|rate: &f64| rate.is_finite())
}

/// Why an output without queries cannot be imported.
fn no_queries(path: &Path, text: &str, output: &Output) -> ImportError {
    let are_numbers = |line: &str| line.split(',').all(|one| one.trim().parse::<f64>().is_ok());
    let is_report =
        |line: &str| ["[", "{"].contains(&line.trim()) || line.contains(',') && are_numbers(line);
    let what = if output.found.time > Nanos::ZERO {
        "its test is not one of databases, or did nothing: it counts no SQL queries"
    } else if text.lines().any(is_report) {
        "it is a report in JSON or CSV: it has no `SQL statistics`"
    } else {
        "it counts no queries: the run did not come to its end"
    };
    at_line(path, output.line, what, SYSBENCH_HELP)
}

/// The script that a line names: a test of sysbench, or a file of Lua.
fn script_in(line: &str) -> Option<String> {
    let mut words = line.split(|c: char| c.is_whitespace() || "/'\"".contains(c));
    words.find_map(|word| {
        let stem = word.split('.').next().unwrap_or_default();
        let is_test = SYSBENCH.iter().any(|(test, _)| *test == stem);
        (is_test || !stem.is_empty() && word.ends_with(".lua")).then(|| stem.to_owned())
    })
}

/// Parse `CANDIDATE.MICROBENCHMARK.txt`. Names of microbenchmarks contain dots, those of candidates
/// do not. A number before the suffix, as in `….2.txt`, distinguishes repeated runs.
///
/// The file of a test of sysbench need not name the candidate: it is the directory. `directory` is what
/// distinguishes the directories of files with the same name.
pub(crate) fn names_of(
    path: &Path,
    directory: Option<&str>,
) -> Result<(String, String), ImportError> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let stem = match stem.rsplit_once('.') {
        Some((before, number)) if number.chars().all(|c| c.is_ascii_digit()) => before,
        _ => stem,
    };
    let names = match stem.split_once('.') {
        Some((candidate, microbenchmark)) => (Some(candidate), microbenchmark),
        None => (None, stem),
    };
    let is_test = SYSBENCH.iter().any(|(test, _)| *test == names.1);
    let parent = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let candidate = match (names.0, directory) {
        (Some(candidate), Some(directory)) => Some(format!("{directory}.{candidate}")),
        (Some(candidate), None) => Some(candidate.to_owned()),
        (None, Some(directory)) => Some(directory.to_owned()),
        (None, None) => parent.filter(|_| is_test).map(str::to_owned),
    };
    match candidate {
        Some(candidate) if !candidate.is_empty() && !names.1.is_empty() => {
            Ok((candidate, names.1.to_owned()))
        }
        _ => Err(in_file(
            path,
            "its name does not say what was measured",
            "call it CANDIDATE.MICROBENCHMARK.txt",
        )),
    }
}

/// Reports outputs that stand for repeats of one test, or for the same test on several candidates, and are not:
/// the statements of a transaction differ, or the scripts that their files name.
pub(crate) fn check_same_tests(values: &[Value]) -> Result<(), ImportError> {
    let mut first: HashMap<&str, (&Value, &Summary)> = HashMap::new();
    for value in values {
        let Some(found) = value.summary.as_deref() else { continue };
        let (other, before) = *first.entry(&value.microbenchmark).or_insert((value, found));
        let name = &value.microbenchmark;
        let differ = if let Some((mix, of_other)) = found.mix().zip(before.mix())
            && mix.differs(&of_other)
        {
            format!("{mix} per transaction, not {of_other}")
        } else if let (Some(script), Some(of_other)) = (&found.script, &before.script)
            && script != of_other
        {
            format!("the script {script}, not {of_other}")
        } else {
            continue;
        };
        let place = format!("{}:{}", other.file.display(), other.line);
        let what = format!("this output of {name} has {differ} as that at {place}");
        let help = "they are not of the same test: give each test files of its own, called \
                    CANDIDATE.MICROBENCHMARK.txt";
        return Err(at_line(&value.file, value.line, &what, help));
    }
    Ok(())
}

/// Statements per transaction.
struct Mix {
    kinds: [f64; 3],
    /// The share of transactions among those and the ones that were repeated, whose statements are counted, too.
    whole: f64,
}

impl Mix {
    /// Whether they cannot be the same transaction. Writes that change no row are counted as others.
    fn differs(&self, other: &Self) -> bool {
        let all = |mix: &Self| mix.kinds.iter().sum::<f64>();
        let more =
            |a: &Self, b: &Self, of: &dyn Fn(&Self) -> f64| of(a) * a.whole > of(b) * 1.05 + 0.01;
        let no_writes = |a: &Self, b: &Self| a.kinds[1] < 0.01 && b.kinds[1] > 0.5;
        [(self, other), (other, self)]
            .into_iter()
            .any(|(a, b)| more(a, b, &|mix| mix.kinds[0]) || more(a, b, &all) || no_writes(a, b))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reads, writes, others] = self.kinds.map(|count| (count * 100.0).round() / 100.0);
        write!(f, "{reads} reads, {writes} writes and {others} others")
    }
}

impl Summary {
    fn mix(&self) -> Option<Mix> {
        let done = if self.transactions > 0 { self.transactions } else { self.events };
        let counted = self.kinds.iter().any(|count| *count > 0) && done > 0;
        counted.then(|| {
            let done = done as f64;
            let whole = done / (done + self.ignored_errors as f64);
            Mix { kinds: self.kinds.map(|count| count as f64 / done), whole }
        })
    }
}

/// The parsed part of an output.
#[derive(Default)]
struct Output {
    line: usize,
    threads: Option<u32>,
    queries_per_second: Option<f64>,
    found: Summary,
    in_checkpoint: bool,
    in_latency: bool,
    in_histogram: bool,
    histogram: Vec<(u64, u64)>,
}

impl Output {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.in_checkpoint |= line.ends_with("Checkpoint report:");
        if self.in_checkpoint {
            // Statistics of a part of the run, in the form of the final ones.
            self.in_checkpoint = !line.starts_with("Threads fairness:");
            return Ok(());
        }
        if line.starts_with("Latency histogram") {
            self.in_histogram = true;
            return Ok(());
        }
        if self.in_histogram {
            if let Some((value, rest)) = line.split_once('|') {
                let count = rest.trim_start_matches('*').trim();
                let millis: f64 = number_of("a latency", value.trim())?;
                let nanos = (millis * 1e6).round() as u64;
                self.histogram.push((nanos, number_of("a count", count)?));
                return Ok(());
            }
            self.in_histogram = line.contains("distribution");
            return Ok(());
        }
        self.found.progress.extend(progress_in(line));
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
            "read" => found.kinds[0] = number_of("a count", value)?,
            "write" => found.kinds[1] = number_of("a count", value)?,
            "other" => found.kinds[2] = number_of("a count", value)?,
            // Versions before 1.0 print no line `queries`.
            "total" => found.queries = number_of("a count", value)?,
            "ignored errors" | "deadlocks" => found.ignored_errors = count_and_rate(value)?.0,
            "reconnects" => found.reconnects = count_and_rate(value)?.0,
            // Versions after 1.0 print `time elapsed`.
            "total time" | "time elapsed" => {
                found.time =
                    Nanos::from_secs_f64(number_of("a time", value.trim_end_matches('s'))?);
            }
            "total number of events" => found.events = number_of("a count", value)?,
            "Latency (ms)" | "response time" | "per-request statistics" => self.in_latency = true,
            "Threads fairness" => self.in_latency = false,
            "sum" => {}
            _ if self.in_latency => {
                let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
                found.latency.push((label, number_of("a latency", value.trim_end_matches("ms"))?));
            }
            _ => {}
        }
        Ok(())
    }

    fn throughput(&self) -> Option<f64> {
        let seconds = self.found.time.as_secs_f64();
        let average = (seconds > 0.0).then(|| self.found.queries as f64 / seconds);
        self.queries_per_second.or(average)
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

pub(crate) fn number_of<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_ONLY: &str = include_str!("../tests/data/ten_six.read-only_range=100.txt");
    const POINT: &str = include_str!("../tests/data/ten_six.point-query_range=100.txt");

    fn sources(path: &str, text: &str) -> Result<Vec<Value>, ImportError> {
        sysbench(Path::new(path), text, None)
    }

    fn found(value: &Value) -> &Summary {
        value.summary.as_deref().unwrap()
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
        assert_eq!(found.latencies, Latencies::default());
    }

    #[test]
    fn histogram_contains_every_event() {
        let values = sources("ten_six.point-query_range=100.txt", POINT).unwrap();
        let found = found(&values[0]);
        let events: u64 = found.latencies.counts().map(|(_, count)| count).sum();
        assert_eq!((events, found.events), (56_303, 56_303));
        let longest = found.latencies.counts().map(|(nanos, _)| nanos).max();
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
        let names = |name: &str| names_of(Path::new(name), None).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(names("x/innodb.oltp_read_only.txt"), pair("innodb", "oltp_read_only"));
        assert_eq!(
            names("my.random-points.pre_range=10.txt"),
            pair("my", "random-points.pre_range=10")
        );
        assert_eq!(names("my.oltp_insert.12.txt"), pair("my", "oltp_insert"));
        let error = names_of(Path::new("x/out.txt"), None).unwrap_err().to_string();
        assert!(error.ends_with("call it CANDIDATE.MICROBENCHMARK.txt"), "{error}");
    }

    #[test]
    fn known_script_is_named_by_its_directory() {
        let names =
            |name: &str, directory: Option<&str>| names_of(Path::new(name), directory).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let expected = pair("server-a", "oltp_read_only");
        assert_eq!(names("x/server-a/oltp_read_only.4.log", None), expected);
        assert_eq!(names("x/y/oltp_read_only.4.log", Some("server-a")), expected);
        assert_eq!(names("mine.txt", Some("server-a")), pair("server-a", "mine"));
        assert_eq!(names("my.mine.txt", Some("server-a")), pair("server-a.my", "mine"));
        assert!(names_of(Path::new("oltp_read_only.txt"), None).is_err());
        for line in
            ["./oltp_insert.sh", "+ sysbench --threads=8 /usr/share/sysbench/oltp_insert.lua run"]
        {
            assert_eq!(script_in(line), Some("oltp_insert".to_owned()), "{line}");
        }
        assert_eq!(script_in("sysbench my/own_test.lua run"), Some("own_test".to_owned()));
        assert_eq!(script_in("sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)"), None);
    }

    #[test]
    fn outputs_of_unlike_tests_are_an_error_with_both_places() {
        let output = |kinds: [u64; 3], errors: u64| {
            let [reads, writes, others] = kinds;
            READ_ONLY
                .replace("29386", &reads.to_string())
                .replace("write:                           0", &format!("write: {writes}"))
                .replace("4198", &others.to_string())
                .replace(
                    "ignored errors:                      0",
                    &format!("ignored errors: {errors}"),
                )
        };
        let check = |a: &str, b: &str| {
            check_same_tests(&sources("a.t.txt", &format!("{a}\n{b}")).unwrap())
                .map_err(|error| error.to_string())
        };
        let reads = output([2_099, 0, 0], 0);
        for other in [[0, 2_099, 0], [29_386, 0, 4_198], [2_099, 2_099, 0]] {
            let error = check(&reads, &output(other, 0)).unwrap_err();
            assert!(error.starts_with("a.t.txt:45: "), "{error}");
            assert!(
                error.contains("not 1 reads, 0 writes and 0 others as that at a.t.txt:4;"),
                "{error}"
            );
        }
        check(&reads, &output([2_100, 0, 0], 0)).unwrap();
        // A write that changes nothing counts as another statement, and statements of repeated transactions count.
        check(&output([0, 2_099, 0], 0), &output([0, 900, 1_199], 0)).unwrap();
        check(&output([14 * 2_099, 8_396, 4_198], 0), &output([16 * 2_099, 9_396, 4_998], 400))
            .unwrap();
        let error = check(
            &format!("./oltp_insert.sh\n{READ_ONLY}"),
            &format!("./oltp_delete.sh\n{READ_ONLY}"),
        );
        assert!(error.unwrap_err().contains("the script oltp_delete, not oltp_insert as that at"));
    }

    #[test]
    fn other_formats_are_named() {
        let refused =
            |text: &str| parse(Path::new("a.b.txt"), text, 1, None).unwrap_err().to_string();
        for (text, named) in [
            ("[\n  {\n    \"time\": 1,\n", "it is JSON"),
            ("<html><table>", "it is HTML or XML"),
            ("[OVERALL], RunTime(ms), 10110\n", "it is output of YCSB"),
            ("HammerDB CLI v4.10\nCopyright (C) 2003-2024\n", "it is a log of HammerDB"),
            ("Vuser 1:RUNNING\nVuser 1:TEST RESULT : 9 NOPM\n", "it is a log of HammerDB"),
            ("[ 1s ] thds: 2 tps: 9.00\n[ 2s ] thds: 2 tps: 9.00\n", "has no throughput"),
            ("Requests/sec:   17.5\nTransfer/sec: 2\n", "has no throughput"),
            ("", "it has no values"),
        ] {
            let error = refused(text);
            assert!(error.contains(named), "{error}");
            assert!(error.contains("sysbench … run") && error.contains("tables with"), "{error}");
        }
        let banner = "sysbench 1.0.20\nNumber of threads: 1\n";
        for (text, named) in [
            (
                "CPU speed:\n    events per second:   900.10\nGeneral statistics:\n    total time:   10.0s\n",
                "its test is not one of databases",
            ),
            ("[\n  {\n    \"time\":    1,\n", "a report in JSON or CSV"),
            ("1,4,100.5,2010,10.1\n", "a report in JSON or CSV"),
            ("Threads started!\n", "did not come to its end"),
        ] {
            let error = refused(&format!("{banner}{text}"));
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn output_of_version_0_5_is_parsed() {
        let text = "sysbench 0.5:  multi-threaded system evaluation benchmark\n\n\
            Number of threads: 8\n\n\
            [  10s] threads: 8, tps: 90.50, reads: 1300.00, writes: 9.00, response time: 18.72ms (95%)\n\
            [  20s] threads: 8, tps: 94.00, reads: 1300.00, writes: 9.00, response time: 18.72ms (95%)\n\
            OLTP test statistics:\n    queries performed:\n        read:       700\n        write:      200\n        \
            other:      100\n        total:      1000\n    transactions:    50     (2.50 per sec.)\n    \
            read/write requests: 900 (45.00 per sec.)\n    other operations: 100 (5.00 per sec.)\n    \
            ignored errors:    3      (0.15 per sec.)\n    reconnects:    1      (0.05 per sec.)\n\n\
            General statistics:\n    total time:   20.0000s\n    total number of events:  50\n    \
            total time taken by event execution: 159.5s\n    response time:\n         min:      2.85ms\n         \
            approx.  95 percentile:   18.66ms\n\nThreads fairness:\n    events (avg/stddev): 6.2/0.4\n";
        let (values, kept) = parse(Path::new("a.b.txt"), text, 1, None).unwrap();
        assert_eq!((values.len(), values[0].clients, values[0].throughput), (1, 8, Some(50.0)));
        let found = found(&values[0]);
        assert_eq!((found.transactions, found.events, found.kinds), (50, 50, [700, 200, 100]));
        assert_eq!((found.ignored_errors, found.reconnects), (3, 1));
        assert_eq!(
            kept,
            "  a, b, 8 threads: 50 queries/s, 2.5 transactions/s, 3 ignored errors, 1 reconnects, min 2.85 ms, \
             approx. 95 percentile 18.66 ms, 90.5 to 94 transactions/s in 2 reports\n"
        );
    }

    #[test]
    fn statistics_of_checkpoints_are_not_those_of_the_run() {
        let (begin, report) = READ_ONLY.split_once("SQL statistics:").unwrap();
        let part = report.replace("16767.81", "1.00").replace("33584", "2");
        let killed = format!("{begin}[ 1s ] Checkpoint report:\nSQL statistics:{part}\n");
        let error = sources("a.b.txt", &killed).unwrap_err().to_string();
        assert!(error.contains("did not come to its end"), "{error}");
        let values = sources("a.b.txt", &format!("{killed}SQL statistics:{report}")).unwrap();
        assert_eq!((values.len(), values[0].throughput), (1, Some(16_767.81)));
        assert_eq!(found(&values[0]).latency.len(), 4);
    }

    #[test]
    fn time_of_versions_after_1_0_is_parsed() {
        let text = READ_ONLY.replace("total time:  ", "time elapsed:");
        let values = sources("a.b.txt", &text).unwrap();
        assert_eq!(found(&values[0]).time, Nanos::from_micros(2_002_400));
    }

    #[test]
    fn truncated_output_is_an_error() {
        for cut in ["SQL statistics:", "General statistics:", "    total number of events:"] {
            let (begin, _) = READ_ONLY.split_once(cut).unwrap();
            assert!(is_output(begin));
            let error = sources("a.b.txt", begin).unwrap_err().to_string();
            assert!(error.contains("a.b.txt:4: ") && error.contains("did not come to its end"));
        }
        let odd = READ_ONLY.replace("33584  (", "many  (");
        let error = sources("a.b.txt", &odd).unwrap_err().to_string();
        assert!(error.contains("a.b.txt:22: `many` is not a count"), "{error}");
    }
}
