//! Generated counter values, added to other samples.

use dbdyno_units::{Ratio, Share};

use super::{interval, refresh, report_of, servers};
use crate::model::{Absolute, CounterFigure as Figure, NotCounted, Report, Row};

/// A run on a machine with all counters.
#[must_use]
pub fn counted(microbenchmarks: &[&str]) -> Report {
    with_counters(report_of(microbenchmarks))
}

/// A sweep over clients on a machine with all counters.
#[must_use]
pub fn counted_sweep() -> Report {
    with_counters(servers::sweep())
}

/// A run on a machine without hardware counters.
#[must_use]
pub fn only_kernel_counters(microbenchmarks: &[&str]) -> Report {
    let mut report = counted(microbenchmarks);
    for microbenchmark in &mut report.microbenchmarks {
        of_kernel(&mut microbenchmark.baseline);
        for row in &mut microbenchmark.rows {
            of_kernel(&mut row.absolute);
            row.relative_counters.retain(|figure, _| is_of_kernel(*figure));
        }
    }
    let missing = |what: &str, reason: &str, advice: Option<&str>| NotCounted {
        what: what.to_owned(),
        candidates: Vec::new(),
        reason: reason.to_owned(),
        advice: advice.map(str::to_owned),
    };
    report.not_counted = vec![
        missing(
            "hardware counters",
            "this machine has no hardware counters (virtual machine without a PMU)",
            Some("enable the virtual PMU in the hypervisor (QEMU: -cpu host,pmu=on)"),
        ),
        missing(
            "energy",
            "the kernel shows no energy of CPU packages (no RAPL in /sys/class/powercap)",
            None,
        ),
    ];
    refresh(&mut report);
    report
}

const fn is_of_kernel(figure: Figure) -> bool {
    matches!(
        figure,
        Figure::MinorFaultsPerQuery | Figure::MajorFaultsPerQuery | Figure::CpuMigrationsPerQuery
    )
}

fn of_kernel(absolute: &mut Absolute) {
    absolute.counters.retain(|figure, _| is_of_kernel(*figure));
    absolute.counted_time = None;
}

/// Add counter values that are consistent with the CPU times of a sample.
fn with_counters(mut report: Report) -> Report {
    for microbenchmark in &mut report.microbenchmarks {
        add(&mut microbenchmark.baseline, 1.0);
        for row in &mut microbenchmark.rows {
            let cpu = row.relative_cpu.map_or(1.0, |estimate| estimate.median.get());
            // Half of the gain comes from fewer instructions, half from fewer misses.
            add(&mut row.absolute, cpu.sqrt());
            relate(row, &microbenchmark.baseline);
        }
    }
    refresh(&mut report);
    report
}

fn add(absolute: &mut Absolute, better: f64) {
    let Some(cpu) = absolute.cpu_us_per_query else { return };
    let cycles = 2_400.0 * cpu;
    let ipc = 1.1 / better;
    absolute.counters = [
        (Figure::InstructionsPerQuery, cycles * ipc),
        (Figure::CyclesPerQuery, cycles),
        (Figure::InstructionsPerCycle, ipc),
        (Figure::L1iMissesPer1000Instructions, 31.4 * better),
        (Figure::ItlbMissesPer1000Instructions, 1.27 * better),
        (Figure::BranchesPerQuery, 0.19 * cycles * ipc),
        (Figure::BranchMissesPer1000Instructions, 4.6),
        (Figure::EventsPerMillionCycles, 1e6 / cycles),
        (Figure::MinorFaultsPerQuery, 0.000_41),
        (Figure::MajorFaultsPerQuery, 0.0),
        (Figure::CpuMigrationsPerQuery, 0.000_002),
        (Figure::MicrojoulesPerQuery, 38.0 * cpu),
    ]
    .into();
    absolute.counted_time = Some(Share::from_percent(62.5));
}

/// As for software counters in a run, there is no interval if slices have a value of zero.
fn relate(row: &mut Row, baseline: &Absolute) {
    let Row { absolute, relative_counters, .. } = row;
    for (figure, own) in &absolute.counters {
        let of_baseline = baseline.counters.get(figure).copied();
        let Some(base) = of_baseline.filter(|_| !is_of_kernel(*figure)) else { continue };
        let near = |offset: f64| Ratio::new(own / base + offset);
        let estimate = interval(near(0.0), near(-0.002), near(0.003));
        relative_counters.insert(*figure, estimate);
    }
}
