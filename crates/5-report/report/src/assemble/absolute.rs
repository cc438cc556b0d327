//! Absolute figures of a candidate on one microbenchmark.

use std::collections::BTreeMap;

use dbdyno_results::{
    CandidateRecord, MicrobenchmarkRecord, OriginRecord, SessionRecord, SliceRecord,
};
use dbdyno_stats::{
    LatencySummary, median, middle_half, percentile_interval, restarts_with_interval,
};
use dbdyno_types::{ServerUsage, SliceMeasured};
use dbdyno_units::{Bytes, Nanos, Qps, Share};

use super::background::Background;
use super::counters;
use super::response_times::block_times;
use crate::model::{Absolute, Percentile};

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
    per_query(measured.statements, system_cpu(measured, kind)?.as_micros_f64())
}

/// Context switches of a server per statement. An embedded database has almost none.
pub(super) fn switches_per_query(measured: &SliceMeasured) -> Option<f64> {
    per_query(measured.statements, measured.server?.context_switches? as f64)
}

fn system_cpu(measured: &SliceMeasured, kind: SystemKind) -> Option<Nanos> {
    match (measured.server, kind) {
        (Some(server), _) => Some(server.cpu),
        (None, SystemKind::Embedded) => Some(measured.cpu),
        (None, SystemKind::Server | SystemKind::Imported) => None,
    }
}

fn per_query(statements: u64, amount: f64) -> Option<f64> {
    (statements > 0).then(|| amount / statements as f64)
}

/// Figures over a candidate's counted slices; `None` without slices.
pub(super) fn absolute(
    record: &MicrobenchmarkRecord,
    slices: &[&SliceRecord],
    kind: SystemKind,
    (cpus, planned_restarts): (Cpus, Option<u32>),
    background: &Background,
) -> Option<Absolute> {
    if slices.is_empty() {
        return None;
    }
    let slices = Slices { slices, kind, planned_restarts };
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
    let in_slices = slices.per_query(|m| Some(system_cpu(m, kind)?.as_micros_f64()));
    let between = slices.of_server(|used| Some(used.background_cpu?.as_micros_f64()));
    let cpu_us_per_query = in_slices.map(|cpu| cpu + between.unwrap_or(0.0));
    let client = (kind == SystemKind::Server).then_some(());
    let latencies: Vec<(u64, u64)> = slices
        .slices
        .iter()
        .flat_map(|slice| slice.measured.latencies.counts().iter().copied())
        .collect();
    let latency = LatencySummary::of(&latencies);
    Some(Absolute {
        qps: qps.map(Qps::from_per_second),
        qps_interval: qps_interval
            .map(|(low, high)| (Qps::from_per_second(low), Qps::from_per_second(high))),
        qps_middle_half: middle_half(&throughputs)
            .map(|(low, high)| (Qps::from_per_second(low), Qps::from_per_second(high))),
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
        cs_per_query: slices.of_either(
            |used| Some(used.context_switches? as f64),
            |measured| measured.context_switches as f64,
        ),
        page_faults_per_query: slices.of_either(
            |used| Some(used.page_faults as f64),
            |measured| measured.page_faults as f64,
        ),
        read_bytes_per_query: slices.of_server(|used| bytes(used.read_from_storage)),
        written_bytes_per_query: slices.of_server(|used| bytes(used.written_to_storage)),
        counters: counters::figures(slices.slices),
        counted_time: counters::counted_time(slices.slices),
        latency,
        p99_interval: percentile_interval(
            &block_times(slices.slices),
            slices.planned_restarts,
            Percentile::SHARES[2],
        ),
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
    kind: SystemKind,
    /// The number of starts that the schedule requires; `None` if unknown.
    planned_restarts: Option<u32>,
}

impl Slices<'_> {
    /// The values of one figure, from each slice that has it.
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

    /// The server's value if there is a server, otherwise the worker's.
    fn of_either(
        &self,
        server: impl Fn(&ServerUsage) -> Option<f64>,
        inside: impl Fn(&SliceMeasured) -> f64,
    ) -> Option<f64> {
        self.per_query(|measured| match (&measured.server, self.kind) {
            (Some(used), _) => server(used),
            (None, SystemKind::Embedded) => Some(inside(measured)),
            (None, SystemKind::Server | SystemKind::Imported) => None,
        })
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
