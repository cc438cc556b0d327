//! The insert benchmark as tables for programs.

use dbdyno_text::{Csv, decimals};
use dbdyno_types::insert::{DeviceUsage, Second};
use dbdyno_units::{Bytes, Nanos};

use super::runs;
use crate::model::{CandidateStep, INSERT_METRICS, InsertReport, Responses, StepReport, StepRun};

type Line<'a> = (&'a StepReport, &'a CandidateStep, &'a StepRun);

fn lines(report: &InsertReport) -> impl Iterator<Item = Line<'_>> {
    report.steps.iter().flat_map(|step| runs(step).map(move |(one, run)| (step, one, run)))
}

/// One line per step, candidate and repeat.
pub(crate) fn steps_csv(report: &InsertReport) -> String {
    let time = |responses: &Option<Responses>, of: fn(&Responses) -> Nanos| {
        seconds(responses.as_ref().map(of))
    };
    let mut csv = Csv::of(lines(report))
        .column("step", |(step, ..)| step.name.clone())
        .column("candidate", |(_, one, _)| one.candidate.clone())
        .column("repeat", |(.., run)| run.repeat.to_string())
        .column("clients", |_| report.clients.to_string())
        .column("tables", |_| report.tables.to_string())
        .column("rows", |(.., run)| run.rows.to_string())
        .column("seconds", |(.., run)| seconds(Some(run.wall)));
    for metric in &INSERT_METRICS {
        csv = csv.column(metric.name, |(.., run)| decimals(run.figures.get(metric.name), 6));
    }
    csv.column("target_ips", |(step, ..)| or_empty(step.rate))
        .column("sustained", |(.., run)| or_empty(run.sustained))
        .column("overdue_rows", |(.., run)| run.overdue.to_string())
        .column("stalls", |(.., run)| run.stalls.len().to_string())
        .column("retries", |(.., run)| run.retries.to_string())
        .column("lock_waits", |(.., run)| run.lock_waits.to_string())
        .column("wrong", |(.., run)| run.wrong.to_string())
        .column("from_copy", |(.., run)| run.from_copy.to_string())
        .column("rows_per_query", |(.., run)| {
            let per_query = run.rows_returned as f64 / run.queries as f64;
            decimals((run.queries > 0).then_some(per_query), 3)
        })
        .column("insert_p50_s", |(.., run)| time(&run.insert_responses, |r| r.p50))
        .column("insert_p99_s", |(.., run)| time(&run.insert_responses, |r| r.p99))
        .column("insert_max_s", |(.., run)| time(&run.insert_responses, |r| r.max))
        .column("insert_service_p50_s", |(.., run)| time(&run.insert_service, |r| r.p50))
        .column("insert_service_p99_s", |(.., run)| time(&run.insert_service, |r| r.p99))
        .column("insert_service_max_s", |(.., run)| time(&run.insert_service, |r| r.max))
        .column("query_p50_s", |(.., run)| time(&run.query_responses, |r| r.p50))
        .column("query_p99_s", |(.., run)| time(&run.query_responses, |r| r.p99))
        .column("query_max_s", |(.., run)| time(&run.query_responses, |r| r.max))
        .column("delete_p99_s", |(.., run)| time(&run.delete_responses, |r| r.p99))
        .column("delete_max_s", |(.., run)| time(&run.delete_responses, |r| r.max))
        .column("query_stalls", |(.., run)| run.query_stalls.len().to_string())
        .text()
}

/// One line per second of every step. Reads and writes of `process` are those of the system under
/// test, those of `device` include all processes.
pub(crate) fn series_csv(report: &InsertReport) -> String {
    let all = lines(report).flat_map(|line @ (.., run)| {
        let seconds = run.seconds.iter();
        seconds.map(move |second| (line, second))
    });
    let rate = |second: &Second, count: u64| {
        decimals(Some(count as f64 / second.elapsed.as_secs_f64()), 3)
    };
    let bytes = |bytes: Option<Bytes>| or_empty(bytes.map(Bytes::as_bytes));
    let device = |second: &Second, of: fn(DeviceUsage) -> u64| or_empty(second.device.map(of));
    Csv::of(all)
        .column("step", |((step, ..), _)| step.name.clone())
        .column("candidate", |((_, one, _), _)| one.candidate.clone())
        .column("repeat", |((.., run), _)| run.repeat.to_string())
        .column("second", |(_, second)| second.number.to_string())
        .column("elapsed_s", |(_, second)| seconds(Some(second.elapsed)))
        .column("ips", |(_, second)| rate(second, second.inserts))
        .column("qps", |(_, second)| rate(second, second.queries))
        .column("dps", |(_, second)| rate(second, second.deletes))
        .column("insert_worst_s", |(_, second)| seconds(second.insert_worst))
        .column("query_worst_s", |(_, second)| seconds(second.query_worst))
        .column("delete_worst_s", |(_, second)| seconds(second.delete_worst))
        .column("cpu_s", |(_, second)| seconds(second.system.map(|used| used.cpu)))
        .column("user_s", |(_, second)| seconds(second.system.map(|used| used.user)))
        .column("system_s", |(_, second)| seconds(second.system.map(|used| used.system)))
        .column("client_cpu_s", |(_, second)| seconds(second.client_cpu))
        .column("context_switches", |(_, second)| {
            or_empty(second.system.and_then(|used| used.context_switches))
        })
        .column("process_read_bytes", |(_, second)| {
            bytes(second.system.and_then(|used| used.read_from_storage))
        })
        .column("process_written_bytes", |(_, second)| {
            bytes(second.system.and_then(|used| used.written_to_storage))
        })
        .column("device_reads", |(_, second)| device(second, |device| device.reads))
        .column("device_read_bytes", |(_, second)| device(second, |device| device.read.as_bytes()))
        .column("device_writes", |(_, second)| device(second, |device| device.writes))
        .column("device_written_bytes", |(_, second)| {
            device(second, |device| device.written.as_bytes())
        })
        .column("database_bytes", |(_, second)| bytes(second.database))
        .column("rss_bytes", |(_, second)| bytes(second.resident))
        .column("stall", |((.., run), second)| run.stalls.contains(&second.number).to_string())
        .column("query_stall", |((.., run), second)| {
            run.query_stalls.contains(&second.number).to_string()
        })
        .text()
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn seconds(time: Option<Nanos>) -> String {
    decimals(time.map(Nanos::as_secs_f64), 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn exports_have_their_columns_in_every_line() {
        let report = sample::inserts();
        let insert = report.insert.unwrap();
        for (text, columns) in [(steps_csv(&insert), 49), (series_csv(&insert), 26)] {
            let mut reader = ::csv::Reader::from_reader(text.as_bytes());
            assert_eq!(reader.headers().unwrap().len(), columns);
            let lines = reader.records().map(Result::unwrap).count();
            assert!(lines >= 3 * 3 * 2, "{lines}");
        }
        let first = steps_csv(&insert);
        assert!(first.starts_with("step,candidate,repeat,clients,tables,rows,seconds,ips,qps,"));
        assert!(series_csv(&insert).starts_with("step,candidate,repeat,second,"));
    }
}
