//! A fleet run: one experiment on many machines, each in a job of Slurm.
//!
//! The plan, the states of jobs, the parsers of Slurm's output and the decisions are without input or
//! output; thin parts around them call Slurm's programs and keep the directory of the fleet run.

mod attempt;
mod build_session;
mod controller;
mod decide;
mod directory;
mod files;
mod jobs;
mod plan;
mod record;
mod slurm;
mod status;
mod task_session;

pub use attempt::{Attempt, Finish, TaskError, TaskPlace, report_failure};
pub use build_session::{BuildSession, is_marked, mark_cache, unmark_cache};
pub use controller::{Cluster, ClusterError, Controller, Store, Submission};
pub use decide::{Action, Observation, decide, needs_nodes};
pub use directory::{FleetDirectory, FleetError};
pub use files::{AttemptFiles, Claim, StoreError, TaskEnd, TaskProgress, TaskResult};
pub use jobs::{Job, JobEnd, JobState, Node};
pub use plan::{NodeChoice, PlanError, choose_nodes, tasks, with_builds};
pub use record::{
    AttemptEnd, AttemptRecord, EndKind, FleetRecord, JobId, Limits, Outcome, Request, TaskRecord,
    UnixTime, poll_interval,
};
pub use slurm::{Slurm, job_script};
pub use status::{TaskStatus, lines, totals};
pub use task_session::{Begin, TaskSession};
