//! CSV tables of the insert benchmark.

use dbdyno_types::insert::Second;
use dbdyno_units::{Bytes, Nanos};

use crate::export::{decimals, table};
use crate::model::INSERT_METRICS;
use crate::model::{InsertReport, Responses, StepRun};

/// The columns of `insert_steps.csv` before the metrics.
const BEFORE: [&str; 7] = ["step", "candidate", "repeat", "clients", "tables", "rows", "seconds"];

/// The columns after them.
const AFTER: [&str; 20] = [
    "target_ips",
    "sustained",
    "overdue_rows",
    "stalls",
    "retries",
    "lock_waits",
    "wrong",
    "from_copy",
    "rows_per_query",
    "insert_p50_s",
    "insert_p99_s",
    "insert_max_s",
    "insert_service_p50_s",
    "insert_service_p99_s",
    "insert_service_max_s",
    "query_p50_s",
    "query_p99_s",
    "query_max_s",
    "delete_p99_s",
    "delete_max_s",
];

/// The columns of `insert_steps.csv`.
#[must_use]
pub(crate) fn steps_header() -> Vec<&'static str> {
    let metrics = INSERT_METRICS.iter().map(|metric| metric.name);
    BEFORE.into_iter().chain(metrics).chain(AFTER).collect()
}

/// One line per step, candidate and repeat. An unknown value is an empty field.
///
/// # Errors
/// The table cannot be encoded.
pub(crate) fn steps(report: &InsertReport) -> Result<String, csv::Error> {
    table(&steps_header(), |writer| {
        for step in &report.steps {
            for candidate in &step.candidates {
                for run in &candidate.repeats {
                    let mut line = vec![
                        step.name.clone(),
                        candidate.candidate.clone(),
                        run.repeat.to_string(),
                        report.clients.to_string(),
                        report.tables.to_string(),
                        run.rows.to_string(),
                        seconds(Some(run.wall)),
                    ];
                    line.extend(run.figures.all().iter().map(|value| decimals(*value, 6)));
                    line.push(step.rate.map_or_else(String::new, |rate| rate.to_string()));
                    line.extend(after(run));
                    writer.write_record(line)?;
                }
            }
        }
        Ok(())
    })
}

fn after(run: &StepRun) -> Vec<String> {
    let time = |responses: &Option<Responses>, of: fn(&Responses) -> Nanos| {
        seconds(responses.as_ref().map(of))
    };
    let per_query = (run.queries > 0).then(|| run.rows_returned as f64 / run.queries as f64);
    vec![
        run.sustained.map_or_else(String::new, |sustained| sustained.to_string()),
        run.overdue.to_string(),
        run.stalls.len().to_string(),
        run.retries.to_string(),
        run.lock_waits.to_string(),
        run.wrong.to_string(),
        run.from_copy.to_string(),
        decimals(per_query, 3),
        time(&run.insert_responses, |r| r.p50),
        time(&run.insert_responses, |r| r.p99),
        time(&run.insert_responses, |r| r.max),
        time(&run.insert_service, |r| r.p50),
        time(&run.insert_service, |r| r.p99),
        time(&run.insert_service, |r| r.max),
        time(&run.query_responses, |r| r.p50),
        time(&run.query_responses, |r| r.p99),
        time(&run.query_responses, |r| r.max),
        time(&run.delete_responses, |r| r.p99),
        time(&run.delete_responses, |r| r.max),
    ]
}

/// The columns of `insert_series.csv`. Reads and writes of `process` are those of the system under
/// test, those of `device` include all processes.
pub(crate) const SERIES_HEADER: [&str; 25] = [
    "step",
    "candidate",
    "repeat",
    "second",
    "elapsed_s",
    "ips",
    "qps",
    "dps",
    "insert_worst_s",
    "query_worst_s",
    "delete_worst_s",
    "cpu_s",
    "user_s",
    "system_s",
    "client_cpu_s",
    "context_switches",
    "process_read_bytes",
    "process_written_bytes",
    "device_reads",
    "device_read_bytes",
    "device_writes",
    "device_written_bytes",
    "database_bytes",
    "rss_bytes",
    "stall",
];

/// One line per second of every step.
///
/// # Errors
/// The table cannot be encoded.
pub(crate) fn series(report: &InsertReport) -> Result<String, csv::Error> {
    table(&SERIES_HEADER, |writer| {
        for step in &report.steps {
            for candidate in &step.candidates {
                for run in &candidate.repeats {
                    for second in &run.seconds {
                        let mut line = vec![
                            step.name.clone(),
                            candidate.candidate.clone(),
                            run.repeat.to_string(),
                        ];
                        line.extend(second_fields(second));
                        line.push(run.stalls.contains(&second.number).to_string());
                        writer.write_record(line)?;
                    }
                }
            }
        }
        Ok(())
    })
}

fn second_fields(second: &Second) -> Vec<String> {
    let elapsed = second.elapsed.as_secs_f64();
    let rate = |count: u64| decimals(Some(count as f64 / elapsed), 3);
    let count = |count: Option<u64>| count.map_or_else(String::new, |count| count.to_string());
    let bytes = |bytes: Option<Bytes>| count(bytes.map(Bytes::as_bytes));
    let system = second.system.as_ref();
    let device = second.device.as_ref();
    vec![
        second.number.to_string(),
        seconds(Some(second.elapsed)),
        rate(second.inserts),
        rate(second.queries),
        rate(second.deletes),
        seconds(second.insert_worst),
        seconds(second.query_worst),
        seconds(second.delete_worst),
        seconds(system.map(|used| used.cpu)),
        seconds(system.map(|used| used.user)),
        seconds(system.map(|used| used.system)),
        seconds(second.client_cpu),
        count(system.and_then(|used| used.context_switches)),
        bytes(system.and_then(|used| used.read_from_storage)),
        bytes(system.and_then(|used| used.written_to_storage)),
        count(device.map(|device| device.reads)),
        bytes(device.map(|device| device.read)),
        count(device.map(|device| device.writes)),
        bytes(device.map(|device| device.written)),
        bytes(second.database),
        bytes(second.resident),
    ]
}

fn seconds(time: Option<Nanos>) -> String {
    decimals(time.map(Nanos::as_secs_f64), 6)
}
