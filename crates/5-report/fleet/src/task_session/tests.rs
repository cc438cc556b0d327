use dbdyno_results::{NewRun, RunWriter};

use super::*;
use crate::controller::Store;
use crate::sample::fleet;

/// A fleet run with two tasks in a directory, with scratch beside it.
struct Scene {
    dir: tempfile::TempDir,
    directory: FleetDirectory,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let (path, value) = (dir.path().join("f"), serde_json::Value::Null);
        let mut directory = FleetDirectory::create(&path, &program, &value, "").unwrap();
        let mut record = fleet(2);
        record.request.scratch = dir.path().to_string_lossy().into_owned();
        directory.save(&record).unwrap();
        for attempt in 1..=3 {
            directory.prepare("n001", attempt).unwrap();
        }
        Self { dir, directory }
    }

    fn begin(&self, attempt: u32, node: &str) -> Begin {
        let place = TaskPlace { node: node.to_owned(), job: Some(u64::from(attempt)) };
        let stop = AtomicBool::new(false);
        TaskSession::begin(self.directory.path(), "n001", attempt, &place, &stop).unwrap()
    }

    fn session(&self, attempt: u32, node: &str) -> TaskSession {
        match self.begin(attempt, node) {
            Begin::Run(session) => *session,
            other => panic!("{other:?}"),
        }
    }

    fn result(&self, attempt: u32) -> Option<TaskResult> {
        let record = FleetDirectory::read(self.directory.path()).unwrap().1;
        self.directory.files_of(&record, "n001", attempt).result
    }
}

fn run(session: &TaskSession, name: &str) {
    let new = NewRun {
        name: name.to_owned(),
        baseline: "a".to_owned(),
        experiment_text: String::new(),
        experiment: serde_json::json!({}),
        settings: Vec::new(),
        microbenchmarks: Vec::new(),
        insert: None,
    };
    RunWriter::create(session.run(), &new).unwrap();
}

fn name(run: &Path) -> String {
    RunReader::open(run).unwrap().name().unwrap()
}

#[test]
fn complete_run_is_copied_before_its_result_and_removed_locally() {
    let scene = Scene::new();
    let session = scene.session(1, "n001");
    assert!(!session.resumes() && !session.run().exists());
    run(&session, "first");
    assert!(session.tick("measuring", true));
    let local = session.run().to_owned();
    assert_eq!(session.finish(TaskEnd::Complete { failures: 0 }).unwrap(), Finish::Written);
    assert!(!local.exists());
    assert!(matches!(scene.result(1).unwrap().end, TaskEnd::Complete { failures: 0 }));
    assert_eq!(name(&scene.directory.attempt("n001", 1)), "first");
    assert!(matches!(scene.begin(2, "n001"), Begin::NotNeeded(_)), "it is complete");
}

#[test]
fn complete_run_that_cannot_be_copied_has_no_result_and_stays() {
    let scene = Scene::new();
    let session = scene.session(1, "n001");
    // There is nothing to copy, as if it could not be read.
    assert!(session.finish(TaskEnd::Complete { failures: 0 }).is_err());
    assert_eq!(scene.result(1), None);
}

#[test]
fn next_attempt_continues_on_the_same_node_only() {
    let scene = Scene::new();
    let session = scene.session(1, "n001");
    run(&session, "first");
    let local = session.run().to_owned();
    session.finish(TaskEnd::Interrupted).unwrap();
    // The local run, or its copy if the disk was replaced.
    assert!(scene.session(2, "n001").resumes());
    std::fs::remove_dir_all(&local).unwrap();
    let session = scene.session(3, "n001");
    assert!(session.resumes());
    assert_eq!(name(session.run()), "first");
    drop(session);
    std::fs::remove_file(scene.directory.attempt("n001", 3).join("claim.json")).unwrap();
    assert!(!scene.session(3, "n002").resumes(), "another machine measures anew");
}

#[test]
fn attempt_has_one_job_and_waits_for_the_one_before() {
    let mut scene = Scene::new();
    let first = scene.session(1, "n001");
    run(&first, "first");
    assert!(matches!(scene.begin(1, "n001"), Begin::NotNeeded(_)), "claimed");
    scene.directory.fence("n001", 1).unwrap();
    scene.directory.fence("n001", 1).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| scene.session(2, "n001"));
        std::thread::sleep(FENCE_INTERVAL);
        assert!(!second.is_finished(), "the first holds the node");
        assert!(!first.tick("measuring", true), "it is told to stop");
        assert_eq!(first.finish(TaskEnd::Interrupted).unwrap(), Finish::Fenced);
        assert!(second.join().unwrap().resumes());
    });
    assert_eq!(scene.result(1), None);
}

#[test]
fn attempt_that_is_stopped_while_it_waits_is_interrupted() {
    let scene = Scene::new();
    let _first = scene.session(1, "n001");
    let place = TaskPlace { node: "n001".to_owned(), job: Some(2) };
    let stop = AtomicBool::new(true);
    let begun = TaskSession::begin(scene.directory.path(), "n001", 2, &place, &stop).unwrap();
    assert!(matches!(begun, Begin::NotNeeded(_)));
    assert_eq!(scene.result(2).unwrap().end, TaskEnd::Interrupted);
}

#[test]
fn link_instead_of_the_local_directory_is_refused() {
    let scene = Scene::new();
    let own = format!("dbdyno-fleet-{}", rustix::process::geteuid().as_raw());
    std::os::unix::fs::symlink("/", scene.dir.path().join(own)).unwrap();
    let place = TaskPlace { node: "n001".to_owned(), job: None };
    let stop = AtomicBool::new(false);
    let begun = TaskSession::begin(scene.directory.path(), "n001", 1, &place, &stop);
    assert!(begun.is_err());
}
