use dbdyno_results::{OptimizationRecord, Warning};
use dbdyno_stats::Estimate;
use dbdyno_types::insert::{Second, StepMeasured};
use dbdyno_workloads::insert::Task;

use crate::plan::elapsed::TimeRange;

#[derive(Debug)]
pub enum RunEvent<'a> {
    /// Conditions that may distort the results.
    Warnings(&'a [Warning]),
    /// A build made progress.
    Build(dbdyno_builds::Event<'a>),
    /// A stage starts that may take long.
    Stage(String),
    /// All instances are being stopped and started again, as these words say. A server may take minutes to stop.
    Restart(&'static str),
    /// Stacks of the microbenchmark are being sampled, which takes seconds.
    SamplingStacks,
    /// The estimated time of the run, before it starts: in all, and by what it is spent on. Again, that of what is left, if
    /// it is far off after the first restart, or if the run certainly takes longer.
    Planned(String),
    /// A whole line: what became of the run's schemas on existing servers, or that a step of a bisect starts or has ended.
    Line(String),
    /// A microbenchmark starts, or a pass visits it.
    Microbenchmark {
        /// Its number, from 1.
        number: usize,
        of: usize,
        name: &'a str,
        /// The number of its pass, from 1, and the least number of passes; 0 if there are none.
        passes: (u32, u32),
    },
    /// A candidate's server was optimized while it ran.
    Optimized {
        candidate: &'a str,
        record: &'a OptimizationRecord,
    },
    Block {
        /// Number of counted blocks so far.
        blocks: u32,
        /// The candidates' relative QPS so far.
        estimates: &'a [InterimEstimate<'a>],
        /// Estimated time that is left of the run.
        time_left: TimeRange,
    },
    MicrobenchmarkDone {
        /// Its number, from 1.
        number: usize,
        of: usize,
        name: &'a str,
        blocks: u32,
        /// The candidates' relative QPS so far.
        estimates: &'a [InterimEstimate<'a>],
        /// Estimated time that is left of the run.
        time_left: TimeRange,
    },
    /// A step of the insert benchmark starts.
    InsertStep {
        at: InsertPlace<'a>,
        task: &'a Task,
    },
    /// A second of a step is complete.
    InsertSecond {
        at: InsertPlace<'a>,
        task: &'a Task,
        second: &'a Second,
    },
    /// A step of the insert benchmark is complete.
    InsertStepDone {
        at: InsertPlace<'a>,
        measured: &'a StepMeasured,
    },
    /// A candidate lost its server or its connections; it was restarted and continues.
    Lost {
        candidate: &'a str,
        at: &'a str,
        /// The reason, in one line. The run directory has the last lines of the server's log.
        reason: &'a str,
    },
    Failure {
        candidate: &'a str,
        at: &'a str,
        reason: &'a str,
    },
}

/// The position of a step in an insert benchmark.
#[derive(Clone, Copy, Debug)]
pub struct InsertPlace<'a> {
    /// The repeat, from 0.
    pub repeat: u32,
    pub repeats: u32,
    pub candidate: &'a str,
    pub step: &'a str,
    /// Its number, from 1.
    pub number: usize,
    /// Number of steps per candidate and repeat.
    pub of: usize,
}

/// A candidate's relative QPS so far.
#[derive(Clone, Copy, Debug)]
pub struct InterimEstimate<'a> {
    pub candidate: &'a str,
    /// The relative QPS; `None` with too few blocks.
    pub estimate: Option<Estimate>,
}

/// Receives progress events, also from compiling threads.
pub type Progress<'a> = &'a (dyn Fn(RunEvent<'_>) + Sync);

/// How a session of a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is measured.
    Complete {
        /// Number of candidates' failures in this session; each is stored.
        failures: usize,
    },
    /// The user stopped the run; it can be resumed.
    Interrupted {
        /// What is wrong with the results of a resumed run.
        if_resumed: Option<Warning>,
    },
}
