//! CSV tables of the insert benchmark.

use dbdyno_text::{csv, decimals};
use dbdyno_types::insert::{DeviceUsage, Second};
use dbdyno_units::{Bytes, Nanos};

use crate::model::{
    CandidateStep, INSERT_METRICS, InsertMetric, InsertReport, Responses, StepReport, StepRun,
};

struct Line<'a> {
    step: &'a StepReport,
    candidate: &'a CandidateStep,
    run: &'a StepRun,
}

fn lines(report: &InsertReport) -> impl Iterator<Item = Line<'_>> {
    report.steps.iter().flat_map(|step| {
        step.candidates.iter().flat_map(move |candidate| {
            candidate.repeats.iter().map(move |run| Line { step, candidate, run })
        })
    })
}

/// One line per step, candidate and repeat.
pub(crate) fn steps_csv(report: &InsertReport) -> String {
    type Of<'a> = dyn Fn(&Line<'_>) -> String + 'a;
    let time = |responses: &Option<Responses>, of: fn(&Responses) -> Nanos| {
        seconds(responses.as_ref().map(of))
    };
    let metric = |metric: &'static InsertMetric| -> Box<Of<'static>> {
        Box::new(|line| decimals(line.run.figures.get(metric.name), 6))
    };
    let metrics: Vec<Box<Of<'static>>> = INSERT_METRICS.iter().map(metric).collect();
    let first: [(&str, &Of<'_>); 7] = [
        ("step", &|line| line.step.name.clone()),
        ("candidate", &|line| line.candidate.candidate.clone()),
        ("repeat", &|line| line.run.repeat.to_string()),
        ("clients", &|_| report.clients.to_string()),
        ("tables", &|_| report.tables.to_string()),
        ("rows", &|line| line.run.rows.to_string()),
        ("seconds", &|line| seconds(Some(line.run.wall))),
    ];
    let rest: [(&str, &Of<'_>); 20] = [
        ("target_ips", &|line| or_empty(line.step.rate)),
        ("sustained", &|line| or_empty(line.run.sustained)),
        ("overdue_rows", &|line| line.run.overdue.to_string()),
        ("stalls", &|line| line.run.stalls.len().to_string()),
        ("retries", &|line| line.run.retries.to_string()),
        ("lock_waits", &|line| line.run.lock_waits.to_string()),
        ("wrong", &|line| line.run.wrong.to_string()),
        ("from_copy", &|line| line.run.from_copy.to_string()),
        ("rows_per_query", &|Line { run, .. }| {
            let per_query = run.rows_returned as f64 / run.queries as f64;
            decimals((run.queries > 0).then_some(per_query), 3)
        }),
        ("insert_p50_s", &|line| time(&line.run.insert_responses, |r| r.p50)),
        ("insert_p99_s", &|line| time(&line.run.insert_responses, |r| r.p99)),
        ("insert_max_s", &|line| time(&line.run.insert_responses, |r| r.max)),
        ("insert_service_p50_s", &|line| time(&line.run.insert_service, |r| r.p50)),
        ("insert_service_p99_s", &|line| time(&line.run.insert_service, |r| r.p99)),
        ("insert_service_max_s", &|line| time(&line.run.insert_service, |r| r.max)),
        ("query_p50_s", &|line| time(&line.run.query_responses, |r| r.p50)),
        ("query_p99_s", &|line| time(&line.run.query_responses, |r| r.p99)),
        ("query_max_s", &|line| time(&line.run.query_responses, |r| r.max)),
        ("delete_p99_s", &|line| time(&line.run.delete_responses, |r| r.p99)),
        ("delete_max_s", &|line| time(&line.run.delete_responses, |r| r.max)),
    ];
    let mut columns = first.to_vec();
    for (metric, of) in INSERT_METRICS.iter().zip(&metrics) {
        columns.push((metric.name, of));
    }
    columns.extend(rest);
    csv(&columns, lines(report))
}

/// One line per second of every step. Reads and writes of `process` are those of the system under
/// test, those of `device` include all processes.
pub(crate) fn series_csv(report: &InsertReport) -> String {
    type One<'a> = (Line<'a>, &'a Second);
    let all = lines(report).flat_map(|Line { step, candidate, run }| {
        run.seconds.iter().map(move |second| (Line { step, candidate, run }, second))
    });
    let rate = |second: &Second, count: u64| {
        decimals(Some(count as f64 / second.elapsed.as_secs_f64()), 3)
    };
    let bytes = |bytes: Option<Bytes>| or_empty(bytes.map(Bytes::as_bytes));
    let device = |second: &Second, of: fn(DeviceUsage) -> u64| or_empty(second.device.map(of));
    csv(
        &[
            ("step", &|(line, _): &One<'_>| line.step.name.clone()),
            ("candidate", &|(line, _)| line.candidate.candidate.clone()),
            ("repeat", &|(line, _)| line.run.repeat.to_string()),
            ("second", &|(_, second)| second.number.to_string()),
            ("elapsed_s", &|(_, second)| seconds(Some(second.elapsed))),
            ("ips", &|(_, second)| rate(second, second.inserts)),
            ("qps", &|(_, second)| rate(second, second.queries)),
            ("dps", &|(_, second)| rate(second, second.deletes)),
            ("insert_worst_s", &|(_, second)| seconds(second.insert_worst)),
            ("query_worst_s", &|(_, second)| seconds(second.query_worst)),
            ("delete_worst_s", &|(_, second)| seconds(second.delete_worst)),
            ("cpu_s", &|(_, second)| seconds(second.system.map(|used| used.cpu))),
            ("user_s", &|(_, second)| seconds(second.system.map(|used| used.user))),
            ("system_s", &|(_, second)| seconds(second.system.map(|used| used.system))),
            ("client_cpu_s", &|(_, second)| seconds(second.client_cpu)),
            ("context_switches", &|(_, second)| {
                or_empty(second.system.and_then(|used| used.context_switches))
            }),
            ("process_read_bytes", &|(_, second)| {
                bytes(second.system.and_then(|used| used.read_from_storage))
            }),
            ("process_written_bytes", &|(_, second)| {
                bytes(second.system.and_then(|used| used.written_to_storage))
            }),
            ("device_reads", &|(_, second)| device(second, |device| device.reads)),
            ("device_read_bytes", &|(_, second)| device(second, |device| device.read.as_bytes())),
            ("device_writes", &|(_, second)| device(second, |device| device.writes)),
            ("device_written_bytes", &|(_, second)| {
                device(second, |device| device.written.as_bytes())
            }),
            ("database_bytes", &|(_, second)| bytes(second.database)),
            ("rss_bytes", &|(_, second)| bytes(second.resident)),
            ("stall", &|(line, second)| line.run.stalls.contains(&second.number).to_string()),
        ],
        all,
    )
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn seconds(time: Option<Nanos>) -> String {
    decimals(time.map(Nanos::as_secs_f64), 6)
}
