//! Parser of the summary that sysbench 1.0 and later print at the end of a run.

use std::path::Path;

use dbdyno_types::Latencies;
use dbdyno_units::Nanos;

use crate::error::ImportError;
use crate::value::{Measure, Sysbench, Value};

const HELP: &str = "give the whole output of `sysbench … run`, of version 1.0 or later";

/// Whether the text is sysbench output, as opposed to a table.
pub(crate) fn is_output(text: &str) -> bool {
    text.contains("SQL statistics:") || text.lines().any(|line| line.starts_with("sysbench 1."))
}

/// The values of a file; several if it contains several outputs.
pub(crate) fn read(path: &Path, text: &str) -> Result<Vec<Value>, ImportError> {
    let (candidate, microbenchmark) = names_of(path)?;
    let mut outputs: Vec<Output> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(threads) = text.strip_prefix("Number of threads:") {
            outputs.push(Output { threads: threads.trim().parse().ok(), ..Output::default() });
        } else if let Some(output) = outputs.last_mut() {
            output.line(text).map_err(|what| ImportError::Line {
                path: path.to_owned(),
                line,
                what,
                help: HELP,
            })?;
        }
    }
    let wrong =
        |what: &str| ImportError::File { path: path.to_owned(), what: what.to_owned(), help: HELP };
    if outputs.is_empty() {
        return Err(wrong("it does not say its number of threads"));
    }
    let value = |output: Output| {
        let clients = output.threads.ok_or_else(|| wrong("its number of threads is no number"))?;
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
pub(crate) fn describe(value: &Value) -> String {
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
        _ => Err(ImportError::File {
            path: path.to_owned(),
            what: "its name does not say what was measured".to_owned(),
            help: "call it CANDIDATE.MICROBENCHMARK.txt",
        }),
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
                let millis: f64 = parse("a latency", value.trim())?;
                self.histogram.push((nanos(millis), parse("a count", count)?));
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
                found.time = Nanos::from_secs_f64(parse("a time", value.trim_end_matches('s'))?);
            }
            "total number of events" => found.events = parse("a count", value)?,
            "Latency (ms)" => self.in_latency = true,
            "Threads fairness" => self.in_latency = false,
            "sum" => {}
            _ if self.in_latency => {
                found.latency.push((label.to_owned(), parse("a latency", value)?));
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
        inside.ok_or_else(|| format!("`{text}` is no count with a rate per second"))?;
    Ok((parse("a count", count)?, parse("a rate", rate)?))
}

fn parse<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

fn nanos(millis: f64) -> u64 {
    (millis * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_ONLY: &str = include_str!("../tests/data/ten_six.read-only_range=100.txt");
    const POINT: &str = include_str!("../tests/data/ten_six.point-query_range=100.txt");

    fn sources(path: &str, text: &str) -> Result<Vec<Value>, ImportError> {
        read(Path::new(path), text)
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
}
