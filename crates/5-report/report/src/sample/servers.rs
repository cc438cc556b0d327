//! Generated comparisons of servers: a run, a sweep over numbers of clients, imported results.

use dbdyno_results::{BlockCounts, InForceRecord, NewLayout};
use dbdyno_units::{Bytes, Nanos, Qps, Ratio, Share};

use super::{interval, pairs, refresh, report_of};
use crate::model::{
    Absolute, CandidateRecord, Estimate, Lost, Metric, MicrobenchmarkRows, Optimization,
    OriginRecord, Report, Role, Row, ScalingRatio, ScalingRow, StateSnapshots, Verdict,
};

/// All 42 on InnoDB, MyRocks and the control, with state snapshots, configuration differences, a
/// lost server, and a client-bound microbenchmark.
pub fn servers() -> Report {
    let every: Vec<&str> = super::ALL.iter().map(|(name, ..)| *name).collect();
    servers_of(&every)
}

/// The sample of servers with only these microbenchmarks.
pub fn servers_of(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    report.name = "myrocks-vs-innodb".to_owned();
    report.baseline = "innodb".to_owned();
    report.candidates = candidates();
    for microbenchmark in &mut report.microbenchmarks {
        on_servers(microbenchmark, 1);
        if microbenchmark.name.starts_with("point-query.pre") {
            microbenchmark.baseline.client_busy = Some(Share::from_percent(97.0));
            for row in &mut microbenchmark.rows {
                row.verdict = Verdict::ClientBound;
                for percentile in &mut row.response_times {
                    percentile.verdict = Verdict::ClientBound;
                }
                row.absolute.client_busy = Some(Share::from_percent(95.0));
            }
        }
    }
    report.lost = vec![Lost {
        candidate: "myrocks".to_owned(),
        count: 2,
        at: "insert_range=100".to_owned(),
        reason: "the server ended with signal 9; its log ends with: [Note] RocksDB: compaction"
            .to_owned(),
        data_differs_from: Some("insert_range=100".to_owned()),
    }];
    report.optimizations = vec![optimization()];
    report.state_snapshots = state_snapshots();
    report.settings = pairs(&[("tables × rows", "8 × 1000000"), ("clients", "1")]);
    report.experiment_text = "name = \"myrocks-vs-innodb\"\n".to_owned();
    refresh(&mut report);
    report
}

/// Two microbenchmarks with 1 to 128 clients.
pub fn sweep() -> Report {
    sweep_of(&[1, 2, 4, 8, 16, 32, 64, 128])
}

/// Two microbenchmarks with these numbers of clients, powers of two.
pub fn sweep_of(clients: &[u32]) -> Report {
    let mut report = servers_of(&["point-query_range=100", "read-only_range=100"]);
    report.name = "read-only-sweep".to_owned();
    let single = std::mem::take(&mut report.microbenchmarks);
    for microbenchmark in single {
        for clients in clients {
            let mut at = microbenchmark.clone();
            at.clients = *clients;
            let step = clients.ilog2();
            let n = f64::from(at.clients);
            // Throughput grows until the server's CPUs are used up, then decreases slightly.
            let growth = n / (1.0 + n / 9.0 + n * n / 9_000.0);
            let cpu = 0.72 + 0.28 / n.sqrt() + 0.001 * n;
            scale(&mut at.baseline, growth, cpu);
            for row in &mut at.rows {
                let drop =
                    if row.role == Role::Candidate { 1.0 - 0.02 * f64::from(step) } else { 1.0 };
                shift(row, drop);
                scale(&mut row.absolute, growth * drop, cpu / drop);
            }
            report.microbenchmarks.push(at);
        }
    }
    report.scaling = scaling(&report);
    refresh(&mut report);
    report
}

/// The ratios between the numbers of clients of a sweep. p99 grows with their number.
fn scaling(report: &Report) -> Vec<ScalingRow> {
    let steps: Vec<ScalingRow> = report
        .candidates
        .iter()
        .flat_map(|candidate| {
            report.microbenchmarks.iter().filter_map(move |one| {
                let row = one.row(&candidate.name);
                let absolute = match candidate.role {
                    Role::Baseline => &one.baseline,
                    Role::Candidate | Role::Control => &row?.absolute,
                };
                Some(ScalingRow {
                    microbenchmark: one.name.clone(),
                    group: one.group.clone(),
                    three_group: one.three_group.clone(),
                    candidate: candidate.name.clone(),
                    role: candidate.role,
                    clients: one.clients,
                    qps: absolute.qps,
                    p99: absolute.latency.map(|times| times.p99.times(u64::from(one.clients) + 9)),
                    to_previous: None,
                    to_smallest: None,
                })
            })
        })
        .collect();
    let mut rows: Vec<ScalingRow> = Vec::new();
    for name in ["point-query_range=100", "read-only_range=100"] {
        let of_one: Vec<&ScalingRow> =
            steps.iter().filter(|row| row.microbenchmark == name).collect();
        for of_candidate in of_one.chunk_by(|a, b| a.candidate == b.candidate) {
            for (index, row) in of_candidate.iter().enumerate() {
                let than = |index: usize| ratio_of(row, of_candidate[index]);
                rows.push(ScalingRow {
                    to_previous: index.checked_sub(1).map(than),
                    to_smallest: (index > 0).then(|| than(0)),
                    ..(*row).clone()
                });
            }
        }
    }
    rows
}

fn ratio_of(row: &ScalingRow, than: &ScalingRow) -> ScalingRatio {
    let estimate = |own: f64, other: f64, half: f64| {
        let median = own / other;
        let [low, high] = [1.0 - half, 1.0 + half].map(|end| Ratio::new(median * end));
        interval(Ratio::new(median), low, high)
    };
    let qps = row.qps.zip(than.qps);
    let qps = qps.map(|(own, other)| estimate(own.per_second(), other.per_second(), 0.012));
    let p99 = row.p99.zip(than.p99);
    let p99 = p99.map(|(own, other)| estimate(own.as_micros_f64(), other.as_micros_f64(), 0.03));
    let verdict = |metric: Metric, estimate: Option<Estimate>| {
        estimate.map_or(Verdict::Unknown, |one| Verdict::of_estimate(metric, &one, None))
    };
    ScalingRatio {
        than_clients: than.clients,
        interleaved: row.microbenchmark.starts_with("point"),
        relative_qps: qps,
        verdict: verdict(Metric::Qps, qps),
        relative_p99: p99,
        p99_verdict: verdict(Metric::Cpu, p99),
    }
}

/// Published results: one value each.
pub fn imported() -> Report {
    let mut report = servers_of(&["scan_range=100", "insert_range=100", "update-index_range=100"]);
    report.name = "published".to_owned();
    (report.measuring_time, report.elapsed) = (Nanos::ZERO, Nanos::ZERO);
    report.candidates.retain(|candidate| candidate.role != Role::Control);
    for candidate in &mut report.candidates {
        let file = "published-qps.tsv".to_owned();
        candidate.origin = Some(OriginRecord::Imported { file });
        (candidate.system, candidate.version) = ("imported".to_owned(), String::new());
        candidate.engine = None;
        candidate.configuration.clear();
        candidate.config_diff.clear();
    }
    let alone = |absolute: &Absolute| Absolute { qps: absolute.qps, ..Absolute::default() };
    for microbenchmark in &mut report.microbenchmarks {
        microbenchmark.rows.retain(|row| row.role != Role::Control);
        microbenchmark.baseline = alone(&microbenchmark.baseline);
        for row in &mut microbenchmark.rows {
            row.single = row.relative_qps.map(|estimate| estimate.median);
            (row.relative_qps, row.relative_cpu, row.relative_cs) = (None, None, None);
            (row.verdict, row.cpu_verdict) = (Verdict::NoInterval, Verdict::Unknown);
            row.absolute = alone(&row.absolute);
            row.response_times.clear();
            row.ratios.truncate(1);
            row.blocks = 1;
        }
    }
    report.lost.clear();
    report.optimizations.clear();
    report.state_snapshots.clear();
    report.warnings.clear();
    report.host.clear();
    refresh(&mut report);
    report
}

fn candidates() -> Vec<CandidateRecord> {
    let candidate = |name: &str, role, engine: &str, parity: &[&str]| CandidateRecord {
        name: name.to_owned(),
        role,
        system: "mariadb".to_owned(),
        version: "10.11.14-MariaDB".to_owned(),
        engine: Some(engine.to_owned()),
        build: None,
        origin: Some(OriginRecord::Program {
            path: "/usr/sbin/mariadbd".to_owned(),
            sha256: "9f2c".repeat(16),
            file_size: Bytes::from_mib(27),
            release: None,
        }),
        configuration: pairs(&[
            ("innodb_buffer_pool_size", "4G"),
            ("innodb_flush_log_at_trx_commit", "2"),
            ("character_set_server", "utf8mb4"),
        ]),
        server_settings: Vec::new(),
        config_diff: parity.iter().map(|line| (*line).to_owned()).collect(),
        in_force: InForceRecord::default(),
        injected_delay: None,
    };
    let parity = [
        "torn pages: innodb writes every page twice (innodb_doublewrite = ON); myrocks never \
         overwrites a page",
        "checksums: crc32 of pages of 16 KiB; crc32c of blocks of 4 KiB",
    ];
    vec![
        candidate("innodb", Role::Baseline, "innodb", &[]),
        candidate("myrocks", Role::Candidate, "myrocks", &parity),
        candidate("control", Role::Control, "innodb", &[]),
    ]
}

/// Convert an embedded database's figures to a server's.
fn on_servers(microbenchmark: &mut MicrobenchmarkRows, clients: u32) {
    microbenchmark.clients = clients;
    microbenchmark
        .rows
        .retain(|row| matches!(row.candidate.as_str(), "rel_native_lto" | "control"));
    server(&mut microbenchmark.baseline);
    let effect = match microbenchmark.group.as_str() {
        "point-1" | "point-2" => 0.70,
        "range-1" => 0.56,
        "range-2" => 0.66,
        _ if microbenchmark.name.starts_with("update-index") => 1.84,
        _ => 0.55,
    };
    for row in &mut microbenchmark.rows {
        if row.role == Role::Candidate {
            row.candidate = "myrocks".to_owned();
            shift(row, effect);
            scale(&mut row.absolute, effect, 1.0 / effect);
            let worse = if effect < 1.0 { Verdict::Worse } else { Verdict::Better };
            (row.verdict, row.cpu_verdict) = (worse, worse);
        }
        server(&mut row.absolute);
        row.relative_cs = Some(if row.role == Role::Control {
            interval(Ratio::new(1.001), Ratio::new(0.996), Ratio::new(1.004))
        } else {
            interval(Ratio::new(1.27), Ratio::new(1.26), Ratio::new(1.29))
        });
    }
}

/// Add the figures that only servers have.
fn server(absolute: &mut Absolute) {
    scale(absolute, 0.06, 14.0);
    let cpu = absolute.cpu_us_per_query.unwrap_or_default();
    absolute.user_us_per_query = Some(0.62 * cpu);
    absolute.system_us_per_query = Some(0.38 * cpu);
    absolute.client_cpu_us_per_query = Some(0.21 * cpu);
    absolute.client_busy = Some(Share::from_percent(31.0));
    absolute.server_busy = Some(Share::from_percent(58.0));
    absolute.cs_per_query = Some(1.02);
    absolute.page_faults_per_query = Some(0.003);
    absolute.read_bytes_per_query = Some(0.0);
    absolute.written_bytes_per_query = Some(512.4);
}

/// Multiply a candidate's absolute figures.
fn scale(absolute: &mut Absolute, qps: f64, cpu: f64) {
    let times = |figure: Qps| Qps::from_per_second(figure.per_second() * qps);
    absolute.qps = absolute.qps.map(times);
    absolute.qps_middle_half =
        absolute.qps_middle_half.map(|(low, high)| (times(low), times(high)));
    absolute.cpu_us_per_query = absolute.cpu_us_per_query.map(|figure| figure * cpu);
    absolute.cpu_middle_half = absolute.cpu_middle_half.map(|(low, high)| (low * cpu, high * cpu));
}

/// Multiply a candidate's ratios: `effect` above 1 is more throughput and less CPU time.
fn shift(row: &mut Row, effect: f64) {
    let by = |estimate: Estimate, effect: f64| Estimate {
        median: Ratio::new(estimate.median.get() * effect),
        low: Ratio::new(estimate.low.get() * effect),
        high: Ratio::new(estimate.high.get() * effect),
        ..estimate
    };
    row.relative_qps = row.relative_qps.map(|estimate| by(estimate, effect));
    row.relative_cpu = row.relative_cpu.map(|estimate| by(estimate, 1.0 / effect));
    row.ratios.iter_mut().chain(&mut row.restart_medians).for_each(|ratio| *ratio *= effect);
}

fn optimization() -> Optimization {
    Optimization {
        candidate: "myrocks".to_owned(),
        trained_with: "point-query_range=100".to_owned(),
        measured_next: "point-query_range=100".to_owned(),
        after_restart: false,
        refused: None,
        layout: NewLayout {
            source: "clock".to_owned(),
            samples: 9_874,
            covered: Some(Share::from_percent(97.2)),
            counts: Some(BlockCounts::Counted {
                executions: 81_234_567,
                lost: Nanos::from_millis(117),
            }),
            functions: 412,
            skipped: vec![("transaction".to_owned(), 3), ("too small".to_owned(), 9)],
            files: vec!["/usr/sbin/mariadbd".to_owned()],
            hot: Bytes::from_kib(312),
            cold: Bytes::from_kib(640),
            added: Bytes::from_mib(2),
            processes: 1,
            unchanged: None,
            longest_pause: Nanos::from_micros(3_200),
            threads: 14,
            took: Nanos::from_millis(1_870),
        },
    }
}

fn state_snapshots() -> Vec<StateSnapshots> {
    let names = || vec!["innodb".to_owned(), "myrocks".to_owned(), "control".to_owned()];
    let at = |at: &str, purge: u64| StateSnapshots {
        at: at.to_owned(),
        candidates: names(),
        state: vec![
            ("rows".to_owned(), vec![Some(8_000_000); 3]),
            (
                "data_size".to_owned(),
                vec![Some(2_214_592_512), Some(1_017_118_720), Some(2_214_592_512)],
            ),
            ("history_length".to_owned(), vec![Some(purge), None, Some(purge)]),
            ("dirty_pages".to_owned(), vec![Some(0), None, Some(0)]),
            ("compactions_pending".to_owned(), vec![None, Some(0), None]),
            ("level_6_files".to_owned(), vec![None, Some(38), None]),
        ],
    };
    vec![at("before the first microbenchmark", 0), at("after the writes", 3)]
}
