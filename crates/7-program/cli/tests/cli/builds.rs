//! Cached builds, and builds with profiles from training to report.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Experiment, Finished, TestDir, cache, call, dbdyno, finish};

#[test]
fn cached_builds_are_listed_and_removed_by_name() {
    let test = TestDir::new();
    let cache = test.path().join("cache");
    let cache = cache.to_str().unwrap();
    let on = |words: &[&str]| call([&["builds"], words, &["--cache", cache]].concat());
    on(&["list"]).assert_code(0).assert_prints("Build cache").assert_prints("0 B total");
    fs::create_dir_all(test.path().join("cache/failed/1f2e3d4c5b6a")).unwrap();
    fs::write(test.path().join("cache/failed/1f2e3d4c5b6a/log.txt"), "$ gcc").unwrap();
    on(&["list"]).assert_code(0).assert_prints("failed 1f2e3d4c5b6a");
    let profile = test.path().join("cache/profiles/77aa88bb99cc");
    fs::create_dir_all(&profile).unwrap();
    fs::write(profile.join("profile.json"), r#"{"trained_on": "point-1 (1 × 10 rows)"}"#).unwrap();
    on(&["list"])
        .assert_prints("profile 77aa88bb99cc")
        .assert_prints("trained on point-1 (1 × 10 rows)");
    on(&["clean", "77aa"]).assert_code(0).assert_prints("freed");
    on(&["clean"]).assert_code(2);
    // An empty argument, as from an unset shell variable, does not match everything.
    on(&["clean", ""]).assert_code(2);
    on(&["clean", "no-such"]).assert_code(2).assert_prints("dbdyno builds list");
    on(&["clean", "1f2e"]).assert_code(0).assert_prints("freed");
    on(&["list"]).assert_prints("0 B total");
}

#[test]
fn profile_is_collected_once_and_reported() {
    let test = TestDir::new();
    let lines = "training = [\"point-1\"]\ntraining_time = \"20ms\"";
    let experiment = Experiment {
        candidates: &[("base", ""), ("trained", lines)],
        more: "[variant.quick]\nbase = \"rel_o2_pgo\"\noptimization = \"O0\"\n",
        ..Experiment::default()
    };
    let text = experiment.text();
    let text = text.replace("variant = \"o0\"\ntraining", "variant = \"quick\"\ntraining");
    let file = test.file(&text);
    let run = |name: &str| -> Finished {
        let mut command = dbdyno();
        command.arg("run").arg(&file).arg("--out").arg(test.path().join(name));
        command.arg("--cache").arg(cache());
        finish(command)
    };
    let first = run("first");
    first.assert_code(0).assert_prints("trained on × measured on").assert_prints("point-1 trained");
    let second = run("second");
    second.assert_code(0).assert_prints("trained on × measured on");
    assert!(!second.all().contains("training trained on"), "{}", second.err);
}

#[test]
#[ignore = "full"]
fn sampled_profile_is_used_for_a_second_compilation() {
    let test = TestDir::new();
    // Long enough for 1,000 samples. Most of clang's time would be for inlining.
    let lines = "compiler = \"clang\"\nflags = [\"-fno-inline\"]\ntraining = [\"point-1\"]\n\
                 training_time = \"100ms\"";
    let experiment = Experiment {
        candidates: &[("sampled", lines)],
        more: "[variant.quick]\nbase = \"rel_o2_autofdo\"\noptimization = \"O1\"\n",
        ..Experiment::default()
    };
    let file = test.file(&experiment.text().replace("variant = \"o0\"", "variant = \"quick\""));
    let kept = test.path().join("cache");
    let make =
        || call([Path::new("builds"), Path::new("make"), &file, Path::new("--cache"), &kept]);
    make().assert_code(0).assert_prints("sampling sampled").assert_prints("samples of sampled");
    let builds = builds_of_clang(&kept);
    let [base, optimized] = &builds[..] else { panic!("{builds:?}") };
    assert_eq!(base["profile"], Value::Null);
    assert!(optimized["profile"]["samples"].as_u64().is_some_and(|samples| samples >= 1_000));
    assert_ne!(base["executable_size"], optimized["executable_size"]);
    // clang found all its functions, unchanged.
    let folder = Path::new(optimized["folder"].as_str().unwrap());
    let log = fs::read_to_string(folder.join("log.txt")).unwrap();
    assert!(log.contains("-fprofile-sample-use=") && !log.contains("warning"), "{log}");
    let flags = optimized["flags"].as_array().unwrap().iter().filter_map(Value::as_str);
    let file = flags.filter_map(|flag| flag.strip_prefix("-fprofile-sample-use=")).next();
    let profile = fs::read_to_string(file.unwrap()).unwrap();
    assert!(profile.lines().any(|line| line.starts_with("sqlite3VdbeExec:")), "{profile}");

    let second = make();
    second.assert_code(0);
    assert!(!second.all().contains("sampling sampled"), "{}", second.err);
}

/// The records of clang's builds, those without a profile first.
fn builds_of_clang(cache: &Path) -> Vec<Value> {
    let folders = fs::read_dir(cache.join("builds")).unwrap();
    let texts = folders.filter_map(|folder| fs::read(folder.ok()?.path().join("build.json")).ok());
    let builds = texts.map(|text| serde_json::from_slice::<Value>(&text).unwrap());
    let mut builds: Vec<Value> =
        builds.filter(|build| build["compiler"]["name"] == "clang").collect();
    builds.sort_by_key(|build| build["profile"].is_object());
    builds
}

#[test]
fn sampled_profile_for_gcc_is_refused_before_compiling() {
    let test = TestDir::new();
    let text = "name = \"none\"\nbaseline = \"a\"\n[[candidate]]\nname = \"a\"\n\
                system = \"sqlite\"\nvariant = \"rel_autofdo\"\ntraining = [\"all\"]\n";
    let file = test.file(text);
    let mut command = dbdyno();
    command.args(["builds", "make"]).arg(&file).arg("--cache").arg(test.path().join("cache"));
    let made = finish(command);
    made.assert_code(1).assert_prints("not supported for gcc").assert_prints("with clang");
    assert!(!test.path().join("cache/builds").exists(), "{}", made.all());
    let checked = call([Path::new("check"), &file]);
    checked.assert_code(1).assert_prints("candidate a: sampled profiles are not supported");
}

#[test]
#[ignore = "full"]
fn builds_make_builds_and_trains_everything() {
    let test = TestDir::new();
    let lines = "training = [\"point-1\"]\ntraining_time = \"20ms\"";
    let samples = "training = [\"point-1\"]\ntraining_time = \"100ms\"\nbolt_profile = \"samples\"";
    let experiment = Experiment {
        candidates: &[("base", ""), ("laid-out", lines), ("sampled", samples)],
        more: "[variant.quick]\nbase = \"rel_o2_bolt\"\noptimization = \"O0\"\n",
        ..Experiment::default()
    };
    let text = experiment.text();
    let file =
        test.file(&text.replace("variant = \"o0\"\ntraining", "variant = \"quick\"\ntraining"));
    let make = || {
        let mut command = dbdyno();
        command.args(["builds", "make"]).arg(&file).arg("--cache").arg(cache());
        finish(command)
    };
    let first = make();
    first
        .assert_code(0)
        .assert_prints("compiled in")
        .assert_prints("laid-out")
        .assert_prints("quick");
    let rows = first.out.lines().filter(|line| line.contains(" gcc ")).count();
    assert_eq!(rows, 3, "{}", first.out);
    // An earlier test run may have built it.
    first.assert_prints("laid out by BOLT, trained on point-1").assert_prints("seed 1), sampled");
    let second = make();
    second.assert_code(0).assert_prints("laid out by BOLT, trained on point-1");
    assert!(!second.err.contains("training laid-out"), "{}", second.err);
    assert!(!second.err.contains("sampling sampled"), "{}", second.err);

    let mut run = dbdyno();
    run.arg("run").arg(&file).arg("--out").arg(test.path().join("run"));
    run.arg("--cache").arg(cache());
    let run = finish(run);
    run.assert_code(0).assert_prints("laid-out").assert_prints("trained on × measured on");
    assert!(!run.err.contains("compiled") && !run.err.contains("instrumenting"), "{}", run.err);
}

#[test]
fn builds_make_without_builds_does_nothing() {
    let test = TestDir::new();
    let text = "name = \"none\"\nbaseline = \"a\"\n[[candidate]]\nname = \"a\"\n\
                system = \"postgresql\"\nurl = \"postgres://nobody@/?host=/nowhere\"\n";
    let file = test.file(text);
    call(["builds", "make", file.to_str().unwrap()])
        .assert_code(0)
        .assert_prints("has no candidates to compile or to fetch");
    call(["builds", "make"]).assert_code(2).assert_prints("<FILE>");
}
