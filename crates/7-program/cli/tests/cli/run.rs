//! Successful runs.

use std::collections::BTreeSet;

use crate::common::{
    Experiment, Stored, TestDir, candidates_differ, has_compiler, integrity, read_csv, read_json,
};

const RELATIVE: &str = "microbenchmark,group,candidate,baseline,relative_qps,ci_low,ci_high,\
                        verdict,blocks,qps,baseline_qps,relative_cpu,cpu_us_per_query,errors,\
                        clients,relative_cs,client_cpu_us_per_query,cs_per_query,\
                        user_us_per_query,system_us_per_query,relative_cpu_ci_low,\
                        relative_cpu_ci_high,cpu_verdict,trusted_metric,tps,baseline_tps,script";
const SUMMARY: &str = "group,candidate,count,min,max,avg,median,stddev,worst,best,clients";

const WITH_FLAGS: &[(&str, &str)] = &[("base", ""), ("no_plt", "flags = [\"-fno-plt\"]")];

#[test]
fn all_microbenchmarks_run_with_a_control() {
    let test = TestDir::new();
    let experiment = Experiment {
        control: true,
        rows: 11_000,
        microbenchmarks: "\"all\"",
        candidates: WITH_FLAGS,
        ..Experiment::default()
    };
    test.run(&experiment, &[]).assert_code(0).assert_prints("noise floor");

    let out = test.out();
    let relative = read_csv(&out.join("relative.csv"));
    assert_eq!(relative[0].join(","), RELATIVE);
    let names: BTreeSet<&str> = relative[1..].iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names.len(), 42);
    assert_eq!(relative[1..].len(), 42 * 2);
    for row in &relative[1..] {
        assert!(["no_plt", "control"].contains(&row[2].as_str()), "{row:?}");
        assert_eq!(row[3], "base", "{row:?}");
        assert_eq!(row[13], "0", "{row:?}");
        assert_ne!(row[7], "failed", "{row:?}");
        assert!(row[8].parse::<u32>().unwrap() >= 6, "{row:?}");
        let [low, middle, high] = [5, 4, 6].map(|field: usize| row[field].parse::<f64>().unwrap());
        assert!(0.0 < low && low <= middle && middle <= high, "{row:?}");
    }

    let summary = read_csv(&out.join("summary.csv"));
    assert_eq!(summary[0].join(","), SUMMARY);
    assert_eq!(summary[1..].len(), 5 * 2);
    let counts: u32 = summary[1..].iter().map(|row| row[2].parse::<u32>().unwrap()).sum();
    assert_eq!(counts, 42 * 2);

    let json = read_json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(json["microbenchmarks"].as_array().unwrap().len(), 42);
    assert_eq!(json["status"], "complete");
    assert_eq!(json["failures"].as_array().unwrap().len(), 0);
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("no_plt") && html.contains("</html>"));
    assert!(!out.join("data").exists(), "the databases are still there");

    blocks_are_whole_and_mixed(&Stored::open(&out), 3);
}

/// Checks that every block has one slice of every candidate in random order, with equal events and
/// answers.
fn blocks_are_whole_and_mixed(stored: &Stored, candidates: u32) {
    let blocks = stored.counted_blocks();
    let mut orders = BTreeSet::new();
    for (key, slices) in &blocks {
        let order: Vec<u32> = slices.iter().map(|slice| slice.candidate).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..candidates).collect::<Vec<_>>(), "{key:?}");
        let places: Vec<u32> = slices.iter().map(|slice| slice.place).collect();
        assert_eq!(places, (0..candidates).collect::<Vec<_>>(), "{key:?}");
        assert!(slices.iter().all(|s| (s.errors, s.wrong) == (0, 0)), "{slices:?}");
        assert_eq!(candidates_differ(slices), None, "{key:?}");
        orders.insert(order);
    }
    let permutations: u32 = (1..=candidates).product();
    assert_eq!(orders.len(), permutations as usize, "every order comes up: {orders:?}");
    let measured: BTreeSet<u32> = blocks.keys().map(|key| key.microbenchmark).collect();
    assert_eq!(measured.len(), stored.microbenchmarks().len());
    assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
}

#[test]
fn restarts_start_new_instances() {
    let test = TestDir::new();
    let experiment = Experiment {
        restarts: 2,
        microbenchmarks: "\"point-query*\", \"update-index*\"",
        ..Experiment::default()
    };
    test.run(&experiment, &["--keep-data"]).assert_code(0);
    let stored = Stored::open(&test.out());
    for (number, (name, done)) in (0..).zip(stored.microbenchmarks()) {
        let restarts: BTreeSet<u32> = stored
            .counted_blocks()
            .keys()
            .filter(|key| key.microbenchmark == number)
            .map(|key| key.restart)
            .collect();
        assert!(restarts.len() >= 2, "{name}: {restarts:?}");
        assert!(done, "{name}");
    }
    blocks_are_whole_and_mixed(&stored, 2);
    assert_eq!(integrity(&test.out()), 2);
}

#[test]
fn several_clients_read_and_write_concurrently() {
    let test = TestDir::new();
    let experiment = Experiment {
        clients: &[3],
        restarts: 2,
        microbenchmarks: "\"point-query*\", \"scan*\", \"update-index*\", \"write-only*\", \
                          \"read-write_range=10\", \"delete*\", \"insert*\"",
        schedule: "pace = \"time\"",
        ..Experiment::default()
    };
    test.run(&experiment, &["--keep-data"]).assert_code(0);
    let slices = Stored::open(&test.out()).slices();
    assert!(slices.iter().all(|s| (s.errors, s.wrong) == (0, 0)));
    assert_eq!(integrity(&test.out()), 2);
    for row in &read_csv(&test.out().join("relative.csv"))[1..] {
        assert_eq!(row[13], "0", "{row:?}");
    }
}

#[test]
fn numbers_of_clients_take_turns_in_reads_and_not_in_writes() {
    let test = TestDir::new();
    let experiment = Experiment {
        clients: &[1, 3],
        restarts: 2,
        microbenchmarks: "\"point-query_range=100\", \"update-index_range=100\"",
        schedule: "pace = \"time\"",
        ..Experiment::default()
    };
    test.run(&experiment, &["--keep-data"]).assert_code(0).assert_prints("key results");
    let stored = Stored::open(&test.out());
    assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
    // The update with 1 and 3 clients, then the point query with 1 and 3 clients.
    let counted = || stored.slices().into_iter().filter(|slice| !slice.warmup);
    let of = |id: u32| counted().filter(move |slice| slice.key.microbenchmark == id);
    let range = |id: u32| (of(id).map(|one| one.id).min(), of(id).map(|one| one.id).max());
    assert!(range(0).1 < range(1).0, "writes are measured one after the other");
    assert!(range(2).0 < range(3).1 && range(3).0 < range(2).1, "reads take turns");
    let rounds = |id: u32| -> BTreeSet<(u32, u32)> {
        of(id).map(|slice| (slice.key.restart, slice.key.block)).collect()
    };
    assert!(rounds(2).intersection(&rounds(3)).count() >= 6, "the same rounds");
    // Blocks are whole: both candidates of one number of clients follow each other.
    let reads: Vec<_> = counted().filter(|slice| slice.key.microbenchmark >= 2).collect();
    assert!(reads.chunks(2).all(|block| block[0].key == block[1].key), "{reads:?}");

    let scaling = read_csv(&test.out().join("scaling.csv"));
    let interleaved: Vec<(&str, &str)> =
        scaling[1..].iter().map(|row| (row[0].as_str(), row[15].as_str())).collect();
    let (read, write) = ("point-query_range=100", "update-index_range=100");
    assert_eq!(interleaved, [(write, "no"), (write, "no"), (read, "yes"), (read, "yes")]);
    for row in &scaling[1..] {
        assert_eq!((&*row[3], &*row[4]), ("3", "1"), "{row:?}");
        let [low, middle, high] = [7, 6, 8].map(|field: usize| row[field].parse::<f64>().unwrap());
        assert!(0.0 < low && low <= middle && middle <= high, "{row:?}");
    }
    let latency = read_csv(&test.out().join("latency.csv"));
    assert_eq!(latency[1..].len(), 4 * 2 * 3, "microbenchmarks, candidates and percentiles");
}

#[test]
fn two_compilers_are_compared() {
    if !has_compiler("gcc") || !has_compiler("clang") {
        return;
    }
    let test = TestDir::new();
    let experiment = Experiment {
        candidates: &[("gcc", ""), ("clang", "compiler = \"clang\"")],
        ..Experiment::default()
    };
    test.run(&experiment, &[]).assert_code(0);
    let json = std::fs::read_to_string(test.out().join("run.json")).unwrap();
    let compilers: Vec<String> = read_json(&json)["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|candidate| candidate["build"]["compiler"].as_str().unwrap().to_lowercase())
        .collect();
    assert!(compilers[0].contains("gcc") && compilers[1].contains("clang"), "{compilers:?}");
}
