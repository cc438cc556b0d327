//! Import of published files, and reports made from them.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_fuzz::Fuzz;
use dbdyno_import::{Imported, Request, import};
use dbdyno_report::assemble::assemble;
use dbdyno_report::model::{Report, RunStatus, Verdict};
use dbdyno_results::RunReader;
use dbdyno_units::Nanos;
use tempfile::{TempDir, tempdir};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn request(dir: &TempDir, files: &[PathBuf]) -> Request {
    Request {
        files: files.to_vec(),
        out: dir.path().join("out"),
        name: None,
        baseline: None,
        clients: None,
        now: "2026-03-01T09:30:00Z".to_owned(),
        version: "0.1.0".to_owned(),
    }
}

fn imported(request: &Request) -> (Imported, Report) {
    let imported = import(request).unwrap();
    let unused = ["data", "logs"].map(|name| request.out.join(name).exists());
    assert_eq!(unused, [false; 2]);
    (imported, assemble(&RunReader::open(&request.out).unwrap()).unwrap())
}

/// Group, count, min, max, avg, median, standard deviation, worst, best: of the last column divided
/// by the first, calculated from the file independently of this project's code.
const LAST_COLUMN: [(&str, usize, [f64; 5], &str, &str); 5] = [
    (
        "point-1",
        11,
        [0.887882, 0.951094, 0.932967, 0.942101, 0.022393],
        "point-query.pre_range=100",
        "points-notcovered-si.pre_range=100",
    ),
    (
        "point-2",
        6,
        [0.932859, 0.962963, 0.947641, 0.945563, 0.010511],
        "random-points.pre_range=10",
        "random-points_range=1000",
    ),
    (
        "range-1",
        9,
        [0.680296, 0.938059, 0.871112, 0.860121, 0.081061],
        "scan_range=100",
        "range-notcovered-si_range=100",
    ),
    (
        "range-2",
        6,
        [0.866487, 0.897516, 0.879260, 0.873746, 0.013633],
        "read-only.pre_range=10",
        "read-only_range=10000",
    ),
    (
        "writes",
        10,
        [0.744286, 1.062734, 0.833117, 0.803444, 0.086890],
        "insert_range=100",
        "update-index_range=100",
    ),
];

#[test]
fn summary_of_a_published_table_is_correct() {
    let dir = tempdir().unwrap();
    let (imported, report) = imported(&request(&dir, &[data("mysql-8.0-qps.tsv")]));
    let names =
        ["my8013_rel", "my8014_rel", "my8020_rel", "my8028_rel", "my8035_rel", "my8036_rel"];
    assert_eq!(imported.candidates, names);
    assert_eq!((imported.microbenchmarks, imported.values), (42, 42 * 6));
    assert!(imported.ungrouped.is_empty());
    assert_eq!((report.name.as_str(), report.status), ("mysql-8.0-qps", RunStatus::Complete));
    for (group, count, figures, worst, best) in LAST_COLUMN {
        let mut all = report.groups.iter();
        let summary = all.find(|s| s.group == group && s.candidate == "my8036_rel").unwrap();
        let found = [
            summary.min.get(),
            summary.max.get(),
            summary.avg.get(),
            summary.median.get(),
            summary.stddev.unwrap(),
        ];
        assert_eq!(summary.count, count, "{group}");
        for (found, expected) in found.into_iter().zip(figures) {
            assert!((found - expected).abs() < 1e-6, "{group}: {found} instead of {expected}");
        }
        assert_eq!((summary.worst.as_str(), summary.best.as_str()), (worst, best));
    }
}

#[test]
fn clients_of_tables_are_given_or_called_assumed() {
    let dir = tempdir().unwrap();
    for (clients, said) in [
        (None, "1 (assumed, as tables do not say; --clients N changes it)"),
        (Some(4), "4 (tables do not say; as given)"),
    ] {
        let out = dir.path().join(&said[..1]);
        let (_, report) =
            imported(&Request { clients, out, ..request(&dir, &[data("mysql-8.0-qps.tsv")]) });
        assert_eq!(report.settings[1].1, said);
        assert_eq!(report.clients(), [clients.unwrap_or(1)]);
    }
}

#[test]
fn single_value_has_a_ratio_and_no_interval() {
    let dir = tempdir().unwrap();
    let (_, report) = imported(&request(&dir, &[data("mysql-8.0-qps.tsv")]));
    // In running order, not in the order of the file.
    assert_eq!(report.microbenchmarks[0].name, "point-query.pre_range=100");
    let scan = report.microbenchmarks.iter().find(|m| m.name == "scan_range=100").unwrap();
    assert_eq!(scan.throughput_unit, "million rows/s");
    assert!((scan.baseline.qps.unwrap().per_second() - 3.106).abs() < 1e-9);
    let row = scan.rows.last().unwrap();
    assert_eq!(
        (row.verdict, row.relative_qps, row.relative_cpu),
        (Verdict::NoInterval, None, None)
    );
    assert!((row.single.unwrap().get() - 2.113 / 3.106).abs() < 1e-12);
    assert_eq!((row.absolute.cpu_us_per_query, row.absolute.cs_per_query), (None, None));
    assert!(report.noise.is_none());
}

#[test]
fn missing_value_does_not_shift_the_pairs_after_it() {
    let dir = tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    // The second file is from a faster machine.
    let files = [
        file("slow.tsv", "old\tnew\n100\t-\tpoint-query_range=100\n"),
        file("fast.tsv", "old\tnew\n1000\t1100\tpoint-query_range=100\n"),
    ];
    let (imported, report) = imported(&request(&dir, &files));
    assert_eq!(imported.values, 3);
    let row = &report.microbenchmarks[0].rows[0];
    assert!((row.single.unwrap().get() - 1.1).abs() < 1e-12, "{row:?}");
}

#[test]
fn files_of_the_same_name_are_candidates_named_by_their_directories() {
    let dir = tempdir().unwrap();
    let output = fs::read_to_string(data("ten_six.read-only_range=100.txt")).unwrap();
    let mut files = Vec::new();
    for (server, name, text) in [
        ("server-a", "oltp_read_only.4.log", output.clone()),
        ("server-b", "oltp_read_only.4.log", output.replace("16767.81", "8383.905")),
        ("server-a", "t.tsv", "\u{feff}old\n100\tinsert_range=100\n".to_owned()),
        ("server-b", "t.tsv", "old\n110\tinsert_range=100\nFAILED\tscan_range=100\n".to_owned()),
    ] {
        let file = dir.path().join(server).join("logs").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        files.push(file);
    }
    let (logs, report) = imported(&request(&dir, &files[..2]));
    assert_eq!(logs.candidates, ["server-a", "server-b"]);
    assert_eq!(report.microbenchmarks[0].name, "oltp_read_only");
    assert!((report.microbenchmarks[0].rows[0].single.unwrap().get() - 0.5).abs() < 1e-6);
    // A file that only one directory has is of the same candidate.
    let only = dir.path().join("server-b/logs/oltp_insert.log");
    fs::write(&only, &output).unwrap();
    let with_only = [files[0].clone(), files[1].clone(), only];
    let with_only = Request { out: dir.path().join("only"), ..request(&dir, &with_only) };
    assert_eq!(imported(&with_only).0.candidates, ["server-a", "server-b"]);
    let inside = dir.path().join("server-a/logs/old/oltp_read_only.4.log");
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::write(&inside, &output).unwrap();
    let nested = request(&dir, &[files[0].clone(), inside]);
    let (nested, _) = imported(&Request { out: dir.path().join("nested"), ..nested });
    assert_eq!(nested.candidates, ["logs", "old"]);
    let of_tables = Request { out: dir.path().join("tables"), ..request(&dir, &files[2..]) };
    let (tables, report) = imported(&of_tables);
    assert_eq!(tables.candidates, ["server-a", "server-b"]);
    assert!(
        report.warnings.iter().any(|one| one.what.contains("first `FAILED` at")),
        "{:?}",
        report.warnings
    );
    let twice = request(&dir, &[files[0].clone(), files[0].clone()]);
    let error = import(&Request { out: dir.path().join("twice"), ..twice }).unwrap_err();
    assert!(error.to_string().ends_with("oltp_read_only.4.log is named twice"), "{error}");
}

#[test]
fn baseline_can_be_selected() {
    let dir = tempdir().unwrap();
    let mut request = request(&dir, &[data("mysql-8.0-qps.tsv")]);
    request.baseline = Some("my8036".to_owned());
    let error = import(&request).unwrap_err();
    assert!(error.to_string().starts_with("no candidate is called `my8036`"), "{error}");
    assert!(error.to_string().contains("my8013_rel, my8014_rel"), "{error}");
    assert!(!request.out.exists(), "a run was made of a request with a mistake");
    request.baseline = Some("my8036_rel".to_owned());
    let (imported, report) = imported(&request);
    assert_eq!(imported.candidates[..2], ["my8036_rel", "my8013_rel"]);
    assert_eq!(report.baseline, "my8036_rel");
    let row = &report.microbenchmarks[0].rows[0];
    assert!((row.single.unwrap().get() - 17_000.0 / 15_094.0).abs() < 1e-12);
}

#[test]
fn baseline_is_the_first_candidate_even_if_its_first_value_is_missing() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("t.csv");
    let of = |missing: &str, first: &str| {
        fs::write(&file, format!("test,old,new\nread-only,{missing},11\nread-write,{first},6\n"))
            .unwrap();
        let out = dir.path().join(format!("out-{missing}"));
        Request { out, ..request(&dir, std::slice::from_ref(&file)) }
    };
    for missing in ["", "NULL"] {
        let (found, report) = imported(&of(missing, "5"));
        assert_eq!(found.candidates, ["old", "new"]);
        assert_eq!(found.without_baseline, ["read-only"]);
        let [only] = &report.microbenchmarks[..] else { panic!("{:?}", report.microbenchmarks) };
        assert_eq!(only.name, "read-write");
        assert!((only.rows[0].single.unwrap().get() - 1.2).abs() < 1e-12);
    }
    let error = import(&of("-", "-")).unwrap_err().to_string();
    assert!(error.starts_with("`old`, the first candidate and thus the baseline,"), "{error}");
    let other = Request { baseline: Some("new".to_owned()), ..of("-", "-") };
    assert_eq!(import(&other).unwrap().candidates, ["new"]);
}

#[test]
fn series_keeps_the_order_of_the_columns_with_any_baseline() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("releases.tsv");
    fs::write(&file, "a\tb\tc\td\te\n100\t110\t120\t130\t140\tinsert_range=100\n").unwrap();
    for (number, baseline) in ["a", "c", "e"].into_iter().enumerate() {
        let (imported, report) = imported(&Request {
            baseline: Some(baseline.to_owned()),
            out: dir.path().join(format!("out-{number}")),
            ..request(&dir, std::slice::from_ref(&file))
        });
        assert_eq!(imported.candidates[0], baseline);
        let series = &report.series[0];
        assert_eq!(series.candidates, ["a", "b", "c", "d", "e"]);
        let mut pairs: Vec<(&str, &str)> =
            series.changes.iter().map(|one| (one.from.as_str(), one.to.as_str())).collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]);
        let last = series.rows[0].cells[4].unwrap();
        assert!((last.ratio.get() - 1.4).abs() < 1e-12, "{last:?}");
    }
}

#[test]
fn repeated_values_are_blocks_and_six_give_an_interval() {
    let dir = tempdir().unwrap();
    let mut files = Vec::new();
    for n in 0..6 {
        let file = dir.path().join(format!("{n}.tsv"));
        fs::write(&file, format!("old\tnew\n{}\t{}\tinsert_range=100\n", 100 + n, 120 + n))
            .unwrap();
        files.push(file);
    }
    let (_, report) = imported(&request(&dir, &files));
    assert_eq!(report.name, "0 and 5 more files");
    let row = &report.microbenchmarks[0].rows[0];
    assert_eq!((row.blocks, row.verdict), (6, Verdict::Better));
    let estimate = row.relative_qps.unwrap();
    assert!(estimate.low.get() >= 125.0 / 105.0 && estimate.high.get() <= 1.2);
}

/// As in docs/results.md.
#[test]
fn repeats_within_a_table_are_lines_and_numbered_columns_are_candidates() {
    let dir = tempdir().unwrap();
    let of = |name: &str, text: &str| {
        let file = dir.path().join(format!("{name}.csv"));
        fs::write(&file, text).unwrap();
        imported(&Request { out: dir.path().join(name), ..request(&dir, &[file]) })
    };
    let lines = "test,old,new\ninsert_range=100,100,118\ninsert_range=100,103,121\n";
    let tables = lines.replacen("118\n", "118\n\ntest,old,new\n", 1);
    for (name, text) in [("lines", lines), ("tables", tables.as_str())] {
        let (all, report) = of(name, text);
        assert_eq!((all.candidates, all.values), (vec!["old".to_owned(), "new".to_owned()], 4));
        assert_eq!(report.microbenchmarks[0].rows[0].blocks, 2, "{name}");
    }
    let (columns, _) = of("columns", "test,old-1,old-2\ninsert_range=100,100,103\n");
    assert_eq!(columns.candidates, ["old-1", "old-2"]);
}

#[test]
fn sysbench_outputs_become_a_sweep() {
    let dir = tempdir().unwrap();
    let output = fs::read_to_string(data("ten_six.read-only_range=100.txt")).unwrap();
    let mut files = vec![data("ten_six.point-query_range=100.txt")];
    for (name, threads, queries) in [
        ("old.oltp_read_only.txt", 2, "16767.81"),
        ("old.oltp_read_only.2.txt", 8, "30000.00"),
        ("new.oltp_read_only.txt", 2, "20121.37"),
        ("new.oltp_read_only.2.txt", 8, "24000.00"),
        ("new.mine.txt", 1, "1.00"),
    ] {
        let file = dir.path().join(name);
        let threads = format!("Number of threads: {threads}");
        let text = output.replace("Number of threads: 2", &threads).replace("16767.81", queries);
        fs::write(&file, text).unwrap();
        files.push(file);
    }
    let (imported, report) = imported(&Request {
        baseline: Some("old".to_owned()),
        name: Some("mine".to_owned()),
        ..request(&dir, &files)
    });
    assert_eq!(imported.ungrouped, ["mine"]);
    assert_eq!(imported.microbenchmarks, 4);
    assert_eq!(imported.without_baseline, ["point-query_range=100", "mine"]);
    // Microbenchmarks without a value of the baseline are left out.
    assert_eq!(report.clients(), [2, 8]);
    assert_eq!(report.settings[1], ("Clients".to_owned(), "1, 2, 8".to_owned()));
    let ratios: Vec<f64> =
        report.microbenchmarks.iter().map(|m| m.rows[0].single.unwrap().get()).collect();
    assert!((ratios[0] - 1.2).abs() < 1e-6 && (ratios[1] - 0.8).abs() < 1e-6, "{ratios:?}");
    let at: Vec<(&str, u32)> =
        report.groups.iter().map(|group| (group.group.as_str(), group.clients)).collect();
    assert_eq!(at, [("range-2", 2), ("range-2", 8)]);
    assert_eq!(report.measuring_time, Nanos::from_micros(5 * 2_002_400 + 2_001_500));
    assert!(
        report.experiment_text.contains("95th percentile 3.82 ms"),
        "{}",
        report.experiment_text
    );
}

#[test]
fn values_in_two_units_are_refused() {
    let dir = tempdir().unwrap();
    let output = fs::read_to_string(data("ten_six.read-only_range=100.txt")).unwrap();
    let (table, text) = (dir.path().join("t.tsv"), dir.path().join("a.scan_range=100.txt"));
    fs::write(&table, "a\tb\n3.1\t3.2\tscan_range=100\n").unwrap();
    fs::write(&text, output.replace("threads: 2", "threads: 1")).unwrap();
    let error = import(&request(&dir, &[table, text])).unwrap_err();
    assert!(error.to_string().contains("import the two into runs of their own"), "{error}");
}

#[test]
fn unreadable_input_is_named_in_the_error() {
    let dir = tempdir().unwrap();
    let missing = dir.path().join("missing.tsv");
    let error = import(&request(&dir, &[missing])).unwrap_err().to_string();
    assert!(error.contains("missing.tsv"), "{error}");
    let error = import(&request(&dir, &[])).unwrap_err().to_string();
    assert!(error.starts_with("nothing to import"), "{error}");
    let twice = request(&dir, &[data("mysql-8.0-qps.tsv")]);
    import(&twice).unwrap();
    let error = import(&twice).unwrap_err().to_string();
    assert!(error.contains("holds a run already") && error.contains("--out"), "{error}");
    assert!(!error.contains("--resume"), "an import cannot be continued: {error}");
}

/// Tables, and output of sysbench and pgbench.
#[test]
fn damaged_files_are_imported_or_refused() {
    let names = [
        "mysql-8.0-qps.tsv",
        "ten_six.point-query_range=100.txt",
        "ten_six.read-only_range=100.txt",
        "pgbench.txt",
    ];
    let mut samples: Vec<Vec<u8>> =
        names.iter().map(|name| fs::read(data(name)).unwrap()).collect();
    samples[0].truncate(600);
    samples.push(b"col-1 : old\ncol-2 : new\n\ncol-1\tcol-2\n10\t12.5\ta\n-\t3\tb\n".to_vec());
    let words = [
        "\t",
        "\n",
        "|",
        "col-1 : ",
        "Number of threads: 3\n",
        "SQL statistics:\n",
        "transaction type: a\n",
        "1e308",
        "-1",
        "inf",
        "NaN",
        "18446744073709551615",
        "0",
        "reconnects: 18446744073709551615 (1 per sec.)\n",
        "queries: 9 (1e308 per sec.)\n",
        "total time: 1e300s\n",
    ];
    let dir = tempdir().unwrap();
    let file = dir.path().join("a.b.txt");
    let out = dir.path().join("out");
    let import_bytes = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let request = Request { out: out.clone(), ..request(&dir, std::slice::from_ref(&file)) };
        if import(&request).is_ok() {
            assemble(&RunReader::open(&out).unwrap()).unwrap();
        }
        let _ = fs::remove_dir_all(&out);
    };
    Fuzz::new(samples).words(&words).cases(128).run(import_bytes);
}

#[test]
fn too_much_content_is_refused() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("t.tsv");
    let mut text = "first\n".to_owned();
    for row in 0..1000 {
        text.push_str(&format!("1\tm{row}\n"));
    }
    let columns: Vec<String> = (0..200).map(|column| format!("c{column}")).collect();
    text.push_str(&format!("\n{}\n{}\tm0\n", columns.join("\t"), ["1"; 200].join("\t")));
    fs::write(&file, text).unwrap();
    let error = import(&request(&dir, &[file])).unwrap_err().to_string();
    assert!(error.contains("201 candidates × 1000 microbenchmarks"), "{error}");
    let error = import(&request(&dir, &["/dev/zero".into()])).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn table_of_20000_lines_is_imported() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("long.tsv");
    let lines = (0..20_000).map(|row| format!("m{row}\t{}\n", 1_000 + row));
    fs::write(&file, format!("test\tonly\n{}", lines.collect::<String>())).unwrap();
    let imported = import(&request(&dir, &[file])).unwrap();
    assert_eq!((imported.microbenchmarks, imported.values), (20_000, 20_000));
    assert_eq!((imported.ungrouped.len(), imported.without_baseline.len()), (20_000, 0));
}
