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
    + better than the baseline, - worse, ~ within noise, ? cannot tell, ! failed

    point-1 (1 of 11)  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  15,120  1.012 +  1.021 +  1.049 +  1.002 ~
                                                  ±0.4%    ±0.4%    ±0.3%    ±0.2%

    range-1 (1 of 9)  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    scan_range=100 (million rows/s)       5.83  1.008 +  1.016 +  1.035 +  1.001 ~
                                                  ±0.2%    ±0.3%    ±0.3%    ±0.3%

    writes (1 of 10)  relative CPU per query, below 1 is better; trust this one
                                                                     rel_
                                                            rel_  native_
    microbenchmark                          µs      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                      5.21  1.004 -  0.995 +  0.989 +  0.999 ~
                                                  ±0.3%    ±0.3%    ±0.2%    ±0.3%

    writes (1 of 10)  relative QPS, above 1 is better
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
      points-notcovered-pk.pre_range=100  1.2% more QPS (0.8% to 1.4%)
      scan_range=100                      0.8% more QPS (0.6% to 1%)
      insert_range=100                    0.4% more CPU per query (0.2% to 0.7%)
                                          QPS: no difference found (within 1.5%)
    rel_native: variant rel_native
      points-notcovered-pk.pre_range=100  2.1% more QPS (1.7% to 2.4%)
      scan_range=100                      1.6% more QPS (1.4% to 1.9%)
      insert_range=100                    0.5% less CPU per query (0.2% to 0.7%)
                                          1.4% more QPS (0.1% to 2.8%)
    rel_native_lto: variant rel_native_lto
      points-notcovered-pk.pre_range=100  4.9% more QPS (4.8% to 5.2%)
      scan_range=100                      3.5% more QPS (3.1% to 3.7%)
      insert_range=100                    1.1% less CPU per query (0.8% to 1.3%)
                                          QPS: no difference found (within 1.5%)
    ");
}

#[test]
fn wide_terminal_shows_both_ends_of_intervals() {
    let text = part(&draw(&sample::report_of(&FEW), 140), "point-1");
    insta::assert_snapshot!(text, @"
    point-1 (1 of 11)  relative QPS, above 1 is better
    microbenchmark                         QPS                     rel              rel_native          rel_native_lto                 control
    ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100  15,120  1.012 + [1.008, 1.014]  1.021 + [1.017, 1.024]  1.049 + [1.048, 1.052]  1.002 ~ [1.000, 1.004]
    ");
}

#[test]
fn differences_within_noise_are_marked() {
    let text = part(&draw(&sample::within_noise(&FEW), 100), "writes (1 of 10)  relative QPS");
    insta::assert_snapshot!(text, @"
    writes (1 of 10)  relative QPS, above 1 is better
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
    point-1 (1 of 11)  relative QPS, above 1 is better
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
    point-1 (1 of 11)  relative QPS, above 1 is better
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
fn run_that_measured_nothing_does_not_blame_a_missing_control() {
    let mut report = sample::incomplete(&FEW);
    report.candidates.clear();
    (report.noise, report.cpu_noise) = (None, None);
    report.warnings[0].advice = "sudo swapoff -a".to_owned();
    let text = draw(&report, 80);
    assert!(text.contains("noise floor  unknown: nothing was measured\n"), "{text}");
    assert!(text.contains("(virtual machine); sudo"), "{text}");
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
    + better than the baseline, - worse, ~ within noise, ? cannot tell, ! failed

    writes (1 of 10)  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                   118,900    few ?    few ?    few ?    few ?
    ");
}

#[test]
fn imported_results_have_no_intervals() {
    let mut report = sample::imported();
    report.settings = sample::pairs(&[("Imported from", "a.tsv"), ("Clients", "1, 8")]);
    let text = draw(&report, 80);
    let text = format!("{}\n\n{}", part(&text, "published"), part(&text, "writes"));
    insta::assert_snapshot!(text, @"
    published  complete  dbdyno 0.1.0
    started 2026-03-01T09:30:00Z
    workload  clients: 1, 8
    baseline  innodb: imported
    candidate myrocks: imported from published-qps.tsv
    + better than the baseline, - worse, ~ within noise, ? cannot tell, ! failed
    · measured by others, too few values for an interval, no verdict

    writes (2 of 10)  relative QPS, above 1 is better
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
    assert_eq!(listed, 12 + 3, "in the list, and beside the key results: {text}");
    assert!(text.contains("and 3 more, listed in report.html"), "{text}");
}

#[test]
fn audits_of_builds_show_common_and_differing_properties() {
    let text = draw(&sample::audited(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "builds"), part(&text, "command lines"));
    insta::assert_snapshot!(text, @"
    builds, by what compilers recorded
    candidate       -O   LTO    march   hardening             text  stripped
    ────────────────────────────────────────────────────────────────────────
    rel_withdbg     O2   none   x86-64  none               997 KiB   1.2 MiB
    rel             O3*  none   x86-64  none                +16.3%    +16.0%
    rel_native      O3   none   znver3  fortify protector   +19.0%    +18.6%
    rel_native_lto  O3   slim*  znver3  fortify protector    +8.6%     +8.5%
    in all: 912 objects; assertions off; profile none
    * rel: -O2 in 5 of 912; -O0 in 2 of 912
    rel: ignored findings: optimization-level (5), unoptimized (2)
    * rel_native_lto: LTO none in 3 of 912
    rel_native_lto: warnings: lto-partial (3)

    command lines against rel_withdbg
    rel             5 files: the same flags
                    905 files: added -O3; removed -O2 -g
                    2 files: added -O0; removed -O2 -g
    rel_native      902 files: added -O3 -march=znver3 -mtune=znver3
                    -fstack-protector-strong; removed -O2 -g
                    1 file: added -O3; removed -O2
                    1 file: added -O3 -march=znver3; removed -O2
                    1 file: added -O3 -march=znver3 -mtune=znver3; removed -O2
                    1 file: 1 more kind of difference: see report.html
                    6 files only here, 1 file only in the baseline
    rel_native_lto  902 files: added -O3 -march=znver3 -mtune=znver3
                    -fstack-protector-strong -flto=auto; removed -O2 -g
                    1 file: added -O3; removed -O2
                    1 file: added -O3 -march=znver3; removed -O2
                    1 file: added -O3 -march=znver3 -mtune=znver3; removed -O2
                    1 file: 1 more kind of difference: see report.html
                    6 files only here, 1 file only in the baseline
    ");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn build_audited_from_its_linked_file_is_remarked() {
    let mut report = sample::audited(&FEW);
    let build = report.candidates[1].build.as_mut().unwrap();
    build.audit.as_mut().unwrap().from_objects = false;
    build.stripped_size = None;
    let text = part(&draw(&report, 80), "builds");
    assert!(text.contains("rel: read from the linked file only"), "{text}");
}

#[test]
fn sizes_changed_by_bolt_are_remarked() {
    let mut report = sample::audited(&FEW);
    assert!(!draw(&report, 80).contains("BOLT"));
    report.candidates[1].build.as_mut().unwrap().bolted = true;
    let text = part(&draw(&report, 80), "builds");
    let remark = "rel: BOLT keeps the code that it moved: sizes do not compare";
    assert!(text.contains(remark), "{text}");
}

#[test]
fn servers_show_cost_per_operation() {
    let report = sample::servers_of(&["point-query.pre_range=100", "insert_range=100"]);
    let text = draw_details(&report, 80);
    let (_, text) = text.split_once("\n\n").unwrap();
    insta::assert_snapshot!(text, @"
    point-1 (1 of 11)  relative CPU per query, below 1 is better; trust this one
    microbenchmark            CPU µs                 myrocks                 control
    ────────────────────────────────────────────────────────────────────────────────
    point-query.pre_range=100  32.94  1.361 - [1.356, 1.364]  0.999 ~ [0.996, 1.002]

    point-1 (1 of 11)  relative QPS, above 1 is better
    microbenchmark               QPS                 myrocks                 control
    ────────────────────────────────────────────────────────────────────────────────
    point-query.pre_range=100 24,738  0.735 c [0.733, 0.738]  0.997 c [0.996, 1.001]

    writes (1 of 10)  relative CPU per query, below 1 is better; trust this one
    microbenchmark            CPU µs                 myrocks                 control
    ────────────────────────────────────────────────────────────────────────────────
    insert_range=100           73.00  1.799 - [1.794, 1.803]  0.999 ~ [0.996, 1.001]

    writes (1 of 10)  relative QPS, above 1 is better
    microbenchmark               QPS                 myrocks                 control
    ────────────────────────────────────────────────────────────────────────────────
    insert_range=100           7,134  0.546 - [0.543, 0.558]  0.993 ~ [0.990, 1.011]

    point-query.pre_range=100  per operation
    absolute    QPS  cpu/q  usr/q  sys/q   cs/q   pf/q  rd/q   wr/q  client  busy
    ─────────────────────────────────────────────────────────────────────────────
    innodb    24.7k   32.9   20.4   12.5   1.02   0.00  0.00    512    6.92  97.0
    myrocks   18.2k   44.8   27.8   17.0   1.02   0.00  0.00    512    9.41  95.0
    control   24.7k   32.9   20.4   12.5   1.02   0.00  0.00    512    6.91  95.0
    relative to innodb
    myrocks   0.735  1.361  1.361  1.361  1.270  1.000     –  1.000   1.361     –
    control   0.997  0.999  0.999  0.999  1.001  1.000     –  1.000   0.999     –

    insert_range=100  per operation
    absolute    QPS  cpu/q  usr/q  sys/q   cs/q   pf/q  rd/q   wr/q  client  busy
    ─────────────────────────────────────────────────────────────────────────────
    innodb    7.13k   73.0   45.3   27.7   1.02   0.00  0.00    512    15.3  31.0
    myrocks   3.90k    131   81.4   49.9   1.02   0.00  0.00    512    27.6  31.0
    control   7.08k   72.9   45.2   27.7   1.02   0.00  0.00    512    15.3  31.0
    relative to innodb
    myrocks   0.546  1.799  1.799  1.799  1.270  1.000     –  1.000   1.799     –
    control   0.993  0.999  0.999  0.999  1.001  1.000     –  1.000   0.999     –
    per operation: cpu/q is the CPU time of the system under test per query in µs,
    with what a server does in the background between its slices; usr/q and sys/q
    that of its slices in user mode and in the kernel; cs/q and pf/q its context
    switches and page faults; rd/q and wr/q bytes from and to storage; client the
    load generator's own CPU time in µs, and busy the percentage of its CPUs that it
    used. QPS, cpu/q and cs/q are compared slice by slice, the others as a whole.

    point-query.pre_range=100  response times of events
    absolute      p50              p95              p99
    ───────────────────────────────────────────────────────────
    innodb    2.28 µs          3.18 µs          4.54 µs
    myrocks   2.07 µs          2.88 µs          4.12 µs
    control   2.28 µs          3.18 µs          4.54 µs
    relative to innodb, below 1 is better
    myrocks     0.953 c ±0.8%    0.977 c ±1.6%    0.984 c ±3.2%
    control     0.999 c ±0.8%    1.000 c ±1.6%    1.000 c ±3.2%

    insert_range=100  response times of events
    absolute      p50              p95              p99
    ───────────────────────────────────────────────────────────
    innodb    7.91 µs            11 µs          15.7 µs
    myrocks   7.88 µs            11 µs          15.7 µs
    control   7.96 µs          11.1 µs          15.8 µs
    relative to innodb, below 1 is better
    myrocks     0.991 + ±0.8%    0.995 ~ ±1.6%    0.997 ~ ±3.2%
    control     0.999 ~ ±0.8%    1.000 ~ ±1.6%    1.000 ~ ±3.2%
    response times: of an event, from sending its first statement to reading its
    last row, over all counted slices. The intervals of their ratios are 95%, over
    starts or parts of the run; times are recorded with a resolution of 1%.

    settings that differ in effect from the baseline
    myrocks  torn pages: innodb writes every page twice (innodb_doublewrite = ON);
             myrocks never overwrites a page
             checksums: crc32 of pages of 16 KiB; crc32c of blocks of 4 KiB

    noise floor   the control differs from 1 by 0.7% typically and 0.7% at most
                  (insert_range=100); its interval contains 1 in 1 of 1
                  microbenchmarks. CPU per query: 0.11% typical.
    client-bound  2 of 4 rows: the load generator used at least 90% of its CPUs,
                  while the server still had idle CPU time. These rows have no
                  throughput verdict and are excluded from the throughput summaries;
                  CPU per query is still valid. Give the load generator more CPUs to
                  measure them.
    lost          myrocks lost its connections 2 times and continued. A slice of
                  writes was lost at insert_range=100: from there on its data
                  differed from that of the others, and their answers were not
                  compared. Last at insert_range=100: the server ended with signal
                  9; its log ends with: [Note] RocksDB: compaction
    optimized     myrocks by the live optimizer once; the last with
                  point-query_range=100: 412 functions moved with 97.2% of the
                  samples, executions counted, 312 KiB hot, 2 MiB added; its threads
                  stood still for 3.2 ms at most.
    warning       CPU frequency governor: unknown (virtual machine). Frequency
                  changes cannot be ruled out; compare the control's spread before
                  you trust differences under 1%.
    intervals     Median of the per-block ratios. The 95% interval is taken over
                  restarts of the instances (Student's t on the logarithms of the
                  restarts' medians). Without restarts: order statistics of the
                  blocks, widened for the correlation of neighbours (effective
                  sample size from the lag-1 autocorrelation of the signs around the
                  median). ± is the farther end of the interval.

    key results  compared with innodb
    CPU per query comes first where throughput includes waiting that is not the
    candidate's work: for storage (writes), for wake-ups (one client of a server),
    for the load generator (client-bound).
    myrocks: MariaDB 10.11.14 (myrocks)
      differs in effect: torn pages: innodb writes every page twice
                         (innodb_doublewrite = ON); myrocks never overwrites a page
                         checksums: crc32 of pages of 16 KiB; crc32c of blocks of 4
                         KiB
      point-query.pre_range=100  36.1% more CPU per query (35.6% to 36.4%)
                                 QPS: client-bound, limited by the load generator
      insert_range=100           79.9% more CPU per query (79.4% to 80.3%)
                                 45.4% less QPS (44.2% to 45.7%)
    ");
}

/// The part of the details from `from` up to `to`.
fn details(report: &Report, from: &str, to: &str) -> String {
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: true };
    let text = render(report, &options);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let start = text.find(from).unwrap();
    let end = text[start..].find(to).map_or(text.len(), |end| start + end);
    text[start..end].trim_end().to_owned()
}

#[test]
fn counter_figures_are_part_of_the_details() {
    let report = sample::counted(&["scan_range=100"]);
    let text = details(&report, "scan_range=100  counted", "noise floor");
    insta::assert_snapshot!(text, @"
    scan_range=100  counted
    absolute       ins/q cyc/q   IPC L1i/k iTLB/k brm/k minf/q majf/q migr/q  µJ/q
    ──────────────────────────────────────────────────────────────────────────────
    rel_withdbg     453M  412M  1.10  31.4   1.27  4.60   4e-4   0.00   2e-6 6.52M
    rel             451M  408M  1.10  31.3   1.26  4.60   4e-4   0.00   2e-6 6.46M
    rel_native      449M  405M  1.11  31.2   1.26  4.60   4e-4   0.00   2e-6 6.42M
    rel_native_lto  445M  398M  1.12  30.9   1.25  4.60   4e-4   0.00   2e-6 6.30M
    control         452M  411M  1.10  31.4   1.27  4.60   4e-4   0.00   2e-6 6.51M
    relative to rel_withdbg
    rel            0.996 0.992 1.004 0.996  0.996 1.000  1.000      –  1.000 0.992
    rel_native     0.992 0.984 1.008 0.992  0.992 1.000  1.000      –  1.000 0.984
    rel_native_lto 0.983 0.967 1.017 0.983  0.983 1.000  1.000      –  1.000 0.967
    control        0.999 0.999 1.001 0.999  0.999 1.000  1.000      –  1.000 0.999

    counted  medians of ratios to the baseline over the microbenchmarks of a group
    group           candidate       count  ins/q  cyc/q    IPC
    ──────────────────────────────────────────────────────────
    scan_range=100  rel                 1  0.996  0.992  1.004
                    rel_native          1  0.992  0.984  1.008
                    rel_native_lto      1  0.983  0.967  1.017
                    control             1  0.999  0.999  1.001
    counted for the system under test in its slices, without the background: ins/q
    and cyc/q are instructions and clock cycles per query, IPC instructions per
    cycle; L1i/k, iTLB/k and brm/k misses of the L1 instruction cache, the
    instruction TLB and of branches per 1,000 instructions; minf/q, majf/q and
    migr/q minor and major page faults and moves between CPUs per query; µJ/q energy
    of the whole package per query in microjoules. Ratios are compared slice by
    slice; of faults and moves, where slices have none, as a whole.
    ");
}

#[test]
fn missing_hardware_counters_are_one_line() {
    let report = sample::only_kernel_counters(&["scan_range=100"]);
    let text = details(&report, "scan_range=100  counted", "noise floor");
    insta::assert_snapshot!(text, @"
    scan_range=100  counted
    absolute        minf/q  majf/q  migr/q
    ──────────────────────────────────────
    rel_withdbg       4e-4    0.00    2e-6
    rel               4e-4    0.00    2e-6
    rel_native        4e-4    0.00    2e-6
    rel_native_lto    4e-4    0.00    2e-6
    control           4e-4    0.00    2e-6
    relative to rel_withdbg
    rel              1.000       –   1.000
    rel_native       1.000       –   1.000
    rel_native_lto   1.000       –   1.000
    control          1.000       –   1.000

    counters
    counted for the system under test in its slices, without the background: minf/q,
    majf/q and migr/q are minor and major page faults and moves between CPUs per
    query. Ratios are compared slice by slice, and as a whole where slices have
    none.
    hardware counters: not available here: this machine has no hardware counters
    (virtual machine without a PMU)
    energy: not available here: the kernel shows no energy of CPU packages (no RAPL
    in /sys/class/powercap)
    ");
    let none = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    assert!(!render(&report, &none).contains("counted"));
}

#[test]
fn sweep_has_rows_by_clients_below_each_name() {
    let text = draw(&sample::sweep_of(&[1, 16, 128]), 80);
    assert!(!text.contains("group summaries"), "one microbenchmark per group");
    let text = part(&text, "range-2 (1 of 6)  relative QPS");
    insta::assert_snapshot!(text, @"
    range-2 (1 of 6)  relative QPS, above 1 is better
      clients     QPS                 myrocks                 control
    ─────────────────────────────────────────────────────────────────
    read-only_range=100
            1   5,139  0.691 - [0.690, 0.693]  0.998 ~ [0.996, 1.000]
           16  32,557  0.636 - [0.635, 0.637]  0.998 ~ [0.996, 1.000]
          128  42,887  0.595 - [0.593, 0.596]  0.998 ~ [0.996, 1.000]
    ");
}

#[test]
fn sweep_has_ratios_between_numbers_of_clients_and_ends_with_a_matrix() {
    let text = draw(&sample::sweep_of(&[1, 4, 16]), 80);
    let steps = part(&text, "read-only_range=100  relative to");
    insta::assert_snapshot!(steps, @"
    read-only_range=100  relative to the next smaller number of clients
    candidate  clients     QPS   relative QPS      p99   relative p99
    ─────────────────────────────────────────────────────────────────
    innodb           1   5,139                 3.14 ms
                    4*  15,793  3.073 + ±1.2%  4.09 ms  1.300 - ±3.0%
                   16*  32,557  2.061 + ±1.2%  7.86 ms  1.923 - ±3.0%
    myrocks          1   3,553                 2.86 ms
                    4*  10,484  2.951 + ±1.2%  3.72 ms  1.300 - ±3.0%
                   16*  20,712  1.976 + ±1.2%  7.15 ms  1.923 - ±3.0%
    control          1   5,126                 3.15 ms
                    4*  15,755  3.073 + ±1.2%   4.1 ms  1.300 - ±3.0%
                   16*  32,477  2.061 + ±1.2%  7.88 ms  1.923 - ±3.0%
    ± is the farther end of the interval, in percent of the ratio.
    * measured after the smaller number of clients, not in turns with it: the ratio
    includes what changed on the machine in the meantime, which its interval does
    not show.
    ");
    let start = text.find("more clients against fewer").unwrap();
    insta::assert_snapshot!(&text[start..], @"
    more clients against fewer  medians of the groups
    group                  candidate  metric  4 : 1     16 : 4
    ──────────────────────────────────────────────────────────
    point-query_range=100  innodb     QPS     3.073 +  2.061 +
                                      p99     1.300 -  1.923 -
                           myrocks    QPS     2.951 +  1.976 +
                                      p99     1.300 -  1.923 -
                           control    QPS     3.073 +  2.061 +
                                      p99     1.300 -  1.923 -
    read-only_range=100    innodb     QPS     3.073 +  2.061 +
                                      p99     1.300 -  1.923 -
                           myrocks    QPS     2.951 +  1.976 +
                                      p99     1.300 -  1.923 -
                           control    QPS     3.073 +  2.061 +
                                      p99     1.300 -  1.923 -
    Relative to the next smaller number of clients of the same candidate: of QPS
    above 1, of p99 (response time) below 1 is better.

    key results by number of clients  relative QPS, above 1 is better
    group                  candidate      1        4       16
    ───────────────────────────────────────────────────────────
    point-query_range=100  myrocks    0.743 -  0.713 -  0.683 -
                           control    1.000 ~  1.000 ~  1.000 ~
    read-only_range=100    myrocks    0.691 -  0.664 -  0.636 -
                           control    0.998 ~  0.998 ~  0.998 ~

    key results by number of clients  relative CPU per query, below 1 is better
    group                  candidate      1        4       16
    ───────────────────────────────────────────────────────────
    point-query_range=100  myrocks    1.347 -  1.403 -  1.464 -
                           control    1.000 ~  1.000 ~  1.000 ~
    read-only_range=100    myrocks    1.444 -  1.504 -  1.570 -
                           control    1.001 ~  1.001 ~  1.001 ~
    ");
}

#[test]
fn matrix_with_many_numbers_of_clients_fits() {
    let text = draw(&sample::sweep(), 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let medians = part(&text, "more clients against fewer");
    let headings: Vec<&str> = medians.lines().filter(|line| line.starts_with("group ")).collect();
    assert!(headings.len() > 1, "{medians}");
    assert!(headings.iter().all(|heading| heading.contains("  metric  ")), "{medians}");
    let title = "key results by number of clients  relative QPS, above 1 is better";
    insta::assert_snapshot!(part(&text, title), @"
    key results by number of clients  relative QPS, above 1 is better
    group                  candidate      1        2        4        8       16
    ─────────────────────────────────────────────────────────────────────────────
    point-query_range=100  myrocks    0.743 -  0.728 -  0.713 -  0.698 -  0.683 -
                           control    1.000 ~  1.000 ~  1.000 ~  1.000 ~  1.000 ~
    read-only_range=100    myrocks    0.691 -  0.678 -  0.664 -  0.650 -  0.636 -
                           control    0.998 ~  0.998 ~  0.998 ~  0.998 ~  0.998 ~
    group                  candidate     32       64      128
    ───────────────────────────────────────────────────────────
    point-query_range=100  myrocks    0.668 -  0.654 -  0.639 -
                           control    1.000 ~  1.000 ~  1.000 ~
    read-only_range=100    myrocks    0.622 -  0.609 -  0.595 -
                           control    0.998 ~  0.998 ~  0.998 ~
    ");
}

/// The sample with other names of candidates.
fn named(names: &[&str]) -> Report {
    let report = sample::report_of(&["scan_range=100", "insert_range=100"]);
    let old = report.candidates.iter().map(|one| one.name.as_str());
    let names: Vec<(&str, String)> = old.zip(names.iter().map(|&name| name.to_owned())).collect();
    let mut report = renamed(&report, &names);
    sample::refresh(&mut report);
    report
}

#[test]
fn long_names_are_short_in_tables_and_full_in_the_key_results() {
    let report = named(&[
        "maria.doublewrite-ON.flush_neighbors-0",
        "maria.doublewrite-ON.flush_neighbors-1",
        "maria.doublewrite-OFF.flush_neighbors-0",
        "maria.doublewrite-OFF.flush_neighbors-1",
    ]);
    let text = draw_details(&report, 80);
    let (start, key_results) = text.split_once("\nkey results").unwrap();
    let (_, tables) = start.split_once("\nnames in tables\n").unwrap();
    let (legend, tables) = tables.split_once("\n\n").unwrap();
    assert_eq!(
        legend,
        "  ON.0   maria.doublewrite-ON.flush_neighbors-0\n  \
         ON.1   maria.doublewrite-ON.flush_neighbors-1\n  \
         OFF.0  maria.doublewrite-OFF.flush_neighbors-0\n  \
         OFF.1  maria.doublewrite-OFF.flush_neighbors-1"
    );
    assert!(!tables.contains("doublewrite"), "{tables}");
    assert!(key_results.contains("maria.doublewrite-OFF.flush_neighbors-1"), "{key_results}");
    assert!(text.lines().all(|line| width(line) <= 80), "{text}");
}

#[test]
fn names_without_a_short_form_become_letters() {
    let text = draw_details(
        &named(&["one-with-a-long-name-that-is-its-own", "another-with-no-common-part-at-all"]),
        80,
    );
    assert!(text.contains("  A  one-with-a-long-name-that-is-its-own\n"), "{text}");
    assert!(!draw_details(&named(&["one", "other"]), 80).contains("names in tables"));
}
