use super::*;
use crate::sample;

const FEW: [&str; 3] = ["points-notcovered-pk.pre_range=100", "scan_range=100", "insert_range=100"];

fn draw(report: &Report, width: usize) -> String {
    render(report, &TerminalOptions { width, color: false, three_groups: false })
}

/// From the first line that starts with `from` up to the next empty line.
fn part(text: &str, from: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(from));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn three_candidates_and_the_control_in_80_columns() {
    let text = draw(&sample::report_of(&FEW), 80);
    insta::assert_snapshot!(text, @"
    sqlite-variants  complete  dbdyno 0.1.0
    started 2026-03-01T09:30:00Z, measured 35 min 30 s, elapsed 42 min 24 s
    baseline rel_withdbg: SQLite 3.50.0, gcc 12.2.0
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

    writes  relative QPS, above 1 is better
                                                                     rel_
                                                            rel_  native_
    microbenchmark                         QPS      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                   118,900  1.002 ~  1.014 +  0.994 ~  0.993 ~
                                                  ±1.4%    ±1.4%    ±2.2%    ±1.8%

    writes  relative CPU per query, below 1 is better; for writes trust this one
                                                                     rel_
                                                            rel_  native_
    microbenchmark                      CPU µs      rel   native      lto  control
    ──────────────────────────────────────────────────────────────────────────────
    insert_range=100                      5.21  1.004 -  0.995 +  0.989 +  0.999 ~
                                                  ±0.3%    ±0.3%    ±0.2%    ±0.3%

    group summaries  relative QPS over the microbenchmarks of a group
    group    candidate       count    min    max    avg stddev median
    ───────────────────────────────────────────────────────────────────
    point-1  rel                 1  1.012  1.012  1.012      –  1.012 +
             rel_native          1  1.021  1.021  1.021      –  1.021 +
             rel_native_lto      1  1.049  1.049  1.049      –  1.049 +
             control             1  1.002  1.002  1.002      –  1.002 ~
    range-1  rel                 1  1.008  1.008  1.008      –  1.008 +
             rel_native          1  1.016  1.016  1.016      –  1.016 +
             rel_native_lto      1  1.035  1.035  1.035      –  1.035 +
             control             1  1.001  1.001  1.001      –  1.001 ~
    writes   rel                 1  1.002  1.002  1.002      –  1.002 ~
             rel_native          1  1.014  1.014  1.014      –  1.014 +
             rel_native_lto      1  0.994  0.994  0.994      –  0.994 ~
             control             1  0.993  0.993  0.993      –  0.993 ~

    best and worst microbenchmark
    point-1  rel             best  1.012 +  points-notcovered-pk.pre_range=100
                             worst 1.012 +  points-notcovered-pk.pre_range=100
             rel_native      best  1.021 +  points-notcovered-pk.pre_range=100
                             worst 1.021 +  points-notcovered-pk.pre_range=100
             rel_native_lto  best  1.049 +  points-notcovered-pk.pre_range=100
                             worst 1.049 +  points-notcovered-pk.pre_range=100
    range-1  rel             best  1.008 +  scan_range=100
                             worst 1.008 +  scan_range=100
             rel_native      best  1.016 +  scan_range=100
                             worst 1.016 +  scan_range=100
             rel_native_lto  best  1.035 +  scan_range=100
                             worst 1.035 +  scan_range=100
    writes   rel             best  1.002 ~  insert_range=100
                             worst 1.002 ~  insert_range=100
             rel_native      best  1.014 +  insert_range=100
                             worst 1.014 +  insert_range=100
             rel_native_lto  best  0.994 ~  insert_range=100
                             worst 0.994 ~  insert_range=100

    noise floor  the control differs from 1 by 0.22% typically, 0.7% at most
                 (insert_range=100); its interval contains 1 in 3 of 3
                 microbenchmarks. CPU per query: 0.12% typical.
    warning      CPU frequency governor: unknown (virtual machine). Frequency
                 changes cannot be ruled out; compare the control's spread before
                 you trust differences under 1%.
    intervals    Each ratio is the median over blocks of candidate ÷ baseline within
                 the block; its 95% interval comes from a moving-block bootstrap
                 over blocks (2,000 resamples, block length 5). ± is the farther end
                 of the interval.
    ");
}

#[test]
fn a_wide_terminal_shows_the_ends_of_the_intervals() {
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
    let text = part(&draw(&sample::within_noise(&FEW), 100), "writes");
    insta::assert_snapshot!(text, @"
    writes  relative QPS, above 1 is better
                                                                             rel_native_
    microbenchmark                         QPS           rel    rel_native           lto       control
    ──────────────────────────────────────────────────────────────────────────────────────────────────
    insert_range=100                   118,900  0.993~ ±1.8%  0.993~ ±1.8%  0.993~ ±1.8%  0.993~ ±1.8%
    ");
}

#[test]
fn a_failed_candidate_keeps_its_column_and_says_why() {
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

    noise floor  the control differs from 1 by 0.22% typically, 0.7% at most
                 (insert_range=100); its interval contains 1 in 3 of 3
                 microbenchmarks. CPU per query: 0.12% typical.
    failed       rel_native at load: the worker ended with signal 4 (illegal
                 instruction): the build uses instructions that this CPU lacks
    warning      CPU frequency governor: unknown (virtual machine). Frequency
                 changes cannot be ruled out; compare the control's spread before
                 you trust differences under 1%.
    intervals    Each ratio is the median over blocks of candidate ÷ baseline within
                 the block; its 95% interval comes from a moving-block bootstrap
                 over blocks (2,000 resamples, block length 5). ± is the farther end
                 of the interval.
    ");
}

#[test]
fn without_a_control_the_noise_is_unknown() {
    let text = draw(&sample::no_control(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "point-1"), part(&text, "noise floor"));
    insta::assert_snapshot!(text, @"
    point-1  relative QPS, above 1 is better
                                                                        rel_native_
    microbenchmark                       QPS          rel   rel_native          lto
    ───────────────────────────────────────────────────────────────────────────────
    points-notcovered-pk.pre_range=100 15.1k 1.012+ ±0.4% 1.021+ ±0.4% 1.049+ ±0.3%

    noise floor  unknown: without a control nothing shows which differences are
                 noise
    warning      CPU frequency governor: unknown (virtual machine). Frequency
                 changes cannot be ruled out; compare the control's spread before
                 you trust differences under 1%.
    intervals    Each ratio is the median over blocks of candidate ÷ baseline within
                 the block; its 95% interval comes from a moving-block bootstrap
                 over blocks (2,000 resamples, block length 5). ± is the farther end
                 of the interval.
    ");
}

#[test]
fn an_incomplete_run_says_so_and_shows_what_is_missing() {
    let text = draw(&sample::incomplete(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "sqlite"), part(&text, "writes"));
    insta::assert_snapshot!(text, @"
    sqlite-variants  INCOMPLETE: can be resumed  dbdyno 0.1.0
    started 2026-03-01T09:30:00Z, measured 35 min 30 s, elapsed 42 min 24 s
    baseline rel_withdbg: SQLite 3.50.0, gcc 12.2.0
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
fn noise_is_dimmed_and_differences_are_coloured() {
    let report = sample::report_of(&FEW);
    let options = TerminalOptions { width: 80, color: true, three_groups: false };
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
fn all_lines_fit_every_width_from_80() {
    for report in [sample::report(), sample::no_control(&FEW), sample::failed_candidate(&FEW)] {
        for width in [80, 90, 100, 120, 160, 200] {
            for line in draw(&report, width).lines() {
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
    let options = TerminalOptions { width: 80, color: false, three_groups: true };
    let text = render(&sample::report(), &options);
    assert!(text.contains("\npoint  relative QPS") && !text.contains("point-1"));
}

#[test]
fn nothing_measured_is_said() {
    assert!(draw(&sample::report_of(&[]), 80).contains("Nothing is measured yet."));
}
