//! Disks that are too small or become full during a run.

use std::path::Path;

use crate::common::{
    Experiment, Finished, SmallDisk, Stored, TestDir, integrity, resume, slices_of_live_run,
};
use crate::servers::count;

const ALONE: &[(&str, &str)] = &[("base", "")];

/// The message of SQLite or of dbdyno.
#[track_caller]
pub fn assert_says_full(finished: &Finished) {
    finished.assert_code(1);
    let all = finished.all();
    assert!(all.contains("is full") || all.contains("no space left"), "{all}");
}

#[test]
fn too_small_disk_is_refused_before_loading() {
    let test = TestDir::new();
    let Some(disk) = SmallDisk::mount(test.path(), 16) else { return };
    let out = disk.path().join("out");
    let experiment =
        Experiment { control: true, rows: 1_000_000, candidates: ALONE, ..Experiment::default() };
    let run = test.start(&experiment, &out, &[]);
    let finished = run.end();
    finished.assert_code(1).assert_prints("the data needs about").assert_prints("are free");
    finished.assert_prints(&out.display().to_string()).assert_prints("--out");
    assert!(no_database(&out));
    // There is no more space than before.
    resume(&out, &[]).assert_code(1).assert_prints("the data needs about");
}

#[test]
fn full_disk_before_the_first_result_is_no_run_to_resume() {
    let test = TestDir::new();
    let Some(disk) = SmallDisk::mount(test.path(), 1) else { return };
    disk.fill();
    let out = disk.path().join("out");
    let finished = test.start(&Experiment::default(), &out, &[]).end();
    finished.assert_code(1).assert_prints("no space left").assert_prints("no run was made");
    assert!(!finished.all().contains("--resume"), "{}", finished.all());
}

fn no_database(out: &Path) -> bool {
    let data = std::fs::read_dir(out.join("data"));
    data.map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn full_disk_while_loading_is_reported_and_run_resumes() {
    let test = TestDir::new();
    let Some(disk) = SmallDisk::mount(test.path(), 250) else { return };
    let out = disk.path().join("out");
    let experiment =
        Experiment { control: true, rows: 200_000, candidates: ALONE, ..Experiment::default() };
    let mut run = test.start(&experiment, &out, &[]);
    run.wait_until("loading", || out.join("data/.loading-0/data.sqlite").exists());
    disk.fill();
    assert_says_full(&run.end());
    disk.free();
    assert!(no_database(&out), "what was not loaded whole is still there");
    resume(&out, &["--keep-data"]).assert_code(0);
    assert_eq!(integrity(&out), 2);
}

#[test]
#[ignore = "full"]
fn full_disk_while_measuring_is_reported_and_run_resumes() {
    const WRITE: &str = "insert_range=100";
    let test = TestDir::new();
    let Some(disk) = SmallDisk::mount(test.path(), 300) else { return };
    let out = disk.path().join("out");
    let experiment = Experiment {
        control: true,
        microbenchmarks: "\"hot-points*\", \"insert_range=100\"",
        // Long enough for the baseline or the control to need more space.
        budget: "3s",
        min_blocks: 600,
        candidates: ALONE,
        ..Experiment::default()
    };
    let mut run = test.start(&experiment, &out, &[]);
    run.wait_until("slices", || slices_of_live_run(&out, WRITE) >= 6);
    disk.fill();
    let finished = run.end();
    assert_says_full(&finished);
    finished.assert_prints("--resume");
    disk.free();
    assert_eq!(
        count(&out, "SELECT COUNT(*) FROM failure"),
        0,
        "the disk is no failure of a candidate"
    );
    let before = Stored::open(&out).slices();
    resume(&out, &["--keep-data"]).assert_code(0);
    let stored = Stored::open(&out);
    assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
    assert_eq!(stored.slices()[..before.len()], before);
    assert_eq!(integrity(&out), 2);
}
