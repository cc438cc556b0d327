//! Runs in which servers are optimized while they run.

use crate::common::{
    Background, INNODB, MYSQL, POSTGRES, Servers, TestDir, home_of_servers, is_gone, processes_in,
    read_json, resume, send, server_of, slices_of_live_run, wait_until,
};
use crate::servers::{POINT, column, count, start_and_wait};

#[test]
fn live_servers_are_optimized_before_each_microbenchmark() {
    optimize_servers(false);
}

/// MySQL is Debian's, if its packages can be fetched.
#[test]
#[ignore = "full"]
fn live_servers_also_of_mysql_are_optimized_before_each_microbenchmark() {
    // Keeps others from removing it.
    let release = crate::server_release::mysql();
    optimize_servers(release.is_some());
}

/// Servers are optimized again before each microbenchmark, with all processes of PostgreSQL.
fn optimize_servers(with_mysql: bool) {
    let test = TestDir::new();
    let live = "[candidate.live]\nprofile = \"1s\"\nmax_pause = \"500ms\"";
    let mariadb = format!("{}\n{live}\nforce = true", INNODB.1);
    let postgres = format!("{}\n{live}\nforce = true", POSTGRES.1);
    let refused = format!("{}\n{live}\nfrequency = 50", INNODB.1);
    let mysql = format!("{MYSQL}\n{live}\nforce = true");
    let mut candidates =
        vec![INNODB, ("live", &mariadb), ("live-postgres", &postgres), ("few-samples", &refused)];
    if with_mysql {
        candidates.push(("live-mysql", &mysql));
    }
    let optimized = if with_mysql { 3 } else { 2 };
    let servers = Servers {
        clients: "4",
        microbenchmarks: "\"point-query.pre_range=100\", \"read-write_range=10\"",
        candidates: &candidates,
        ..Servers::default()
    };
    let out = test.out();
    let run = servers.run(&test, &[]);
    run.assert_code(0).assert_prints("live optimizer");
    // One with too few samples is measured with its original code, and that is reported.
    run.assert_prints("few-samples is measured without the live optimizer: too few samples");
    run.assert_prints("few-samples was not optimized");
    let original = "SELECT COUNT(*) FROM optimization WHERE candidate = 3 AND json ->> 'refused' \
                    LIKE 'too few samples%' AND json ->> 'functions' = 0";
    assert_eq!(count(&out, original), 2);
    let relative = column(&out, "relative_qps");
    assert_eq!(relative.iter().filter(|(candidate, ..)| candidate == "few-samples").count(), 2);
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
    let moved = "SELECT COUNT(*) FROM optimization WHERE json ->> 'functions' > 20";
    assert_eq!(count(&out, moved), 2 * optimized);
    // Executions are counted while the server works, in one process per server only.
    let counted = "SELECT COUNT(*) FROM optimization WHERE candidate = 1 AND json ->> \
                   '$.counts.counted.executions' > 100000";
    // On a busy machine, counting may be too expensive, or the server may execute too little meanwhile.
    let estimated = "SELECT COUNT(*) FROM optimization WHERE candidate = 1 AND json ->> \
                     '$.counts.estimated.reason' IS NOT NULL";
    let counted = count(&out, counted);
    assert_eq!(counted + count(&out, estimated), 2, "{counted}");
    if counted == 0 {
        dbdyno_fuzz::skip("in part: the machine is too busy to count executions");
    }
    let sessions = "SELECT MIN(json ->> 'processes') FROM optimization WHERE candidate = 2";
    assert!(count(&out, sessions) > 4);
    // The other candidates had the same warm-up.
    let warmup = "SELECT COUNT(DISTINCT n) FROM (SELECT candidate, COUNT(*) AS n FROM slice WHERE \
                  warmup GROUP BY microbenchmark, candidate)";
    assert_eq!(count(&out, warmup), 1);
    let report = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    let all = report["optimizations"].as_array().unwrap().len();
    assert_eq!(i64::try_from(all).unwrap(), 2 * (optimized + 1));
    assert!(!out.join("data").exists());
}

/// An experiment that optimizes the candidate `live`, and the condition after which its server can
/// be killed.
fn start_live(test: &TestDir) -> Background {
    let live =
        format!("{}\nlive = {{ profile = \"1s\", max_pause = \"500ms\", force = true }}", INNODB.1);
    let servers = Servers {
        clients: "2",
        budget: "3s",
        candidates: &[INNODB, ("live", &live)],
        ..Servers::default()
    };
    let out = test.out();
    let mut run = start_and_wait(&servers, test);
    let counted = "SELECT COUNT(*) FROM slice WHERE NOT warmup";
    run.wait_until("slices that count", || count(&out, counted) >= 8);
    run
}

#[test]
#[ignore = "full"]
fn restarted_server_is_optimized_again() {
    let test = TestDir::new();
    let out = test.out();
    let run = start_live(&test);
    send(server_of(&out, "live").unwrap(), libc::SIGKILL);
    run.end().assert_code(0).assert_prints("restarted");
    let again = "SELECT json ->> 'after_restart' FROM optimization ORDER BY id DESC";
    assert_eq!(count(&out, again), 1);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM optimization"), 2);
}

#[test]
#[ignore = "full"]
fn server_killed_in_warm_up_is_warmed_up_and_optimized() {
    let test = TestDir::new();
    let out = test.out();
    let live =
        format!("{}\nlive = {{ profile = \"2s\", max_pause = \"500ms\", force = true }}", INNODB.1);
    let servers = Servers { candidates: &[INNODB, ("live", &live)], ..Servers::default() };
    let mut run = servers.start(&test, &[]);
    let own = "SELECT COUNT(*) FROM slice WHERE warmup AND candidate = 1";
    run.wait_until("slices of its warm-up", || {
        slices_of_live_run(&out, POINT) > 0 && count(&out, own) >= 3
    });
    send(server_of(&out, "live").unwrap(), libc::SIGKILL);
    run.end().assert_code(0).assert_prints("restarted");
    let moved = "SELECT COUNT(*) FROM optimization WHERE json ->> 'functions' > 20";
    assert_eq!(count(&out, moved), 1);
    // A complete warm-up, in addition to the slices before the server died.
    assert!(count(&out, own) >= 3 + 8);
    assert_eq!(column(&out, "relative_qps").len(), 1);
}

#[test]
fn resumed_run_optimizes_its_new_servers() {
    let test = TestDir::new();
    let out = test.out();
    let run = start_live(&test);
    let home = home_of_servers(&out).unwrap();
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers end", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    resume(&out, &[]).assert_code(0);
    let sessions =
        "SELECT COUNT(DISTINCT session) FROM optimization WHERE NOT json ->> 'after_restart'";
    assert_eq!(count(&out, sessions), 2);
    assert_eq!(column(&out, "relative_qps").len(), 1);
}
