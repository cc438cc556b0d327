//! What is kept of builds, and a library with a profile, from its training to the report.

use crate::common::{Experiment, Lab, Said, cache, call, dbdyno, said};

#[test]
fn what_is_kept_is_listed_and_removed_by_name() {
    let lab = Lab::new();
    let cache = lab.path().join("cache");
    let cache = cache.to_str().unwrap();
    let on = |words: &[&str]| call([&["builds"], words, &["--cache", cache]].concat());
    on(&["list"]).assert_code(0).assert_says("Kept in").assert_says("0 B in all");
    std::fs::create_dir_all(lab.path().join("cache/failed/1f2e3d4c5b6a")).unwrap();
    std::fs::write(lab.path().join("cache/failed/1f2e3d4c5b6a/log.txt"), "$ gcc").unwrap();
    on(&["list"]).assert_code(0).assert_says("failed 1f2e3d4c5b6a");
    on(&["clean"]).assert_code(2);
    on(&["clean", "no-such"]).assert_code(2).assert_says("dbdyno builds list");
    on(&["clean", "1f2e"]).assert_code(0).assert_says("freed");
    on(&["list"]).assert_says("0 B in all");
}

#[test]
fn a_profile_is_collected_once_and_told_in_the_report() {
    let lab = Lab::new();
    let lines = "training = [\"point-1\"]\ntraining_time = \"20ms\"";
    let experiment = Experiment {
        candidates: &[("base", ""), ("trained", lines)],
        more: "[variant.quick]\nbase = \"rel_o2_pgo\"\noptimization = \"O0\"\n",
        ..Experiment::default()
    };
    let text = experiment.text();
    let text = text.replace("variant = \"o0\"\ntraining", "variant = \"quick\"\ntraining");
    let file = lab.file(&text);
    let run = |name: &str| -> Said {
        let mut command = dbdyno();
        command.arg("run").arg(&file).arg("--out").arg(lab.path().join(name));
        command.arg("--cache").arg(cache());
        said(command)
    };
    let first = run("first");
    first.assert_code(0).assert_says("trained on × measured on").assert_says("point-1 trained");
    let second = run("second");
    second.assert_code(0).assert_says("trained on × measured on");
    assert!(!second.all().contains("training trained on"), "{}", second.err);
}

#[test]
fn everything_is_built_and_trained_before_a_run() {
    let lab = Lab::new();
    let lines = "training = [\"point-1\"]\ntraining_time = \"20ms\"";
    let experiment = Experiment {
        candidates: &[("base", ""), ("laid-out", lines)],
        more: "[variant.quick]\nbase = \"rel_o2_bolt\"\noptimization = \"O0\"\n",
        ..Experiment::default()
    };
    let text = experiment.text();
    let file =
        lab.file(&text.replace("variant = \"o0\"\ntraining", "variant = \"quick\"\ntraining"));
    let make = || {
        let mut command = dbdyno();
        command.args(["builds", "make"]).arg(&file).arg("--cache").arg(cache());
        said(command)
    };
    let first = make();
    first.assert_code(0).assert_says("compiled in").assert_says("laid-out").assert_says("quick");
    let rows = first.out.lines().filter(|line| line.contains(" gcc ")).count();
    assert_eq!(rows, 2, "{}", first.out);
    let second = make();
    second.assert_code(0).assert_says("laid out by BOLT, trained on point-1");
    assert!(!second.err.contains("training laid-out"), "{}", second.err);

    let mut run = dbdyno();
    run.arg("run").arg(&file).arg("--out").arg(lab.path().join("run"));
    run.arg("--cache").arg(cache());
    let run = said(run);
    run.assert_code(0).assert_says("laid-out").assert_says("trained on × measured on");
    assert!(!run.err.contains("compiled") && !run.err.contains("instrumenting"), "{}", run.err);
}

#[test]
fn an_experiment_without_anything_to_compile_has_nothing_to_make() {
    let lab = Lab::new();
    let text = "name = \"none\"\nbaseline = \"a\"\n[[candidate]]\nname = \"a\"\n\
                system = \"postgresql\"\nurl = \"postgres://nobody@/?host=/nowhere\"\n";
    let file = lab.file(text);
    call(["builds", "make", file.to_str().unwrap()]).assert_code(0).assert_says("Nothing in");
    call(["builds", "make"]).assert_code(2).assert_says("<FILE>");
}
