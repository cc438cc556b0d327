//! Machines, Slurm and a shared file system that fail in many ways.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use dbdyno_fleet::{
    AttemptFiles, Claim, Cluster, ClusterError, FleetRecord, Job, JobEnd, JobId, JobState, Node,
    Store, StoreError, Submission, TaskEnd, TaskProgress, TaskRecord, TaskResult,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Minutes of measuring that a task needs.
pub const WORK: u64 = 600;

/// Minutes that builds take.
const BUILDING: u64 = 30;

/// Minutes that a task needs.
pub fn work_of(task: &str) -> u64 {
    if task.starts_with("build") { BUILDING } else { WORK }
}

/// The time limit of jobs, in minutes.
pub const LIMIT: u64 = 480;

/// How often things fail.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Failures of a job per hour.
    pub per_hour: f64,
    /// Share of calls of Slurm that fail.
    pub call: f64,
    /// Share of steps at whose writes and calls the controller is killed.
    pub kill: f64,
    /// Share of failed nodes that stay down.
    pub lost: f64,
    /// Whether failures include jobs that somebody cancels.
    pub cancels: bool,
}

/// A process of an attempt.
#[derive(Debug)]
struct Process {
    task: String,
    attempt: u32,
    node: usize,
    job: JobId,
    started: u64,
    /// Whether it holds the lock of its node.
    holds: bool,
    /// Whether it reaches the shared file system.
    connected: bool,
}

/// A job in Slurm.
#[derive(Debug)]
pub struct SimulatedJob {
    job: Job,
    node: usize,
    task: String,
    attempt: u32,
    /// The jobs that it waits for.
    after: Vec<JobId>,
}

/// The machines, Slurm and the shared file system.
pub struct World {
    random: Xoshiro256PlusPlus,
    faults: Faults,
    /// Minutes.
    now: u64,
    /// Until when each node is down; `u64::MAX`: for ever.
    down: Vec<u64>,
    jobs: BTreeMap<JobId, SimulatedJob>,
    processes: Vec<Process>,
    next_job: JobId,
    /// Measured minutes on the local disk of a node, by node and task.
    local: BTreeMap<(usize, String), u64>,
    pub files: BTreeMap<(String, u32), AttemptFiles>,
    fences: BTreeSet<(String, u32)>,
    pub accepted: BTreeMap<String, u32>,
    pub saved: String,
    pub submissions: usize,
    pub kinds: BTreeSet<&'static str>,
}

/// The controller was killed.
fn killed() -> StoreError {
    StoreError { path: "killed".into(), source: std::io::Error::other("killed") }
}

impl World {
    /// 200 nodes and 10 spare ones, before the first job.
    pub fn new(seed: u64, faults: Faults, record: &FleetRecord) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            faults,
            now: 0,
            down: vec![0; 210],
            jobs: BTreeMap::new(),
            processes: Vec::new(),
            next_job: 1,
            local: BTreeMap::new(),
            files: BTreeMap::new(),
            fences: BTreeSet::new(),
            accepted: BTreeMap::new(),
            saved: serde_json::to_string(record).unwrap(),
            submissions: 0,
            kinds: BTreeSet::new(),
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        ((self.random.next_u64() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    fn is_up(&self, node: usize) -> bool {
        self.down[node] <= self.now
    }

    /// A minute passes.
    pub fn minute(&mut self) {
        self.now += 1;
        self.start_jobs();
        self.fail_jobs();
        self.run_processes();
        self.end_jobs_at_limit();
    }

    fn start_jobs(&mut self) {
        let busy: BTreeSet<usize> = self.active().map(|job| job.node).collect();
        let mut taken = busy;
        let now = self.now;
        let waiting: BTreeMap<JobId, &'static str> =
            self.jobs.values().filter_map(|job| Some((job.job.id, self.waits(job)?))).collect();
        let (down, processes) = (&self.down, &mut self.processes);
        for job in self.jobs.values_mut().filter(|job| job.job.state == JobState::Pending) {
            if let Some(reason) = waiting.get(&job.job.id) {
                (*reason).clone_into(&mut job.job.reason);
            } else if down[job.node] > now {
                "ReqNodeNotAvail, UnavailableNodes:x".clone_into(&mut job.job.reason);
            } else if taken.insert(job.node) {
                job.job.state = JobState::Active("RUNNING".to_owned());
                processes.push(Process {
                    task: job.task.clone(),
                    attempt: job.attempt,
                    node: job.node,
                    job: job.job.id,
                    started: now,
                    holds: false,
                    connected: true,
                });
            }
        }
    }

    /// Why a job waits for others. One that Slurm has forgotten is not waited for.
    fn waits(&self, job: &SimulatedJob) -> Option<&'static str> {
        let mut others = job.after.iter().filter_map(|id| Some(&self.jobs.get(id)?.job.state));
        let is_open = |state: &JobState| !matches!(state, JobState::Ended(_));
        if others
            .clone()
            .any(|state| !is_open(state) && *state != JobState::Ended(JobEnd::Completed))
        {
            return Some("DependencyNeverSatisfied");
        }
        others.any(is_open).then_some("Dependency")
    }

    fn active(&self) -> impl Iterator<Item = &SimulatedJob> {
        self.jobs.values().filter(|job| matches!(job.job.state, JobState::Active(_)))
    }

    /// The jobs that wait or run.
    pub fn open_jobs(&self) -> Vec<JobId> {
        let is_open = |job: &&SimulatedJob| !matches!(job.job.state, JobState::Ended(_));
        self.jobs.values().filter(is_open).map(|job| job.job.id).collect()
    }

    fn fail_jobs(&mut self) {
        let active: Vec<JobId> = self.active().map(|job| job.job.id).collect();
        for id in active {
            if !self.chance(self.faults.per_hour / 60.0) {
                continue;
            }
            let node = self.jobs[&id].node;
            let kind = self.random.next_u64() % if self.faults.cancels { 7 } else { 6 };
            let until = match self.chance(self.faults.lost) {
                true => u64::MAX,
                false => self.now + 5 + self.random.next_u64() % 60,
            };
            let (name, end) = match kind {
                0 => {
                    self.down[node] = until;
                    self.processes.retain(|process| process.node != node);
                    ("node dies", JobEnd::NodeFailed)
                }
                // Slurm cannot reach the node; its processes go on, with or without the file system.
                1 | 2 => {
                    self.down[node] = until;
                    let on_node = self.processes.iter_mut().filter(|one| one.node == node);
                    on_node.for_each(|process| process.connected = kind == 1);
                    ("node is cut off", JobEnd::NodeFailed)
                }
                3 => {
                    self.processes.retain(|process| process.job != id);
                    ("process crashes", JobEnd::Failed)
                }
                4 => {
                    self.interrupt(id);
                    ("job is preempted", JobEnd::Preempted)
                }
                5 => {
                    self.processes.retain(|process| process.job != id);
                    self.jobs.remove(&id);
                    self.kinds.insert("job vanishes");
                    continue;
                }
                _ => {
                    self.interrupt(id);
                    ("job is cancelled", JobEnd::Cancelled)
                }
            };
            self.kinds.insert(name);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.job.state = JobState::Ended(end);
            }
        }
    }

    fn run_processes(&mut self) {
        let mut processes = std::mem::take(&mut self.processes);
        // A node that is mended reaches the file system again.
        for process in &mut processes {
            process.connected |= self.down[process.node] <= self.now;
        }
        // In any order: those that hold a lock first, as they keep it.
        processes.sort_by_key(|process| !process.holds);
        let mut held: BTreeSet<usize> = BTreeSet::new();
        let mut left = Vec::new();
        for mut process in processes {
            let key = (process.task.clone(), process.attempt);
            let is_first_minute = process.started == self.now;
            let files = self.files.entry(key.clone()).or_default();
            if is_first_minute {
                if files.claim.is_some() {
                    // Another job has this attempt: exit without a trace.
                    self.end_job(process.job, JobEnd::Completed);
                    continue;
                }
                let node = node_name(process.node);
                files.claim = Some(Claim { job: Some(process.job), node });
            }
            if process.connected && self.fences.contains(&key) {
                self.end_job(process.job, JobEnd::Completed);
                continue;
            }
            assert!(
                !process.holds || !held.contains(&process.node),
                "two attempts write on {}",
                process.node
            );
            if !held.insert(process.node) {
                // Waits for the lock of the node.
                left.push(process);
                continue;
            }
            process.holds = true;
            let work = work_of(&process.task);
            let measured = self.local.entry((process.node, process.task.clone())).or_default();
            *measured = (*measured + 1).min(work);
            let measured = *measured;
            if !process.connected {
                left.push(process);
                continue;
            }
            files_progress(self.files.entry(key).or_default(), measured);
            if measured >= work {
                self.write(&process, measured, TaskEnd::Complete { failures: 0 });
                self.end_job(process.job, JobEnd::Completed);
                continue;
            }
            left.push(process);
        }
        self.processes = left;
    }

    fn end_job(&mut self, id: JobId, end: JobEnd) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !matches!(job.job.state, JobState::Ended(_)) {
            job.job.state = JobState::Ended(end);
        }
    }

    fn end_jobs_at_limit(&mut self) {
        let over: Vec<JobId> = self
            .processes
            .iter()
            .filter(|process| self.now - process.started >= LIMIT)
            .map(|process| process.job)
            .collect();
        for id in over {
            self.kinds.insert("time limit");
            self.interrupt(id);
            self.end_job(id, JobEnd::Timeout);
        }
    }

    /// The job's process gets SIGTERM: it writes that it was interrupted, if it reaches the file system.
    fn interrupt(&mut self, id: JobId) {
        let Some(index) = self.processes.iter().position(|process| process.job == id) else {
            return;
        };
        let process = self.processes.remove(index);
        let key = (process.task.clone(), process.attempt);
        if process.connected && process.holds && !self.fences.contains(&key) {
            let local = (process.node, process.task.clone());
            let measured = self.local.get(&local).copied().unwrap_or(0);
            self.write(&process, measured, TaskEnd::Interrupted);
        }
    }

    fn write(&mut self, process: &Process, measured: u64, end: TaskEnd) {
        let result = TaskResult {
            fleet: "5eed".to_owned(),
            task: process.task.clone(),
            attempt: process.attempt,
            node: node_name(process.node),
            measured,
            end,
        };
        let files = self.files.entry((process.task.clone(), process.attempt)).or_default();
        assert_eq!(files.result, None, "an attempt has one result");
        files.result = Some(result);
    }
}

fn files_progress(files: &mut AttemptFiles, measured: u64) {
    files.progress = Some(TaskProgress { doing: "measuring".to_owned(), measured });
}

pub fn node_name(node: usize) -> String {
    format!("n{node:03}")
}

fn node_number(name: &str) -> usize {
    name[1..].parse().unwrap()
}

/// Slurm and the shared file system, as the controller sees them.
#[derive(Clone)]
pub struct Simulated(Rc<RefCell<World>>);

impl Simulated {
    pub fn of(world: &Rc<RefCell<World>>) -> Self {
        Self(Rc::clone(world))
    }

    fn no_answer(&self) -> Result<(), ClusterError> {
        let mut world = self.0.borrow_mut();
        let share = world.faults.call;
        match world.chance(share) {
            true => Err(ClusterError::NoAnswer("Unable to contact slurm controller".to_owned())),
            false => Ok(()),
        }
    }
}

impl Cluster for Simulated {
    fn jobs(&mut self) -> Result<Vec<Job>, ClusterError> {
        self.no_answer()?;
        Ok(self.0.borrow().jobs.values().map(|job| job.job.clone()).collect())
    }

    fn ended(&mut self, _: &[JobId]) -> Vec<(JobId, JobEnd)> {
        Vec::new()
    }

    fn nodes(&mut self, _: &FleetRecord) -> Result<Vec<Node>, ClusterError> {
        self.no_answer()?;
        let world = self.0.borrow();
        let node = |number: usize| Node {
            name: node_name(number),
            state: if world.is_up(number) { "idle" } else { "down*" }.to_owned(),
            features: Vec::new(),
            cpus: 8,
        };
        Ok((0..world.down.len()).map(node).collect())
    }

    fn submit(&mut self, submission: &Submission<'_>) -> Result<JobId, ClusterError> {
        self.no_answer()?;
        let mut world = self.0.borrow_mut();
        let id = world.next_job;
        world.next_job += 1;
        world.submissions += 1;
        let (name, node) = (submission.name.clone(), node_number(submission.node));
        let (task, attempt) = (submission.task.to_owned(), submission.attempt);
        let (state, reason) = (JobState::Pending, "Priority".to_owned());
        let job = Job { id, name, state, reason };
        let after = submission.after.clone();
        let is_built_before = |build: &TaskRecord| {
            let mut jobs =
                build.attempts.iter().filter(|it| it.end.is_none()).filter_map(|it| it.job);
            build.outcome.is_some() || jobs.any(|job| after.contains(&job))
        };
        let mut builds = submission.record.tasks.iter().filter(|task| task.builds);
        assert!(task.starts_with("build") || builds.all(is_built_before), "{task} does not wait");
        world.jobs.insert(id, SimulatedJob { job, node, task, attempt, after });
        let share = world.faults.call;
        match world.chance(share) {
            // It was accepted nevertheless.
            true => Err(ClusterError::NoAnswer("Socket timed out".to_owned())),
            false => Ok(id),
        }
    }

    fn cancel(&mut self, jobs: &[JobId]) -> Result<(), ClusterError> {
        self.no_answer()?;
        for id in jobs {
            self.0.borrow_mut().interrupt(*id);
            self.0.borrow_mut().end_job(*id, JobEnd::Cancelled);
        }
        Ok(())
    }
}

impl Store for Simulated {
    fn save(&mut self, record: &FleetRecord) -> Result<(), StoreError> {
        let mut world = self.0.borrow_mut();
        let share = world.faults.kill;
        if world.chance(share) {
            return Err(killed());
        }
        world.saved = serde_json::to_string(record).unwrap();
        match world.chance(share) {
            true => Err(killed()),
            false => Ok(()),
        }
    }

    fn files(&mut self, record: &FleetRecord) -> BTreeMap<(usize, u32), AttemptFiles> {
        let world = self.0.borrow();
        let mut all = BTreeMap::new();
        for (index, task) in record.tasks.iter().enumerate() {
            for attempt in &task.attempts {
                let key = (task.name.clone(), attempt.number);
                let files = world.files.get(&key).cloned().unwrap_or_default();
                all.insert((index, attempt.number), files);
            }
        }
        all
    }

    fn prepare(&mut self, _: &str, _: u32) -> Result<PathBuf, StoreError> {
        let mut world = self.0.borrow_mut();
        let share = world.faults.kill / 10.0;
        if world.chance(share) { Err(killed()) } else { Ok(PathBuf::new()) }
    }

    fn fence(&mut self, task: &str, attempt: u32) -> Result<(), StoreError> {
        self.0.borrow_mut().fences.insert((task.to_owned(), attempt));
        Ok(())
    }

    fn accept(&mut self, task: &str, attempt: u32) -> Result<(), StoreError> {
        let mut world = self.0.borrow_mut();
        let before = world.accepted.insert(task.to_owned(), attempt);
        assert!(before.is_none_or(|before| before == attempt), "{task} was accepted twice");
        Ok(())
    }
}
