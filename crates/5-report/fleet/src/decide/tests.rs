use super::*;
use crate::files::{Claim, TaskProgress, TaskResult};
use crate::plan::with_builds;
use crate::record::sample::fleet;

/// A fleet run with one task, and what is seen of it.
struct Scene {
    record: FleetRecord,
    now: u64,
    jobs: Option<Vec<Job>>,
    ended: Vec<(JobId, JobEnd)>,
    nodes: Option<Vec<Node>>,
    files: BTreeMap<(usize, u32), AttemptFiles>,
}

impl Scene {
    /// There are no jobs yet.
    fn idle() -> Self {
        Self {
            record: fleet(1),
            now: 1000,
            jobs: Some(Vec::new()),
            ended: Vec::new(),
            nodes: None,
            files: BTreeMap::new(),
        }
    }

    /// Job 1 of the first attempt runs.
    fn running() -> Self {
        let mut scene = Self::idle();
        assert_eq!(scene.step(), [Action::Submit { task: 0, attempt: 1 }]);
        scene.record.tasks[0].attempts[0].job = Some(1);
        scene.list(1, "RUNNING", "None");
        assert_eq!(scene.step(), []);
        scene
    }

    /// A step: what is to be done, and the jobs that are to be cancelled.
    fn step_and_cancel(&mut self) -> (Vec<Action>, Vec<JobId>) {
        self.now += 1;
        let seen = Observation {
            now: UnixTime(self.now),
            jobs: self.jobs.as_deref(),
            ended: &self.ended,
            nodes: self.nodes.as_deref(),
            files: &self.files,
        };
        let actions = decide(&mut self.record, &seen);
        // As the controller does.
        (actions, std::mem::take(&mut self.record.not_cancelled).into_iter().collect())
    }

    /// A step that cancels no job.
    fn step(&mut self) -> Vec<Action> {
        let (actions, cancelled) = self.step_and_cancel();
        assert!(cancelled.is_empty(), "{cancelled:?}");
        actions
    }

    /// The jobs that a step cancels that does nothing else.
    fn cancels(&mut self) -> Vec<JobId> {
        let (actions, cancelled) = self.step_and_cancel();
        assert_eq!(actions, []);
        cancelled
    }

    /// Steps until something is to be done or jobs are to be cancelled.
    fn next_and_cancel(&mut self) -> (Vec<Action>, Vec<JobId>) {
        for _ in 0..10_000 {
            let (actions, cancelled) = self.step_and_cancel();
            if !actions.is_empty() || !cancelled.is_empty() || self.record.has_ended() {
                return (actions, cancelled);
            }
        }
        panic!("nothing happens: {:?}", self.record);
    }

    /// Steps until something is to be done. No job is cancelled.
    fn next(&mut self) -> Vec<Action> {
        let (actions, cancelled) = self.next_and_cancel();
        assert!(cancelled.is_empty(), "{cancelled:?}");
        actions
    }

    fn list(&mut self, id: JobId, state: &str, reason: &str) {
        let name = self.record.job_name(&self.record.tasks[0], id as u32);
        let (state, reason) = (JobState::from_name(state), reason.to_owned());
        self.jobs = Some(vec![Job { id, name, state, reason }]);
    }

    fn write(&mut self, attempt: u32, measured: u64, end: TaskEnd) {
        let result = TaskResult {
            fleet: "5eed".to_owned(),
            task: "n001".to_owned(),
            attempt,
            node: "n001".to_owned(),
            measured,
            end,
        };
        self.files.entry((0, attempt)).or_default().result = Some(result);
    }

    /// The job of an attempt was told to stop and exited.
    fn interrupt(&mut self, attempt: u32, measured: u64) {
        self.write(attempt, measured, TaskEnd::Interrupted);
        self.record.tasks[0].attempts[attempt as usize - 1].job = Some(u64::from(attempt));
        self.list(u64::from(attempt), "FAILED", "NonZeroExitCode");
    }

    fn outcome(&self) -> Option<&Outcome> {
        self.record.tasks[0].outcome.as_ref()
    }
}

const FENCE_1: Action = Action::Fence { task: 0, attempt: 1 };
const SUBMIT_2: Action = Action::Submit { task: 0, attempt: 2 };

#[test]
fn result_file_decides_whatever_slurm_says() {
    let mut scene = Scene::running();
    scene.list(1, "NODE_FAIL", "None");
    assert_eq!(scene.step(), []);
    scene.write(1, 3, TaskEnd::Complete { failures: 0 });
    assert_eq!(scene.step(), [Action::Accept { task: 0, attempt: 1 }]);
    assert_eq!(scene.outcome(), Some(&Outcome::Complete { attempt: 1, failures: 0 }));
    assert!(scene.record.has_ended());
    // Exit code 0 without a result is a failure.
    let mut scene = Scene::running();
    scene.list(1, "COMPLETED", "None");
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
}

#[test]
fn late_result_of_a_fenced_attempt_is_accepted_and_the_next_one_cancelled() {
    let mut scene = Scene::running();
    scene.list(1, "NODE_FAIL", "None");
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
    scene.record.tasks[0].attempts[1].job = Some(2);
    scene.list(2, "RUNNING", "None");
    scene.write(1, 3, TaskEnd::Complete { failures: 2 });
    let actions =
        vec![Action::Accept { task: 0, attempt: 1 }, Action::Fence { task: 0, attempt: 2 }];
    assert_eq!(scene.step_and_cancel(), (actions, vec![2]));
    assert_eq!(scene.outcome(), Some(&Outcome::Complete { attempt: 1, failures: 2 }));
}

#[test]
fn time_limit_with_progress_is_no_failure_and_without_it_ends_after_the_retries() {
    let mut scene = Scene::running();
    for attempt in 1..=20 {
        scene.interrupt(attempt, u64::from(attempt));
        assert_eq!(scene.step().last(), Some(&Action::Submit { task: 0, attempt: attempt + 1 }));
    }
    assert_eq!(scene.record.tasks[0].failures(), 0);
    for attempt in 21..=22 {
        scene.interrupt(attempt, 20);
        assert_eq!(scene.next().last(), Some(&Action::Submit { task: 0, attempt: attempt + 1 }));
    }
    scene.interrupt(23, 20);
    assert_eq!(scene.next(), []);
    assert!(matches!(scene.outcome(), Some(Outcome::Failed { .. })), "{:?}", scene.outcome());
    // The user may try again.
    assert_eq!(scene.record.reopen(), 1);
    assert_eq!(scene.next().last(), Some(&Action::Submit { task: 0, attempt: 24 }));
}

#[test]
fn error_that_no_retry_helps_ends_the_task() {
    let mut scene = Scene::running();
    let reason = "unknown compiler".to_owned();
    scene.write(1, 0, TaskEnd::Failed { reason: reason.clone(), retry: false });
    assert_eq!(scene.step(), []);
    assert_eq!(scene.outcome(), Some(&Outcome::Failed { reason }));
}

#[test]
fn job_that_somebody_cancelled_is_not_submitted_again() {
    let mut scene = Scene::running();
    scene.list(1, "CANCELLED", "None");
    assert_eq!(scene.next(), []);
    assert!(matches!(scene.outcome(), Some(Outcome::Cancelled { .. })));
    // It was told to stop and did; Slurm says why only when it has ended.
    let mut scene = Scene::running();
    scene.interrupt(1, 5);
    scene.list(1, "COMPLETING", "None");
    assert_eq!(scene.step(), []);
    assert_eq!(scene.outcome(), None);
    scene.list(1, "CANCELLED", "None");
    assert_eq!(scene.step(), []);
    assert!(matches!(scene.outcome(), Some(Outcome::Cancelled { .. })));
}

#[test]
fn nothing_is_concluded_while_slurm_does_not_answer() {
    let mut scene = Scene::running();
    scene.jobs = None;
    for _ in 0..10_000 {
        assert_eq!(scene.step(), []);
    }
    assert_eq!(scene.outcome(), None);
    scene.list(1, "RUNNING", "None");
    assert_eq!(scene.step(), []);
    assert_eq!(scene.record.tasks[0].attempts.len(), 1);
}

#[test]
fn job_whose_number_was_not_stored_is_found_by_name_or_claim_and_else_submitted_again() {
    let mut scene = Scene::running();
    scene.record.tasks[0].attempts[0].job = None;
    assert_eq!(scene.step(), []);
    assert_eq!(scene.record.tasks[0].attempts[0].job, Some(1), "by its name");
    scene.record.tasks[0].attempts[0].job = None;
    scene.jobs = Some(Vec::new());
    assert_eq!(scene.next(), [Action::Submit { task: 0, attempt: 1 }]);
    let claim = Claim { job: Some(7), node: "n001".to_owned() };
    scene.files.entry((0, 1)).or_default().claim = Some(claim);
    scene.step();
    assert_eq!(scene.record.tasks[0].attempts[0].job, Some(7), "by its claim");
}

#[test]
fn earlier_attempts_are_told_to_stop_also_by_a_controller_that_submits_again() {
    let mut scene = Scene::running();
    scene.list(1, "NODE_FAIL", "None");
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
    // It was killed before it did that.
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
}

#[test]
fn accounting_tells_how_an_unlisted_job_ended() {
    let mut scene = Scene::running();
    scene.jobs = Some(Vec::new());
    scene.ended = vec![(1, JobEnd::Cancelled)];
    assert_eq!(scene.next(), []);
    assert!(matches!(scene.outcome(), Some(Outcome::Cancelled { .. })));
    let mut scene = Scene::running();
    scene.jobs = Some(Vec::new());
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2], "unknown: another attempt");
}

#[test]
fn broken_node_is_waited_for_and_then_replaced() {
    let down = "ReqNodeNotAvail, UnavailableNodes:n001";
    let node = |name: &str, state: &str| Node {
        name: name.to_owned(),
        state: state.to_owned(),
        features: Vec::new(),
        cpus: 2,
    };
    let mut scene = Scene::running();
    scene.list(1, "PENDING", down);
    scene.step();
    scene.list(1, "RUNNING", "None");
    scene.step();
    assert_eq!(scene.record.tasks[0].attempts[0].unavailable_since, None, "it came back");
    scene.list(1, "PENDING", down);
    while !needs_nodes(&scene.record, UnixTime(scene.now)) {
        assert_eq!(scene.step(), []);
    }
    assert_eq!(scene.step(), [], "the nodes are not known yet");
    let nodes = vec![node("n001", "down"), node("n002", "drained"), node("n003", "idle")];
    scene.nodes = Some(nodes.clone());
    assert_eq!(scene.step_and_cancel(), (vec![FENCE_1, SUBMIT_2], vec![1]));
    assert_eq!(scene.record.tasks[0].node, "n003");
    assert_eq!(scene.record.tasks[0].failures(), 0);

    let mut scene = Scene::running();
    scene.record.request.named_nodes = true;
    scene.nodes = Some(nodes);
    scene.list(1, "PENDING", down);
    assert_eq!(scene.next_and_cancel(), (vec![], vec![1]));
    assert!(matches!(scene.outcome(), Some(Outcome::Lost { .. })), "{:?}", scene.outcome());
    // Resumed, it is tried again: the node may be back.
    assert_eq!(scene.record.reopen(), 1);
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
    assert_eq!(scene.record.tasks[0].node, "n001");
}

#[test]
fn node_that_is_reserved_for_another_job_is_waited_for() {
    let busy = [
        "ReqNodeNotAvail, May be reserved for other job",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    ];
    let state = "planned".to_owned();
    let node = Node { name: "n001".to_owned(), state, features: Vec::new(), cpus: 2 };
    for reason in busy {
        let mut scene = Scene::running();
        scene.nodes = Some(vec![node.clone()]);
        scene.list(1, "PENDING", reason);
        for _ in 0..10_000 {
            assert_eq!(scene.step(), [], "{reason}");
        }
        scene.list(1, "PENDING", "launch failed requeued held");
        assert_eq!(scene.next_and_cancel(), (vec![], vec![1]));
    }
}

#[test]
fn cancelled_fleet_cancels_its_jobs_and_keeps_complete_runs() {
    let mut scene = Scene::running();
    scene.record.cancelled = true;
    assert_eq!(scene.cancels(), [1]);
    scene.interrupt(1, 2);
    assert_eq!(scene.step(), []);
    assert!(matches!(scene.outcome(), Some(Outcome::Cancelled { .. })));
    let mut scene = Scene::running();
    scene.record.cancelled = true;
    scene.write(1, 2, TaskEnd::Complete { failures: 0 });
    scene.step();
    assert!(matches!(scene.outcome(), Some(Outcome::Complete { .. })));
}

#[test]
fn fleet_resumed_while_it_is_cancelled_goes_on_with_another_attempt() {
    let mut scene = Scene::running();
    scene.record.cancelled = true;
    assert_eq!(scene.cancels(), [1]);
    assert_eq!(scene.record.reopen(), 1);
    scene.interrupt(1, 5);
    scene.list(1, "CANCELLED", "None");
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
    assert_eq!(scene.record.tasks[0].failures(), 0);
    assert_eq!(scene.outcome(), None);
}

#[test]
fn progress_of_an_attempt_without_result_counts() {
    let mut scene = Scene::running();
    let progress = TaskProgress { doing: String::new(), measured: 5 };
    scene.files.entry((0, 1)).or_default().progress = Some(progress);
    scene.list(1, "TIMEOUT", "None");
    assert_eq!(scene.next(), [FENCE_1, SUBMIT_2]);
    assert_eq!(scene.record.tasks[0].failures(), 0);
}

/// Jobs of a fleet run in which task 0 builds and task 1 measures.
struct Building(Scene);

impl Building {
    /// The job of the builds has number 1.
    fn new() -> Self {
        let mut scene = Scene::idle();
        scene.record.tasks = with_builds(std::mem::take(&mut scene.record.tasks), false);
        scene.record.request.named_nodes = true;
        assert_eq!(scene.step(), [Action::Submit { task: 0, attempt: 1 }]);
        assert_eq!(scene.step(), [], "the measuring job waits for a job that has no number yet");
        let mut scene = Self(scene);
        scene.answer(0, 1, 1);
        assert_eq!(scene.0.record.build_jobs(), Some(vec![1]));
        scene
    }

    /// Slurm has accepted the job of an attempt.
    fn answer(&mut self, task: usize, attempt: u32, job: JobId) {
        self.0.record.tasks[task].attempts[attempt as usize - 1].job = Some(job);
        self.list(&[(job, "RUNNING", "None")]);
    }

    fn list(&mut self, jobs: &[(JobId, &str, &str)]) {
        let job = |&(id, state, reason): &(JobId, &str, &str)| {
            let (state, reason) = (JobState::from_name(state), reason.to_owned());
            Job { id, name: String::new(), state, reason }
        };
        self.0.jobs = Some(jobs.iter().map(job).collect());
    }

    fn end_builds(&mut self, attempt: u32, end: TaskEnd) {
        self.0.write(attempt, 0, end);
    }

    fn outcomes(&self) -> Vec<Option<&Outcome>> {
        self.0.record.tasks.iter().map(|task| task.outcome.as_ref()).collect()
    }
}

const SUBMIT_MEASURING: Action = Action::Submit { task: 1, attempt: 1 };

#[test]
fn measuring_job_is_submitted_after_that_of_the_builds() {
    let mut scene = Building::new();
    assert_eq!(scene.0.step(), [SUBMIT_MEASURING]);
    scene.answer(1, 1, 2);
    scene.list(&[(1, "RUNNING", "None"), (2, "PENDING", "Dependency")]);
    assert_eq!(scene.0.step(), []);
    assert_eq!(scene.0.record.tasks[1].attempts[0].state, "waiting for builds");
    scene.end_builds(1, TaskEnd::Complete { failures: 0 });
    assert_eq!(scene.0.step(), [], "builds have no run to take over");
    assert_eq!(scene.0.record.build_jobs(), Some(Vec::new()));
    scene.list(&[(2, "RUNNING", "None")]);
    assert_eq!(scene.0.step(), []);
}

#[test]
fn measuring_job_of_failed_builds_is_replaced_by_one_for_their_next_attempt() {
    let mut scene = Building::new();
    assert_eq!(scene.0.step(), [SUBMIT_MEASURING]);
    scene.answer(1, 1, 2);
    scene.end_builds(1, TaskEnd::Failed { reason: "no space".to_owned(), retry: true });
    scene.list(&[(1, "FAILED", "None"), (2, "PENDING", "DependencyNeverSatisfied")]);
    assert_eq!(scene.0.cancels(), [2]);
    assert_eq!(scene.0.next(), [FENCE_1, SUBMIT_2]);
    scene.list(&[]);
    assert_eq!(scene.0.step(), []);
    scene.answer(0, 2, 3);
    let fence = Action::Fence { task: 1, attempt: 1 };
    assert_eq!(scene.0.step(), [fence, Action::Submit { task: 1, attempt: 2 }]);
    assert_eq!(scene.0.record.tasks[1].failures(), 0);
    assert_eq!(scene.0.record.build_jobs(), Some(vec![3]));
}

#[test]
fn measuring_job_of_builds_that_died_is_submitted_once_for_their_next_attempt() {
    let mut scene = Building::new();
    assert_eq!(scene.0.step(), [SUBMIT_MEASURING]);
    scene.answer(1, 1, 2);
    scene.list(&[(1, "OUT_OF_MEMORY", "None"), (2, "PENDING", "DependencyNeverSatisfied")]);
    assert_eq!(scene.0.cancels(), [2]);
    scene.list(&[(1, "OUT_OF_MEMORY", "None")]);
    assert_eq!(scene.0.step(), [], "the dead job is not waited for");
    assert_eq!(scene.0.next(), [FENCE_1, SUBMIT_2]);
    scene.answer(0, 2, 3);
    let fence = Action::Fence { task: 1, attempt: 1 };
    assert_eq!(scene.0.step(), [fence, Action::Submit { task: 1, attempt: 2 }]);
    assert_eq!(scene.0.record.build_jobs(), Some(vec![3]));
}

#[test]
fn failed_builds_end_the_fleet_run() {
    let mut scene = Building::new();
    assert_eq!(scene.0.step(), [SUBMIT_MEASURING]);
    scene.answer(1, 1, 2);
    let reason = "error: expected `;`".to_owned();
    scene.end_builds(1, TaskEnd::Failed { reason: reason.clone(), retry: false });
    scene.list(&[(1, "FAILED", "None"), (2, "PENDING", "DependencyNeverSatisfied")]);
    let fence = Action::Fence { task: 1, attempt: 1 };
    assert_eq!(scene.0.step_and_cancel(), (vec![fence], vec![2]));
    let measuring = Outcome::Failed { reason: "it has no builds: see build".to_owned() };
    assert_eq!(scene.outcomes(), [Some(&Outcome::Failed { reason }), Some(&measuring)]);
    assert!(scene.0.record.has_ended());
    assert_eq!(scene.0.record.failed_builds().unwrap().name, "build");
    // The user may try again.
    assert_eq!(scene.0.record.reopen(), 2);
    assert_eq!(scene.0.next(), [FENCE_1, SUBMIT_2]);
}

#[test]
fn builds_for_an_unshared_cache_are_skipped_and_measuring_goes_on() {
    let mut scene = Building::new();
    let reason = "not shared".to_owned();
    scene.end_builds(1, TaskEnd::Skipped { reason: reason.clone() });
    assert_eq!(scene.0.step(), [SUBMIT_MEASURING]);
    assert_eq!(scene.outcomes(), [Some(&Outcome::Skipped { reason }), None]);
    assert!(scene.0.record.failed_builds().is_none());
}

#[test]
fn builds_move_to_another_node_of_the_fleet_run_also_if_nodes_are_named() {
    let mut scene = Building::new();
    let node = |name: &str| Node {
        name: name.to_owned(),
        state: "idle".to_owned(),
        features: Vec::new(),
        cpus: 2,
    };
    scene.0.record.tasks.push(TaskRecord::new("n002", "n002", None));
    scene.0.record.tasks[1].outcome = Some(Outcome::Lost { reason: String::new() });
    scene.list(&[(1, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n001")]);
    let broken = Node { state: "down".to_owned(), ..node("n001") };
    scene.0.nodes = Some(vec![broken, node("n002"), node("n003")]);
    let mut actions = Vec::new();
    while scene.0.record.tasks[0].node == "n001" {
        (actions, _) = scene.0.step_and_cancel();
    }
    assert_eq!(scene.0.record.tasks[0].node, "n002");
    assert!(actions.contains(&SUBMIT_2), "{actions:?}");
}
