mod builds;
mod details;
mod sweep;

use dbdyno_text::width;

use super::*;
use crate::sample;

const FEW: [&str; 3] = ["points-notcovered-pk.pre_range=100", "scan_range=100", "insert_range=100"];

fn draw(report: &Report, width: usize) -> String {
    render(report, &TerminalOptions { width, color: false, three_groups: false, details: false })
}

fn draw_details(report: &Report, width: usize) -> String {
    render(report, &TerminalOptions { width, color: false, three_groups: false, details: true })
}

/// From the first line that starts with `from` to the next empty line.
fn part(text: &str, from: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(from));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn three_candidates_and_the_control_fit_80_columns() {
    let text = draw(&sample::report_of(&FEW), 80);
    insta::assert_snapshot!(text, @"
    sqlite-variants  complete  dbdyno 0.1.0
    started 2026-03-01T09:30:00Z, measured 35 min 30 s, elapsed 42 min 24 s
    workload  1 table × 1,000,000 rows, 1 client
    baseline  rel_withdbg: SQLite 3.50.0, variant rel_withdbg, gcc 12.2.0
    candidate rel: variant rel
    candidate rel_native: variant rel_native
    candidate rel_native_lto: variant rel_native_lto
    + better than the baseline, - worse, ~ within noise, ? too few blocks, ! failed

    point-1  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  15,120  1.012 +  1.021 +  1.049 +  1.002 ~
                                                  ±0.4%    ±0.4%    ±0.3%    ±0.2%

    range-1  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    scan_range=100 (million rows/s)       5.83  1.008 +  1.016 +  1.035 +  1.001 ~
                                                  ±0.2%    ±0.3%    ±0.3%    ±0.3%

    writes  relative CPU per query, below 1 is better; trust this one
                                                                     rel_
                                                            rel_  native_
    microbenchmark                      CPU µs      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                      5.21  1.004 -  0.995 +  0.989 +  0.999 ~
                                                  ±0.3%    ±0.3%    ±0.2%    ±0.3%

    writes  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                   118,900  1.002 ~  1.014 +  0.994 ~  0.993 ~
                                                  ±1.4%    ±1.4%    ±2.2%    ±1.8%

    noise floor  the control differs from 1 by 0.22% typically and 0.7% at most
                 (insert_range=100); its interval contains 1 in 3 of 3
                 microbenchmarks. CPU per query: 0.12% typical.
    warning      CPU frequency governor: unknown (virtual machine). Frequency
                 changes cannot be ruled out; compare the control's spread before
                 you trust differences under 1%.
    intervals    Median of the per-block ratios. The 95% interval is taken over
                 restarts of the instances (Student's t on the logarithms of the
                 restarts' medians). Without restarts: order statistics of the
                 blocks, widened for the correlation of neighbours (effective sample
                 size from the lag-1 autocorrelation of the signs around the
                 median). ± is the farther end of the interval.

    key results  compared with rel_withdbg
    CPU per query comes first where throughput includes waiting that is not the
    candidate's work: for storage (writes), for wake-ups (one client of a server),
    for the load generator (client-bound).
    rel: variant rel
      point-1  1.2% more QPS (0.8% to 1.4%)
      range-1  0.8% more QPS (0.6% to 1%)
      writes   0.4% more CPU per query (0.2% to 0.7%)
               QPS: no difference found (within 1.5%)
    rel_native: variant rel_native
      point-1  2.1% more QPS (1.7% to 2.4%)
      range-1  1.6% more QPS (1.4% to 1.9%)
      writes   0.5% less CPU per query (0.2% to 0.7%)
               1.4% more QPS (0.1% to 2.8%)
    rel_native_lto: variant rel_native_lto
      point-1  4.9% more QPS (4.8% to 5.2%)
      range-1  3.5% more QPS (3.1% to 3.7%)
      writes   1.1% less CPU per query (0.8% to 1.3%)
               QPS: no difference found (within 1.5%)
    ");
}

#[test]
fn wide_terminal_shows_both_ends_of_intervals() {
    let text = part(&draw(&sample::report_of(&FEW), 140), "point-1");
    insta::assert_snapshot!(text, @"
    point-1  relative QPS, above 1 is better
    microbenchmark                         QPS                     rel              rel_native          rel_native_lto                 control
    ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  15,120  1.012 + [1.008, 1.014]  1.021 + [1.017, 1.024]  1.049 + [1.048, 1.052]  1.002 ~ [1.000, 1.004]
    ");
}

#[test]
fn differences_within_noise_are_marked() {
    let text = part(&draw(&sample::within_noise(&FEW), 100), "writes  relative QPS");
    insta::assert_snapshot!(text, @"
    writes  relative QPS, above 1 is better
                                                                             rel_native_
    microbenchmark                         QPS           rel    rel_native           lto       control
    ──────────────────────────────────────────────────────────────────────────────────────────────────
    insert_range=100                   118,900  0.993~ ±1.8%  0.993~ ±1.8%  0.993~ ±1.8%  0.993~ ±1.8%
    ");
}

#[test]
fn failed_candidate_keeps_its_column_and_has_a_reason() {
    let text = draw(&sample::failed_candidate(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "point-1"), part(&text, "noise floor"));
    insta::assert_snapshot!(text, @"
    point-1  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  15,120  1.012 +   failed  1.049 +  1.002 ~
                                                  ±0.4%             ±0.3%    ±0.2%

    noise floor  the control differs from 1 by 0.22% typically and 0.7% at most
                 (insert_range=100); its interval contains 1 in 3 of 3
                 microbenchmarks. CPU per query: 0.12% typical.
    failed       rel_native at load: the worker ended with signal 4 (illegal
                 instruction): the build uses instructions that this CPU lacks
    warning      CPU frequency governor: unknown (virtual machine). Frequency
                 changes cannot be ruled out; compare the control's spread before
                 you trust differences under 1%.
    intervals    Median of the per-block ratios. The 95% interval is taken over
                 restarts of the instances (Student's t on the logarithms of the
                 restarts' medians). Without restarts: order statistics of the
                 blocks, widened for the correlation of neighbours (effective sample
                 size from the lag-1 autocorrelation of the signs around the
                 median). ± is the farther end of the interval.
    ");
}

#[test]
fn without_a_control_the_noise_floor_is_unknown() {
    let text = draw(&sample::no_control(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "point-1"), part(&text, "noise floor"));
    insta::assert_snapshot!(text, @"
    point-1  relative QPS, above 1 is better
                                                                        rel_native_
    microbenchmark                       QPS          rel   rel_native          lto
    ───────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100 15.1k 1.012+ ±0.4% 1.021+ ±0.4% 1.049+ ±0.3%

    noise floor  unknown: without a control, differences cannot be told from noise
    warning      CPU frequency governor: unknown (virtual machine). Frequency
                 changes cannot be ruled out; compare the control's spread before
                 you trust differences under 1%.
    intervals    Median of the per-block ratios. The 95% interval is taken over
                 restarts of the instances (Student's t on the logarithms of the
                 restarts' medians). Without restarts: order statistics of the
                 blocks, widened for the correlation of neighbours (effective sample
                 size from the lag-1 autocorrelation of the signs around the
                 median). ± is the farther end of the interval.
    ");
}

#[test]
fn run_that_still_measures_is_running() {
    let mut report = sample::incomplete(&FEW);
    report.running_pid = Some(4711);
    let text = draw(&report, 80);
    assert!(text.starts_with("sqlite-variants  running (pid 4711)  dbdyno 0.1.0\n"), "{text}");
}

#[test]
fn incomplete_run_is_marked_and_lists_what_is_missing() {
    let text = draw(&sample::incomplete(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "sqlite"), part(&text, "writes"));
    insta::assert_snapshot!(text, @"
    sqlite-variants  INCOMPLETE: can be resumed  dbdyno 0.1.0
    started 2026-03-01T09:30:00Z, measured 35 min 30 s, elapsed 42 min 24 s
    workload  1 table × 1,000,000 rows, 1 client
    baseline  rel_withdbg: SQLite 3.50.0, variant rel_withdbg, gcc 12.2.0
    candidate rel: variant rel
    candidate rel_native: variant rel_native
    candidate rel_native_lto: variant rel_native_lto
    + better than the baseline, - worse, ~ within noise, ? too few blocks, ! failed

    writes  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                   118,900    few ?    few ?    few ?    few ?
    ");
}

#[test]
fn imported_results_have_no_intervals() {
    let text = draw(&sample::imported(), 80);
    let text = format!("{}\n\n{}", part(&text, "published"), part(&text, "writes"));
    insta::assert_snapshot!(text, @"
    published  complete  dbdyno 0.1.0
    started 2026-03-01T09:30:00Z
    workload  8 tables × 1,000,000 rows, 1 client
    baseline  innodb: imported
    candidate myrocks: imported from published-qps.tsv
    + better than the baseline, - worse, ~ within noise, ? too few blocks, ! failed
    · measured by others, too few values for an interval, no verdict

    writes  relative QPS, above 1 is better
    microbenchmark                    QPS                 myrocks
    ─────────────────────────────────────────────────────────────
    update-index_range=100          2,293  1.879 · –
    insert_range=100                7,134  0.546 · –
    ");
}

#[test]
fn noise_is_dimmed_and_differences_are_coloured() {
    let report = sample::report_of(&FEW);
    let options = TerminalOptions { width: 80, color: true, three_groups: false, details: false };
    let text = render(&report, &options);
    assert!(text.contains("\x1b[2m1.001 ~\x1b[0m"), "{text}");
    assert!(text.contains("\x1b[32m1.012 +\x1b[0m"), "{text}");
    // Colours change nothing else.
    let mut bare = text;
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[1;31m"] {
        bare = bare.replace(code, "");
    }
    assert_eq!(bare, draw(&report, 80));
}

#[test]
fn lines_fit_all_widths_from_80() {
    let reports = [
        sample::report(),
        sample::no_control(&FEW),
        sample::failed_candidate(&FEW),
        sample::servers(),
        sample::sweep(),
        sample::imported(),
    ];
    for report in reports {
        for width in [80, 90, 100, 120, 160, 200] {
            for line in draw_details(&report, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}

#[test]
fn four_candidates_and_the_control_fit_and_six_are_split() {
    for (extra, tables) in [(1, 1), (3, 2)] {
        let mut report = sample::report();
        for n in 0..extra {
            let mut more = report.candidates[1].clone();
            more.name = format!("rel_o2_lto_{n}");
            report.candidates.insert(4, more.clone());
            for microbenchmark in &mut report.microbenchmarks {
                let mut row = microbenchmark.rows[0].clone();
                row.candidate.clone_from(&more.name);
                microbenchmark.rows.push(row);
            }
        }
        let text = draw(&report, 80);
        assert_eq!(text.matches("\npoint-1  relative QPS").count(), tables);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}

#[test]
fn three_groups_on_request() {
    let options = TerminalOptions { width: 80, color: false, three_groups: true, details: false };
    let text = render(&sample::report(), &options);
    assert!(text.contains("\npoint  relative QPS") && !text.contains("point-1"));
}

#[test]
fn report_without_results_says_so() {
    assert!(draw(&sample::report_of(&[]), 80).contains("Nothing has been measured yet."));
}

#[test]
fn effects_of_settings_follow_the_summaries() {
    let text = draw(&sample::matrix(&FEW, false), 80);
    insta::assert_snapshot!(part(&text, "effects"), @"
    effects  of the settings of maria on QPS
                                              innodb_
                                          doublewrite  innodb_flush_
    microbenchmark                             OFF/ON  neighbors 1/0
    ────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  1.124 + ±1.2%  0.998 ~ ±0.4%
    scan_range=100                      1.094 + ±1.2%  0.998 ~ ±0.4%
    insert_range=100                    1.064 + ±1.2%  0.998 ~ ±0.4%
    geometric mean                      1.094          0.998
    insert_range=100: the ratio innodb_doublewrite OFF/ON with
    innodb_flush_neighbors = 1 is 1.057 ±0.9% times the ratio with
    innodb_flush_neighbors = 0.
    Throughput with one value of a setting divided by throughput with its first
    value: the geometric mean over all combinations of the other settings, computed
    in each block.
    ");
    let calm = draw(&sample::matrix(&FEW[..1], true), 80);
    assert!(calm.contains("No interaction is certain"), "{calm}");
    let narrow = draw(&sample::matrix(&FEW[1..], false), 60);
    assert!(part(&narrow, "effects").lines().all(|line| width(line) <= 60), "{narrow}");
}

#[test]
fn series_has_releases_down_and_groups_across() {
    for room in [80, 120] {
        let text = draw(&sample::series(30), room);
        let table = part(&text, "series  mariadb");
        assert_eq!(table.lines().count(), 3 + 30, "{table}");
        for name in ["point-1", "range-2", "writes"] {
            assert!(table.lines().nth(1).unwrap().contains(name), "{table}");
        }
        assert!(table.lines().nth(3).unwrap().starts_with("ma10.2.0 "), "{table}");
        let changes = part(&text, "changes");
        assert_eq!(changes.lines().skip(3).take_while(|line| line.contains(" to ")).count(), 10);
        let words: Vec<&str> = changes.split_whitespace().collect();
        assert!(words.join(" ").contains("changes.csv has all"), "{changes}");
        assert!(table.lines().all(|line| width(line) <= room), "{table}");
    }
}

#[test]
fn differences_that_existing_servers_report_are_listed_up_to_a_limit() {
    let mut report = sample::servers();
    report.candidates[1].config_diff =
        (0..15).map(|index| format!("setting_{index}: 2; the baseline: 1")).collect();
    let text = draw(&report, 100);
    let listed = text.matches("the baseline: 1").count();
    assert_eq!(listed, 12, "{text}");
    assert!(text.contains("and 3 more, listed in report.html"), "{text}");
}
