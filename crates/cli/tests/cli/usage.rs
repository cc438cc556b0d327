//! Commands that only look, and everything a user can get wrong.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::{Experiment, Lab, Stored, call, read_json, resume};

#[test]
fn missing_compiler_is_named_with_installed_ones() {
    let lab = Lab::new();
    let out = lab.out();
    let compiler = lab.path().join("bin/their-gcc");
    let lines = format!("compiler = \"{}\"", compiler.display());
    let experiment =
        Experiment { candidates: &[("base", ""), ("theirs", &lines)], ..Experiment::default() };
    let said = lab.run(&experiment, &[]);
    said.assert_code(1).assert_says("candidate theirs").assert_says("their-gcc");
    said.assert_says("on the PATH: ").assert_says("gcc");
    // The same again, not something worse; and once it is there, the run goes on.
    resume(&out, &[]).assert_code(1).assert_says("their-gcc");
    let gcc = Command::new("sh").args(["-c", "command -v gcc"]).output().unwrap().stdout;
    let gcc = String::from_utf8(gcc).unwrap();
    fs::create_dir(lab.path().join("bin")).unwrap();
    symlink(gcc.trim(), &compiler).unwrap();
    resume(&out, &[]).assert_code(0);
    assert!(out.join("report.html").exists());
}

#[test]
fn directory_without_a_run_is_refused_with_advice() {
    let lab = Lab::new();
    let missing = lab.path().join("missing");
    let empty = lab.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let foreign = lab.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    let database = rusqlite::Connection::open(foreign.join("run.sqlite")).unwrap();
    database.execute_batch("CREATE TABLE t (x)").unwrap();
    let garbage = lab.path().join("garbage");
    fs::create_dir(&garbage).unwrap();
    fs::write(garbage.join("run.sqlite"), "no database at all").unwrap();
    for (directory, why) in [
        (&missing, "does not exist"),
        (&empty, "no run.sqlite"),
        (&foreign, "not made by dbdyno"),
        (&garbage, "no database"),
    ] {
        for said in [call([Path::new("report"), directory]), resume(directory, &[])] {
            said.assert_code(2).assert_says(why).assert_says(&directory.display().to_string());
        }
        let left = fs::read_dir(directory).map_or(0, Iterator::count);
        assert!(left <= 1, "something was written to {}", directory.display());
    }
}

#[test]
fn finished_run_is_kept_and_newer_format_is_refused() {
    let lab = Lab::new();
    let out = lab.out();
    lab.run(&Experiment::default(), &[]).assert_code(0);
    let slices = Stored::open(&out).slices();

    let again = lab.run(&Experiment::default(), &[]);
    again.assert_code(2).assert_says(&out.display().to_string()).assert_says("--resume");
    resume(&out, &[]).assert_code(0);
    call([Path::new("report"), &out, Path::new("--three-groups")]).assert_code(0);
    assert_eq!(Stored::open(&out).slices(), slices);

    Stored::open(&out).set_format(999);
    for said in [call([Path::new("report"), &out]), resume(&out, &[])] {
        said.assert_code(1).assert_says("newer").assert_says("999");
    }
}

#[test]
fn unwritable_path_is_named() {
    let lab = Lab::new();
    let file = lab.file(&Experiment::default().text());
    let below_a_file = file.join("out");
    let said = call([Path::new("run"), &file, Path::new("--out"), &below_a_file]);
    said.assert_code(1).assert_says(&file.display().to_string());
}

#[test]
fn experiment_errors_show_file_and_line() {
    let lab = Lab::new();
    let text = Experiment::default().text();
    let file = lab.file(&text.replace("slice =", "slcie =").replace("\"o0\"", "\"o00\""));
    let line = text.lines().position(|line| line.starts_with("slice")).unwrap() + 1;
    let place = format!("{}:{line}:1", file.display());
    for command in ["run", "check"] {
        let said = call([Path::new(command), &file]);
        said.assert_code(2).assert_says(&place).assert_says("did you mean `slice`?");
        said.assert_says("unknown variant `o00`").assert_says("did you mean `o0`?");
    }
    call(["check", "no-such-file.toml"]).assert_code(2).assert_says("no-such-file.toml");
    call(["run"]).assert_code(2);
    call(["measure"]).assert_code(2);
}

#[test]
fn check_prints_the_plan_and_runs_nothing() {
    let lab = Lab::new();
    let experiment = Experiment {
        control: true,
        candidates: &[("base", ""), ("other", "flags = [\"-fno-plt\"]")],
        ..Experiment::default()
    };
    let file = lab.file(&experiment.text());
    let said = call([Path::new("check"), &file]);
    said.assert_code(0).assert_says("test is valid").assert_says("Plan: 3 instances");
    for words in
        ["hot-points_range=100", "-fno-plt", "a second instance of base", "restarts", "Data: about"]
    {
        said.assert_says(words);
    }
    assert_eq!(fs::read_dir(lab.path()).unwrap().count(), 1);
}

#[test]
fn list_prints_microbenchmarks_variants_and_systems() {
    let all = call(["list"]);
    all.assert_code(0).assert_says("rel_native_lto").assert_says("sqlite");
    all.assert_says("point-query.pre_range=100").assert_says("insert_range=100");

    let points = call(["list", "microbenchmarks", "point-1"]);
    points.assert_code(0);
    let rows: Vec<&str> = points.out.lines().skip(1).collect();
    assert!(rows.len() > 5, "{}", points.out);
    assert!(rows.iter().all(|row| row.contains(" point-1")), "{}", points.out);

    let unknown = call(["list", "microbenchmarks", "point-qeury*"]);
    unknown.assert_code(2).assert_says("did you mean `point-query*`?");
}

#[test]
fn doctor_checks_the_machine() {
    let text = call(["doctor"]);
    text.assert_says("This machine").assert_says("kernel");
    let warnings = text.out.contains("WARNING");
    text.assert_code(i32::from(warnings));

    let json = call(["doctor", "--json"]);
    assert!(matches!(json.code, Some(0 | 1)), "{json:?}");
    let json = read_json(&json.out);
    assert!(json["facts"].is_object());
    assert!(!json["findings"].as_array().unwrap().is_empty());
}

#[test]
fn every_command_has_examples_in_its_help() {
    for command in ["run", "check", "report", "list", "doctor"] {
        call([command, "--help"])
            .assert_code(0)
            .assert_says("Example")
            .assert_says(&format!("dbdyno {command}"));
    }
    call(["--help"]).assert_code(0).assert_says("Exit codes").assert_says("quickstart");
    call(["--version"]).assert_code(0).assert_says("dbdyno 0.");
}
