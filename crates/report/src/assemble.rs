//! Makes a [`Report`] from a run directory: nothing else is needed, least of all the machine that
//! the run was made on.

use std::collections::BTreeMap;

use dbdyno_results::{
    CandidateRecord, FailureKind, FailureRecord, MicrobenchmarkRecord, ResultsError, Role,
    RunReader, SessionRecord, SliceRow,
};
use dbdyno_stats::{
    ControlRow, LatencySummary, METHOD, NoiseFloor, Point, Summary, median, paired_ratios,
    restart_medians, restarts_with_interval,
};
use dbdyno_units::{Nanos, Qps, Ratio};

use crate::model::{self, Absolute, CandidateSummary, MicrobenchmarkRows, Report, Row, Verdict};

/// Makes the report of a run, finished or not.
///
/// # Errors
/// The run is damaged.
pub fn assemble(run: &RunReader) -> Result<Report, ResultsError> {
    let candidates = run.candidates()?;
    let sessions = run.sessions()?;
    let failures = run.failures()?;
    let mut all_done = true;
    let mut measuring_time = Nanos::ZERO;
    let mut measured = Vec::new();
    for (id, (record, done)) in (0..).zip(run.microbenchmarks()?) {
        all_done &= done;
        let slices: Vec<SliceRow> =
            run.slices(id)?.into_iter().filter(|slice| !slice.warmup).collect();
        measuring_time += slices.iter().map(|slice| slice.measured.wall).sum();
        if slices.iter().any(|slice| slice.candidate == 0) {
            measured.push(Measured { id, record, slices });
        }
    }
    let controls = control_rows(&candidates, &measured);
    let floor = NoiseFloor::of(&controls);
    let microbenchmarks: Vec<MicrobenchmarkRows> = measured
        .iter()
        .map(|measured| rows(measured, &candidates, &failures, floor.as_ref(), &controls))
        .collect();
    Ok(Report {
        name: run.name()?,
        status: if all_done { model::RunStatus::Complete } else { model::RunStatus::Incomplete },
        started: sessions.first().map_or_else(String::new, |session| session.started.clone()),
        measuring_time,
        elapsed: sessions.iter().map(|session| session.elapsed).sum(),
        version: sessions.last().map_or_else(String::new, |session| session.version.clone()),
        baseline: run.baseline()?,
        groups: summaries(&microbenchmarks, &candidates, |rows| &rows.group),
        three_groups: summaries(&microbenchmarks, &candidates, |rows| &rows.three_group),
        microbenchmarks,
        noise: floor.map(noise),
        interval_method: METHOD.to_owned(),
        warnings: warnings(&sessions),
        failures: failures_of(&failures, &candidates),
        host: sessions.last().map_or_else(Vec::new, |session| session.host.clone()),
        settings: run.settings()?,
        experiment_text: run.experiment_text()?,
        candidates: candidates.into_iter().map(candidate_summary).collect(),
    })
}

/// A microbenchmark with its slices that count.
struct Measured {
    id: u32,
    record: MicrobenchmarkRecord,
    slices: Vec<SliceRow>,
}

impl Measured {
    /// One figure of every slice.
    fn points(&self, figure: impl Fn(&SliceRow) -> Option<f64>) -> Vec<Point> {
        self.slices
            .iter()
            .filter_map(|slice| {
                let SliceRow { restart, block, candidate, .. } = *slice;
                Some(Point { restart, block, candidate, value: figure(slice)? })
            })
            .collect()
    }

    fn throughputs(&self) -> Vec<Point> {
        self.points(|slice| slice.measured.throughput.map(Qps::per_second))
    }
}

/// CPU time of the system under test per statement, in microseconds.
fn cpu_per_query(cpu: Nanos, statements: u64) -> Option<f64> {
    (statements > 0).then(|| cpu.as_micros_f64() / statements as f64)
}

fn control_rows(candidates: &[CandidateRecord], measured: &[Measured]) -> Vec<ControlRow> {
    let Some(control) = candidates.iter().position(|c| c.role == Role::Control) else {
        return Vec::new();
    };
    measured
        .iter()
        .filter_map(|measured| {
            let ratios = paired_ratios(&measured.throughputs(), control as u32, 0);
            Some(ControlRow {
                microbenchmark: measured.record.name.clone(),
                estimate: restarts_with_interval(&ratios)?,
            })
        })
        .collect()
}

fn rows(
    measured: &Measured,
    candidates: &[CandidateRecord],
    failures: &[FailureRecord],
    floor: Option<&NoiseFloor>,
    controls: &[ControlRow],
) -> MicrobenchmarkRows {
    let record = &measured.record;
    let control = controls.iter().find(|control| control.microbenchmark == record.name);
    let floor = floor.map(|floor| floor.for_row(control.map(|c| c.estimate.median)));
    let failed = |candidate: u32| {
        let here = |f: &FailureRecord| {
            let recovered = f.kind == FailureKind::Ended && f.recovered;
            f.microbenchmark == Some(measured.id) && !recovered
        };
        failures.iter().any(|f| here(f) && (f.candidate == candidate || f.candidate == 0))
    };
    let throughputs = measured.throughputs();
    let cpu = measured.points(|s| cpu_per_query(s.measured.cpu, s.measured.statements));
    let rows = (0..)
        .zip(candidates)
        .skip(1)
        .filter_map(|(number, candidate)| {
            let ratios = paired_ratios(&throughputs, number, 0);
            let absolute = absolute(measured, number)?;
            let estimate = restarts_with_interval(&ratios);
            Some(Row {
                candidate: candidate.name.clone(),
                role: role(candidate.role),
                relative_qps: estimate.map(convert),
                relative_cpu: restarts_with_interval(&paired_ratios(&cpu, number, 0)).map(convert),
                verdict: match estimate {
                    _ if failed(number) => Verdict::Failed,
                    None => Verdict::Unknown,
                    Some(estimate) => verdict(dbdyno_stats::Verdict::on(&estimate, floor)),
                },
                blocks: ratios.iter().map(Vec::len).sum::<usize>() as u64,
                absolute,
                restart_medians: restart_medians(&ratios),
                ratios: ratios.concat(),
            })
        })
        .collect();
    MicrobenchmarkRows {
        name: record.name.clone(),
        group: record.group.clone(),
        three_group: record.three_group.clone(),
        throughput_unit: match record.rows_read_per_statement {
            None => "statements/s".to_owned(),
            Some(_) => "million rows/s".to_owned(),
        },
        baseline: absolute(measured, 0).unwrap_or(NOTHING),
        rows,
    }
}

const NOTHING: Absolute = Absolute {
    qps: None,
    cpu_us_per_query: None,
    latency: None,
    statements: 0,
    errors: 0,
    busy_retries: 0,
};

/// A candidate's own figures; `None` without a slice.
fn absolute(measured: &Measured, candidate: u32) -> Option<Absolute> {
    let slices: Vec<&SliceRow> =
        measured.slices.iter().filter(|slice| slice.candidate == candidate).collect();
    if slices.is_empty() {
        return None;
    }
    let throughputs: Vec<f64> =
        slices.iter().filter_map(|s| s.measured.throughput).map(Qps::per_second).collect();
    let per_statement = match measured.record.rows_read_per_statement {
        None => 1.0,
        Some(rows) => rows as f64 / 1e6,
    };
    let count = |of: fn(&SliceRow) -> u64| slices.iter().map(|slice| of(slice)).sum::<u64>();
    let statements = count(|slice| slice.measured.statements);
    let cpu = slices.iter().map(|slice| slice.measured.cpu).sum();
    let latencies: Vec<(u64, u64)> =
        slices.iter().flat_map(|slice| slice.measured.latencies.counts().iter().copied()).collect();
    Some(Absolute {
        qps: median(&throughputs).map(|qps| Qps::from_per_second(qps * per_statement)),
        cpu_us_per_query: cpu_per_query(cpu, statements),
        latency: LatencySummary::of(&latencies).map(|l| model::Latency {
            mean: l.mean,
            p50: l.p50,
            p95: l.p95,
            p99: l.p99,
            max: l.max,
        }),
        statements,
        errors: count(|slice| slice.measured.errors + slice.measured.wrong),
        busy_retries: count(|slice| slice.measured.busy_retries),
    })
}

fn summaries(
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
    group: impl Fn(&MicrobenchmarkRows) -> &String,
) -> Vec<model::GroupSummary> {
    let mut groups: Vec<&String> = Vec::new();
    for rows in microbenchmarks {
        if !groups.contains(&group(rows)) {
            groups.push(group(rows));
        }
    }
    // By name, which is also the published order: point, range, writes.
    groups.sort();
    let mut summaries = Vec::new();
    for name in groups {
        for candidate in &candidates[candidates.len().min(1)..] {
            let of_group: Vec<(&String, Ratio)> = microbenchmarks
                .iter()
                .filter(|rows| group(rows) == name)
                .filter_map(|rows| {
                    let mut rows_of = rows.rows.iter();
                    let row = rows_of.find(|row| row.candidate == candidate.name)?;
                    // A failed row is no measurement.
                    let counts = row.verdict != Verdict::Failed;
                    Some((&rows.name, row.relative_qps.filter(|_| counts)?.median))
                })
                .collect();
            let ratios: Vec<Ratio> = of_group.iter().map(|(_, ratio)| *ratio).collect();
            let Some(summary) = Summary::of(&ratios) else { continue };
            summaries.push(model::GroupSummary {
                group: name.clone(),
                candidate: candidate.name.clone(),
                role: role(candidate.role),
                count: summary.count,
                min: summary.min,
                max: summary.max,
                avg: summary.avg,
                median: summary.median,
                stddev: summary.stddev,
                worst: of_group[summary.worst].0.clone(),
                best: of_group[summary.best].0.clone(),
            });
        }
    }
    summaries
}

fn candidate_summary(record: CandidateRecord) -> CandidateSummary {
    let system = match record.system.as_str() {
        "sqlite" => "SQLite",
        other => other,
    };
    CandidateSummary {
        role: role(record.role),
        system: format!("{system} {}", record.version),
        variant: record.build.variant,
        compiler: record.build.compiler,
        command: record.build.commands.join("\n"),
        fingerprint: record.build.fingerprint,
        text_size: record.build.text_size,
        file_size: record.build.file_size,
        configuration: record.configuration,
        injected_delay: record.injected_delay,
        name: record.name,
    }
}

/// Each warning once, however many sessions had it.
fn warnings(sessions: &[SessionRecord]) -> Vec<model::Warning> {
    let mut by_text = BTreeMap::new();
    for warning in sessions.iter().flat_map(|session| &session.warnings) {
        by_text.entry(&warning.what).or_insert(&warning.advice);
    }
    by_text
        .into_iter()
        .map(|(what, advice)| model::Warning { what: what.clone(), advice: advice.clone() })
        .collect()
}

fn failures_of(failures: &[FailureRecord], candidates: &[CandidateRecord]) -> Vec<model::Failure> {
    failures
        .iter()
        .map(|failure| model::Failure {
            candidate: candidates
                .get(failure.candidate as usize)
                .map_or_else(|| failure.candidate.to_string(), |c| c.name.clone()),
            at: failure.at.clone(),
            reason: failure.reason.clone(),
        })
        .collect()
}

fn noise(floor: NoiseFloor) -> model::NoiseFloor {
    model::NoiseFloor {
        typical: floor.typical,
        greatest: floor.greatest,
        greatest_at: floor.greatest_at,
        contains_one: floor.contains_one,
        count: floor.count,
    }
}

const fn role(role: Role) -> model::Role {
    match role {
        Role::Baseline => model::Role::Baseline,
        Role::Candidate => model::Role::Candidate,
        Role::Control => model::Role::Control,
    }
}

const fn convert(estimate: dbdyno_stats::Estimate) -> model::Estimate {
    model::Estimate { median: estimate.median, low: estimate.low, high: estimate.high }
}

const fn verdict(verdict: dbdyno_stats::Verdict) -> Verdict {
    match verdict {
        dbdyno_stats::Verdict::Faster => Verdict::Faster,
        dbdyno_stats::Verdict::Slower => Verdict::Slower,
        dbdyno_stats::Verdict::WithinNoise => Verdict::WithinNoise,
    }
}
