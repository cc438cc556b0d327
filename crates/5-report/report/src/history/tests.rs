use super::*;
use crate::profile_change::tests::profile;
use crate::sample;

const FEW: [&str; 3] = ["points-notcovered-pk.pre_range=100", "scan_range=100", "insert_range=100"];

fn of(runs: usize) -> History {
    history(&sample::history(&FEW, runs)).unwrap()
}

#[test]
fn step_of_one_candidate_is_found_in_its_microbenchmark_and_metrics() {
    let history = of(30);
    let mut found: Vec<(&str, Option<&str>, Metric)> = history
        .changes
        .iter()
        .map(|one| {
            let Figure { candidate, microbenchmark, metric, .. } = &one.figure;
            (candidate.as_str(), microbenchmark.as_deref(), *metric)
        })
        .collect();
    found.sort_unstable_by_key(|(_, _, metric)| metric.name());
    let scan = Some("scan_range=100");
    assert_eq!(found, [("rel", scan, Metric::Cpu), ("rel", scan, Metric::Qps)]);
    for change in &history.changes {
        assert_eq!((change.point.before, change.point.after), (19, 20));
        assert_eq!(change.verdict, Verdict::Worse);
    }
    let qps = history.changes.iter().find(|one| one.figure.metric == Metric::Qps).unwrap();
    let ratio = qps.point.ratio;
    assert!(ratio.low.get() < 0.96 && ratio.high.get() > 0.96, "{ratio:?}");
}

#[test]
fn runs_are_ordered_by_their_start() {
    let mut reports = sample::history(&FEW, 12);
    reports.reverse();
    reports.swap(2, 7);
    let history = history(&reports).unwrap();
    let started: Vec<&str> = history.runs.iter().map(|run| run.started.as_str()).collect();
    assert!(started.is_sorted(), "{started:?}");
    assert_eq!(history.runs[0].label, "night-01");
    assert_eq!(history.runs[0].directory, "results/night-01");
}

#[test]
fn single_run_far_off_is_marked_and_no_change() {
    let history = of(30);
    let mut native = history.figures.iter().filter(|one| one.figure.candidate == "rel_native");
    assert!(native.all(|one| one.points.is_empty() && one.outliers == [4]));
}

#[test]
fn group_is_followed_as_a_whole_if_it_has_several_microbenchmarks() {
    let names = ["scan_range=100", "range-covered-pk_range=100", "insert_range=100"];
    let history = history(&sample::history(&names, 30)).unwrap();
    let sizes: Vec<(&str, usize)> = history
        .figures
        .iter()
        .filter(|one| {
            one.is_of_group() && one.figure.candidate == "rel" && one.figure.metric == Metric::Qps
        })
        .map(|one| (one.figure.group.as_str(), one.microbenchmarks))
        .collect();
    assert_eq!(sizes, [("range-1", 2), ("writes", 1)]);
    let whole = |one: &&FigureChange| one.figure.microbenchmark.is_none();
    let groups: Vec<&FigureChange> = history.changes.iter().filter(whole).collect();
    assert!(groups.iter().all(|one| one.figure.group == "range-1"), "{groups:?}");
    let qps = groups.iter().find(|one| one.figure.metric == Metric::Qps).unwrap();
    // Half of the group's microbenchmarks have 4% less.
    assert!((qps.point.ratio.ratio.get() - 0.98).abs() < 0.003, "{qps:?}");
}

#[test]
fn noise_floor_explains_small_changes() {
    let mut reports = sample::history(&FEW, 30);
    assert_eq!(history(&reports).unwrap().changes.len(), 2);
    for report in &mut reports {
        for floor in [&mut report.noise, &mut report.cpu_noise].into_iter().flatten() {
            floor.typical = Share::from_percent(5.0);
        }
    }
    assert!(history(&reports).unwrap().changes.is_empty());
}

#[test]
fn missing_candidates_and_microbenchmarks_are_named_and_the_rest_is_used() {
    let mut reports = sample::history(&FEW, 12);
    reports[3].candidates.remove(2);
    for microbenchmark in &mut reports[3].microbenchmarks {
        microbenchmark.rows.retain(|row| row.candidate != "rel_native");
    }
    reports[5].microbenchmarks.remove(0);
    let history = history(&reports).unwrap();
    let all = history.notes.join("\n");
    assert!(all.contains("rel_native is missing in night-04"), "{all}");
    assert!(all.contains(" is missing in night-06"), "{all}");
    let known = |candidate: &str, name: &str| {
        let of = |one: &&FigureHistory| {
            one.figure.candidate == candidate && one.figure.microbenchmark.as_deref() == Some(name)
        };
        let figure = history.figures.iter().find(of).unwrap();
        figure.values.iter().flatten().count()
    };
    assert_eq!(known("rel_native", "scan_range=100"), 11);
    assert_eq!(known("rel_native", "points-notcovered-pk.pre_range=100"), 10);
    assert_eq!(known("rel", "scan_range=100"), 12);
}

#[test]
fn changed_baseline_is_noted_with_the_run() {
    let mut reports = sample::history(&FEW, 12);
    for report in &mut reports[8..] {
        report.candidates[0].version = "3.51.0".to_owned();
    }
    let history = history(&reports).unwrap();
    let note = "the baseline is not the same program in all runs, which changes all ratios: SQLite \
                3.50.0";
    assert!(history.notes[0].starts_with(note), "{:?}", history.notes);
    assert!(history.notes[0].contains("from night-09"), "{:?}", history.notes);
    let text = terminal(&history, 80, false);
    assert!(text.contains("the change may be the baseline's"), "{text}");
}

#[test]
fn functions_that_changed_are_named_if_runs_on_both_sides_have_profiles() {
    let mut reports = sample::history(&FEW, 30);
    assert!(history(&reports).unwrap().lacks_profiles());
    for (number, report) in reports.iter_mut().enumerate() {
        let one = report.microbenchmarks.iter_mut().find(|one| one.name == "scan_range=100");
        let row = one.unwrap().rows.iter_mut().find(|row| row.candidate == "rel").unwrap();
        let search = if number < 20 { 10.0 } else { 12.0 };
        // The last run before the change has none.
        row.profile = (number != 19).then(|| {
            let functions = [("search", search, 10.0), ("read", 38.0, 40.0)];
            profile(1.0 + 0.1 * (number % 3) as f64, &functions)
        });
    }
    let before = history(&reports).unwrap();
    for change in &before.changes {
        let profile = change.profile.as_ref().unwrap();
        assert_eq!(profile.runs_before, [14, 15, 16, 17, 18]);
        assert_eq!(profile.runs_after, [20, 21, 22, 23, 24]);
        let first = &profile.functions[0];
        assert_eq!((first.name.as_str(), first.certain), ("search", true));
        assert!(profile.functions[1..].iter().all(|row| !row.certain), "{profile:?}");
    }
    let text = terminal(&before, 80, false);
    assert_eq!(text.matches("\n  functions search +2.").count(), 2, "{text}");
    assert!(text.contains("CPU time per query") && !before.lacks_profiles(), "{text}");
    assert!(html(&before).contains("functions: search +2."));
    let json: serde_json::Value = serde_json::from_str(&json(&before).unwrap()).unwrap();
    assert_eq!(json["changes"][0]["profile"]["functions"][0]["name"], "search");

    // It may be the baseline that changed.
    for report in &mut reports[20..] {
        report.candidates[0].version = "3.51.0".to_owned();
    }
    assert!(history(&reports).unwrap().lacks_profiles());
}

#[test]
fn level_that_is_hardly_known_is_not_called_unchanged() {
    let mut reports = sample::history(&["scan_range=100"], 6);
    for (number, report) in reports.iter_mut().enumerate() {
        for row in &mut report.microbenchmarks[0].rows {
            let [median, low, high] =
                if number % 2 == 0 { [0.7, 0.6, 0.8] } else { [1.3, 1.2, 1.4] };
            let [median, low, high] = [median, low, high].map(Ratio::new);
            row.relative_qps = Some(sample::interval(median, low, high));
        }
    }
    let text = terminal(&history(&reports).unwrap(), 80, false);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" in 6 figures, 3 too noisy to tell: "), "{text}");
    assert_eq!(text.matches("too noisy\n").count(), 3, "{text}");
}

#[test]
fn runs_of_different_experiments_have_no_history() {
    let few = history(&sample::history(&FEW, 4)).unwrap_err().to_string();
    assert!(
        few.starts_with("a history needs at least 5 runs") && few.contains("night-04"),
        "{few}"
    );
    let none = history(&[]).unwrap_err().to_string();
    assert!(none.ends_with("found none"), "{none}");

    let mut reports = sample::history(&FEW, 6);
    reports[4].baseline = "rel".to_owned();
    let baselines = history(&reports).unwrap_err().to_string();
    assert!(baselines.contains("  rel: results/night-05\n"), "{baselines}");
    assert!(baselines.contains("rel_withdbg: results/night-01, "), "{baselines}");

    // Two experiments of three runs.
    let mut reports = sample::history(&["scan_range=100"], 6);
    for report in &mut reports[3..] {
        report.microbenchmarks[0].name = "scan".to_owned();
    }
    let nothing = history(&reports).unwrap_err().to_string();
    assert!(nothing.contains("measured in 5 of the runs"), "{nothing}");
    assert!(
        nothing.contains("results/night-03: rel, rel_native, rel_native_lto on scan_range=100")
    );
    assert!(nothing.contains("results/night-06: rel, rel_native, rel_native_lto on scan"));
}

#[test]
fn terminal_fits_80_columns() {
    let text = terminal(&of(30), 80, false);
    insta::assert_snapshot!(text, @"
    history of sqlite-variants: 30 runs
    2026-03-01 09:30 UTC to 2026-04-02 09:30 UTC, baseline rel_withdbg

    changes
    +4.3% CPU per query (+3.8% to +4.9%), p < 0.0001: rel, scan_range=100
      before    night-20, 2026-03-20 09:30 UTC, SQLite 3.50.0, build 1d92e252b1b0
      after     night-21, 2026-03-21 09:30 UTC, SQLite 3.51.0, build 1d92e252b1b0
    −4.1% QPS (−4.6% to −3.6%), p < 0.0001: rel, scan_range=100
      before    night-20, 2026-03-20 09:30 UTC, SQLite 3.50.0, build 1d92e252b1b0
      after     night-21, 2026-03-21 09:30 UTC, SQLite 3.51.0, build 1d92e252b1b0
    2 changes in 18 figures: relative QPS and CPU per query of each candidate, by
    microbenchmark and group. Changes that the noise floor or a single run explains
    are not listed. About 5% of the listed changes are expected to be chance: the
    limit, p ≤ 0.0055, allows for the number of figures.
    Left out of figures because they are far from the runs before and after:
    night-05 (6 figures).

    groups
    candidate       group    metric  level        since         last change
    ───────────────────────────────────────────────────────────────────────
    rel             point-1  QPS     1.013 ±0.2%  –               –
    rel             range-1  QPS     0.967 ±0.4%  2026-03-21  −4.1% - ±0.5%
    rel             writes   QPS     1.001 ±0.4%  –               –
    rel             point-1  CPU     0.989 ±0.2%  –               –
    rel             range-1  CPU     1.034 ±0.4%  2026-03-21  +4.3% - ±0.5%
    rel             writes   CPU     1.004 ±0.2%  –               –
    rel_native      point-1  QPS     1.021 ±0.2%  –               –
    rel_native      range-1  QPS     1.017 ±0.3%  –               –
    rel_native      writes   QPS     1.015 ±0.5%  –               –
    rel_native      point-1  CPU     0.981 ±0.2%  –               –
    rel_native      range-1  CPU     0.984 ±0.2%  –               –
    rel_native      writes   CPU     0.996 ±0.2%  –               –
    rel_native_lto  point-1  QPS     1.050 ±0.2%  –               –
    rel_native_lto  range-1  QPS     1.035 ±0.2%  –               –
    rel_native_lto  writes   QPS     0.992 ±0.4%  –               –
    rel_native_lto  point-1  CPU     0.950 ±0.2%  –               –
    rel_native_lto  range-1  CPU     0.967 ±0.2%  –               –
    rel_native_lto  writes   CPU     0.990 ±0.2%  –               –
    The level is the mean ratio to the baseline since the last change, with its 95%
    interval. A group is the geometric mean of its microbenchmarks.
    ");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn groups_of_a_sweep_fit_80_columns() {
    let mut reports = sample::history(&FEW, 12);
    for report in &mut reports {
        for candidate in &mut report.candidates {
            candidate.name = format!("{}-with-a-long-name", candidate.name);
        }
        for one in &mut report.microbenchmarks {
            one.group = format!("{}-of-our-shop", one.group);
            one.rows.iter_mut().for_each(|row| row.candidate.push_str("-with-a-long-name"));
        }
        let mut more = report.microbenchmarks.clone();
        more.iter_mut().for_each(|one| one.clients = 128);
        report.microbenchmarks.extend(more);
    }
    let text = terminal(&history(&reports).unwrap(), 80, false);
    let groups = text.split("\ngroups\n").nth(1).unwrap();
    assert!(groups.contains("clients") && groups.contains(" 128 "), "{groups}");
    assert!(groups.lines().all(|line| line.chars().count() <= 80), "{groups}");
}

#[test]
fn history_without_a_change_says_so() {
    let mut reports = sample::history(&FEW, 8);
    for report in &mut reports {
        for row in report.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows) {
            row.relative_qps =
                Some(sample::interval(Ratio::ONE, Ratio::new(0.99), Ratio::new(1.01)));
            row.relative_cpu = None;
        }
    }
    let text = terminal(&history(&reports).unwrap(), 80, false);
    assert!(text.contains("No change found in 9 figures"), "{text}");
}

#[test]
fn exports_have_a_line_per_figure_and_run_and_the_changes() {
    let history = of(30);
    let table = csv(&history);
    let mut reader = ::csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    // Three candidates, three microbenchmarks and two metrics.
    assert_eq!(rows.len(), 30 * 3 * 3 * 2);
    let column = |name: &str| header.iter().position(|one| one == name).unwrap();
    let changed: Vec<_> = rows.iter().filter(|row| !row[column("change")].is_empty()).collect();
    assert_eq!(changed.len(), 2);
    for row in changed {
        assert_eq!(&row[column("directory")], "results/night-21");
        assert_eq!(&row[column("changed_after")], "results/night-20");
        assert!(row[column("version")].starts_with("SQLite 3.51.0"), "{row:?}");
    }
    assert_eq!(rows.iter().filter(|row| &row[column("outlier")] == "yes").count(), 6);

    let json: serde_json::Value = serde_json::from_str(&json(&history).unwrap()).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["runs"][0]["directory"], "results/night-01");
    let changes = json["changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["metric"] == "qps").unwrap();
    assert_eq!((&change["candidate"], &change["verdict"]), (&"rel".into(), &"slower".into()));
    assert_eq!((&change["before"], &change["after"]), (&19.into(), &20.into()));
    assert!(change["ratio"]["low"].as_f64().unwrap() < 0.97);
    assert_eq!(json["figures"][0]["values"].as_array().unwrap().len(), 30);
}

#[test]
fn page_marks_each_change_in_the_charts() {
    let page = html(&of(30));
    // In the charts of the group, which has one microbenchmark, and of the microbenchmark.
    assert_eq!(page.matches("<line class=\"change\"").count(), 4);
    assert!(page.contains("rel between night-20 and night-21: −4."), "{page}");
    assert!(page.contains("left out"));
    assert!(page.contains("<h1>History of sqlite-<wbr>variants</h1>"));
}

#[test]
fn names_of_others_are_escaped() {
    let mut reports = sample::history(&FEW, 6);
    for report in &mut reports {
        report.name = "<script>\x1b[2J".to_owned();
        report.candidates[1].name = "<b>\x1b[2J".to_owned();
        for row in report.microbenchmarks.iter_mut().map(|one| &mut one.rows[0]) {
            row.candidate = "<b>\x1b[2J".to_owned();
        }
    }
    let history = history(&reports).unwrap();
    assert!(!terminal(&history, 80, false).contains('\x1b'));
    let page = html(&history);
    assert!(!page.contains("<script>\x1b") && !page.contains("<b>\x1b"), "{page}");
}
