//! Build the report of an insert benchmark from a run: compare the candidates, calculate the figures
//! of each step.

use dbdyno_results::{
    CandidateRecord, InsertPlanRecord, InsertStepPlan, InsertStepRecord, ResultsError, RunReader,
    StartedFrom,
};
use dbdyno_stats::{interval_of_repeats, median, percentile};
use dbdyno_types::Latencies;
use dbdyno_types::insert::{Second, StepMeasured};
use dbdyno_units::{Nanos, Share};

use crate::model::{
    BUCKETS, CandidateStep, InsertFigures, InsertReport, Responses, Role, StepReport, StepRun,
};

/// Commits or queries per second from which a second with too few of them is a stall. Slightly below two,
/// since a step ends some time after its last one.
const OFTEN: f64 = 1.8;

/// The report, and whether all steps of all candidates are complete.
pub(crate) fn assemble(
    run: &RunReader,
    plan: &InsertPlanRecord,
    candidates: &[CandidateRecord],
) -> Result<(InsertReport, bool), ResultsError> {
    let cpus = run.sessions()?.iter().filter_map(|session| session.system_cpus).min();
    assemble_steps(plan, &run.insert_steps()?, |id| run.insert_seconds(id), (candidates, cpus))
}

/// The report of these steps. `seconds` gets the ID of a step; the systems under test have this many CPUs.
pub(crate) fn assemble_steps(
    plan: &InsertPlanRecord,
    rows: &[InsertStepRecord],
    seconds: impl Fn(i64) -> Result<Vec<Second>, ResultsError>,
    (candidates, system_cpus): (&[CandidateRecord], Option<u32>),
) -> Result<(InsertReport, bool), ResultsError> {
    let done: Vec<&InsertStepRecord> = rows.iter().filter(|row| row.measured.is_some()).collect();
    let wanted = plan.steps.len() * candidates.len() * plan.repeats as usize;
    let complete = !candidates.is_empty() && done.len() >= wanted;
    let mut steps = Vec::new();
    for (number, step) in (0..).zip(&plan.steps) {
        let mut found: Vec<CandidateStep> = Vec::new();
        let mut index = 0;
        for (of, candidate) in (0..).zip(candidates) {
            let mut repeats: Vec<StepRun> = Vec::new();
            for row in done.iter().filter(|row| (row.step, row.candidate) == (number, of)) {
                repeats.extend(step_run(plan, step, row, seconds(row.id)?));
            }
            repeats.sort_by_key(|run| run.repeat);
            if !repeats.is_empty() {
                let all: Vec<&InsertFigures> = repeats.iter().map(|run| &run.figures).collect();
                found.push(CandidateStep {
                    candidate: candidate.name.clone(),
                    role: candidate.role,
                    index,
                    figures: InsertFigures::over(&all, median),
                    relative: None,
                    relative_spread: None,
                    relative_interval: None,
                    repeats,
                });
            }
            index += usize::from(candidate.role != Role::Baseline);
        }
        compare(&mut found);
        if !found.is_empty() {
            steps.push(StepReport {
                name: step.name.clone(),
                what: step.what.clone(),
                queries: step.queries,
                inserts: step.inserts,
                rate: step.rate,
                candidates: found,
            });
        }
    }
    let report = InsertReport {
        clients: plan.clients,
        tables: plan.tables,
        repeats: plan.repeats,
        order: (0..plan.repeats).map(|repeat| order(repeat, rows, candidates)).collect(),
        stall: plan.stall,
        sustained: plan.sustained,
        busy_cpus: match plan.clients {
            1 => Some(1),
            clients => system_cpus.map(|cpus| cpus.min(clients)),
        },
        steps,
    };
    Ok((report, complete))
}

/// The candidates of a repeat, in order of execution.
fn order(repeat: u32, rows: &[InsertStepRecord], candidates: &[CandidateRecord]) -> Vec<String> {
    let mut positions: Vec<(u32, u32)> = rows
        .iter()
        .filter(|row| row.repeat == repeat)
        .map(|row| (row.position, row.candidate))
        .collect();
    positions.sort_unstable();
    positions.dedup();
    let name = |(_, number): (u32, u32)| Some(candidates.get(number as usize)?.name.clone());
    positions.into_iter().filter_map(name).collect()
}

/// Divide the figures of all candidates by the baseline's.
fn compare(candidates: &mut [CandidateStep]) {
    let baseline = candidates.iter().find(|candidate| candidate.role == Role::Baseline).cloned();
    let Some(baseline) = baseline else { return };
    for candidate in candidates.iter_mut().filter(|one| one.role != Role::Baseline) {
        let pairs = candidate.repeats.iter().filter_map(|run| {
            let base = baseline.repeats.iter().find(|base| base.repeat == run.repeat)?;
            Some([&run.figures, &base.figures])
        });
        // Of the repeats of both: the machine's speed changes from one to the next.
        let pairs: Vec<[&InsertFigures; 2]> = pairs.collect();
        let [own, base] = [0, 1].map(|side| {
            let all: Vec<&InsertFigures> = pairs.iter().map(|pair| pair[side]).collect();
            InsertFigures::over(&all, median)
        });
        candidate.relative = Some(own.relative_to(&base));
        let ratios: Vec<InsertFigures> =
            pairs.iter().map(|[own, base]| own.relative_to(base)).collect();
        let ratios: Vec<&InsertFigures> = ratios.iter().collect();
        candidate.relative_spread = (ratios.len() > 1).then(|| {
            let least = |values: &[f64]| values.iter().copied().reduce(f64::min);
            let greatest = |values: &[f64]| values.iter().copied().reduce(f64::max);
            (InsertFigures::over(&ratios, least), InsertFigures::over(&ratios, greatest))
        });
        candidate.relative_interval = (ratios.len() > 1).then(|| {
            let low = |values: &[f64]| Some(interval_of_repeats(values)?.0.get());
            let high = |values: &[f64]| Some(interval_of_repeats(values)?.1.get());
            (InsertFigures::over(&ratios, low), InsertFigures::over(&ratios, high))
        });
    }
}

/// The figures of one repeat; `None` if it is incomplete.
fn step_run(
    plan: &InsertPlanRecord,
    step: &InsertStepPlan,
    row: &InsertStepRecord,
    seconds: Vec<Second>,
) -> Option<StepRun> {
    let measured = row.measured.as_ref()?;
    let figures = figures(measured, &seconds, step.queries);
    let sustained = step.rate.map(|rate| {
        // Based on overdue rows: in short steps, the rate depends too much on the time of the last
        // commit.
        let inserted = measured.inserts.rows as f64;
        let due = inserted + measured.overdue as f64;
        rate == 0 || due == 0.0 || inserted >= plan.sustained.as_fraction() * due
    });
    // With fewer than two commits or queries a second, seconds without one are not stalls.
    let stalls_of = |count: u64, asks: bool| {
        let often = count > 0 && count as f64 >= OFTEN * measured.wall.as_secs_f64();
        if often { stalls(&seconds, plan.stall, asks) } else { Vec::new() }
    };
    let service = measured.inserts.service.as_ref();
    Some(StepRun {
        repeat: row.repeat + 1,
        from_copy: row.started_from == StartedFrom::Copy,
        wall: measured.wall,
        rows: measured.inserts.rows,
        queries: measured.queries.count,
        rows_returned: measured.queries.rows,
        deleted: measured.deletes.rows,
        figures,
        sustained,
        overdue: measured.overdue,
        retries: measured.retries,
        lock_waits: measured.lock_waits,
        wrong: measured.wrong,
        stalls: stalls_of(measured.inserts.count, false),
        query_stalls: stalls_of(measured.queries.count, true),
        insert_responses: responses(&measured.inserts.response, measured.inserts.longest),
        insert_service: service
            .and_then(|service| responses(service, measured.inserts.longest_service)),
        query_responses: responses(&measured.queries.response, measured.queries.longest),
        delete_responses: responses(&measured.deletes.response, measured.deletes.longest),
        seconds,
    })
}

/// Minimum length of an incomplete second to be used for throughput.
pub(crate) const SHORTEST: Nanos = Nanos::from_millis(500);

const MB: f64 = 1e6;
const KB: f64 = 1e3;
const GB: f64 = 1e9;

/// The figures of one step. `asks` is true if throughput counts queries.
fn figures(measured: &StepMeasured, seconds: &[Second], asks: bool) -> InsertFigures {
    let wall = measured.wall.as_secs_f64();
    let rate = |count: u64| (wall > 0.0 && count > 0).then(|| count as f64 / wall);
    let per_second = |amount: Option<f64>| amount.filter(|_| wall > 0.0).map(|a| a / wall);
    let (inserts, queries) = (measured.inserts.rows, measured.queries.count);
    let work = if asks { queries } else { inserts };
    let per = |amount: Option<f64>, count: u64| {
        amount.filter(|_| count > 0).map(|amount| amount / count as f64)
    };
    let device = measured.device;
    let reads = device.map(|device| device.reads as f64);
    let read = device.map(|device| device.read.as_bytes() as f64);
    let writes = device.map(|device| device.writes as f64);
    let written = device.map(|device| device.written.as_bytes() as f64);
    let cpu = measured.system.map(|used| used.cpu.as_nanos() as f64);
    let client = measured.client_cpu.map(|cpu| cpu.as_nanos() as f64);
    let switches = measured.system.and_then(|used| used.context_switches).map(|n| n as f64);
    let over = |value: Option<f64>, unit: f64| value.map(|value| value / unit);
    let throughputs = if work > 0 { throughputs(seconds, asks) } else { Vec::new() };
    let reached =
        |share: f64| reached_by(&throughputs, share).filter(|_| throughputs.len() >= PERCENTILES);
    let longest = [&measured.inserts, &measured.queries, &measured.deletes];
    let longest = longest.iter().filter_map(|operations| operations.longest).max();

    let mut figures = InsertFigures::default();
    figures.set("ips", rate(inserts));
    figures.set("qps", rate(queries));
    figures.set("dps", rate(measured.deletes.rows));
    figures.set("rps", per_second(reads));
    figures.set("rmbps", over(per_second(read), MB));
    figures.set("wps", per_second(writes));
    figures.set("wmbps", over(per_second(written), MB));
    figures.set("rpq", per(reads, work));
    figures.set("rkbpq", over(per(read, work), KB));
    figures.set("wpi", per(writes, inserts));
    figures.set("wkbpi", over(per(written, inserts), KB));
    figures.set("csps", per_second(switches));
    figures.set("cpups", per_second(cpu).map(|cpu| 100.0 * cpu / 1e9));
    figures.set("cspq", per(switches, work));
    figures.set("cpupq", over(per(cpu, work), 1e3));
    figures.set("ccpupq", over(per(client, work), 1e3));
    figures.set("dbgb", measured.database.map(|size| size.as_bytes() as f64 / GB));
    figures.set("rss", measured.resident.map(|size| size.as_bytes() as f64 / GB));
    figures.set("maxop", longest.map(Nanos::as_secs_f64));
    figures.set("p50", reached(0.5));
    figures.set("p99", reached(0.99));
    figures
}

/// Throughput of each complete second, in ascending order.
fn throughputs(seconds: &[Second], asks: bool) -> Vec<f64> {
    let whole = seconds.iter().filter(|second| second.elapsed >= SHORTEST);
    let mut all: Vec<f64> = whole.map(|second| throughput(second, asks)).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Throughput of a second, divided by its actual length.
pub(crate) fn throughput(second: &Second, asks: bool) -> f64 {
    let count = if asks { second.queries } else { second.inserts };
    count as f64 / second.elapsed.as_secs_f64().max(1e-9)
}

/// The least number of seconds whose throughput has percentiles.
const PERCENTILES: usize = 2;

/// The throughput reached in this share of the seconds. `ascending` is sorted.
fn reached_by(ascending: &[f64], share: f64) -> Option<f64> {
    let below = ((1.0 - share) * ascending.len() as f64).floor() as usize;
    ascending.get(below).copied()
}

/// Stalls: the numbers of the seconds with less than this share of the median inserts, or queries.
fn stalls(seconds: &[Second], share: Share, asks: bool) -> Vec<u32> {
    let Some(median) = reached_by(&throughputs(seconds, asks), 0.5) else { return Vec::new() };
    let limit = median * share.as_fraction();
    let is_stall = |one: &&Second| one.elapsed >= SHORTEST && throughput(one, asks) < limit;
    seconds.iter().filter(is_stall).map(|second| second.number).collect()
}

/// The distribution of response times; `None` without operations.
fn responses(latencies: &Latencies, longest: Option<Nanos>) -> Option<Responses> {
    let counts: Vec<(u64, u64)> = latencies.counts().collect();
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    let max = longest?;
    if total == 0 {
        return None;
    }
    let mut shares = [0_u64; BUCKETS.len() + 1];
    // A recorded time is the upper end of its bucket, up to 1% too high.
    let time = |nanos: u64| Nanos::from_nanos(nanos).min(max);
    for (nanos, count) in &counts {
        let time = time(*nanos);
        let bucket = BUCKETS.iter().position(|(end, _)| time <= *end).unwrap_or(BUCKETS.len());
        shares[bucket] += count;
    }
    let percentile = |share: f64| percentile(&counts, total, share).map_or(max, time);
    Some(Responses {
        shares: shares.map(|count| Share::from_fraction(count as f64 / total as f64)),
        p50: percentile(0.5),
        p95: percentile(0.95),
        p99: percentile(0.99),
        p999: percentile(0.999),
        max,
    })
}

#[cfg(test)]
mod tests {
    use dbdyno_types::insert::Operations;

    use super::*;

    fn second(number: u32, inserts: u64) -> Second {
        Second { number, elapsed: Nanos::from_secs(1), inserts, ..Second::default() }
    }

    #[test]
    fn throughput_percentiles_are_reached_by_that_share_of_seconds() {
        let seconds: Vec<Second> = (0..100).map(|n| second(n, u64::from(n) + 1)).collect();
        let inserts = Operations { rows: 5_050, ..Operations::default() };
        let wall = Nanos::from_secs(100);
        let measured = StepMeasured { wall, inserts, ..StepMeasured::default() };
        let of = |measured| figures(measured, &seconds, false);
        assert_eq!(of(&measured).get("ips"), Some(50.5));
        assert_eq!(of(&measured).get("p50"), Some(51.0));
        assert_eq!(of(&measured).get("p99"), Some(2.0), "all but the slowest one");
        let idle = StepMeasured { wall, ..StepMeasured::default() };
        for name in ["ips", "p50", "p99", "maxop"] {
            assert_eq!(of(&idle).get(name), None, "nothing is not a rate of zero");
        }
    }

    #[test]
    fn short_step_has_no_percentiles() {
        let seconds = [Second { elapsed: Nanos::from_millis(800), ..second(0, 700) }];
        let inserts = Operations { rows: 700, ..Operations::default() };
        let wall = Nanos::from_millis(800);
        let measured = StepMeasured { wall, inserts, ..StepMeasured::default() };
        let figures = figures(&measured, &seconds, false);
        assert_eq!((figures.get("p50"), figures.get("p99")), (None, None));
        assert!(figures.get("ips").is_some());
    }

    #[test]
    fn seconds_far_below_the_median_are_stalls_unless_cut_off() {
        let mut seconds: Vec<Second> = (0..10).map(|n| second(n, 1_000)).collect();
        seconds[3].inserts = 0;
        seconds[7].inserts = 499;
        seconds[8].inserts = 500;
        seconds[9] = Second { elapsed: Nanos::from_millis(10), inserts: 0, ..second(9, 0) };
        assert_eq!(stalls(&seconds, Share::from_percent(50.0), false), [3, 7]);
        let asked =
            seconds.iter().map(|one| Second { queries: one.inserts, inserts: 9, ..one.clone() });
        let asked: Vec<Second> = asked.collect();
        assert_eq!(stalls(&asked, Share::from_percent(50.0), true), [3, 7]);
        // A step with a median of no inserts has no stalls.
        let idle: Vec<Second> = (0..10).map(|n| second(n, 0)).collect();
        assert_eq!(stalls(&idle, Share::from_percent(50.0), false), [] as [u32; 0]);
    }

    #[test]
    fn response_times_are_sorted_into_the_published_buckets() {
        let micros = |n: u64| n * 1_000;
        let latencies = Latencies::new(vec![
            (micros(256), 50),
            (micros(257), 25),
            (micros(4_000), 20),
            (micros(2_000_000), 4),
            (micros(20_000_000), 1),
        ]);
        let max = Nanos::from_micros(19_900_000);
        let responses = responses(&latencies, Some(max)).unwrap();
        let percent: Vec<f64> = responses.shares.iter().map(|s| s.as_percent().round()).collect();
        assert_eq!(percent, [50.0, 25.0, 20.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 1.0]);
        assert_eq!(responses.p50, Nanos::from_micros(256));
        assert_eq!(responses.p99, Nanos::from_secs(2));
        assert_eq!(responses.p999, max, "never longer than the longest");
        assert_eq!(super::responses(&Latencies::default(), None), None);
    }
}
