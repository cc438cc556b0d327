//! Exact counts of executed blocks, before an optimization.
//!
//! A first layout of the hot functions increments a counter in each block. It is active in short bursts,
//! with the original code in between, and the counters are read afterwards. Whatever goes wrong, the
//! samples remain.

mod instructions;

use std::collections::HashMap;
use std::io::Read as _;
use std::ops::AddAssign;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use dbdyno_relayout::{Counter, Options, SamplePrecision, SampleRequirement, Samples};
use dbdyno_units::{Nanos, counted};
pub use instructions::{InstructionCounting, SampledFunction};
use serde::Serialize;

use crate::attachment::{Activation, Attachment};
use crate::optimize::{lay_out_in, patch, plan, readable_modules};
use crate::patch::Patch;
use crate::probe::Status;
use crate::process::{retry_while_busy, threads};
use crate::replace::Switched;
use crate::target::{Target, descendants};
use crate::{LiveError, OptimizeError};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingOptions {
    pub bursts: u32,
    /// Duration of a burst, and of the original code between two bursts.
    pub burst: Duration,
    /// Maximum CPU time per unit of work while executions are counted, relative to the original code.
    pub max_slowdown: f64,
    /// Maximum number of CPUs in use if that CPU time is unknown, because threads that share counters may then
    /// be slowed down by any factor.
    pub max_cpus_unmeasured: f64,
    /// Minimum number of counted executions of blocks; with fewer, the samples tell more.
    pub min_executions: u64,
}

impl Default for CountingOptions {
    /// Half a second, in which at most half a second of the process's time can be lost. A busy CPU executes
    /// some 10⁸ blocks in it.
    fn default() -> Self {
        Self {
            bursts: 10,
            burst: Duration::from_millis(50),
            max_slowdown: 4.0,
            max_cpus_unmeasured: 1.5,
            min_executions: 100_000,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Counted {
    /// The samples; with exact counts, unless [`CountingReport::fallback`] tells why not.
    pub samples: Samples,
    pub report: CountingReport,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CountingReport {
    /// Number of functions with counters.
    pub functions: u64,
    pub counters: u64,
    /// Functions that keep the estimates from samples, and why.
    pub uncounted: Vec<String>,
    pub bursts: u32,
    /// Total duration of the bursts.
    pub counting: Nanos,
    /// Counted executions of blocks.
    pub executions: u64,
    /// CPU time per unit of work in the bursts, relative to the original code between them. `None`: the
    /// process waits too rarely to tell.
    pub slowdown: Option<f64>,
    /// Total time for which threads were stopped.
    pub stopped: Nanos,
    /// Why there are no counts; `None` if there are.
    pub fallback: Option<String>,
}

impl CountingReport {
    /// The process's time that was lost: by stops and, if known, by the slowdown.
    pub fn lost(&self) -> Nanos {
        let share = self.slowdown.map_or(0.0, |slowdown| (1.0 - 1.0 / slowdown).max(0.0));
        let slow = self.counting.as_nanos() as f64 * share;
        Nanos::from_nanos(self.stopped.as_nanos() + slow as u64)
    }
}

impl fmt::Display for CountingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.fallback {
            return write!(f, "estimated from samples: {reason}");
        }
        write!(
            f,
            "exact: {} of {} in {}; {}, {} in all, with ",
            counted(self.executions, "execution"),
            counted(self.counters, "block"),
            counted(self.functions, "function"),
            counted(self.bursts.into(), "burst"),
            self.counting,
        )?;
        match self.slowdown {
            Some(slowdown) => write!(f, "{slowdown:.2} times the CPU time")?,
            None => f.write_str("unknown CPU time")?,
        }
        write!(f, ": {} lost", self.lost())?;
        match self.uncounted.len() {
            0 => Ok(()),
            n => write!(f, "; {} estimated from samples", counted(n as u64, "function")),
        }
    }
}

/// Number of bursts after which the slowdown is checked for the first time.
const FIRST_CHECK: u32 = 2;

/// Counts the executions of the blocks of hot functions. What was active before is active afterwards, or the
/// original code if an earlier optimization could not be activated again.
///
/// `samples` must be in original code, as for [`optimize`](crate::optimize()). `is_cancelled` ends the
/// counting early.
pub fn count(
    attachment: &mut Attachment,
    samples: &Samples,
    layout: &Options,
    counting: &CountingOptions,
    is_cancelled: impl Fn() -> bool,
) -> Result<Counted, OptimizeError> {
    PreparedCounting::new(attachment, samples, layout)?.run(attachment, counting, is_cancelled)
}

/// Code that counts, in memory of a process, inactive. To be made while the process may be idle.
#[derive(Debug)]
pub struct PreparedCounting {
    samples: Samples,
    /// The code, or why there is none.
    made: Result<(Patch, Vec<Counter>), String>,
    report: CountingReport,
}

impl PreparedCounting {
    pub fn new(
        attachment: &mut Attachment,
        samples: &Samples,
        layout: &Options,
    ) -> Result<Self, OptimizeError> {
        let mut report = CountingReport::default();
        let made = match prepare(attachment, samples, layout, &mut report) {
            Err(OptimizeError::Live(error @ LiveError::Exited { .. })) => return Err(error.into()),
            made => made.map_err(|error| error.to_string()),
        };
        for function in &report.uncounted {
            tracing::debug!(function, "not counted: estimated from samples");
        }
        Ok(Self { samples: samples.clone(), made, report })
    }

    /// Counts while the process works.
    ///
    /// # Errors
    /// The process exited, or the code that counts could not be deactivated. If it could not be made or
    /// activated, or makes the process too slow, the samples are returned as they are, with the reason.
    pub fn run(
        self,
        attachment: &mut Attachment,
        counting: &CountingOptions,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Counted, OptimizeError> {
        let Self { mut samples, made, mut report } = self;
        let counted = match &made {
            Ok((patch, counters)) => {
                let earlier = attachment.active_number();
                let is_optimized = attachment.activation()? != Activation::Inactive;
                let forked_before = descendants(attachment.process().pid());
                let report = &mut report;
                let before = vec![0; counters.len()];
                let mut bursts = Bursts { attachment, counters, report, before, is_optimized };
                let counts = bursts.run(patch, counting, is_cancelled);
                // Also after an error: the code that counts must not stay active.
                bursts.end(earlier)?;
                attachment.end_counting_of_descendants(&forked_before);
                match counts {
                    Err(error @ LiveError::Exited { .. }) => return Err(error.into()),
                    counts => counts.unwrap_or_else(|error| Err(error.to_string())),
                }
            }
            Err(reason) => Err(reason.clone()),
        };
        if made.is_ok()
            && counted.is_err()
            && let Err(error) = attachment.free_never_active()
        {
            // The next optimization frees it.
            tracing::warn!(%error, "code that never counted stays in memory");
        }
        report.executions = counted.iter().flatten().sum();
        let least = counting.min_executions;
        match counted.and_then(|counts| too_few(report.executions, least).map_or(Ok(counts), Err)) {
            Ok(counts) => {
                let counters = made.iter().flat_map(|(_, counters)| counters);
                for (counter, count) in counters.zip(counts) {
                    samples.add_block_count(counter.block, count);
                }
            }
            Err(reason) => {
                tracing::info!(reason, "no exact counts");
                report.fallback = Some(reason);
            }
        }
        Ok(Counted { samples, report })
    }
}

/// The layout that counts before another one.
fn counting(layout: &Options) -> Options {
    // Blocks without a sample are counted, too.
    let required = layout.required.map(|it| SampleRequirement { unsampled: 1.0, ..it });
    Options { count: true, required, ..layout.clone() }
}

/// How well samples and counts would show which blocks are executed, or why executions would not be counted, as far as
/// is known without a change of the process.
pub(crate) fn plan_counting(
    attachment: &Attachment,
    samples: &Samples,
    layout: &Options,
) -> Result<Result<SamplePrecision, String>, LiveError> {
    let options = CountingOptions::default();
    let work = during(attachment.process().pid(), options.burst);
    if let Some(reason) = too_parallel(work, options.max_cpus_unmeasured) {
        return Ok(Err(reason));
    }
    match plan(attachment, samples, &counting(layout)) {
        Ok(planned) => Ok(Ok(planned.code.statistics.precision)),
        Err(OptimizeError::Live(error @ LiveError::Exited { .. })) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Makes a layout that counts, in new memory of the process.
fn prepare(
    attachment: &mut Attachment,
    samples: &Samples,
    layout: &Options,
    report: &mut CountingReport,
) -> Result<(Patch, Vec<Counter>), OptimizeError> {
    let modules = readable_modules(attachment, samples)?;
    let (layout, _) = lay_out_in(attachment, &modules, samples, &counting(layout))?;
    report.counters = layout.counters.len() as u64;
    let uncountable = &layout.statistics.uncountable;
    report.functions = layout.statistics.functions_moved.saturating_sub(uncountable.len() as u64);
    let no_place = |name: &String| format!("{name}: flags are in use everywhere");
    report.uncounted = uncountable.iter().map(no_place).collect();
    report.uncounted.extend(layout.statistics.unproven.iter().cloned());
    Ok((patch(&layout, &[]).0, layout.counters))
}

/// The bursts in which code that counts is active.
struct Bursts<'a> {
    attachment: &'a mut Attachment,
    counters: &'a [Counter],
    report: &'a mut CountingReport,
    /// The counters when they were read before.
    before: Vec<u32>,
    /// Whether an earlier optimization is active before the first burst.
    is_optimized: bool,
}

impl Bursts<'_> {
    /// Returns the counts, or why there are none.
    fn run(
        &mut self,
        patch: &Patch,
        options: &CountingOptions,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Result<Vec<u64>, String>, LiveError> {
        let pid = self.attachment.process().pid();
        let mut counts = vec![0; self.counters.len()];
        let (mut original, mut counted) = (Work::default(), Work::default());
        for burst in 0..options.bursts {
            let uncounted = during(pid, options.burst);
            if burst == 0
                && let Some(reason) = too_parallel(uncounted, options.max_cpus_unmeasured)
            {
                return Ok(Err(reason));
            }
            if burst > 0 || !self.is_optimized {
                original += uncounted;
            }
            let switched = match burst {
                0 => self.attachment.install_counting(patch)?,
                _ => self.resume()?,
            };
            self.report.stopped += switched.stopped;
            counted += during(pid, options.burst);
            self.pause()?;
            self.read(&mut counts)?;
            self.report.bursts = burst + 1;
            self.report.counting = Nanos::from(counted.time);
            self.report.slowdown = counted.relative_to(original);
            tracing::debug!(burst, slowdown = self.report.slowdown, "counted");
            if burst + 1 >= FIRST_CHECK
                && let Some(reason) = too_slow(self.report.slowdown, options.max_slowdown)
            {
                return Ok(Err(reason));
            }
            if is_cancelled() {
                return Ok(Err("it was cancelled".to_owned()));
            }
        }
        Ok(Ok(counts))
    }

    fn resume(&mut self) -> Result<Switched, LiveError> {
        let number = self.attachment.generations().last().map_or(0, |last| last.number);
        self.attachment.resume_counting(number)
    }

    /// Ends the counting, and activates the generation that was active before.
    fn end(&mut self, earlier: Option<u32>) -> Result<(), LiveError> {
        if self.attachment.is_counting() {
            self.pause()?;
        }
        let Some(earlier) = earlier else { return Ok(()) };
        if self.attachment.active_number() == Some(earlier) {
            return Ok(());
        }
        let attachment = &mut *self.attachment;
        let activate = || attachment.activate_generation(earlier);
        match retry_while_busy(activate, LiveError::is_transient).0 {
            Ok(switched) => self.report.stopped += switched.stopped,
            Err(error @ LiveError::Exited { .. }) => return Err(error),
            // The process runs its original code, which the next optimization replaces.
            Err(error) => tracing::warn!(%error, earlier, "the earlier optimization is inactive"),
        }
        Ok(())
    }

    /// Activates the original code.
    fn pause(&mut self) -> Result<(), LiveError> {
        let attachment = &mut *self.attachment;
        let (switched, _) = retry_while_busy(|| attachment.undo(), LiveError::is_transient);
        self.report.stopped += switched?.stopped;
        Ok(())
    }

    /// Adds what the counters have counted since they were read before. They have 32 bits and overflow.
    fn read(&mut self, counts: &mut [u64]) -> Result<(), LiveError> {
        let memory = self.attachment.process().memory();
        let mut sums = self.before.iter_mut().zip(counts);
        for adjacent in self.counters.chunk_by(|a, b| a.address + Counter::SIZE == b.address) {
            let bytes =
                memory.read(adjacent[0].address, adjacent.len() * Counter::SIZE as usize)?;
            for (now, (before, count)) in bytes.chunks_exact(Counter::SIZE as usize).zip(&mut sums)
            {
                let now = now.iter().rev().fold(0, |now, byte| now << 8 | u32::from(*byte));
                *count += u64::from(now.wrapping_sub(*before));
                *before = now;
            }
        }
        Ok(())
    }
}

/// Why a process that does this work is not slowed down by counters, which its threads would share.
fn too_parallel(original: Work, most: f64) -> Option<String> {
    (!original.is_countable() && original.cpus() > most).then(|| {
        format!(
            "it uses {:.1} CPUs and waits too rarely to measure how much counting would slow it down",
            original.cpus()
        )
    })
}

/// Why so few executions are not used.
fn too_few(executions: u64, least: u64) -> Option<String> {
    (executions < least).then(|| {
        format!(
            "the counted functions executed only {executions} blocks while they were counted, fewer than \
             {least}: the process is mostly idle"
        )
    })
}

/// Why counting ends with this slowdown.
fn too_slow(slowdown: Option<f64>, most: f64) -> Option<String> {
    let slowdown = slowdown.filter(|slowdown| *slowdown > most)?;
    Some(format!("counting takes {slowdown:.1} times the CPU time, more than {most}"))
}

/// Waits, and returns the process's work meanwhile.
fn during(pid: u32, time: Duration) -> Work {
    let before = WorkSnapshot::of(pid);
    thread::sleep(time);
    before.until_now(pid)
}

/// Minimum number of waits from which on the time per wait is used.
const MIN_WAITS: u64 = 100;

/// CPU time and waits of a process in some period.
///
/// A thread of a server waits for its client after each request, so voluntary context switches are about proportional to
/// the work done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) time: Duration,
    pub(super) cpu: Duration,
    pub(super) waits: u64,
}

impl Work {
    /// Whether there were enough waits.
    pub(super) fn is_countable(self) -> bool {
        self.waits >= MIN_WAITS && !self.cpu.is_zero()
    }

    /// CPU time in seconds per wait; `None` if there were too few.
    fn per_wait(self) -> Option<f64> {
        self.is_countable().then(|| self.cpu.as_secs_f64() / self.waits as f64)
    }

    /// CPU time per wait, relative to that in another period. `None`: unknown.
    pub(super) fn relative_to(self, other: Self) -> Option<f64> {
        let before = other.per_wait()?;
        // Few waits may be due to the counters themselves, so they are used, too.
        let now = self.cpu.as_secs_f64() / self.waits.max(1) as f64;
        (!self.cpu.is_zero()).then_some(now / before)
    }

    /// Mean number of CPUs in use.
    pub(super) fn cpus(self) -> f64 {
        self.cpu.as_secs_f64() / self.time.as_secs_f64().max(1e-9)
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.cpu += other.cpu;
        self.waits += other.waits;
    }
}

/// CPU time in nanoseconds and waits of each thread so far.
pub(super) struct WorkSnapshot {
    at: Instant,
    threads: HashMap<i32, (u64, u64)>,
}

impl WorkSnapshot {
    /// Reads the threads of a process. A thread that has exited is left out.
    pub(super) fn of(pid: u32) -> Self {
        let thread = |tid: i32| {
            let times = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
            let cpu = times.split_whitespace().next()?.parse::<u64>().ok()?;
            let status = Status::of_thread(pid, tid)?;
            let waits = status.field("voluntary_ctxt_switches")?.parse::<u64>().ok()?;
            Some((tid, (cpu, waits)))
        };
        let tids = threads(pid).unwrap_or_default().into_iter();
        Self { at: Instant::now(), threads: tids.filter_map(thread).collect() }
    }

    /// What the threads that also exist now have done since.
    pub(super) fn until_now(self, pid: u32) -> Work {
        let now = Self::of(pid);
        let mut work = Work { time: now.at - self.at, ..Work::default() };
        for (tid, (cpu, waits)) in &now.threads {
            if let Some((cpu_before, waits_before)) = self.threads.get(tid) {
                work.cpu += Duration::from_nanos(cpu.saturating_sub(*cpu_before));
                work.waits += waits.saturating_sub(*waits_before);
            }
        }
        work
    }
}

/// The guard of this process. Ends when it is dropped.
///
/// The code that counts is slow, and must not stay active, also if dbdyno is killed or cannot end it. The guard waits for
/// the end of a pipe whose other end only dbdyno has: the kernel closes it when dbdyno ends for any reason, and dbdyno
/// after an error.
pub(crate) struct CountingGuard(Option<Child>);

impl CountingGuard {
    /// Starts the guard: a command that calls [`end_counting_after_input`].
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // Ctrl-C is for dbdyno, which ends the counting itself.
        Ok(Self(Some(command.process_group(0).spawn()?)))
    }

    /// Has the guard activate the original code, as soon as this dbdyno is not attached any more.
    pub(crate) fn act(mut self) {
        if let Some(mut guard) = self.0.take() {
            // This closes its standard input.
            thread::spawn(move || guard.wait());
        }
    }
}

impl Drop for CountingGuard {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.0 {
            if thread::panicking() {
                // The code that counts may be active: the guard ends it as soon as its standard input is closed.
                return drop(guard.stdin.take());
            }
            // It waits for its standard input, which is open until then: it has not done anything.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

/// Time in which the guard tries again to activate the original code. Right after dbdyno was killed, the kernel may
/// not have ended its tracing yet; or the process is stopped, or another program traces it.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until standard input ends, and then activates the original code, if code that counts is active. Returns
/// whether it was.
///
/// # Errors
/// The process exited, or could not be changed for a minute.
pub fn end_counting_after_input(target: &Target) -> Result<bool, LiveError> {
    // An error is the end, too.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let start = Instant::now();
    loop {
        match target.attach().and_then(|mut it| it.end_abandoned_counting()) {
            Err(error) if !matches!(error, LiveError::Exited { .. }) => {
                if start.elapsed() > PATIENCE {
                    return Err(error);
                }
                thread::sleep(PAUSE);
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_machine::clock::thread_cpu;

    use super::*;

    fn work(cpus: u64, waits: u64) -> Work {
        Work { time: Duration::from_millis(50), cpu: Duration::from_millis(50 * cpus), waits }
    }

    #[test]
    fn slowdown_above_the_limit_is_the_reason_for_samples() {
        let slowdown = |cpus| work(cpus, 1_000).relative_to(work(1, 1_000));
        assert_eq!(too_slow(slowdown(3), 4.0), None);
        let reason = too_slow(slowdown(5), 4.0).unwrap();
        assert_eq!(reason, "counting takes 5.0 times the CPU time, more than 4");
        assert_eq!(too_slow(None, 4.0), None);
        // So slow that there are few waits.
        let reason = too_slow(work(2, 20).relative_to(work(1, 1_000)), 4.0).unwrap();
        assert!(reason.starts_with("counting takes 100.0 times"), "{reason}");
    }

    #[test]
    fn parallel_process_without_waits_is_not_counted() {
        assert!(too_parallel(work(2, 3), 1.5).unwrap().starts_with("it uses 2.0 CPUs"));
        assert_eq!(too_parallel(work(2, 1_000), 1.5), None);
        assert_eq!(too_parallel(work(1, 0), 1.5), None);
    }

    #[test]
    fn one_execution_and_one_function_are_singular() {
        let (functions, counters, bursts, executions) = (1, 1, 1, 1);
        let uncounted = vec!["f: flags are in use everywhere".to_owned()];
        let report = CountingReport {
            functions,
            counters,
            bursts,
            executions,
            uncounted,
            ..CountingReport::default()
        };
        assert_eq!(
            report.to_string(),
            "exact: 1 execution of 1 block in 1 function; 1 burst, 0 ns in all, with unknown CPU time: 0 ns \
             lost; 1 function estimated from samples"
        );
    }

    #[test]
    fn lost_time_is_that_of_stops_and_slowdown() {
        let report = CountingReport {
            counting: Nanos::from_millis(500),
            slowdown: Some(2.0),
            stopped: Nanos::from_millis(30),
            ..CountingReport::default()
        };
        assert_eq!(report.lost(), Nanos::from_millis(280));
        assert_eq!(CountingReport { slowdown: None, ..report }.lost(), Nanos::from_millis(30));
    }

    #[test]
    fn work_of_this_process_is_measured() {
        let before = WorkSnapshot::of(std::process::id());
        let start = thread_cpu();
        while thread_cpu() - start < Nanos::from_millis(20) {
            std::hint::black_box(start);
        }
        (0..150).for_each(|_| thread::sleep(Duration::from_micros(10)));
        let work = before.until_now(std::process::id());
        assert!(work.cpu >= Duration::from_millis(5) && work.waits >= 100, "{work:?}");
        assert!(work.relative_to(work) == Some(1.0) && work.cpus() > 0.0, "{work:?}");
    }

    #[test]
    fn time_per_wait_is_unknown_if_there_were_few_waits_before() {
        let work =
            |waits| Work { time: Duration::from_secs(1), cpu: Duration::from_secs(1), waits };
        assert_eq!(work(500).relative_to(work(99)), None);
        assert_eq!(work(500).relative_to(work(1_000)), Some(2.0));
        // A process that hardly waits any more is slow.
        assert_eq!(work(10).relative_to(work(1_000)), Some(100.0));
        assert_eq!(work(0).relative_to(work(1_000)), Some(1_000.0));
        assert_eq!(Work { waits: 1, ..Work::default() }.relative_to(work(1_000)), None);
    }
}
