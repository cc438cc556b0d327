//! `dbdyno run --resume DIR --more TIME`: extending complete runs.

use std::path::Path;

use crate::common::{
    Background, Experiment, Stored, TestDir, call, modify_run, read_csv, resume, resume_command,
    slices_of_live_run,
};

const READ: &str = "point-query.pre_range=100";
const WRITE: &str = "update-index_range=100";
const SCAN: &str = "scan_range=100";

/// Two reads and a write on equal candidates.
const THREE: Experiment<'_> = Experiment {
    control: false,
    rows: 2_000,
    clients: &[1],
    microbenchmarks: "\"point-query.pre_range=100\", \"update-index_range=100\", \
                      \"scan_range=100\"",
    budget: "40ms",
    restarts: 1,
    min_blocks: 6,
    schedule: "",
    candidates: &[("base", ""), ("other", "")],
    more: "",
};

/// Makes the candidate twice as fast in this microbenchmark: a clear difference.
fn make_clear(out: &Path, microbenchmark: &str) {
    modify_qps(out, microbenchmark, "CASE candidate WHEN 0 THEN 1000 + block % 3 ELSE 2000 END");
}

/// Makes the candidates equally fast in this microbenchmark: one in twenty equal ones differs by
/// chance.
fn make_equal(out: &Path, microbenchmark: &str) {
    modify_qps(out, microbenchmark, "1000 + (block + candidate) % 2");
}

fn modify_qps(out: &Path, microbenchmark: &str, qps: &str) {
    modify_run(
        out,
        &format!(
            "UPDATE slice SET qps = {qps} \
             WHERE microbenchmark = (SELECT id FROM microbenchmark WHERE name = '{microbenchmark}')"
        ),
    );
}

fn counts(out: &Path) -> Vec<u64> {
    let stored = Stored::open(out);
    [READ, WRITE, SCAN].map(|name| stored.count_of(name)).into()
}

#[test]
fn extension_adds_time_where_no_difference_was_found_and_resumes_after_a_kill() {
    let test = TestDir::new();
    let out = test.out();
    test.run(&THREE, &[]).assert_code(0);
    assert!(!out.join("data").exists(), "the data must be loaded again");
    make_equal(&out, READ);
    make_clear(&out, WRITE);
    make_clear(&out, SCAN);
    let before = counts(&out);

    let mut command = resume_command(&out, &[]);
    command.args(["--more", "1500ms"]);
    let mut run = Background::start(command, test.path());
    run.wait_until("more slices", || slices_of_live_run(&out, READ) >= before[0] + 10);
    run.signal(libc::SIGKILL);
    run.end();
    let done: Vec<bool> = Stored::open(&out).microbenchmarks().iter().map(|one| one.1).collect();
    assert_eq!(done, [false, true, true]);
    resume(&out, &["--more", "3s"]).assert_code(1).assert_prints("it is not complete");
    resume(&out, &[]).assert_code(0);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("1 of 3 microbenchmarks by 1.5 s"));

    let after = counts(&out);
    assert_eq!(after[1..], before[1..], "clear differences were measured again");
    // Slices have about 2 ms, and more if the machine is busy.
    assert!(after[0] >= before[0] + 20, "{before:?} to {after:?}");
    let stored = Stored::open(&out);
    assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
    assert!(stored.slices().iter().all(|slice| (slice.errors, slice.wrong) == (0, 0)));
    assert_eq!(read_csv(&out.join("relative.csv")).len(), 1 + 3);
    assert!(!out.join("data").exists(), "the databases are still there");
    // Nothing is left to do.
    resume(&out, &[]).assert_code(0);
    assert_eq!(counts(&out), after);
}

#[test]
#[ignore = "full"]
fn extension_of_clear_differences_and_writes_starts_with_new_data() {
    let test = TestDir::new();
    let out = test.out();
    let experiment = Experiment { restarts: 3, ..THREE };
    test.run(&experiment, &["--keep-data"]).assert_code(0);
    for name in [READ, WRITE, SCAN] {
        make_clear(&out, name);
    }
    let before = counts(&out);
    resume(&out, &["--more", "3s"]).assert_code(0);
    let after = counts(&out);
    assert!(before.iter().zip(&after).any(|(before, after)| after > before));
    let stored = Stored::open(&out);
    assert!(stored.slices().iter().all(|slice| (slice.errors, slice.wrong) == (0, 0)));
}

#[test]
fn runs_that_cannot_be_extended_say_why() {
    let test = TestDir::new();
    let out = test.out();
    let finished = call([Path::new("run"), &out, Path::new("--more"), Path::new("1s")]);
    finished.assert_code(2).assert_prints("--resume");
    test.run(&Experiment::default(), &[]).assert_code(0);
    resume(&out, &["--more", "0s"]).assert_code(2).assert_prints("must be more than 0");
    resume(&out, &["--more", "ten"]).assert_code(2).assert_prints("is not a duration");
    let was = "json_extract(json, '$.build.was')";
    modify_run(
        &out,
        "UPDATE candidate SET json = json_set(json, '$.build.was', \
         json_extract(json, '$.build.fingerprint'), '$.build.fingerprint', '0123456789ab') \
         WHERE name = 'other'",
    );
    resume(&out, &["--more", "3s"]).assert_code(1).assert_prints("candidate other was build");
    let complete = Stored::open(&out).microbenchmarks().iter().all(|(_, done)| *done);
    assert!(complete, "a run that cannot be extended stays complete");
    modify_run(
        &out,
        &format!(
            "UPDATE candidate SET json = json_set(json, '$.build.fingerprint', {was}) \
             WHERE name = 'other'"
        ),
    );
    resume(&out, &["--more", "200ms"]).assert_code(0);
}
