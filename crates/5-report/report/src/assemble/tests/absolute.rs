//! Absolute figures: CPU time, counters, and whether the load generator was the bottleneck.

use dbdyno_types::{Count, Counter, Counting, Counts, Missing};
use dbdyno_units::Energy;

use super::*;
use crate::model::NotCounted;
use crate::words::client_bound as client_bound_note;

#[test]
fn absolute_figures_have_intervals_around_them() {
    let mut lab = Lab::new(&servers(), &[1, 2], (1, 1));
    let varying = |_: u32, block: u32, measured: &mut SliceMeasured| {
        measured.throughput = Some(Qps::from_per_second(100_000.0 + f64::from(block)));
        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(5_000 + u64::from(block));
        let slowest = 100_000 + 1_000 * u64::from(block);
        measured.latencies = Latencies::new(vec![(10_000, 980), (slowest, 20)]);
    };
    lab.blocks(0, varying);
    lab.blocks(1, |candidate, block, measured| {
        varying(candidate, block, measured);
        measured.latencies = Latencies::new(vec![(10_000, 9)]);
    });
    let report = lab.report();
    let base = &report.microbenchmarks[0].baseline;
    let (low, high) = base.qps_interval.unwrap();
    assert!(99_999.0 < low.per_second() && low < base.qps.unwrap() && base.qps.unwrap() < high);
    let (low, high) = base.cpu_interval.unwrap();
    assert!(4.99 < low && low < base.cpu_us_per_query.unwrap() && high < 5.02);
    let (low, high) = base.p99_interval.unwrap();
    let p99 = base.latency.unwrap().p99;
    assert!(low < p99 && p99 < high, "{low} {p99} {high}");
    assert_eq!(report.microbenchmarks[1].baseline.p99_interval, None, "18 events in a part");
}

#[test]
fn cpu_time_of_server_and_client_are_separate() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    let report = lab.report();
    assert_eq!(report.candidates[0].system_title(), "MariaDB 10.11.19 (innodb)");
    let microbenchmark = &report.microbenchmarks[0];
    let base = &microbenchmark.baseline;
    assert_eq!(base.cpu_us_per_query, Some(5.0));
    assert_eq!((base.user_us_per_query, base.system_us_per_query), (Some(4.0), Some(1.0)));
    assert_eq!(base.client_cpu_us_per_query, Some(2.0));
    assert_eq!((base.cs_per_query, base.page_faults_per_query), (Some(2.0), Some(0.5)));
    assert_eq!((base.read_bytes_per_query, base.written_bytes_per_query), (Some(0.0), Some(64.0)));
    assert_eq!(base.client_busy, Some(Share::from_fraction(0.2)));
    assert_eq!(base.server_busy, Some(Share::from_fraction(0.5)));
    let row = &microbenchmark.rows[0];
    assert!((row.relative_qps.unwrap().median.get() - 1.2).abs() < 1e-9);
    assert!((row.relative_cpu.unwrap().median.get() - 0.9).abs() < 1e-9);
    assert!((row.relative_cs.unwrap().median.get() - 1.5).abs() < 1e-9);
    assert_eq!((row.verdict, row.cpu_verdict), (Verdict::Better, Verdict::Better));
}

/// Sets the background CPU time of a server before the slice.
fn background(measured: &mut SliceMeasured, micros: u64) {
    measured.server.as_mut().unwrap().background_cpu = Some(Nanos::from_micros(micros));
}

#[test]
fn background_cpu_is_added_to_the_candidate_that_used_it() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        // The candidate uses it in one burst: 3 µs per query over all ten blocks.
        let burst = if block == 3 { 30_000 } else { 0 };
        background(measured, if candidate == 1 { burst } else { 1_000 });
    });
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    let (base, row) = (&microbenchmark.baseline, &microbenchmark.rows[0]);
    assert_eq!(base.cpu_us_per_query, Some(6.0));
    assert_eq!(base.background_cpu_us_per_query, Some(1.0));
    assert_eq!(row.absolute.cpu_us_per_query, Some(8.0));
    assert_eq!(row.absolute.background_share(), Some(Share::from_fraction(0.375)));
    // The figures of the slices do not change.
    assert_eq!(
        (base.user_us_per_query, base.server_busy),
        (Some(4.0), Some(Share::from_fraction(0.5)))
    );
    assert!((row.relative_cpu.unwrap().median.get() - 8.0 / 6.0).abs() < 1e-9);
    let of_slices = row.relative_cpu_of_slices.unwrap();
    assert!((of_slices.median.get() - 1.0).abs() < 1e-9 && of_slices.contains_one());
    assert_eq!((row.verdict, row.cpu_verdict), (Verdict::WithinNoise, Verdict::Worse));
}

#[test]
fn background_cpu_known_of_one_server_only_is_not_compared() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, _, measured| {
        if candidate == 0 {
            background(measured, 1_000);
        }
    });
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    assert_eq!(microbenchmark.baseline.cpu_us_per_query, Some(6.0));
    assert!((microbenchmark.rows[0].relative_cpu.unwrap().median.get() - 1.0).abs() < 1e-9);
}

#[test]
fn embedded_database_has_the_workers_cpu_time_and_no_client() {
    let mut lab = Lab::new(&embedded(), &[1], (1, 1));
    lab.blocks(0, |_, _, measured| measured.server = None);
    let report = lab.report();
    assert_eq!(report.candidates[0].system_title(), "SQLite 3.50.0");
    let base = &report.microbenchmarks[0].baseline;
    assert_eq!((base.cpu_us_per_query, base.client_cpu_us_per_query), (Some(2.0), None));
    assert_eq!((base.cs_per_query, base.user_us_per_query), (Some(0.077), None));
    assert_eq!(base.client_busy, None);
    assert_eq!(report.microbenchmarks[0].rows[0].relative_cs, None);
}

#[test]
fn compiled_server_has_a_client() {
    let build = embedded()[0].build.clone();
    let compiled = |one| CandidateRecord { build: build.clone(), origin: None, ..one };
    let candidates: Vec<_> = servers().into_iter().map(compiled).collect();
    let mut lab = Lab::new(&candidates, &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        faster(candidate, block, measured);
        // Unreadable server CPU time is not replaced by the client's.
        if block == 0 {
            measured.server = None;
        }
    });
    let report = lab.report();
    let base = &report.microbenchmarks[0].baseline;
    assert_eq!(base.client_cpu_us_per_query, Some(2.0));
    assert_eq!(base.client_busy, Some(Share::from_fraction(0.2)));
    assert_eq!(base.cpu_us_per_query, Some(5.0));
}

#[test]
fn existing_server_has_client_cpu_time_only() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |_, _, measured| measured.server = None);
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    assert_eq!(microbenchmark.baseline.cpu_us_per_query, None);
    assert_eq!(microbenchmark.baseline.cs_per_query, None);
    assert_eq!(microbenchmark.baseline.client_cpu_us_per_query, Some(2.0));
    assert_eq!(microbenchmark.rows[0].relative_cpu, None);
    assert_eq!(microbenchmark.rows[0].cpu_verdict, Verdict::Unknown);
}

#[test]
fn zero_context_switches_have_no_ratio() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        if candidate == 1 && block == 3 {
            measured.server.as_mut().unwrap().context_switches = Some(0);
        }
    });
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].relative_cs, None);
    assert!(report.microbenchmarks[0].rows[1].relative_cs.is_some());
}

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

/// A counter that was active for this many thousandths of 5 ms.
fn count(counter: Counter, count: u64, thousandths: u64) -> Count {
    let enabled = Nanos::from_millis(5);
    Count { counter, count, enabled, running: Nanos::from_micros(5 * thousandths) }
}

#[test]
fn counters_are_compared_by_block() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        // All slices drift in the same way; the candidate uses 20% fewer instructions and 10% fewer
        // cycles.
        let drift = 100 + u64::from(block);
        let (instructions, cycles) = if candidate == 1 { (80, 90) } else { (100, 100) };
        measured.counts = Counts::new(vec![
            count(Counter::Instructions, 1_000 * drift * instructions, 1_000),
            count(Counter::Cycles, 2_000 * drift * cycles, 1_000),
            // Active half of the time: doubled.
            count(Counter::L1iMisses, drift * instructions, 500),
            count(Counter::MinorFaults, u64::from(candidate + block), 1_000),
        ]);
        measured.energy = Some(Energy::from_microjoules(1_000 * cycles));
    });
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    let (base, row) = (&microbenchmark.baseline, &microbenchmark.rows[0]);
    let figure = |figure| base.counters.get(&figure).copied();
    assert_eq!(figure(CounterFigure::InstructionsPerCycle), Some(0.5));
    assert_eq!(figure(CounterFigure::InstructionsPerQuery), Some(10_450.0));
    assert_eq!(figure(CounterFigure::L1iMissesPer1000Instructions), Some(2.0));
    assert_eq!(figure(CounterFigure::MicrojoulesPerQuery), Some(100.0));
    assert_eq!(figure(CounterFigure::BranchesPerQuery), None);
    assert_eq!(base.counted_time, Some(Share::from_fraction(0.5)));
    let near = |figure, expected: f64| {
        let estimate = row.relative_counters.get(&figure).unwrap();
        assert!((estimate.median.get() - expected).abs() < 1e-9, "{figure:?} {estimate:?}");
        assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
    };
    near(CounterFigure::InstructionsPerQuery, 0.8);
    near(CounterFigure::CyclesPerQuery, 0.9);
    near(CounterFigure::InstructionsPerCycle, 0.8 / 0.9);
    near(CounterFigure::L1iMissesPer1000Instructions, 1.0);
    near(CounterFigure::EventsPerMillionCycles, 1.0 / 0.9);
    near(CounterFigure::MicrojoulesPerQuery, 0.9);
    // The baseline's first slice has no faults, so this block has no ratio.
    assert_eq!(figure(CounterFigure::MinorFaultsPerQuery), Some(0.0045));
    assert!(!row.relative_counters.contains_key(&CounterFigure::MinorFaultsPerQuery));
    let control = &microbenchmark.rows[1].relative_counters;
    assert!((control[&CounterFigure::CyclesPerQuery].median.get() - 1.0).abs() < 1e-9);
    let of_groups = &report.counter_groups;
    assert_eq!(of_groups.len(), 2 * 3, "{of_groups:?}");
    assert_eq!(of_groups[0].figure, CounterFigure::InstructionsPerQuery);
    assert!((of_groups[0].median.get() - 0.8).abs() < 1e-9);
}

#[test]
fn slices_with_unknown_counts_are_ignored() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        // Not scheduled in one block, and not counted at all in another.
        let running = if (candidate, block) == (1, 3) { 0 } else { 1_000 };
        if (candidate, block) != (1, 5) {
            measured.counts = Counts::new(vec![count(Counter::Cycles, 5_000, running)]);
        }
    });
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    assert_eq!(row.absolute.counters[&CounterFigure::CyclesPerQuery], 5.0);
    assert_eq!(row.relative_counters[&CounterFigure::CyclesPerQuery].median.get(), 1.0);
    assert_eq!(row.absolute.counted_time, Some(Share::from_fraction(8.0 / 9.0)));
}

#[test]
fn unavailable_counters_are_listed_once_with_their_candidates() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |_, _, _| ());
    let missing = |counter, reason: &str| Missing {
        counter,
        reason: reason.to_owned(),
        advice: Some("look elsewhere".to_owned()),
    };
    let hardware = || Counter::ALL.into_iter().filter(|counter| counter.is_hardware());
    let here = Counting {
        missing: hardware().map(|counter| missing(counter, "no PMU")).collect(),
        no_energy: Some("no RAPL".to_owned()),
        ..Counting::default()
    };
    let elsewhere = Counting {
        missing: Counter::ALL.map(|counter| missing(counter, "elsewhere")).into(),
        no_energy: Some("no RAPL".to_owned()),
        ..Counting::default()
    };
    let mut session = lab.writer.reader().unwrap().sessions().unwrap().pop().unwrap();
    assert!(lab.report().not_counted.is_empty(), "nobody tried");
    session.counting = vec![Some(here.clone()), Some(elsewhere), Some(here)];
    lab.writer.update_session(&session).unwrap();
    let lines: Vec<String> = lab.report().not_counted.iter().map(NotCounted::line).collect();
    assert_eq!(
        lines,
        [
            "hardware counters of base, control: not available here: no PMU",
            "energy: not available here: no RAPL",
            "hardware counters of other: not available here: elsewhere",
            "counters of the kernel of other: not available here: elsewhere",
        ]
    );
}
