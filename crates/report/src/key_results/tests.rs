use dbdyno_units::Nanos;

use super::*;
use crate::sample;

/// A report of one microbenchmark with one candidate without a control, whose relative QPS and CPU
/// have these intervals.
fn report(name: &str, qps: [f64; 3], cpu: [f64; 3]) -> Report {
    let mut report = sample::no_control(&[name]);
    report.candidates.truncate(2);
    for member in &mut report.microbenchmarks {
        member.rows.truncate(1);
        set(&mut member.rows[0], qps, cpu);
    }
    sample::refresh(&mut report);
    report
}

fn set(row: &mut Row, qps: [f64; 3], cpu: [f64; 3]) {
    let estimate = |[low, median, high]: [f64; 3]| {
        sample::interval(Ratio::new(median), Ratio::new(low), Ratio::new(high))
    };
    row.relative_qps = Some(estimate(qps));
    row.relative_cpu = Some(estimate(cpu));
    row.verdict = Metric::Qps.verdict_of_estimate(&estimate(qps), None);
    row.cpu_verdict = Metric::Cpu.verdict_of_estimate(&estimate(cpu), None);
}

const SAME: [f64; 3] = [0.998, 1.0, 1.002];

fn words(report: &Report) -> Vec<String> {
    of(report, Grouping::Five).iter().map(|result| result.findings()[0].words()).collect()
}

#[test]
fn ratio_that_is_no_difference_is_not_shown_as_one() {
    let report = report("insert_range=100", [0.945, 1.033, 1.120], [0.950, 1.033, 1.088]);
    let results = of(&report, Grouping::Five);
    assert_eq!(results.len(), 1);
    let result = &results[0];
    assert_eq!(result.finding.metric, Metric::Cpu, "writes");
    assert_eq!(result.finding.words(), "CPU per query: no difference found (within 8.8%)");
    let throughput = result.throughput.as_ref().unwrap();
    assert_eq!(throughput.words(), "QPS: no difference found (within 12%)");
    // 50 s measured with half a width of 6.7%.
    assert_eq!(result.more_time.unwrap().words(), "to resolve 2%, 9 more minutes");
    assert_eq!(result.finding.verdict(), Verdict::WithinNoise);
}

#[test]
fn difference_has_its_size_and_interval() {
    for (qps, words_of_qps) in [
        ([1.018, 1.021, 1.025], "2.1% more QPS (1.8% to 2.5%)"),
        ([0.550, 0.560, 0.566], "44% less QPS (43.4% to 45%)"),
        ([-0.058, 0.182, 0.422], "81.8% less QPS (57.8% to 100%)"),
        ([2.201, 2.314, 2.402], "2.31 times the QPS (2.20 to 2.40)"),
    ] {
        assert_eq!(words(&report("scan_range=100", qps, SAME)), [words_of_qps]);
    }
    let less = report("insert_range=100", SAME, [0.961, 0.966, 0.970]);
    assert_eq!(words(&less), ["3.4% less CPU per query (3% to 3.9%)"]);
    assert_eq!(of(&less, Grouping::Five)[0].finding.outcome, Outcome::Better);
}

#[test]
fn certain_difference_of_throughput_comes_before_no_difference_of_cpu() {
    let report = report("insert_range=100", [0.051, 0.096, 0.140], [0.91, 3.456, 7.14]);
    let result = of(&report, Grouping::Five).remove(0);
    let words: Vec<String> = result.findings().into_iter().map(Finding::words).collect();
    assert_eq!(
        words,
        [
            "90.4% less QPS (86% to 94.9%)",
            "CPU per query: unknown, up to 7.140 times the baseline's"
        ]
    );
    assert_eq!(result.more_time, None);
}

#[test]
fn command_has_the_time_of_all_groups() {
    let mut report = report("scan_range=100", [0.945, 1.0, 1.055], SAME);
    let one = report.microbenchmarks[0].clone();
    let command = |report: &Report| {
        let results = of(report, Grouping::Five);
        let times: Vec<_> = results.iter().map(|result| result.more_time.unwrap()).collect();
        (command(&report.directory, &results).unwrap(), times[0].time)
    };
    let (text, time) = command(&report);
    let minutes = time.as_secs_f64() / 60.0;
    assert_eq!(text, format!("dbdyno run --resume results/first --more {minutes}min"));
    report.microbenchmarks.push(MicrobenchmarkRows { group: "own".to_owned(), ..one });
    let (text, _) = command(&report);
    assert_eq!(text, format!("dbdyno run --resume results/first --more {}min", 2.0 * minutes));
}

#[test]
fn group_with_differences_in_both_directions_is_mixed() {
    let names = ["point-query_range=100", "hot-points_range=100", "points-covered-pk_range=100"];
    let mut report = sample::no_control(&names);
    report.candidates.truncate(2);
    let ratios = [[1.19, 1.20, 1.21], [0.79, 0.80, 0.81], SAME];
    for (member, qps) in report.microbenchmarks.iter_mut().zip(ratios) {
        member.rows.truncate(1);
        set(&mut member.rows[0], qps, SAME);
    }
    sample::refresh(&mut report);
    assert_eq!(words(&report), ["QPS: 1 of 3 faster, 1 slower"]);
    set(&mut report.microbenchmarks[1].rows[0], [1.03, 1.04, 1.05], SAME);
    assert_eq!(
        words(&report),
        ["4% more QPS (3% to 5%); 2 of 3 faster, no difference in the others"]
    );
}

#[test]
fn own_group_of_reads_and_writes_has_a_result_for_each() {
    let mut report = sample::no_control(&["scan_range=100", "insert_range=100"]);
    report.candidates.truncate(2);
    for member in &mut report.microbenchmarks {
        member.group = "own".to_owned();
        member.rows.truncate(1);
        set(&mut member.rows[0], [1.018, 1.021, 1.025], SAME);
    }
    sample::refresh(&mut report);
    let results = of(&report, Grouping::Five);
    let metrics: Vec<Metric> = results.iter().map(|result| result.finding.metric).collect();
    assert_eq!(metrics, [Metric::Qps, Metric::Cpu]);
    assert_eq!(results[1].throughput.as_ref().unwrap().words(), "2.1% more QPS (1.8% to 2.5%)");
}

#[test]
fn results_without_a_verdict_say_why() {
    let failed = |verdict| {
        let mut report = report("scan_range=100", SAME, SAME);
        report.microbenchmarks[0].rows[0].verdict = verdict;
        report.microbenchmarks[0].rows[0].relative_cpu = None;
        sample::refresh(&mut report);
        words(&report).remove(0)
    };
    assert_eq!(failed(Verdict::Failed), "QPS: failed");
    assert_eq!(failed(Verdict::ClientBound), "QPS: client-bound, limited by the load generator");
    let incomplete = sample::incomplete(&["scan_range=100"]);
    assert_eq!(words(&incomplete)[0], "QPS: too few blocks");
    let imported = words(&sample::imported());
    assert!(imported[0].ends_with("of the baseline's, too few values for an interval"));
}

#[test]
fn more_time_is_only_suggested_where_it_helps() {
    let wide = report("scan_range=100", [0.945, 1.0, 1.055], SAME);
    assert!(of(&wide, Grouping::Five)[0].more_time.is_some());
    let narrow = report("scan_range=100", [0.996, 1.0, 1.004], SAME);
    assert_eq!(of(&narrow, Grouping::Five)[0].more_time, None);
    let mut incomplete = wide.clone();
    incomplete.status = RunStatus::Incomplete;
    assert_eq!(of(&incomplete, Grouping::Five)[0].more_time, None);
    let mut unknown = wide.clone();
    unknown.microbenchmarks[0].measuring_time = Nanos::ZERO;
    assert_eq!(of(&unknown, Grouping::Five)[0].more_time, None);
    // Two equal instances differ by 3%: longer measuring does not resolve 2%.
    let mut noisy = wide;
    let mut noise = sample::report_of(&["scan_range=100"]).noise.unwrap();
    noise.typical = Share::from_percent(3.0);
    noisy.noise = Some(noise);
    assert_eq!(of(&noisy, Grouping::Five)[0].more_time, None);
}
