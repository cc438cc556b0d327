//! Counter figures per statement and per instruction, and counters that were unavailable.

use std::collections::BTreeMap;

use dbdyno_results::{CandidateRecord, SessionRecord, SliceRecord};
use dbdyno_types::{Counter, Counting, Missing, SliceMeasured};
use dbdyno_units::Share;

use crate::model::{CounterFigure, NotCounted};

/// Misses are reported per this number of instructions.
const MANY: f64 = 1e3;

/// Numerator and denominator of the figure in a slice; `None` if one of them is unknown.
fn terms(figure: CounterFigure, measured: &SliceMeasured) -> Option<(f64, f64)> {
    use CounterFigure as F;
    let count = |counter| measured.counts.estimate(counter);
    let statements = measured.statements as f64;
    Some(match figure {
        F::InstructionsPerQuery => (count(Counter::Instructions)?, statements),
        F::CyclesPerQuery => (count(Counter::Cycles)?, statements),
        F::InstructionsPerCycle => (count(Counter::Instructions)?, count(Counter::Cycles)?),
        F::L1iMissesPer1000Instructions => {
            (MANY * count(Counter::L1iMisses)?, count(Counter::Instructions)?)
        }
        F::ItlbMissesPer1000Instructions => {
            (MANY * count(Counter::ItlbMisses)?, count(Counter::Instructions)?)
        }
        F::BranchesPerQuery => (count(Counter::Branches)?, statements),
        F::BranchMissesPer1000Instructions => {
            (MANY * count(Counter::BranchMisses)?, count(Counter::Instructions)?)
        }
        F::EventsPerMillionCycles => (1e6 * measured.events as f64, count(Counter::Cycles)?),
        F::MinorFaultsPerQuery => (count(Counter::MinorFaults)?, statements),
        F::MajorFaultsPerQuery => (count(Counter::MajorFaults)?, statements),
        F::CpuMigrationsPerQuery => (count(Counter::CpuMigrations)?, statements),
        F::MicrojoulesPerQuery => (measured.energy?.as_microjoules() as f64, statements),
    })
}

/// The figure of one slice.
pub(super) fn in_slice(figure: CounterFigure, measured: &SliceMeasured) -> Option<f64> {
    let (amount, per) = terms(figure, measured)?;
    (per > 0.0).then(|| amount / per)
}

/// All known figures, each over the slices in which it is known.
pub(super) fn figures(slices: &[&SliceRecord]) -> BTreeMap<CounterFigure, f64> {
    let over_all = |figure| {
        let known = slices.iter().filter_map(|slice| terms(figure, &slice.measured));
        let (amount, per) = known.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (per > 0.0).then(|| (figure, amount / per))
    };
    CounterFigure::ALL.into_iter().filter_map(over_all).collect()
}

/// The lowest share of time for which one of the CPU's counters was active, over all slices; `None`
/// if the CPU counted nothing.
pub(super) fn counted_time(slices: &[&SliceRecord]) -> Option<Share> {
    let share = |counter| {
        let counts = slices.iter().filter_map(|slice| slice.measured.counts.get(counter));
        let (enabled, running) = counts.fold((0, 0), |(enabled, running), one| {
            (enabled + one.enabled.as_nanos(), running + one.running.as_nanos())
        });
        (enabled > 0).then(|| (running as f64 / enabled as f64).min(1.0))
    };
    let hardware = Counter::ALL.into_iter().filter(|counter| counter.is_hardware());
    hardware.filter_map(share).reduce(f64::min).map(Share::from_fraction)
}

/// Unavailable counters, each listed once, with the affected candidates if not all are affected.
pub(super) fn not_counted(
    sessions: &[SessionRecord],
    candidates: &[CandidateRecord],
) -> Vec<NotCounted> {
    // Use the last session that opened counters: its machine is the one reported.
    let Some(session) = sessions.iter().rev().find(|it| it.counting.iter().any(Option::is_some))
    else {
        return Vec::new();
    };
    let mut all: Vec<NotCounted> = Vec::new();
    let mut opened = 0;
    for (candidate, counting) in candidates.iter().zip(&session.counting) {
        let Some(counting) = counting else { continue };
        opened += 1;
        for (what, reason, advice) in of_one(counting) {
            let same = |one: &&mut NotCounted| one.what == what && one.reason == reason;
            match all.iter_mut().find(same) {
                Some(one) => one.candidates.push(candidate.name.clone()),
                None => {
                    let candidates = vec![candidate.name.clone()];
                    all.push(NotCounted { what, candidates, reason, advice });
                }
            }
        }
    }
    for one in &mut all {
        if one.candidates.len() == opened {
            one.candidates.clear();
        }
    }
    all
}

fn of_one(counting: &Counting) -> Vec<(String, String, Option<String>)> {
    let mut found: Vec<(String, String, Option<String>)> = Vec::new();
    for hardware in [true, false] {
        let kind = if hardware { "hardware counters" } else { "counters of the kernel" };
        let all = Counter::ALL.into_iter().filter(|one| one.is_hardware() == hardware).count();
        let missing = counting.missing.iter().filter(|it| it.counter.is_hardware() == hardware);
        let mut by_reason: Vec<(&str, Vec<&Missing>)> = Vec::new();
        for one in missing {
            match by_reason.iter_mut().find(|(reason, _)| *reason == one.reason) {
                Some((_, same)) => same.push(one),
                None => by_reason.push((&one.reason, vec![one])),
            }
        }
        for (reason, same) in by_reason {
            let names: Vec<&str> = same.iter().map(|one| one.counter.name()).collect();
            let what = match names.len() == all {
                true => kind.to_owned(),
                false => names.join(", ").replace('_', " "),
            };
            found.push((what, reason.to_owned(), same[0].advice.clone()));
        }
    }
    if counting.counted.iter().any(|one| one.user_only) {
        let advice = "sudo sysctl kernel.perf_event_paranoid=1".to_owned();
        let reason = "this user may count in user mode only".to_owned();
        found.push(("what the kernel does for it".to_owned(), reason, Some(advice)));
    }
    if let Some(reason) = &counting.no_energy {
        found.push(("energy".to_owned(), reason.clone(), None));
    }
    found
}

#[cfg(test)]
mod tests {
    use dbdyno_types::{Count, Counted, Counts};
    use dbdyno_units::{Energy, Nanos};

    use super::*;

    fn count(counter: Counter, count: u64, running: u64) -> Count {
        let enabled = Nanos::from_millis(10);
        Count { counter, count, enabled, running: Nanos::from_millis(running) }
    }

    fn row(counts: Vec<Count>, statements: u64) -> SliceRecord {
        SliceRecord {
            microbenchmark: 0,
            restart: 0,
            block: 0,
            position: 0,
            candidate: 0,
            warmup: false,
            measured: SliceMeasured {
                counts: Counts::new(counts),
                energy: Some(Energy::from_microjoules(600)),
                statements,
                events: statements / 10,
                ..SliceMeasured::default()
            },
        }
    }

    #[test]
    fn figures_are_quotients_of_sums_scaled_for_multiplexing() {
        let first = row(
            vec![
                count(Counter::Cycles, 1_000_000, 10),
                count(Counter::Instructions, 2_000_000, 10),
                // Active for a fifth of the time: 20,000 if scaled.
                count(Counter::L1iMisses, 4_000, 2),
                count(Counter::MinorFaults, 3, 10),
                // Never scheduled.
                count(Counter::ItlbMisses, 0, 0),
            ],
            100,
        );
        let second = row(
            vec![
                count(Counter::Cycles, 3_000_000, 10),
                count(Counter::Instructions, 2_000_000, 10),
            ],
            300,
        );
        assert_eq!(in_slice(CounterFigure::InstructionsPerCycle, &first.measured), Some(2.0));
        assert_eq!(in_slice(CounterFigure::CyclesPerQuery, &first.measured), Some(10_000.0));
        let figures = figures(&[&first, &second]);
        let of = |figure| figures.get(&figure).copied();
        assert_eq!(of(CounterFigure::InstructionsPerCycle), Some(1.0));
        assert_eq!(of(CounterFigure::InstructionsPerQuery), Some(10_000.0));
        assert_eq!(of(CounterFigure::L1iMissesPer1000Instructions), Some(10.0));
        assert_eq!(of(CounterFigure::ItlbMissesPer1000Instructions), None);
        assert_eq!(of(CounterFigure::MinorFaultsPerQuery), Some(0.03));
        assert_eq!(of(CounterFigure::EventsPerMillionCycles), Some(10.0));
        assert_eq!(of(CounterFigure::MicrojoulesPerQuery), Some(3.0));
        assert_eq!(of(CounterFigure::MajorFaultsPerQuery), None);
        assert_eq!(counted_time(&[&first, &second]), Some(Share::from_fraction(0.0)));
        assert_eq!(counted_time(&[&second]), Some(Share::from_fraction(1.0)));
        assert_eq!(in_slice(CounterFigure::CyclesPerQuery, &row(vec![], 0).measured), None);
    }

    #[test]
    fn unavailable_counters_are_grouped_or_listed_singly() {
        let missing = |counter| Missing {
            counter,
            reason: "none".to_owned(),
            advice: Some("another machine".to_owned()),
        };
        let hardware = Counter::ALL.into_iter().filter(|counter| counter.is_hardware());
        let counting = Counting {
            counted: vec![Counted { counter: Counter::MinorFaults, user_only: true }],
            missing: hardware.map(missing).collect(),
            no_energy: Some("no RAPL".to_owned()),
        };
        let whats: Vec<String> = of_one(&counting).into_iter().map(|(what, ..)| what).collect();
        assert_eq!(whats, ["hardware counters", "what the kernel does for it", "energy"]);
        let some = Counting {
            missing: vec![missing(Counter::L1iMisses), missing(Counter::ItlbMisses)],
            ..Counting::default()
        };
        assert_eq!(of_one(&some)[0].0, "l1i misses, itlb misses");
    }
}
