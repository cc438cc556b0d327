//! Build the report of an insert benchmark from a run.

use dbdyno_results::{
    CandidateRecord, InsertPlanRecord, InsertStepPlan, InsertStepRecord, ResultsError, RunReader,
    StartedFrom,
};
use dbdyno_stats::median;
use dbdyno_types::insert::Second;

use super::figures::{figures, responses, stalls};
use crate::model::InsertFigures;
use crate::model::Role;
use crate::model::{CandidateStep, InsertReport, StepReport, StepRun};

/// Commits per second from which a second with too few of them is a stall. Slightly below two,
/// since a step ends some time after its last commit.
const OFTEN: f64 = 1.8;

/// The report, and whether all steps of all candidates are complete.
pub(crate) fn assemble(
    run: &RunReader,
    plan: &InsertPlanRecord,
    candidates: &[CandidateRecord],
) -> Result<(InsertReport, bool), ResultsError> {
    assemble_steps(plan, &run.insert_steps()?, |id| run.insert_seconds(id), candidates)
}

/// The report of these steps. `seconds` gets the ID of a step.
pub(crate) fn assemble_steps(
    plan: &InsertPlanRecord,
    rows: &[InsertStepRecord],
    seconds: impl Fn(i64) -> Result<Vec<Second>, ResultsError>,
    candidates: &[CandidateRecord],
) -> Result<(InsertReport, bool), ResultsError> {
    let done: Vec<&InsertStepRecord> = rows.iter().filter(|row| row.measured.is_some()).collect();
    let wanted = plan.steps.len() * candidates.len() * plan.repeats as usize;
    let complete = !candidates.is_empty() && done.len() >= wanted;
    let mut steps = Vec::new();
    for (number, step) in (0..).zip(&plan.steps) {
        let of_step: Vec<&InsertStepRecord> =
            done.iter().copied().filter(|row| row.step == number).collect();
        let report = assemble_step(plan, step, &of_step, &seconds, candidates)?;
        if !report.candidates.is_empty() {
            steps.push(report);
        }
    }
    let report = InsertReport {
        clients: plan.clients,
        tables: plan.tables,
        repeats: plan.repeats,
        order: (0..plan.repeats).map(|repeat| order(repeat, rows, candidates)).collect(),
        stall: plan.stall,
        sustained: plan.sustained,
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

fn assemble_step(
    plan: &InsertPlanRecord,
    step: &InsertStepPlan,
    rows: &[&InsertStepRecord],
    seconds: impl Fn(i64) -> Result<Vec<Second>, ResultsError>,
    candidates: &[CandidateRecord],
) -> Result<StepReport, ResultsError> {
    let mut found: Vec<CandidateStep> = Vec::new();
    let mut index = 0;
    for (number, candidate) in (0..).zip(candidates) {
        let role = candidate.role;
        let own_index = index;
        index += usize::from(role != Role::Baseline);
        let mut repeats = Vec::new();
        for row in rows.iter().filter(|row| row.candidate == number) {
            repeats.extend(step_run(plan, step, row, seconds(row.id)?));
        }
        if !repeats.is_empty() {
            found.push(candidate_step(&candidate.name, role, own_index, repeats));
        }
    }
    Ok(step_report(step, found))
}

/// A candidate's figures over its repeats.
fn candidate_step(
    name: &str,
    role: Role,
    index: usize,
    mut repeats: Vec<StepRun>,
) -> CandidateStep {
    repeats.sort_by_key(|run| run.repeat);
    let all: Vec<&InsertFigures> = repeats.iter().map(|run| &run.figures).collect();
    CandidateStep {
        candidate: name.to_owned(),
        role,
        index,
        figures: InsertFigures::over(&all, |values| median(values)),
        relative: None,
        relative_spread: None,
        repeats,
    }
}

/// A step with all candidates compared with the baseline.
fn step_report(step: &InsertStepPlan, mut found: Vec<CandidateStep>) -> StepReport {
    compare(&mut found);
    StepReport {
        name: step.name.clone(),
        what: step.what.clone(),
        queries: step.queries,
        inserts: step.inserts,
        rate: step.rate,
        candidates: found,
    }
}

/// Divide the figures of all candidates by the baseline's.
fn compare(candidates: &mut [CandidateStep]) {
    let baseline = candidates.iter().find(|candidate| candidate.role == Role::Baseline).cloned();
    let Some(baseline) = baseline else { return };
    for candidate in candidates.iter_mut().filter(|one| one.role != Role::Baseline) {
        candidate.relative = Some(candidate.figures.relative_to(&baseline.figures));
        let pairs = candidate.repeats.iter().filter_map(|run| {
            let base = baseline.repeats.iter().find(|base| base.repeat == run.repeat)?;
            Some(run.figures.relative_to(&base.figures))
        });
        let ratios: Vec<InsertFigures> = pairs.collect();
        let ratios: Vec<&InsertFigures> = ratios.iter().collect();
        candidate.relative_spread = (ratios.len() > 1).then(|| {
            let least = |values: &mut Vec<f64>| values.iter().copied().reduce(f64::min);
            let greatest = |values: &mut Vec<f64>| values.iter().copied().reduce(f64::max);
            (InsertFigures::over(&ratios, least), InsertFigures::over(&ratios, greatest))
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
    // If commits are due less than twice a second, seconds without a commit are not stalls.
    let often = measured.inserts.count as f64 >= OFTEN * measured.wall.as_secs_f64();
    let often = often && measured.inserts.count > 0;
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
        stalls: if often { stalls(&seconds, plan.stall) } else { Vec::new() },
        insert_responses: responses(&measured.inserts.response, measured.inserts.longest),
        insert_service: service
            .and_then(|service| responses(service, measured.inserts.longest_service)),
        query_responses: responses(&measured.queries.response, measured.queries.longest),
        delete_responses: responses(&measured.deletes.response, measured.deletes.longest),
        seconds,
    })
}
