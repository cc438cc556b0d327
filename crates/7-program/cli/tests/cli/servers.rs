//! Runs with private servers: MariaDB with InnoDB and MyRocks, and PostgreSQL.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dbdyno_run::StoredData;
use rusqlite::Connection;

use crate::common::{
    Background, INNODB, MYROCKS, MYSQL, POSTGRES, SLEEP, Servers, Slice, Stored, TestDir, call,
    finish, home_of_servers, is_gone, modify_run, poll, processes_in, read_csv, read_json, resume,
    send, server_of, slices_of_live_run, wait_until, with_older_releases,
};
use crate::server_release;

pub const POINT: &str = "point-query.pre_range=100";

/// Blocks in which candidates gave different answers.
pub const DIFFERING_ANSWERS: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM slice GROUP BY \
                                 microbenchmark, block HAVING COUNT(DISTINCT digest) > 1)";

/// One column of `relative.csv`, by candidate and microbenchmark.
pub fn column(out: &Path, name: &str) -> Vec<(String, String, String)> {
    let lines = read_csv(&out.join("relative.csv"));
    let at = lines[0].iter().position(|column| column == name).unwrap();
    let line = |line: &Vec<String>| (line[2].clone(), line[0].clone(), line[at].clone());
    lines[1..].iter().map(line).collect()
}

/// The count that a query on `run.sqlite` returns.
pub fn count(out: &Path, sql: &str) -> i64 {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Asserts that the clients of servers waited in this way in every slice.
fn assert_waited(out: &Path, wait: &str) {
    let json = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(json["client_wait"], wait);
    let of_servers = "SELECT COUNT(*) FROM slice WHERE server_cpu_ns IS NOT NULL";
    let polled = count(out, &format!("{of_servers} AND polling_ns <= cpu_ns"));
    let expected = if wait == SLEEP { 0 } else { count(out, of_servers) };
    assert_eq!(polled, expected);
    if wait != SLEEP {
        assert!(count(out, "SELECT SUM(polling_ns) FROM slice") > 0);
    }
}

#[test]
fn two_mariadb_engines_are_compared_and_leave_nothing() {
    let test = TestDir::new();
    let servers = Servers {
        control: true,
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=10\", \
                          \"update-index_range=100\", \"read-write_range=10\", \
                          \"points-covered-si_range=100\", \"delete_range=100\", \
                          \"insert_range=100\"",
        candidates: &[INNODB, MYROCKS],
        wait: poll(),
        ..Servers::default()
    };
    let mut run = servers.start(&test, &[]);
    let out = test.out();
    run.wait_until("slices", || slices_of_live_run(&out, POINT) >= 3);
    let home = home_of_servers(&out).unwrap();
    assert_eq!(processes_in(&home).len(), 3, "two candidates and the control");
    run.end().assert_code(0).assert_prints("myrocks");
    assert_waited(&out, poll());

    assert_eq!(column(&out, "errors").iter().filter(|(_, _, errors)| errors != "0").count(), 0);
    let rows = column(&out, "relative_qps");
    assert_eq!(rows.len(), 2 * 7, "{rows:?}");
    for name in ["relative_qps", "cpu_us_per_query", "client_cpu_us_per_query", "cs_per_query"] {
        for (candidate, microbenchmark, value) in column(&out, name) {
            let value: f64 = value.parse().unwrap_or_default();
            assert!(value > 0.0, "{name} of {candidate} on {microbenchmark}: {value}");
        }
    }
    // The same events on the same data return the same answers with every engine.
    let differing = "SELECT COUNT(*) FROM (SELECT 1 FROM slice GROUP BY microbenchmark, block \
                     HAVING COUNT(DISTINCT digest) > 1 OR COUNT(DISTINCT changed_rows) > 1)";
    assert_eq!(count(&out, differing), 0);
    let report = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert!(report.to_string().contains("history"), "InnoDB's state is in the report");
    // Background work is known for all slices except the first after each settling and start. It
    // is part of the cost of a statement.
    let unknown = "SELECT COUNT(*) FROM slice WHERE server_background_ns IS NULL";
    let first = "SELECT COUNT(*) FROM slice WHERE server_background_ns IS NULL AND block = 0";
    assert_eq!((count(&out, unknown), count(&out, first)), (3 * 7, 3 * 7));
    let costs = |sum: &str| {
        let sql = format!(
            "SELECT CAST(1e6 * SUM({sum}) / SUM(statements) AS INTEGER) FROM slice JOIN \
             microbenchmark m ON m.id = microbenchmark WHERE m.name = 'insert_range=100' \
             AND candidate = 0 AND NOT warmup"
        );
        count(&out, &sql) as f64 / 1e9
    };
    let innodb = report["microbenchmarks"].as_array().unwrap().iter();
    let innodb = innodb.rev().find(|one| one["name"] == "insert_range=100").unwrap();
    let figure = |name: &str| innodb["baseline"][name].as_f64().unwrap();
    assert!(figure("background_cpu_us_per_query") > 0.0);
    for (name, sum) in [
        ("background_cpu_us_per_query", "server_background_ns"),
        ("cpu_us_per_query", "server_cpu_ns + server_background_ns"),
    ] {
        assert!(
            (figure(name) - costs(sum)).abs() < 0.001,
            "{name} {} {}",
            figure(name),
            costs(sum)
        );
    }

    assert_eq!(processes_in(&home), Vec::<u32>::new());
    assert!(!home.exists(), "{} is still there", home.display());
    assert!(!out.join("data").exists());
}

#[test]
#[ignore = "full"]
fn complete_run_of_servers_is_extended_where_cpu_time_shows_no_difference() {
    const WRITE: &str = "update-index_range=100";
    let test = TestDir::new();
    let servers = Servers {
        microbenchmarks: "\"point-query.pre_range=100\", \"update-index_range=100\"",
        candidates: &[INNODB, ("other", INNODB.1)],
        ..Servers::default()
    };
    let out = test.out();
    servers.start(&test, &[]).end().assert_code(0);
    // Throughput differs nowhere with certainty, CPU time only for the write.
    modify_run(
        &out,
        &format!(
            "UPDATE slice SET qps = 1000 + 100 * candidate * (block % 5 - 2), \
             server_cpu_ns = statements * CASE WHEN candidate = 0 THEN 10000 \
             WHEN microbenchmark = (SELECT id FROM microbenchmark WHERE name = '{WRITE}') \
             THEN 5000 + block % 3 ELSE 10000 + 200 * (block % 5 - 2) END"
        ),
    );
    let counts = || {
        let stored = Stored::open(&out);
        [POINT, WRITE].map(|name| stored.count_of(name))
    };
    let before = counts();
    resume(&out, &["--more", "600ms"]).assert_code(0);
    let after = counts();
    assert!(after[0] > before[0], "{before:?} to {after:?}");
    assert_eq!(after[1], before[1], "the write was measured again");
    assert_eq!(count(&out, DIFFERING_ANSWERS), 0);
    assert!(!out.join("data").exists());
}

/// The disk usage of a directory in bytes, once the holes of sparse files are written: copies of
/// logs may have some.
fn disk_usage(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let one = |entry: std::fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        let inside = if metadata.is_dir() { disk_usage(&entry.path()) } else { 0 };
        inside + metadata.len().max(512 * metadata.blocks())
    };
    entries.map(one).sum()
}

#[test]
fn check_estimates_the_data_size_of_innodb() {
    check_estimates_the_data_size(INNODB);
}

#[test]
#[ignore = "full"]
fn check_estimates_the_data_size_of_myrocks() {
    check_estimates_the_data_size(MYROCKS);
}

#[test]
#[ignore = "full"]
fn check_estimates_the_data_size_of_postgresql() {
    check_estimates_the_data_size(POSTGRES);
}

fn check_estimates_the_data_size(candidate: (&str, &str)) {
    let test = TestDir::new();
    let servers = Servers {
        rows: 50_000,
        control: true,
        clients: "[1, 2]",
        microbenchmarks: "\"update-index_range=100\", \"delete_range=100\", \
                          \"insert_range=100\"",
        candidates: &[candidate],
        ..Servers::default()
    };
    servers.run(&test, &["--keep-data"]).assert_code(0);
    let used = disk_usage(&home_of_servers(&test.out()).unwrap()) >> 20;
    call([Path::new("clean"), test.out().as_path()]).assert_code(0);
    let finished = call([Path::new("check"), &test.path().join("experiment.toml")]);
    let words = finished.out.split("Data: about ").nth(1).unwrap();
    let mut words = words.split_whitespace();
    let number: f64 = words.next().unwrap().parse().unwrap();
    let estimate = match words.next().unwrap() {
        "GiB" => 1024.0 * number,
        "MiB" => number,
        other => panic!("{other}"),
    } as u64;
    assert!(used <= estimate && estimate <= 3 * used, "{used} MiB used, {estimate} MiB estimated");
}

#[test]
fn postgresql_runs_prepared_and_text_statements() {
    let test = TestDir::new();
    let options = "jit = off\nshared_buffers = 320MB # of memory\nport = 1\nlisten_addresses '*'\n";
    std::fs::write(test.path().join("pg.conf"), options).unwrap();
    let text = "system = \"postgresql\"\nstatements = \"text\"\noptions = \"pg.conf\"";
    let servers = Servers {
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=100\", \
                          \"write-only_range=10000\", \"range-notcovered-si_range=100\"",
        candidates: &[POSTGRES, ("text", text)],
        wait: poll(),
        ..Servers::default()
    };
    let out = test.out();
    let finished = servers.run(&test, &[]);
    let left_out = "left out of pg.conf: port (line 3), listen_addresses (line 4): dbdyno sets it";
    finished.assert_code(0).assert_prints(left_out);
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    for warning in [
        "no difference in jit: it is off in the baseline",
        "the data is too small to feel shared_buffers",
    ] {
        assert!(report.contains(warning), "{warning}: {report}");
    }
    assert_waited(&out, poll());
    assert_eq!(column(&out, "relative_qps").len(), 4);
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
    assert_eq!(count(&out, DIFFERING_ANSWERS), 0);
    let with_server_cpu = "SELECT COUNT(*) FROM slice WHERE server_cpu_ns > 0";
    assert_eq!(count(&out, with_server_cpu), count(&out, "SELECT COUNT(*) FROM slice"));
}

#[test]
fn sweep_measures_every_number_of_clients() {
    let test = TestDir::new();
    let servers = Servers {
        clients: "[1, 4, 16]",
        microbenchmarks: "\"point-query.pre_range=100\", \"read-write_range=10\"",
        candidates: &[INNODB, POSTGRES],
        wait: poll(),
        ..Servers::default()
    };
    let out = test.out();
    servers.run(&test, &[]).assert_code(0).assert_prints("clients");
    assert_waited(&out, poll());
    let clients = column(&out, "clients");
    assert_eq!(clients.len(), 2 * 3, "{clients:?}");
    // Conflicting clients retry; no answer is wrong.
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
}

/// Types, collations and plans differ, results must not.
#[test]
fn four_systems_return_equal_answers() {
    let test = TestDir::new();
    let servers = Servers {
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=100\", \
                          \"range-notcovered-si.pre_range=100\", \"read-write_range=100\", \
                          \"points-covered-pk_range=100\"",
        candidates: &[
            ("sqlite", "system = \"sqlite\"\nvariant = \"o0\""),
            INNODB,
            MYROCKS,
            POSTGRES,
        ],
        ..Servers::default()
    };
    let out = test.out();
    servers.run(&test, &[]).assert_code(0);
    assert_waited(&out, SLEEP);
    let errors = column(&out, "errors");
    assert_eq!(errors.len(), 3 * 5, "{errors:?}");
    assert!(errors.iter().all(|(_, _, errors)| errors == "0"), "{errors:?}");
    assert_eq!(count(&out, DIFFERING_ANSWERS), 0);
}

#[test]
#[ignore = "full"]
fn mysql_runs_all_microbenchmarks_with_the_answers_of_mariadb() {
    let Some(_release) = server_release::mysql() else { return };
    let test = TestDir::new();
    let (candidates, _releases) = with_older_releases(&[INNODB, ("mysql", MYSQL)]);
    let servers = Servers {
        microbenchmarks: "\"all\"",
        rows: 11_000,
        budget: "150ms",
        candidates: &candidates,
        ..Servers::default()
    };
    let out = test.out();
    servers.run(&test, &[]).assert_code(0);
    let errors = column(&out, "errors");
    assert_eq!(errors.len(), 42 * (candidates.len() - 1), "{errors:?}");
    assert!(errors.iter().all(|(_, _, errors)| errors == "0"), "{errors:?}");
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure"), 0);
    assert_eq!(count(&out, DIFFERING_ANSWERS), 0);
}

/// Starts a run and waits until its server has loaded some rows.
fn start_and_wait_for_rows(test: &TestDir) -> (Background, PathBuf) {
    let servers = Servers { rows: 150_000, candidates: &[INNODB], ..Servers::default() };
    let out = test.out();
    let mut run = servers.start(test, &[]);
    run.wait_until("the first rows", || {
        home_of_servers(&out)
            .and_then(|home| size_of_file("sbtest1.ibd", &home))
            .is_some_and(|size| size > 1 << 20)
    });
    (run, home_of_servers(&out).unwrap())
}

/// The size in bytes of the first file with this name below a directory.
fn size_of_file(name: &str, directory: &Path) -> Option<u64> {
    std::fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let metadata = entry.metadata().ok()?;
        if metadata.is_dir() {
            size_of_file(name, &entry.path())
        } else {
            (entry.file_name() == name).then_some(metadata.len())
        }
    })
}

#[test]
fn run_killed_while_loading_a_server_resumes() {
    let test = TestDir::new();
    let out = test.out();
    let (run, home) = start_and_wait_for_rows(&test);
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers exit", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    assert_eq!(count(&out, "SELECT COUNT(*) FROM slice"), 0, "it was not killed while loading");
    resume(&out, &[]).assert_code(0);
    assert!(!home.exists());
}

#[test]
fn server_killed_while_loading_is_reported() {
    let test = TestDir::new();
    let out = test.out();
    let (run, home) = start_and_wait_for_rows(&test);
    processes_in(&home).into_iter().for_each(|pid| send(pid, libc::SIGKILL));
    let log = home.join("%2eloading-0/server.log");
    run.end().assert_code(1).assert_prints("killed").assert_prints(&log.to_string_lossy());
    assert!(log.is_file() && StoredData::of(&out).places.is_empty());
    resume(&out, &[]).assert_code(0);
    assert!(!home.exists());
}

pub fn start_and_wait(servers: &Servers<'_>, test: &TestDir) -> Background {
    let mut run = servers.start(test, &[]);
    let out = test.out();
    run.wait_until("slices", || slices_of_live_run(&out, POINT) >= 10);
    run
}

const DIES: (&str, &str) =
    ("dies", "system = \"mariadb\"\nengine = \"innodb\"\nrestarts_after_death = 0");

#[test]
fn killed_server_is_restarted_once() {
    check_restart_of_killed_server(&[("other", "system = \"mariadb\"\nengine = \"innodb\"")]);
}

#[test]
#[ignore = "full"]
fn killed_mysql_is_restarted_once() {
    // Fetched beforehand, or it is skipped.
    let Some(_release) = server_release::mysql() else { return };
    check_restart_of_killed_server(&[("other", MYSQL)]);
}

/// The server of the candidate `other` is killed while the baseline MariaDB goes on.
fn check_restart_of_killed_server(other: &[(&str, &str)]) {
    let test = TestDir::new();
    let servers = Servers {
        candidates: &[&[INNODB], other].concat(),
        budget: "3s",
        wait: poll(),
        ..Servers::default()
    };
    let out = test.out();
    let run = start_and_wait(&servers, &test);
    let server = server_of(&out, "other").unwrap();
    send(server, libc::SIGKILL);
    let finished = run.end();
    finished.assert_code(0).assert_prints("warning: other at point-query.pre_range=100: ");
    // Progress has one line; the log's lines are in the report.
    let while_it_ran = finished.err.split("dbdyno: ").next().unwrap();
    let line = while_it_ran.lines().find(|line| line.contains("restarted")).unwrap();
    assert!(line.contains("it was killed") && !line.contains("log"), "{line}");
    assert!(!while_it_ran.contains("FAILED") && !while_it_ran.contains("[Note]"), "{while_it_ran}");
    finished.assert_prints("the end of its log");
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure WHERE kind = 'lost'"), 1);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure"), 1);
    assert_eq!(column(&out, "relative_qps").len(), 1);
}

/// The rows of a lost slice stay missing, which is no wrong answer of a later microbenchmark.
#[test]
#[ignore = "full"]
fn lost_write_slice_excludes_later_answer_checks() {
    let test = TestDir::new();
    let servers = Servers {
        candidates: &[INNODB, ("other", "system = \"mariadb\"\nengine = \"innodb\"")],
        // Many more rows than updates: missing updates are not overwritten.
        rows: 100_000,
        microbenchmarks: "\"update-nonindex_range=100\", \"range-notcovered-pk_range=100\", \
                          \"scan_range=100\"",
        budget: "2s",
        ..Servers::default()
    };
    let out = test.out();
    let mut run = servers.start(&test, &[]);
    run.wait_until("slices", || slices_of_live_run(&out, "update-nonindex_range=100") >= 10);
    send(server_of(&out, "other").unwrap(), libc::SIGKILL);
    let finished = run.end();
    finished.assert_code(0).assert_prints("its data differed from that of the others");
    // The values read later do differ.
    let differing = "SELECT COUNT(*) FROM (SELECT 1 FROM slice JOIN microbenchmark m ON \
                     m.id = microbenchmark WHERE m.name <> 'update-nonindex_range=100' \
                     GROUP BY m.id, block HAVING COUNT(DISTINCT digest) > 1)";
    assert!(count(&out, differing) > 0, "the test shows nothing");
    let kinds = "SELECT COUNT(*) FROM failure WHERE kind = ";
    let of_kind = |kind: &str| count(&out, &format!("{kinds}'{kind}'"));
    assert_eq!((of_kind("lost"), of_kind("differs"), of_kind("wrong")), (1, 1, 0));
    let verdicts = column(&out, "verdict");
    assert!(verdicts.iter().all(|(_, _, verdict)| verdict != "failed"), "{verdicts:?}");
}

#[test]
#[ignore = "full"]
fn killed_server_beyond_restart_limit_fails_its_candidate() {
    let test = TestDir::new();
    let servers = Servers {
        candidates: &[INNODB, DIES, ("other", "system = \"mariadb\"\nengine = \"innodb\"")],
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=10\"",
        budget: "2s",
        ..Servers::default()
    };
    let out = test.out();
    let run = start_and_wait(&servers, &test);
    send(server_of(&out, "dies").unwrap(), libc::SIGKILL);
    let finished = run.end();
    // The last lines of the server's log are shown.
    finished.assert_code(1).assert_prints("dies").assert_prints("it was killed");
    let of_other = column(&out, "relative_qps").into_iter().filter(|row| row.0 == "other").count();
    assert_eq!(of_other, 2, "the others went on");
}

/// Servers that dbdyno leaves exit, and a resumed run completes the interrupted pass.
#[test]
fn servers_exit_with_dbdyno_and_run_resumes() {
    const SECOND: &str = "points-covered-pk.pre_range=100";
    let test = TestDir::new();
    let servers = Servers {
        candidates: &[INNODB, POSTGRES],
        microbenchmarks: "\"point-query.pre_range=100\", \"points-covered-pk.pre_range=100\", \
                          \"update-nonindex_range=100\", \"update-index_range=100\"",
        budget: "200ms",
        restarts: 2,
        ..Servers::default()
    };
    let out = test.out();
    let mut run = start_and_wait(&servers, &test);
    run.wait_until("the second microbenchmark", || slices_of_live_run(&out, SECOND) >= 2);
    let home = home_of_servers(&out).unwrap();
    assert!(processes_in(&home).len() >= 2);
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers end", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    resume(&out, &["--keep-data"]).assert_code(0);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM microbenchmark WHERE done = 0"), 0);

    let mut slices = Stored::open(&out).slices();
    let visits: Vec<(u32, u32)> =
        slices.iter().map(|slice| (slice.key.microbenchmark, slice.key.restart)).collect();
    let visits: Vec<(u32, u32)> = visits.chunk_by(|a, b| a == b).map(|visit| visit[0]).collect();
    // Each pass visits both reads, and later both writes. The interrupted one is visited again.
    let mut order: Vec<u32> = visits.iter().map(|visit| visit.0).collect();
    order.dedup();
    let first_write = order.iter().position(|one| *one >= 2).unwrap();
    let (reads, writes) = order.split_at(first_write);
    assert!(reads.len() >= 4 && reads.starts_with(&[0, 1]), "{visits:?}");
    assert!(writes.starts_with(&[2, 3, 2, 3]) && !writes.contains(&0), "{visits:?}");
    assert!(!writes.contains(&1), "{visits:?}");
    // The same start of one microbenchmark is never visited twice.
    assert_eq!(visits.iter().collect::<BTreeSet<_>>().len(), visits.len(), "{visits:?}");
    slices.sort_by_key(|slice| slice.key);
    for block in slices.chunk_by(|one, other| one.key == other.key) {
        let counts = |slice: &Slice| (slice.events, slice.rows, slice.errors, slice.wrong);
        assert!(block.iter().all(|slice| counts(slice) == counts(&block[0])), "{block:?}");
    }
    call([Path::new("clean"), out.as_path()]).assert_code(0);
    assert!(!home.exists());
}

#[test]
fn single_write_settles_before_each_start() {
    let test = TestDir::new();
    let servers = Servers {
        microbenchmarks: "\"update-index_range=100\"",
        restarts: 3,
        ..Servers::default()
    };
    let mut command = servers.command(&test, &[]);
    command.env("DBDYNO_LOG", "dbdyno_run=debug");
    let finished = finish(command);
    finished.assert_code(0);
    let starts = count(&test.out(), "SELECT COUNT(DISTINCT restart) FROM slice");
    assert!(starts >= 3, "{starts} starts");
    let settled = finished.all().matches(": settling").count();
    assert_eq!(settled as i64, starts, "{}", finished.all());
}

#[test]
fn clean_removes_data_of_an_interrupted_run() {
    let test = TestDir::new();
    let out = test.out();
    // A single candidate would be complete after a few blocks.
    let candidates = &[INNODB, ("other", "system = \"mariadb\"\nengine = \"innodb\"")];
    let run = start_and_wait(&Servers { budget: "5s", candidates, ..Servers::default() }, &test);
    let home = home_of_servers(&out).unwrap();
    run.signal(libc::SIGINT);
    // Servers of root have their data elsewhere.
    let data = out.canonicalize().unwrap().join("data");
    let place = if home.starts_with(&data) { out.join("data") } else { home.clone() };
    let place = format!("B in {}", place.display());
    run.end().assert_code(130).assert_prints("its data is kept").assert_prints(&place);
    assert!(home.exists(), "an interrupted run keeps its data");
    let cleaned = call([Path::new("clean"), out.as_path()]);
    cleaned.assert_code(0).assert_prints("removed ").assert_prints(&place);
    assert!(!home.exists());
    assert!(!out.join("data").exists());
    assert!(out.join("run.sqlite").exists(), "what was measured stays");
}

#[test]
fn too_many_connections_are_reported() {
    let test = TestDir::new();
    let few = "system = \"mariadb\"\nconfiguration = { max_connections = 100 }";
    let servers = Servers { clients: "500", candidates: &[("few", few)], ..Servers::default() };
    let finished = servers.run(&test, &[]);
    finished.assert_code(1).assert_prints("Too many connections");
    assert!(!finished.all().contains("panicked"));
}

#[test]
fn ignored_setting_is_refused_before_data_is_loaded() {
    let test = TestDir::new();
    let options = "[mysqld]\ninnodb-doublewrite=MAYBE\ninnodb_flush_log_at_trx_commit = 7\n\
                   loose-inodb-io-capacity = 300\nlog-bin\nskip-host-cache\n";
    std::fs::write(test.path().join("my.cnf"), options).unwrap();
    let ignored = "system = \"mariadb\"\noptions = \"my.cnf\"";
    let servers = Servers { candidates: &[("odd", ignored)], ..Servers::default() };
    let finished = servers.run(&test, &[]);
    finished
        .assert_code(1)
        .assert_prints("innodb_doublewrite: asked MAYBE → in force ON")
        .assert_prints("ignoring option '--innodb-doublewrite' due to invalid value 'MAYBE'")
        .assert_prints("innodb_flush_log_at_trx_commit: asked 7 → in force 3 (valid: 0 to 3)")
        .assert_prints("did you mean `innodb_io_capacity`?")
        .assert_prints("innodb_doublewrite (my.cnf:2), innodb_flush_log_at_trx_commit (my.cnf:3)");
    assert_eq!(count(&test.out(), "SELECT COUNT(*) FROM slice"), 0);
}

#[test]
fn misspelt_loose_option_is_found_before_data_is_loaded_and_no_useless_data_stays() {
    for (setting, message, is_loaded) in [
        ("loose-inodb-io-capacity", "did you mean `innodb_io_capacity`?", false),
        ("innodb_flush_log_at_trx_commit", "asked 7 → in force 3 (valid: 0 to 3)", true),
    ] {
        let test = TestDir::new();
        let odd = format!("system = \"mariadb\"\nconfiguration = {{ {setting} = 7 }}");
        let servers = Servers { candidates: &[INNODB, ("odd", &odd)], ..Servers::default() };
        let finished = servers.run(&test, &[]);
        finished.assert_code(1).assert_prints(message);
        assert_eq!(finished.all().contains(" rows with innodb"), is_loaded, "{}", finished.all());
        assert!(StoredData::of(&test.out()).places.is_empty(), "{}", finished.all());
    }
}

#[test]
fn setting_with_the_value_of_dbdynos_defaults_is_nothing_to_compare() {
    let test = TestDir::new();
    let candidates =
        [POSTGRES, ("jit", "system = \"postgresql\"\nconfiguration = { jit = false }")];
    let finished = Servers { candidates: &candidates, ..Servers::default() }.run(&test, &[]);
    finished
        .assert_code(1)
        .assert_prints("nothing to compare: no difference in jit: it is off in the baseline")
        .assert_prints("by dbdyno's defaults for benchmarks");
}

#[test]
fn rejected_setting_ends_the_run_with_the_server_log() {
    let test = TestDir::new();
    let file = test.path().join("my.cnf");
    std::fs::write(&file, "[server]\n\ninnodb-buffer-pool-siez = 1G\n").unwrap();
    let wrong = "system = \"mariadb\"\noptions = \"my.cnf\"";
    let servers = Servers { candidates: &[INNODB, ("wrong", wrong)], ..Servers::default() };
    let finished = servers.run(&test, &["--fail-if", "slower 5%"]);
    finished.assert_code(1).assert_prints("innodb_buffer_pool_siez (my.cnf:3)");
    let xml = std::fs::read_to_string(test.out().join("junit.xml")).unwrap();
    assert!(xml.contains("<testcase classname=\"wrong\""), "{xml}");
    assert!(xml.contains("<error message=\"wrong, the only candidate"), "{xml}");
    assert!(xml.contains("unknown variable") && xml.contains("(my.cnf:3)"), "{xml}");
    // The baseline alone is not measured.
    finished.assert_prints("wrong, the only candidate besides the baseline, failed at starting");
    finished.assert_prints("Nothing was measured: correct the cause");
    assert!(!finished.all().contains("--resume"), "{}", finished.all());
    assert_eq!(count(&test.out(), "SELECT COUNT(*) FROM slice"), 0);
    // There is nothing to resume, but the log that the message names.
    assert!(StoredData::of(&test.out()).places.is_empty(), "{}", finished.all());
    let log = home_of_servers(&test.out()).unwrap().join("wrong/server.log");
    assert!(log.is_file() && xml.contains(&*log.to_string_lossy()), "{xml}");
    // What an earlier session loaded and kept stays for the next one.
    for keep_data in [&["--keep-data"][..], &[]] {
        resume(&test.out(), keep_data).assert_code(1).assert_prints("its data is kept");
        assert!(!StoredData::of(&test.out()).places.is_empty());
    }
}
