use dbdyno_stats::Estimate;
use dbdyno_units::Qps;

use super::*;
use crate::markdown::tests::tables;
use crate::model::OriginRecord;
use crate::model::Role;
use crate::sample;

const FEW: [&str; 3] = ["points-notcovered-pk.pre_range=100", "scan_range=100", "insert_range=100"];

fn run(directory: &str, report: Report) -> Report {
    Report { directory: directory.into(), ..report }
}

/// Three machines: on the second one MyRocks is faster on scans.
fn runs() -> Vec<Report> {
    let machine = |index: usize| {
        let mut report = sample::servers_of(&FEW);
        report.name = format!("server-{index}");
        report.host = vec![("CPU".to_owned(), format!("CPU number {index}"))];
        report.settings = vec![("tables × rows".to_owned(), "8 × 10000000".to_owned())];
        for microbenchmark in &mut report.microbenchmarks {
            microbenchmark.clients = 4 * (index as u32 + 1);
        }
        if index == 1 {
            let scan = report.microbenchmarks.iter_mut().find(|m| m.name == "scan_range=100");
            let row = &mut scan.unwrap().rows[0];
            let [middle, low, high] = [1.3, 1.29, 1.31].map(Ratio::new);
            row.relative_qps = Some(sample::interval(middle, low, high));
            row.verdict = Verdict::Better;
        }
        sample::refresh(&mut report);
        run(&format!("results/{index}"), report)
    };
    (0..3).map(machine).collect()
}

/// Two runs of one candidate each, with another cache size and a tenth less throughput.
fn days() -> [Report; 2] {
    let mut report = sample::single(&FEW);
    report.candidates[0].configuration = vec![("cache_size".to_owned(), "64 MiB".to_owned())];
    let mut today = report.clone();
    today.started = "2026-03-02T09:30:00Z".to_owned();
    today.sessions = 2;
    today.candidates[0].configuration[0].1 = "256 KiB".to_owned();
    for microbenchmark in &mut today.microbenchmarks {
        let slower = |qps: Qps| Qps::from_per_second(0.9 * qps.per_second());
        let absolute = &mut microbenchmark.baseline;
        absolute.qps = absolute.qps.map(slower);
        absolute.qps_interval = absolute.qps_interval.map(|(a, b)| (slower(a), slower(b)));
    }
    [run("results/yesterday", report), run("results/today", today)]
}

/// Two runs of the same two existing servers, whose baseline was configured differently on the second
/// day.
fn days_of_existing_servers() -> [Report; 2] {
    let mut report = sample::servers_of(&FEW);
    for (candidate, doublewrite) in report.candidates.iter_mut().zip(["ON", "OFF", "ON"]) {
        candidate.origin = Some(OriginRecord::Server { address: "db:3306".to_owned() });
        candidate.server_settings = sample::pairs(&[
            ("innodb_doublewrite", doublewrite),
            ("innodb_flush_neighbors", "1"),
            ("long_query_time", "10"),
        ]);
    }
    let mut today = report.clone();
    today.candidates[0].server_settings[1].1 = "0".to_owned();
    [run("results/yesterday", report), run("results/today", today)]
}

#[test]
fn machines_have_a_table_each_and_shards_one_for_all() {
    let names = ["scan_range=100", "range-covered-pk_range=100", "insert_range=100"];
    let whole = sample::report_of(&names);
    let same = terminal(
        &compare(&[run("results/a", whole.clone()), run("results/b", whole.clone())]),
        80,
        false,
        false,
    );
    for title in ["A: results/a  AMD EPYC", "B: results/b  AMD EPYC"] {
        assert!(same.contains(&format!("\n{title}")), "{same}");
    }
    let page = html(&compare(&[run("results/a", whole.clone()), run("results/b", whole.clone())]));
    assert!(page.contains("<h2 id=\"h-machines\">Each run</h2>"), "{page}");
    assert_eq!(page.matches("class=\"facts\"").count(), 2 + 3, "of each run and candidate");
    // A shard with the first microbenchmark, and one with the others.
    let shard = |keep: &dyn Fn(&str) -> bool| {
        let mut report = whole.clone();
        report.microbenchmarks.retain(|one| keep(&one.name));
        sample::refresh(&mut report);
        report
    };
    let shards = [shard(&|name| name == names[0]), shard(&|name| name != names[0])];
    let compared = compare(&shards);
    let expected: Vec<_> = whole.groups.iter().map(|one| (&one.group, one.median)).collect();
    let merged: Vec<_> = compared.qps.merged.iter().map(|one| (&one.group, one.median)).collect();
    assert_eq!(merged, expected);
    let text = terminal(&compared, 80, false, false);
    assert!(text.contains("All runs together"), "{text}");
    assert!(markdown(&compared, false).contains("All runs together"));
    assert!(html(&compared).contains("<h2 id=\"h-machines\">All runs together</h2>"));
    assert!(compare(&[whole.clone(), whole]).qps.merged.is_empty());
}

#[test]
fn reported_settings_of_existing_servers_are_compared() {
    let days = days_of_existing_servers();
    let comparison = compare(&days);
    let text = terminal(&comparison, 80, false, false);
    assert!(text.contains("  innodb: innodb_flush_neighbors: A 1; B 0\n"), "{text}");
    assert!(!text.contains("long_query_time"), "equal ones are not listed: {text}");
    let equal = comparison.facts.equal.join("; ");
    assert!(equal.contains("myrocks (") && equal.contains("settings of the server"), "{equal}");
    assert!(!text.contains("not recorded"), "{text}");

    let [yesterday, mut today] = days;
    today.candidates.iter_mut().for_each(|one| one.server_settings.clear());
    let text = terminal(&compare(&[yesterday, today]), 80, false, false);
    assert!(!text.contains("innodb_flush_neighbors"), "unknown in B: {text}");
    assert!(text.contains("existing servers, whose settings are not recorded: B"), "{text}");
}

#[test]
fn only_groups_of_several_microbenchmarks_are_summarized() {
    let names = ["scan_range=100", "range-covered-pk_range=100", "insert_range=100"];
    let report = sample::servers_of(&names);
    let both = compare(&[report.clone(), report]);
    let groups = |text: &str| -> Vec<bool> {
        ["range-1  median", "range-1 best", "writes  median", "writes best"]
            .map(|start| text.lines().any(|line| line.starts_with(start)))
            .to_vec()
    };
    let text = terminal(&both, 80, false, false);
    assert_eq!(groups(&text), [true, true, false, false], "{text}");
    let page = html(&both).replace("<wbr>", "");
    assert!(page.contains("worst scan") || page.contains("best scan"), "{page}");
    assert!(!page.contains("worst insert") && !page.contains("best insert"));
    let tables = tables(&markdown(&both, false));
    let groups_of = |table: &Vec<Vec<String>>| table[0][0] == "group";
    let rows = &tables.iter().find(|table| groups_of(table)).unwrap()[1..];
    assert!(rows.iter().any(|row| row[0] == "range-1"), "{rows:?}");
    assert!(rows.iter().all(|row| row[0] != "writes"), "{rows:?}");

    let single = compare(&runs());
    assert_eq!(groups(&terminal(&single, 80, false, false)), [false; 4]);
    assert!(!html(&single).contains("worst "));
}

fn cell(low: f64, median: f64, high: f64) -> Option<RatioCell> {
    let [median, low, high] = [median, low, high].map(Ratio::new);
    let estimate: Estimate = sample::interval(median, low, high);
    let floor = Some(Share::from_percent(0.2));
    let verdict = Verdict::of_estimate(Metric::Qps, &estimate, floor);
    Some(RatioCell { ratio: Some(median), estimate: Some(estimate), floor, verdict })
}

#[test]
fn agreement_is_by_the_difference_between_the_runs() {
    use Verdict::{Better, ClientBound, WithinNoise, Worse};
    let of = |cells: &[Option<RatioCell>]| Agreement::of(cells).0;
    let half = cell(0.513, 0.523, 0.533);
    let two_thirds = cell(0.670, 0.680, 0.690);
    assert_eq!(of(&[half, half]), Agreement::Agree(Worse));
    assert_eq!(of(&[half, two_thirds]), Agreement::SizeDiffers(Worse), "both slower");
    assert_eq!(of(&[half, None, half, two_thirds]), Agreement::SizeDiffers(Worse));
    // The intervals overlap: no run contradicts the other.
    let (slightly, none) = (cell(1.005, 1.015, 1.025), cell(0.995, 1.005, 1.015));
    assert_eq!(of(&[slightly, none]), Agreement::NotCertain);
    assert_eq!(of(&[none, none]), Agreement::Agree(WithinNoise));
    // Neither shows a difference, but together they do.
    assert_eq!(of(&[cell(0.93, 0.97, 1.01), cell(0.99, 1.04, 1.09)]), Agreement::NotCertain);
    assert_eq!(of(&[none, half]), Agreement::Differ);
    assert_eq!(of(&[cell(1.19, 1.2, 1.21), half]), Agreement::Contradict);
    assert_eq!(of(&[slightly, cell(0.4, 0.99, 1.4)]), Agreement::NotCertain);
    assert_eq!(of(&[cell(1.19, 1.2, 1.21), slightly]), Agreement::SizeDiffers(Better));
    assert_eq!(of(&[cell(0.96, 0.98, 0.99), cell(0.97, 1.005, 1.04)]), Agreement::NotCertain);
    // Only verdicts count.
    let bound = half.map(|half| RatioCell { verdict: ClientBound, ..half });
    assert_eq!(of(&[two_thirds, bound]), Agreement::Unknown);
    assert_eq!(of(&[half, None]), Agreement::Unknown);
    let (_, difference) = Agreement::of(&[half, two_thirds]);
    let quotient = difference.unwrap().quotient;
    assert!((quotient.ratio.get() - 0.680 / 0.523).abs() < 1e-9);
    assert!(quotient.low.get() > 1.26 && quotient.high.get() < 1.34, "{quotient:?}");
}

#[test]
fn difference_below_the_noise_floors_is_not_certain() {
    let with_floor = |floor: f64| {
        let cells = [cell(0.949, 0.95, 0.951), cell(0.979, 0.98, 0.981)];
        let floor = Some(Share::from_percent(floor));
        Agreement::of(&cells.map(|cell| cell.map(|cell| RatioCell { floor, ..cell }))).0
    };
    assert_eq!(with_floor(0.1), Agreement::SizeDiffers(Verdict::Worse));
    assert_eq!(with_floor(1.0), Agreement::Agree(Verdict::Worse));
}

#[test]
fn columns_of_runs_fit_80_columns() {
    let text = terminal(&compare(&runs()), 80, false, false);
    insta::assert_snapshot!(text, @"
    3 runs side by side
    A  results/0: server-0, 2026-03-01 09:30 UTC; CPU number 0; 4 clients, 8 ×
       10000000; baseline innodb, MariaDB 10.11.14 (innodb); noise ±0.22%
    B  results/1: server-1, 2026-03-01 09:30 UTC; CPU number 1; 8 clients, 8 ×
       10000000; baseline innodb, MariaDB 10.11.14 (innodb); noise ±0.22%
    C  results/2: server-2, 2026-03-01 09:30 UTC; CPU number 2; 12 clients, 8 ×
       10000000; baseline innodb, MariaDB 10.11.14 (innodb); noise ±0.22%
    Note: the runs were made on different machines: quotients of absolute figures
          compare the machines, too

    What differs
      CPU: A CPU number 0; B CPU number 1; C CPU number 2
    Equal: innodb, myrocks (version, program, innodb_buffer_pool_size,
    innodb_flush_log_at_trx_commit, character_set_server); candidates and control;
    dbdyno; tables × rows.

    Ratios to the baselines
    QPS: above 1 is better; CPU per query: below 1 is better
    Signs: + better than the baseline of the same run, - worse, ~ within noise, ?
    too noisy or too few blocks to tell, c client-bound, · no interval, ! failed.
    Last column, of the runs: = agree, ~ not certain, s same direction but certainly
    different size, d one shows a difference and another none, x contradict.

    myrocks  QPS: above 1 is better; CPU per query: below 1 is better
    myrocks: of 3 microbenchmarks, 1 of them by CPU per query, the runs agree on 2
    (0 better, 2 worse, 0 within noise). They certainly differ on 1: 0 in the same
    direction by different sizes, 0 with a difference in one run and none in
    another, 1 contradict. 0 not certain.
      scan_range=100: contradict: B/A 2.244 (2.216 to 2.272)

    myrocks: point-1
    microbenchmark                          A        B        C
    ────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  0.734 -  0.734 -  0.734 -  =

    myrocks: range-1
    microbenchmark      A        B        C
    ────────────────────────────────────────────
    scan_range=100  0.579 -  1.300 +  0.579 -  x

    myrocks: writes  relative CPU per query, below 1 is better; trust this one
    microbenchmark        A        B        C
    ──────────────────────────────────────────────
    insert_range=100  1.799 -  1.799 -  1.799 -  =

    myrocks: writes  relative QPS, above 1 is better
    microbenchmark        A        B        C
    ──────────────────────────────────────────────
    insert_range=100  0.546 -  0.546 -  0.546 -  =

    Absolute figures
    The runs were not interleaved: a quotient of their absolute figures also
    contains what changed on the machine between them (clock frequency, other load
    on the same host, temperature). It is marked as better or worse if it is farther
    from 1 than the intervals, which contain the spread between the starts and
    sessions of a run, and three noise floors of both runs. That does not say why.
    Where it is not certain, the data show no change.
    No candidate is equal in A and B in program, configuration, data and number of
    clients: drift cannot be separated from the effect of what differs.
    No candidate is equal in A and C in program, configuration, data and number of
    clients: drift cannot be separated from the effect of what differs.
      innodb: QPS of B/A median 1.000 (1.000 to 1.000 over 3 microbenchmarks): 0
        higher, 0 lower, 3 not certain
      innodb: CPU per query of B/A median 1.000 (1.000 to 1.000 over 3
        microbenchmarks): 0 higher, 0 lower, 3 not certain
      innodb: QPS of C/A median 1.000 (1.000 to 1.000 over 3 microbenchmarks): 0
        higher, 0 lower, 3 not certain
      innodb: CPU per query of C/A median 1.000 (1.000 to 1.000 over 3
        microbenchmarks): 0 higher, 0 lower, 3 not certain
      myrocks: QPS of B/A median 1.000 (1.000 to 1.000 over 3 microbenchmarks): 0
        higher, 0 lower, 3 not certain
      myrocks: CPU per query of B/A median 1.000 (1.000 to 1.000 over 3
        microbenchmarks): 0 higher, 0 lower, 3 not certain
      myrocks: QPS of C/A median 1.000 (1.000 to 1.000 over 3 microbenchmarks): 0
        higher, 0 lower, 3 not certain
      myrocks: CPU per query of C/A median 1.000 (1.000 to 1.000 over 3
        microbenchmarks): 0 higher, 0 lower, 3 not certain
    --details shows QPS, CPU time and p99 of every microbenchmark.
    ");
}

#[test]
fn single_candidates_have_their_absolute_figures_beside_each_other() {
    let text = terminal(&compare(&days()), 80, false, false);
    let (_, tables) = text.split_once("failed.\n\n").unwrap();
    insta::assert_snapshot!(tables, @"
    rel_withdbg: QPS
    microbenchmark                          A            B          B/A
    ───────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  15.1k ±0.6%  13.6k ±0.6%  0.900 - ±0.9%
    scan_range=100 (M rows/s)            5.83 ±0.6%   5.25 ±0.6%  0.900 - ±0.9%
    insert_range=100                     119k ±0.6%   107k ±0.6%  0.900 - ±2.7%

    rel_withdbg: CPU µs/query
    microbenchmark                         A           B          B/A
    ─────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  64.2 ±0.4%  64.2 ±0.4%  1.000 ~ ±0.6%
    scan_range=100                      172k ±0.4%  172k ±0.4%  1.000 ~ ±0.6%
    insert_range=100                    5.21 ±0.4%  5.21 ±0.4%  1.000 ~ ±0.6%

    rel_withdbg: p99 µs
    microbenchmark                         A           B          B/A
    ─────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100   124 ±2.7%   124 ±2.7%  1.000 ~ ±3.5%
    scan_range=100                      321k ±2.7%  321k ±2.7%  1.000 ~ ±3.5%
    insert_range=100                    15.7 ±2.7%  15.7 ±2.7%  1.000 ~ ±3.5%
    ");
}

#[test]
fn changed_settings_versions_and_machine_are_listed() {
    let mut all = days();
    let today = &mut all[1];
    today.host[0].1 = "another CPU".to_owned();
    today.version = "0.2.0".to_owned();
    today.candidates[0].version = "3.51.0".to_owned();
    let build = today.candidates[0].build.as_mut().unwrap();
    build.commands = vec!["gcc -O3 -c /cache/1234/sqlite3.c".to_owned()];
    today.host.push(("microcode".to_owned(), "0x1".to_owned()));
    all[0].candidates[0].build.as_mut().unwrap().commands =
        vec!["gcc -O2 -c /cache/5678/sqlite3.c".to_owned()];
    let comparison = compare(&all);
    let fact = |what: &str| {
        let all = &comparison.facts.different;
        let found = all.iter().find(|fact| fact.what.ends_with(what));
        found.unwrap_or_else(|| panic!("{what}: {all:?}")).values.clone()
    };
    let both = |one: &str, other: &str| [Some(one.to_owned()), Some(other.to_owned())];
    assert_eq!(fact(": cache_size"), both("64 MiB", "256 KiB"));
    assert_eq!(fact(": version"), both("SQLite 3.50.0", "SQLite 3.51.0"));
    assert_eq!(fact(": flags only there"), both("-O2", "-O3"));
    assert_eq!(fact("dbdyno"), both("0.1.0", "0.2.0"));
    assert_eq!(fact("CPU")[1].as_deref(), Some("another CPU"));
    assert_eq!(comparison.facts.incomplete, ["microcode"]);
    assert!(comparison.facts.equal.contains(&"Kernel".to_owned()));
    assert!(comparison.notes.iter().any(|note| note.contains("different machines")));
}

#[test]
fn equal_candidate_shows_drift_and_others_must_exceed_it() {
    let mut all = [sample::report_of(&FEW), sample::report_of(&FEW)];
    let [_, today] = &mut all;
    // All are 10% slower today, and `rel` has another configuration.
    today.candidates[1].configuration.push(("cache_size".to_owned(), "1 MiB".to_owned()));
    for microbenchmark in &mut today.microbenchmarks {
        let rows = microbenchmark.rows.iter_mut().map(|row| &mut row.absolute);
        for absolute in rows.chain([&mut microbenchmark.baseline]) {
            let slower = |qps: Qps| Qps::from_per_second(0.9 * qps.per_second());
            absolute.qps = absolute.qps.map(slower);
            absolute.qps_interval = absolute.qps_interval.map(|(a, b)| (slower(a), slower(b)));
        }
    }
    let name = all[1].candidates[1].name.clone();
    let comparison = compare(&all.map(|report| run("results", report)));
    let of = |name: &str| comparison.changes.iter().find(|one| one.candidate == name).unwrap();
    let baseline = of(&comparison.absolute[0].candidate);
    assert!(baseline.is_equal && !of(&name).is_equal);
    assert_eq!((baseline.lower, of(&name).lower), (3, 0), "drift explains the change of {name}");
    let text = sections::drift(&comparison).join(" ");
    assert!(text.contains("equal in A and B") && text.contains("median 0.900"), "{text}");
}

#[test]
fn other_work_under_the_same_name_is_no_drift() {
    let [mut one, mut other] = [sample::report_of(&FEW), sample::report_of(&FEW)];
    let label = setting::statements_of(&one.microbenchmarks[0].name);
    one.settings.push((label.clone(), "SHA-256 1…".to_owned()));
    other.settings.push((label.clone(), "SHA-256 2…".to_owned()));
    let comparison = compare(&[one, other].map(|report| run("results", report)));
    assert!(comparison.changes.iter().all(|change| !change.is_equal), "{:?}", comparison.changes);
    assert!(comparison.notes.iter().any(|note| note.ends_with(&label)), "{:?}", comparison.notes);
}

#[test]
fn baseline_has_not_failed_because_its_only_candidate_has() {
    let mut report = sample::no_control(&FEW);
    report.candidates.truncate(2);
    for microbenchmark in &mut report.microbenchmarks {
        microbenchmark.rows.truncate(1);
        microbenchmark.rows[0].verdict = Verdict::Failed;
    }
    let verdicts = |report: &Report| -> Vec<Verdict> {
        let comparison = compare(&[run("a", report.clone()), run("b", report.clone())]);
        let rows = comparison.absolute.iter().filter(|row| row.candidate == report.baseline);
        let change = |row: &AbsoluteRow| row.value(1, 0)?.change;
        rows.map(|row| change(row).unwrap().verdict).collect()
    };
    assert_eq!(verdicts(&report), [Verdict::WithinNoise; 3]);
    report.microbenchmarks[0].baseline_failed = true;
    assert_eq!(verdicts(&report)[0], Verdict::Failed);
}

#[test]
fn runs_with_one_equal_candidate_say_that_nothing_else_is_in_both() {
    let mut all = [sample::report_of(&FEW), sample::report_of(&FEW)];
    for (index, report) in all.iter_mut().enumerate() {
        for candidate in report.candidates.iter_mut().filter(|one| one.role == Role::Candidate) {
            candidate.name = format!("{}-{index}", candidate.name);
        }
        for row in report.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows) {
            if row.role == Role::Candidate {
                row.candidate = format!("{}-{index}", row.candidate);
            }
        }
        sample::refresh(report);
    }
    let comparison = compare(&all.map(|report| run("results", report)));
    let text = terminal(&comparison, 300, false, false);
    assert!(text.contains("is equal in A and B"), "{text}");
    assert!(text.contains("Nothing else is in both."), "{text}");
    assert!(text.contains("Ratios to the baseline that only one run has"), "{text}");
    assert!(!text.contains("best and worst microbenchmark"), "{text}");
}

#[test]
fn sweep_has_a_column_per_number_of_clients() {
    let single = sample::servers_of(&["read-only_range=100"]);
    let comparison = compare(&[run("sweep", sample::sweep()), run("single", single)]);
    let columns: Vec<(&str, u32)> =
        comparison.columns.iter().map(|column| (column.label.as_str(), column.clients)).collect();
    assert_eq!(columns[..2], [("A", 1), ("B", 2)]);
    assert_eq!(columns[7..], [("H", 128), ("I", 1)]);
    assert_eq!(comparison.compared_columns(), [(8, 0)]);
    assert_eq!(comparison.runs[0].label, "A–H");
    let row = comparison.qps.rows.iter().find(|row| row.microbenchmark == "point-query_range=100");
    assert!(row.unwrap().cells[8].is_none());
    for width in [80, 120] {
        for line in terminal(&comparison, width, false, true).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn equal_sweeps_agree_whatever_more_clients_change() {
    let mut sweep = sample::sweep_of(&[1, 16]);
    for one in &mut sweep.microbenchmarks {
        let middle = if one.clients == 1 { 0.8 } else { 1.25 };
        for row in one.rows.iter_mut().filter(|row| row.candidate != "control") {
            let [middle, low, high] = [middle, 0.99 * middle, 1.01 * middle].map(Ratio::new);
            row.relative_qps = Some(sample::interval(middle, low, high));
            row.verdict = if one.clients == 1 { Verdict::Worse } else { Verdict::Better };
        }
    }
    let mut other = sweep.clone();
    let last = other.microbenchmarks.iter_mut().rfind(|one| one.clients == 16).unwrap();
    let name = last.name.clone();
    for row in last.rows.iter_mut().filter(|row| row.candidate != "control") {
        let [middle, low, high] = [0.5, 0.49, 0.51].map(Ratio::new);
        row.relative_qps = Some(sample::interval(middle, low, high));
        row.verdict = Verdict::Worse;
    }
    let compared = compare(&[run("monday", sweep.clone()), run("tuesday", sweep.clone())]);
    assert!(!compared.qps.rows.is_empty());
    assert!(compared.qps.rows.iter().all(|row| row.agreement == Agreement::AgreeByClients));
    for row in compare(&[run("monday", sweep), run("tuesday", other)]).qps.rows {
        let differs = row.microbenchmark == name;
        assert_eq!(row.agreement == Agreement::Contradict, differs, "{:?}", row.agreement);
        assert_eq!(row.difference.is_some_and(|one| (one.earlier, one.later) == (1, 3)), differs);
    }
}

#[test]
fn candidates_and_microbenchmarks_are_matched_by_name() {
    let mut all = [sample::report_of(&FEW), sample::report_of(&["scan_range=100"])];
    all[1].candidates[1].name = "new".to_owned();
    all[1].microbenchmarks[0].rows[0].candidate = "new".to_owned();
    sample::refresh(&mut all[1]);
    let comparison = compare(&all.map(|report| run("results", report)));
    let of = |candidate: &str| -> Vec<(&str, Vec<bool>)> {
        let rows = comparison.qps.rows.iter().filter(|row| row.candidate == candidate);
        rows.map(|row| {
            (row.microbenchmark.as_str(), row.cells.iter().map(Option::is_some).collect())
        })
        .collect()
    };
    assert_eq!(of("new"), [("scan_range=100", vec![false, true])]);
    assert_eq!(of("rel").len(), 3);
    assert_eq!(of("rel_native")[1], ("scan_range=100", vec![true, true]));
    assert!(of("control").is_empty());
}

#[test]
fn only_runs_of_equal_candidates_have_outliers() {
    let with_qps = |factor: f64, version: &str| {
        let mut report = sample::single(&FEW);
        report.candidates[0].version = version.to_owned();
        for microbenchmark in &mut report.microbenchmarks {
            let qps = &mut microbenchmark.baseline.qps;
            *qps = qps.map(|qps| Qps::from_per_second(factor * qps.per_second()));
        }
        report
    };
    let notes = |versions: [&str; 3]| {
        let [a, b, c] = versions;
        let reports = [with_qps(1.0, a), with_qps(1.0, b), with_qps(0.5, c)];
        compare(&reports.map(|report| run("results", report))).notes.join(" ")
    };
    assert!(notes(["1", "1", "1"]).contains("is an outlier"));
    assert!(!notes(["1", "1", "2"]).contains("is an outlier"));
}

#[test]
fn different_baselines_are_noted() {
    let all = [sample::servers_of(&FEW), sample::incomplete(&FEW)];
    let comparison = compare(&all.map(|report| run("results", report)));
    let notes = comparison.notes.join("\n");
    assert!(notes.contains("different baselines: innodb; rel_withdbg"), "{notes}");
    assert!(notes.contains("MariaDB 10.11.14 (innodb); SQLite 3.50.0"), "{notes}");
    assert!(notes.contains("not complete: B"), "{notes}");
    assert!(!compare(&days()).notes.join("\n").contains("baseline"));
}

#[test]
fn csv_has_a_line_per_run() {
    let text = csv(&compare(&runs()));
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let records: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 3 * 3);
    let scan = records.iter().find(|record| &record[7] == "scan_range=100" && &record[0] == "B");
    let scan = scan.unwrap();
    assert_eq!((&scan[2], &scan[3], &scan[11]), ("CPU number 1", "8", "faster"));
    assert_eq!((&scan[12], &scan[13], &scan[15]), ("contradict", "results/1", "B/A"));
    assert!(scan[18].parse::<f64>().unwrap() > 2.0, "{scan:?}");
}

#[test]
fn absolute_csv_has_all_candidates_with_changes() {
    let text = absolute_csv(&compare(&days()));
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    assert_eq!(header.len(), 32, "{header:?}");
    let records: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 2 * 3);
    let at = |name: &str| header.iter().position(|column| column == name).unwrap();
    let [first, second, ..] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&first[at("compared_with")], &first[at("qps_change")]), ("", ""));
    assert_eq!((&second[at("compared_with")], &second[at("qps_verdict")]), ("A", "lower"));
    assert_eq!(&second[at("qps_change")], "0.900000");
    assert!(!second[at("p99_change_high")].is_empty());
}

#[test]
fn json_has_the_facts_and_all_figures() {
    let value: serde_json::Value = serde_json::from_str(&json(&compare(&days())).unwrap()).unwrap();
    assert_eq!(value["format"], COMPARISON_JSON_FORMAT);
    assert_eq!(value["runs"][1]["directory"], "results/today");
    assert_eq!(value["absolute"][0]["cells"][1]["qps"]["change"]["verdict"], "slower");
    assert!(value["facts"]["different"][0]["what"].as_str().unwrap().ends_with("cache_size"));
}

#[test]
fn page_is_complete_and_escapes_text() {
    let mut all = runs();
    let evil = || "<script>alert(1)</script>".to_owned();
    let report = &mut all[0];
    report.directory = evil().into();
    report.name = evil();
    report.started = evil();
    report.host[0].1 = evil();
    report.candidates[0].configuration.push((evil(), evil()));
    let page = html(&compare(&all));
    assert!(!page.contains("<script>") && page.contains("&lt;script&gt;alert"));
    for text in ["contradict", "8 × 10000000", "CPU number 2", "results/1"] {
        assert!(page.replace("<wbr>", "").contains(text), "{text}");
    }
    assert!(!page.contains("http:") && !page.contains("https:"));
    let page = html(&compare(&days())).replace("<wbr>", "");
    for text in ["cache_size", "256 KiB", "results/yesterday", "2 sessions", "not interleaved"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn comparison_without_results_says_so() {
    assert!(terminal(&compare(&[]), 80, false, false).contains("Nothing to compare: no run"));
}

#[test]
fn markdown_has_the_runs_what_differs_ratios_and_absolute_figures_as_tables() {
    let mut runs = runs();
    runs[1].host[0].1 = "a|b *c*".to_owned();
    let text = markdown(&compare(&runs), false);
    let tables = tables(&text);
    let heads: Vec<&str> = tables.iter().map(|table| table[0].last().unwrap().as_str()).collect();
    assert_eq!(heads, ["noise floor", "C", "agreement", "agreement", "agreement", "agreement"]);
    for table in &tables {
        assert!(table.iter().all(|row| row.len() == table[0].len()), "{table:?}");
    }
    assert!(tables[1].iter().any(|row| row[2] == "a|b *c*"), "{text}");
    let scan = tables[3].iter().find(|row| row[0] == "scan_range=100").unwrap();
    assert!(scan.last().unwrap().contains(": "), "{scan:?}");
    let detailed = markdown(&compare(&days()), false);
    for words in ["#### ", "B/A", "cache_size", "were not interleaved"] {
        assert!(detailed.replace("\\_", "_").contains(words), "{words} in {detailed}");
    }
}
