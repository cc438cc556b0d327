//! Runs on real servers that dbdyno starts: MariaDB with InnoDB and MyRocks, and PostgreSQL.

use std::path::Path;

use rusqlite::Connection;

use crate::common::{
    Background, INNODB, Lab, MYROCKS, POSTGRES, Servers, home_of_servers, is_gone, processes_in,
    read_csv, read_json, resume, send, server_of, slices_of_live_run, wait_until,
};

const POINT: &str = "point-query.pre_range=100";

/// One column of `relative.csv`, by candidate and microbenchmark.
fn column(out: &Path, name: &str) -> Vec<(String, String, String)> {
    let lines = read_csv(&out.join("relative.csv"));
    let at = lines[0].iter().position(|column| column == name).unwrap();
    let line = |line: &Vec<String>| (line[2].clone(), line[0].clone(), line[at].clone());
    lines[1..].iter().map(line).collect()
}

/// How many rows a query on `run.sqlite` counts.
fn count(out: &Path, sql: &str) -> i64 {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn two_engines_of_mariadb_are_compared_and_nothing_is_left() {
    let lab = Lab::new();
    let servers = Servers {
        control: true,
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=10\", \
                          \"update-index_range=100\", \"read-write_range=10\", \
                          \"points-covered-si_range=100\", \"delete_range=100\", \
                          \"insert_range=100\"",
        candidates: &[INNODB, MYROCKS],
        ..Servers::default()
    };
    let mut run = servers.start(&lab, &[]);
    let out = lab.out();
    run.wait_until("slices", || slices_of_live_run(&out, POINT) >= 3);
    let home = home_of_servers(&out).unwrap();
    assert_eq!(processes_in(&home).len(), 3, "two candidates and the control");
    run.end().assert_code(0).assert_says("myrocks");

    assert_eq!(column(&out, "errors").iter().filter(|(_, _, errors)| errors != "0").count(), 0);
    let rows = column(&out, "relative_qps");
    assert_eq!(rows.len(), 2 * 7, "{rows:?}");
    for name in ["relative_qps", "cpu_us_per_query", "client_cpu_us_per_query", "cs_per_query"] {
        for (candidate, microbenchmark, value) in column(&out, name) {
            let value: f64 = value.parse().unwrap_or_default();
            assert!(value > 0.0, "{name} of {candidate} on {microbenchmark}: {value}");
        }
    }
    // The same events on the same data give the same answers, whatever the engine.
    let differing = "SELECT COUNT(*) FROM (SELECT 1 FROM slice GROUP BY microbenchmark, block \
                     HAVING COUNT(DISTINCT digest) > 1 OR COUNT(DISTINCT affected) > 1)";
    assert_eq!(count(&out, differing), 0);
    let report = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap()).to_string();
    assert!(report.contains("history"), "InnoDB's state is in the report");

    assert_eq!(processes_in(&home), Vec::<u32>::new());
    assert!(!home.exists(), "{} is still there", home.display());
    assert!(!out.join("data").exists());
}

#[test]
fn postgresql_with_prepared_and_with_text_statements() {
    let lab = Lab::new();
    let servers = Servers {
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=100\", \
                          \"write-only_range=10000\", \"range-notcovered-si_range=100\"",
        candidates: &[POSTGRES, ("text", "system = \"postgresql\"\nstatements = \"text\"")],
        ..Servers::default()
    };
    let out = lab.out();
    servers.run(&lab, &[]).assert_code(0);
    assert_eq!(column(&out, "relative_qps").len(), 4);
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
    let differing = "SELECT COUNT(*) FROM (SELECT 1 FROM slice GROUP BY microbenchmark, block \
                     HAVING COUNT(DISTINCT digest) > 1)";
    assert_eq!(count(&out, differing), 0);
    let with_server_cpu = "SELECT COUNT(*) FROM slice WHERE server_cpu_ns > 0";
    assert_eq!(count(&out, with_server_cpu), count(&out, "SELECT COUNT(*) FROM slice"));
}

#[test]
fn a_sweep_measures_every_number_of_clients() {
    let lab = Lab::new();
    let servers = Servers {
        clients: "[1, 4, 16]",
        microbenchmarks: "\"point-query.pre_range=100\", \"read-write_range=10\"",
        candidates: &[INNODB, POSTGRES],
        ..Servers::default()
    };
    let out = lab.out();
    servers.run(&lab, &[]).assert_code(0).assert_says("clients");
    let clients = column(&out, "clients");
    assert_eq!(clients.len(), 2 * 3, "{clients:?}");
    // Clients that meet at a row give way; nobody answers wrongly.
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
}

/// Types, collations and plans differ; what the statements return must not.
#[test]
fn four_systems_answer_alike() {
    let lab = Lab::new();
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
    let out = lab.out();
    servers.run(&lab, &[]).assert_code(0);
    let errors = column(&out, "errors");
    assert_eq!(errors.len(), 3 * 5, "{errors:?}");
    assert!(errors.iter().all(|(_, _, errors)| errors == "0"), "{errors:?}");
    let differing = "SELECT COUNT(*) FROM (SELECT 1 FROM slice GROUP BY microbenchmark, block \
                     HAVING COUNT(DISTINCT digest) > 1)";
    assert_eq!(count(&out, differing), 0);
}

#[test]
fn a_run_that_was_killed_while_it_loaded_a_server_goes_on() {
    let lab = Lab::new();
    let servers = Servers { rows: 300_000, candidates: &[INNODB], ..Servers::default() };
    let out = lab.out();
    let mut run = servers.start(&lab, &[]);
    run.wait_until("a server", || {
        home_of_servers(&out).is_some_and(|home| !processes_in(&home).is_empty())
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    let home = home_of_servers(&out).unwrap();
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers end", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    assert_eq!(count(&out, "SELECT COUNT(*) FROM slice"), 0, "it was not killed while loading");
    resume(&out, &[]).assert_code(0);
    assert!(!home.exists());
}

#[test]
fn a_server_that_is_killed_while_it_is_loaded_is_told() {
    let lab = Lab::new();
    let servers = Servers { rows: 300_000, candidates: &[INNODB], ..Servers::default() };
    let out = lab.out();
    let mut run = servers.start(&lab, &[]);
    run.wait_until("a server", || {
        home_of_servers(&out).is_some_and(|home| !processes_in(&home).is_empty())
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    let home = home_of_servers(&out).unwrap();
    processes_in(&home).into_iter().for_each(|pid| send(pid, libc::SIGKILL));
    run.end().assert_code(1).assert_says("killed").assert_says("server.log");
    resume(&out, &[]).assert_code(0);
    assert!(!home.exists());
}

fn start_and_wait(servers: &Servers<'_>, lab: &Lab) -> Background {
    let mut run = servers.start(lab, &[]);
    let out = lab.out();
    run.wait_until("slices", || slices_of_live_run(&out, POINT) >= 10);
    run
}

const DIES: (&str, &str) =
    ("dies", "system = \"mariadb\"\nengine = \"innodb\"\nrestarts_after_death = 0");

#[test]
fn a_server_that_dies_is_started_again_once() {
    let lab = Lab::new();
    let servers = Servers {
        candidates: &[INNODB, ("other", "system = \"mariadb\"\nengine = \"innodb\"")],
        budget: "3s",
        ..Servers::default()
    };
    let out = lab.out();
    let run = start_and_wait(&servers, &lab);
    let server = server_of(&out, "other").unwrap();
    send(server, libc::SIGKILL);
    run.end().assert_code(0).assert_says("started again");
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure WHERE kind = 'lost'"), 1);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure"), 1);
    assert_eq!(column(&out, "relative_qps").len(), 1);
}

#[test]
fn a_server_that_may_not_be_started_again_takes_its_candidate_out() {
    let lab = Lab::new();
    let servers = Servers {
        candidates: &[INNODB, DIES, ("other", "system = \"mariadb\"\nengine = \"innodb\"")],
        microbenchmarks: "\"point-query.pre_range=100\", \"read-only.pre_range=10\"",
        budget: "2s",
        ..Servers::default()
    };
    let out = lab.out();
    let run = start_and_wait(&servers, &lab);
    send(server_of(&out, "dies").unwrap(), libc::SIGKILL);
    let said = run.end();
    // What the server's log says last is there to look at.
    said.assert_code(1).assert_says("dies").assert_says("it was killed");
    let of_other = column(&out, "relative_qps").into_iter().filter(|row| row.0 == "other").count();
    assert_eq!(of_other, 2, "the others went on");
}

#[test]
fn servers_end_with_dbdyno_and_the_run_goes_on() {
    let lab = Lab::new();
    let servers = Servers {
        candidates: &[INNODB, POSTGRES],
        microbenchmarks: "\"point-query.pre_range=100\", \"update-nonindex_range=100\"",
        budget: "1500ms",
        ..Servers::default()
    };
    let out = lab.out();
    let run = start_and_wait(&servers, &lab);
    let home = home_of_servers(&out).unwrap();
    assert!(processes_in(&home).len() >= 2);
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers end", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    resume(&out, &[]).assert_code(0);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM microbenchmark WHERE done = 0"), 0);
    assert!(!home.exists());
}

#[test]
fn clean_removes_what_an_interrupted_run_left() {
    let lab = Lab::new();
    let out = lab.out();
    let run = start_and_wait(&Servers { budget: "5s", ..Servers::default() }, &lab);
    let home = home_of_servers(&out).unwrap();
    run.signal(libc::SIGINT);
    run.end().assert_code(130);
    assert!(home.exists(), "an interrupted run keeps its data");
    crate::common::call([Path::new("clean"), out.as_path()]).assert_code(0);
    assert!(!home.exists());
    assert!(!out.join("data").exists());
    assert!(out.join("run.sqlite").exists(), "what was measured stays");
}

#[test]
fn more_connections_than_the_server_allows() {
    let lab = Lab::new();
    let few = "system = \"mariadb\"\nconfiguration = { max_connections = 100 }";
    let servers = Servers { clients: "500", candidates: &[("few", few)], ..Servers::default() };
    let said = servers.run(&lab, &[]);
    said.assert_code(1).assert_says("Too many connections");
    assert!(!said.all().contains("panicked"));
}

#[test]
fn a_setting_that_the_server_refuses_comes_with_its_own_words() {
    let lab = Lab::new();
    let wrong = "system = \"mariadb\"\nconfiguration = { innodb_buffer_pool_siez = \"1G\" }";
    let servers = Servers { candidates: &[("wrong", wrong)], ..Servers::default() };
    servers.run(&lab, &[]).assert_code(1).assert_says("innodb_buffer_pool_siez");
}

/// Optimized while they run, before each microbenchmark anew; a session of its own for each client
/// of PostgreSQL, too.
#[test]
fn servers_are_optimized_in_a_run() {
    let lab = Lab::new();
    let live = "[candidate.live]\nprofile = \"1s\"\nstop = \"500ms\"";
    let mariadb = format!("{}\n{live}", INNODB.1);
    let postgres = format!("{}\n{live}", POSTGRES.1);
    let servers = Servers {
        clients: "4",
        microbenchmarks: "\"point-query.pre_range=100\", \"read-write_range=10\"",
        candidates: &[INNODB, ("live", &mariadb), ("live-postgres", &postgres)],
        ..Servers::default()
    };
    let out = lab.out();
    servers.run(&lab, &[]).assert_code(0).assert_says("live optimizer");
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
    let moved = "SELECT COUNT(*) FROM optimization WHERE json ->> 'functions' > 20";
    assert_eq!(count(&out, moved), 4);
    let sessions = "SELECT MIN(json ->> 'processes') FROM optimization WHERE candidate = 2";
    assert!(count(&out, sessions) > 4);
    // The others had the same warm-up.
    let warmup = "SELECT COUNT(DISTINCT n) FROM (SELECT candidate, COUNT(*) AS n FROM slice WHERE \
                  warmup GROUP BY microbenchmark, candidate)";
    assert_eq!(count(&out, warmup), 1);
    let report = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(report["optimizations"].as_array().unwrap().len(), 4);
    assert!(!out.join("data").exists());
}

/// An experiment whose candidate `live` is optimized, and when enough of it is measured that its
/// server can be ended.
fn start_live(lab: &Lab) -> Background {
    let live = format!("{}\nlive = {{ profile = \"1s\", stop = \"500ms\" }}", INNODB.1);
    let servers = Servers {
        clients: "2",
        budget: "3s",
        candidates: &[INNODB, ("live", &live)],
        ..Servers::default()
    };
    let out = lab.out();
    let mut run = start_and_wait(&servers, lab);
    let counted = "SELECT COUNT(*) FROM slice WHERE NOT warmup";
    run.wait_until("slices that count", || count(&out, counted) >= 8);
    run
}

#[test]
fn a_server_that_is_started_again_is_optimized_again() {
    let lab = Lab::new();
    let out = lab.out();
    let run = start_live(&lab);
    send(server_of(&out, "live").unwrap(), libc::SIGKILL);
    run.end().assert_code(0).assert_says("started again");
    let again = "SELECT json ->> 'again' FROM optimization ORDER BY id DESC";
    assert_eq!(count(&out, again), 1);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM optimization"), 2);
}

#[test]
fn a_resumed_run_optimizes_its_new_servers() {
    let lab = Lab::new();
    let out = lab.out();
    let run = start_live(&lab);
    let home = home_of_servers(&out).unwrap();
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers end", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    resume(&out, &[]).assert_code(0);
    let sessions = "SELECT COUNT(DISTINCT session) FROM optimization WHERE NOT json ->> 'again'";
    assert_eq!(count(&out, sessions), 2);
    assert_eq!(column(&out, "relative_qps").len(), 1);
}
