//! Fleet runs of 200 nodes in a simulated Slurm that fails in many ways: nothing is lost, no two attempts
//! write to one run, and everything ends.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use dbdyno_fleet::{
    Controller, FleetRecord, JobId, Limits, Outcome, Request, TaskRecord, UnixTime,
};
use dbdyno_units::Nanos;

use world::{Faults, Simulated, WORK, World, node_name, work_of};

const LIMITS: Limits = Limits {
    retries: 2,
    retry_wait: Nanos::from_secs(30),
    node_wait: Nanos::from_secs(15 * 60),
    result_wait: Nanos::from_secs(60),
};

/// A fleet run to its end.
struct Simulation {
    record: FleetRecord,
    world: Rc<RefCell<World>>,
    kills: usize,
    minutes: u64,
}

/// Runs a fleet of 200 nodes and 10 spare ones; `at` may change it while it runs.
fn simulate(
    seed: u64,
    faults: Faults,
    change: impl Fn(&mut Request),
    at: impl Fn(u64, &mut Controller<Simulated, Simulated>),
) -> Simulation {
    simulate_tasks(seed, faults, change, at, |tasks| tasks)
}

/// The same with other tasks than one for each node.
fn simulate_tasks(
    seed: u64,
    faults: Faults,
    change: impl Fn(&mut Request),
    at: impl Fn(u64, &mut Controller<Simulated, Simulated>),
    plan: impl Fn(Vec<TaskRecord>) -> Vec<TaskRecord>,
) -> Simulation {
    let mut request = Request {
        name: "test".to_owned(),
        partition: None,
        constraint: None,
        account: None,
        time: None,
        shard: false,
        named_nodes: false,
        scratch: "/var/tmp".to_owned(),
        cache: None,
        limits: LIMITS,
    };
    change(&mut request);
    let name =
        |number: usize| if request.shard { format!("shard-{number}") } else { node_name(number) };
    let tasks =
        (0..200).map(|number| TaskRecord::new(&name(number), &node_name(number), None)).collect();
    let record = FleetRecord::new("5eed".to_owned(), "1.2.3", "", request.clone(), plan(tasks));
    let world = Rc::new(RefCell::new(World::new(seed, faults, &record)));
    let simulated = || Simulated::of(&world);
    let mut controller = Controller::new(record, simulated(), simulated());
    let mut kills = 0;
    for minute in 1..20 * WORK {
        world.borrow_mut().minute();
        at(minute, &mut controller);
        if controller.step(UnixTime(minute * 60)).is_err() {
            // A new controller has only what was stored; it comes after an hour now and then.
            kills += 1;
            let saved = serde_json::from_str(&world.borrow().saved).unwrap();
            controller = Controller::new(saved, simulated(), simulated());
            if kills % 5 == 0 {
                (0..60).for_each(|_| world.borrow_mut().minute());
            }
        }
        if controller.record().has_ended() {
            let record = controller.record().clone();
            return Simulation { record, world, kills, minutes: minute };
        }
    }
    panic!("it does not end: {:?}", controller.record().tasks.iter().find(|t| t.outcome.is_none()));
}

impl Simulation {
    fn count(&self, wanted: fn(&Outcome) -> bool) -> usize {
        self.record
            .tasks
            .iter()
            .filter_map(|task| task.outcome.as_ref())
            .filter(|o| wanted(o))
            .count()
    }

    fn complete(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Complete { .. }))
    }

    /// Complete tasks have a complete run, all others a reason; no job is left.
    #[track_caller]
    fn check(&self) {
        let world = self.world.borrow();
        for task in &self.record.tasks {
            match task.outcome.as_ref().unwrap() {
                Outcome::Complete { attempt, .. } => {
                    let accepted = (!task.builds).then_some(attempt);
                    assert_eq!(world.accepted.get(&task.name), accepted);
                    let result = world.files[&(task.name.clone(), *attempt)].result.as_ref();
                    assert_eq!(result.unwrap().measured, work_of(&task.name));
                }
                Outcome::Skipped { reason }
                | Outcome::Failed { reason }
                | Outcome::Lost { reason }
                | Outcome::Cancelled { reason } => {
                    assert!(!reason.is_empty());
                    assert!(!world.accepted.contains_key(&task.name));
                }
            }
        }
        assert_eq!(world.open_jobs(), Vec::<JobId>::new());
        let measuring = self.record.tasks.iter().filter(|task| !task.builds);
        let names: BTreeSet<&str> = measuring.map(|task| task.node.as_str()).collect();
        if !self.record.request.shard {
            assert_eq!(names.len(), 200, "each machine is measured once");
        }
    }
}

const ONE_PERCENT: Faults =
    Faults { per_hour: 0.01, call: 0.02, kill: 0.02, lost: 0.2, cancels: false };

#[test]
fn nothing_is_lost_of_200_nodes_with_1_percent_failures_an_hour() {
    let mut kinds = BTreeSet::new();
    for seed in 0..3 {
        let simulation = simulate(seed, ONE_PERCENT, |_| {}, |_, _| {});
        simulation.check();
        assert!(simulation.complete() >= 198, "seed {seed}: {}", simulation.complete());
        assert!(simulation.kills > 0);
        let world = simulation.world.borrow();
        // Each needs two jobs because of the time limit; failures add some.
        assert!((400..600).contains(&world.submissions), "{}", world.submissions);
        assert!(simulation.minutes < 5 * WORK, "{}", simulation.minutes);
        kinds.extend(world.kinds.iter().copied());
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}

#[test]
fn nothing_is_measured_before_everything_is_built_also_with_failures() {
    let faults = Faults { per_hour: 0.05, ..ONE_PERCENT };
    for (seed, for_each_node) in [(0, false), (1, true)] {
        let plan = |tasks| dbdyno_fleet::with_builds(tasks, for_each_node);
        let change = |request: &mut Request| request.limits = Limits { retries: 10, ..LIMITS };
        let simulation = simulate_tasks(seed, faults, change, |_, _| {}, plan);
        simulation.check();
        assert!(simulation.record.failed_builds().is_none());
        let builds = simulation.record.tasks.iter().filter(|task| task.builds);
        let attempts: usize = builds.clone().map(|task| task.attempts.len()).sum();
        assert!(!for_each_node || attempts > builds.count(), "no build failed");
    }
}

#[test]
fn without_failures_each_task_has_one_attempt_per_time_limit() {
    let none = Faults { per_hour: 0.0, call: 0.0, kill: 0.0, lost: 0.0, cancels: false };
    let simulation = simulate(1, none, |_| {}, |_, _| {});
    simulation.check();
    assert_eq!(simulation.complete(), 200);
    assert_eq!(simulation.world.borrow().submissions, 400);
}

#[test]
fn everything_ends_with_many_failures_and_cancelled_jobs() {
    let faults = Faults { per_hour: 0.1, call: 0.1, kill: 0.05, lost: 0.3, cancels: true };
    for seed in 0..2 {
        let simulation = simulate(seed, faults, |_| {}, |_, _| {});
        simulation.check();
        let cancelled = simulation.count(|outcome| matches!(outcome, Outcome::Cancelled { .. }));
        assert!(cancelled > 0 && simulation.complete() > 0);
    }
}

#[test]
fn lost_nodes_are_not_replaced_if_the_user_named_them() {
    let faults = Faults { per_hour: 0.05, lost: 0.5, ..ONE_PERCENT };
    let simulation = simulate(7, faults, |request| request.named_nodes = true, |_, _| {});
    simulation.check();
    assert!(simulation.count(|outcome| matches!(outcome, Outcome::Lost { .. })) > 0);
    for task in &simulation.record.tasks {
        assert!(task.attempts.iter().all(|attempt| attempt.node == task.name));
    }
}

#[test]
fn shards_move_to_other_nodes_and_none_is_lost_while_nodes_are_left() {
    let faults = Faults { per_hour: 0.05, lost: 0.5, ..ONE_PERCENT };
    let shard = |request: &mut Request| {
        request.shard = true;
        request.limits = Limits { retries: 10, ..LIMITS };
    };
    let simulation = simulate(7, faults, shard, |_, _| {});
    simulation.check();
    assert_eq!(simulation.complete(), 200);
}

#[test]
fn cancelled_fleet_ends_soon_without_jobs() {
    let simulation = simulate(
        3,
        ONE_PERCENT,
        |_| {},
        |minute, controller| {
            if minute >= 100 {
                controller.cancel();
            }
        },
    );
    simulation.check();
    assert!(simulation.minutes < 200, "{}", simulation.minutes);
}

#[test]
fn submissions_are_few_enough_for_a_controller() {
    let poll = |tasks| dbdyno_fleet::poll_interval(tasks);
    assert_eq!(poll(3), Nanos::from_secs(3));
    assert_eq!(poll(1000), Nanos::from_secs(20));
    assert_eq!(poll(100_000), Nanos::from_secs(60));
}
