//! Hardware and software counters in a report.

use dbdyno_types::{Count, Counter, Counting, Counts, Missing};

use super::*;
use crate::model::NotCounted;

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
