//! Build a [`Report`] from a run directory; neither the files nor the machine of the run are
//! needed.

mod absolute;
mod contrasts;
mod engine_counters;
pub(crate) mod inserts;
mod instructions;
mod plans;
pub(crate) mod profile;
mod profiling_cost;
mod records;
mod statements;
mod waits;
mod warm_up;

use std::collections::BTreeMap;

use absolute::{
    Background, Cpus, PercentileRatios, SystemKind, absolute, block_times, cpu_per_query,
    switches_per_query,
};
use dbdyno_profile::Layers;
use dbdyno_results::{
    CandidateRecord, EngineCountsRecord, FailureRecord, MicrobenchmarkRecord, ProfileRecord,
    ResultsError, Role, RunReader, SliceRecord, StatementRecord, WaitsRecord,
};
use dbdyno_stats::{
    ControlRow, METHOD, NoiseFloor, Pairing, Point, ResponseTimes, median, paired_ratios,
    percentile_ratios, restart_medians, restarts_with_interval,
};
use dbdyno_types::executed::Executed;
use dbdyno_types::{Latencies, StatementPlan, Work};
use dbdyno_units::{Nanos, Qps, Ratio, Share};
use engine_counters::KnownCounters;

use crate::metric::{Grouping, summarise, summarise_counters};
use crate::model::{
    self, Absolute, CounterFigure, Estimate, Metric, MicrobenchmarkRows, Percentile,
    RelativePercentile, Report, Row, Verdict,
};
use crate::words::in_effect;

/// Share of its CPUs above which a server or a client counts as the bottleneck.
const LIMIT: f64 = 0.9;

/// Appended to the interval method if results were imported.
const IMPORTED_METHOD: &str = " Results that others measured are paired in the order of their \
     values; where there are fewer than six, their median stands alone, without an interval.";

/// Build the report of a complete or an incomplete run.
pub fn assemble(run: &RunReader) -> Result<Report, ResultsError> {
    let sessions = run.sessions()?;
    let failures = run.failures()?;
    let records = run.candidates()?;
    let planned = run.planned_restarts();
    let profiling = run.profiling().unwrap_or_default();
    let mut all_done = true;
    let mut measuring_time = Nanos::ZERO;
    let (mut measured, mut unmeasured) = (Vec::new(), Vec::new());
    let planned_work = run.microbenchmarks()?;
    let not_compared = records::not_compared(&planned_work, &failures);
    let clients_differ = planned_work.windows(2).any(|pair| pair[0].0.clients != pair[1].0.clients);
    for (id, (record, done)) in (0..).zip(planned_work) {
        all_done &= done;
        let slices: Vec<SliceRecord> =
            run.slices(id)?.into_iter().filter(|slice| !slice.warmup).collect();
        measuring_time += slices.iter().map(|slice| slice.measured.wall).sum();
        if slices.iter().any(|slice| slice.candidate == 0) {
            let cpus = (Cpus::of(&sessions, record.clients), planned);
            let mut one = Measured::read(run, (id, record), slices, &records, &failures, cpus)?;
            one.asked_cpu = profiling.time;
            // Response times at different numbers of clients are compared with each other.
            if !clients_differ {
                one.slices.iter_mut().for_each(|slice| slice.latencies = Latencies::default());
            }
            measured.push(one);
        } else {
            unmeasured.push(without_rows(record));
        }
    }
    let sweep = measured.windows(2).any(|pair| pair[0].record.clients != pair[1].record.clients);
    let floors = Floors {
        qps: noise_floor(&measured, sweep, Measured::usable_qps),
        cpu: noise_floor(&measured, sweep, Measured::usable_cpu),
        times: [0, 1, 2].map(|at| noise_floor(&measured, sweep, |one| one.usable_percentile(at))),
        statements: statements::floor(&measured),
    };
    let sampled = measured.iter().flat_map(|one| &one.profiles);
    let layers = profile::layers_of(sampled, &records, profiling.layers.as_ref());
    let known = KnownCounters::of(&measured);
    let rows = |one: &Measured| one.rows(&records, &floors, &layers, &known);
    let microbenchmarks: Vec<MicrobenchmarkRows> = measured.iter().map(rows).collect();
    let Floors { qps, cpu, .. } = floors;
    let mut insert = None;
    if let Some(plan) = run.insert_plan()? {
        let (report, done) = inserts::assemble(run, &plan, &records)?;
        all_done &= done;
        let runs = report.steps.iter().flat_map(|step| &step.candidates);
        measuring_time += runs.flat_map(|one| &one.repeats).map(|run| run.wall).sum();
        insert = Some(report);
    }
    let mut warnings = records::warnings(&sessions);
    warnings.extend(records::warning(&measured, &records, qps.as_ref()));
    warnings.extend(warm_up::warnings(&measured, &microbenchmarks, &records, sweep));
    warnings.extend(not_compared);
    let groups = |grouping| summarise(Metric::Qps, &microbenchmarks, &records, grouping);
    let report = Report {
        name: run.name()?,
        directory: run.directory().path().to_owned(),
        status: if all_done { model::RunStatus::Complete } else { model::RunStatus::Incomplete },
        running_pid: run.writer_pid(),
        started: sessions.first().map_or_else(String::new, |session| session.started.clone()),
        sessions: sessions.len(),
        measuring_time,
        elapsed: sessions.iter().map(|session| session.elapsed).sum(),
        version: sessions.last().map_or_else(String::new, |session| session.version.clone()),
        baseline: run.baseline()?,
        planned_restarts: planned,
        groups: groups(Grouping::Five),
        three_groups: groups(Grouping::Three),
        effects: contrasts::effects(run, &measured, &records, qps.as_ref()),
        series: contrasts::series_of(run, &measured, &records, qps.as_ref()),
        counter_groups: summarise_counters(&microbenchmarks, &records),
        not_counted: absolute::not_counted(&sessions, &records),
        scaling: contrasts::rows(&measured, &records),
        microbenchmarks,
        unmeasured,
        insert,
        noise: qps,
        cpu_noise: cpu,
        interval_method: METHOD.to_owned(),
        warnings,
        failures: records::failures(&failures, &records),
        lost: records::lost(&failures, &records),
        optimizations: records::optimizations(run, &records)?,
        state_snapshots: records::by_time(&run.state_snapshots()?, &records),
        client_wait: sessions.last().and_then(|session| session.client_wait),
        host: sessions.last().map_or_else(Vec::new, |session| session.host.clone()),
        settings: run.settings()?,
        experiment_text: run.experiment_text()?,
        candidates: with_reported_differences(records),
    };
    let more = if report.is_imported() { IMPORTED_METHOD } else { "" };
    Ok(Report { interval_method: format!("{METHOD}{more}"), ..report })
}

/// The candidates, with the settings that their servers reported differently from the baseline's among
/// the configuration differences, the most relevant first.
fn with_reported_differences(mut records: Vec<CandidateRecord>) -> Vec<CandidateRecord> {
    let baseline = records.iter().find(|one| one.role == Role::Baseline).cloned();
    if let Some(baseline) = baseline {
        for candidate in records.iter_mut().filter(|one| one.role == Role::Candidate) {
            candidate.config_diff = in_effect(candidate, &baseline);
        }
    }
    records
}

/// What is kept of a counted slice while others are read, so that long runs fit into memory.
struct Slice {
    restart: u32,
    block: u32,
    candidate: u32,
    wall: Nanos,
    events: u64,
    statements: u64,
    throughput: Option<Qps>,
    /// In µs, without background CPU.
    cpu_per_query: Option<f64>,
    latencies: Latencies,
}

impl Slice {
    fn of(slice: SliceRecord, kind: SystemKind) -> Self {
        let SliceRecord { restart, block, candidate, measured, .. } = slice;
        Self {
            restart,
            block,
            candidate,
            wall: measured.wall,
            events: measured.events,
            statements: measured.statements,
            throughput: measured.throughput,
            cpu_per_query: cpu_per_query(&measured, kind),
            latencies: measured.latencies,
        }
    }

    fn point(&self, value: f64) -> Point {
        let Self { restart, block, candidate, .. } = *self;
        Point { restart, block, candidate, value }
    }
}

/// A microbenchmark with its counted slices, and the figures of each candidate.
struct Measured {
    record: MicrobenchmarkRecord,
    slices: Vec<Slice>,
    /// The number of starts that the schedule requires; `None` if unknown.
    planned_restarts: Option<u32>,
    background: Background,
    /// When each block was measured relative to others: its restart and number, and its slice's number
    /// in the run.
    order: BTreeMap<(u32, u32), i64>,
    /// The timed statements of a script, by normalized text.
    statements: BTreeMap<String, Vec<StatementRecord>>,
    engine_counts: Vec<EngineCountsRecord>,
    /// With the candidate's number and that of the start.
    plans: Vec<(u32, u32, StatementPlan)>,
    profiles: Vec<ProfileRecord>,
    /// With the candidate's number and that of the start.
    executed: Vec<(u32, u32, Executed)>,
    /// CPU time of each candidate that was to be sampled.
    asked_cpu: Option<Nanos>,
    waits: Vec<WaitsRecord>,
    /// By candidate number, including the baseline.
    own: Vec<Own>,
    relative: Vec<Relative>,
    /// The control's number.
    control: Option<usize>,
}

/// The figures of one candidate on one microbenchmark relative to the baseline's.
#[derive(Default)]
struct Relative {
    /// By restart and block.
    qps_ratios: Vec<Vec<f64>>,
    qps: Option<Estimate>,
    cpu: Option<Estimate>,
    switches: Option<Estimate>,
    counters: BTreeMap<CounterFigure, Estimate>,
    percentiles: PercentileRatios,
}

/// One candidate on one microbenchmark.
struct Own {
    kind: SystemKind,
    /// `None` without slices.
    absolute: Option<Absolute>,
    failed: bool,
    /// Whether the load generator was the bottleneck.
    client_bound: bool,
}

impl Measured {
    /// What the run stores about a microbenchmark with these counted slices, without how it was to be profiled.
    fn read(
        run: &RunReader,
        (id, record): (u32, MicrobenchmarkRecord),
        slices: Vec<SliceRecord>,
        candidates: &[CandidateRecord],
        failures: &[FailureRecord],
        (cpus, planned_restarts): (Cpus, Option<u32>),
    ) -> Result<Self, ResultsError> {
        let background = Background::of(&slices);
        let kinds: Vec<SystemKind> = candidates.iter().map(SystemKind::of).collect();
        let of = |number| slices.iter().filter(move |slice| slice.candidate == number).collect();
        let by_candidate: Vec<Vec<&SliceRecord>> = (0..kinds.len() as u32).map(of).collect();
        let times = |of: &Vec<&SliceRecord>| ResponseTimes::of(&block_times(of), planned_restarts);
        let times: Vec<ResponseTimes> = by_candidate.iter().map(times).collect();
        let own = (0..)
            .zip(&kinds)
            .zip(by_candidate.iter().zip(&times))
            .map(|((number, kind), of)| {
                let absolute = absolute(&record, of, *kind, (cpus, planned_restarts), &background);
                Own {
                    kind: *kind,
                    failed: failures.iter().any(|f| invalidates(f, id, number)),
                    client_bound: absolute.as_ref().is_some_and(client_bound),
                    absolute,
                }
            })
            .collect();
        let mut measured = Self {
            record,
            slices: Vec::new(),
            planned_restarts,
            background,
            order: run.block_order(id)?,
            statements: run.statement_times(id)?,
            engine_counts: run.engine_counts(id)?,
            plans: run.plans(id)?,
            profiles: run.profiles(id)?,
            executed: run.executed(id)?,
            asked_cpu: None,
            waits: run.waits(id)?,
            own,
            relative: Vec::new(),
            control: candidates.iter().position(|one| one.role == Role::Control),
        };
        let mut relative: Vec<Relative> = (0..kinds.len())
            .map(|number| measured.relative_of_slices(number, &by_candidate, &times))
            .collect();
        drop(by_candidate);
        let kept = |slice: SliceRecord| {
            let kind = *kinds.get(slice.candidate as usize)?;
            Some(Slice::of(slice, kind))
        };
        measured.slices = slices.into_iter().filter_map(kept).collect();
        // They are collected in place, which keeps the space of the longer records.
        measured.slices.shrink_to_fit();
        for (number, relative) in relative.iter_mut().enumerate().skip(1) {
            relative.qps_ratios = measured.qps_ratios(number);
            relative.qps = measured.estimate(&relative.qps_ratios);
            relative.cpu = measured.estimate(&measured.cpu_ratios(number));
        }
        measured.relative = relative;
        Ok(measured)
    }

    /// The figures of a candidate relative to the baseline's that need all of a slice; nothing for the baseline itself.
    fn relative_of_slices(
        &self,
        candidate: usize,
        slices: &[Vec<&SliceRecord>],
        times: &[ResponseTimes],
    ) -> Relative {
        if candidate == 0 {
            return Relative::default();
        }
        let pair = [slices[candidate].as_slice(), &slices[0]];
        let (own, baseline) = (&times[candidate], &times[0]);
        let (pairing, shares) = (Pairing::ByBlock, Percentile::SHARES);
        let percentiles = if own.has_blocks_of(baseline) {
            own.percentile_ratios(baseline, pairing, shares)
        } else {
            let [own, baseline] = pair.map(block_times);
            percentile_ratios(&own, &baseline, pairing, self.planned_restarts, shares)
        };
        Relative {
            switches: self.estimate(&ratios_of(pair, |slice| switches_per_query(&slice.measured))),
            counters: self.counter_ratios(candidate, pair),
            percentiles,
            ..Relative::default()
        }
    }

    /// The control and its figures, unless it failed: then it does not show noise.
    fn usable_control(&self) -> Option<(usize, &Relative)> {
        let number = self.control?;
        (!self.failed(&[number, 0])).then(|| (number, &self.relative[number]))
    }

    fn usable_qps(&self) -> Option<Estimate> {
        let (number, control) = self.usable_control()?;
        control.qps.filter(|_| !self.client_bound(&[number, 0]))
    }

    /// Also usable if client-bound: CPU per query does not depend on the bottleneck.
    fn usable_cpu(&self) -> Option<Estimate> {
        self.usable_control()?.1.cpu
    }

    fn usable_percentile(&self, percentile: usize) -> Option<Estimate> {
        let (number, control) = self.usable_control()?;
        control.percentiles[percentile].filter(|_| !self.client_bound(&[number, 0]))
    }

    /// Whether one of these candidates failed.
    fn failed(&self, candidates: &[usize]) -> bool {
        candidates.iter().any(|number| self.own[*number].failed)
    }

    /// Whether the load generator was the bottleneck of one of these candidates: then the ratio of their throughputs does
    /// not describe them.
    fn client_bound(&self, candidates: &[usize]) -> bool {
        candidates.iter().any(|number| self.own[*number].client_bound)
    }

    /// The verdict on an estimate of these candidates with this noise floor.
    fn judge(
        &self,
        metric: Metric,
        estimate: Option<Estimate>,
        floor: Option<Share>,
        candidates: &[usize],
    ) -> Verdict {
        let state = [self.failed(candidates), self.client_bound(candidates)];
        judged(metric, estimate, floor, state)
    }

    fn estimate(&self, ratios: &[Vec<f64>]) -> Option<Estimate> {
        restarts_with_interval(ratios, self.planned_restarts)
    }

    /// A figure of these candidates.
    fn points(&self, candidates: &[usize], figure: impl Fn(&Slice) -> Option<f64>) -> Vec<Point> {
        self.slices
            .iter()
            .filter(|slice| candidates.contains(&(slice.candidate as usize)))
            .filter_map(|slice| Some(slice.point(figure(slice)?)))
            .collect()
    }

    fn qps_points(&self, candidates: &[usize]) -> Vec<Point> {
        self.points(candidates, |slice| slice.throughput.map(Qps::per_second))
    }

    fn qps_ratios(&self, candidate: usize) -> Vec<Vec<f64>> {
        paired_ratios(&self.qps_points(&[candidate, 0]), candidate as u32, 0)
    }

    /// CPU time per query of candidates to compare, including background CPU, unless that is unknown for
    /// one of them, which would then look better. A database inside the worker has no background CPU.
    fn cpu_points(&self, candidates: &[usize]) -> Vec<Point> {
        let known = |number: &usize| {
            self.own[*number].kind == SystemKind::Embedded
                || self.background.is_known(*number as u32)
        };
        let whole = candidates.iter().all(known);
        self.points(candidates, |slice| {
            let own = slice.cpu_per_query?;
            let background = self.background.per_query(slice.candidate, slice.restart);
            Some(if whole { own + background } else { own })
        })
    }

    fn cpu_ratios(&self, candidate: usize) -> Vec<Vec<f64>> {
        paired_ratios(&self.cpu_points(&[candidate, 0]), candidate as u32, 0)
    }

    /// Counter figures relative to the baseline's.
    fn counter_ratios(
        &self,
        candidate: usize,
        slices: [&[&SliceRecord]; 2],
    ) -> BTreeMap<CounterFigure, Estimate> {
        let known = self.own[candidate].absolute.iter().flat_map(|own| own.counters.keys());
        let ratio = |figure: &CounterFigure| {
            let ratios = ratios_of(slices, |slice| absolute::in_slice(*figure, &slice.measured));
            Some((*figure, self.estimate(&ratios)?))
        };
        known.filter_map(ratio).collect()
    }

    /// Percentiles relative to the baseline's, with verdicts; empty without response times.
    fn response_times(
        &self,
        candidate: usize,
        floors: &[Option<NoiseFloor>; 3],
    ) -> Vec<RelativePercentile> {
        if self.own[candidate].absolute.as_ref().is_none_or(|own| own.latency.is_none()) {
            return Vec::new();
        }
        let ratios = self.relative[candidate].percentiles;
        let percentile = |(number, percentile): (usize, Percentile)| {
            let floor = floor_of(floors[number].as_ref(), self.usable_percentile(number));
            // As for CPU time, less is better.
            let verdict = self.judge(Metric::Cpu, ratios[number], floor, &[candidate, 0]);
            RelativePercentile { percentile, relative: ratios[number], verdict }
        };
        Percentile::ALL.into_iter().enumerate().map(percentile).collect()
    }

    fn rows(
        &self,
        candidates: &[CandidateRecord],
        floors: &Floors,
        layers: &BTreeMap<String, Layers>,
        known: &KnownCounters<'_>,
    ) -> MicrobenchmarkRows {
        let qps_floor = floor_of(floors.qps.as_ref(), self.usable_qps());
        let cpu_floor = floor_of(floors.cpu.as_ref(), self.usable_cpu());
        let control = self.usable_control().map(|(number, _)| number);
        let control_waits = control.and_then(|number| self.waits_difference(number, None));
        let row = |(number, candidate): (usize, &CandidateRecord)| {
            let pair = [candidate, &candidates[0]];
            let of_slices = self.points(&[number, 0], |slice| slice.cpu_per_query);
            let own = &self.own[number];
            let relative = &self.relative[number];
            let (ratios, estimate, relative_cpu) =
                (&relative.qps_ratios, relative.qps, relative.cpu);
            let alone = estimate.is_none() && own.kind == SystemKind::Imported;
            let work = Work {
                writes: self.record.writes,
                clients: self.record.clients,
                on_server: [number, 0].iter().any(|one| self.own[*one].kind == SystemKind::Server),
                client_bound: self.client_bound(&[number, 0]),
            };
            let verdict = self.judge(Metric::Qps, estimate, qps_floor, &[number, 0]);
            Some(Row {
                candidate: candidate.name.clone(),
                role: candidate.role,
                relative_qps: estimate,
                single: median(&ratios.concat()).filter(|_| alone).map(Ratio::new),
                relative_cpu,
                relative_cpu_of_slices: self.estimate(&paired_ratios(&of_slices, number as u32, 0)),
                relative_cs: relative.switches,
                relative_counters: relative.counters.clone(),
                response_times: self.response_times(number, &floors.times),
                statements: self.relative_statements(number, floors.statements.as_ref()),
                engine_counters: self.engine_counters(number, pair, known),
                plans: self.other_plans(number, pair),
                profile: match candidate.role {
                    Role::Control => control
                        .and_then(|control| self.profile_difference(control, pair, layers, None)),
                    _ => self.profile_difference(number, pair, layers, control),
                },
                waits: match candidate.role {
                    Role::Control => control_waits.clone(),
                    _ => self.waits_difference(number, control_waits.as_ref()),
                },
                verdict: match verdict {
                    Verdict::Unknown if alone => Verdict::NoInterval,
                    known => known,
                },
                cpu_verdict: judged(
                    Metric::Cpu,
                    relative_cpu,
                    cpu_floor,
                    [self.failed(&[number, 0]), false],
                ),
                trusted_metric: Metric::trusted(work, || relative_cpu.is_some()),
                blocks: ratios.iter().map(Vec::len).sum::<usize>() as u64,
                absolute: own.absolute.clone()?,
                restart_medians: restart_medians(ratios),
                ratios: ratios.concat(),
            })
        };
        MicrobenchmarkRows {
            measuring_time: self.slices.iter().map(|slice| slice.wall).sum(),
            baseline: self.own[0].absolute.clone().unwrap_or_default(),
            baseline_failed: self.own[0].failed,
            rows: candidates.iter().enumerate().skip(1).filter_map(row).collect(),
            ..without_rows(self.record.clone())
        }
    }
}

/// Ratios by block of a candidate to the baseline, whose slices these are. Empty if the value of any slice is zero: a
/// median without these blocks would not represent all of them.
fn ratios_of(
    slices: [&[&SliceRecord]; 2],
    figure: impl Fn(&SliceRecord) -> Option<f64>,
) -> Vec<Vec<f64>> {
    let mut points = Vec::new();
    for (candidate, of) in (0..).zip(slices) {
        points.extend(of.iter().filter_map(|slice| {
            let SliceRecord { restart, block, .. } = **slice;
            Some(Point { restart, block, candidate, value: figure(slice)? })
        }));
    }
    if points.iter().any(|point| point.value <= 0.0) {
        return Vec::new();
    }
    paired_ratios(&points, 0, 1)
}

/// The verdict on an estimate with this noise floor, of candidates that failed or were client-bound.
fn judged(
    metric: Metric,
    estimate: Option<Estimate>,
    floor: Option<Share>,
    [failed, client_bound]: [bool; 2],
) -> Verdict {
    match estimate {
        _ if failed => Verdict::Failed,
        None => Verdict::Unknown,
        Some(_) if client_bound => Verdict::ClientBound,
        Some(estimate) => Verdict::of_estimate(metric, &estimate, floor),
    }
}

/// A microbenchmark as planned.
fn without_rows(record: MicrobenchmarkRecord) -> MicrobenchmarkRows {
    MicrobenchmarkRows {
        writes: record.writes,
        script: record.script,
        name: record.name,
        clients: record.clients,
        group: record.group,
        three_group: record.three_group,
        throughput_unit: match record.rows_read_per_statement {
            None => "statements/s".to_owned(),
            Some(_) => "million rows/s".to_owned(),
        },
        measuring_time: Nanos::ZERO,
        baseline: Absolute::default(),
        baseline_failed: false,
        rows: Vec::new(),
    }
}

/// Whether a failure invalidates a candidate's results on a microbenchmark.
fn invalidates(failure: &FailureRecord, microbenchmark: u32, candidate: u32) -> bool {
    failure.microbenchmark == Some(microbenchmark)
        && failure.candidate == candidate
        && failure.is_invalidating()
}

/// Whether the load generator used up its CPUs while the server did not use up its own.
pub(crate) fn client_bound(absolute: &Absolute) -> bool {
    let is_limit = |busy: Share| busy.as_fraction() >= LIMIT;
    absolute.client_busy.is_some_and(is_limit) && !absolute.server_busy.is_some_and(is_limit)
}

/// The noise floors of a run.
struct Floors {
    qps: Option<NoiseFloor>,
    cpu: Option<NoiseFloor>,
    /// Of each percentile of response times.
    times: [Option<NoiseFloor>; 3],
    statements: Option<NoiseFloor>,
}

/// The noise floor of what the control has on each microbenchmark.
fn noise_floor(
    measured: &[Measured],
    sweep: bool,
    estimate: impl Fn(&Measured) -> Option<Estimate>,
) -> Option<NoiseFloor> {
    let row = |one: &Measured| {
        let MicrobenchmarkRecord { name, clients, .. } = &one.record;
        Some(ControlRow {
            microbenchmark: match sweep {
                false => name.clone(),
                true => format!("{name} at {}", crate::metric::clients(*clients)),
            },
            estimate: estimate(one)?,
        })
    };
    NoiseFloor::of(&measured.iter().filter_map(row).collect::<Vec<_>>())
}

/// The noise floor of a row whose control has this.
fn floor_of(floor: Option<&NoiseFloor>, control: Option<Estimate>) -> Option<Share> {
    floor.map(|floor| floor.for_row(control.map(|estimate| estimate.median)))
}

#[cfg(test)]
mod tests;
