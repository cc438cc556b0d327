//! Progress of a run: a status line on a terminal; elsewhere plain lines, at least one a minute.

use std::fmt::Write as _;
use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dbdyno_results::OptimizationRecord;
use dbdyno_run::{InsertPlace, InterimEstimate, RunEvent};
use dbdyno_types::insert::{Second, StepMeasured};
use dbdyno_units::{Nanos, Qps, Share};
use dbdyno_workloads::insert::Task;
use indicatif::ProgressBar;

use super::minute_lines::MinuteLines;

/// Widest half-width of the interval of a first ratio.
const WIDEST_OF_FIRST_RATIO: Share = Share::from_fraction(0.5);

/// Interval of the spinner while nothing is measured.
const TICK: Duration = Duration::from_millis(250);

/// Shows events on standard error.
pub struct Display {
    bar: ProgressBar,
    /// Lines for a log file; `None` on a terminal.
    minute_lines: Option<MinuteLines>,
    /// When the display started, until the first ratio was printed; `None` if it is not to be.
    before_first_ratio: Mutex<Option<Instant>>,
}

impl Display {
    /// A display with a status line if standard error is a terminal.
    pub fn new() -> Self {
        let bar = super::status_line();
        let minute_lines = (!stderr().is_terminal()).then(|| MinuteLines::start(super::plain_line));
        Self { bar, minute_lines, before_first_ratio: Mutex::new(None) }
    }

    /// The same; also prints a line when there is a first ratio.
    pub fn with_first_ratio() -> Self {
        Self { before_first_ratio: Mutex::new(Some(Instant::now())), ..Self::new() }
    }

    /// Shows an event.
    pub fn show(&self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Warnings(warnings) => {
                for warning in *warnings {
                    self.line(&format!("warning: {}\n         {}", warning.what, warning.advice));
                }
            }
            RunEvent::Build(event) => self.build(event),
            RunEvent::Stage(stage) => {
                self.status(stage.clone());
                self.plain(stage);
            }
            RunEvent::Restart(words) => {
                self.status(format!("{}: {words}", self.head()));
                // No slice runs until the next event.
                self.bar.enable_steady_tick(TICK);
            }
            RunEvent::BisectStep(line) => self.line(line),
            RunEvent::Microbenchmark { number, of, name, passes: (pass, passes) } => {
                let pass =
                    if *passes > 1 { format!(", pass {pass}/{passes}") } else { String::new() };
                self.status(format!("[{number}/{of}] {name}{pass}: warming up"));
            }
            RunEvent::Block { blocks, at_most, estimates, time_left } => {
                let head = self.head();
                self.first_ratio(&head, estimates);
                let ratios = ratios(estimates);
                self.status(format!(
                    "{head}: {ratios}block {blocks}/{at_most}, at most {} left",
                    coarse(*time_left)
                ));
            }
            RunEvent::MicrobenchmarkDone { number, of, name, blocks, estimates, time_left } => {
                let mut text = format!("[{number:>2}/{of}] {name:<34} {blocks:>3} blocks");
                for InterimEstimate { candidate, estimate } in *estimates {
                    match estimate {
                        Some(estimate) => {
                            let _ = write!(text, "  {candidate} {:.3}", estimate.median);
                        }
                        None => {
                            let _ = write!(text, "  {candidate} –");
                        }
                    }
                }
                self.line(&text);
                self.status(format!("[{number}/{of}] at most {} left", coarse(*time_left)));
            }
            RunEvent::InsertStep { at, task } => {
                self.status(format!("{}: {}", step(at), task.describe(false)));
            }
            RunEvent::InsertSecond { at, task, second } => {
                self.status(format!("{}: {}", step(at), last_second(task, second)));
            }
            RunEvent::InsertStepDone { at, measured } => {
                self.line(&format!("{} {}", step(at), result(measured)));
            }
            RunEvent::Lost { candidate, at, reason } => {
                self.line(&format!(
                    "warning: {candidate} at {at}: {reason}; it was restarted, see the report for \
                     details"
                ));
            }
            RunEvent::Optimized {
                candidate,
                record: OptimizationRecord { refused: Some(reason), .. },
            } => {
                self.line(&format!(
                    "warning: {candidate} is measured without the live optimizer: {reason}"
                ));
            }
            RunEvent::Optimized { candidate, record } => {
                self.line(&format!(
                    "{candidate}: {} functions moved, {}, stopped for {}, in {}",
                    record.layout.functions,
                    record.layout.hot,
                    record.layout.longest_pause,
                    record.layout.took
                ));
            }
            RunEvent::Failure { candidate, at, reason } => {
                self.line(&format!("FAILED: {candidate} at {at}: {reason}"));
            }
        }
    }

    /// The microbenchmark and the pass in the status line.
    fn head(&self) -> String {
        self.bar.message().split(": ").next().unwrap_or_default().to_owned()
    }

    /// The text of the status line.
    pub fn last_status(&self) -> String {
        self.bar.message()
    }

    /// Removes the status line.
    pub fn finish(&self) {
        super::set_progress_line(None);
        self.bar.finish_and_clear();
    }

    /// Prints the first ratios of the run.
    fn first_ratio(&self, head: &str, estimates: &[InterimEstimate<'_>]) {
        let mut before = self.before_first_ratio.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(started) = before.take_if(|_| are_first_ratios(estimates)) else { return };
        let ratios = ratios(estimates);
        let time = coarse(Nanos::from_secs_f64(started.elapsed().as_secs_f64()));
        self.line(&format!(
            "first ratio after {time}: {}\n  of {head}; more blocks and starts refine it",
            ratios.trim_end_matches(", ")
        ));
    }

    fn build(&self, event: &dbdyno_builds::Event<'_>) {
        use dbdyno_builds::Event as Build;
        // Keep the spinner moving while the compiler prints nothing.
        self.bar.enable_steady_tick(TICK);
        match event {
            Build::Started { request } => {
                let text = match request.bolt {
                    Some(_) => format!("optimizing {request}"),
                    None => format!("compiling  {request}"),
                };
                self.plain(&text);
                self.status(text);
            }
            Build::Preparing { request, what } => self.line(&format!("{what} (for {request})")),
            Build::Progress { request, step, done, of } => {
                self.status(format!("compiling {request}: {step}, {done} of {of}"));
                // Without a status line, a line for each tenth.
                if done % of.div_ceil(10).max(1) == 0 {
                    self.plain(&format!("  {step}: {done} of {of}"));
                }
            }
            Build::Waiting { request } => {
                self.line(&format!("waiting for another dbdyno to compile {request}"));
            }
            Build::Cached { request } => self.line(&format!("cached     {request}")),
            Build::Finished { request, time } => {
                let done = if request.bolt.is_some() { "optimized" } else { "compiled " };
                self.line(&format!("{done}  {request} in {time}"));
            }
            // The error is printed after all builds have ended.
            Build::Failed { request, .. } => self.line(&format!("failed     {request}")),
        }
    }

    /// Prints a permanent line.
    fn line(&self, text: &str) {
        super::plain_line(text);
        if let Some(lines) = &self.minute_lines {
            lines.printed();
        }
    }

    /// Prints a permanent line if there is no status line to show the text.
    fn plain(&self, text: &str) {
        if self.minute_lines.is_some() {
            self.line(text);
        }
    }

    fn status(&self, text: String) {
        // The tick thread would wake up during slices.
        self.bar.disable_steady_tick();
        if let Some(lines) = &self.minute_lines {
            lines.set_status(&text);
        }
        self.bar.set_message(super::visible(&text).into_owned());
        self.bar.tick();
    }
}

/// Names a step of an insert benchmark.
fn step(at: &InsertPlace<'_>) -> String {
    let InsertPlace { repeat, repeats, candidate, step, number, of } = at;
    let repeat = match repeats {
        1 => String::new(),
        _ => format!("repeat {}/{repeats} ", repeat + 1),
    };
    format!("[{number}/{of}] {repeat}{candidate} {step:<6}")
}

/// Describes the last second of a step, and the step's progress.
fn last_second(task: &Task, second: &Second) -> String {
    let mut text = format!("second {}", second.number + 1);
    if let Task::Mix(mix) = task {
        let _ = write!(text, " of {}", mix.time.as_secs_f64().ceil());
    }
    if matches!(task, Task::Insert(_) | Task::Mix(_)) {
        let _ = write!(text, ", {} rows inserted", second.inserts);
    }
    if matches!(task, Task::Mix(_)) {
        let _ = write!(text, ", {} queries", second.queries);
    }
    text
}

/// Summarises a finished step.
fn result(measured: &StepMeasured) -> String {
    let mut text = format!("{:>9}", measured.wall.to_string());
    for (count, unit) in
        [(measured.inserts.rows, "inserts/s"), (measured.queries.count, "queries/s")]
    {
        if let Some(rate) = Qps::over(count, measured.wall).filter(|_| count > 0) {
            let _ = write!(text, "  {:.0} {unit}", rate.per_second());
        }
    }
    if measured.overdue > 0 {
        let _ = write!(text, "  {} rows late: rate not sustained", measured.overdue);
    }
    text
}

/// The ratios so far, that of the control last.
fn ratios(estimates: &[InterimEstimate<'_>]) -> String {
    let known = estimates.iter().filter_map(|one| Some((one.candidate, one.estimate?)));
    known.fold(String::new(), |mut text, (candidate, estimate)| {
        let _ = write!(text, "{candidate} {:.3} ±{}, ", estimate.median, estimate.half_width());
        text
    })
}

/// Whether the intervals of all candidates are narrow enough to show the ratios as a first result.
fn are_first_ratios(estimates: &[InterimEstimate<'_>]) -> bool {
    let is_narrow = |one: &InterimEstimate<'_>| {
        one.estimate.is_some_and(|estimate| estimate.half_width() <= WIDEST_OF_FIRST_RATIO)
    };
    !estimates.is_empty() && estimates.iter().all(is_narrow)
}

/// Rounds up to whole seconds.
pub(super) fn coarse(time: Nanos) -> Nanos {
    Nanos::from_secs(time.as_secs_f64().ceil() as u64)
}
