//! Generate the rows of one microbenchmark.

use std::collections::BTreeMap;

use dbdyno_units::{Nanos, Qps, Ratio, Share};

use crate::model::{
    Absolute, CandidateRecord, Estimate, LatencySummary, Metric, MicrobenchmarkRows, Percentile,
    RelativePercentile, Role, Row, Verdict,
};

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

pub(super) fn microbenchmark(
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
        relative_cs: None,
        relative_counters: BTreeMap::new(),
        response_times: response_times(candidate.role, effect),
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
pub(super) type Published = (&'static str, &'static str, f64, u64);

/// The 42 microbenchmarks in running order.
pub(super) const ALL: [Published; 42] = [
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
