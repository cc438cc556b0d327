use super::*;
use crate::sample::fleet;
use crate::task_result::{Claim, TaskEnd};

fn create(path: &Path) -> FleetDirectory {
    let program = std::env::current_exe().unwrap();
    let mut directory =
        FleetDirectory::create(path, &program, &serde_json::json!({ "a": 1 }), "a = 1\n").unwrap();
    directory.save(&fleet(2)).unwrap();
    directory
}

#[test]
fn record_and_experiment_are_stored_and_one_process_controls() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let directory = create(&path);
    assert!(matches!(FleetDirectory::open(&path), Err(FleetError::InUse { .. })));
    let (reader, record) = FleetDirectory::read(&path).unwrap();
    assert_eq!(record, fleet(2));
    assert!(reader.is_controlled());
    drop(directory);
    assert!(!reader.is_controlled());
    assert_eq!(reader.experiment().unwrap().1, "a = 1\n");
    let program = std::env::current_exe().unwrap();
    let again = FleetDirectory::create(&path, &program, &serde_json::Value::Null, "");
    assert!(matches!(again, Err(FleetError::Exists { .. })));
    assert!(!reader.take_cancel());
    reader.ask_to_cancel().unwrap();
    assert!(reader.take_cancel() && !reader.take_cancel());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = create(&dir.path().join("f"));
    for name in ["..", "a/b", "", ".x"] {
        let mut record = fleet(1);
        name.clone_into(&mut record.tasks[0].name);
        directory.save(&record).unwrap();
        assert!(matches!(directory.record(), Err(FleetError::NoFleet { .. })), "{name}");
    }
}

#[test]
fn results_of_other_attempts_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = create(&dir.path().join("f"));
    let record = fleet(2);
    let at = directory.prepare("n001", 1).unwrap();
    let claim = Claim { job: Some(5), node: "n001".to_owned() };
    files::replace_json(&at.join("claim.json"), &claim).unwrap();
    let mut result = TaskResult {
        fleet: record.id.clone(),
        task: "n001".to_owned(),
        attempt: 1,
        node: "n001".to_owned(),
        measured: 7,
        end: TaskEnd::Interrupted,
    };
    files::replace_json(&at.join("result.json"), &result).unwrap();
    let read = directory.files_of(&record, "n001", 1);
    assert_eq!((read.claim, read.result.as_ref()), (Some(claim), Some(&result)));
    result.attempt = 2;
    files::replace_json(&at.join("result.json"), &result).unwrap();
    assert_eq!(directory.files_of(&record, "n001", 1).result, None);
    fs::write(at.join("result.json"), "{\"fleet\":").unwrap();
    assert_eq!(directory.files_of(&record, "n001", 1).result, None);
}

#[test]
fn accepting_twice_is_the_same_as_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut directory = create(&dir.path().join("f"));
    let at = directory.prepare("n001", 1).unwrap();
    fs::write(at.join("run.sqlite"), "run").unwrap();
    for _ in 0..2 {
        directory.accept("n001", 1).unwrap();
    }
    let run = directory.run_of("n001");
    assert_eq!(fs::read_to_string(run.join("run.sqlite")).unwrap(), "run");
    assert_eq!(fs::read_dir(run).unwrap().count(), 2, "the run and attempts");
    assert!(directory.accept("n002", 1).is_err());
}
