//! A generated report of realistic size: 42 microbenchmarks, three candidates and the control.
//!
//! All values come from a seeded generator, so snapshots are stable.

mod draw;
mod inserts;
mod servers;
mod variants;

use dbdyno_stats::{ControlRow, METHOD};
use dbdyno_types::Work;
use dbdyno_units::{Bytes, Nanos, Ratio};

pub(crate) use draw::interval;
pub use inserts::inserts;
pub use servers::{imported, servers, servers_of, sweep, sweep_of};
pub use variants::{audited, counted, counted_sweep, history, only_kernel_counters, series};

use crate::metric::{Grouping, summarise, summarise_counters};
use crate::model::{
    BuildRecord, CandidateRecord, Change, Effect, Failure, Metric, MicrobenchmarkRows, NoiseFloor,
    Report, Role, RunStatus, Verdict, Warning,
};

/// The complete sample: 42 microbenchmarks, the baseline, three candidates and the control.
pub fn report() -> Report {
    let every: Vec<&str> = draw::ALL.iter().map(|(name, ..)| *name).collect();
    report_of(&every)
}

/// The sample with only these microbenchmarks.
pub fn report_of(microbenchmarks: &[&str]) -> Report {
    let candidates = candidates();
    let drawn =
        draw::ALL.iter().enumerate().filter(|(_, (name, ..))| microbenchmarks.contains(name));
    let microbenchmarks =
        drawn.map(|(index, published)| draw::microbenchmark(index, published, &candidates));
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
