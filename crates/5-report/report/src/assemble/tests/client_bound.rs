//! Load generators that are the bottleneck.

use super::*;
use crate::words::client_bound as client_bound_note;

#[test]
fn busy_client_gives_no_verdict_and_no_summary() {
    let busy = |candidate, block, measured: &mut SliceMeasured| {
        faster(candidate, block, measured);
        measured.cpu = Nanos::from_micros(9_100);
    };
    let mut lab = Lab::new(&servers(), &[1], (4, 1));
    lab.blocks(0, busy);
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    assert_eq!(row.verdict, Verdict::ClientBound);
    assert!(row.relative_qps.is_some(), "the ratio is still shown");
    assert_eq!(row.cpu_verdict, Verdict::Better);
    assert!(report.groups.is_empty() && report.noise.is_none());
    assert!(report.cpu_noise.is_some());

    // Several clients can use all CPUs: a quarter of four CPUs is not busy.
    let mut lab = Lab::new(&servers(), &[4], (4, 1));
    lab.blocks(0, busy);
    assert_eq!(lab.report().microbenchmarks[0].rows[0].verdict, Verdict::Better);
}

#[test]
fn polling_does_not_make_a_client_busy() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        faster(candidate, block, measured);
        measured.cpu = Nanos::from_millis(10);
        measured.polling = Some(Nanos::from_millis(7));
    });
    let microbenchmark = &lab.report().microbenchmarks[0];
    assert_eq!(microbenchmark.rows[0].verdict, Verdict::Better);
    let base = &microbenchmark.baseline;
    assert_eq!(base.client_cpu_us_per_query, Some(3.0));
    assert_eq!(base.client_polling_us_per_query, Some(7.0));
    assert_eq!(base.client_busy, Some(Share::from_fraction(0.3)));
}

#[test]
fn saturated_server_is_not_client_bound() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        faster(candidate, block, measured);
        measured.cpu = Nanos::from_micros(9_500);
        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(9_400);
    });
    assert_eq!(lab.report().microbenchmarks[0].rows[0].verdict, Verdict::Better);
}

#[test]
fn busy_client_of_one_candidate_affects_only_its_row() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, _, measured| {
        if candidate == 1 {
            measured.cpu = Nanos::from_millis(9);
        }
    });
    let mut report = lab.report();
    let verdicts: Vec<Verdict> =
        report.microbenchmarks[0].rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::ClientBound, Verdict::WithinNoise]);
    let note = |report: &Report| client_bound_note(report).unwrap();
    assert!(note(&report).contains(", while the server still had idle CPU time."));
    report.microbenchmarks[0].rows[0].absolute.server_busy = None;
    assert!(note(&report).contains("is not known everywhere."));
    let summary: Vec<&str> = report.groups.iter().map(|s| s.candidate.as_str()).collect();
    assert_eq!(summary, ["control"]);
}
