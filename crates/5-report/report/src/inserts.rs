//! The insert benchmark's part of a report: figures, and its CSV tables.

pub(crate) mod assemble;

use dbdyno_text::{csv, decimals};
use dbdyno_types::insert::{DeviceUsage, Second};
use dbdyno_units::{Bytes, Nanos};

pub(crate) use assemble::assemble;
#[cfg(any(test, feature = "sample"))]
pub(crate) use assemble::assemble_steps;

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::inserts::{series_csv, steps_csv};
    use crate::model::Report;
    use crate::terminal::{TerminalOptions, render};
    use crate::{html, sample};

    fn drawn(report: &Report, width: usize) -> String {
        render(
            report,
            &TerminalOptions { width, color: false, three_groups: false, details: false },
        )
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let report = sample::inserts();
        for width in [80, 100, 132] {
            for line in drawn(&report, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn the_report_says_what_must_be_known_before_figures_are_compared() {
        let text = drawn(&sample::inserts(), 80);
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for said in [
            "Candidates ran one after another",
            "Order 2: myrocks-with-a-long-name, postgresql, innodb",
            "! myrocks-with-a-long-name, repeat 1: the rate was not sustained",
            "its qps cannot be compared",
            "repeat 1: write stalls in 6 seconds",
            "postgresql, repeat 2: went on after an interruption",
            "greatest",
        ] {
            assert!(text.contains(said), "`{said}` is missing in\n{text}");
        }
        // Candidates without a problem have no mark.
        assert!(!text.contains("! innodb,") && !text.contains("! postgresql,"));
    }

    #[test]
    fn a_table_in_80_columns() {
        let text = drawn(&sample::inserts(), 80);
        let part: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("l.i1")).take(16).collect();
        insta::assert_snapshot!(part.join("\n"), @r#"
l.i1: each client inserts 1600000 rows, 50 per commit
absolute            ips    p50    p99  maxop  cpupq  ccpupq  cspq   rps  rmbps
──────────────────────────────────────────────────────────────────────────────
innodb            20.2k  20.2k  18.6k  0.029   37.2    2.98  0.47  14.6   0.16
myrocks-…ng-name  32.5k  33.1k    659   1.90   23.1    1.84  0.29  14.7   0.16
postgresql        25.2k  25.2k  23.6k  0.029   29.8    2.38  0.38  14.6   0.16
relative
myrocks-…ng-name   1.61   1.64   0.04   65.5   0.62    0.62  0.62  1.01   1.00
  least            1.61   1.64   0.04   65.5   0.62    0.62  0.62  0.99   1.00
  greatest         1.61   1.64   0.04   65.5   0.62    0.62  0.62  1.02   1.00
postgresql         1.25   1.25   1.27   1.00   0.80    0.80  0.80  1.00   1.00
  least            1.25   1.25   1.27   1.00   0.80    0.80  0.80  0.99   1.00
  greatest         1.25   1.25   1.27   1.00   0.80    0.80  0.80  1.00   1.00
absolute           wps  wmbps   rpq   rkbpq    wpi  wkbpi   csps  cpups  dbgb
─────────────────────────────────────────────────────────────────────────────
innodb             810   36.3  7e-4  0.0081  0.040   1.80  9.51k   75.1  3.35
"#);
    }

    #[test]
    fn names_that_differ_at_the_end_are_distinct() {
        let names =
            ["postgresql-of-debian-14", "postgresql-of-debian-15", "postgresql-of-debian-18"];
        let mut report = sample::inserts();
        let steps = &mut report.insert.as_mut().unwrap().steps;
        for one in steps.iter_mut().flat_map(|step| step.candidates.iter_mut().zip(names)) {
            one.0.candidate = one.1.to_owned();
        }
        let text = drawn(&report, 80);
        let labels = |of: &dyn Fn(&&str) -> bool| -> BTreeSet<String> {
            text.lines().filter(of).map(|line| line.chars().take(16).collect()).collect()
        };
        let bars = labels(&|line| line.contains('█') || line.contains('▇'));
        assert_eq!(bars.len(), names.len(), "{bars:?}");
        for kind in [" inserts ", " queries "] {
            let shares = labels(&|line| line.contains('…') && line.contains(kind));
            assert_eq!(shares.len(), names.len(), "{shares:?} in\n{text}");
        }
    }

    #[test]
    fn exports_have_their_columns_in_every_line() {
        let report = sample::inserts();
        let insert = report.insert.unwrap();
        for (text, columns) in [(steps_csv(&insert), 48), (series_csv(&insert), 25)] {
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            assert_eq!(reader.headers().unwrap().len(), columns);
            let lines = reader.records().map(Result::unwrap).count();
            assert!(lines >= 3 * 3 * 2, "{lines}");
        }
        let first = steps_csv(&insert);
        assert!(first.starts_with("step,candidate,repeat,clients,tables,rows,seconds,ips,qps,"));
        assert!(series_csv(&insert).starts_with("step,candidate,repeat,second,"));
    }

    #[test]
    fn page_has_a_line_per_repeat_and_a_marker_per_stall() {
        let page = html::render(&sample::inserts());
        let step = page.split("id=\"step-q1000\"").nth(1).unwrap();
        let chart = step.split("<figure>").nth(1).unwrap().split("</figure>").next().unwrap();
        assert_eq!(chart.matches("<polyline").count(), 6);
        // Two charts of inserts, with six stalls in each of two repeats, in two steps.
        assert_eq!(page.matches("class=\"stall\"").count(), 2 * 2 * 6 * 2);
        assert!(page.contains("rate not sustained"));
    }
}
