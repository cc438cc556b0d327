//! The microbenchmarks of a run, in running order.

use std::ops::Range;

use dbdyno_machine::{IdlePreventer, clock};
use dbdyno_results::{Role, StateSnapshotRecord};
use dbdyno_spec::experiment::Experiment;
use dbdyno_worker::schedule::start_order;
use dbdyno_workloads::definition::Stage;

use crate::candidates::ResolvedCandidate;
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::{Instance, KeptCopy, in_order, running};
use crate::measure::slice_history::BlockTimes;
use crate::measure::{MicrobenchmarkRun, NumberedCase, relative_time};
use crate::plan::cases::{
    MicrobenchmarkCase, cases, first_pass, has_passes, instance_count, interleaved_sets,
    keeps_copy, segments, slice_length, training_case,
};
use crate::plan::elapsed::{CaseLeft, Costs, TimeEstimate, TimeRange, is_off, time_left};
use crate::record::Phase;
use crate::session::Session;
use crate::session::progress::{InterimEstimate, RunEvent};
use crate::training::live::LiveTraining;

impl Session<'_> {
    /// Starts the instances and measures all microbenchmarks that are not done.
    pub(super) fn run_microbenchmarks(
        &mut self,
        context: &RunContext<'_>,
        candidates: Vec<ResolvedCandidate>,
    ) -> Result<(), RunError> {
        let _idle_preventer = IdlePreventer::start(&self.idle_prevention)?;
        self.recorder.stage("starting the instances");
        let mut instances: Vec<Instance> =
            candidates.into_iter().map(|candidate| Instance::new(context, candidate)).collect();
        let order = start_order(self.experiment.seed, None, 0, instances.len());
        let all = in_order(&mut instances, &order);
        let starting = clock::monotonic();
        self.recorder
            .each(all, &Phase::of_session("starting"), |_, instance| instance.start(context))?;
        for (number, instance) in instances.iter().enumerate() {
            self.store_reported(number, instance)?;
        }
        let compared = instances.iter().filter(|one| one.candidate.role == Role::Candidate).count();
        self.check_settings_in_force(&instances.iter().collect::<Vec<_>>(), compared)?;
        self.check_statements(&mut instances)?;
        self.starts.add(false, clock::monotonic() - starting, 1);
        self.record.counting =
            instances.iter().map(|one| one.opened.as_ref()?.counting.clone()).collect();
        self.recorder.results.update_session(&self.record)?;
        let states = self.store_state_snapshots(&mut instances, "at the start of the session")?;
        self.warn_of_small_data(&instances, &states)?;
        self.measure_all(context, &mut instances)?;
        self.store_state_snapshots(&mut instances, "after the last microbenchmark")?;
        // Everything is stored: errors on shutdown do not matter.
        instances.iter_mut().for_each(Instance::stop);
        Ok(())
    }

    /// Prepares all statements on every running instance, unless something was measured already.
    fn check_statements(&mut self, instances: &mut [Instance]) -> Result<(), RunError> {
        if self.state.has_measured() {
            return Ok(());
        }
        let mut problems = Vec::new();
        let experiment = self.experiment;
        let phase = Phase::of_session("preparing all statements");
        self.recorder.each(running(instances), &phase, |_, instance| {
            problems.extend(instance.statement_problems(experiment)?);
            Ok(())
        })?;
        if problems.is_empty() { Ok(()) } else { Err(RunError::Statements(problems)) }
    }

    fn measure_all(
        &mut self,
        context: &RunContext<'_>,
        instances: &mut [Instance],
    ) -> Result<(), RunError> {
        let all = cases(self.experiment);
        let sets = interleaved_sets(self.experiment, &all);
        let mut settled = true;
        for segment in segments(self.experiment, &all, &sets) {
            let left: Vec<Vec<NumberedCase<'_>>> = sets[segment]
                .iter()
                .map(|set| self.not_done(&all, set.clone()))
                .filter(|left| !left.is_empty())
                .collect();
            self.measure_segment(context, &all, &left, &mut settled, instances)?;
        }
        Ok(())
    }

    fn not_done<'c>(
        &self,
        all: &'c [MicrobenchmarkCase],
        set: Range<usize>,
    ) -> Vec<NumberedCase<'c>> {
        let numbered = (set.start as u32..).zip(&all[set]);
        let numbered = numbered.map(|(id, case)| NumberedCase { id, case });
        numbered.filter(|one| !self.state.done[one.id as usize]).collect()
    }

    /// Measures sets of cases in passes: in each, instances are started and visit every set that needs
    /// more starts. The first pass uses the instances as they were started before.
    fn measure_segment(
        &mut self,
        context: &RunContext<'_>,
        all: &[MicrobenchmarkCase],
        sets: &[Vec<NumberedCase<'_>>],
        settled: &mut bool,
        instances: &mut [Instance],
    ) -> Result<(), RunError> {
        let run = |cases| {
            let training = self.live_training(context, all, cases);
            MicrobenchmarkRun::new(context, cases, training, instances)
        };
        let mut runs: Vec<MicrobenchmarkRun<'_>> = sets.iter().map(|set| run(set)).collect();
        let histories = &self.state.histories;
        let starts: Vec<u32> = runs.iter().map(|run| run.complete_starts(histories)).collect();
        let mut visited = first_pass(&starts);
        // Otherwise others change the data between two starts.
        let alone = runs.len() == 1;
        for pass in 0.. {
            let (began, measured) =
                (clock::monotonic(), BlockTimes::of(&self.state.histories).time);
            let (restarts, profiled) = (self.recorder.restarts, self.recorder.profiled);
            let Some(first_left) = runs.iter().find(|run| !run.is_complete()) else { break };
            let restores = pass > 0 && alone && self.keeps_copy(first_left.first().case);
            if pass > 0 {
                let histories = &self.state.histories;
                let next = runs.iter().map(|run| run.next_start(histories)).max();
                let next = next.unwrap_or_default();
                let copy = restores.then_some(KeptCopy::Restore);
                let phase = first_left.phase("restarting");
                runs[0].restart(next, copy, &phase, instances, &mut self.recorder)?;
            }
            let mut visits = 0;
            for (run, visited) in runs.iter_mut().zip(&mut visited) {
                if !std::mem::replace(visited, true) || run.is_complete() {
                    continue;
                }
                visits += 1;
                let NumberedCase { id, case } = run.first();
                let keeps_copy = self.keeps_copy(case);
                // A copy is of settled data.
                if pass == 0 || (has_passes(self.experiment) && !restores) {
                    self.prepare_data_for(case, settled, instances)?;
                }
                if keeps_copy && (pass == 0 || !alone) {
                    let histories = &self.state.histories;
                    run.copy(KeptCopy::Keep, instances, histories, &mut self.recorder)?;
                }
                self.report_visit(id as usize + 1, all.len(), run);
                let time_after = self.time_left(all, run.cases).total();
                let histories = &mut self.state.histories;
                let measured =
                    run.measure_start(time_after, instances, histories, &mut self.recorder);
                let warnings = std::mem::take(&mut self.recorder.warnings);
                self.warn_once(warnings)?;
                if matches!(&measured, Err(error) if !matches!(error, RunError::Interrupted)) {
                    return measured;
                }
                if keeps_copy && (!alone || run.is_complete() || measured.is_err()) {
                    let histories = &self.state.histories;
                    run.copy(KeptCopy::Restore, instances, histories, &mut self.recorder)?;
                }
                measured?;
                if run.is_complete() {
                    run.check(instances, &self.state.histories, &mut self.recorder)?;
                    for NumberedCase { id, case } in run.cases {
                        self.recorder.results.set_done(*id)?;
                        self.state.done[*id as usize] = true;
                        let time_left = self.time_left(all, &[]).total();
                        let number = (*id as usize + 1, all.len());
                        self.report_done(instances, number, case, time_left);
                    }
                }
                self.store_elapsed()?;
                self.report_left(all, false);
            }
            let restarts = self.recorder.restarts - restarts;
            if restarts > 0 {
                let measured = BlockTimes::of(&self.state.histories).time - measured;
                let measured = measured + (self.recorder.profiled - profiled);
                let is_first = self.starts.count() == 1;
                let time = (clock::monotonic() - began).saturating_sub(measured);
                let writes = runs[0].first().case.microbenchmark.writes();
                // Settling before each further one that writes takes about as long.
                let settled = if writes { u32::saturating_sub(visits, 1) } else { 0 };
                self.starts.add(writes, time, restarts + settled);
                if is_first {
                    self.report_left(all, true);
                }
            }
        }
        Ok(())
    }

    /// Settles the data before writes, and before the first read after writes.
    fn prepare_data_for(
        &mut self,
        case: &MicrobenchmarkCase,
        settled: &mut bool,
        instances: &mut [Instance],
    ) -> Result<(), RunError> {
        let writes = case.microbenchmark.writes();
        let reads_after_writes = !*settled && case.microbenchmark.stage >= Stage::Post && !writes;
        if writes || reads_after_writes {
            self.settle(instances, reads_after_writes)?;
        }
        if reads_after_writes {
            self.store_state_snapshots(instances, "after the writes")?;
        }
        *settled = (*settled || reads_after_writes) && !writes;
        Ok(())
    }

    fn live_training<'c>(
        &self,
        context: &'c RunContext<'c>,
        all: &[MicrobenchmarkCase],
        cases: &[NumberedCase<'_>],
    ) -> Option<LiveTraining<'c>> {
        let before = cases.first()?.id;
        let id = training_case(self.experiment, before as usize)?;
        Some(LiveTraining { context, case: all[id as usize].clone(), id, before })
    }

    fn report_visit(&self, number: usize, of: usize, run: &MicrobenchmarkRun<'_>) {
        let name = &title(self.experiment, run.cases);
        let planned =
            if has_passes(self.experiment) { self.experiment.schedule.restarts } else { 1 };
        let pass = if planned > 1 { run.complete_starts(&self.state.histories) + 1 } else { 1 };
        tracing::info!(number, of, name, pass, "measuring a microbenchmark");
        let passes = (pass, if planned > 1 { planned } else { 0 });
        self.recorder.report(RunEvent::Microbenchmark { number, of, name, passes });
    }

    fn report_done(
        &self,
        instances: &[Instance],
        (number, of): (usize, usize),
        case: &MicrobenchmarkCase,
        time_left: TimeRange,
    ) {
        let name = &case.title(self.experiment);
        let rule = &self.state.histories[number - 1].rule;
        tracing::info!(name, blocks = rule.blocks(), "completed a microbenchmark");
        let mut estimates = Vec::new();
        for (number, instance) in (0..).zip(instances).skip(1) {
            let candidate = &instance.candidate.name;
            estimates.push(InterimEstimate { candidate, estimate: rule.estimate(number) });
        }
        self.recorder.report(RunEvent::MicrobenchmarkDone {
            number,
            of,
            name,
            blocks: rule.blocks(),
            estimates: &estimates,
            time_left,
        });
    }

    /// Whether instances keep a copy of their data before a case, to restore it for each restart
    /// and each number of clients.
    pub(super) fn keeps_copy(&self, case: &MicrobenchmarkCase) -> bool {
        keeps_copy(self.experiment, &case.microbenchmark)
    }

    /// Writes pending changes back on all instances.
    fn settle(&mut self, instances: &mut [Instance], warm: bool) -> Result<(), RunError> {
        self.recorder.each(running(instances), &Phase::of_session("settling"), |_, instance| {
            let worker = instance.worker_mut()?;
            worker.free_statements()?;
            worker.settle()?;
            if warm { worker.warm() } else { Ok(()) }
        })
    }

    /// Stores the state of every running instance.
    fn store_state_snapshots(
        &mut self,
        instances: &mut [Instance],
        at: &str,
    ) -> Result<Vec<StateSnapshotRecord>, RunError> {
        let mut records = Vec::new();
        let phase = Phase::of_session("reading the state");
        self.recorder.each(running(instances), &phase, |number, instance| {
            let state_snapshot = instance.worker_mut()?.state_snapshot()?;
            let (candidate, at) = (number as u32, at.to_owned());
            records.push(StateSnapshotRecord { candidate, at, state_snapshot });
            Ok(())
        })?;
        for record in &records {
            self.recorder.results.add_state_snapshot(record)?;
        }
        Ok(records)
    }

    /// The time that is left, without the blocks of these cases.
    pub(super) fn time_left(
        &self,
        all: &[MicrobenchmarkCase],
        except: &[NumberedCase<'_>],
    ) -> TimeEstimate {
        let (experiment, histories) = (self.experiment, &self.state.histories);
        let schedule = &experiment.schedule;
        let instances = instance_count(experiment) as u64;
        let left = |index: usize| {
            let slice = slice_length(schedule, &all[index].microbenchmark);
            let left = CaseLeft::of(schedule, slice, &histories[index].rule, instances);
            let is_left_out = except.iter().any(|one| one.id as usize == index);
            let blocks = if is_left_out { (0, 0) } else { left.blocks };
            (!self.state.done[index]).then_some(CaseLeft { blocks, ..left })
        };
        let start = self.starts.costs(Costs::typical(experiment, true).start);
        time_left(experiment, all, start, left, |index| relative_time(histories, index))
    }

    /// Reports the time that is left if the announced time was far off: after the first restart, which takes longer than
    /// the first start, in either direction, else once, if the run certainly takes longer.
    fn report_left(&mut self, all: &[MicrobenchmarkCase], is_first_restart: bool) {
        let Some(announced) = self.planned else { return };
        let (left, elapsed) = (self.time_left(all, &[]), clock::monotonic() - self.loading_began);
        let now = left.total() + TimeRange::exactly(elapsed);
        if now.least == elapsed || !is_off(announced, now, is_first_restart) {
            return;
        }
        self.planned = is_first_restart.then_some(now.most);
        let why = match is_first_restart {
            true => "after the first restart",
            false => "the run takes longer than was estimated",
        };
        self.recorder.report(RunEvent::Planned(format!("{why}; left in all: {left}")));
    }
}

/// The title of cases that are measured together: `NAME, 1, 4 and 16 clients`.
fn title(experiment: &Experiment, cases: &[NumberedCase<'_>]) -> String {
    let (Some(first), Some(last)) = (cases.first(), cases.last()) else { return String::new() };
    let numbers: Vec<String> =
        cases[..cases.len() - 1].iter().map(|one| one.case.clients.to_string()).collect();
    if numbers.is_empty() {
        return first.case.title(experiment);
    }
    let name = &first.case.microbenchmark.name;
    format!("{name}, {} and {} clients", numbers.join(", "), last.case.clients)
}
