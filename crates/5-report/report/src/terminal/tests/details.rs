//! Costs per operation and counters.

use super::*;

#[test]
fn servers_show_cost_per_operation() {
    let report = sample::servers_of(&["point-query.pre_range=100", "insert_range=100"]);
    let text = draw_details(&report, 80);
    let (_, text) = text.split_once("\n\n").unwrap();
    insta::assert_snapshot!(text, @"
    point-1  relative CPU per query, below 1 is better; trust this one
    microbenchmark             CPU µs                myrocks                control
    ───────────────────────────────────────────────────────────────────────────────
    point-query.pre_range=100   32.94 1.361 - [1.356, 1.364] 0.999 ~ [0.996, 1.002]

    point-1  relative QPS, above 1 is better
    microbenchmark               QPS                 myrocks                 control
    ────────────────────────────────────────────────────────────────────────────────
    point-query.pre_range=100 24,738  0.735 c [0.733, 0.738]  0.997 c [0.996, 1.001]

    writes  relative CPU per query, below 1 is better; trust this one
    microbenchmark             CPU µs                myrocks                control
    ───────────────────────────────────────────────────────────────────────────────
    insert_range=100            73.00 1.799 - [1.794, 1.803] 0.999 ~ [0.996, 1.001]

    writes  relative QPS, above 1 is better
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
      point-1  36.1% more CPU per query (35.6% to 36.4%)
               QPS: client-bound, limited by the load generator
      writes   79.9% more CPU per query (79.4% to 80.3%)
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
    group    candidate       count  ins/q  cyc/q    IPC
    ───────────────────────────────────────────────────
    range-1  rel                 1  0.996  0.992  1.004
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
