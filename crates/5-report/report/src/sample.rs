//! A generated report of realistic size: 42 microbenchmarks, three candidates and the control.
//!
//! All values come from a seeded generator, so snapshots are stable.

mod profiles;
mod servers;
mod variants;

use std::collections::BTreeMap;

use dbdyno_results::InForceRecord;
use dbdyno_stats::{ControlRow, METHOD};
use dbdyno_types::Work;
use dbdyno_units::{Bytes, Nanos, Qps, Ratio, Share};

use crate::metric::{Grouping, summarise, summarise_counters};
use crate::model::{
    Absolute, BuildRecord, CandidateRecord, Change, Effect, Estimate, Failure, LatencySummary,
    Metric, MicrobenchmarkRows, NoiseFloor, Percentile, RelativePercentile, Report, Role, Row,
    RunStatus, Verdict, Warning,
};

pub use profiles::profiled;
pub use servers::{imported, servers, servers_of, sweep, sweep_of};
pub use variants::{
    audited, counted, counted_sweep, history, inserts, only_kernel_counters, series,
};

/// The complete sample: 42 microbenchmarks, the baseline, three candidates and the control.
pub fn report() -> Report {
    let every: Vec<&str> = ALL.iter().map(|(name, ..)| *name).collect();
    report_of(&every)
}

/// The sample with only these microbenchmarks.
pub fn report_of(microbenchmarks: &[&str]) -> Report {
    let candidates = candidates();
    let drawn = ALL.iter().enumerate().filter(|(_, (name, ..))| microbenchmarks.contains(name));
    let microbenchmarks =
        drawn.map(|(index, published)| microbenchmark(index, published, &candidates));
    let mut report = Report {
        name: "sqlite-variants".to_owned(),
        directory: "results/first".into(),
        status: RunStatus::Complete,
        running_pid: None,
        started: "2026-03-01T09:30:00Z".to_owned(),
        sessions: 1,
        measuring_time: Nanos::from_secs(2_130),
        elapsed: Nanos::from_secs(2_544),
        version: "0.1.0".to_owned(),
        baseline: candidates[0].name.clone(),
        planned_restarts: None,
        microbenchmarks: microbenchmarks.collect(),
        unmeasured: Vec::new(),
        candidates,
        groups: Vec::new(),
        three_groups: Vec::new(),
        insert: None,
        effects: Vec::new(),
        series: Vec::new(),
        counter_groups: Vec::new(),
        not_counted: Vec::new(),
        scaling: Vec::new(),
        noise: None,
        cpu_noise: None,
        interval_method: METHOD.to_owned(),
        warnings: vec![Warning {
            what: "CPU frequency governor: unknown (virtual machine)".to_owned(),
            advice: "Frequency changes cannot be ruled out; compare the control's spread before \
                     you trust differences under 1%."
                .to_owned(),
        }],
        failures: Vec::new(),
        lost: Vec::new(),
        optimizations: Vec::new(),
        state_snapshots: Vec::new(),
        client_wait: None,
        host: pairs(&[
            ("CPU", "AMD EPYC 7B13, 2 CPUs, 1 thread per core"),
            ("Kernel", "Linux 6.1.0-28-amd64"),
            ("Governor", "unknown"),
            ("Hypervisor", "KVM"),
            ("Transparent huge pages", "madvise"),
            ("ASLR", "2 (full)"),
            ("Memory", "24 GiB, 21.3 GiB available"),
            ("Load at start", "0.31"),
        ]),
        settings: pairs(&[
            ("tables × rows", "1 × 1000000"),
            ("clients", "1"),
            ("Slice", "50 ms (reads), 1 s (writes)"),
            ("Target interval", "±0.5%"),
            ("Seed", "20260301"),
        ]),
        experiment_text: EXPERIMENT.to_owned(),
    };
    refresh(&mut report);
    report
}

/// The sample with the effects of a matrix of two settings on these microbenchmarks. The last one has
/// an interaction, unless `calm`.
pub fn matrix(microbenchmarks: &[&str], calm: bool) -> Report {
    let mut report = report_of(microbenchmarks);
    let change = |setting: &str, value: &str, reference: &str| Change {
        setting: setting.to_owned(),
        value: value.to_owned(),
        reference: reference.to_owned(),
    };
    let doublewrite = change("innodb_doublewrite", "OFF", "ON");
    let neighbors = change("innodb_flush_neighbors", "1", "0");
    let effects = [
        (&doublewrite, None, 1.124, 0.012),
        (&neighbors, None, 0.998, 0.004),
        (&doublewrite, Some(&neighbors), 1.001, 0.009),
    ];
    for (index, microbenchmark) in report.microbenchmarks.iter().enumerate() {
        let last = !calm && index + 1 == microbenchmarks.len();
        for (change, with, median, half) in &effects {
            let interacts = with.is_some() && last;
            let shift = if *median > 1.05 { 0.03 * index as f64 } else { 0.0 };
            let median = if interacts { 1.057 } else { median - shift };
            let ratio = |value| Ratio::new(value);
            report.effects.push(Effect {
                matrix: "maria".to_owned(),
                microbenchmark: microbenchmark.name.clone(),
                clients: microbenchmark.clients,
                group: microbenchmark.group.clone(),
                change: (*change).clone(),
                with: with.cloned(),
                relative_qps: Some(interval(
                    ratio(median),
                    ratio(median - half),
                    ratio(median + half),
                )),
                relative_cpu: None,
                verdict: if interacts || median > 1.05 {
                    Verdict::Better
                } else {
                    Verdict::WithinNoise
                },
                blocks: 60,
            });
        }
    }
    report
}

/// One candidate crashed while loading: it has a failure and no rows.
pub fn failed_candidate(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    for microbenchmark in &mut report.microbenchmarks {
        microbenchmark.rows.retain(|row| row.candidate != "rel_native");
    }
    report.failures.push(Failure {
        candidate: "rel_native".to_owned(),
        at: "load".to_owned(),
        reason: "the worker ended with signal 4 (illegal instruction): the build uses \
                 instructions that this CPU lacks"
            .to_owned(),
    });
    refresh(&mut report);
    report
}

/// A run without a control, so without a noise floor.
pub fn no_control(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    report.candidates.retain(|candidate| candidate.role != Role::Control);
    for microbenchmark in &mut report.microbenchmarks {
        microbenchmark.rows.retain(|row| row.role != Role::Control);
    }
    refresh(&mut report);
    report
}

/// An interrupted run: the last microbenchmark has too few blocks for an estimate.
pub fn incomplete(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    report.status = RunStatus::Incomplete;
    if let Some(last) = report.microbenchmarks.last_mut() {
        for row in &mut last.rows {
            row.relative_qps = None;
            row.relative_cpu = None;
            row.verdict = Verdict::Unknown;
            row.cpu_verdict = Verdict::Unknown;
            row.ratios.truncate(3);
            row.blocks = 3;
        }
    }
    refresh(&mut report);
    report
}

/// A run that was interrupted after these microbenchmarks, of all 42.
pub fn interrupted(measured: &[&str]) -> Report {
    let mut report = report();
    report.status = RunStatus::Incomplete;
    let all = std::mem::take(&mut report.microbenchmarks);
    (report.microbenchmarks, report.unmeasured) =
        all.into_iter().partition(|one| measured.contains(&one.name.as_str()));
    report.unmeasured.iter_mut().for_each(|one| one.rows.clear());
    refresh(&mut report);
    report
}

/// A run of one candidate with its control.
pub fn single(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    report.candidates.retain(|candidate| candidate.role != Role::Candidate);
    for microbenchmark in &mut report.microbenchmarks {
        microbenchmark.rows.retain(|row| row.role == Role::Control);
    }
    refresh(&mut report);
    report
}

/// All candidates are the same build: all differences are within the noise.
pub fn within_noise(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    for (index, microbenchmark) in report.microbenchmarks.iter_mut().enumerate() {
        let controls: Vec<_> =
            microbenchmark.rows.iter().filter(|row| row.role == Role::Control).cloned().collect();
        for row in &mut microbenchmark.rows {
            for control in &controls {
                let offset = if index % 2 == 0 { 0.0004 } else { -0.0003 };
                row.relative_qps = control.relative_qps.map(|mut estimate| {
                    estimate.median = Ratio::new(estimate.median.get() + offset);
                    estimate
                });
                row.relative_cpu = control.relative_cpu;
                row.ratios.clone_from(&control.ratios);
                row.verdict = Verdict::WithinNoise;
                row.cpu_verdict = Verdict::WithinNoise;
            }
        }
    }
    refresh(&mut report);
    report
}

/// Recalculate the metrics to trust, the summaries and the noise floor from the rows.
pub(crate) fn refresh(report: &mut Report) {
    let on_server = report.has_servers();
    for MicrobenchmarkRows { writes, clients, rows, .. } in &mut report.microbenchmarks {
        for row in rows {
            let client_bound = row.verdict == Verdict::ClientBound;
            let work = Work { writes: *writes, clients: *clients, on_server, client_bound };
            row.trusted_metric = Metric::trusted(work, || row.relative_cpu.is_some());
        }
    }
    let of =
        |grouping| summarise(Metric::Qps, &report.microbenchmarks, &report.candidates, grouping);
    (report.groups, report.three_groups) = (of(Grouping::Five), of(Grouping::Three));
    report.counter_groups = summarise_counters(&report.microbenchmarks, &report.candidates);
    report.noise = noise(Metric::Qps, &report.microbenchmarks);
    report.cpu_noise = noise(Metric::Cpu, &report.microbenchmarks);
}

fn noise(metric: Metric, microbenchmarks: &[MicrobenchmarkRows]) -> Option<NoiseFloor> {
    let mut controls = Vec::new();
    for microbenchmark in microbenchmarks {
        let rows = microbenchmark.rows.iter().filter(|row| row.role == Role::Control);
        controls.extend(rows.filter_map(|row| {
            let estimate = row.counted(metric).and(row.estimate(metric))?;
            Some(ControlRow { microbenchmark: microbenchmark.name.clone(), estimate })
        }));
    }
    NoiseFloor::of(&controls)
}

fn candidates() -> Vec<CandidateRecord> {
    let candidate = |name: &str, role, flags: &str, text: u64| CandidateRecord {
        name: name.to_owned(),
        role,
        system: "sqlite".to_owned(),
        version: "3.50.0".to_owned(),
        engine: None,
        build: Some(BuildRecord {
            variant: if role == Role::Control { "rel_withdbg" } else { name }.to_owned(),
            trained_on: None,
            bolted: false,
            compiler: "gcc 12.2.0".to_owned(),
            commands: vec![format!(
                "gcc {flags} -fPIC -shared -DSQLITE_THREADSAFE=2 -DSQLITE_DEFAULT_MEMSTATUS=0 \
                 -o libsqlite3.so sqlite3.c -lm"
            )],
            source_sha256: String::new(),
            library_sha256: String::new(),
            fingerprint: format!(
                "{:012x}",
                0x9e37_79b9_7f4a_u64.wrapping_mul(text) & 0xffff_ffff_ffff
            ),
            text_size: Bytes::from_bytes(text),
            file_size: Bytes::from_bytes(text * 5 / 4 + 83_000),
            stripped_size: Some(Bytes::from_bytes(text * 6 / 5 + 21_000)),
            audit: None,
        }),
        origin: None,
        server_settings: Vec::new(),
        config_diff: Vec::new(),
        in_force: InForceRecord::default(),
        configuration: pairs(&[
            ("journal_mode", "WAL"),
            ("synchronous", "NORMAL"),
            ("cache_size", "-524288"),
            ("mmap_size", "0"),
        ]),
        injected_delay: None,
    };
    vec![
        candidate("rel_withdbg", Role::Baseline, "-O2 -g -DNDEBUG", 1_021_104),
        candidate("rel", Role::Candidate, "-O3 -DNDEBUG", 1_187_320),
        candidate(
            "rel_native",
            Role::Candidate,
            "-O3 -march=native -mtune=native -DNDEBUG",
            1_214_688,
        ),
        candidate(
            "rel_native_lto",
            Role::Candidate,
            "-O3 -march=native -mtune=native -flto=auto -DNDEBUG",
            1_108_944,
        ),
        candidate("control", Role::Control, "-O2 -g -DNDEBUG", 1_021_104),
    ]
}

pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

const EXPERIMENT: &str = r#"# What do the compiler settings do for SQLite?
name = "sqlite-variants"
baseline = "rel_withdbg"
seed = 20260301

[workload]
tables = 1
rows = 1_000_000
microbenchmarks = ["all"]

[schedule]
slice = "50ms"
target = "0.5%"

[[candidate]]
name = "rel_withdbg"
system = "sqlite"
variant = "rel_withdbg"

[[candidate]]
name = "rel"
system = "sqlite"
variant = "rel"

[[candidate]]
name = "rel_native"
system = "sqlite"
variant = "rel_native"

[[candidate]]
name = "rel_native_lto"
system = "sqlite"
variant = "rel_native_lto"
"#;

/// Typical distance of the sample's control from 1; smaller differences are noise.
const NOISE_FLOOR: f64 = 0.002;

/// SplitMix64: sufficient for a sample, without a dependency.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Approximately normal: the sum of twelve uniform values.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

fn microbenchmark(
    index: usize,
    &(name, group, qps, per_event): &Published,
    candidates: &[CandidateRecord],
) -> MicrobenchmarkRows {
    let mut draw = Draw(20_260_301 + 977 * index as u64);
    let writes = group == "writes";
    let scan = name.starts_with("scan");
    let busy = if writes { 0.62e6 } else { 0.97e6 };
    let cpu = if scan { 171_500.0 } else { busy / qps };
    let rows =
        candidates.iter().enumerate().skip(1).map(|(column, candidate)| {
            row(&mut draw, column, candidate, group, (qps, cpu, per_event))
        });
    MicrobenchmarkRows {
        script: None,
        name: name.to_owned(),
        clients: 1,
        group: group.to_owned(),
        three_group: group.split('-').next().unwrap_or(group).to_owned(),
        writes,
        measuring_time: Nanos::from_secs(50),
        throughput_unit: if scan { "million rows/s" } else { "statements/s" }.to_owned(),
        rows: rows.collect(),
        baseline: absolute(qps, cpu, per_event, 1.0),
        baseline_failed: false,
    }
}

/// Effects are small for `rel`, larger for `rel_native`, largest for `rel_native_lto`, and smallest
/// for writes.
fn effect(draw: &mut Draw, column: usize, role: Role, group: &str) -> f64 {
    let strength = match group {
        "point-1" | "point-2" => 1.0,
        "range-1" | "range-2" => 0.75,
        _ => 0.2,
    };
    match role {
        Role::Candidate => {
            let typical = [-0.004, 0.019, 0.058][(column - 1) % 3];
            1.0 + strength * (typical + 0.008 * draw.normal())
        }
        Role::Baseline | Role::Control => 1.0 + 0.0015 * draw.normal(),
    }
}

fn row(
    draw: &mut Draw,
    column: usize,
    candidate: &CandidateRecord,
    group: &str,
    (qps, cpu, per_event): (f64, f64, u64),
) -> Row {
    let writes = group == "writes";
    let effect = effect(draw, column, candidate.role, group);
    let spread = if writes { 0.035 } else { 0.012 };
    let blocks = if writes { 24 } else { 60 + (40.0 * draw.next()) as usize };
    let mut drift = 0.0;
    let mut ratios = Vec::with_capacity(blocks);
    for _ in 0..blocks {
        drift = 0.8 * drift + 0.2 * spread * draw.normal();
        let outlier = if draw.next() < 0.03 { -0.06 * draw.next() } else { 0.0 };
        ratios.push(effect + drift + 0.6 * spread * draw.normal() + outlier);
    }
    let estimate = estimate(&ratios);
    let cpu_effect = 1.0 / effect + 0.001 * draw.normal();
    let relative_cpu = interval(
        Ratio::new(cpu_effect),
        Ratio::new(cpu_effect - 0.0021 - 0.001 * draw.next()),
        Ratio::new(cpu_effect + 0.0019 + 0.001 * draw.next()),
    );
    let floor = Some(Share::from_fraction(NOISE_FLOOR));
    Row {
        candidate: candidate.name.clone(),
        role: candidate.role,
        relative_qps: Some(estimate),
        single: None,
        relative_cpu: Some(relative_cpu),
        relative_cpu_of_slices: Some(relative_cpu),
        relative_cs: None,
        relative_counters: BTreeMap::new(),
        response_times: response_times(candidate.role, effect),
        statements: Vec::new(),
        engine_counters: Vec::new(),
        plans: Vec::new(),
        profile: None,
        waits: None,
        verdict: Verdict::of_estimate(Metric::Qps, &estimate, floor),
        cpu_verdict: match candidate.role {
            // The control equals the baseline: all differences are noise.
            Role::Control => Verdict::WithinNoise,
            _ => Verdict::of_estimate(Metric::Cpu, &relative_cpu, floor),
        },
        trusted_metric: Metric::Qps,
        blocks: blocks as u64,
        absolute: absolute(qps * estimate.median.get(), cpu * cpu_effect, per_event, effect),
        restart_medians: vec![estimate.median.get()],
        ratios,
    }
}

/// Response times that change less with the effect the higher the percentile is.
fn response_times(role: Role, effect: f64) -> Vec<RelativePercentile> {
    let floor = Some(Share::from_fraction(0.008));
    let of = |(number, percentile): (i32, Percentile)| {
        let ratio = 1.0 + (1.0 / effect - 1.0) / f64::from(number + 1);
        let half = 0.008 * 2.0_f64.powi(number);
        let [median, low, high] = [ratio, ratio - half, ratio + half].map(Ratio::new);
        let relative = interval(median, low, high);
        let verdict = match role {
            Role::Control => Verdict::WithinNoise,
            _ => Verdict::of_estimate(Metric::Cpu, &relative, floor),
        };
        RelativePercentile { percentile, relative: Some(relative), verdict }
    };
    (0..).zip(Percentile::ALL).map(of).collect()
}

/// A statement of a script with this ratio, ±1%.
#[cfg(test)]
pub(crate) fn statement(
    text: &str,
    per_event: f64,
    micros: f64,
    ratio: f64,
    verdict: Verdict,
) -> crate::model::RelativeStatement {
    let [median, low, high] = [ratio, ratio - 0.01, ratio + 0.01].map(Ratio::new);
    crate::model::RelativeStatement {
        statement: text.to_owned(),
        executions_per_event: Some(per_event),
        baseline_us: Some(micros),
        response_us: Some(micros * ratio),
        relative: Some(interval(median, low, high)),
        difference_us_per_event: Some(per_event * micros * (ratio - 1.0)),
        verdict,
    }
}

/// An estimate from 20 blocks.
pub(crate) const fn interval(median: Ratio, low: Ratio, high: Ratio) -> Estimate {
    Estimate { median, low, high, blocks: 20, starts: None }
}

/// An interval by order statistics, precise enough for a sample.
fn estimate(ratios: &[f64]) -> Estimate {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let half = 0.98 * (n as f64).sqrt();
    let at = |rank: f64| Ratio::new(sorted[(rank.max(0.0) as usize).min(n - 1)]);
    let middle = (n as f64 - 1.0) / 2.0;
    interval(at(middle), at(middle - half), at((middle + half).ceil()))
}

fn absolute(qps: f64, cpu: f64, per_event: u64, effect: f64) -> Absolute {
    let mean = 1e9 / qps * per_event as f64;
    let of = |share: f64| Nanos::from_nanos((mean * share / effect) as u64);
    Absolute {
        qps: Some(Qps::from_per_second(qps)),
        qps_interval: Some((Qps::from_per_second(0.994 * qps), Qps::from_per_second(1.005 * qps))),
        qps_middle_half: Some((
            Qps::from_per_second(0.985 * qps),
            Qps::from_per_second(1.012 * qps),
        )),
        cpu_us_per_query: Some(cpu),
        cpu_interval: Some((0.996 * cpu, 1.004 * cpu)),
        cpu_middle_half: Some((0.992 * cpu, 1.009 * cpu)),
        cs_per_query: Some(0.0004),
        page_faults_per_query: Some(0.0),
        latency: Some(LatencySummary {
            mean: Nanos::from_nanos(mean as u64),
            p50: of(0.94),
            p95: of(1.31),
            p99: of(1.87),
            max: of(14.2),
        }),
        p99_interval: Some((of(1.83), of(1.92))),
        statements: (qps * 3.6) as u64,
        errors: 0,
        busy_retries: 0,
        ..Absolute::default()
    }
}

/// Name, group, baseline QPS, statements per event.
type Published = (&'static str, &'static str, f64, u64);

/// The 42 microbenchmarks in running order.
const ALL: [Published; 42] = [
    ("point-query.pre_range=100", "point-1", 412_300.0, 1),
    ("random-points.pre_range=10", "point-2", 118_400.0, 1),
    ("random-points.pre_range=100", "point-2", 14_610.0, 1),
    ("random-points.pre_range=1000", "point-2", 1_487.0, 1),
    ("read-only.pre_range=10", "range-2", 231_900.0, 16),
    ("read-only.pre_range=100", "range-2", 98_240.0, 16),
    ("read-only.pre_range=10000", "range-2", 1_214.0, 16),
    ("points-covered-pk.pre_range=100", "point-1", 27_930.0, 1),
    ("points-notcovered-pk.pre_range=100", "point-1", 15_120.0, 1),
    ("points-covered-si.pre_range=100", "point-1", 22_470.0, 1),
    ("points-notcovered-si.pre_range=100", "point-1", 7_905.0, 1),
    ("range-covered-pk.pre_range=100", "range-1", 96_110.0, 1),
    ("range-notcovered-pk.pre_range=100", "range-1", 51_380.0, 1),
    ("range-covered-si.pre_range=100", "range-1", 83_540.0, 1),
    ("range-notcovered-si.pre_range=100", "range-1", 9_871.0, 1),
    ("update-inlist_range=100", "writes", 1_904.0, 1),
    ("update-index_range=100", "writes", 38_210.0, 1),
    ("update-nonindex_range=100", "writes", 49_760.0, 1),
    ("update-one_range=100", "writes", 61_030.0, 1),
    ("update-zipf_range=100", "writes", 52_880.0, 1),
    ("write-only_range=10000", "writes", 67_450.0, 6),
    ("read-write_range=10", "writes", 142_700.0, 20),
    ("read-write_range=100", "writes", 84_390.0, 20),
    ("scan_range=100", "range-1", 5.83, 1),
    ("read-only_range=10", "range-2", 226_500.0, 16),
    ("read-only_range=100", "range-2", 95_170.0, 16),
    ("read-only_range=10000", "range-2", 1_183.0, 16),
    ("point-query_range=100", "point-1", 405_900.0, 1),
    ("random-points_range=10", "point-2", 115_200.0, 1),
    ("random-points_range=100", "point-2", 14_280.0, 1),
    ("random-points_range=1000", "point-2", 1_452.0, 1),
    ("hot-points_range=100", "point-1", 19_840.0, 1),
    ("points-covered-pk_range=100", "point-1", 27_410.0, 1),
    ("points-notcovered-pk_range=100", "point-1", 14_760.0, 1),
    ("range-covered-pk_range=100", "range-1", 94_030.0, 1),
    ("range-notcovered-pk_range=100", "range-1", 49_990.0, 1),
    ("points-covered-si_range=100", "point-1", 21_880.0, 1),
    ("points-notcovered-si_range=100", "point-1", 7_612.0, 1),
    ("range-covered-si_range=100", "range-1", 81_270.0, 1),
    ("range-notcovered-si_range=100", "range-1", 9_504.0, 1),
    ("delete_range=100", "writes", 71_640.0, 1),
    ("insert_range=100", "writes", 118_900.0, 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_has_42_microbenchmarks_for_every_candidate() {
        let report = report();
        assert_eq!(report.microbenchmarks.len(), 42);
        assert!(report.microbenchmarks.iter().all(|m| m.rows.len() == 4));
        assert_eq!(report.groups.len(), 5 * 4);
    }
}
