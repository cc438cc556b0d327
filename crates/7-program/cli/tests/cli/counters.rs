//! Counters of the CPU and the kernel, compared with the kernel's own accounting.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use crate::common::{
    Experiment, INNODB, MYROCKS, POSTGRES, Servers, TestDir, read_csv, read_json, send, server_of,
    slices_of_live_run,
};
use crate::profiles::could_sample;
use crate::servers::count;

/// Each execution allocates and fills memory that malloc always returns to the kernel afterwards.
const ALLOCATIONS: &str = r#"
[[microbenchmark]]
name = "allocations"
[[microbenchmark.statements]]
sql = "SELECT LENGTH(CAST(ZEROBLOB(40000000) AS TEXT))"
rows = 1
"#;

/// Sums of one candidate over all slices with counters.
#[derive(Debug)]
struct Told {
    /// Slices, and those of them with counts of page faults.
    slices: i64,
    counted: i64,
    /// Page faults by counter and by the kernel's accounting.
    faults: i64,
    accounted: i64,
    /// The median over slices of the CPU time by counter relative to the kernel's accounting.
    covered: f64,
    /// The median over slices of the CPU time by counter relative to the duration: the CPUs that were busy.
    cpus: f64,
}

fn told(out: &Path, candidate: u32, faults: &str, cpu: &str) -> Told {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let sql = format!(
        "SELECT COUNT(*), COUNT(f.slice), TOTAL(f.count), TOTAL({faults}) FROM slice s LEFT JOIN \
         (SELECT slice, SUM(count) AS count FROM counter WHERE counter IN ('minor_faults', \
         'major_faults') GROUP BY slice) f ON f.slice = s.id WHERE candidate = ?1"
    );
    let relative_to = |column: &str| {
        let sql = format!(
            "SELECT CAST(MAX(c.enabled_ns) AS REAL) / {column} FROM slice s JOIN counter c \
             ON c.slice = s.id WHERE candidate = ?1 AND counter IN ('minor_faults', 'major_faults') \
             AND {column} > 0 GROUP BY s.id"
        );
        median(&database, &sql, candidate)
    };
    let number = |row: &rusqlite::Row<'_>, at: usize| row.get(at).map(|sum: f64| sum as i64);
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Told {
            slices: row.get(0)?,
            counted: row.get(1)?,
            faults: number(row, 2)?,
            accounted: number(row, 3)?,
            covered: relative_to(cpu),
            cpus: relative_to("wall_ns"),
        })
    };
    database.query_row(&sql, [candidate], read).unwrap()
}

/// The median of the rows of a query; 0 without rows.
fn median(database: &Connection, sql: &str, candidate: u32) -> f64 {
    let mut statement = database.prepare(sql).unwrap();
    let rows = statement.query_map([candidate], |row| row.get::<_, f64>(0)).unwrap();
    let mut values: Vec<f64> = rows.map(Result::unwrap).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Whether counters are available. If not, the report must name the reason.
fn could_count(out: &Path) -> bool {
    let json = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    let missing = json["not_counted"].as_array().cloned().unwrap_or_default();
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let known = |counter: &str| {
        let sql = "SELECT COUNT(*) FROM counter WHERE counter = ?1";
        database.query_row(sql, [counter], |row| row.get::<_, i64>(0)).unwrap() > 0
    };
    for (counter, what) in
        [("instructions", "hardware counters"), ("minor_faults", "counters of the kernel")]
    {
        let told = missing.iter().find(|one| one["what"] == what);
        assert_ne!(known(counter), told.is_some(), "{counter}: {missing:?}");
        if let Some(told) = told {
            assert!(!told["reason"].as_str().unwrap().is_empty(), "{told}");
        }
    }
    let counts = known("minor_faults");
    if !counts {
        dbdyno_fuzz::skip("in part: no counters of the kernel here");
    }
    counts
}

impl Told {
    fn assert_plausible(&self, least: i64) {
        assert_eq!(self.slices, self.counted, "a slice without counts: {self:?}");
        assert!(self.faults >= least, "{self:?}");
        // The kernel also accounts for faults that it handles on behalf of the process.
        let apart = (self.faults - self.accounted).abs();
        assert!(apart <= 5 + self.accounted / 10, "{self:?}");
        // Counters do not include the switches between threads. They include the time that the host of a
        // virtual machine gives to others, which the accounting leaves out, but never more than all CPUs.
        let online = std::thread::available_parallelism().unwrap().get() as f64;
        assert!(self.covered > 0.5 && self.cpus <= 1.05 * online, "{self:?}");
    }
}

#[test]
fn sqlite_page_faults_match_its_threads() {
    let test = TestDir::new();
    let experiment = Experiment {
        clients: &[2],
        rows: 20_000,
        microbenchmarks: "\"allocations\", \"insert_range=100\"",
        schedule: "pace = \"time\"\nwrite_slice = \"5ms\"",
        budget: "400ms",
        more: ALLOCATIONS,
        ..Experiment::default()
    };
    test.run(&experiment, &[]).assert_code(0);
    let out = test.out();
    if !could_count(&out) {
        return;
    }
    for candidate in 0..2 {
        told(&out, candidate, "page_faults", "cpu_ns").assert_plausible(100);
    }
    let per_statement = growth_per_statement(&out, "base", "run");
    assert!((per_statement - 1.0).abs() < 0.05, "{per_statement}");
    let csv = read_csv(&out.join("counters.csv"));
    assert!(csv.iter().any(|row| row[3] == "base" && row[5] == "minor_faults_per_query"));
    let finished = crate::common::call([Path::new("report"), &out, Path::new("--details")]);
    finished.assert_code(0).assert_prints("minf/q");
}

#[test]
#[ignore = "full"]
fn server_page_faults_match_its_threads_and_processes() {
    let test = TestDir::new();
    let servers = Servers {
        clients: "3",
        budget: "3s",
        microbenchmarks: "\"point-query.pre_range=100\", \"insert_range=100\"",
        candidates: &[INNODB, POSTGRES],
        ..Servers::default()
    };
    let out = test.out();
    let mut run = servers.start(&test, &[]);
    run.wait_until("slices", || slices_of_live_run(&out, "point-query.pre_range=100") >= 10);
    // Its counters are closed with it; the next server gets new ones.
    send(server_of(&out, "innodb").unwrap(), libc::SIGKILL);
    run.end().assert_code(0);
    if !could_count(&out) {
        return;
    }
    for candidate in 0..2 {
        told(&out, candidate, "server_page_faults", "server_cpu_ns").assert_plausible(20);
    }
}

/// The growth of an engine's own counter per statement, over all slices in which it was read.
fn growth_per_statement(out: &Path, candidate: &str, counter: &str) -> f64 {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let sql = "SELECT CAST(SUM(growth) AS REAL) / SUM(r.statements) FROM engine_reading r \
               JOIN slice s ON s.id = r.slice JOIN candidate c ON c.id = s.candidate \
               LEFT JOIN (SELECT * FROM engine_count JOIN engine_counter ON id = counter \
               WHERE name = ?2) n ON n.slice = s.id WHERE c.name = ?1";
    database.query_row(sql, [candidate, counter], |row| row.get(0)).unwrap()
}

#[test]
fn engines_count_each_statement_and_their_counters_are_compared() {
    let test = TestDir::new();
    let servers = Servers { candidates: &[INNODB, MYROCKS, POSTGRES], ..Servers::default() };
    servers.run(&test, &[]).assert_code(0);
    let out = test.out();
    for (candidate, counter) in [
        ("innodb", "Com_stmt_execute"),
        ("innodb", "Handler_read_key"),
        ("myrocks", "Com_stmt_execute"),
        ("myrocks", "Rocksdb_number_keys_read"),
        ("postgres", "pg_stat_database.xact_commit"),
        ("postgres", "pg_statio_user_tables.idx_blks_hit"),
    ] {
        let growth = growth_per_statement(&out, candidate, counter);
        let expected = if counter.ends_with("blks_hit") { 1.9..4.0 } else { 0.99..1.01 };
        assert!(expected.contains(&growth), "{candidate}: {counter} {growth}");
    }
    let plan = |candidate: &str| {
        let database = Connection::open(out.join("run.sqlite")).unwrap();
        let sql = "SELECT lines FROM plan JOIN candidate ON id = candidate WHERE name = ?1";
        database.query_row(sql, [candidate], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(plan("innodb"), "sbtest1: const by PRIMARY, key length 4, const");
    assert_eq!(plan("myrocks"), plan("innodb"));
    assert!(
        plan("postgres").starts_with("Index Scan using sbtest1_pkey on sbtest1\n"),
        "{}",
        plan("postgres")
    );
    let csv = read_csv(&out.join("engine_counters.csv"));
    // Two systems have no counter in common.
    let is_right = |row: &Vec<String>| row[2] != "postgres" || row[10] == "true";
    assert!(csv.len() > 1 && csv[1..].iter().all(is_right), "{csv:?}");
    let finished = crate::common::call([Path::new("report"), &out, Path::new("--details")]);
    finished.assert_code(0).assert_prints("counters of the engine that differ");
}

/// Executed instructions per query of each function of a candidate, by file and address.
fn executed(out: &Path, candidate: &str) -> BTreeMap<(String, i64), f64> {
    let database = Connection::open(out.join("run.sqlite")).unwrap();
    let sql = "SELECT f.value ->> 'module', f.value ->> 'start', (f.value ->> 'instructions') * 1.0 / \
               (e.json ->> '$.counted.statements') FROM executed e JOIN candidate c ON c.id = e.candidate, \
               json_each(e.json, '$.counted.functions') f WHERE c.name = ?1";
    let mut statement = database.prepare(sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<((String, i64), f64)> {
        Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
    };
    statement.query_map([candidate], read).unwrap().map(Result::unwrap).collect()
}

#[test]
fn equal_servers_execute_the_same_instructions() {
    if cfg!(not(target_arch = "x86_64")) {
        return dbdyno_fuzz::skip("instructions are counted on x86-64 only");
    }
    let test = TestDir::new();
    let servers = Servers {
        control: true,
        sections: "[profile]\ntime = \"1s\"\ninstructions = true\n",
        candidates: &[INNODB, POSTGRES],
        ..Servers::default()
    };
    let run = servers.run(&test, &[]);
    run.assert_code(0);
    if !could_sample(&run.all()) {
        return;
    }
    let out = test.out();
    let too_busy = "SELECT COUNT(*) FROM executed WHERE executed.json ->> '$.not-counted.reason' LIKE \
                    '%counting takes % times the CPU time%' OR executed.json ->> '$.not-counted.reason' LIKE \
                    '%the process is mostly idle%'";
    if count(&out, too_busy) > 0 {
        return dbdyno_fuzz::skip("the machine is too busy to count instructions");
    }
    let [own, control] = ["innodb", "control"].map(|candidate| executed(&out, candidate));
    let all: f64 = own.values().sum();
    assert!((100.0..1e6).contains(&all), "{all}");
    let refused = "SELECT COUNT(*) FROM executed JOIN candidate ON id = candidate WHERE name = 'postgres' \
                   AND executed.json ->> '$.not-counted.reason' LIKE '%process for each session'";
    assert_eq!(count(&out, refused), 1);
    let of_both = own.iter().filter_map(|(function, own)| Some(control.get(function)? / own));
    let mut ratios: Vec<f64> = of_both.collect();
    if ratios.len() < 3 {
        return dbdyno_fuzz::skip("in part: the machine is too busy to sample functions");
    }
    ratios.sort_unstable_by(f64::total_cmp);
    assert!((0.98..1.02).contains(&ratios[ratios.len() / 2]), "{ratios:?}");
}

#[test]
fn disabled_counters_count_nothing() {
    let test = TestDir::new();
    let experiment = Experiment { schedule: "counters = false", ..Experiment::default() };
    test.run(&experiment, &[]).assert_code(0);
    let out = test.out();
    let told = told(&out, 0, "page_faults", "cpu_ns");
    assert!(told.slices > 0 && told.counted == 0, "{told:?}");
    assert_eq!(count(&out, "SELECT COUNT(*) FROM engine_reading"), 0);
    let json = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert!(json["not_counted"].is_null() && json["counter_groups"].is_null());
    assert!(!out.join("counters.csv").exists());
}
