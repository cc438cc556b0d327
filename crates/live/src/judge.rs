//! Whether it was worth it: CPU time per work, before and after.

use std::fmt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dbdyno_machine::Family;
use dbdyno_units::Nanos;
use serde::Serialize;

use crate::LiveError;

/// A counter of work that a command of the user's prints.
#[derive(Clone, Debug)]
pub struct Work {
    pid: u32,
    command: String,
}

/// CPU time per unit of work, in turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Nanoseconds of CPU time of the process and its descendants per unit, one per turn.
    pub per_work: Vec<f64>,
    /// Units of work in all.
    pub work: f64,
}

/// What the comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less CPU time per work.
    Better,
    /// More CPU time per work: to be undone.
    Worse,
    /// The interval holds no change.
    Same,
    /// There was too little work to tell.
    Unknown,
}

/// CPU time per work, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// What it says.
    pub verdict: Verdict,
    /// After divided by before; `None` where one of them could not be measured.
    pub ratio: Option<f64>,
    /// The ratio's 95% interval.
    pub interval: Option<(f64, f64)>,
    /// Before.
    pub before: Measured,
    /// After.
    pub after: Measured,
}

/// A measurement is taken in so many turns, whose differences tell how sure it is.
const TURNS: u32 = 10;

impl Work {
    /// A counter for the work of a process; `command` is run by `sh` and prints a number.
    #[must_use]
    pub fn new(pid: u32, command: &str) -> Self {
        Self { pid, command: command.to_owned() }
    }

    /// Measures for this time.
    ///
    /// # Errors
    /// The command fails or prints no number, or the process is gone.
    pub fn measure(&self, time: Duration) -> Result<Measured, LiveError> {
        let gone = |_| LiveError::Gone { pid: self.pid };
        let mut family = Family::of(self.pid).map_err(gone)?;
        let (mut usage, mut count) = (family.read().map_err(gone)?, self.count()?);
        let first = count;
        let mut per_work = Vec::new();
        for _ in 0..TURNS {
            thread::sleep(time / TURNS);
            let (now, counted) = (family.read().map_err(gone)?, self.count()?);
            let cpu: Nanos = now.since(&usage).cpu;
            if counted > count {
                per_work.push(cpu.as_nanos() as f64 / (counted - count));
            }
            (usage, count) = (now, counted);
        }
        Ok(Measured { per_work, work: count - first })
    }

    fn count(&self) -> Result<f64, LiveError> {
        let wrong = |what: String| {
            LiveError::refused(self.pid, format!("the work command `{}` {what}", self.command))
        };
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

impl Judgement {
    /// Compares.
    #[must_use]
    pub fn of(before: Measured, after: Measured) -> Self {
        let log = |measured: &Measured| {
            let logs: Vec<f64> = measured.per_work.iter().map(|value| value.ln()).collect();
            let n = logs.len() as f64;
            let mean = logs.iter().sum::<f64>() / n;
            let squares: f64 = logs.iter().map(|value| (value - mean).powi(2)).sum();
            (logs.len() >= 3).then(|| (mean, squares / (n - 1.0) / n))
        };
        let (Some((mean_before, error_before)), Some((mean_after, error_after))) =
            (log(&before), log(&after))
        else {
            return Self { verdict: Verdict::Unknown, ratio: None, interval: None, before, after };
        };
        // Student's t for the fewest turns that are accepted is larger; with ten and ten it is
        // this, and turns that follow each other are a little alike.
        const T: f64 = 2.3;
        let (mean, half) = (mean_after - mean_before, T * (error_before + error_after).sqrt());
        let interval = ((mean - half).exp(), (mean + half).exp());
        let verdict = match interval {
            (_, high) if high < 1.0 => Verdict::Better,
            (low, _) if low > 1.0 => Verdict::Worse,
            _ => Verdict::Same,
        };
        Self { verdict, ratio: Some(mean.exp()), interval: Some(interval), before, after }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(ratio), Some((low, high))) = (self.ratio, self.interval) else {
            return f.write_str("not known: too little work was done while measuring");
        };
        write!(f, "CPU time per work × {ratio:.3} ({low:.3} to {high:.3})")?;
        f.write_str(match self.verdict {
            Verdict::Better => ": better",
            Verdict::Worse => ": worse, and undone",
            Verdict::Same | Verdict::Unknown => ": no difference is certain",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[f64]) -> Measured {
        Measured { per_work: values.to_vec(), work: 100.0 }
    }

    #[test]
    fn clear_differences_are_seen_and_noise_is_not() {
        let before = measured(&[100.0, 101.0, 99.0, 100.5, 99.5]);
        let verdict = |after: &[f64]| Judgement::of(before.clone(), measured(after)).verdict;
        assert_eq!(verdict(&[80.0, 81.0, 79.0, 80.5]), Verdict::Better);
        assert_eq!(verdict(&[120.0, 121.0, 119.0, 120.5]), Verdict::Worse);
        assert_eq!(verdict(&[99.0, 102.0, 100.0, 100.2]), Verdict::Same);
        assert_eq!(verdict(&[99.0]), Verdict::Unknown);
    }

    #[test]
    fn a_command_must_print_a_number() {
        let me = std::process::id();
        assert_eq!(Work::new(me, "echo Questions 42").count().unwrap(), 42.0);
        for (command, message) in
            [("echo none", "printed no number"), ("echo bad >&2; false", "failed: bad")]
        {
            let error = Work::new(me, command).count().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
