//! Published runs still report the figures that were committed with them, to the digit.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod published;

use std::{fs, thread};

use dbdyno_report::assemble::assemble;
use dbdyno_report::comparison;
use dbdyno_report::export::{OutputDir, write_all};
use dbdyno_report::model::Report;
use dbdyno_results::{FIGURES_VIEW, RunReader};
use rusqlite::Connection;

/// Tables that are published if a run has them.
const PUBLISHED: [&str; 4] = ["relative.csv", "summary.csv", "changes.csv", "insert_steps.csv"];

fn report(name: &str, run: &str) -> Report {
    let dir = tempfile::tempdir().unwrap();
    published::restore(name, run, dir.path());
    assemble(&RunReader::open(dir.path()).unwrap()).unwrap()
}

fn assert_same_table(name: &str, file: &str, produced: &str) {
    let committed = fs::read_to_string(published::directory(name).join(file)).unwrap();
    for (produced, committed) in produced.lines().zip(committed.lines()) {
        // Later versions append columns.
        let appended = produced.strip_prefix(committed);
        let is_same = appended.is_some_and(|rest| rest.is_empty() || rest.starts_with(','));
        assert!(is_same, "{name}/{file}: {produced}\nnot {committed}");
    }
    assert_eq!(produced.lines().count(), committed.lines().count(), "{name}/{file}");
}

/// The rows of each profile add up to the measured difference in CPU time per query within 2%.
fn assert_profiles_add_up(name: &str, report: &Report) {
    for member in &report.microbenchmarks {
        for row in &member.rows {
            let Some(profile) = &row.profile else { continue };
            let [own, base] = [&row.absolute, &member.baseline].map(|one| {
                one.cpu_us_per_query.unwrap() - one.background_cpu_us_per_query.unwrap_or(0.0)
            });
            // The smallest differences are of rounding alone.
            let allowed = 0.02 * (own - base).abs() + 1e-6 * base;
            for rows in [&profile.layers, &profile.functions] {
                let sum: f64 = rows.iter().map(|one| one.us - one.baseline_us).sum();
                let difference = own - base;
                let at = format!("{name}: {} on {}", row.candidate, member.name);
                assert!((sum - difference).abs() <= allowed, "{at}: {sum}, not {difference}");
            }
        }
    }
}

#[test]
fn figures_of_published_runs_stay_the_same() {
    let names = fs::read_dir(published::directory("")).unwrap().map(|entry| entry.unwrap());
    let names: Vec<String> = names
        .filter(|directory| directory.path().join("run.sql.xz").exists())
        .map(|directory| directory.file_name().into_string().unwrap())
        .collect();
    assert!(names.len() > 10, "{names:?}");
    let check = |name: &String| {
        let produced = tempfile::tempdir().unwrap();
        let report = report(name, "run");
        assert_profiles_add_up(name, &report);
        write_all(&report, &OutputDir::create(produced.path()).unwrap()).unwrap();
        for table in PUBLISHED {
            if let Ok(produced) = fs::read_to_string(produced.path().join(table)) {
                assert_same_table(name, table, &produced);
            }
        }
    };
    let (even, odd) = (names.iter().step_by(2), names.iter().skip(1).step_by(2));
    thread::scope(|scope| {
        scope.spawn(|| even.for_each(check));
        odd.for_each(check);
    });
}

#[test]
fn view_of_figures_has_the_figures_of_the_report() {
    let (name, run) = ("host", "run");
    let dir = tempfile::tempdir().unwrap();
    published::restore(name, run, dir.path());
    let report = assemble(&RunReader::open(dir.path()).unwrap()).unwrap();
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database.execute_batch(FIGURES_VIEW).unwrap();
    let query = "SELECT relative_qps, relative_cpu, qps, cpu_us_per_query, blocks FROM figures \
                 WHERE microbenchmark = ?1 AND candidate = ?2";
    let mut query = database.prepare(query).unwrap();
    let mut compared = 0;
    for microbenchmark in &report.microbenchmarks {
        for row in &microbenchmark.rows {
            let of_view: [Option<f64>; 5] = query
                .query_row([&microbenchmark.name, &row.candidate], |line| {
                    Ok([line.get(0)?, line.get(1)?, line.get(2)?, line.get(3)?, line.get(4)?])
                })
                .unwrap();
            let of_report = [
                row.relative_qps.map(|one| one.median.get()),
                row.relative_cpu.map(|one| one.median.get()),
                row.absolute.qps.map(|qps| qps.per_second()),
                row.absolute.cpu_us_per_query,
                Some(row.blocks as f64),
            ];
            for (view, report) in of_view.iter().zip(of_report) {
                let is_same = match (*view, report) {
                    (Some(view), Some(report)) => (view - report).abs() <= 1e-9 * report.abs(),
                    (view, report) => view == report,
                };
                assert!(is_same, "{}: {of_view:?} {of_report:?}", microbenchmark.name);
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn figures_of_a_published_fleet_run_stay_the_same() {
    let of_node = |node: &str| Report { directory: node.into(), ..report("study-c-fleet", node) };
    let compared = comparison::compare(&["node1", "node2", "node3"].map(of_node));
    assert_same_table("study-c-fleet", "comparison.csv", &comparison::csv(&compared));
}
