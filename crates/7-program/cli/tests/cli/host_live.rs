//! The live optimizer on servers of another host.

use crate::common::{Host, Servers, TestDir, send, slices_of_live_run};
use crate::hosts::{run, start};
use crate::servers::{column, count};

const READ: &str = "point-query.pre_range=100";

const LIVE: &str = "live = { profile = \"1s\", max_pause = \"500ms\", force = true }";

fn on_host(system: &str, more: &str) -> String {
    format!("system = \"{system}\"\nhost = \"db1\"\n{more}")
}

#[test]
#[ignore = "full"]
fn servers_on_a_host_are_optimized_before_each_microbenchmark() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let (plain, mariadb) = (on_host("mariadb", ""), on_host("mariadb", LIVE));
    let postgres = on_host("postgresql", LIVE);
    let few = "live = { profile = \"1s\", max_pause = \"500ms\", frequency = 50 }";
    let refused = on_host("mariadb", few);
    let servers = Servers {
        sections: &host.section(),
        clients: "4",
        microbenchmarks: "\"point-query.pre_range=100\", \"read-write_range=10\"",
        candidates: &[
            ("plain", &plain),
            ("live", &mariadb),
            ("live-postgres", &postgres),
            ("few-samples", &refused),
        ],
        ..Servers::default()
    };
    let out = test.out();
    let finished = run(&host, servers.command(&test, &[]));
    finished.assert_code(0).assert_prints("live optimizer");
    finished.assert_prints("few-samples was not optimized");
    host.wait_until_clean();
    let moved = "SELECT COUNT(*) FROM optimization WHERE json ->> 'functions' > 20";
    assert_eq!(count(&out, moved), 4);
    let counted = "SELECT COUNT(*) FROM optimization WHERE candidate = 1 AND json ->> \
                   '$.counts.counted.executions' > 100000";
    // On a busy machine, counting may be too expensive, or the server may execute too little meanwhile.
    let estimated = "SELECT COUNT(*) FROM optimization WHERE candidate = 1 AND (json ->> \
                     '$.counts.estimated.reason' LIKE 'counting takes % times the CPU time%' OR json ->> \
                     '$.counts.estimated.reason' LIKE '%the process is mostly idle%')";
    let counted = count(&out, counted);
    assert!(counted > 0 && counted + count(&out, estimated) == 2, "{counted}");
    let sessions = "SELECT MIN(json ->> 'processes') FROM optimization WHERE candidate = 2";
    assert!(count(&out, sessions) > 4);
    let original = "SELECT COUNT(*) FROM optimization WHERE candidate = 3 AND json ->> 'refused' \
                    LIKE 'too few samples%' AND json ->> 'functions' = 0";
    assert_eq!(count(&out, original), 2);
    assert!(column(&out, "errors").iter().all(|(_, _, errors)| errors == "0"));
    assert_eq!(column(&out, "relative_qps").len(), 6);
}

#[test]
fn restarted_server_on_a_host_is_optimized_again() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let (plain, live) = (on_host("mariadb", ""), on_host("mariadb", LIVE));
    let servers = Servers {
        sections: &host.section(),
        clients: "2",
        budget: "3s",
        candidates: &[("plain", &plain), ("live", &live)],
        ..Servers::default()
    };
    let out = test.out();
    let mut running = start(&host, servers.command(&test, &[]), &test);
    let measured = "SELECT COUNT(*) FROM slice WHERE NOT warmup";
    running.wait_until("slices that count", || {
        slices_of_live_run(&out, READ) > 0 && count(&out, measured) >= 8
    });
    let processes = host.processes();
    let is_live = |line: &str| line.contains("mariadbd") && line.contains("/live/");
    let server = processes.iter().find(|(_, line)| is_live(line)).unwrap();
    send(server.0, libc::SIGKILL);
    running.end().assert_code(0).assert_prints("restarted");
    host.wait_until_clean();
    let again = "SELECT json ->> 'after_restart' FROM optimization ORDER BY id DESC";
    assert_eq!(count(&out, again), 1);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM optimization"), 2);
}
