//! Records of the run: losses, warnings, state snapshots and optimizations.

use dbdyno_results::{NewLayout, OptimizationRecord, StateSnapshotRecord};
use dbdyno_types::StateSnapshot;

use super::*;
use crate::terminal::TerminalOptions;

#[test]
fn losses_are_counted_and_are_no_failures() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    lab.fail(FailureKind::Lost, 1);
    lab.fail(FailureKind::Lost, 1);
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::Better);
    assert!(report.failures.is_empty());
    assert_eq!(report.lost.len(), 1);
    assert_eq!((report.lost[0].candidate.as_str(), report.lost[0].count), ("other", 2));
    assert_eq!(report.lost[0].data_differs_from, None);
    lab.fail(FailureKind::Differs, 1);
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::Better);
    assert!(report.failures.is_empty());
    assert_eq!(report.lost[0].data_differs_from.as_deref(), Some("point-query_range=100"));
    lab.fail(FailureKind::Ended, 1);
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::Failed);
    assert_eq!(report.failures.len(), 1);
}

#[test]
fn loss_of_an_unknown_candidate_in_a_damaged_run_has_its_number() {
    let loss = FailureRecord {
        kind: FailureKind::Lost,
        recovered: false,
        candidate: 9,
        microbenchmark: None,
        at: "start".to_owned(),
        reason: "reset".to_owned(),
    };
    let [lost] = &crate::assemble::records::lost(&[loss], &servers())[..] else { panic!() };
    assert_eq!((lost.candidate.as_str(), lost.count), ("9", 1));
}

#[test]
fn script_has_its_options_events_per_second_and_what_of_its_answers_was_compared() {
    let record = |name: &str, answers: Option<&str>| MicrobenchmarkRecord {
        name: name.to_owned(),
        clients: 1,
        group: "own".to_owned(),
        three_group: "own".to_owned(),
        script: Some("a.lua, tables = 2".to_owned()),
        answers: answers.map(str::to_owned),
        ..MicrobenchmarkRecord::default()
    };
    let limit = "only numbers of rows are compared: its SQL has RAND()";
    let records =
        vec![record("one", None), record("two", Some(limit)), record("three", Some(limit))];
    let mut lab = Lab::with(&servers(), records, (1, 1), serde_json::json!({}));
    let events = |_: u32, _: u32, measured: &mut SliceMeasured| measured.events = 50;
    (0..3).for_each(|microbenchmark| lab.blocks(microbenchmark, events));
    lab.fail(FailureKind::Undetermined, 2);
    let report = lab.report();
    let baseline = &report.microbenchmarks[0].baseline;
    assert_eq!(baseline.tps, Some(Qps::from_per_second(5_000.0)));
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::WithinNoise);
    let texts: Vec<&str> = report.warnings.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(
        texts,
        ["answers of one: signal 9".to_owned(), format!("answers of two, three: {limit}")]
    );
    const OPTIONS: TerminalOptions =
        TerminalOptions { width: 100, color: false, three_groups: false, details: false };
    let terminal = crate::terminal::render(&report, &OPTIONS);
    let markdown = crate::markdown::render(&report);
    let rates = "on average base 5,000 TPS (100,000 QPS), other 5,000 TPS (100,000 QPS)";
    for text in [terminal.split_whitespace().collect::<Vec<_>>().join(" "), markdown] {
        assert!(text.contains(&format!("one: a.lua, tables = 2; {rates}")), "{text}");
    }
    let answer = crate::terminal::answer(&report, &OPTIONS).unwrap();
    let answer: Vec<&str> = answer.split_whitespace().collect();
    assert!(answer.join(" ").contains(&format!("TPS one: {rates}")), "{answer:?}");
    let page = crate::html::render(&report);
    assert!(page.contains(&format!("one: {rates}")), "{page}");
    assert!(
        crate::export::relative_csv(&report).contains(",5000.000,5000.000,\"a.lua, tables = 2\"")
    );
}

#[test]
fn difference_between_equal_instances_started_once_is_a_warning() {
    let differing = |candidates: &[CandidateRecord], control: f64, restarts: u32| {
        let experiment = serde_json::json!({ "schedule": { "restarts": restarts } });
        let mut lab = Lab::of(candidates, &[1, 2, 4, 8], (1, 1), experiment);
        for microbenchmark in 0..4 {
            lab.blocks(microbenchmark, |candidate, block, measured| {
                let off = if candidate == 2 { control } else { f64::from(block % 2) / 1_000.0 };
                measured.throughput = Some(Qps::from_per_second(100_000.0 * (1.0 + off)));
            });
        }
        lab.report().warnings
    };
    let [warning] = &differing(&embedded(), 0.05, 1)[..] else { panic!() };
    assert!(warning.what.contains("beyond their intervals in 4 of 4"), "{warning:?}");
    assert!(warning.advice.contains("restarts = 4"), "{warning:?}");
    assert!(differing(&embedded(), 0.0005, 1).is_empty());
    assert!(differing(&embedded(), 0.05, 4).is_empty(), "other starts will follow");
    let [existing] = &differing(&servers(), 0.05, 1)[..] else { panic!() };
    assert!(existing.advice.contains("which is not restarted"), "{existing:?}");
}

#[test]
fn ratio_that_changes_within_starts_of_reads_is_a_warning() {
    let warnings = |clients: &[u32], writes: bool, early: u64| {
        let record = |clients: &u32| MicrobenchmarkRecord {
            name: "point-query_range=100".to_owned(),
            clients: *clients,
            writes,
            ..MicrobenchmarkRecord::default()
        };
        let records = clients.iter().map(record).collect();
        let mut lab = Lab::with(&servers(), records, (1, 1), serde_json::json!({}));
        for (start, block) in (0..4).flat_map(|start| (0..12).map(move |block| (start, block))) {
            for microbenchmark in 0..clients.len() as u32 {
                lab.block(microbenchmark, start, 12 * start + block, |candidate, _, measured| {
                    if candidate > 0 && block < 4 {
                        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(early);
                        measured.throughput = Some(Qps::from_per_second(97_000.0));
                    }
                });
            }
        }
        lab.report().warnings
    };
    let [warning] = &warnings(&[1], false, 5_125)[..] else { panic!() };
    assert_eq!(
        warning.what,
        "other on point-query_range=100: CPU per query changes from 1.025 to 1.000 of the baseline's \
         within starts: one of them is not warm when counting begins"
    );
    let [both] = &warnings(&[1, 8], false, 5_125)[..] else { panic!() };
    let largest = "other on point-query_range=100, 8 clients and 1 more: QPS changes from 0.970 to";
    assert!(both.what.starts_with(largest), "{both:?}");
    assert!(warnings(&[1], true, 5_125).is_empty(), "writes change the data");
    assert!(warnings(&[1], false, 5_000).is_empty(), "throughput is not the metric to trust");
}

#[test]
fn state_snapshots_are_grouped_by_time() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    for (at, pages) in [("at the start", 1), ("after the writes", 2), ("after the writes", 3)] {
        for candidate in 0..2 {
            let mut state = vec![("pages".to_owned(), pages)];
            if candidate == 1 {
                state.push(("levels".to_owned(), 6));
            }
            let state_snapshot = StateSnapshot { rows: 10, data_size: Bytes::from_kib(4), state };
            let at = at.to_owned();
            lab.writer
                .add_state_snapshot(&StateSnapshotRecord { candidate, at, state_snapshot })
                .unwrap();
        }
    }
    let state_snapshots = lab.report().state_snapshots;
    let times: Vec<&str> = state_snapshots.iter().map(|one| one.at.as_str()).collect();
    assert_eq!(times, ["at the start", "after the writes", "after the writes (2)"]);
    assert_eq!(state_snapshots[2].candidates, ["base", "other"]);
    let state = &state_snapshots[2].state;
    let row = |name: &str| state.iter().find(|(n, _)| n == name).unwrap().1.clone();
    assert_eq!(row("rows"), [Some(10), Some(10)]);
    assert_eq!(row("data_size"), [Some(4_096), Some(4_096)]);
    assert_eq!(row("pages"), [Some(3), Some(3)]);
    assert_eq!(row("levels"), [None, Some(6)]);
}

#[test]
fn optimizations_show_names_instead_of_numbers() {
    let mut lab = Lab::new(&servers(), &[1, 4], (1, 1));
    let optimization = OptimizationRecord {
        candidate: 1,
        trained_with: 1,
        measured_next: 0,
        after_restart: false,
        refused: None,
        layout: NewLayout {
            source: "clock".to_owned(),
            samples: 9_000,
            covered: None,
            functions: 412,
            skipped: Vec::new(),
            files: Vec::new(),
            hot: Bytes::from_kib(300),
            cold: Bytes::from_kib(700),
            added: Bytes::from_mib(2),
            processes: 1,
            unchanged: None,
            counts: None,
            longest_pause: Nanos::from_millis(3),
            threads: 12,
            took: Nanos::from_secs(2),
        },
    };
    lab.writer.add_optimization(&optimization).unwrap();
    let report = lab.report();
    let found = &report.optimizations[0];
    assert_eq!(found.candidate, "other");
    assert_eq!(found.trained_with, "point-query_range=100, 4 clients");
    assert_eq!(found.measured_next, "point-query_range=100, 1 client");
    let json = crate::export::run_json(&report).unwrap();
    assert!(json.contains("\"functions\": 412"), "{json}");
}
