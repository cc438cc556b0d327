//! Changes over repeated runs of an experiment.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Experiment, Finished, TestDir, call, finish, modify_run, read_json};

const DELAYED: &str = "injected_delay = \"200%\"";

/// Runs the experiment with this delay of its candidate.
fn run(test: &TestDir, name: &str, baseline: &str, delay: &str) -> PathBuf {
    let out = test.path().join("runs").join(name);
    let experiment = Experiment {
        microbenchmarks: "\"range-covered-pk.pre_range=100\"",
        budget: "100ms",
        candidates: &[(baseline, ""), ("other", delay)],
        ..Experiment::default()
    };
    finish(test.run_command(&experiment, &out, &[])).assert_code(0);
    // Throughput depends on what else runs here, CPU time hardly.
    let share = if delay.is_empty() { 1.0 } else { 0.4 };
    modify_run(
        &out,
        &format!(
            "UPDATE slice SET qps = CASE candidate WHEN 0 THEN 1000 + block % 5 \
             ELSE {share} * (1000 + (3 * block + unicode('{name}')) % 7) END"
        ),
    );
    out
}

fn history(arguments: &[&Path]) -> Finished {
    let command = [Path::new("history")].into_iter().chain(arguments.iter().copied());
    call(command)
}

#[test]
fn change_is_found_between_two_of_several_runs() {
    let test = TestDir::new();
    // The order of the names is not that of the runs.
    let names = ["h", "g", "f", "e", "d", "c", "b", "a"];
    let delay = |number: usize| if number < 4 { "" } else { DELAYED };
    let runs: Vec<PathBuf> = names
        .iter()
        .enumerate()
        .map(|(number, name)| run(&test, name, "base", delay(number)))
        .collect();
    let all = test.path().join("runs");
    fs::create_dir(all.join("notes")).unwrap();
    let file = |name: &str| test.path().join(name);
    let [page, table, json] = ["history.html", "history.csv", "history.json"].map(file);
    let finished = history(&[
        &all,
        // Named twice, it is used once.
        &runs[2],
        Path::new("--html"),
        &page,
        Path::new("--export-csv"),
        &table,
        Path::new("--export-json"),
        &json,
    ]);
    finished
        .assert_code(0)
        .assert_prints("history of test: 8 runs")
        .assert_prints("QPS (−")
        .assert_prints("% CPU per query (+")
        .assert_prints("other, range-covered-pk.pre_range=100")
        .assert_prints("notes: it has no run.sqlite");

    let json = read_json(&fs::read_to_string(json).unwrap());
    assert_eq!(json["baseline"], "base");
    let changes = json["changes"].as_array().unwrap();
    let qps: Vec<_> = changes.iter().filter(|change| change["metric"] == "qps").collect();
    assert_eq!(qps.len(), 1, "{changes:?}");
    assert_eq!((&qps[0]["before"], &qps[0]["after"]), (&3.into(), &4.into()));
    assert!(qps[0]["ratio"]["high"].as_f64().unwrap() < 0.6, "{changes:?}");
    let directories: Vec<&str> = json["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| Path::new(run["directory"].as_str().unwrap()).file_name().unwrap())
        .map(|name| name.to_str().unwrap())
        .collect();
    assert_eq!(directories, names);

    let table = fs::read_to_string(table).unwrap();
    // A line per run and metric; the change is in that of the fifth run.
    assert_eq!(table.lines().count(), 1 + 2 * names.len(), "{table}");
    let changed: Vec<&str> = table.lines().filter(|line| line.contains(",slower,")).collect();
    assert_eq!(changed.len(), 1, "{table}");
    assert!(changed[0].contains(&format!(",{},", runs[4].display())), "{changed:?}");
    assert!(fs::read_to_string(page).unwrap().contains("<line class=\"change\""));

    // Four runs are too few.
    let few: Vec<&Path> = runs[..4].iter().map(PathBuf::as_path).collect();
    history(&few).assert_code(2).assert_prints("needs at least 5 runs").assert_prints("found 4:");

    // A run with another baseline, and the same by the name of the experiment.
    let other = run(&test, "z", "reference", "");
    let baselines = history(&[&all]);
    baselines.assert_code(2).assert_prints("different baselines").assert_prints("reference: ");
    assert!(baselines.err.contains(&other.display().to_string()), "{}", baselines.err);
    let named = history(&[&all, Path::new("--experiment"), Path::new("other")]);
    named.assert_code(2).assert_prints("its experiment is test").assert_prints("found none");
}

#[test]
fn what_is_no_run_is_named() {
    let test = TestDir::new();
    let missing = test.path().join("missing");
    history(&[&missing]).assert_code(2).assert_prints("it does not exist");
    history(&[test.path()]).assert_code(2).assert_prints("found none");
    let below = missing.join("history.csv");
    history(&[test.path(), Path::new("--export-csv"), &below])
        .assert_code(2)
        .assert_prints("a directory that does not exist");
}
