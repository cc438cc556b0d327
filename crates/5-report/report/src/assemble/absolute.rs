//! Absolute figures of a candidate on one microbenchmark: CPU time (also between slices), counters
//! and response times.

use std::collections::BTreeMap;

use dbdyno_results::{
    CandidateRecord, MicrobenchmarkRecord, OriginRecord, SessionRecord, SliceRecord,
};
use dbdyno_stats::{
    BlockTimes, Estimate, ResponseTimes, median, middle_half, restarts_with_interval,
};
use dbdyno_types::{Counter, Counting, Latencies, LatencyCounts, ServerUsage, SliceMeasured};
use dbdyno_units::{Bytes, Nanos, Qps, Share};

use super::Slice;
use crate::model::{Absolute, CounterFigure, NotCounted, Percentile, by_key};

/// Where the system under test runs, which decides what the clients' CPU time belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemKind {
    /// Inside the worker: the clients' CPU time is that of the system under test.
    Embedded,
    /// In separate processes: the clients' CPU time is that of the load generator.
    Server,
    /// Imported results: CPU time is unknown.
    Imported,
}

impl SystemKind {
    pub(super) fn of(candidate: &CandidateRecord) -> Self {
        match &candidate.origin {
            Some(OriginRecord::Imported { .. }) => Self::Imported,
            _ if candidate.is_embedded() => Self::Embedded,
            // An installed, a compiled or an existing server.
            _ => Self::Server,
        }
    }
}

/// Numbers of CPUs available to the load generator and the server; `None` if unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpus {
    client: Option<u32>,
    system: Option<u32>,
}

impl Cpus {
    /// The CPUs available to `clients`. If a run was resumed with other CPUs, the lowest number
    /// counts: this may mark too many rows as client-bound, but never too few.
    pub(super) fn of(sessions: &[SessionRecord], clients: u32) -> Self {
        // A client uses one CPU at a time.
        let client = sessions.iter().filter_map(|session| session.client_cpus).min();
        let system = sessions.iter().filter_map(|session| session.system_cpus).min();
        Self { client: client.map(|cpus| cpus.min(clients.max(1))), system }
    }
}

/// CPU time of the system under test per statement of the slice, in microseconds, without
/// background CPU between slices.
pub(super) fn cpu_per_query(measured: &SliceMeasured, kind: SystemKind) -> Option<f64> {
    per_query(measured.statements, system_cpu(measured, kind)?)
}

/// Context switches of a server per statement. An embedded database has almost none.
pub(super) fn switches_per_query(measured: &SliceMeasured) -> Option<f64> {
    per_query(measured.statements, measured.server?.context_switches? as f64)
}

/// In µs.
fn system_cpu(measured: &SliceMeasured, kind: SystemKind) -> Option<f64> {
    let server = |used: &ServerUsage| Some(used.cpu.as_micros_f64());
    of_system(measured, kind, server, |inside| inside.cpu.as_micros_f64())
}

/// The server's value if there is a server, otherwise the worker's.
fn of_system(
    measured: &SliceMeasured,
    kind: SystemKind,
    server: impl Fn(&ServerUsage) -> Option<f64>,
    inside: impl Fn(&SliceMeasured) -> f64,
) -> Option<f64> {
    match (&measured.server, kind) {
        (Some(used), _) => server(used),
        (None, SystemKind::Embedded) => Some(inside(measured)),
        (None, SystemKind::Server | SystemKind::Imported) => None,
    }
}

fn per_query(statements: u64, amount: f64) -> Option<f64> {
    (statements > 0).then(|| amount / statements as f64)
}

/// Figures over a candidate's counted slices; `None` without slices.
pub(super) fn absolute(
    record: &MicrobenchmarkRecord,
    (slices, times): (&Vec<&SliceRecord>, &ResponseTimes),
    kind: SystemKind,
    (cpus, planned_restarts): (Cpus, Option<u32>),
    background: &Background,
) -> Option<Absolute> {
    if slices.is_empty() {
        return None;
    }
    let slices = Slices { slices, planned_restarts };
    let unit = match record.rows_read_per_statement {
        None => 1.0,
        Some(rows) => rows as f64 / 1e6,
    };
    let throughput = |m: &SliceMeasured| Some(m.throughput?.per_second() * unit);
    let throughputs = slices.each(throughput);
    let qps = median(&throughputs);
    let qps_interval =
        qps.and_then(|qps| slices.interval(qps, |slice| throughput(&slice.measured)));
    let whole_cpu = |slice: &&SliceRecord| {
        let own = cpu_per_query(&slice.measured, kind)?;
        Some(own + background.per_query(slice.candidate, slice.restart))
    };
    let cpu: Vec<f64> = slices.slices.iter().filter_map(whole_cpu).collect();
    let in_slices = slices.per_query(|m| system_cpu(m, kind));
    let between = slices.of_server(|used| Some(used.background_cpu?.as_micros_f64()));
    let cpu_us_per_query = in_slices.map(|cpu| cpu + between.unwrap_or(0.0));
    let client = (kind == SystemKind::Server).then_some(());
    let both_qps = |(low, high)| (Qps::from_per_second(low), Qps::from_per_second(high));
    Some(Absolute {
        qps: qps.map(Qps::from_per_second),
        qps_interval: qps_interval.map(both_qps),
        qps_middle_half: middle_half(&throughputs).map(both_qps),
        tps: record.script.as_ref().and_then(|_| {
            let events = |m: &SliceMeasured| {
                let per_statement = m.events as f64 / m.statements as f64;
                Some(m.throughput?.per_second() * per_statement).filter(|tps| tps.is_finite())
            };
            median(&slices.each(events)).map(Qps::from_per_second)
        }),
        cpu_us_per_query,
        cpu_interval: cpu_us_per_query.and_then(|cpu| slices.interval(cpu, |one| whole_cpu(&one))),
        background_cpu_us_per_query: between,
        cpu_middle_half: middle_half(&cpu),
        user_us_per_query: slices.of_server(|used| Some(used.user.as_micros_f64())),
        system_us_per_query: slices.of_server(|used| Some(used.system.as_micros_f64())),
        client_cpu_us_per_query: client
            .and_then(|()| slices.per_query(|m| Some(m.work().as_micros_f64()))),
        client_polling_us_per_query: client
            .and_then(|()| slices.per_query(|m| Some(m.polling?.as_micros_f64()))),
        client_busy: client.and(cpus.client).and_then(|n| slices.busy(n, |m| Some(m.work()))),
        server_busy: cpus.system.and_then(|n| slices.busy(n, |m| Some(m.server?.cpu))),
        cs_per_query: slices.per_query(|m| {
            let server = |used: &ServerUsage| Some(used.context_switches? as f64);
            of_system(m, kind, server, |inside| inside.context_switches as f64)
        }),
        page_faults_per_query: slices.per_query(|m| {
            let server = |used: &ServerUsage| Some(used.page_faults as f64);
            of_system(m, kind, server, |inside| inside.page_faults as f64)
        }),
        read_bytes_per_query: slices.of_server(|used| bytes(used.read_from_storage)),
        written_bytes_per_query: slices.of_server(|used| bytes(used.written_to_storage)),
        counters: counter_figures(slices.slices),
        counted_time: counted_time(slices.slices),
        latency: times.summary(),
        p99_interval: times.percentile_interval(Percentile::SHARES[2]),
        statements: slices.count(|m| m.statements),
        errors: slices.count(|m| m.errors + m.wrong),
        busy_retries: slices.count(|m| m.busy_retries),
    })
}

fn bytes(bytes: Option<Bytes>) -> Option<f64> {
    Some(bytes?.as_bytes() as f64)
}

struct Slices<'a> {
    slices: &'a [&'a SliceRecord],
    /// The number of starts that the schedule requires; `None` if unknown.
    planned_restarts: Option<u32>,
}

impl Slices<'_> {
    fn each(&self, figure: impl Fn(&SliceMeasured) -> Option<f64>) -> Vec<f64> {
        self.slices.iter().filter_map(|slice| figure(&slice.measured)).collect()
    }

    /// The 95% interval of `value`, which is calculated over all slices: the relative interval of
    /// the median of the slices' values.
    fn interval(&self, value: f64, of: impl Fn(&SliceRecord) -> Option<f64>) -> Option<(f64, f64)> {
        let mut restarts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for slice in self.slices {
            restarts.entry(slice.restart).or_default().extend(of(slice));
        }
        let restarts: Vec<Vec<f64>> = restarts.into_values().collect();
        let estimate = restarts_with_interval(&restarts, self.planned_restarts)?;
        let scale = value / estimate.median.get();
        let (low, high) = (estimate.low.get() * scale, estimate.high.get() * scale);
        (low.is_finite() && high.is_finite()).then_some((low, high))
    }

    fn count(&self, of: fn(&SliceMeasured) -> u64) -> u64 {
        self.slices.iter().map(|slice| of(&slice.measured)).sum()
    }

    /// The sum over all slices in which the value is known, per statement of these slices.
    fn per_query(&self, amount: impl Fn(&SliceMeasured) -> Option<f64>) -> Option<f64> {
        let known = self
            .slices
            .iter()
            .filter_map(|slice| Some((slice.measured.statements, amount(&slice.measured)?)));
        let (statements, sum) =
            known.fold((0, 0.0), |(n, sum), (statements, one)| (n + statements, sum + one));
        per_query(statements, sum)
    }

    fn of_server(&self, amount: impl Fn(&ServerUsage) -> Option<f64>) -> Option<f64> {
        self.per_query(|measured| amount(measured.server.as_ref()?))
    }

    /// CPU utilization of `cpus` CPUs: the median over the slices.
    fn busy(&self, cpus: u32, cpu: impl Fn(&SliceMeasured) -> Option<Nanos>) -> Option<Share> {
        let share = |measured: &SliceMeasured| {
            let could = measured.wall.as_nanos() as f64 * f64::from(cpus);
            (could > 0.0).then_some(cpu(measured)?.as_nanos() as f64 / could)
        };
        median(&self.each(share)).map(Share::from_fraction)
    }
}

/// Background CPU time per statement, by candidate and by restart of the instances.
///
/// It is divided evenly over the statements of a restart. Compaction and autovacuum run in bursts:
/// if a burst were attributed to the slice after it, only a few blocks would contain it, and the
/// median over blocks would ignore most of its cost.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// CPU time, and the statements between which it was used.
    by_start: BTreeMap<(u32, u32), (Nanos, u64)>,
}

impl Background {
    /// From counted slices. Slices without a reading of background CPU are ignored.
    pub(super) fn of(slices: &[SliceRecord]) -> Self {
        let mut background = Self::default();
        for slice in slices {
            let used = slice.measured.server.and_then(|server| server.background_cpu);
            let Some(cpu) = used else { continue };
            let sum = background.by_start.entry((slice.candidate, slice.restart)).or_default();
            sum.0 += cpu;
            sum.1 += slice.measured.statements;
        }
        background
    }

    /// Whether it is known for a candidate.
    pub(super) fn is_known(&self, candidate: u32) -> bool {
        self.by_start.keys().any(|(of, _)| *of == candidate)
    }

    /// Microseconds per statement; 0 if unknown.
    pub(super) fn per_query(&self, candidate: u32, restart: u32) -> f64 {
        let sum = self.by_start.get(&(candidate, restart));
        let mean = sum.and_then(|(cpu, statements)| per_query(*statements, cpu.as_micros_f64()));
        mean.unwrap_or_default()
    }
}

/// The ratios of p50, p95 and p99.
pub(super) type PercentileRatios = [Option<Estimate>; 3];

/// The response times of one block.
pub(super) type Times<'a> = BlockTimes<LatencyCounts<'a>>;

fn times(restart: u32, block: u32, latencies: &Latencies) -> Times<'_> {
    BlockTimes { restart, block, counts: latencies.counts() }
}

pub(super) fn block_times<'a>(slices: &[&'a SliceRecord]) -> Vec<Times<'a>> {
    let of = |one: &&'a SliceRecord| times(one.restart, one.block, &one.measured.latencies);
    slices.iter().map(of).collect()
}

/// The response times of one candidate, by block.
pub(super) fn times_of_candidate(slices: &[Slice], candidate: usize) -> Vec<Times<'_>> {
    let of = slices.iter().filter(|slice| slice.candidate as usize == candidate);
    of.map(|slice| times(slice.restart, slice.block, &slice.latencies)).collect()
}

/// Misses are reported per this number of instructions.
const MANY: f64 = 1e3;

/// Numerator and denominator of the figure in a slice; `None` if one of them is unknown.
fn terms(figure: CounterFigure, measured: &SliceMeasured) -> Option<(f64, f64)> {
    use CounterFigure as F;
    let count = |counter| measured.counts.estimate(counter);
    let statements = measured.statements as f64;
    let misses = |counter| Some((MANY * count(counter)?, count(Counter::Instructions)?));
    Some(match figure {
        F::InstructionsPerQuery => (count(Counter::Instructions)?, statements),
        F::CyclesPerQuery => (count(Counter::Cycles)?, statements),
        F::InstructionsPerCycle => (count(Counter::Instructions)?, count(Counter::Cycles)?),
        F::L1iMissesPer1000Instructions => misses(Counter::L1iMisses)?,
        F::ItlbMissesPer1000Instructions => misses(Counter::ItlbMisses)?,
        F::BranchesPerQuery => (count(Counter::Branches)?, statements),
        F::BranchMissesPer1000Instructions => misses(Counter::BranchMisses)?,
        F::EventsPerMillionCycles => (1e6 * measured.events as f64, count(Counter::Cycles)?),
        F::MinorFaultsPerQuery => (count(Counter::MinorFaults)?, statements),
        F::MajorFaultsPerQuery => (count(Counter::MajorFaults)?, statements),
        F::CpuMigrationsPerQuery => (count(Counter::CpuMigrations)?, statements),
        F::MicrojoulesPerQuery => (measured.energy?.as_microjoules() as f64, statements),
    })
}

pub(super) fn in_slice(figure: CounterFigure, measured: &SliceMeasured) -> Option<f64> {
    let (amount, per) = terms(figure, measured)?;
    (per > 0.0).then(|| amount / per)
}

/// All known figures, each over the slices in which it is known.
fn counter_figures(slices: &[&SliceRecord]) -> BTreeMap<CounterFigure, f64> {
    let over_all = |figure| {
        let known = slices.iter().filter_map(|slice| terms(figure, &slice.measured));
        let (amount, per) = known.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (per > 0.0).then(|| (figure, amount / per))
    };
    CounterFigure::all().filter_map(over_all).collect()
}

/// The lowest share of time for which one of the CPU's counters was active, over all slices; `None`
/// if the CPU counted nothing.
fn counted_time(slices: &[&SliceRecord]) -> Option<Share> {
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
    let opened = || candidates.iter().zip(&session.counting).filter(|(_, one)| one.is_some());
    let reasons = opened().flat_map(|(candidate, counting)| {
        let reasons = counting.iter().flat_map(of_one);
        reasons.map(|reason| (reason, candidate.name.clone()))
    });
    let not_counted = |((what, reason, advice), mut candidates): (Reason, Vec<String>)| {
        if candidates.len() == opened().count() {
            candidates.clear();
        }
        NotCounted { what, candidates, reason, advice }
    };
    by_key(reasons).into_iter().map(not_counted).collect()
}

/// What is not counted, why, and how to make it available.
type Reason = (String, String, Option<String>);

fn of_one(counting: &Counting) -> Vec<Reason> {
    let mut found = Vec::new();
    for hardware in [true, false] {
        let kind = if hardware { "hardware counters" } else { "counters of the kernel" };
        let all = Counter::ALL.into_iter().filter(|one| one.is_hardware() == hardware).count();
        let missing = counting.missing.iter().filter(|it| it.counter.is_hardware() == hardware);
        for (reason, same) in by_key(missing.map(|one| (&one.reason, one))) {
            let names: Vec<&str> = same.iter().map(|one| one.counter.name()).collect();
            let what = match names.len() == all {
                true => kind.to_owned(),
                false => names.join(", ").replace('_', " "),
            };
            found.push((what, reason.clone(), same[0].advice.clone()));
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
    use dbdyno_types::{Count, Counted, Counts, Missing};
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
        let figures = counter_figures(&[&first, &second]);
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
