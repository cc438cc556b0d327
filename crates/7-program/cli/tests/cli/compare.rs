//! Comparisons in one line.

use std::fs;
use std::path::Path;

use dbdyno_types::server::ServerSystem;

use crate::common::{Finished, Stored, TestDir, cache, call, call_with, read_json, resume};
use crate::existing::{PASSWORD, Theirs};

/// Compares builds of SQLite with these arguments.
fn compare(test: &TestDir, out: &Path, more: &[&str]) -> Finished {
    let file = |name: &str| test.path().join(name).display().to_string();
    let words = ["compare", "sqlite:o0", "sqlite:o0{page_size=8KiB}", "-m", "scan_range=100"];
    let mut args: Vec<String> = words.map(str::to_owned).to_vec();
    args.extend(["--rows", "1k", "--for", "600ms", "--target", "20%"].map(str::to_owned));
    args.extend(["--fail-if", "slower 95%"].map(str::to_owned));
    for (option, name) in [
        ("--save", "saved.toml"),
        ("--export-json", "all.json"),
        ("--export-csv", "all.csv"),
        ("--export-markdown", "all.md"),
    ] {
        args.extend([option.to_owned(), file(name)]);
    }
    args.extend(["--out".to_owned(), out.display().to_string()]);
    args.extend(["--cache".to_owned(), cache().display().to_string()]);
    args.extend(more.iter().map(|word| (*word).to_owned()));
    call(args)
}

#[test]
fn words_are_compared_saved_and_exported() {
    let test = TestDir::new();
    let out = test.out();
    let finished = compare(&test, &out, &[]);
    finished.assert_code(0).assert_prints("dbdyno report ").assert_prints("--details");
    // How long it takes is said before it starts.
    finished.assert_prints("--for 600ms is too short: intervals need 20 blocks in 6 starts");
    finished.assert_prints("measuring").assert_prints("slower 95%");
    // One sentence on one screen; what it says depends on the noise. The rules follow.
    let answer = finished.out.split("\n\n").nth(1).unwrap().replace("\n  ", " ");
    assert!(answer.contains("o0.page_size-8KiB"), "{answer}");
    assert!(answer.contains("on scan_range=100"), "{answer}");
    let lines: Vec<&str> = finished.out.lines().collect();
    // Commands and paths are whole, so they are as long as the path of this checkout makes them.
    let copied =
        |line: &str| ["longer ", "all ", "charts "].iter().any(|name| line.starts_with(name));
    let fits = |line: &&str| copied(line) || line.chars().count() <= 80;
    assert!(lines.len() <= 26 && lines.iter().all(fits), "{lines:?}");

    let json = read_json(&fs::read_to_string(test.path().join("all.json")).unwrap());
    assert_eq!(json["baseline"], "o0");
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    assert_eq!(read(&test.path().join("all.csv")), read(&out.join("relative.csv")));
    let markdown = read(&test.path().join("all.md"));
    assert!(markdown.contains("o0.page_size-8KiB"), "{markdown}");

    // A resumed comparison is answered in the same way.
    let resumed = resume(&out, &[]);
    resumed.assert_code(0).assert_prints(answer.split(' ').next().unwrap());
    assert!(resumed.out.lines().count() <= 26, "{}", resumed.out);

    // The saved experiment is the one that was run.
    let saved = test.path().join("saved.toml");
    let stored = Stored::open(&out).experiment_text();
    assert_eq!(read(&saved), stored);
    call([Path::new("check"), &saved]).assert_code(0).assert_prints("o0.page_size-8KiB");
    // It is answered in the same way.
    let again = test.path().join("again").display().to_string();
    let words = ["run", saved.to_str().unwrap(), "--out", &again, "--cache"];
    let again = call(words.iter().map(Path::new).chain([cache().as_path()]));
    again.assert_code(0).assert_prints("--details");
    assert!(again.out.lines().count() <= 26, "{}", again.out);
    // An edited file is not replaced.
    fs::write(&saved, stored + "# mine\n").unwrap();
    let refused = compare(&test, &test.path().join("second"), &[]);
    refused.assert_code(2).assert_prints("saved.toml exists");
    assert!(!test.path().join("second").exists());
}

#[test]
fn each_setting_is_left_out_and_the_same_command_continues() {
    let test = TestDir::new();
    let out = test.out().display().to_string();
    let cache = cache().display().to_string();
    let candidates = ["sqlite:o0", "sqlite:o0{page_size=512B,cache_size=1MiB}"];
    let [setup, queries] = ["setup.sql", "queries.sql"].map(|name| test.path().join(name));
    let create = "CREATE TABLE t (a INTEGER);\nINSERT INTO t WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL \
                  SELECT a + 1 FROM n WHERE a < 1000) SELECT a FROM n;\n";
    fs::write(&setup, create).unwrap();
    fs::write(&queries, "SELECT sum(a) FROM t;\n").unwrap();
    let (setup, queries) = (setup.display().to_string(), queries.display().to_string());
    let options = ["--setup", &setup, "--sql", &queries, "--for", "1s", "--each-option"];
    let words = ["compare"].into_iter().chain(candidates).chain(options);
    let words = words.chain(["--out", &out, "--cache", &cache]);
    let words: Vec<&str> = words.collect();
    let finished = call(&words);
    finished.assert_code(0).assert_prints("screening: 2 settings, each left out once");
    finished.assert_prints(" for a screening if no setting counts; about ");
    finished.assert_prints("of 2 settings count").assert_prints("without all of them, as o0");
    // Everything is measured: only the answer is given again.
    let again = call(&words);
    assert_eq!(again.assert_code(0).out, finished.out);
    call(["report", &format!("{out}/screening-1")])
        .assert_code(0)
        .assert_prints("without-page_size");
    // The same command is another one if the file that it names is.
    fs::write(&setup, format!("{create}CREATE INDEX a ON t (a);\n")).unwrap();
    call(&words).assert_code(2).assert_prints("screening-1");
    let refused = call(["compare", "sqlite:o0", "sqlite:o0{page_size=512B}", "--each-option"]);
    refused.assert_code(2).assert_prints("the candidates differ in one setting");
}

#[test]
fn existing_servers_are_compared_by_their_urls() {
    let test = TestDir::new();
    let theirs = Theirs::start(ServerSystem::MariaDb);
    drop(theirs.mariadb());
    let url = |scheme: &str| format!("{scheme}://bench@/?socket={}", theirs.socket());
    let (mariadb, mysql) = (url("mariadb"), url("mysql"));
    let out = test.out().display().to_string();
    let options = ["-m", "point-query.pre_range=100", "--rows", "2000", "--for", "900ms", "--out"];
    let compare = |candidates: [&str; 2], out: &str| {
        let words = ["compare"].into_iter().chain(candidates).chain(options).chain([out]);
        call_with(words, &[("DBDYNO_PASSWORD", PASSWORD)])
    };
    let finished = compare([&mariadb, &mariadb], &out);
    finished.assert_code(0).assert_prints("server-2").assert_prints("point-query.pre_range=100");
    finished.assert_prints("server-2 and the baseline server are one server");
    // MySQL's scheme is common for servers of MariaDB, too.
    let other = test.path().join("other").display().to_string();
    compare([&mysql, &mysql], &other).assert_code(0).assert_prints("server-2");
    theirs.end();
}

#[test]
fn words_that_are_not_understood_are_pointed_at_with_the_nearest_valid_ones() {
    let test = TestDir::new();
    let out = test.out();
    let finished = compare(&test, &out, &["mraiadb", "sqlite:rel_o22"]);
    finished.assert_code(2).assert_prints("did you mean `mariadb`?");
    finished.assert_prints("^^^^^^^ did you mean `rel_o2`?").assert_prints("command line:1:");
    let finished = compare(&test, &out, &["-m", "scna*"]);
    finished.assert_code(2).assert_prints("^^^^^ did you mean `scan*`?");
    let below = test.path().join("missing/all.json").display().to_string();
    let finished = call(["compare", "sqlite", "--export-json", &below]);
    finished.assert_code(2).assert_prints("a directory that does not exist");
    assert!(!out.exists());
    assert_eq!(fs::read_dir(test.path()).unwrap().count(), 0, "nothing is written");
}
