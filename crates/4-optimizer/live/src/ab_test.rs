//! A/B test of an optimization: CPU time per unit of work with the new code and with the original code,
//! alternating in the same process.
//!
//! A comparison before and after the optimization would be biased by changes of the workload.

use std::process::Command;
use std::time::Duration;
use std::{fmt, thread};

use dbdyno_machine::ProcessTree;
use dbdyno_stats::{Direction, Verdict, median_with_interval};
use serde::Serialize;

use crate::LiveError;
use crate::attachment::Attachment;
use crate::process::retry_while_busy;
use crate::target::{AttachedGroup, GroupSwitched};

/// A command that prints a counter of the work done by a process.
#[derive(Clone, Debug)]
pub struct WorkCounter {
    pid: u32,
    command: String,
}

/// The verdict of an A/B test. Not to be confused with the verdict of a report, which compares
/// throughput with the noise floor of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbTestVerdict {
    Better,
    Worse,
    Same,
    /// Too few pairs with work.
    #[default]
    Unknown,
}

/// CPU time per unit of work of a process and its descendants: new code divided by original code.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AbTestResult {
    pub verdict: AbTestVerdict,
    /// Median of the pairs; `None` if there are too few.
    pub ratio: Option<f64>,
    /// 95% interval of the ratio.
    pub interval: Option<(f64, f64)>,
    /// Ratio of each pair of periods with work.
    pub pairs: Vec<f64>,
    /// Number of pairs of periods, with and without work.
    #[serde(skip)]
    measured: u32,
}

/// A result, and the outcome of the final switch.
#[derive(Debug)]
pub struct AbTestOutcome {
    pub result: AbTestResult,
    /// Whether the optimization was to be active at the end.
    pub active: bool,
    /// Activating or undoing the optimization.
    pub applied: Result<GroupSwitched, LiveError>,
    /// Processes other than the first that could not be switched before a period, with the first error of each.
    pub missed: Vec<(u32, LiveError)>,
}

/// An A/B test after an optimization.
#[derive(Clone, Debug)]
pub struct AbTest {
    pub work: WorkCounter,
    pub time: Duration,
    pub keep: KeepRule,
}

/// The measured effect of an optimization, and what became of the optimization.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Effect {
    /// `None`: the test failed.
    #[serde(flatten)]
    pub result: Option<AbTestResult>,
    /// Whether the optimization was to be active at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    #[serde(rename = "error", skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    #[serde(skip)]
    pub text: String,
}

/// Which verdicts leave the optimization active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRule {
    IfBetter,
    Always,
}

/// Number of pairs of periods.
const PAIRS: u32 = 10;
/// The first of this many parts of a period is not measured, because caches have to be refilled.
const WARM_UP_PARTS: u32 = 8;

impl WorkCounter {
    /// A counter for the work of a process. `command` is run by `sh` and prints a number.
    pub fn new(pid: u32, command: &str) -> Self {
        Self { pid, command: command.to_owned() }
    }

    /// Alternately undoes and redoes an optimization for `time`, or until `stop` returns true, and
    /// compares the costs. At the end the optimization is undone unless it is kept by the rule.
    ///
    /// # Errors
    /// The command failed or printed no number, the process exited, or it could not be switched.
    /// The optimization is then active or inactive.
    pub fn ab_test(
        &self,
        group: &mut AttachedGroup,
        time: Duration,
        keep: KeepRule,
        mut stop: impl FnMut() -> bool,
    ) -> Result<AbTestOutcome, LiveError> {
        let period = time / (PAIRS * 2);
        let mut pairs = Vec::new();
        let mut missed: Vec<(u32, LiveError)> = Vec::new();
        let mut measured = 0;
        while measured < PAIRS && !stop() {
            // Alternating order, so that drift affects both equally.
            let order = if measured % 2 == 0 { [true, false] } else { [false, true] };
            let mut costs = [None; 2];
            for optimized in order {
                let switch = if optimized { Attachment::redo } else { Attachment::undo };
                for (pid, error) in group.switch(switch)?.failed {
                    if !missed.iter().any(|(known, _)| *known == pid) {
                        missed.push((pid, error));
                    }
                }
                costs[usize::from(optimized)] = self.cost(period)?;
            }
            if let [Some(original), Some(optimized)] = costs {
                pairs.push(optimized / original);
            }
            measured += 1;
        }
        let result = AbTestResult::of(pairs, measured);
        let active = keep == KeepRule::Always || result.verdict == AbTestVerdict::Better;
        let applied = if active { group.redo_all() } else { Ok(group.undo_all()) };
        Ok(AbTestOutcome { result, active, applied, missed })
    }

    /// CPU time per unit of work in one period, in nanoseconds; `None` without work.
    fn cost(&self, period: Duration) -> Result<Option<f64>, LiveError> {
        let exited = |_| LiveError::Exited { pid: self.pid };
        thread::sleep(period / WARM_UP_PARTS);
        let mut family = ProcessTree::of(self.pid).map_err(exited)?;
        // The command counts at some time between two readings: their mean varies less than either.
        let mut read = || family.read().map_err(exited);
        let first = (read()?, self.count()?, read()?);
        thread::sleep(period - period / WARM_UP_PARTS);
        let last = (read()?, self.count()?, read()?);
        let cpu = (last.0.since(&first.0).cpu + last.2.since(&first.2).cpu).as_nanos() as f64 / 2.0;
        Ok((last.1 > first.1).then(|| cpu / (last.1 - first.1)))
    }

    pub fn count(&self) -> Result<f64, LiveError> {
        let failed =
            |what: String| LiveError::Failed(format!("the work command `{}` {what}", self.command));
        let output = Command::new("sh")
            .args(["-c", &self.command])
            .output()
            .map_err(|error| failed(format!("could not be run: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("failed: {}", message.trim())));
        }
        let number = text.split_ascii_whitespace().next_back().and_then(|word| word.parse().ok());
        number.ok_or_else(|| failed(format!("printed no number: {}", text.trim())))
    }
}

impl AbTest {
    /// Runs the test. If it fails, nothing is proven, and the rule for that applies. `open` attaches to the processes; it
    /// is retried, because without it the optimization cannot be undone either.
    pub(crate) fn effect(
        &self,
        open: impl FnMut() -> Result<AttachedGroup, LiveError>,
        stop: impl FnMut() -> bool,
    ) -> Effect {
        let test = |group: &mut AttachedGroup| self.work.ab_test(group, self.time, self.keep, stop);
        Effect::tested(open, self.keep, test)
    }
}

impl Effect {
    /// If the A/B test fails, nothing is proven, and the rule for that applies. `open` attaches to the processes; it
    /// is retried, because without it the optimization cannot be undone either.
    fn tested(
        open: impl FnMut() -> Result<AttachedGroup, LiveError>,
        keep: KeepRule,
        ab_test: impl FnOnce(&mut AttachedGroup) -> Result<AbTestOutcome, LiveError>,
    ) -> Self {
        let may_recover = |error: &LiveError| !matches!(error, LiveError::Exited { .. });
        let mut group = match retry_while_busy(open, may_recover).0 {
            Ok(group) => group,
            Err(error) => {
                let state = match keep {
                    KeepRule::IfBetter => "active and unproven, because it cannot be undone now",
                    KeepRule::Always => "active",
                };
                return Self::failed(format!("{state}; the A/B test failed: {error}"));
            }
        };
        match ab_test(&mut group) {
            Ok(outcome) => Self::applied(&outcome, group.unattached()),
            Err(error) => {
                let (done, again) = match keep {
                    KeepRule::IfBetter => ("undone", Ok(group.undo_all())),
                    KeepRule::Always => ("active", group.redo_all()),
                };
                let mut text = format!("the A/B test failed: {error}");
                match again {
                    Ok(all) => {
                        if is_switched(&all) {
                            text.push_str(&format!("; {done}"));
                        }
                        for error in of_processes(all.failed.iter().chain(group.unattached())) {
                            text.push_str(&format!("; not {done}: {error}"));
                        }
                    }
                    Err(again) => text.push_str(&format!("; not {done}: {again}")),
                }
                Self::failed(text)
            }
        }
    }

    /// `unattached`: processes that could not take part.
    fn applied(outcome: &AbTestOutcome, unattached: &[(u32, LiveError)]) -> Self {
        let AbTestOutcome { result, active, applied, missed } = outcome;
        let [done, not_done] =
            if *active { ["active", "not active again"] } else { ["undone", "not undone"] };
        let mut text = result.to_string();
        let mut errors: Vec<String> = match applied {
            Ok(all) => {
                if is_switched(all) {
                    text.push_str(&format!("; {done}"));
                }
                of_processes(&all.failed).map(|error| format!("{not_done}: {error}")).collect()
            }
            Err(error) => vec![format!("{not_done}: {error}")],
        };
        errors.extend(of_processes(unattached).map(|error| format!("not in the test: {error}")));
        let missed = of_processes(missed);
        errors.extend(missed.map(|error| format!("not switched in a period: {error}")));
        for error in &errors {
            text.push_str(&format!("; {error}"));
        }
        Self { result: Some(result.clone()), active: Some(*active), errors, text }
    }

    fn failed(text: String) -> Self {
        Self { errors: vec![text.clone()], text, ..Self::default() }
    }
}

/// Whether any process was switched, or none was to be.
fn is_switched(all: &GroupSwitched) -> bool {
    !all.stops.is_empty() || all.failed.is_empty()
}

/// Errors of processes, with their process IDs.
fn of_processes<'a>(
    failed: impl IntoIterator<Item = &'a (u32, LiveError)>,
) -> impl Iterator<Item = String> {
    failed.into_iter().map(|(pid, error)| format!("process {pid}: {error}"))
}

impl AbTestResult {
    fn of(pairs: Vec<f64>, measured: u32) -> Self {
        let Some(estimate) = median_with_interval(&pairs) else {
            return Self { pairs, measured, ..Self::default() };
        };
        let interval = (estimate.low.get(), estimate.high.get());
        let verdict = match Direction::LessIsBetter.verdict(estimate.difference(None)) {
            Verdict::Better => AbTestVerdict::Better,
            Verdict::Worse => AbTestVerdict::Worse,
            Verdict::Noise | Verdict::TooNoisy => AbTestVerdict::Same,
        };
        let ratio = Some(estimate.median.get());
        Self { verdict, ratio, interval: Some(interval), pairs, measured }
    }
}

impl fmt::Display for AbTestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.measured == 0 {
            return f
                .write_str("not proven: stopped before the first pair of periods was measured");
        }
        let (Some(ratio), Some((low, high))) = (self.ratio, self.interval) else {
            return write!(
                f,
                "not proven: work was done in {} of {} pairs of periods, too few for an interval",
                self.pairs.len(),
                self.measured
            );
        };
        write!(f, "CPU time per unit of work × {ratio:.3} (95% interval {low:.3} to {high:.3}): ")?;
        f.write_str(match self.verdict {
            AbTestVerdict::Better => "better",
            AbTestVerdict::Worse => "worse",
            AbTestVerdict::Same | AbTestVerdict::Unknown => {
                "not proven better, because the interval contains 1; a longer --ab-test, or more load, narrows it"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Nanos;

    use super::*;

    #[test]
    fn clear_differences_are_detected_and_noise_is_not() {
        let verdict = |around: f64, pairs: usize| {
            let spread = [-0.02, 0.01, 0.0, 0.02, -0.01, 0.015, -0.015, 0.005];
            let pairs = spread.iter().take(pairs).map(|off| around + off).collect();
            AbTestResult::of(pairs, PAIRS).verdict
        };
        assert_eq!(verdict(0.9, 8), AbTestVerdict::Better);
        assert_eq!(verdict(1.1, 8), AbTestVerdict::Worse);
        assert_eq!(verdict(1.0, 8), AbTestVerdict::Same);
        assert_eq!(verdict(0.9, 5), AbTestVerdict::Unknown);
    }

    #[test]
    fn result_says_what_is_proven() {
        let stopped = AbTestResult::of(Vec::new(), 0).to_string();
        assert_eq!(stopped, "not proven: stopped before the first pair of periods was measured");
        let text = |pairs: &[f64]| AbTestResult::of(pairs.to_vec(), PAIRS).to_string();
        let wide = [0.765, 0.78, 0.8, 0.82, 0.832, 0.84, 0.9, 1.0, 1.05, 1.103];
        assert_eq!(
            text(&wide),
            "CPU time per unit of work × 0.836 (95% interval 0.765 to 1.103): not proven better, because the \
             interval contains 1; a longer --ab-test, or more load, narrows it"
        );
        assert!(text(&[0.8; 3]).starts_with("not proven: work was done in 3 of 10 pairs"));
        assert!(text(&[0.8; 10]).ends_with("to 0.800): better"));
    }

    #[test]
    fn work_command_must_print_a_number() {
        let me = std::process::id();
        assert_eq!(WorkCounter::new(me, "echo Questions 42").count().unwrap(), 42.0);
        for (command, message) in
            [("echo none", "printed no number"), ("echo bad >&2; false", "failed: bad")]
        {
            let error = WorkCounter::new(me, command).count().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    fn has_failed(effect: &Effect) -> bool {
        !effect.errors.is_empty()
    }

    /// A test of a group with a session that is locked; it is unproven and undone.
    fn outcome(applied: Result<GroupSwitched, LiveError>) -> AbTestOutcome {
        let result = AbTestResult::default();
        AbTestOutcome { result, active: false, applied, missed: Vec::new() }
    }

    fn locked(pid: u32) -> (u32, LiveError) {
        (pid, LiveError::Locked { pid, by: None })
    }

    #[test]
    fn attaching_is_retried_before_an_unproven_optimization_stays_active() {
        let effect = |keep, error: fn() -> LiveError| {
            let mut attempts = 0;
            let open = || {
                attempts += 1;
                Err(error())
            };
            let effect = Effect::tested(open, keep, |_| Err(error()));
            (effect, attempts)
        };
        let (locked, exited) =
            (|| LiveError::Locked { pid: 7, by: None }, || LiveError::Exited { pid: 7 });
        let (unproven, attempts) = effect(KeepRule::IfBetter, locked);
        assert!(has_failed(&unproven) && attempts > 5, "{attempts}");
        assert!(unproven.text.starts_with("active and unproven, "), "{}", unproven.text);
        let (kept, attempts) = effect(KeepRule::Always, exited);
        assert!(kept.text.starts_with("active; the A/B test failed: "), "{}", kept.text);
        assert_eq!(attempts, 1);
    }

    #[test]
    fn processes_that_were_not_switched_or_attached_are_named() {
        let effect = Effect::applied(&outcome(Ok(GroupSwitched::default())), &[]);
        assert!(!has_failed(&effect) && effect.text.ends_with("; undone"), "{}", effect.text);
        let effect = Effect::applied(&outcome(Ok(GroupSwitched::default())), &[locked(7)]);
        let expected = "; undone; not in the test: process 7: another dbdyno is attached";
        assert!(has_failed(&effect) && effect.text.contains(expected), "{}", effect.text);
        let failed = |stops| GroupSwitched { stops, failed: vec![locked(8)], retries: 0 };
        let effect = Effect::applied(&outcome(Ok(failed(vec![]))), &[]);
        let is_undone = |effect: &Effect| effect.text.contains("; undone");
        assert!(has_failed(&effect) && !is_undone(&effect), "{}", effect.text);
        let failed = failed(vec![Nanos::from_millis(1)]);
        let missed = AbTestOutcome { missed: vec![locked(9)], ..outcome(Ok(failed)) };
        let effect = Effect::applied(&missed, &[]);
        assert!(has_failed(&effect) && is_undone(&effect), "{}", effect.text);
        assert!(effect.text.contains("; not undone: process 8: "), "{}", effect.text);
        assert!(effect.text.contains("; not switched in a period: process 9: "), "{}", effect.text);
    }
}
