//! Progress of runs, fleets and single steps: drawn on a terminal, elsewhere in plain lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, stderr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dbdyno_fleet::{FleetRecord, TaskStatus, lines, totals};
use dbdyno_results::OptimizationRecord;
use dbdyno_run::{InsertPlace, InterimEstimate, RunEvent, TimeRange};
use dbdyno_types::insert::{Second, StepMeasured};
use dbdyno_units::{Nanos, Qps, Share, counted};
use dbdyno_workloads::insert::Task;
use indicatif::ProgressBar;

/// Widest half-width of the interval of a first ratio.
const WIDEST_OF_FIRST_RATIO: Share = Share::from_fraction(0.5);

/// The form of the status line of a run or a step.
const SPINNER: &str = "{spinner} {wide_msg}";

/// Interval of the spinner while nothing is measured.
const TICK: Duration = Duration::from_millis(250);

/// Shows the events of a run on standard error: in a status line on a terminal, elsewhere in plain lines, at least
/// one a minute.
pub struct Display {
    bar: ProgressBar,
    /// Lines for a log file; `None` on a terminal.
    minute_lines: Option<MinuteLines>,
    /// When the display started, until the first ratio was printed; `None` if it is not to be.
    before_first_ratio: Mutex<Option<Instant>>,
    /// Whether to say how long the run takes before it starts.
    announces: bool,
}

impl Display {
    /// A display with a status line if standard error is a terminal.
    pub fn new() -> Self {
        let bar = super::status_line(SPINNER);
        let minute_lines = (!stderr().is_terminal()).then(|| MinuteLines::start(super::plain_line));
        Self { bar, minute_lines, before_first_ratio: Mutex::new(None), announces: false }
    }

    /// The same; also prints how long the run takes.
    pub fn with_plan() -> Self {
        Self { announces: true, ..Self::new() }
    }

    /// The same; also prints how long the run takes, and a line when there is a first ratio.
    pub fn with_first_ratio() -> Self {
        let before_first_ratio = Mutex::new(Some(Instant::now()));
        Self { before_first_ratio, ..Self::with_plan() }
    }

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
            RunEvent::SamplingStacks => self.status(format!("{}: sampling stacks", self.head())),
            RunEvent::Line(line) => self.line(line),
            RunEvent::Planned(planned) if self.announces => self.line(planned),
            RunEvent::Planned(_) => {}
            RunEvent::Microbenchmark { number, of, name, passes } => {
                self.status(format!("[{number}/{of}] {name}{}: warming up", pass(*passes)));
            }
            RunEvent::Block { blocks, estimates, time_left } => {
                let head = self.head();
                self.first_ratio(&head, estimates);
                let ratios = ratios(estimates);
                self.status(format!("{head}: {ratios}block {blocks}, {}", left_in_all(time_left)));
            }
            RunEvent::MicrobenchmarkDone { number, of, name, blocks, estimates, time_left } => {
                let mut text = format!("[{number:>2}/{of}] {name:<34} {blocks:>3} blocks");
                for InterimEstimate { candidate, estimate } in *estimates {
                    let median = estimate.map(|estimate| format!("{:.3}", estimate.median));
                    let _ = write!(text, "  {candidate} {}", median.as_deref().unwrap_or("–"));
                }
                self.line(&text);
                let left = match time_left.most {
                    Nanos::ZERO => "ending".to_owned(),
                    _ => left_in_all(time_left),
                };
                self.status(format!("[{number}/{of}] done: {left}"));
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
                    "{candidate}: {} moved, {}, stopped for {}, in {}",
                    counted(record.layout.functions, "function"),
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

    pub fn last_status(&self) -> String {
        self.bar.message()
    }

    pub fn finish(&self) {
        super::set_progress_line(None);
        self.bar.finish_and_clear();
    }

    fn first_ratio(&self, head: &str, estimates: &[InterimEstimate<'_>]) {
        let mut before = self.before_first_ratio.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(started) = before.take_if(|_| are_first_ratios(estimates)) else { return };
        let ratios = ratios(estimates);
        let time = coarse(Nanos::from_secs_f64(started.elapsed().as_secs_f64()));
        self.line(&format!(
            "first ratio after {time}: {}\n  of {head}; more blocks refine it",
            ratios.trim_end_matches(", ")
        ));
    }

    fn build(&self, event: &dbdyno_builds::Event<'_>) {
        use dbdyno_builds::Event as Build;
        // Keep the spinner moving while the compiler prints nothing.
        self.bar.enable_steady_tick(TICK);
        match event {
            Build::Started(request) => {
                let text = match request.bolt {
                    Some(_) => format!("optimizing {request}"),
                    None => format!("compiling  {request}"),
                };
                self.plain(&text);
                self.status(text);
            }
            Build::Preparing(request, what) => self.line(&format!("{what} (for {request})")),
            Build::Progress { request, step, done, of } => {
                self.status(format!("compiling {request}: {step}, {done} of {of}"));
                // Without a status line, a line for each tenth.
                if done % of.div_ceil(10).max(1) == 0 {
                    self.plain(&format!("  {step}: {done} of {of}"));
                }
            }
            Build::Waiting(request) => {
                let text = format!("waiting for another dbdyno to compile {request}");
                self.line(&text);
                self.status(text);
            }
            Build::Cached(request) => self.line(&format!("cached     {request}")),
            Build::Finished(request, time) => {
                let done = if request.bolt.is_some() { "optimized" } else { "compiled " };
                self.line(&format!("{done}  {request} in {time}"));
            }
            // The error is printed after all builds have ended.
            Build::Failed(request, _) => self.line(&format!("failed     {request}")),
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
        // A few are no verdict on the rate, which the report has.
        let _ = write!(text, "  rows late: {}", measured.overdue);
    }
    text
}

/// A pass, such as `, pass 3 of 6 or more`: the number of passes depends on the intervals.
fn pass((pass, least): (u32, u32)) -> String {
    match least {
        0 => String::new(),
        least if pass <= least => format!(", pass {pass} of {least} or more"),
        _ => format!(", pass {pass}"),
    }
}

fn left_in_all(left: &TimeRange) -> String {
    format!("about {left} left in all")
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

fn coarse(time: Nanos) -> Nanos {
    Nanos::from_secs(time.as_secs_f64().ceil() as u64)
}

/// Longest time without a line.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Prints the current status once a minute, from a thread: some stages report nothing while they run.
struct MinuteLines {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

impl MinuteLines {
    /// Starts the thread; `print` receives each line. Without a thread, no lines are printed.
    fn start(print: impl Fn(&str) + Send + 'static) -> Self {
        let state = Mutex::new(State::new(Instant::now()));
        let shared = Arc::new(Shared { state, stopped: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || of_thread.run(print)).ok();
        Self { shared, thread }
    }

    fn set_status(&self, status: &str) {
        self.shared.lock().set_status(status, Instant::now());
    }

    /// Notes that another line was printed.
    fn printed(&self) {
        self.shared.lock().printed = Instant::now();
    }
}

impl Drop for MinuteLines {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, print: impl Fn(&str)) {
        let mut state = self.lock();
        while !state.is_stopped {
            let wait = state.until_due(Instant::now());
            let waited = self.stopped.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(line) = state.due(Instant::now()) {
                print(&line);
            }
        }
    }
}

/// The current status, and when a line was last printed.
struct State {
    status: String,
    /// When the stage or microbenchmark of the status began.
    since: Instant,
    printed: Instant,
    is_stopped: bool,
}

impl State {
    const fn new(now: Instant) -> Self {
        Self { status: String::new(), since: now, printed: now, is_stopped: false }
    }

    /// Sets the status. Its text before a colon names the stage or microbenchmark.
    fn set_status(&mut self, status: &str, now: Instant) {
        if stage(status) != stage(&self.status) {
            self.since = now;
        }
        status.clone_into(&mut self.status);
    }

    /// Time until a line is due.
    fn until_due(&self, now: Instant) -> Duration {
        LINE_INTERVAL.saturating_sub(now.saturating_duration_since(self.printed))
    }

    /// The line to print now, if one is due.
    fn due(&mut self, now: Instant) -> Option<String> {
        if self.is_stopped || !self.until_due(now).is_zero() {
            return None;
        }
        self.printed = now;
        let elapsed = Nanos::from_secs(now.saturating_duration_since(self.since).as_secs());
        let status = &self.status;
        (!status.is_empty()).then(|| format!("{status} ({elapsed} of this {})", stage(status).1))
    }
}

/// What a status is about, and its kind. In a pass, microbenchmarks follow each other quickly.
fn stage(status: &str) -> (&str, &'static str) {
    let head = status.split(": ").next().unwrap_or_default();
    match head.split_once(", pass ") {
        Some((_, pass)) => (pass, "pass"),
        None => (head, "step"),
    }
}

/// Lines of a terminal of unknown height.
const HEIGHT: usize = 24;

/// Lines of the terminal that are left free.
const FREE: usize = 3;

/// Shows the tasks of a fleet run on standard error: a line per node, redrawn on a terminal; elsewhere a line for each
/// change.
pub struct FleetDisplay {
    bar: ProgressBar,
    is_terminal: bool,
    /// The state of each task that was printed last, and Slurm's silence.
    printed: Mutex<BTreeMap<String, String>>,
}

impl FleetDisplay {
    /// A display, redrawn if standard error is a terminal.
    pub fn new() -> Self {
        let (bar, is_terminal) = (super::status_line("{msg}"), stderr().is_terminal());
        Self { bar, is_terminal, printed: Mutex::default() }
    }

    /// Shows the tasks; `silent` says that Slurm does not answer.
    pub fn show(&self, record: &FleetRecord, all: &[TaskStatus], silent: Option<&str>) {
        if self.is_terminal {
            self.draw(record, all, silent);
        } else {
            self.print_changes(record, all, silent);
        }
    }

    /// Ends the display; the last state stays on the terminal.
    pub fn finish(&self) {
        super::set_progress_line(None);
        self.bar.abandon();
    }

    fn draw(&self, record: &FleetRecord, all: &[TaskStatus], silent: Option<&str>) {
        let height = terminal_size::terminal_size().map_or(HEIGHT, |(_, rows)| usize::from(rows.0));
        let room = height.saturating_sub(FREE).max(1);
        let table = lines(record, all, super::width().saturating_sub(1));
        // Of many, first those that are not done.
        let is_done = |status: &TaskStatus| status.state == "complete";
        let mut order: Vec<usize> = (0..table.len()).collect();
        if table.len() > room {
            order.sort_by_key(|index| is_done(&all[*index]));
        }
        let mut shown: Vec<String> =
            order.iter().take(room).map(|index| table[*index].clone()).collect();
        if table.len() > room {
            shown.push(format!("and {} more", table.len() - room));
        }
        shown.push(totals(all));
        shown.extend(silent.map(str::to_owned));
        let shown: Vec<String> =
            shown.iter().map(|line| super::visible(line).into_owned()).collect();
        self.bar.set_message(shown.join("\n"));
        self.bar.tick();
    }

    fn print_changes(&self, record: &FleetRecord, all: &[TaskStatus], silent: Option<&str>) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        for (status, line) in all.iter().zip(lines(record, all, usize::MAX)) {
            let state = format!("{} {:?} {}", status.state, status.attempt, status.node);
            if printed.get(&status.name) != Some(&state) {
                super::plain_line(&line);
                printed.insert(status.name.clone(), state);
            }
        }
        // A task cannot have an empty name.
        let before = printed.insert(String::new(), silent.unwrap_or_default().to_owned());
        if let Some(silent) = silent.filter(|_| before.is_none_or(|before| before.is_empty())) {
            super::plain_line(silent);
        }
    }
}

/// Progress of one step that takes seconds: a status line with the share that is done and the time left. It is erased
/// when this is dropped.
pub struct StepProgress {
    bar: ProgressBar,
    name: String,
    started: Instant,
}

impl StepProgress {
    pub fn start(name: &str) -> Self {
        let bar = super::status_line(SPINNER).with_message(name.to_owned());
        Self { bar, name: name.to_owned(), started: Instant::now() }
    }

    /// Shows the progress of a step that takes this time in all.
    pub fn time_passes(&self, total: Duration) {
        let elapsed = self.started.elapsed();
        let share = elapsed.as_secs_f64() / total.as_secs_f64();
        self.bar.set_message(step_text(&self.name, share, elapsed));
        self.bar.tick();
    }
}

/// The status line after this time.
fn step_text(name: &str, share: f64, elapsed: Duration) -> String {
    if share <= 0.0 {
        return name.to_owned();
    }
    if share >= 1.0 {
        return format!("{name}: 100%");
    }
    let left = elapsed.mul_f64(1.0 / share - 1.0);
    format!("{name}: {:.0}%, {} left", share * 100.0, coarse(Nanos::from(left)))
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        super::set_progress_line(None);
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_due_after_a_minute_without_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        assert_eq!(state.due(at(60)), None, "there is no status yet");
        state.set_status("[1/2] scan: block 3", at(70));
        assert_eq!(state.due(at(119)), None);
        state.set_status("[1/2] scan: block 9", at(125));
        let line = state.due(at(130)).unwrap();
        assert_eq!(line, "[1/2] scan: block 9 (60 s of this step)");
        assert_eq!(state.due(at(131)), None);
        state.printed = at(150);
        assert_eq!(state.due(at(200)), None, "another line was printed");
        state.set_status("settling", at(205));
        assert_eq!(state.due(at(210)).unwrap(), "settling (5 s of this step)");
        state.set_status("[1/2] scan, pass 2 of 6 or more: block 9", at(215));
        state.set_status("[2/2] point, pass 2 of 6 or more: block 3", at(250));
        let line = state.due(at(300)).unwrap();
        assert!(line.ends_with("block 3 (85 s of this pass)"), "{line}");
        state.is_stopped = true;
        assert_eq!(state.due(at(900)), None);
    }

    #[test]
    fn number_of_passes_is_not_claimed_to_be_known() {
        assert_eq!(pass((1, 0)), "");
        assert_eq!(pass((3, 6)), ", pass 3 of 6 or more");
        assert_eq!(pass((7, 6)), ", pass 7");
    }

    #[test]
    fn thread_ends_when_dropped() {
        let started = Instant::now();
        drop(MinuteLines::start(|_| {}));
        assert!(started.elapsed() < LINE_INTERVAL);
    }

    #[test]
    fn time_left_is_in_proportion_to_what_is_done() {
        let after = |share, seconds| step_text("sampling", share, Duration::from_secs(seconds));
        assert_eq!(after(0.0, 0), "sampling");
        assert_eq!(after(0.25, 10), "sampling: 25%, 30 s left");
        assert_eq!(after(1.5, 20), "sampling: 100%");
    }
}
