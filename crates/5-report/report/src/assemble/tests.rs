use std::path::Path;

use dbdyno_results::{
    BuildRecord, FailureKind, InForceRecord, NewRun, OriginRecord, RunWriter, SessionRecord,
};
use dbdyno_types::{ServerUsage, SliceMeasured};
use dbdyno_units::Bytes;
use tempfile::{TempDir, tempdir};

use super::*;

mod absolute;
mod causes;
mod records;

/// Builds a run: a server as the baseline, another one as the candidate, and the control.
struct Lab {
    dir: TempDir,
    writer: RunWriter,
}

fn candidate(name: &str, role: Role) -> CandidateRecord {
    CandidateRecord {
        name: name.to_owned(),
        role,
        system: "mariadb".to_owned(),
        version: "10.11.19-MariaDB".to_owned(),
        engine: Some("innodb".to_owned()),
        build: None,
        origin: Some(OriginRecord::Server { address: "db:3306".to_owned() }),
        configuration: Vec::new(),
        server_settings: Vec::new(),
        config_diff: Vec::new(),
        in_force: InForceRecord::default(),
        injected_delay: None,
    }
}

fn servers() -> Vec<CandidateRecord> {
    vec![
        candidate("base", Role::Baseline),
        candidate("other", Role::Candidate),
        candidate("control", Role::Control),
    ]
}

fn embedded() -> Vec<CandidateRecord> {
    let build = || BuildRecord {
        variant: "rel".to_owned(),
        trained_on: None,
        bolted: false,
        compiler: "gcc".to_owned(),
        commands: vec!["gcc -c sqlite3.c".to_owned()],
        fingerprint: "abc".to_owned(),
        source_sha256: "12".to_owned(),
        library_sha256: "34".to_owned(),
        text_size: Bytes::from_kib(900),
        file_size: Bytes::from_mib(2),
        stripped_size: None,
        audit: None,
    };
    let inside = |one: CandidateRecord| CandidateRecord {
        system: "sqlite".to_owned(),
        version: "3.50.0".to_owned(),
        engine: None,
        build: Some(build()),
        origin: None,
        ..one
    };
    servers().into_iter().map(inside).collect()
}

impl Lab {
    fn new(candidates: &[CandidateRecord], clients: &[u32], cpus: (u32, u32)) -> Self {
        Self::of(candidates, clients, cpus, serde_json::json!({}))
    }

    fn of(
        candidates: &[CandidateRecord],
        clients: &[u32],
        cpus: (u32, u32),
        experiment: serde_json::Value,
    ) -> Self {
        let microbenchmark = |clients: &u32| MicrobenchmarkRecord {
            name: "point-query_range=100".to_owned(),
            clients: *clients,
            group: "point-1".to_owned(),
            three_group: "point".to_owned(),
            ..MicrobenchmarkRecord::default()
        };
        Self::with(candidates, clients.iter().map(microbenchmark).collect(), cpus, experiment)
    }

    fn with(
        candidates: &[CandidateRecord],
        microbenchmarks: Vec<MicrobenchmarkRecord>,
        cpus: (u32, u32),
        experiment: serde_json::Value,
    ) -> Self {
        let dir = tempdir().unwrap();
        let mut writer = RunWriter::create(
            dir.path(),
            &NewRun {
                name: "test".to_owned(),
                baseline: "base".to_owned(),
                experiment_text: String::new(),
                experiment,
                settings: Vec::new(),
                microbenchmarks,
                insert: None,
            },
        )
        .unwrap();
        writer
            .start_session(&SessionRecord {
                started: String::new(),
                version: String::new(),
                host: Vec::new(),
                facts: serde_json::json!({}),
                warnings: Vec::new(),
                client_cpus: Some(cpus.0),
                system_cpus: Some(cpus.1),
                client_wait: None,
                counting: Vec::new(),
                loses_data: false,
                elapsed: Nanos::ZERO,
            })
            .unwrap();
        writer.add_candidates(candidates).unwrap();
        Self { dir, writer }
    }

    /// Ten blocks in which the slices are equal except for `change`.
    fn blocks(&mut self, microbenchmark: u32, change: impl Fn(u32, u32, &mut SliceMeasured)) {
        for block in 0..10 {
            self.block(microbenchmark, 0, block, &change);
        }
    }

    fn block(
        &mut self,
        microbenchmark: u32,
        restart: u32,
        block: u32,
        change: impl Fn(u32, u32, &mut SliceMeasured),
    ) {
        for candidate in 0..3 {
            let mut measured = slice();
            change(candidate, block, &mut measured);
            let row = SliceRecord {
                microbenchmark,
                restart,
                block,
                position: candidate,
                candidate,
                warmup: false,
                measured,
            };
            self.writer.add_slice(&row).unwrap();
        }
    }

    fn fail(&mut self, kind: FailureKind, candidate: u32) {
        let failure = FailureRecord {
            kind,
            recovered: false,
            candidate,
            microbenchmark: Some(0),
            at: "point-query_range=100".to_owned(),
            reason: "signal 9".to_owned(),
        };
        self.writer.add_failure(&failure).unwrap();
    }

    fn report(&self) -> Report {
        read(self.dir.path())
    }
}

fn read(dir: &Path) -> Report {
    assemble(&RunReader::open(dir).unwrap()).unwrap()
}

/// 1000 statements in 10 ms; CPU time is 2 ms for the client and 5 ms for the server.
fn slice() -> SliceMeasured {
    SliceMeasured {
        wall: Nanos::from_millis(10),
        cpu: Nanos::from_millis(2),
        server: Some(ServerUsage {
            cpu: Nanos::from_millis(5),
            background_cpu: None,
            user: Nanos::from_millis(4),
            system: Nanos::from_millis(1),
            context_switches: Some(2_000),
            page_faults: 500,
            read_from_storage: Some(Bytes::from_bytes(0)),
            written_to_storage: Some(Bytes::from_bytes(64_000)),
        }),
        throughput: Some(Qps::from_per_second(100_000.0)),
        events: 1_000,
        statements: 1_000,
        context_switches: 77,
        page_faults: 7,
        ..SliceMeasured::default()
    }
}

/// The candidate has 20% more throughput and uses 10% less server CPU time.
fn faster(candidate: u32, _: u32, measured: &mut SliceMeasured) {
    if candidate == 1 {
        measured.throughput = Some(Qps::from_per_second(120_000.0));
        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(4_500);
        measured.server.as_mut().unwrap().context_switches = Some(3_000);
    }
}

#[test]
fn elapsed_time_that_is_not_stored_yet_is_unknown() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    assert_eq!(lab.report().times(), None);
    lab.blocks(0, |_, _, _| {});
    let report = lab.report();
    let measured = Nanos::from_millis(300);
    assert_eq!(report.times(), Some((measured, None)));
    let elapsed = Nanos::from_secs(1);
    assert_eq!(Report { elapsed, ..report }.times(), Some((measured, Some(elapsed))));
}

#[test]
fn failed_control_gives_no_noise_floor() {
    let mut lab = Lab::new(&servers(), &[1, 2], (1, 1));
    let off_by = |share: f64| {
        move |candidate: u32, _: u32, measured: &mut SliceMeasured| {
            if candidate == 2 {
                measured.throughput = Some(Qps::from_per_second(100_000.0 * (1.0 + share)));
            }
        }
    };
    lab.blocks(0, off_by(0.5));
    lab.blocks(1, off_by(0.01));
    assert!((lab.report().noise.unwrap().greatest.as_percent() - 50.0).abs() < 1e-9);
    lab.fail(FailureKind::Wrong, 2);
    let noise = lab.report().noise.unwrap();
    assert!((noise.greatest.as_percent() - 1.0).abs() < 1e-9);
    assert_eq!(
        (noise.count, noise.greatest_at.as_str()),
        (1, "point-query_range=100 at 2 clients")
    );
}

#[test]
fn microbenchmark_without_slices_is_unmeasured() {
    let mut lab = Lab::new(&servers(), &[1, 8], (1, 1));
    lab.blocks(0, faster);
    let report = lab.report();
    assert_eq!(report.clients(), [1]);
    let [one] = &report.unmeasured[..] else { panic!("{:?}", report.unmeasured) };
    assert_eq!((one.name.as_str(), one.clients), ("point-query_range=100", 8));
    assert_eq!((one.group.as_str(), one.rows.len()), ("point-1", 0));
}

#[test]
fn failure_of_the_baseline_is_its_own() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    lab.fail(FailureKind::Wrong, 1);
    lab.fail(FailureKind::Wrong, 2);
    assert!(!lab.report().microbenchmarks[0].baseline_failed);
    lab.fail(FailureKind::Wrong, 0);
    assert!(lab.report().microbenchmarks[0].baseline_failed);
}

#[test]
fn cpu_verdict_uses_the_control_of_its_row() {
    let mut lab = Lab::new(&servers(), &[1, 2, 4], (1, 1));
    // The candidate's server uses 3% more CPU everywhere; on the first microbenchmark so does the
    // control's.
    for microbenchmark in 0..3 {
        lab.blocks(microbenchmark, |candidate, _, measured| {
            if candidate == 1 || (candidate == 2 && microbenchmark == 0) {
                measured.server.as_mut().unwrap().cpu = Nanos::from_micros(5_150);
            }
        });
    }
    let verdicts: Vec<Verdict> =
        lab.report().microbenchmarks.iter().map(|m| m.rows[0].cpu_verdict).collect();
    assert_eq!(verdicts, [Verdict::WithinNoise, Verdict::Worse, Verdict::Worse]);
}

#[test]
fn each_number_of_clients_has_its_own_rows_and_summaries() {
    let mut lab = Lab::new(&servers(), &[1, 8], (1, 1));
    lab.blocks(0, |_, _, _| {});
    lab.blocks(1, faster);
    let report = lab.report();
    assert!(report.is_sweep());
    assert_eq!(report.clients(), [1, 8]);
    let of_other: Vec<(u32, f64)> = report
        .groups
        .iter()
        .filter(|summary| summary.candidate == "other")
        .map(|summary| (summary.clients, summary.median.get()))
        .collect();
    assert_eq!(of_other[0], (1, 1.0));
    assert!(of_other[1].0 == 8 && (of_other[1].1 - 1.2).abs() < 1e-9);
}

#[test]
fn numbers_of_clients_are_interleaved_only_if_they_take_turns() {
    let (restarts, blocks, numbers) = (0..6, 0..4, 0..4);
    let interleaved = |in_turns: bool| {
        let mut lab = Lab::new(&servers(), &[1, 2, 4, 8], (1, 1));
        for restart in restarts.clone() {
            let mut visits: Vec<(u32, u32)> = numbers
                .clone()
                .flat_map(|number| blocks.clone().map(move |b| (number, b)))
                .collect();
            if in_turns {
                // In each round the order is another.
                visits.sort_by_key(|(number, block)| (*block, number ^ block));
            }
            for (number, block) in visits {
                lab.block(number, restart, 4 * restart + block, |_, _, _| {});
            }
        }
        let rows = lab.report().scaling;
        let ratios = rows.into_iter().flat_map(|row| [row.to_previous, row.to_smallest]).flatten();
        ratios.map(|ratio| ratio.interleaved).collect::<Vec<bool>>()
    };
    assert_eq!(interleaved(true), [true; 18]);
    assert_eq!(interleaved(false), [false; 18]);
}
