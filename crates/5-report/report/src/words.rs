//! Sentences shared by the terminal report and the HTML page.

use dbdyno_units::grouped;

use crate::metric::{Metric, client_bound_rows, clients, data_differs, servers_had_idle_time};
use crate::model::{InsertReport, Lost, Report, RunStatus};

/// `2026-03-01T09:30:00Z` as `2026-03-01 09:30 UTC`; anything else as it is.
pub(crate) fn readable_time(started: &str) -> String {
    match (started.split_once('T'), started.strip_suffix('Z')) {
        (Some((date, time)), Some(_)) if time.len() >= 5 && time.is_char_boundary(5) => {
            format!("{date} {} UTC", &time[..5])
        }
        _ => started.to_owned(),
    }
}

/// A report without any rows.
pub(crate) const NOTHING_MEASURED: &str = "Nothing has been measured yet.";

/// Why CPU per query leads in some key results.
pub(crate) const CPU_FIRST: &str = "CPU per query comes first where throughput includes waiting that \
     is not the candidate's work: for storage (writes), for wake-ups (one client of a server), for the \
     load generator (client-bound).";

/// Tables, rows, clients and microbenchmarks: `1 table × 100,000 rows, 16 clients`; `None` if the run
/// does not record its data.
pub(crate) fn workload(report: &Report) -> Option<String> {
    let mut settings = report.settings.iter();
    let (_, data) = settings.find(|(label, _)| label == TABLES_ROWS)?;
    let (tables, rows) = data.split_once(" × ")?;
    let rows = rows.parse().map_or_else(|_| rows.to_owned(), grouped);
    let tables = if tables == "1" { "1 table".to_owned() } else { format!("{tables} tables") };
    let steps: Vec<String> = report.clients().iter().map(u32::to_string).collect();
    let clients = match &report.clients()[..] {
        [] => String::new(),
        [one] => format!(", {}", clients(*one)),
        [..] => format!(", {} clients", steps.join(", ")),
    };
    Some(format!("{tables} × {rows} rows{clients}"))
}

/// The label of a run's number of tables and rows per table.
pub(crate) const TABLES_ROWS: &str = "tables × rows";

/// Why the noise floor of throughput is unknown.
pub(crate) fn unknown_noise(report: &Report) -> &'static str {
    match report.has_control() {
        false => "without a control, differences cannot be told from noise",
        true => "the control has no usable interval of throughput",
    }
}

/// The noise floor: `the control differs from 1 by 0.8% typically ...`.
pub(crate) fn noise_floor(report: &Report) -> String {
    let mut text = match &report.noise {
        Some(noise) => format!(
            "the control differs from 1 by {} typically and {} at most ({}); its interval contains 1 \
             in {} of {} microbenchmarks.",
            noise.typical, noise.greatest, noise.greatest_at, noise.contains_one, noise.count
        ),
        None => format!("unknown: {}", unknown_noise(report)),
    };
    if let Some(cpu) = Metric::Cpu.noise(report) {
        let stop = if text.ends_with('.') { "" } else { "." };
        text.push_str(&format!("{stop} CPU per query: {cpu} typical."));
    }
    text
}

/// Which rows are client-bound, with an explanation; `None` if none is.
pub(crate) fn client_bound(report: &Report) -> Option<String> {
    let (bound, rows) = client_bound_rows(report);
    let server = match servers_had_idle_time(report) {
        true => ", while the server still had idle CPU time",
        false => "; whether the server still had idle CPU time is not known everywhere",
    };
    (bound > 0).then(|| {
        format!(
            "{bound} of {rows} rows: the load generator used at least 90% of its CPUs{server}. These rows have no throughput verdict and are excluded from \
             the throughput summaries; CPU per query is still valid. Give the load generator more \
             CPUs to measure them."
        )
    })
}

/// Lost connections of one candidate, without the candidate's name.
pub(crate) fn lost_connections(lost: &Lost) -> String {
    let times = if lost.count == 1 { "once" } else { &format!("{} times", lost.count) };
    let differs = data_differs(lost).map_or_else(String::new, |text| format!("{text} "));
    let Lost { at, reason, .. } = lost;
    format!("lost its connections {times} and continued. {differs}Last at {at}: {reason}")
}

/// Parameters of the insert benchmark.
pub(crate) fn insert_benchmark(report: &InsertReport) -> String {
    let InsertReport { tables, repeats, .. } = report;
    let repeats = match repeats {
        1 => "once, so the spread is unknown".to_owned(),
        n => format!("{n} times; values are medians"),
    };
    let tables = if *tables == 1 { "1 table".to_owned() } else { format!("{tables} tables") };
    format!(
        "{} on {tables}. Candidates ran one after another, each alone through all steps, \
         {repeats}.",
        clients(report.clients)
    )
}

/// Definitions that are not obvious from the names of the insert benchmark's metrics.
pub(crate) fn insert_definitions(report: &InsertReport) -> String {
    format!(
        "Reads and writes are totals of the device, from all processes. Response times of inserts \
         are measured from the scheduled time, service times from the time of sending. A write \
         stall is a second with less than {} of the step's median insert throughput. A rate is \
         sustained if at least {} of it was reached.",
        report.stall, report.sustained
    )
}

/// The state of a run, in words.
pub(crate) fn status(report: &Report) -> String {
    match (report.status, report.running_pid) {
        (_, Some(pid)) => format!("running (pid {pid})"),
        (RunStatus::Complete, None) => "complete".to_owned(),
        (RunStatus::Incomplete, None) => "incomplete: can be resumed".to_owned(),
    }
}
