//! Whether it was worth it: CPU time per work, of the new code and of the program as it was, in
//! turns.
//!
//! Before and after would compare two moments, between which the work may have changed. Turns that
//! follow each other see the same work, in the same process.

use std::fmt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dbdyno_machine::ProcessTree;
use dbdyno_stats::median_with_interval;
use serde::Serialize;

use crate::LiveError;
use crate::attached_group::{AttachedGroup, GroupSwitched};
use crate::attachment::Attachment;

/// A counter of work that a command of the user's prints.
#[derive(Clone, Debug)]
pub struct WorkCounter {
    pid: u32,
    command: String,
}

/// What the comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbTestVerdict {
    /// Less CPU time per work.
    Better,
    /// More CPU time per work: undone.
    Worse,
    /// The interval holds no change.
    Same,
    /// There was too little work to tell.
    Unknown,
}

/// CPU time per work of the process and its descendants, new code divided by the program as it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbTestResult {
    /// What it says.
    pub verdict: AbTestVerdict,
    /// The median of the pairs; `None` where there were too few.
    pub ratio: Option<f64>,
    /// The ratio's 95% interval.
    pub interval: Option<(f64, f64)>,
    /// Of each pair of turns in which work was done.
    pub pairs: Vec<f64>,
}

/// A result, and how it was carried out.
#[derive(Debug)]
pub struct AbTestOutcome {
    /// What was found.
    pub result: AbTestResult,
    /// Undoing what is worse; putting in force what is not.
    pub carried_out: Result<GroupSwitched, LiveError>,
}

/// Pairs of turns. One with work in too few of them says nothing.
const PAIRS: u32 = 10;
/// The part of a turn in which nothing is counted: caches have to fill with other code.
const LEAD_IN: u32 = 8;

impl WorkCounter {
    /// A counter for the work of a process; `command` is run by `sh` and prints a number.
    #[must_use]
    pub fn new(pid: u32, command: &str) -> Self {
        Self { pid, command: command.to_owned() }
    }

    /// Undoes an optimization and puts it in force again for this time, or until it is to stop, and
    /// compares. In the end it is in force, unless it is worse.
    ///
    /// # Errors
    /// The command fails or prints no number, the process is gone, or it could not be switched. What
    /// is in force then is to be looked up.
    pub fn judge(
        &self,
        group: &mut AttachedGroup,
        time: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<AbTestOutcome, LiveError> {
        let turn = time / (PAIRS * 2);
        let mut pairs = Vec::new();
        for pair in 0..PAIRS {
            if stop() {
                break;
            }
            // There and back, so that nothing that drifts is for either.
            let order = if pair % 2 == 0 { [true, false] } else { [false, true] };
            let mut costs = [None; 2];
            for optimized in order {
                group.switch(if optimized { Attachment::redo } else { Attachment::undo })?;
                costs[usize::from(optimized)] = self.cost(turn)?;
            }
            if let [Some(stock), Some(optimized)] = costs {
                pairs.push(optimized / stock);
            }
        }
        let result = AbTestResult::of(pairs);
        let worse = result.verdict == AbTestVerdict::Worse;
        group.add_newcomers();
        let carried_out = group.switch(if worse { Attachment::undo } else { Attachment::redo });
        Ok(AbTestOutcome { result, carried_out })
    }

    /// CPU time per work in one turn, in nanoseconds; `None` without work.
    fn cost(&self, turn: Duration) -> Result<Option<f64>, LiveError> {
        let gone = |_| LiveError::Gone { pid: self.pid };
        thread::sleep(turn / LEAD_IN);
        let mut family = ProcessTree::of(self.pid).map_err(gone)?;
        let (usage, count) = (family.read().map_err(gone)?, self.count()?);
        thread::sleep(turn - turn / LEAD_IN);
        let (now, counted) = (family.read().map_err(gone)?, self.count()?);
        let cpu = now.since(&usage).cpu;
        Ok((counted > count).then(|| cpu.as_nanos() as f64 / (counted - count)))
    }

    /// How much work was done so far.
    ///
    /// # Errors
    /// The command fails or prints no number.
    pub fn count(&self) -> Result<f64, LiveError> {
        let wrong = |what: String| LiveError::WorkCommand { command: self.command.clone(), what };
        let output = Command::new("sh")
            .args(["-c", &self.command])
            .output()
            .map_err(|error| wrong(format!("cannot be run: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(wrong(format!("failed: {}", message.trim())));
        }
        let number = text.split_ascii_whitespace().next_back().and_then(|word| word.parse().ok());
        number.ok_or_else(|| wrong(format!("printed no number: {}", text.trim())))
    }
}

impl AbTestResult {
    fn of(pairs: Vec<f64>) -> Self {
        let Some(estimate) = median_with_interval(&pairs) else {
            return Self { verdict: AbTestVerdict::Unknown, ratio: None, interval: None, pairs };
        };
        let interval = (estimate.low.get(), estimate.high.get());
        let verdict = match interval {
            (_, high) if high < 1.0 => AbTestVerdict::Better,
            (low, _) if low > 1.0 => AbTestVerdict::Worse,
            _ => AbTestVerdict::Same,
        };
        let ratio = Some(estimate.median.get());
        Self { verdict, ratio, interval: Some(interval), pairs }
    }
}

impl fmt::Display for AbTestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(ratio), Some((low, high))) = (self.ratio, self.interval) else {
            return f.write_str("not known: too little work was done while measuring");
        };
        write!(f, "CPU time per work × {ratio:.3} ({low:.3} to {high:.3})")?;
        f.write_str(match self.verdict {
            AbTestVerdict::Better => ": better",
            AbTestVerdict::Worse => ": worse",
            AbTestVerdict::Same | AbTestVerdict::Unknown => ": no difference is certain",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_differences_are_seen_and_noise_is_not() {
        let verdict = |around: f64, pairs: usize| {
            let spread = [-0.02, 0.01, 0.0, 0.02, -0.01, 0.015, -0.015, 0.005];
            let pairs = spread.iter().take(pairs).map(|off| around + off).collect();
            AbTestResult::of(pairs).verdict
        };
        assert_eq!(verdict(0.9, 8), AbTestVerdict::Better);
        assert_eq!(verdict(1.1, 8), AbTestVerdict::Worse);
        assert_eq!(verdict(1.0, 8), AbTestVerdict::Same);
        assert_eq!(verdict(0.9, 5), AbTestVerdict::Unknown);
    }

    #[test]
    fn a_command_must_print_a_number() {
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
