//! The progress of a run: a live line on a terminal, plain lines elsewhere.

use std::fmt::Write as _;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use dbdyno_record::insert::{Second, StepMeasured};
use dbdyno_run::{InsertPlace, InterimEstimate, RunEvent};
use dbdyno_units::{Nanos, Qps};
use dbdyno_workloads::insert::Task;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows events on standard error.
pub struct Display {
    bar: ProgressBar,
    live: bool,
}

impl Display {
    /// A display that suits standard error.
    pub fn new() -> Self {
        let live = stderr().is_terminal();
        let bar = if live {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4))
                .with_style(style)
        } else {
            ProgressBar::hidden()
        };
        Self { bar, live }
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
            RunEvent::Microbenchmark { number, of, name } => {
                self.status(format!("[{number}/{of}] {name}: warming up"));
            }
            RunEvent::Block { blocks, at_most, estimates, time_left } => {
                let prefix = self.bar.message();
                let head = prefix.split(": ").next().unwrap_or_default();
                let widest = widest(estimates);
                self.status(format!(
                    "{head}: block {blocks}/{at_most}{widest}, at most {} left",
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
                self.status(format!("{}: {}", place(at), task.describe(false)));
            }
            RunEvent::InsertSecond { at, task, second } => {
                self.status(format!("{}: {}", place(at), going_on(task, second)));
            }
            RunEvent::InsertStepDone { at, measured } => {
                self.line(&format!("{} {}", place(at), done(measured)));
            }
            RunEvent::Lost { candidate, at, reason } => {
                self.line(&format!(
                    "warning: {candidate} at {at}: {reason}; it was started again and goes on, \
                     the report has the details"
                ));
            }
            RunEvent::Optimized { candidate, record } => {
                self.line(&format!(
                    "{candidate}: {} functions moved, {}, stopped for {}, in {}",
                    record.layout.functions,
                    record.layout.hot,
                    record.layout.longest_stop,
                    record.layout.took
                ));
            }
            RunEvent::Failure { candidate, at, reason } => {
                self.line(&format!("FAILED: {candidate} at {at}: {reason}"));
            }
        }
    }

    /// Takes the live line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn build(&self, event: &dbdyno_builds::Event<'_>) {
        use dbdyno_builds::Event as Build;
        // A live line lives on while the compiler is silent.
        self.bar.enable_steady_tick(Duration::from_millis(250));
        match event {
            Build::Started { request } => {
                let doing = if request.bolt.is_some() { "making   " } else { "compiling" };
                self.status(format!("{doing} {request}"));
                self.plain(&format!("{doing} {request}"));
            }
            Build::Preparing { request, what } => self.line(&format!("{what} (for {request})")),
            Build::Progress { request, step, done, of } => {
                self.status(format!("compiling {request}: {step}, {done} of {of}"));
                // A line for each tenth, where there is no live one.
                if done % of.div_ceil(10).max(1) == 0 {
                    self.plain(&format!("  {step}: {done} of {of}"));
                }
            }
            Build::Waiting { request } => {
                self.line(&format!("waiting for another dbdyno that compiles {request}"));
            }
            Build::Cached { request } => self.line(&format!("cached    {request}")),
            Build::Finished { request, time } => {
                let done = if request.bolt.is_some() { "made     " } else { "compiled " };
                self.line(&format!("{done} {request} in {time}"));
            }
            // The whole error is printed when all builds are through.
            Build::Failed { request, .. } => self.line(&format!("failed    {request}")),
        }
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        if self.live {
            self.bar.println(text);
        } else {
            super::plain_line(text);
        }
    }

    /// A line that stays where there is no live line to show it.
    fn plain(&self, text: &str) {
        if !self.live {
            super::plain_line(text);
        }
    }

    fn status(&self, text: String) {
        // Ticks wake a thread up, which is no company for a slice.
        self.bar.disable_steady_tick();
        self.bar.set_message(text);
        self.bar.tick();
    }
}

/// Which step of an insert benchmark, of whom.
fn place(at: &InsertPlace<'_>) -> String {
    let InsertPlace { repeat, repeats, candidate, step, number, of } = at;
    let repeat = match repeats {
        1 => String::new(),
        _ => format!("repeat {}/{repeats} ", repeat + 1),
    };
    format!("[{number}/{of}] {repeat}{candidate} {step:<6}")
}

/// What happened in the last second of a step, and how far it is.
fn going_on(task: &Task, second: &Second) -> String {
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

/// What a step came to.
fn done(measured: &StepMeasured) -> String {
    let mut text = format!("{:>9}", measured.wall.to_string());
    for (count, unit) in
        [(measured.inserts.rows, "inserts/s"), (measured.queries.count, "queries/s")]
    {
        if let Some(rate) = Qps::over(count, measured.wall).filter(|_| count > 0) {
            let _ = write!(text, "  {:.0} {unit}", rate.per_second());
        }
    }
    if measured.overdue > 0 {
        let _ = write!(text, "  {} rows late: the rate was not sustained", measured.overdue);
    }
    text
}

/// The widest interval of all candidates: it decides when the microbenchmark is done.
fn widest(estimates: &[InterimEstimate<'_>]) -> String {
    let widest = estimates.iter().filter_map(|live| Some((live.candidate, live.estimate?))).max_by(
        |(_, a), (_, b)| a.half_width().as_fraction().total_cmp(&b.half_width().as_fraction()),
    );
    widest.map_or_else(String::new, |(candidate, estimate)| {
        format!(", {candidate} {:.3} ±{}", estimate.median, estimate.half_width())
    })
}

/// A length of time that need not be exact.
fn coarse(time: Nanos) -> Nanos {
    Nanos::from_secs(time.as_secs_f64().ceil() as u64)
}
