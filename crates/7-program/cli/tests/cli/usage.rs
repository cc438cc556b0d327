//! Read-only commands and usage errors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::{Experiment, Stored, TestDir, call, call_with, dbdyno, read_json, resume};

#[test]
fn missing_compiler_is_named_with_installed_ones() {
    let test = TestDir::new();
    let out = test.out();
    let compiler = test.path().join("bin/their-gcc");
    let lines = format!("compiler = \"{}\"", compiler.display());
    let experiment =
        Experiment { candidates: &[("base", ""), ("theirs", &lines)], ..Experiment::default() };
    let finished = test.run(&experiment, &[]);
    finished.assert_code(1).assert_prints("candidate theirs").assert_prints("their-gcc");
    finished.assert_prints("on the PATH: ").assert_prints("gcc");
    // The second attempt fails in the same way. With the compiler installed, the run resumes.
    resume(&out, &[]).assert_code(1).assert_prints("their-gcc");
    let gcc = Command::new("sh").args(["-c", "command -v gcc"]).output().unwrap().stdout;
    let gcc = String::from_utf8(gcc).unwrap();
    fs::create_dir(test.path().join("bin")).unwrap();
    symlink(gcc.trim(), &compiler).unwrap();
    resume(&out, &[]).assert_code(0);
    assert!(out.join("report.html").exists());
}

#[test]
fn directory_without_a_run_is_refused_with_advice() {
    let test = TestDir::new();
    let missing = test.path().join("missing");
    let empty = test.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let foreign = test.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    let database = rusqlite::Connection::open(foreign.join("run.sqlite")).unwrap();
    database.execute_batch("CREATE TABLE t (x)").unwrap();
    let garbage = test.path().join("garbage");
    fs::create_dir(&garbage).unwrap();
    fs::write(garbage.join("run.sqlite"), "no database at all").unwrap();
    for (directory, why) in [
        (&missing, "does not exist"),
        (&empty, "no run.sqlite"),
        (&foreign, "not made by dbdyno"),
        (&garbage, "not a database"),
    ] {
        for finished in [call([Path::new("report"), directory]), resume(directory, &[])] {
            finished
                .assert_code(2)
                .assert_prints(why)
                .assert_prints(&directory.display().to_string());
        }
        let left = fs::read_dir(directory).map_or(0, Iterator::count);
        assert!(left <= 1, "something was written to {}", directory.display());
    }
}

#[test]
fn finished_run_is_kept_and_newer_format_is_refused() {
    let test = TestDir::new();
    let out = test.out();
    test.run(&Experiment::default(), &[]).assert_code(0);
    let slices = Stored::open(&out).slices();

    let again = test.run(&Experiment::default(), &[]);
    again.assert_code(2).assert_prints(&out.display().to_string()).assert_prints("resume");
    assert_eq!(again.out, "", "it printed the report of another run");
    resume(&out, &[]).assert_code(0);
    call([Path::new("report"), &out, Path::new("--three-groups")]).assert_code(0);
    let both = out.with_extension("both");
    let arguments = [Path::new("report"), &out, &out, Path::new("--out"), &both];
    let compared = call(arguments);
    compared.assert_code(0).assert_prints("2 runs side by side").assert_prints("equal in A and B");
    for file in ["html", "csv", "json"].map(|end| both.join("comparison").with_extension(end)) {
        assert!(file.exists(), "{}", file.display());
    }
    assert!(both.join("comparison_absolute.csv").exists());
    let markdown = Path::new("--markdown");
    let compared = call([Path::new("report"), &out, &out, markdown]);
    compared.assert_code(0).assert_prints("## 2 runs side by side").assert_prints("| A | `test` |");
    let refused = call([Path::new("report"), &out, &out, markdown, Path::new("--out"), &both]);
    refused.assert_code(2).assert_prints("remove --out");
    call([Path::new("report"), &out, markdown, Path::new("--details")]).assert_code(2);
    let groups = Path::new("--three-groups");
    for args in [&[&out, markdown, groups][..], &[&out, &out, groups]] {
        let refused = call([Path::new("report")].iter().chain(args));
        refused.assert_code(2).assert_prints("--three-groups has no effect");
    }
    assert_eq!(Stored::open(&out).slices(), slices);

    Stored::open(&out).set_format(999);
    for finished in [call([Path::new("report"), &out]), resume(&out, &[])] {
        finished.assert_code(1).assert_prints("newer").assert_prints("999");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_except_on_a_closed_pipe() {
    for arguments in [["list", "variants"].as_slice(), &["--help"], &["list", "microbenchmarks"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = dbdyno().args(arguments).stdout(full).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        let error = String::from_utf8(ended.stderr).unwrap();
        assert!(error.contains("standard output: No space left"), "{arguments:?}: {error}");
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let ended = dbdyno().args(arguments).stdout(closed).output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn unwritable_path_is_named() {
    let test = TestDir::new();
    let file = test.file(&Experiment::default().text());
    let below_a_file = file.join("out");
    let finished = call([Path::new("run"), &file, Path::new("--out"), &below_a_file]);
    finished.assert_code(1).assert_prints(&file.display().to_string());
}

#[test]
fn experiment_errors_show_file_and_line() {
    let test = TestDir::new();
    let text = Experiment::default().text();
    let file = test.file(&text.replace("slice =", "slcie =").replace("\"o0\"", "\"o00\""));
    let line = text.lines().position(|line| line.starts_with("slice")).unwrap() + 1;
    let place = format!("{}:{line}:1", file.display());
    for command in ["run", "check"] {
        let finished = call([Path::new(command), &file]);
        finished.assert_code(2).assert_prints(&place).assert_prints("did you mean `slice`?");
        finished.assert_prints("unknown variant `o00`").assert_prints("did you mean `o0`?");
    }
    call(["check", "no-such-file.toml"]).assert_code(2).assert_prints("no-such-file.toml");
    call(["run"]).assert_code(2);
    call(["measure"]).assert_code(2);
}

#[test]
fn check_prints_the_plan_and_runs_nothing() {
    let test = TestDir::new();
    let experiment = Experiment {
        control: true,
        candidates: &[("base", ""), ("other", "flags = [\"-fno-plt\"]")],
        ..Experiment::default()
    };
    let file = test.file(&experiment.text());
    let finished = call([Path::new("check"), &file]);
    finished.assert_code(0).assert_prints("test is valid").assert_prints("Plan: 3 instances");
    for words in
        ["hot-points_range=100", "-fno-plt", "a second instance of base", "restarts", "Data: about"]
    {
        finished.assert_prints(words);
    }
    assert_eq!(fs::read_dir(test.path()).unwrap().count(), 1);
}

#[test]
fn check_prints_the_passes_of_private_servers() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments");
    let file = experiments.join("control.toml");
    let finished = call([Path::new("check"), &file, Path::new("--file-only")]);
    // Half of 5 s for 6 passes, and as much for more.
    finished.assert_code(0).assert_prints("Passes: 6 to 12 over all microbenchmarks.");
    finished.assert_prints("Every instance is started 6 to 12 times, which");
    let file = experiments.join("live-optimizer-small.toml");
    let finished = call([Path::new("check"), &file, Path::new("--file-only")]);
    assert!(!finished.assert_code(0).out.contains("Passes:"), "{}", finished.out);
}

#[test]
fn check_looks_at_the_machine() {
    let test = TestDir::new();
    // A missing compiler, a reserved setting, and more data than any disk.
    let text = "name = \"big\"\nbaseline = \"a\"\n[workload]\ntables = 1_000\nrows = 1_000_000_000\n\
                [[candidate]]\nname = \"a\"\nsystem = \"sqlite\"\nvariant = \"rel\"\ncompiler = \"gcc-999\"\n\
                [[candidate]]\nname = \"b\"\nsystem = \"postgresql\"\nprogram = \"/no/postgres\"\n\
                [[candidate]]\nname = \"c\"\nsystem = \"mariadb\"\nvariant = \"rel\"\n\
                source = { path = \"/no/source\" }\nconfiguration = { port = 3307 }\n";
    let file = test.file(text);
    let out = test.out();
    let finished = call([Path::new("check"), &file, Path::new("--out"), &out]);
    finished.assert_code(1).assert_prints("big is valid");
    for words in [
        "gcc-999",
        "candidate b: ",
        "/no/postgres",
        "candidate c: there is no source directory /no/source",
        "candidate c: the setting port cannot be used",
        "the data needs about",
        "use --file-only",
    ] {
        finished.assert_prints(words);
    }
    assert!(!out.exists());
    call([Path::new("check"), &file, Path::new("--file-only")]).assert_code(0);
}

#[test]
fn list_prints_microbenchmarks_variants_and_systems() {
    let all = call(["list"]);
    all.assert_code(0).assert_prints("rel_native_lto").assert_prints("sqlite");
    all.assert_prints("point-query.pre_range=100").assert_prints("insert_range=100");

    let points = call(["list", "microbenchmarks", "point-1"]);
    points.assert_code(0);
    let rows: Vec<&str> = points.out.lines().skip(1).collect();
    assert!(rows.len() > 5, "{}", points.out);
    assert!(rows.iter().all(|row| row.contains(" point-1")), "{}", points.out);

    let unknown = call(["list", "microbenchmarks", "point-qeury*"]);
    unknown.assert_code(2).assert_prints("did you mean `point-query*`?");
}

#[test]
fn list_refuses_what_has_no_effect() {
    for args in [
        &["variants", "rel*"][..],
        &["systems", "--sql"],
        &["script", "oltp_read_only.lua", "--sql"],
        &["microbenchmarks", "--option", "tables=4"],
        &["microbenchmarks", "point-1", "--seed", "7"],
        &["microbenchmarks", "point-1", "--events", "3"],
        &["--sysbench", "1.1"],
        &["script", "oltp_read_only.lua", "--option", "tables=1", "--option", "tables=2"],
    ] {
        let refused = call(["list"].iter().chain(args));
        refused.assert_code(2);
        assert_eq!(refused.out, "", "{args:?}");
    }
}

#[test]
fn options_without_effect_are_refused_with_their_names() {
    let test = TestDir::new();
    let file = test.file(&Experiment::default().text());
    let out = test.out();
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    let optimize = ["live", "optimize", "--pid", "2147483000", "--dry-run"];
    let optimize = |more: &[&'static str]| [&optimize[..], more].concat();
    for (args, option) in [
        (vec!["run", "--script", "oltp_read_only.lua", "--more", "10min"], "--more"),
        (vec!["run", "--script", "oltp_read_only.lua", "--trust"], "--trust"),
        (vec!["run", file, "--more", "10min"], "--more"),
        (vec!["run", file, "--trust"], "--trust"),
        (vec!["run", file, "--option", "a=1"], "--option"),
        (vec!["run", "--resume", out, "--option", "a=1"], "--option"),
        (vec!["run", "--resume", out, "--sysbench", "1.1"], "--sysbench"),
        (vec!["compare", "sqlite", "-m", "point-1", "--option", "a=1"], "--option"),
        (vec!["compare", "sqlite", "-m", "point-1", "--sysbench", "1.1"], "--sysbench"),
        (optimize(&["--keep"]), "--keep"),
        (optimize(&["--ab-test", "3"]), "--ab-test"),
    ] {
        call(&args).assert_code(2).assert_prints(option);
    }
    assert!(!Path::new(out).exists());
}

#[test]
fn options_of_sysbench_have_advice_for_the_command_line() {
    for (option, advice) in [
        ("threads=8", "use `--clients`"),
        ("max-time=60", "use `--for`"),
        ("rand-seed=1", "set `seed` in the file that `--save` writes"),
        ("mysql-storage-engine=rocksdb", "mariadb:engine=myrocks"),
    ] {
        let words = ["run", "--script", "oltp_read_only.lua", "--option", option, "mariadb"];
        call(words).assert_code(2).assert_prints(advice);
    }
    let words = ["list", "script", "oltp_read_only.lua", "--option", "rand-seed=1"];
    call(words).assert_code(2).assert_prints("use `--seed`");
}

#[test]
fn cache_entries_with_names_beyond_ascii_are_listed() {
    let test = TestDir::new();
    // The first 12 bytes end within the last character.
    fs::create_dir_all(test.path().join("sources/01234567890ö")).unwrap();
    let listed = call(["builds", "list", "--cache", test.path().to_str().unwrap()]);
    listed.assert_code(0).assert_prints("source 01234567890ö");
}

#[test]
fn process_id_without_its_option_is_refused() {
    let test = TestDir::new();
    let state = test.path().to_str().unwrap();
    for args in [&["status"][..], &["undo", "--all"]] {
        let words = [&["live"], args, &["4242", "--state", state]].concat();
        call(words).assert_code(2).assert_prints("--pid");
    }
    let words = ["live", "optimize", "--pid", "2147483000", "--ab-test", "5", "--state", state];
    call(words).assert_code(2).assert_prints("--work-command");
}

#[test]
fn list_prints_the_statements_of_a_sysbench_test() {
    let listed = call(["list", "microbenchmarks", "oltp_read_write", "--sql"]);
    listed.assert_code(0);
    for line in [
        "writes   oltp_read_write, transaction\n",
        "\n      10 × SELECT c FROM {table} WHERE id = :id\n",
        "\n        -- :low uniform, :high low + 99\n",
        "\n      COMMIT\n",
    ] {
        assert!(listed.out.contains(line), "{line}");
    }
    assert!(listed.out.lines().all(|line| line.chars().count() <= 80), "{}", listed.out);
}

#[test]
fn doctor_checks_the_machine() {
    let text = call(["doctor"]);
    text.assert_prints("This machine").assert_prints("kernel");
    let warnings = text.out.contains("WARNING");
    text.assert_code(i32::from(warnings));

    let json = call(["doctor", "--json"]);
    assert!(matches!(json.code, Some(0 | 1)), "{json:?}");
    let json = read_json(&json.out);
    assert!(json["facts"].is_object());
    assert!(!json["findings"].as_array().unwrap().is_empty());

    let missing = call(["doctor", "--disk", "/no/such/disk"]);
    missing.assert_code(2).assert_prints("/no/such/disk");
}

#[test]
fn every_command_has_examples_in_its_help() {
    let commands = [
        "compare", "run", "check", "report", "history", "import", "clean", "audit", "builds",
        "list", "doctor", "live", "why",
    ];
    for command in commands {
        call([command, "--help"])
            .assert_code(0)
            .assert_prints("Example")
            .assert_prints(&format!("dbdyno {command}"));
    }
    let releases = call(["compare", "--help"]);
    releases.assert_prints("compare mysql@5.6.14 mysql@8.0.33 mariadb@trixie");
    releases.assert_prints("see `dbdyno list releases`");
    call(["--help"]).assert_code(0).assert_prints("Exit codes").assert_prints("quickstart");
    call(["--version"]).assert_code(0).assert_prints("dbdyno 0.");
}

#[test]
fn help_of_report_names_every_file_that_it_writes() {
    let help = call(["report", "--help"]);
    let files = "report.html report.md run.json relative.csv summary.csv latency.csv scaling.csv \
                 counters.csv statements.csv effects.csv changes.csv insert_steps.csv insert_series.csv \
                 engine_counters.csv functions.csv waits.csv";
    for file in files.split_whitespace() {
        help.assert_code(0).assert_prints(file);
    }
}

#[test]
fn why_needs_one_run_with_a_profile() {
    let test = TestDir::new();
    let table = test.path().join("table.tsv");
    fs::write(&table, "old\tnew\n10\t12\tscan_range=100\n").unwrap();
    let runs = ["first", "second"].map(|name| test.path().join("runs").join(name));
    fs::create_dir(test.path().join("runs")).unwrap();
    for run in &runs {
        call([Path::new("import"), &table, Path::new("--out"), run]).assert_code(0);
    }
    let [why, unknown] = ["why", "older"].map(Path::new);
    call([why, &runs[0]]).assert_code(1).assert_prints("measure again with --profile");
    call([why, &runs[0], &runs[1]]).assert_code(2).assert_prints("second is another run directory");
    let several = call([why, &test.path().join("runs")]);
    several.assert_code(2).assert_prints("holds 2 run directories").assert_prints("runs/first");
    call([why, &runs[0], unknown]).assert_code(2).assert_prints("no candidate `older`; it has new");
}

#[test]
fn import_of_0_clients_or_into_a_run_is_refused() {
    let test = TestDir::new();
    let table = test.path().join("table.tsv");
    fs::write(&table, "old\tnew\n10\t12\tscan_range=100\n").unwrap();
    let run = test.path().join("run");
    let [import, out, clients, none] = ["import", "--out", "--clients", "0"].map(Path::new);
    call([import, &table, out, &run, clients, none]).assert_code(2).assert_prints("--clients");
    assert!(!run.exists());
    call([import, &table, out, &run]).assert_code(0);
    call([import, &table, out, &run]).assert_code(2).assert_prints("holds a run already");
    let resumed = resume(&run, &[]);
    resumed.assert_code(1).assert_prints("imported results");
    assert_eq!(resumed.out, "");
}

#[test]
fn log_does_not_change_standard_output() {
    let quiet = call(["list", "variants"]);
    let verbose = call(["list", "variants", "-vvv"]);
    verbose.assert_code(0);
    assert_eq!(verbose.out, quiet.out);
    call_with(["list", "variants"], &[("DBDYNO_LOG", "no=such=filter")])
        .assert_code(2)
        .assert_prints("DBDYNO_LOG");
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        call(["completions", shell]).assert_code(0).assert_prints("resume");
    }
    let test = TestDir::new();
    let pages = test.path().join("man");
    let other = test.path().join("other");
    fs::create_dir(&pages).unwrap();
    fs::write(&other, "of somebody else").unwrap();
    symlink(&other, pages.join("dbdyno-run.1")).unwrap();
    call([Path::new("man"), &pages]).assert_code(0);
    assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("dbdyno-run.1").contains(".SH OPTIONS"));
    assert!(page("dbdyno-compare.1").contains("export\\-json"));
    assert!(page("dbdyno-builds-clean.1").contains("EXTRA"));
    assert!(!pages.join("dbdyno-worker.1").exists());
}

#[test]
fn escape_sequences_of_a_run_are_shown_as_symbols() {
    let test = TestDir::new();
    let table = test.path().join("table.tsv");
    fs::write(&table, "old\tnew\n10\t12\tscan_range=100\n").unwrap();
    let run = test.path().join("run");
    call([Path::new("import"), &table, Path::new("--out"), &run]).assert_code(0);
    let database = rusqlite::Connection::open(run.join("run.sqlite")).unwrap();
    let sql =
        "INSERT INTO failure (session, candidate, kind, at, reason) VALUES (1, 0, ?1, '', '')";
    database.execute(sql, ["\x1b]0;title\x07\x1b[2J"]).unwrap();
    drop(database);
    let finished = call([Path::new("report"), &run]);
    finished.assert_code(1).assert_prints("␛]0;title␇␛[2J");
    let file = test.path().join("\x1b[2J.toml");
    let finished_check = call([Path::new("check"), &file]);
    finished_check.assert_code(2).assert_prints("␛[2J.toml");
    for finished in [finished, finished_check] {
        assert!(!(finished.out.clone() + &finished.err).contains('\x1b'), "{:?}", finished.err);
    }
}
