//! Response times of a script's statements relative to the baseline's.

use std::collections::BTreeMap;

use dbdyno_results::StatementRecord;
use dbdyno_stats::{ControlRow, Estimate, NoiseFloor, Point, paired_ratios};

use super::{Measured, floor_of};
use crate::model::{Metric, RelativeStatement, Verdict};

/// Timed events with which executions per event are known to about 5%.
const FEWEST_EVENTS: f64 = 20.0;

/// The noise floor of all statements of a run.
pub(super) fn floor(measured: &[Measured]) -> Option<NoiseFloor> {
    let of = |one: &Measured| -> Vec<ControlRow> {
        let row = |(text, estimate): (&str, Estimate)| ControlRow {
            microbenchmark: format!("{}: {text}", one.record.name),
            estimate,
        };
        one.control_statements().into_iter().map(row).collect()
    };
    NoiseFloor::of(&measured.iter().flat_map(of).collect::<Vec<_>>())
}

/// Executions and response times over all counted slices of a candidate.
#[derive(Clone, Copy, Default)]
struct Sum {
    executions: u64,
    micros: f64,
}

impl Sum {
    fn of(records: &[StatementRecord], candidate: usize) -> Self {
        let own = records.iter().filter(|one| one.candidate as usize == candidate);
        own.fold(Self::default(), |sum, one| Self {
            executions: sum.executions.saturating_add(one.executions),
            micros: sum.micros + one.total.as_micros_f64(),
        })
    }

    fn mean(self) -> Option<f64> {
        (self.executions > 0).then(|| self.micros / self.executions as f64)
    }
}

impl Measured {
    /// The ratios of the statements' mean response times in blocks in which both were timed.
    fn statement_ratios<'a>(&'a self, candidate: usize) -> BTreeMap<&'a str, Estimate> {
        let point = |one: &StatementRecord| Point {
            restart: one.restart,
            block: one.block,
            candidate: one.candidate,
            value: one.total.as_secs_f64() / one.executions as f64,
        };
        let ratio = |(text, records): (&'a String, &'a Vec<StatementRecord>)| {
            let points: Vec<Point> = records.iter().map(point).collect();
            let estimate = self.estimate(&paired_ratios(&points, candidate as u32, 0))?;
            Some((text.as_str(), estimate))
        };
        self.statements.iter().filter_map(ratio).collect()
    }

    /// The control's ratios; empty if it failed or was client-bound.
    fn control_statements(&self) -> BTreeMap<&str, Estimate> {
        let usable = self.usable_control().filter(|(number, _)| !self.client_bound(&[*number, 0]));
        usable.map_or_else(BTreeMap::new, |(control, _)| self.statement_ratios(control))
    }

    /// The statements of a candidate, those that contribute most to the difference first. Empty if none was timed.
    pub(super) fn relative_statements(
        &self,
        candidate: usize,
        floor: Option<&NoiseFloor>,
    ) -> Vec<RelativeStatement> {
        let ratios = self.statement_ratios(candidate);
        let of_control = self.control_statements();
        let [own_per_event, per_event] =
            [candidate, 0].map(|number| self.executions_per_event(number));
        let of = |(text, records): (&String, &Vec<StatementRecord>)| {
            let [own, baseline] = [candidate, 0].map(|number| Sum::of(records, number));
            let relative = ratios.get(text.as_str()).copied();
            let floor = floor_of(floor, of_control.get(text.as_str()).copied());
            let (own_us, baseline_us) = (own.mean(), baseline.mean());
            // As often as the baseline, or as the candidate if only that has it.
            let executions = match baseline_us {
                Some(_) => per_event.map(|scale| scale * baseline.executions as f64),
                None => own_per_event.map(|scale| scale * own.executions as f64),
            };
            let slower_us = match (own_us, baseline_us, relative) {
                (Some(own), None, _) => Some(own),
                (None, Some(baseline), _) => Some(-baseline),
                (_, Some(baseline), Some(ratio)) => Some(baseline * (ratio.median.get() - 1.0)),
                _ => None,
            };
            // Means of few long response times have wide intervals.
            let is_noisy = relative.as_ref().is_some_and(Estimate::is_size_too_noisy);
            let verdict = match self.judge(Metric::Cpu, relative, floor, &[candidate, 0]) {
                known if is_noisy && known.has_interval() => Verdict::TooNoisy,
                known => known,
            };
            (own_us.is_some() || baseline_us.is_some()).then(|| RelativeStatement {
                statement: text.clone(),
                executions_per_event: executions,
                baseline_us,
                response_us: own_us,
                relative,
                difference_us_per_event: slower_us.zip(executions).map(|(us, count)| us * count),
                verdict,
            })
        };
        let mut all: Vec<RelativeStatement> = self.statements.iter().filter_map(of).collect();
        let size = |one: &RelativeStatement| {
            let time = one.baseline_us.zip(one.executions_per_event).map(|(us, count)| us * count);
            (one.difference_us_per_event.map_or(-1.0, f64::abs), time.unwrap_or_default())
        };
        all.sort_by(|a, b| {
            let ((a, of_a), (b, of_b)) = (size(a), size(b));
            b.total_cmp(&a).then(of_b.total_cmp(&of_a))
        });
        all
    }

    /// Executions per event for each timed execution: those of an event are known of the timed part. `None` with few
    /// timed events, of which the first and the last are incomplete.
    fn executions_per_event(&self, candidate: usize) -> Option<f64> {
        let timed = self.statements.values().map(|one| Sum::of(one, candidate).executions as f64);
        let own = || self.slices.iter().filter(|slice| slice.candidate as usize == candidate);
        let events: f64 = own().map(|slice| slice.events as f64).sum();
        let statements: f64 = own().map(|slice| slice.statements as f64).sum();
        let timed: f64 = timed.sum();
        let scale = statements / events / timed;
        let is_known = timed >= statements || scale <= 1.0 / FEWEST_EVENTS;
        Some(scale).filter(|scale| scale.is_finite() && is_known)
    }
}
