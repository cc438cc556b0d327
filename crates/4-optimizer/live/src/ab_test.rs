//! A/B test of an optimization: CPU time per unit of work with the new code and with the original code,
//! alternating in the same process.
//!
//! A comparison before and after the optimization would be biased by changes of the workload.

use std::fmt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dbdyno_machine::ProcessTree;
use dbdyno_stats::{Direction, Verdict, median_with_interval};
use serde::Serialize;

use crate::LiveError;
use crate::attached_group::{AttachedGroup, GroupSwitched};
use crate::attachment::Attachment;

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
    /// Less CPU time per unit of work.
    Better,
    /// More CPU time per unit of work.
    Worse,
    /// The interval contains 1.
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

/// Which verdicts leave the optimization active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRule {
    /// Only [`AbTestVerdict::Better`].
    IfBetter,
    /// All.
    Always,
}

/// Number of pairs of periods.
const PAIRS: u32 = 10;
/// The first of this many parts of a period is not measured, because caches have to be refilled.
const WARM_UP_PARTS: u32 = 8;

impl WorkCounter {
    /// A counter for the work of a process. `command` is run by `sh` and prints a number.
    #[must_use]
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
        stop: impl Fn() -> bool,
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

    /// The current count.
    ///
    /// # Errors
    /// The command failed or printed no number.
    pub fn count(&self) -> Result<f64, LiveError> {
        let failed = |what: String| LiveError::WorkCommand { command: self.command.clone(), what };
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

impl AbTestResult {
    fn of(pairs: Vec<f64>, measured: u32) -> Self {
        let Some(estimate) = median_with_interval(&pairs) else {
            return Self {
                verdict: AbTestVerdict::Unknown,
                ratio: None,
                interval: None,
                pairs,
                measured,
            };
        };
        let interval = (estimate.low.get(), estimate.high.get());
        let verdict = match Direction::LessIsBetter.verdict(estimate.difference(None)) {
            Verdict::Better => AbTestVerdict::Better,
            Verdict::Worse => AbTestVerdict::Worse,
            Verdict::Noise => AbTestVerdict::Same,
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
        write!(f, "CPU time per work × {ratio:.3} (95% interval {low:.3} to {high:.3}): ")?;
        f.write_str(match self.verdict {
            AbTestVerdict::Better => "better",
            AbTestVerdict::Worse => "worse",
            AbTestVerdict::Same | AbTestVerdict::Unknown => {
                "not proven better, because the interval contains 1"
            }
        })
    }
}

#[cfg(test)]
mod tests {
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
            "CPU time per work × 0.836 (95% interval 0.765 to 1.103): not proven better, because the \
             interval contains 1"
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
}
