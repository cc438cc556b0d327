//! The insert benchmark: all its steps on real databases, kills, stalls, rates, full disks.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::common::{
    Background, INNODB, Inserts, Lab, MYROCKS, POSTGRES, SmallDisk, Step, home_of_servers,
    processes_in, read_csv, read_json, resume, resume_command, send, server_of, steps_of,
    wait_until,
};

const SQLITE: (&str, &str) = ("base", "system = \"sqlite\"\nvariant = \"o1\"");

/// Every kind of step.
const ALL_STEPS: [&str; 9] =
    ["l.i0", "l.x", "l.i1", "l.i2", "settle", "qr100", "qp100", "qr500", "qp500"];

const ALL: &str = "rows = { i0 = 6_000, i1 = 3_000, i2 = 200 }\nrates = [100, 500]\n\
                   seconds = \"2s\"\nqueries = \"both\"";

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
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: &format!("clients = 2\ntables = 2\n{ALL}"),
        candidates: &[SQLITE, ("other", "system = \"sqlite\"\nvariant = \"o0\"")],
    };
    let said = inserts.run(&lab, &out, &["--keep-data"]);
    said.assert_code(0).assert_says("2 clients on 2 tables").assert_says("one after another");
    let names: Vec<String> =
        column(&out, "step").into_iter().filter(|row| row.1 == "base").map(|row| row.0).collect();
    assert_eq!(names, ALL_STEPS);
    assert_eq!(number(&out, "l.i0", "base", "rows"), 12_000.0);
    assert_eq!(number(&out, "l.i2", "other", "rows"), 400.0);
    for step in ["qr500", "qp500"] {
        // Two clients at 500 rows/s for two seconds, less what is due in the last moment.
        assert_eq!(number(&out, step, "base", "rows"), 2_000.0);
        assert!(number(&out, step, "base", "qps") > 100.0);
        assert_eq!(number(&out, step, "base", "target_ips"), 1_000.0);
    }
    assert_eq!(number(&out, "qp100", "base", "rows_per_query"), 1.0);
    assert!((9.0..=10.0).contains(&number(&out, "qr500", "base", "rows_per_query")));
    assert!(column(&out, "wrong").iter().all(|row| row.3 == "0"));
    let cpu = number(&out, "l.i0", "base", "cpupq");
    assert!((0.01..1_000.0).contains(&cpu), "{cpu} µs per row");

    let rows: i64 = [12_000, 6_000, 400, 400, 400, 2_000, 2_000].into_iter().sum();
    for candidate in ["base", "other"] {
        let file = out.join("data").join(candidate).join("data.sqlite");
        let database = Connection::open(file).unwrap();
        let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(one("SELECT (SELECT COUNT(*) FROM pi1) + (SELECT COUNT(*) FROM pi2)"), rows);
        // Every index has every row, and nothing else.
        let check: String =
            database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        assert_eq!(one("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'index'"), 6);
        assert_eq!(one("SELECT COUNT(*) FROM pi1 WHERE LENGTH(data) <> 10 OR price > 499"), 0);
    }
    // The same seed inserts the same rows, whoever takes them in.
    let sum = |candidate: &str| {
        let file = out.join("data").join(candidate).join("data.sqlite");
        let sql = "SELECT SUM(customerid * price + productid) FROM pi2";
        Connection::open(file).unwrap().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(sum("base"), sum("other"));

    let series = read_csv(&out.join("insert_series.csv"));
    assert!(series.iter().filter(|line| line[0] == "qr500" && line[1] == "base").count() >= 2);
    let report = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(report.pointer("/insert/steps/0/name").unwrap(), "l.i0");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("id=\"step-qr500\""));
}

#[test]
fn three_engines_run_all_steps_and_leave_nothing() {
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: &format!("clients = 2\ntables = 1\ndelete_per_insert = true\n{ALL}"),
        candidates: &[INNODB, MYROCKS, POSTGRES],
    };
    let said = inserts.run(&lab, &out, &[]);
    said.assert_code(0);
    // Rows were counted after the rest and at the end.
    assert_eq!(failures(&out), 0);
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let sql = "SELECT COUNT(*) FROM certificate WHERE json LIKE '%\"rows\":12000,%'";
    let counted: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(counted, 6, "with a delete for each insert the tables keep their size");
    for candidate in ["innodb", "myrocks", "postgres"] {
        let names: Vec<String> = column(&out, "step")
            .into_iter()
            .filter(|row| row.1 == candidate)
            .map(|row| row.0)
            .collect();
        assert_eq!(names, ALL_STEPS);
        for name in ["ips", "cpupq", "ccpupq", "cspq", "dbgb", "rss", "maxop"] {
            assert!(number(&out, "l.i1", candidate, name) > 0.0, "{name} of {candidate}");
        }
        for step in ["qr100", "qp500"] {
            for name in ["qps", "dps", "p50", "insert_p99_s", "query_max_s", "delete_max_s"] {
                assert!(number(&out, step, candidate, name) > 0.0, "{name} of {candidate}");
            }
        }
        assert!(number(&out, "qp500", candidate, "rows_per_query") > 0.9);
    }
    assert!(!out.join("data").exists());
}

#[test]
fn repeats_rotate_the_first_candidate_and_report_the_spread() {
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: "rows = { i0 = 1_000, i1 = 0 }\nrates = 100\nseconds = \"1s\"\nrepeats = 2",
        candidates: &[SQLITE, ("other", "system = \"sqlite\"\nvariant = \"o0\"")],
    };
    let said = inserts.run(&lab, &out, &[]);
    said.assert_code(0).assert_says("Order 1:").assert_says("Order 2:").assert_says("greatest");
    let first: Vec<i64> = steps_of(&out)
        .iter()
        .filter(|step| step.place == 0 && step.name == "l.i0")
        .map(|step| step.candidate)
        .collect();
    assert!(first == [0, 1] || first == [1, 0], "{first:?}");
    // One at a time: nobody's steps are between another one's.
    let order: Vec<(i64, i64)> =
        steps_of(&out).iter().map(|step| (step.repeat, step.candidate)).collect();
    assert!(order.chunks(4).all(|chunk| chunk.iter().all(|one| *one == chunk[0])), "{order:?}");
}

#[test]
fn unreachable_insert_rate_is_marked_without_a_backlog() {
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: "rows = { i0 = 1_000, i1 = 0 }\nrates = [100, 2_000_000]\nseconds = \"2s\"",
        candidates: &[SQLITE],
    };
    let said = inserts.run(&lab, &out, &[]);
    said.assert_code(0).assert_says("the rate was not sustained");
    let row = |step: &str, name: &str| {
        column(&out, name).into_iter().find(|row| row.0 == step).unwrap().3
    };
    assert_eq!(
        (row("q100", "sustained").as_str(), row("q100", "overdue_rows").as_str()),
        ("true", "0")
    );
    assert_eq!(row("q2000000", "sustained"), "false");
    assert!(number(&out, "q2000000", "base", "overdue_rows") > 2_000_000.0);
    // The last one to be inserted had been due since the first moments of the step.
    let longest = number(&out, "q2000000", "base", "insert_max_s");
    assert!((1.9..4.0).contains(&longest), "{longest} s");
    assert!(number(&out, "q2000000", "base", "insert_service_max_s") < longest);
    assert!(number(&out, "q2000000", "base", "rss") < 0.3);
    let seconds = number(&out, "q2000000", "base", "seconds");
    assert!((1.9..4.0).contains(&seconds), "{seconds} s");
}

/// Waits until a step has begun, or one after it: a short one may be missed.
fn wait_for(run: &mut Background, out: &Path, wanted: usize, of: &[&str]) -> String {
    let mut found = String::new();
    run.wait_until(&format!("step {}", of[wanted]), || {
        let steps = steps_of(out);
        let Some(step) = steps.last().filter(|step| !step.is_done()) else { return false };
        found.clone_from(&step.name);
        of.iter().position(|name| *name == step.name).is_some_and(|at| at >= wanted)
    });
    found
}

#[test]
fn run_killed_in_each_step_repeats_no_finished_step() {
    let lab = Lab::new();
    let out = lab.out();
    let steps = ["l.i0", "l.x", "l.i1", "l.i2", "settle", "q100", "q500"];
    let inserts = Inserts {
        section: "rows = { i0 = 100_000, i1 = 15_000, i2 = 3_000 }\nrates = [100, 500]\n\
                  seconds = \"2s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    let mut done: Vec<Step> = Vec::new();
    let mut killed = Vec::new();
    for wanted in 0..steps.len() {
        killed.push(wait_for(&mut run, &out, wanted, &steps));
        run.signal(libc::SIGKILL);
        assert_eq!(run.end().code, None);
        let now: Vec<Step> = steps_of(&out).into_iter().filter(Step::is_done).collect();
        assert_eq!(now[..done.len()], done, "a finished step has changed");
        done = now;
        run = Background::start(resume_command(&out, &["--keep-data"]), lab.path());
    }
    run.end().assert_code(0);
    let all = steps_of(&out);
    let names: Vec<&str> = all.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, steps);
    assert_eq!(all[..done.len()], done, "a finished step was run again");
    assert!(all.iter().all(Step::is_done));
    for step in &all[1..] {
        let broken = killed.contains(&step.name);
        assert!(!broken || step.from == "copy", "{} went on from {}", step.name, step.from);
    }
    // Its rows were counted: those of steps that were killed are not there twice.
    assert_eq!(failures(&out), 0);
    let database = Connection::open(out.join("data/base/data.sqlite")).unwrap();
    let rows: i64 = database.query_row("SELECT COUNT(*) FROM pi1", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 100_000 + 15_000 + 3_000 + 200 + 1_000);
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn killed_servers_resume_from_copies_of_their_data() {
    let lab = Lab::new();
    let out = lab.out();
    let steps = ["l.i0", "l.x", "l.i1", "settle", "q100"];
    let inserts = Inserts {
        section: "rows = { i0 = 4_000, i1 = 4_000 }\nrates = 100\nseconds = \"3s\"",
        candidates: &[INNODB, MYROCKS, POSTGRES],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    let mut done = 0;
    // Once in each of the candidates, in the step in which all copies have been made.
    for turn in 0..3 {
        run.wait_until("the queries", || {
            let all = steps_of(&out);
            all.len() == (turn + 1) * steps.len()
                && all.last().is_some_and(|last| last.seconds >= 1)
        });
        run.signal(libc::SIGKILL);
        run.end();
        done = steps_of(&out).iter().filter(|step| step.is_done()).count();
        assert_eq!(done, (turn + 1) * steps.len() - 1);
        run = Background::start(resume_command(&out, &[]), lab.path());
    }
    run.end().assert_code(0).assert_says("from a copy of its data, made before q100");
    let all = steps_of(&out);
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
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 1_000 }\nrates = 100\nseconds = \"3s\"\ncopies = false",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    run.wait_until("the queries", || steps_of(&out).last().is_some_and(|s| s.name == "q100"));
    run.signal(libc::SIGKILL);
    run.end();
    resume(&out, &[]).assert_code(0).assert_says("again from its first step");
    assert!(steps_of(&out).iter().all(|step| step.is_done() && step.from == "step"));
    assert_eq!(failures(&out), 0);
}

#[test]
fn ctrl_c_stops_within_a_second_and_run_resumes() {
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 0 }\nrates = 100\nseconds = \"4s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    run.wait_until("the queries", || steps_of(&out).last().is_some_and(|s| s.name == "q100"));
    let asked = Instant::now();
    run.signal(libc::SIGINT);
    run.end().assert_code(130).assert_says("INCOMPLETE").assert_says("--resume");
    assert!(asked.elapsed() < Duration::from_secs(10));
    resume(&out, &[]).assert_code(0);
    assert_eq!(failures(&out), 0);
}

/// A server that stands still for two seconds, as one that writes back or compacts may.
fn stalled(candidate: (&'static str, &'static str)) {
    const RATE: f64 = 50.0;
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 0 }\nrates = 100\nseconds = \"12s\"\n\
                  rows_per_commit = { q = 2 }",
        candidates: &[candidate],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    run.wait_until("the queries", || {
        steps_of(&out).last().is_some_and(|step| step.name == "q100" && step.seconds >= 3)
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

    let steps = steps_of(&out);
    let step = steps.iter().find(|step| step.name == "q100").unwrap();
    let near = |what: &str, found: f64, expected: f64| {
        let off = (found / expected - 1.0).abs();
        assert!(off < 0.05, "{what} of {}: {found}, expected {expected}", candidate.0);
    };
    near("the longest insert", step.number("/inserts/longest") / 1e9, pause);
    near("the longest query", step.number("/queries/longest") / 1e9, pause);
    // Commits that were due in the pause waited for its end, and for those before them.
    let service = step.times("/inserts/service");
    // How long those before take in all is a matter of the mean, without the one that stalled.
    let served: Vec<_> = service.iter().filter(|(nanos, _)| *nanos < 1_000_000_000).collect();
    let sum: f64 = served.iter().map(|(nanos, count)| *nanos as f64 / 1e9 * *count as f64).sum();
    let mean = sum / served.iter().map(|(_, count)| *count as f64).sum::<f64>();
    let expected = (pause - 1.0) * RATE / (1.0 - RATE * mean);
    let above = |path: &str| {
        let times = step.times(path);
        times.iter().filter(|(nanos, _)| *nanos > 1_000_000_000).map(|(_, n)| *n).sum::<u64>()
    };
    let total: u64 = step.times("/inserts/response").iter().map(|(_, count)| count).sum();
    near("the share above 1 s", above("/inserts/response") as f64, expected);
    near("the number of commits", total as f64, 12.0 * RATE);
    // Sent one after another, only one of them noticed: what a closed loop would have said.
    assert_eq!(above("/inserts/service"), 1);
    assert!(number(&out, "q100", candidate.0, "stalls") >= 1.0);
}

#[test]
fn innodb_stall_is_reported_with_its_length() {
    stalled(INNODB);
}

#[test]
fn postgresql_stall_is_reported_with_its_length() {
    stalled(POSTGRES);
}

#[test]
fn killed_server_fails_only_its_candidate() {
    let lab = Lab::new();
    let out = lab.out();
    let inserts = Inserts {
        section: "rows = { i0 = 2_000, i1 = 0 }\nrates = 100\nseconds = \"3s\"",
        candidates: &[INNODB, SQLITE],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    run.wait_until("the queries", || {
        let last = steps_of(&out).pop();
        last.is_some_and(|step| step.name == "q100" && step.candidate == 0 && step.seconds >= 1)
    });
    send(server_of(&out, "innodb").unwrap(), libc::SIGKILL);
    run.end().assert_code(1).assert_says("innodb").assert_says("INCOMPLETE");
    let done = |candidate| {
        steps_of(&out).iter().filter(|s| s.candidate == candidate && s.is_done()).count()
    };
    assert_eq!((done(0), done(1)), (3, 4), "the other one went on");
    resume(&out, &[]).assert_code(0);
    assert_eq!((done(0), done(1)), (4, 4));
    wait_until("the data is gone", || !out.join("data").exists());
}

#[test]
fn full_disk_is_reported_and_run_resumes_with_free_space() {
    let lab = Lab::new();
    let Some(disk) = SmallDisk::mount(lab.path(), 120) else { return };
    let out = disk.path().join("out");
    let inserts = Inserts {
        section: "rows = { i0 = 1_000, i1 = 100_000 }\nrates = 100\nseconds = \"1s\"",
        candidates: &[SQLITE],
    };
    let mut run = inserts.start(&lab, &out, &[]);
    run.wait_until("inserts", || steps_of(&out).last().is_some_and(|step| step.name == "l.i1"));
    disk.fill();
    let said = run.end();
    said.assert_code(1);
    assert!(said.all().contains("full"), "{}", said.all());
    disk.free();
    let before = steps_of(&out).into_iter().filter(Step::is_done).collect::<Vec<_>>();
    resume(&out, &["--keep-data"]).assert_code(0);
    let after = steps_of(&out);
    assert_eq!(after[..before.len()], before);
    assert!(after.iter().all(Step::is_done));
    let data = Connection::open(out.join("data/base/data.sqlite")).unwrap();
    let rows: i64 = data.query_row("SELECT COUNT(*) FROM pi1", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 101_100);
}

#[test]
fn microbenchmarks_beside_inserts_are_refused_and_check_prints_the_plan() {
    let lab = Lab::new();
    let text = "name = \"x\"\nbaseline = \"a\"\n[insert_benchmark]\n[workload]\nrows = 5000\n\
                [[candidate]]\nname = \"a\"\nsystem = \"sqlite\"\nvariant = \"o1\"\n";
    let file = lab.file(text);
    let check = |file: &Path| crate::common::call([Path::new("check"), file]);
    check(&file).assert_code(2).assert_says("`workload` is for microbenchmarks");
    let file = lab.file(&text.replace("[workload]\nrows = 5000\n", ""));
    check(&file).assert_code(0).assert_says("l.i0").assert_says("q1000").assert_says("clients ×");
}
