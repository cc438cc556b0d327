//! The sample with audits, with counters, as a history, and as a series of releases; and an insert benchmark of
//! three engines and two repeats, with stalls and a rate that was not sustained.

use dbdyno_results::{
    AuditRecord, CommandLineDifference, CommandLinesRecord, InsertPlanRecord, InsertStepPlan,
    InsertStepRecord, NamedCount, StartedFrom,
};
use dbdyno_types::insert::{DeviceUsage, Operations, Second, StepMeasured};
use dbdyno_types::{Latencies, ServerUsage};
use dbdyno_units::{Bytes, Nanos, Ratio, Share};

use super::{ALL, interval, pairs, refresh, report, report_of, servers};
use crate::assemble::inserts::assemble_steps;
use crate::model::{
    Absolute, CandidateRecord, CounterFigure as Figure, Estimate, NotCounted, Report, Role, Row,
    Series, SeriesCell, SeriesChange, SeriesGroup, SeriesPoint, SeriesRow, Verdict,
};
use crate::sections::series::sort_by_group;

const OBJECTS: u64 = 912;

/// The sample with only these microbenchmarks and builds of many objects.
pub fn audited(microbenchmarks: &[&str]) -> Report {
    let mut report = report_of(microbenchmarks);
    for candidate in &mut report.candidates {
        let Some(build) = &mut candidate.build else { continue };
        build.audit = Some(match (candidate.role, candidate.name.as_str()) {
            (Role::Candidate, "rel") => rel(),
            (Role::Candidate, name) => native(name.ends_with("lto")),
            _ => plain("O2"),
        });
    }
    report
}

fn tallies(all: &[(&str, u64)]) -> Vec<NamedCount> {
    all.iter().map(|(what, count)| NamedCount { name: (*what).to_owned(), count: *count }).collect()
}

fn plain(level: &str) -> AuditRecord {
    AuditRecord {
        objects: OBJECTS,
        from_objects: true,
        optimization: tallies(&[(level, OBJECTS)]),
        lto: tallies(&[("none", OBJECTS)]),
        march: tallies(&[("x86-64", OBJECTS)]),
        assertions: tallies(&[("off", OBJECTS)]),
        profile: tallies(&[("none", OBJECTS)]),
        ..AuditRecord::default()
    }
}

fn kind(added: &[&str], removed: &[&str], files: u64) -> CommandLineDifference {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let examples = ["src/port/pg_crc32c_sse42.c", "src/backend/storage/page/checksum.c"];
    CommandLineDifference {
        added: words(added),
        removed: words(removed),
        files,
        examples: words(&examples[..usize::try_from(files).unwrap_or(2).min(2)]),
    }
}

/// Without debug information; some files have another optimization level.
fn rel() -> AuditRecord {
    AuditRecord {
        optimization: tallies(&[("O3", OBJECTS - 7), ("O2", 5), ("O0", 2)]),
        ignored: tallies(&[("optimization-level", 5), ("unoptimized", 2)]),
        against_baseline: Some(CommandLinesRecord {
            compared: OBJECTS,
            same: 5,
            kinds: vec![
                kind(&["-O3"], &["-O2", "-g"], OBJECTS - 7),
                kind(&["-O0"], &["-O2", "-g"], 2),
            ],
            ..CommandLinesRecord::default()
        }),
        ..plain("O3")
    }
}

/// Hardened, with more kinds of differences than a terminal shows.
fn native(lto: bool) -> AuditRecord {
    let added = ["-O3", "-march=znver3", "-mtune=znver3", "-fstack-protector-strong"];
    let mut all = added.to_vec();
    if lto {
        all.push("-flto=auto");
    }
    let mut kinds = vec![kind(&all, &["-O2", "-g"], OBJECTS - 10)];
    kinds.extend((1..=4).map(|more| kind(&all[..more], &["-O2"], 1)));
    AuditRecord {
        lto: if lto {
            tallies(&[("slim", OBJECTS - 3), ("none", 3)])
        } else {
            tallies(&[("none", OBJECTS)])
        },
        march: tallies(&[("znver3", OBJECTS)]),
        hardening: tallies(&[("fortify 2", OBJECTS), ("stack protector strong", OBJECTS)]),
        warnings: if lto { tallies(&[("lto-partial", 3)]) } else { Vec::new() },
        against_baseline: Some(CommandLinesRecord {
            compared: OBJECTS - 6,
            same: 0,
            only_here: 6,
            only_in_baseline: 1,
            kinds,
        }),
        ..plain("O3")
    }
}

/// A run on a machine with all counters.
pub fn counted(microbenchmarks: &[&str]) -> Report {
    with_counters(report_of(microbenchmarks))
}

/// A sweep over clients on a machine with all counters.
pub fn counted_sweep() -> Report {
    with_counters(servers::sweep())
}

/// A run on a machine without hardware counters.
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

/// A value between −1 and 1 that looks random.
fn scatter(seed: usize) -> f64 {
    (seed as f64 * 12.9898).sin() * 43_758.545_3 % 1.0
}

/// The sample with these microbenchmarks, measured on this many days. At two thirds of them `rel` becomes
/// a newer version with 4% less throughput on scans, and more CPU time; `rel_native` has one run that is
/// far off.
pub fn history(microbenchmarks: &[&str], runs: usize) -> Vec<Report> {
    let release = 2 * runs / 3;
    let run = |number: usize| {
        let mut report = report_of(microbenchmarks);
        report.started = format!("2026-{:02}-{:02}T09:30:00Z", 3 + number / 28, 1 + number % 28);
        report.directory = format!("results/night-{:02}", number + 1).into();
        report.warnings.clear();
        let is_new = number >= release;
        if is_new {
            report.candidates[1].version = "3.51.0".to_owned();
        }
        for (index, one) in report.microbenchmarks.iter_mut().enumerate() {
            let scan = one.name.starts_with("scan");
            for (column, row) in one.rows.iter_mut().enumerate() {
                let mut factor = 1.0 + 0.006 * scatter(1 + number * 101 + index * 17 + column * 7);
                if row.role == Role::Candidate {
                    factor *= if scan && is_new && row.candidate == "rel" { 0.96 } else { 1.0 };
                    factor *= if row.candidate == "rel_native" && number == 4 { 0.8 } else { 1.0 };
                }
                row.relative_qps = row.relative_qps.map(|estimate| scaled(&estimate, factor));
                row.relative_cpu = row.relative_cpu.map(|estimate| scaled(&estimate, 1.0 / factor));
            }
        }
        refresh(&mut report);
        report
    };
    (0..runs).map(run).collect()
}

fn scaled(estimate: &Estimate, factor: f64) -> Estimate {
    let times = |ratio: Ratio| Ratio::new(ratio.get() * factor);
    interval(times(estimate.median), times(estimate.low), times(estimate.high))
}

/// Throughput of a release on a microbenchmark: it changes with every fifth release.
fn ratio(microbenchmark: usize, release: usize) -> f64 {
    let steps = (0..=release / 5).map(|step| ((microbenchmark * 7 + step * 5) % 13) as f64 - 6.0);
    1.0 + steps.skip(1).sum::<f64>() / 60.0
}

/// The sample with this many releases in a series.
pub fn series(releases: usize) -> Report {
    let mut report = report();
    let candidates: Vec<String> =
        (0..releases).map(|n| format!("ma10.{}.{}_rel_withdbg.z12a", 2 + n / 4, n % 4)).collect();
    let template = report.candidates[1].clone();
    report.candidates = (0..releases)
        .map(|n| CandidateRecord {
            name: candidates[n].clone(),
            role: if n == 0 { Role::Baseline } else { Role::Candidate },
            ..template.clone()
        })
        .collect();
    report.baseline = candidates[0].clone();
    let estimate = |ratio: f64| {
        interval(Ratio::new(ratio), Ratio::new(ratio - 0.01), Ratio::new(ratio + 0.01))
    };
    let mut rows: Vec<SeriesRow> = Vec::new();
    let mut changes = Vec::new();
    for (index, one) in report.microbenchmarks.iter().enumerate() {
        let cell = |n| {
            let value = ratio(index, n);
            let verdict = match value {
                ..0.99 => Verdict::Worse,
                1.01.. => Verdict::Better,
                _ => Verdict::WithinNoise,
            };
            let relative_qps = (n > 0).then(|| estimate(value));
            Some(SeriesCell { ratio: Ratio::new(value), relative_qps, verdict })
        };
        rows.push(SeriesRow {
            microbenchmark: one.name.clone(),
            clients: one.clients,
            group: one.group.clone(),
            cells: (0..releases).map(cell).collect(),
        });
        for n in (5..releases).step_by(5) {
            let value = ratio(index, n) / ratio(index, n - 1);
            let verdict = if value > 1.0 { Verdict::Better } else { Verdict::Worse };
            changes.push(SeriesChange {
                microbenchmark: one.name.clone(),
                clients: one.clients,
                group: one.group.clone(),
                from: candidates[n - 1].clone(),
                to: candidates[n].clone(),
                ratio: Ratio::new(value),
                relative_qps: Some(estimate(value)),
                verdict: if (value - 1.0).abs() < 0.01 { Verdict::WithinNoise } else { verdict },
                blocks: 40,
            });
        }
    }
    sort_by_group(&mut rows);
    changes.sort_by(|a: &SeriesChange, b| {
        b.certainty().cmp(&a.certainty()).then(b.size().total_cmp(&a.size()))
    });
    let mut known: Vec<&str> = ALL.iter().map(|(_, group, ..)| *group).collect();
    known.sort_unstable();
    known.dedup();
    let groups = known.iter().map(|group| {
        let of: Vec<&SeriesRow> = rows.iter().filter(|row| row.group == *group).collect();
        let point = |n: usize| {
            let logs = of.iter().filter_map(|row| Some(row.cells[n]?.ratio.get().ln()));
            let mean = (logs.sum::<f64>() / of.len() as f64).exp();
            let ends = [mean - 0.004, mean + 0.004].map(Ratio::new);
            Some(SeriesPoint { ratio: Ratio::new(mean), interval: Some((ends[0], ends[1])) })
        };
        let points = (0..releases).map(point).collect();
        SeriesGroup { group: (*group).to_owned(), clients: rows[0].clients, points }
    });
    let groups = groups.collect();
    report.series = vec![Series { name: "mariadb".to_owned(), candidates, rows, groups, changes }];
    report
}

const REPEATS: u32 = 2;

/// Candidates, with rows inserted and queries per second.
const WHO: [(&str, Role, u64, u64); 3] = [
    ("innodb", Role::Baseline, 21_000, 8_400),
    ("myrocks-with-a-long-name", Role::Candidate, 34_000, 5_100),
    ("postgresql", Role::Candidate, 26_000, 9_900),
];

pub fn inserts() -> Report {
    let mut report = report_of(&[]);
    report.name = "insert-benchmark".to_owned();
    report.baseline = WHO[0].0.to_owned();
    report.candidates.truncate(WHO.len());
    for (candidate, (name, role, ..)) in report.candidates.iter_mut().zip(WHO) {
        candidate.name = name.to_owned();
        candidate.role = role;
    }
    report.noise = None;
    report.cpu_noise = None;
    report.settings = pairs(&[("clients × tables", "4 × 4"), ("repeats", "2")]);
    let plan = plan();
    let (mut rows, mut all_seconds) = (Vec::new(), Vec::new());
    for (number, step) in (0..).zip(&plan.steps) {
        for repeat in 0..REPEATS {
            for (candidate, (.., inserts, queries)) in (0..).zip(WHO) {
                let seconds = seconds(step, (candidate, repeat), (inserts, queries));
                let from_copy = (candidate, repeat) == (2, 1) && step.queries;
                rows.push(InsertStepRecord {
                    id: rows.len() as i64,
                    repeat,
                    // The second repeat starts with the second candidate.
                    position: (candidate + 3 - repeat) % 3,
                    candidate,
                    step: number,
                    name: step.name.clone(),
                    started_from: if from_copy { StartedFrom::Copy } else { StartedFrom::Step },
                    measured: Some(measured(step, &seconds, candidate)),
                });
                all_seconds.push(seconds);
            }
        }
    }
    let seconds = |id: i64| Ok(all_seconds[id as usize].clone());
    let assembled = assemble_steps(&plan, &rows, seconds, (&report.candidates, Some(1)));
    report.insert = Some(assembled.expect("no file is read").0);
    report
}

fn plan() -> InsertPlanRecord {
    let step = |name: &str, what: &str, queries, inserts, rate| InsertStepPlan {
        name: name.to_owned(),
        what: what.to_owned(),
        queries,
        inserts,
        rate,
    };
    InsertPlanRecord {
        clients: 4,
        tables: 4,
        repeats: REPEATS,
        stall: Share::from_percent(50.0),
        sustained: Share::from_percent(95.0),
        steps: vec![
            step("l.i1", "each client inserts 1600000 rows, 50 per commit", false, true, None),
            step("l.x", "the three secondary indexes are made", false, false, None),
            step(
                "q1000",
                "for 5 min, each client asks range queries as fast as it can and inserts 1000 \
                 rows/s, 50 per commit",
                true,
                true,
                Some(4_000),
            ),
        ],
    }
}

/// A pseudo-random number from 0 to 999.
const fn noise(a: u64, b: u64) -> u64 {
    let mixed =
        (a + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (b + 7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40 & 1023
}

fn seconds(
    step: &InsertStepPlan,
    (candidate, repeat): (u32, u32),
    (inserts, queries): (u64, u64),
) -> Vec<Second> {
    let length = if step.inserts { 300 } else { 20 };
    (0..length)
        .map(|number| {
            let jitter = noise(u64::from(number), u64::from(candidate * 2 + repeat));
            // One engine stalls regularly, for two seconds each.
            let stalled = candidate == 1 && matches!(number % 97, 60 | 61) && step.inserts;
            let rate = match (step.inserts, step.queries, candidate) {
                (false, ..) => 0,
                (_, true, 1) => 3_400,
                (_, true, _) => 4_000,
                _ => inserts - u64::from(number) * 9 + jitter,
            };
            let scale = if stalled { 50 } else { 1 };
            let millis = |usual: u64| Nanos::from_millis(if stalled { 1_900 } else { usual });
            Second {
                number,
                elapsed: Nanos::from_secs(1),
                inserts: rate / scale,
                queries: if step.queries { (queries + jitter) / scale } else { 0 },
                deletes: 0,
                insert_worst: step.inserts.then(|| millis(4 + jitter / 40)),
                query_worst: step.queries.then(|| millis(1 + jitter / 300)),
                delete_worst: None,
                system: Some(ServerUsage {
                    cpu: Nanos::from_millis(700 + jitter / 10),
                    background_cpu: None,
                    user: Nanos::from_millis(600),
                    system: Nanos::from_millis(100),
                    context_switches: Some(9_000 + jitter),
                    page_faults: 12,
                    read_from_storage: Some(Bytes::default()),
                    written_to_storage: Some(Bytes::from_mib(20)),
                }),
                client_cpu: Some(Nanos::from_millis(60)),
                device: Some(DeviceUsage {
                    reads: 10 + jitter / 100,
                    read: Bytes::from_kib(160),
                    writes: 300 + jitter,
                    written: Bytes::from_mib(30 + jitter / 100),
                }),
                database: Some(Bytes::from_mib(2_000 + u64::from(number) * 4)),
                resident: Some(Bytes::from_mib(900)),
            }
        })
        .collect()
}

fn measured(step: &InsertStepPlan, seconds: &[Second], candidate: u32) -> StepMeasured {
    let sum = |of: fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>();
    let operations = |rows: u64, per: u64, worst: fn(&Second) -> Option<Nanos>| {
        let longest = seconds.iter().filter_map(worst).max();
        let nanos = |time: Option<Nanos>| time.map_or(1, Nanos::as_nanos);
        Operations {
            count: rows / per,
            rows,
            response: Latencies::new(vec![
                (220_000, rows / per / 2),
                (900_000, rows / per / 3),
                (3_100_000, rows / per / 8),
                (nanos(longest), 3),
            ]),
            longest,
            service: None,
            longest_service: None,
        }
    };
    let mut inserts = operations(sum(|s| s.inserts), 50, |s| s.insert_worst);
    if step.queries {
        inserts.service = Some(Latencies::new(vec![(200_000, inserts.count)]));
        inserts.longest_service = inserts.longest;
    }
    let (mut system, mut device) = (ServerUsage::default(), DeviceUsage::default());
    for second in seconds {
        if let (Some(used), Some(moved)) = (second.system, second.device) {
            system.cpu += used.cpu;
            system.context_switches =
                Some(system.context_switches.unwrap_or(0) + used.context_switches.unwrap_or(0));
            device.add(&moved);
        }
    }
    StepMeasured {
        wall: Nanos::from_secs(seconds.len() as u64),
        inserts: if step.inserts { inserts } else { Operations::default() },
        queries: match step.queries {
            true => operations(sum(|s| s.queries), 1, |s| s.query_worst),
            false => Operations::default(),
        },
        overdue: if step.queries && candidate == 1 { 190_000 } else { 0 },
        retries: 0,
        lock_waits: 0,
        system: Some(system),
        client_cpu: Some(Nanos::from_millis(60 * seconds.len() as u64)),
        device: Some(device),
        database: seconds.last().and_then(|second| second.database),
        resident: seconds.last().and_then(|second| second.resident),
        ..StepMeasured::default()
    }
}
