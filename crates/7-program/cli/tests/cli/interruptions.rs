//! Runs that are killed or stopped or lose a worker, and how they resume.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::common::{
    Background, Experiment, Finished, Stored, TestDir, call, children, integrity, is_gone,
    modify_run, read_csv, resume, resume_command, rows_kept, send, slices_of_live_run, wait_until,
    worker_of,
};

/// A read, a write and a read, each long enough to be interrupted.
const THREE: Experiment<'_> = Experiment {
    control: false,
    rows: 2_000,
    clients: &[1],
    microbenchmarks: "\"point-query.pre_range=100\", \"update-index_range=100\", \
                      \"scan_range=100\"",
    budget: "400ms",
    restarts: 1,
    min_blocks: 6,
    schedule: "",
    candidates: &[("base", ""), ("other", "")],
    more: "",
};
const READ: &str = "point-query.pre_range=100";
const WRITE: &str = "update-index_range=100";

/// Waits until some blocks of a microbenchmark are stored.
#[track_caller]
fn wait_for_slices(run: &mut Background, out: &Path, microbenchmark: &str) {
    let what = format!("slices of {microbenchmark}");
    run.wait_until(&what, || slices_of_live_run(out, microbenchmark) >= 10);
}

/// The contents of a run when it was interrupted.
struct Before {
    ids: BTreeSet<i64>,
    done: Vec<(String, u64)>,
}

impl Before {
    fn of(out: &Path) -> Self {
        let stored = Stored::open(out);
        let done = stored.microbenchmarks().into_iter().filter(|(_, done)| *done);
        Self {
            ids: stored.slices().iter().map(|slice| slice.id).collect(),
            done: done.map(|(name, _)| (name.clone(), stored.count_of(&name))).collect(),
        }
    }

    /// Checks that nothing is lost or measured again, and that the run is complete now.
    fn check(&self, out: &Path) {
        let stored = Stored::open(out);
        let slices = stored.slices();
        let ids: BTreeSet<i64> = slices.iter().map(|slice| slice.id).collect();
        assert!(self.ids.is_subset(&ids), "slices are lost");
        for (name, count) in &self.done {
            assert_eq!(stored.count_of(name), *count, "{name} was measured again");
        }
        assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
        assert!(slices.iter().all(|s| (s.errors, s.wrong) == (0, 0)));
    }
}

fn killed_in(microbenchmark: &str) {
    let test = TestDir::new();
    let out = test.out();
    let mut run = test.start(&THREE, &out, &[]);
    wait_for_slices(&mut run, &out, microbenchmark);
    let workers = children(run.pid());
    assert!(workers.len() >= 2, "{workers:?}");
    run.signal(libc::SIGKILL);
    assert_eq!(run.end().code, None);
    for worker in workers {
        wait_until("the worker ends", || is_gone(worker));
    }
    let before = Before::of(&out);
    assert_eq!(before.done.is_empty(), microbenchmark == READ, "{:?}", before.done);

    resume(&out, &["--keep-data"]).assert_code(0);
    before.check(&out);
    assert_eq!(integrity(&out), 2);
    assert_eq!(read_csv(&out.join("relative.csv")).len(), 1 + 3);
}

#[test]
fn run_killed_in_a_read_resumes() {
    killed_in(READ);
}

#[test]
fn run_killed_in_a_write_resumes() {
    killed_in(WRITE);
}

/// The half-widths of the intervals in `relative.csv`.
fn half_widths(out: &Path) -> Vec<f64> {
    let rows = read_csv(&out.join("relative.csv"));
    let end = |field: &String| field.parse::<f64>().unwrap();
    rows[1..].iter().map(|row| (end(&row[6]) - end(&row[5])) / 2.0).collect()
}

#[test]
fn interval_of_a_run_interrupted_twice_is_about_as_narrow() {
    let test = TestDir::new();
    let out = test.out();
    let microbenchmarks = format!("\"{READ}\"");
    let experiment = Experiment { microbenchmarks: &microbenchmarks, ..THREE };
    let mut run = test.start(&experiment, &out, &[]);
    // Warm-up has two blocks of two slices.
    let mut wanted = 10;
    for _ in 0..2 {
        run.wait_until("slices", || slices_of_live_run(&out, READ) >= wanted);
        run.signal(libc::SIGINT);
        run.end().assert_code(130);
        // More of them were measured before the signal arrived.
        wanted = Stored::open(&out).count_of(READ) + 12;
        run = Background::start(resume_command(&out, &[]), test.path());
    }
    run.end().assert_code(0);
    let starts: BTreeSet<u32> =
        Stored::open(&out).slices().iter().map(|slice| slice.key.restart).collect();
    assert_eq!(starts.len(), 3);

    // The noise of this machine replaced by noise that is the same for each block and start.
    modify_run(
        &out,
        "UPDATE slice SET qps = 1000 + candidate * ((block * block * 31 + block * 17) % 101)",
    );
    let report = || call([Path::new("report"), &out]).assert_code(0).all();
    report();
    let interrupted = half_widths(&out);
    modify_run(&out, "UPDATE slice SET restart = 0");
    report();
    let uninterrupted = half_widths(&out);
    // Where the starts end depends on this machine: of some divisions the interval is up to 3.4 times as wide. As one
    // of two starts, it would be more than ten times.
    assert!(
        interrupted[0] < 5.0 * uninterrupted[0],
        "{interrupted:?}, uninterrupted {uninterrupted:?}"
    );
}

#[test]
fn run_killed_in_a_delete_resumes_with_full_tables() {
    let test = TestDir::new();
    let out = test.out();
    let delete = "delete_range=100";
    let microbenchmarks = format!("\"{delete}\"");
    let experiment = Experiment { microbenchmarks: &microbenchmarks, restarts: 2, ..THREE };
    let mut run = test.start(&experiment, &out, &[]);
    wait_for_slices(&mut run, &out, delete);
    run.signal(libc::SIGKILL);
    run.end();
    resume(&out, &["--keep-data"]).assert_code(0);
    assert_eq!(rows_kept(&out), [THREE.rows; 2]);
}

#[test]
fn run_whose_directory_is_moved_ends_and_says_so() {
    let test = TestDir::new();
    let out = test.out();
    let mut run = test.start(&THREE, &out, &[]);
    wait_for_slices(&mut run, &out, READ);
    let moved = test.path().join("moved");
    std::fs::rename(&out, &moved).unwrap();
    run.end().assert_code(1).assert_prints("was removed or moved meanwhile");
    assert!(Stored::open(&moved).count_of(READ) >= 10);
}

#[test]
fn resume_names_a_changed_candidate_and_fails_no_other() {
    let test = TestDir::new();
    let out = test.out();
    let mut run = test.start(&THREE, &out, &[]);
    wait_for_slices(&mut run, &out, WRITE);
    run.signal(libc::SIGINT);
    run.end().assert_code(130);
    let before = Before::of(&out);
    let fingerprint = |json: &str| format!("json_set(json, '$.build.fingerprint', {json})");
    let was = "json_extract(json, '$.build.was')";
    modify_run(
        &out,
        &format!(
            "UPDATE candidate SET json = json_set(json, '$.build.was', \
             json_extract(json, '$.build.fingerprint')) WHERE name = 'other'; \
             UPDATE candidate SET json = {} WHERE name = 'other'",
            fingerprint("'0123456789ab'")
        ),
    );
    let finished = resume(&out, &[]);
    finished
        .assert_code(1)
        .assert_prints("candidate other was build 0123456789ab when the run started");
    assert!(!finished.err.contains("baseline"), "{}", finished.err);
    // The former build is back.
    modify_run(
        &out,
        &format!("UPDATE candidate SET json = {} WHERE name = 'other'", fingerprint(was)),
    );
    resume(&out, &[]).assert_code(0);
    before.check(&out);
}

#[test]
fn run_killed_while_loading_resumes() {
    let test = TestDir::new();
    let out = test.out();
    let experiment = Experiment { rows: 100_000, ..Experiment::default() };
    let mut run = test.start(&experiment, &out, &[]);
    run.wait_until("loading", || out.join("data/.loading-0/data.sqlite").exists());
    run.signal(libc::SIGKILL);
    run.end();
    resume(&out, &["--keep-data"]).assert_code(0);
    assert_eq!(integrity(&out), 2);
}

#[test]
#[ignore = "full"]
fn run_killed_repeatedly_completes() {
    let test = TestDir::new();
    let out = test.out();
    let experiment = Experiment {
        restarts: 3,
        microbenchmarks: "\"point-query*\", \"update-index*\", \"write-only*\", \"insert*\"",
        budget: "60ms",
        ..Experiment::default()
    };
    // Compile first: the times below are without compilation.
    TestDir::new().run(&Experiment::default(), &[]).assert_code(0);
    let mut command = test.run_command(&experiment, &out, &[]);
    for round in 0..14 {
        let run = Background::start(command, test.path());
        std::thread::sleep(Duration::from_millis(550 + 130 * round));
        let workers = children(run.pid());
        run.signal(libc::SIGKILL);
        run.end();
        for worker in workers {
            wait_until("the worker ends", || is_gone(worker));
        }
        // A run killed before it was created is started again.
        command = if out.join("run.sqlite").exists() {
            resume_command(&out, &[])
        } else {
            test.run_command(&experiment, &out, &[])
        };
    }
    let before = Before::of(&out);
    resume(&out, &["--keep-data"]).assert_code(0);
    before.check(&out);
    assert_eq!(read_csv(&out.join("relative.csv")).len(), 1 + 5);
}

#[test]
fn ctrl_c_reports_partial_results_and_run_resumes() {
    let test = TestDir::new();
    let out = test.out();
    let mut run = test.start(&THREE, &out, &[]);
    wait_for_slices(&mut run, &out, WRITE);
    let workers = children(run.pid());
    let running = format!("running (pid {})", run.pid());
    // Stopped, so that it does not end before the report does.
    run.signal(libc::SIGSTOP);
    call([Path::new("report"), &out]).assert_code(0).assert_prints(&running);
    run.signal(libc::SIGINT);
    run.signal(libc::SIGCONT);
    let finished = run.end();
    finished.assert_code(130).assert_prints(READ).assert_prints("--resume");
    // Where the data is, how much, and how to remove it.
    let data = out.join("data").display().to_string();
    let clean = format!("in {data}; remove it with: dbdyno clean {}", out.display());
    finished.assert_prints("its data is kept to resume it").assert_prints(&clean);
    call([Path::new("report"), &out]).assert_prints("INCOMPLETE").assert_prints(&clean);
    assert!(workers.into_iter().all(is_gone));
    assert!(out.join("report.html").exists());

    let before = Before::of(&out);
    resume(&out, &[]).assert_code(0);
    before.check(&out);
    assert!(!out.join("data").exists(), "the databases are still there");
    call([Path::new("clean"), &out]).assert_code(0).assert_prints("there was no data to remove");
}

#[test]
fn ctrl_c_says_that_the_writes_so_far_are_lost() {
    let test = TestDir::new();
    let out = test.out();
    // Databases with other pages are no copies of the baseline's.
    let pages = [("base", ""), ("other", "[candidate.sqlite]\npage_size = \"8KiB\"")];
    let mut run = test.start(&Experiment { candidates: &pages, ..THREE }, &out, &[]);
    wait_for_slices(&mut run, &out, WRITE);
    run.signal(libc::SIGINT);
    let words = "without the writes of its earlier sessions, before scan_range=100";
    let finished = run.end();
    finished.assert_code(130).assert_prints("--resume").assert_prints(words);
    // Also before anything is loaded again.
    let mut run = Background::start(resume_command(&out, &[]), test.path());
    run.wait_until("the session", || run_says(test.path(), "checking the machine"));
    run.signal(libc::SIGINT);
    run.end().assert_code(130).assert_prints(words);
    resume(&out, &[]).assert_code(0).assert_prints(words);
}

#[test]
fn ctrl_c_while_compiling_stops_the_compilers() {
    let test = TestDir::new();
    let out = test.out();
    let mut command = crate::common::dbdyno();
    command.arg("run").arg(test.file(&Experiment::default().text())).arg("--out").arg(&out);
    command.arg("--cache").arg(test.path().join("cache"));
    let mut run = Background::start(command, test.path());
    let pid = run.pid();
    let mut compilers = Vec::new();
    run.wait_until("a compiler", || {
        compilers = children(pid);
        run_says(test.path(), "compiling") && !compilers.is_empty()
    });
    run.signal(libc::SIGINT);
    run.end().assert_code(130).assert_prints("--resume");
    for compiler in compilers {
        wait_until("the compiler ends", || is_gone(compiler));
    }
    resume(&out, &[]).assert_code(0);
}

/// Starts a run and waits until it measures an event of minutes.
fn start_endless(test: &TestDir, out: &Path) -> Background {
    let endless = "[[microbenchmark]]\nname = \"endless\"\ngroup = \"range-1\"\n\
                   [[microbenchmark.statements]]\nrows = 1\ndraw = { id = \"uniform\" }\n\
                   sql = \"\"\"WITH RECURSIVE n(i) AS \
                   (SELECT :id UNION ALL SELECT i + 1 FROM n WHERE i < 10000000000) \
                   SELECT COUNT(*) FROM n, {table} WHERE {table}.id = :id\"\"\"\n";
    let experiment = Experiment {
        microbenchmarks: "\"hot-points*\", \"endless\"",
        more: endless,
        ..Experiment::default()
    };
    let mut run = test.start(&experiment, out, &[]);
    run.wait_until("the microbenchmark before", || {
        out.join("run.sqlite-wal").exists() && Stored::open(out).microbenchmarks()[0].1
    });
    run
}

#[test]
#[ignore = "full"]
fn ctrl_c_ends_an_endless_event() {
    let test = TestDir::new();
    let run = start_endless(&test, &test.out());
    run.signal(libc::SIGINT);
    run.end().assert_code(130).assert_prints("--resume");
    assert!(Stored::open(&test.out()).microbenchmarks()[0].1);
}

#[test]
fn second_ctrl_c_exits_immediately() {
    let test = TestDir::new();
    let mut run = start_endless(&test, &test.out());
    let workers = children(run.pid());
    run.signal(libc::SIGINT);
    // Two pending signals would be merged into one.
    run.wait_until("it takes note", || run_says(test.path(), "repeat to stop immediately"));
    // Sooner, it would be the same request.
    std::thread::sleep(Duration::from_millis(600));
    run.signal(libc::SIGINT);
    run.end().assert_code(130);
    for worker in workers {
        wait_until("the worker ends", || is_gone(worker));
    }
}

fn run_says(test: &Path, words: &str) -> bool {
    std::fs::read_to_string(test.join("stderr")).is_ok_and(|text| text.contains(words))
}

/// Runs an experiment and kills the worker of one candidate in the first microbenchmark.
fn without(candidate: &str, experiment: &Experiment<'_>, test: &TestDir) -> Finished {
    let out = test.out();
    let mut run = test.start(experiment, &out, &[]);
    wait_for_slices(&mut run, &out, READ);
    let (mut worker, pid) = (None, run.pid());
    // Between two starts of the instances there is none.
    run.wait_until("its worker", || {
        worker = worker_of(pid, &out, candidate);
        worker.is_some()
    });
    send(worker.unwrap(), libc::SIGKILL);
    run.end()
}

#[test]
fn killed_candidate_does_not_stop_the_others() {
    let test = TestDir::new();
    let experiment =
        Experiment { candidates: &[("base", ""), ("victim", ""), ("other", "")], ..THREE };
    let finished = without("victim", &experiment, &test);
    finished.assert_code(1).assert_prints("SIGKILL").assert_prints("victim");
    let rows = read_csv(&test.out().join("relative.csv"));
    let of = |candidate: &str| rows.iter().filter(|row| row[2] == candidate).count();
    assert_eq!(of("other"), 3, "{rows:?}");
    let html = std::fs::read_to_string(test.out().join("report.html")).unwrap();
    assert!(html.contains("SIGKILL"));
    let stored = Stored::open(&test.out());
    assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
}

#[test]
fn killed_baseline_stops_the_run_and_it_resumes() {
    let test = TestDir::new();
    without("base", &THREE, &test)
        .assert_code(1)
        .assert_prints("the baseline base failed")
        .assert_prints("SIGKILL")
        .assert_prints("--resume");
    let out = test.out();
    let before = Before::of(&out);
    resume(&out, &[]).assert_code(0);
    before.check(&out);
    // It was measured completely since: the failure is not its result.
    for row in &read_csv(&out.join("relative.csv"))[1..] {
        assert_ne!(row[7], "failed", "{row:?}");
        let low: f64 = row[5].parse().unwrap();
        assert!(low > 0.0, "no ratio of speeds is negative: {row:?}");
    }
}

#[test]
fn run_directory_is_locked_by_one_run() {
    let test = TestDir::new();
    let out = test.out();
    let mut run = test.start(&Experiment { budget: "5s", ..THREE }, &out, &[]);
    wait_for_slices(&mut run, &out, READ);
    let pid = run.pid().to_string();
    resume(&out, &[]).assert_code(1).assert_prints("in use by another dbdyno").assert_prints(&pid);
    // Reading needs no lock.
    let report = call([Path::new("report"), &out]);
    report.assert_code(0).assert_prints(READ);
    run.signal(libc::SIGTERM);
    run.end().assert_code(130);
}
