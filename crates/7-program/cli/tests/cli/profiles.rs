//! Runs that sample stacks.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;

use crate::common::{Experiment, Stored, TestDir, call, resume, slices_of_live_run};

const PROFILED: Experiment<'_> = Experiment {
    control: false,
    rows: 2_000,
    clients: &[1],
    microbenchmarks: "\"hot-points*\"",
    budget: "20ms",
    restarts: 2,
    min_blocks: 6,
    schedule: "",
    candidates: &[("base", ""), ("other", "")],
    more: "[profile]\ntime = \"200ms\"\n",
};

/// Whether stacks can be sampled here; the test is skipped if not.
pub fn could_sample(printed: &str) -> bool {
    let is_refused = printed.contains("no stacks are sampled");
    if is_refused {
        dbdyno_fuzz::skip("sampling of stacks is not permitted here");
    }
    !is_refused
}

/// Starts of candidates with counted slices, and those of them with a profile.
fn starts(out: &Path) -> (i64, i64) {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let sql = "SELECT count(*), count(p.json) FROM \
               (SELECT DISTINCT candidate, restart FROM slice WHERE warmup = 0) s \
               LEFT JOIN profile p ON p.candidate = s.candidate AND p.restart = s.restart \
               AND p.statements > 0 AND p.cpu_ns > 0";
    database.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[test]
fn each_start_has_a_profile_of_each_candidate() {
    let test = TestDir::new();
    let run = test.run(&PROFILED, &[]);
    run.assert_code(0);
    if !could_sample(&run.all()) {
        return;
    }
    let (all, profiled) = starts(&test.out());
    assert!(all >= 4 && profiled == all, "{profiled} of {all}");
    call([Path::new("why"), &test.out()]).assert_code(0).assert_prints("without what they call");
}

#[test]
fn run_killed_before_its_profile_gets_it_when_resumed() {
    let test = TestDir::new();
    let out = test.out();
    let more = "[profile]\ntime = \"3s\"\n";
    let mut run = test.start(&Experiment { restarts: 1, more, ..PROFILED }, &out, &[]);
    let microbenchmark = "hot-points_range=100";
    // With warm-up: what follows is mostly sampled.
    run.wait_until("slices", || slices_of_live_run(&out, microbenchmark) >= 16);
    run.signal(libc::SIGKILL);
    let killed = run.end();
    let ids =
        || -> BTreeSet<i64> { Stored::open(&out).slices().iter().map(|one| one.id).collect() };
    let before = ids();
    let resumed = resume(&out, &[]);
    resumed.assert_code(0);
    assert!(before.is_subset(&ids()), "slices are lost");
    if could_sample(&(killed.all() + &resumed.all())) {
        assert!(starts(&out).1 >= 2, "{:?}", starts(&out));
    }
}

#[test]
fn own_layers_are_read_and_their_errors_named() {
    let test = TestDir::new();
    std::fs::write(test.path().join("own.tsv"), "# mine\n*\t*\t(\tmy layer\n").unwrap();
    let more = "[profile]\nlayers = \"own.tsv\"\n";
    let run = test.run(&Experiment { more, ..PROFILED }, &[]);
    run.assert_code(2).assert_prints("own.tsv:2: ");
}
