use dbdyno_record::insert::{Second, StepMeasured};
use dbdyno_results::{OptimizationRecord, Warning};
use dbdyno_stats::Estimate;
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::Task;

/// Something worth showing while a run goes on.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// What may spoil the results.
    Warnings(&'a [Warning]),
    /// A build made a step.
    Build(dbdyno_builds::Event<'a>),
    /// Something begins that may take a while.
    Stage(String),
    /// A microbenchmark begins.
    Microbenchmark {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its name.
        name: &'a str,
    },
    /// A candidate's server was optimized while it ran.
    Optimized {
        /// The candidate's name.
        candidate: &'a str,
        /// What was done.
        record: &'a OptimizationRecord,
    },
    /// A block that counts is over.
    Block {
        /// Blocks so far that count.
        blocks: u32,
        /// The most blocks that there will be.
        at_most: u32,
        /// Where the candidates stand.
        estimates: &'a [InterimEstimate<'a>],
        /// How long the run will still take, at most.
        time_left: Nanos,
    },
    /// A microbenchmark is over.
    MicrobenchmarkDone {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its name.
        name: &'a str,
        /// Blocks that count.
        blocks: u32,
        /// Where the candidates stand.
        estimates: &'a [InterimEstimate<'a>],
        /// How long the run will still take, at most.
        time_left: Nanos,
    },
    /// A step of the insert benchmark begins.
    InsertStep {
        /// Where in the run.
        at: InsertPlace<'a>,
        /// What it does.
        task: &'a Task,
    },
    /// A second of it is over.
    InsertSecond {
        /// Where in the run.
        at: InsertPlace<'a>,
        /// What the step does.
        task: &'a Task,
        /// What happened in it.
        second: &'a Second,
    },
    /// A step of the insert benchmark is over.
    InsertStepDone {
        /// Where in the run.
        at: InsertPlace<'a>,
        /// What it measured.
        measured: &'a StepMeasured,
    },
    /// A candidate lost its server or its connections, was started again, and goes on.
    Lost {
        /// Its name.
        candidate: &'a str,
        /// What was being done.
        at: &'a str,
        /// Why, in a line; the run has the end of the server's log, too.
        reason: &'a str,
    },
    /// A candidate failed.
    Failure {
        /// Its name.
        candidate: &'a str,
        /// What was being done.
        at: &'a str,
        /// Why it failed.
        reason: &'a str,
    },
}

/// Where in an insert benchmark a step is.
#[derive(Clone, Copy, Debug)]
pub struct InsertPlace<'a> {
    /// The repeat, from 0.
    pub repeat: u32,
    /// How many there are.
    pub repeats: u32,
    /// The candidate's name.
    pub candidate: &'a str,
    /// The step's name.
    pub step: &'a str,
    /// Its number, from 1.
    pub number: usize,
    /// How many there are per candidate and repeat.
    pub of: usize,
}

/// Where a candidate stands.
#[derive(Clone, Copy, Debug)]
pub struct InterimEstimate<'a> {
    /// Its name.
    pub candidate: &'a str,
    /// Its relative QPS so far; `None` with too few blocks.
    pub estimate: Option<Estimate>,
}

/// Receives events, also from the threads that compile.
pub type Progress<'a> = &'a (dyn Fn(RunEvent<'_>) + Sync);

/// How a run ended, when nothing stopped it from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that was asked for is measured.
    Complete {
        /// Failures of candidates in this session; each is stored with the run.
        failures: usize,
    },
    /// The user stopped it; it can be resumed.
    Interrupted,
}
