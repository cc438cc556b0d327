//! The insert benchmark: all steps on real databases, kills, stalls, rates, full disks.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::common::{
    Background, INNODB, Inserts, MYROCKS, MYSQL, POSTGRES, SmallDisk, Step, TestDir,
    home_of_servers, processes_in, read_csv, read_json, resume, resume_command, send, server_of,
    stored_steps, wait_until, with_older_releases,
};
use crate::disk::assert_says_full;
use crate::server_release;

const SQLITE: (&str, &str) = ("base", "system = \"sqlite\"\nvariant = \"o0\"");

/// Every kind of step.
const ALL_STEPS: [&str; 9] =
    ["l.i0", "l.x", "l.i1", "l.i2", "settle", "qr100", "qp100", "qr500", "qp500"];

const ALL: &str = "rows = { i0 = 6_000, i1 = 3_000, i2 = 200 }\nrates = [100, 500]\n\
                   seconds = \"1s\"\nqueries = \"both\"";

/// One column of `insert_steps.csv`, by step, candidate and repeat.
fn column(out: &Path, name: &str) -> Vec<(String, String, String, String)> {
    let lines = read_csv(&out.join("insert_steps.csv"));
    let at = lines[0].iter().position(|column| column == name).unwrap();
    let line =
        |line: &Vec<String>| (line[0].clone(), line[1].clone(), line[2].clone(), line[at].clone());
    lines[1..].iter().map(line).collect()
}

fn number(out: &Path, step: &str, candidate: &str, name: &str) -> f64 {
    let found = column(out, name).into_iter().find(|row| (&*row.0, &*row.1) == (step, candidate));
    let (.., value) = found.unwrap_or_else(|| panic!("{step} of {candidate}"));
    value.parse().unwrap_or_else(|_| panic!("{name} of {step} is `{value}`"))
}

fn failures(out: &Path) -> i64 {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    database.query_row("SELECT COUNT(*) FROM failure", [], |row| row.get(0)).unwrap()
}

#[test]
fn sqlite_runs_all_steps_and_has_all_rows() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: &format!("clients = 2\ntables = 2\n{ALL}"),
        candidates: &[SQLITE, ("other", SQLITE.1)],
    };
    let finished = inserts.run(&test, &out, &["--keep-data"]);
    finished
        .assert_code(0)
        .assert_prints("of queries with inserts at ")
        .assert_prints(" inserting ")
        .assert_prints("2 clients on 2 tables")
        .assert_prints("one after another")
        .assert_prints("other against base")
        .assert_prints("--details");
    assert!(!finished.out.contains("absolute "), "{}", finished.out);
    let names: Vec<String> =
        column(&out, "step").into_iter().filter(|row| row.1 == "base").map(|row| row.0).collect();
    assert_eq!(names, ALL_STEPS);
    assert_eq!(number(&out, "l.i0", "base", "rows"), 12_000.0);
    assert_eq!(number(&out, "l.i2", "other", "rows"), 400.0);
    for step in ["qr500", "qp500"] {
        // Two clients at 500 rows/s for a second; on a busy machine some rows are not inserted in time.
        assert!((1.0..=1_000.0).contains(&number(&out, step, "base", "rows")));
        assert!(number(&out, step, "base", "qps") > 0.0);
        assert_eq!(number(&out, step, "base", "target_ips"), 1_000.0);
    }
    assert_eq!(number(&out, "qp100", "base", "rows_per_query"), 1.0);
    assert!((9.0..=10.0).contains(&number(&out, "qr500", "base", "rows_per_query")));
    assert!(column(&out, "wrong").iter().all(|row| row.3 == "0"));
    let cpu = number(&out, "l.i0", "base", "cpupq");
    assert!((0.01..1_000.0).contains(&cpu), "{cpu} µs per row");

    for candidate in ["base", "other"] {
        let steps = column(&out, "rows").into_iter().filter(|row| row.1 == candidate);
        let rows: i64 = steps.map(|row| row.3.parse::<i64>().unwrap_or(0)).sum();
        let file = out.join("data").join(candidate).join("data.sqlite");
        let database = Connection::open(file).unwrap();
        let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(one("SELECT (SELECT COUNT(*) FROM pi1) + (SELECT COUNT(*) FROM pi2)"), rows);
        // Every index has all rows and no others.
        let check: String =
            database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        assert_eq!(one("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'index'"), 6);
        assert_eq!(one("SELECT COUNT(*) FROM pi1 WHERE LENGTH(data) <> 10 OR price > 499"), 0);
    }
    // The same seed inserts the same rows into every engine.
    let sum = |candidate: &str| {
        let file = out.join("data").join(candidate).join("data.sqlite");
        let sql = "SELECT SUM(customerid * price + productid) FROM pi2 WHERE transactionid <= 9000";
        Connection::open(file).unwrap().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(sum("base"), sum("other"));

    let series = read_csv(&out.join("insert_series.csv"));
    assert!(series.iter().filter(|line| line[0] == "qr500" && line[1] == "base").count() >= 1);
    let report = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(report.pointer("/insert/steps/0/name").unwrap(), "l.i0");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("id=\"step-qr500\""));
}

#[test]
fn servers_run_all_steps_and_leave_nothing() {
    run_all_steps(&[INNODB, POSTGRES]);
}

/// MySQL is Debian's, if its packages can be fetched.
#[test]
#[ignore = "full"]
fn all_systems_run_all_steps_and_leave_nothing() {
    let mut candidates = vec![INNODB, MYROCKS, POSTGRES];
    // Keeps others from removing it.
    let release = server_release::mysql();
    if release.is_some() {
        candidates.push(("mysql", MYSQL));
    }
    let (candidates, _releases) = with_older_releases(&candidates);
    run_all_steps(&candidates);
}

fn run_all_steps(candidates: &[(&str, &str)]) {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: &format!("clients = 2\ntables = 1\ndelete_per_insert = true\n{ALL}"),
        candidates,
    };
    let finished = inserts.run(&test, &out, &[]);
    finished.assert_code(0);
    // Rows were counted after the settling pause and at the end.
    assert_eq!(failures(&out), 0);
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let sql = "SELECT COUNT(*) FROM state_snapshot WHERE json LIKE '%\"rows\":12000,%'";
    let counted: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    let expected = 2 * candidates.len() as i64;
    assert_eq!(counted, expected, "with a delete for each insert the tables keep their size");
    for (candidate, _) in candidates {
        let names: Vec<String> = column(&out, "step")
            .into_iter()
            .filter(|row| row.1 == *candidate)
            .map(|row| row.0)
            .collect();
        assert_eq!(names, ALL_STEPS);
        for name in ["ips", "cpupq", "ccpupq", "cspq", "dbgb", "rss", "maxop"] {
            assert!(number(&out, "l.i1", candidate, name) > 0.0, "{name} of {candidate}");
        }
        for step in ["qr100", "qp500"] {
            for name in ["qps", "dps", "insert_p99_s", "query_max_s", "delete_max_s"] {
                assert!(number(&out, step, candidate, name) > 0.0, "{name} of {candidate}");
            }
        }
        assert!(number(&out, "qp500", candidate, "rows_per_query") > 0.9);
    }
    assert!(!out.join("data").exists());
}

#[test]
fn repeats_rotate_the_first_candidate_and_report_the_spread() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 1_000, i1 = 0 }\nrates = 100\nseconds = \"1s\"\nrepeats = 2",
        candidates: &[SQLITE, ("other", SQLITE.1)],
    };
    let finished = inserts.run(&test, &out, &["--details"]);
    finished
        .assert_code(0)
        .assert_prints("Order 1:")
        .assert_prints("Order 2:")
        .assert_prints("greatest");
    let first: Vec<i64> = stored_steps(&out)
        .iter()
        .filter(|step| step.place == 0 && step.name == "l.i0")
        .map(|step| step.candidate)
        .collect();
    assert!(first == [0, 1] || first == [1, 0], "{first:?}");
    // One candidate at a time: steps of two candidates are never mixed.
    let order: Vec<(i64, i64)> =
        stored_steps(&out).iter().map(|step| (step.repeat, step.candidate)).collect();
    assert!(order.chunks(4).all(|chunk| chunk.iter().all(|one| *one == chunk[0])), "{order:?}");
}

#[test]
fn unreachable_insert_rate_is_marked_without_a_backlog() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 1_000, i1 = 0 }\nrates = [100, 2_000_000]\nseconds = \"2s\"",
        candidates: &[SQLITE],
    };
    let finished = inserts.run(&test, &out, &[]);
    finished.assert_code(0).assert_prints("not sustained: base in q2000000");
    let row = |step: &str, name: &str| {
        column(&out, name).into_iter().find(|row| row.0 == step).unwrap().3
    };
    // A busy machine can stop it for half a second.
    let reached = row("q100", "sustained") == "true" && row("q100", "overdue_rows") == "0";
    assert!(reached || number(&out, "q100", "base", "overdue_rows") < 200.0);
    assert_eq!(row("q2000000", "sustained"), "false");
    assert!(number(&out, "q2000000", "base", "overdue_rows") > 2_000_000.0);
    // The last inserted commit was due at the start of the step.
    let longest = number(&out, "q2000000", "base", "insert_max_s");
    assert!(longest >= 1.9, "{longest} s");
    assert!(number(&out, "q2000000", "base", "insert_service_max_s") < longest);
    assert!(number(&out, "q2000000", "base", "rss") < 0.3);
    let seconds = number(&out, "q2000000", "base", "seconds");
    assert!(seconds >= 1.9, "{seconds} s");
}

/// Waits until a step or a later one has begun, since a short step may be missed.
fn wait_for(run: &mut Background, out: &Path, wanted: usize, of: &[&str]) -> String {
    let mut found = String::new();
    run.wait_until(&format!("step {}", of[wanted]), || {
        let steps = stored_steps(out);
        let Some(step) = steps.last().filter(|step| !step.is_done()) else { return false };
        found.clone_from(&step.name);
        of.iter().position(|name| *name == step.name).is_some_and(|at| at >= wanted)
    });
    found
}

#[test]
fn run_killed_in_each_step_repeats_no_finished_step() {
    let test = TestDir::new();
    let out = test.out();
    let steps = ["l.i0", "l.x", "l.i1", "l.i2", "settle", "q100", "q500"];
    let inserts = Inserts {
        section: "rows = { i0 = 100_000, i1 = 15_000, i2 = 3_000 }\nrates = [100, 500]\n\
                  seconds = \"2s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&test, &out, &[]);
    let mut done: Vec<Step> = Vec::new();
    let mut killed = Vec::new();
    for wanted in 0..steps.len() {
        killed.push(wait_for(&mut run, &out, wanted, &steps));
        run.signal(libc::SIGKILL);
        assert_eq!(run.end().code, None);
        let now: Vec<Step> = stored_steps(&out).into_iter().filter(Step::is_done).collect();
        assert_eq!(now[..done.len()], done, "a finished step has changed");
        done = now;
        run = Background::start(resume_command(&out, &["--keep-data"]), test.path());
    }
    run.end().assert_code(0);
    let all = stored_steps(&out);
    let names: Vec<&str> = all.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, steps);
    assert_eq!(all[..done.len()], done, "a finished step was run again");
    assert!(all.iter().all(Step::is_done));
    for step in &all[1..] {
        let broken = killed.contains(&step.name);
        assert!(!broken || step.from == "copy", "{} went on from {}", step.name, step.from);
    }
    // The row count shows that no killed step is there twice.
    assert_eq!(failures(&out), 0);
    let database = Connection::open(out.join("data/base/data.sqlite")).unwrap();
    let rows: i64 = database.query_row("SELECT COUNT(*) FROM pi1", [], |row| row.get(0)).unwrap();
    // On a busy machine, some rows of the rates are not inserted in time.
    let of_rates: f64 = steps[5..].iter().map(|step| number(&out, step, "base", "rows")).sum();
    assert_eq!(rows as f64, 118_000.0 + of_rates);
    assert!((600.0..=1_200.0).contains(&of_rates), "{of_rates}");
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
#[ignore = "full"]
fn killed_servers_resume_from_copies_of_their_data() {
    let test = TestDir::new();
    let out = test.out();
    let steps = ["l.i0", "l.x", "l.i1", "settle", "q100"];
    let inserts = Inserts {
        section: "rows = { i0 = 4_000, i1 = 4_000 }\nrates = 100\nseconds = \"3s\"",
        candidates: &[INNODB, MYROCKS, POSTGRES],
    };
    let mut run = inserts.start(&test, &out, &[]);
    let mut done = 0;
    // Once per candidate, in the step after which all copies exist.
    for turn in 0..3 {
        run.wait_until("the queries", || {
            let all = stored_steps(&out);
            all.len() == (turn + 1) * steps.len()
                && all.last().is_some_and(|last| last.seconds >= 1)
        });
        run.signal(libc::SIGKILL);
        run.end();
        done = stored_steps(&out).iter().filter(|step| step.is_done()).count();
        assert_eq!(done, (turn + 1) * steps.len() - 1);
        run = Background::start(resume_command(&out, &[]), test.path());
    }
    run.end().assert_code(0).assert_prints("from the copy of its data made before q100");
    let all = stored_steps(&out);
    assert_eq!(all.len(), 3 * steps.len());
    assert!(done < all.len() && all.iter().all(Step::is_done));
    assert_eq!(failures(&out), 0, "rows are missing or there twice");
    for step in &all {
        assert_eq!(step.from == "copy", step.name == "q100", "{step:?}");
    }
    assert!(!out.join("data").exists());
}

#[test]
fn killed_candidate_without_copies_starts_over_and_reports_it() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 1_000 }\nrates = 100\nseconds = \"2s\"\ncopies = false",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&test, &out, &[]);
    run.wait_until("the queries", || stored_steps(&out).last().is_some_and(|s| s.name == "q100"));
    run.signal(libc::SIGKILL);
    run.end();
    resume(&out, &[]).assert_code(0).assert_prints("from its first step");
    assert!(stored_steps(&out).iter().all(|step| step.is_done() && step.from == "step"));
    assert_eq!(failures(&out), 0);
}

/// Makes a run killed in a step one that was killed between it and the step before: `copy` is the data from
/// then.
fn undo_last_step(out: &Path, copy: &str) {
    let id = stored_steps(out).last().unwrap().id;
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    database.execute("DELETE FROM insert_second WHERE step = ?1", [id]).unwrap();
    database.execute("DELETE FROM insert_step WHERE id = ?1", [id]).unwrap();
    let data = out.join("data");
    std::fs::remove_dir_all(data.join("base")).unwrap();
    std::fs::rename(data.join(copy), data.join("base")).unwrap();
}

#[test]
#[ignore = "full"]
fn candidate_that_fails_between_steps_continues_with_its_data() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 1_000 }\nrates = 100\nseconds = \"3s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&test, &out, &[]);
    run.wait_until("the queries", || stored_steps(&out).last().is_some_and(|s| s.name == "q100"));
    run.signal(libc::SIGKILL);
    run.end();
    undo_last_step(&out, ".after-4-of-0-base");
    let before = stored_steps(&out);
    let file = out.join("data/base/data.sqlite");
    let data = std::fs::read(&file).unwrap();
    std::fs::write(&file, [1; 8192]).unwrap();
    resume(&out, &[]).assert_code(1).assert_prints("INCOMPLETE");
    std::fs::write(&file, data).unwrap();
    resume(&out, &[]).assert_code(0).assert_prints("between steps");
    let after = stored_steps(&out);
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), 5);
    assert_eq!(failures(&out), 1);
}

#[test]
fn ctrl_c_stops_within_a_second_and_run_resumes() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 0 }\nrates = 100\nseconds = \"4s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&test, &out, &[]);
    run.wait_until("the queries", || stored_steps(&out).last().is_some_and(|s| s.name == "q100"));
    let asked = Instant::now();
    run.signal(libc::SIGINT);
    run.end().assert_code(130).assert_prints("INCOMPLETE").assert_prints("--resume");
    assert!(asked.elapsed() < Duration::from_secs(60));
    resume(&out, &[]).assert_code(0);
    assert_eq!(failures(&out), 0);
}

/// Stops a server for two seconds, as writing back or compacting may do.
fn stalled(candidate: (&'static str, &'static str)) {
    const RATE: f64 = 50.0;
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 0 }\nrates = 100\nseconds = \"12s\"\n\
                  rows_per_commit = { q = 2 }",
        candidates: &[candidate],
    };
    let mut run = inserts.start(&test, &out, &[]);
    run.wait_until("the queries", || {
        stored_steps(&out).last().is_some_and(|step| step.name == "q100" && step.seconds >= 3)
    });
    let home = home_of_servers(&out).unwrap();
    let server = server_of(&out, candidate.0).unwrap();
    let mut all = processes_in(&home);
    all.retain(|pid| *pid != server);
    all.insert(0, server);
    let stopped = Instant::now();
    all.iter().for_each(|pid| send(*pid, libc::SIGSTOP));
    std::thread::sleep(Duration::from_secs(2));
    let pause = stopped.elapsed().as_secs_f64();
    all.iter().for_each(|pid| send(*pid, libc::SIGCONT));
    run.end().assert_code(0);

    let steps = stored_steps(&out);
    let step = steps.iter().find(|step| step.name == "q100").unwrap();
    let near = |what: &str, found: f64, expected: f64| {
        let off = (found / expected - 1.0).abs();
        assert!(off < 0.05, "{what} of {}: {found}, expected {expected}", candidate.0);
    };
    // Commits due in the pause waited for its end and for the commits before them. How long these
    // took is not stored: not less than the fastest ones and not more than the slowest ones.
    let service = step.times("/inserts/service");
    let mut served: Vec<f64> = service
        .iter()
        .filter(|(nanos, _)| *nanos < 1_000_000_000)
        .flat_map(|(nanos, count)| vec![*nanos as f64 / 1e9; *count as usize])
        .collect();
    let expected = |served: &[f64]| {
        let waiting = ((pause - 1.0) * RATE) as usize;
        let mean = served.iter().take(waiting).sum::<f64>() / waiting as f64;
        // A machine that is too busy for this rate never catches up.
        let left = (1.0 - RATE * mean).max(0.0);
        (pause - 1.0) * RATE / left
    };
    served.sort_by(f64::total_cmp);
    // What was stopped also had to be served.
    let slowest = served.last().copied().unwrap_or_default();
    for longest in ["inserts", "queries"] {
        let found = step.number(&format!("/{longest}/longest")) / 1e9;
        assert!(
            0.95 * pause < found && found < 1.05 * pause + slowest,
            "the longest of {longest} of {}: {found}, expected {pause} to {pause} + {slowest}",
            candidate.0
        );
    }
    let least = expected(&served);
    served.reverse();
    let most = expected(&served);
    let above = |path: &str| {
        let times = step.times(path);
        times.iter().filter(|(nanos, _)| *nanos > 1_000_000_000).map(|(_, n)| *n).sum::<u64>()
    };
    let total: u64 = step.times("/inserts/response").iter().map(|(_, count)| count).sum();
    let waited = above("/inserts/response") as f64;
    assert!(
        0.95 * least < waited && waited < 1.05 * most,
        "commits above 1 s of {}: {waited}, expected {least} to {most}",
        candidate.0
    );
    near("the number of commits", total as f64, 12.0 * RATE);
    // In a closed loop, only one commit would have been slow.
    assert_eq!(above("/inserts/service"), 1);
    assert!(number(&out, "q100", candidate.0, "stalls") >= 1.0);
}

#[test]
#[ignore = "full"]
fn innodb_stall_is_reported_with_its_length() {
    stalled(INNODB);
}

#[test]
#[ignore = "full"]
fn postgresql_stall_is_reported_with_its_length() {
    stalled(POSTGRES);
}

#[test]
fn killed_server_fails_only_its_candidate() {
    let test = TestDir::new();
    let out = test.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 0 }\nrates = 100\nseconds = \"3s\"",
        candidates: &[INNODB, SQLITE],
    };
    let mut run = inserts.start(&test, &out, &[]);
    run.wait_until("the queries", || {
        let last = stored_steps(&out).pop();
        last.is_some_and(|step| step.name == "q100" && step.candidate == 0 && step.seconds >= 1)
    });
    send(server_of(&out, "innodb").unwrap(), libc::SIGKILL);
    run.end().assert_code(1).assert_prints("innodb").assert_prints("INCOMPLETE");
    let done = |candidate| {
        stored_steps(&out).iter().filter(|s| s.candidate == candidate && s.is_done()).count()
    };
    assert_eq!((done(0), done(1)), (3, 4), "the other one went on");
    resume(&out, &[]).assert_code(0);
    assert_eq!((done(0), done(1)), (4, 4));
    wait_until("the data is gone", || !out.join("data").exists());
}

#[test]
fn full_disk_is_reported_and_run_resumes_with_free_space() {
    let test = TestDir::new();
    let Some(disk) = SmallDisk::mount(test.path(), 120) else { return };
    let out = disk.path().join("out");
    let inserts = Inserts {
        section: "rows = { i0 = 1_000, i1 = 100_000 }\nrates = 100\nseconds = \"1s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&test, &out, &[]);
    run.wait_until("inserts", || stored_steps(&out).last().is_some_and(|step| step.name == "l.i1"));
    disk.fill();
    let finished = run.end();
    assert_says_full(&finished);
    disk.free();
    let before = stored_steps(&out).into_iter().filter(Step::is_done).collect::<Vec<_>>();
    resume(&out, &["--keep-data"]).assert_code(0);
    let after = stored_steps(&out);
    assert_eq!(after[..before.len()], before);
    assert!(after.iter().all(Step::is_done));
    let data = Connection::open(out.join("data/base/data.sqlite")).unwrap();
    let rows: i64 = data.query_row("SELECT COUNT(*) FROM pi1", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 101_100);
}

#[test]
fn microbenchmarks_beside_inserts_are_refused_and_check_prints_the_plan() {
    let test = TestDir::new();
    let text = "name = \"x\"\nbaseline = \"a\"\n[insert_benchmark]\n[workload]\nrows = 5000\n\
                [[candidate]]\nname = \"a\"\nsystem = \"sqlite\"\nvariant = \"o1\"\n";
    let file = test.file(text);
    let check = |file: &Path| crate::common::call([Path::new("check"), file]);
    check(&file)
        .assert_code(2)
        .assert_prints("`workload` cannot be combined with [insert_benchmark]");
    let file = test.file(&text.replace("[workload]\nrows = 5000\n", ""));
    check(&file)
        .assert_code(0)
        .assert_prints("l.i0")
        .assert_prints("q1000")
        .assert_prints("clients ×");
}
