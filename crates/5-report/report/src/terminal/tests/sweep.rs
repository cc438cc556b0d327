//! Numbers of clients.

use super::*;

#[test]
fn sweep_has_rows_by_clients_below_each_name() {
    let text = draw(&sample::sweep_of(&[1, 16, 128]), 80);
    assert!(!text.contains("group summaries"), "one microbenchmark per group");
    let text = part(&text, "range-2  relative QPS");
    insta::assert_snapshot!(text, @"
    range-2  relative QPS, above 1 is better
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
    group    candidate  metric  4 : 1     16 : 4
    ────────────────────────────────────────────
    point-1  innodb     QPS     3.073 +  2.061 +
                        p99     1.300 -  1.923 -
             myrocks    QPS     2.951 +  1.976 +
                        p99     1.300 -  1.923 -
             control    QPS     3.073 +  2.061 +
                        p99     1.300 -  1.923 -
    range-2  innodb     QPS     3.073 +  2.061 +
                        p99     1.300 -  1.923 -
             myrocks    QPS     2.951 +  1.976 +
                        p99     1.300 -  1.923 -
             control    QPS     3.073 +  2.061 +
                        p99     1.300 -  1.923 -
    Relative to the next smaller number of clients of the same candidate: of QPS
    above 1, of p99 (response time) below 1 is better.

    key results by number of clients  relative QPS, above 1 is better
    group    candidate      1        4       16
    ─────────────────────────────────────────────
    point-1  myrocks    0.743 -  0.713 -  0.683 -
             control    1.000 ~  1.000 ~  1.000 ~
    range-2  myrocks    0.691 -  0.664 -  0.636 -
             control    0.998 ~  0.998 ~  0.998 ~

    key results by number of clients  relative CPU per query, below 1 is better
    group    candidate      1        4       16
    ─────────────────────────────────────────────
    point-1  myrocks    1.347 -  1.403 -  1.464 -
             control    1.000 ~  1.000 ~  1.000 ~
    range-2  myrocks    1.444 -  1.504 -  1.570 -
             control    1.001 ~  1.001 ~  1.001 ~
    ");
}

#[test]
fn matrix_with_many_numbers_of_clients_fits() {
    let text = draw(&sample::sweep(), 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let title = "key results by number of clients  relative QPS, above 1 is better";
    insta::assert_snapshot!(part(&text, title), @"
    key results by number of clients  relative QPS, above 1 is better
    group    candidate      1        2        4        8       16       32
    ────────────────────────────────────────────────────────────────────────
    point-1  myrocks    0.743 -  0.728 -  0.713 -  0.698 -  0.683 -  0.668 -
             control    1.000 ~  1.000 ~  1.000 ~  1.000 ~  1.000 ~  1.000 ~
    range-2  myrocks    0.691 -  0.678 -  0.664 -  0.650 -  0.636 -  0.622 -
             control    0.998 ~  0.998 ~  0.998 ~  0.998 ~  0.998 ~  0.998 ~
    group    candidate     64      128
    ────────────────────────────────────
    point-1  myrocks    0.654 -  0.639 -
             control    1.000 ~  1.000 ~
    range-2  myrocks    0.609 -  0.595 -
             control    0.998 ~  0.998 ~
    ");
}
