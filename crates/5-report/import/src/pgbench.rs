//! The values of pgbench's output.

use std::path::Path;

use dbdyno_units::Nanos;

use crate::ImportError;
use crate::parse::{Summary, Value, at_line, in_file, names_of, number_of, progress_in};

const HELP: &str = "give the whole output of pgbench";

pub(crate) fn is_pgbench(text: &str) -> bool {
    let is_part = |line: &str| {
        line.starts_with("pgbench (")
            || line.starts_with("number of transactions actually processed:")
    };
    text.lines().any(is_part)
}

/// The values of a file; several if it contains several outputs.
pub(crate) fn pgbench(
    path: &Path,
    text: &str,
    directory: Option<&str>,
) -> Result<Vec<Value>, ImportError> {
    let (candidate, microbenchmark) = names_of(path, directory)?;
    let mut outputs: Vec<Output> = Vec::new();
    // The reports of a run come before its summary.
    let mut progress = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        progress.extend(progress_in(text));
        if let Some(script) = text.strip_prefix("transaction type:") {
            let script = Some(script.trim().to_owned());
            let found =
                Summary { script, progress: std::mem::take(&mut progress), ..Summary::default() };
            outputs.push(Output { line, found, ..Output::default() });
        } else if let Some(output) = outputs.last_mut() {
            output.line(text).map_err(|what| at_line(path, line, &what, HELP))?;
        }
    }
    if outputs.is_empty() {
        return Err(in_file(path, "it has no summary: the run did not come to its end", HELP));
    }
    let value = |output: Output| {
        let wrong = |what: &str| at_line(path, output.line, what, HELP);
        let clients =
            output.clients.ok_or_else(|| wrong("it does not say its number of clients"))?;
        if output.is_aborted {
            return Err(wrong("the run was aborted: its results are incomplete"));
        }
        let tps = output.tps.filter(|tps| tps.is_finite() && *tps > 0.0);
        let tps = tps.ok_or_else(|| wrong("it has no tps: the run did not come to its end"))?;
        let time = Nanos::from_secs_f64(output.found.transactions as f64 / tps);
        let found = Summary { time, transactions_per_second: tps, ..output.found };
        Ok(Value {
            file: path.to_owned(),
            line: output.line,
            candidate: candidate.clone(),
            microbenchmark: microbenchmark.clone(),
            clients,
            throughput: Some(tps),
            summary: Some(Box::new(found)),
            ..Value::default()
        })
    };
    outputs.into_iter().map(value).collect()
}

/// The parsed part of an output.
#[derive(Default)]
struct Output {
    line: usize,
    clients: Option<u32>,
    tps: Option<f64>,
    found: Summary,
    in_statements: bool,
    is_aborted: bool,
}

impl Output {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.is_aborted |= line.starts_with("Run was aborted");
        self.in_statements &= line.starts_with([' ', '\t']);
        if line.contains("statement latencies in milliseconds") {
            self.in_statements = true;
        } else if self.in_statements {
            self.found.latency.extend(statement(line));
        }
        // Older versions write `latency average: 1.041 ms`. Lines of one of several scripts are indented.
        let Some((label, value)) = line.split_once(" = ").or_else(|| line.split_once(": ")) else {
            return Ok(());
        };
        // `200/200`, `0 (0.000%)`, `1.041 ms`
        let value = value.split([' ', '/']).next().unwrap_or_default();
        let found = &mut self.found;
        match label {
            "number of clients" => self.clients = Some(number_of("a number", value)?),
            "number of transactions actually processed" => {
                let count = number_of("a count", value)?;
                (found.transactions, found.events, found.queries) = (count, count, count);
            }
            "number of failed transactions" | "total number of retries" => {
                let count = number_of("a count", value)?;
                found.ignored_errors = found.ignored_errors.saturating_add(count);
            }
            // Of two, the last one is without the time to connect.
            "tps" => self.tps = Some(number_of("a rate", value)?),
            "latency average" | "latency stddev" => {
                found.latency.push((label.to_owned(), number_of("a latency", value)?));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The text of a statement and its milliseconds, between which there may be counts of failures and retries.
fn statement(line: &str) -> Option<(String, f64)> {
    let mut words = line.split_whitespace();
    let millis = words.next()?.parse().ok()?;
    let text: Vec<&str> = words.skip_while(|word| word.parse::<u64>().is_ok()).collect();
    // Commands of pgbench take no time of the server.
    (!text.is_empty() && !text[0].starts_with('\\')).then(|| (text.join(" "), millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{check_same_tests, parse};

    const OUTPUT: &str = include_str!("../tests/data/pgbench.txt");

    fn parsed(text: &str) -> Result<(Vec<Value>, String), String> {
        parse(Path::new("a.tpcb.txt"), text, 1, None).map_err(|error| error.to_string())
    }

    #[test]
    fn summary_progress_and_statements_are_parsed() {
        let (values, kept) = parsed(OUTPUT).unwrap();
        assert_eq!((values.len(), values[0].clients), (1, 4));
        assert_eq!(values[0].throughput, Some(442.985609));
        let found = values[0].summary.as_deref().unwrap();
        assert_eq!((found.events, found.ignored_errors), (2646, 0));
        assert_eq!(found.time, Nanos::from_secs_f64(2646.0 / 442.985609));
        for part in [
            "  a, tpcb, 4 threads: 442.985609 transactions/s, 0 ignored errors",
            ", latency average 9.009 ms, latency stddev 7.273 ms, BEGIN; 0.719 ms, UPDATE pgbench_accounts",
            "END; 0.851 ms, 383.3 to 501.4 transactions/s in 3 reports\n",
        ] {
            assert!(kept.contains(part), "{kept}");
        }
        assert!(!kept.contains("\\set"), "{kept}");
    }

    #[test]
    fn older_and_several_outputs_are_parsed() {
        let old = "transaction type: <builtin: select only>\nscaling factor: 1\nquery mode: simple\n\
                   number of clients: 2\nnumber of threads: 1\nnumber of transactions per client: 100\n\
                   number of transactions actually processed: 200/200\nlatency average: 0.690 ms\n\
                   tps = 2500.5 (including connections establishing)\n\
                   tps = 2896.5 (excluding connections establishing)\n\
                   statement latencies in milliseconds:\n\t0.002\t\\set a 1\n\t0.500\tSELECT 1;\n";
        let (values, kept) = parsed(&format!("{old}{old}")).unwrap();
        let rates: Vec<Option<f64>> = values.iter().map(|value| value.throughput).collect();
        assert_eq!(rates, [Some(2896.5); 2]);
        assert!(kept.contains("latency average 0.69 ms, SELECT 1; 0.5 ms\n"), "{kept}");
        let (values, _) = parsed(&format!("{OUTPUT}{old}")).unwrap();
        let error = check_same_tests(&values).unwrap_err().to_string();
        assert!(
            error.contains("the script <builtin: select only>, not <builtin: TPC-B"),
            "{error}"
        );
    }

    #[test]
    fn incomplete_output_is_an_error() {
        let (begin, _) = OUTPUT.split_once("tps =").unwrap();
        assert!(parsed(begin).unwrap_err().contains("a.tpcb.txt:6: it has no tps"));
        let (begin, _) = OUTPUT.split_once("transaction type").unwrap();
        assert!(parsed(begin).unwrap_err().contains("it has no summary"));
        let aborted = format!("{OUTPUT}Run was aborted; the above results are incomplete.\n");
        assert!(parsed(&aborted).unwrap_err().contains("the run was aborted"));
    }
}
