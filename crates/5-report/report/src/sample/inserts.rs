//! A generated insert benchmark: three engines, two repeats, stalls, a rate that was not sustained.

use dbdyno_results::{InsertPlanRecord, InsertStepPlan, InsertStepRecord, StartedFrom};
use dbdyno_types::insert::{DeviceUsage, Operations, Second, StepMeasured};
use dbdyno_types::{Latencies, ServerUsage};
use dbdyno_units::{Bytes, Nanos, Share};

use super::{pairs, report_of};
use crate::assemble::inserts::assemble_steps;
use crate::model::{Report, Role};

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
    let assembled = assemble_steps(&plan, &rows, seconds, &report.candidates);
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
