use dbdyno_units::{Nanos, Ratio, Share};

use super::finding::Outcome;
use super::words::Steps;
use super::*;
use crate::model::{Estimate, Verdict};
use crate::terminal::{self, TerminalOptions};
use crate::{html, markdown, sample};

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

fn estimate([low, median, high]: [f64; 3]) -> Estimate {
    sample::interval(Ratio::new(median), Ratio::new(low), Ratio::new(high))
}

fn set(row: &mut Row, qps: [f64; 3], cpu: [f64; 3]) {
    row.relative_qps = Some(estimate(qps));
    row.relative_cpu = Some(estimate(cpu));
    row.verdict = Verdict::of_estimate(Metric::Qps, &estimate(qps), None);
    row.cpu_verdict = Verdict::of_estimate(Metric::Cpu, &estimate(cpu), None);
}

const SAME: [f64; 3] = [0.998, 1.0, 1.002];

fn answers(report: &Report) -> Vec<String> {
    let all = conclusions(report, Grouping::Five);
    all.into_iter().map(|(sentence, _)| sentence).collect()
}

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
    assert_eq!(throughput.words(), "QPS: too noisy to tell (5.5% less to 12% more)");
    // 50 s measured with half a width of 6.7%.
    assert_eq!(result.more_time.unwrap().words(), "to resolve 2%, 9 more minutes");
    assert_eq!(result.finding.verdict(), Verdict::WithinNoise);
}

#[test]
fn noise_floor_widens_each_end_that_is_nearer() {
    let estimate = sample::interval(Ratio::new(1.04), Ratio::new(0.98), Ratio::new(1.12));
    let value = || GroupValue {
        ratio: estimate.median,
        estimate: Some(estimate),
        verdict: Verdict::TooNoisy,
    };
    for (floor, possible) in
        [(1.0, "2% less to 12% more"), (5.0, "5% less to 12% more"), (20.0, "20% less to 20% more")]
    {
        let floor = Some(Share::from_percent(floor));
        let words = Finding::of_values(Metric::Qps, &[value()], floor).words();
        assert_eq!(words, format!("QPS: too noisy to tell ({possible})"));
    }
}

#[test]
fn difference_has_its_size_and_interval() {
    for (qps, words_of_qps) in [
        ([1.018, 1.021, 1.025], "2.1% more QPS (1.8% to 2.5%)"),
        ([0.550, 0.560, 0.566], "44% less QPS (43.4% to 45%)"),
        ([0.081, 0.182, 0.409], "81.8% less QPS (59.1% to 91.9%)"),
        ([2.201, 2.314, 2.402], "2.31 times the QPS (2.20 to 2.40)"),
    ] {
        assert_eq!(words(&report("scan_range=100", qps, SAME)), [words_of_qps]);
    }
    let less = report("insert_range=100", SAME, [0.961, 0.966, 0.970]);
    assert_eq!(words(&less), ["3.4% less CPU per query (3% to 3.9%)"]);
    assert_eq!(of(&less, Grouping::Five)[0].finding.outcome, Outcome::Better);
}

#[test]
fn difference_in_work_between_slices_is_named() {
    let of_slices = |writes: bool, base: f64, cpu: [f64; 3], own: [f64; 3], control: [f64; 3]| {
        let mut report = report("insert_range=100", SAME, cpu);
        let one = &mut report.microbenchmarks[0];
        one.writes = writes;
        let candidate = (&mut one.rows[0].absolute, 0.3);
        for (absolute, background) in [(&mut one.baseline, base), candidate] {
            absolute.cpu_us_per_query = Some(20.0 + background);
            absolute.background_cpu_us_per_query = Some(background);
        }
        one.rows[0].relative_cpu_of_slices = Some(estimate(own));
        let mut row = one.rows[0].clone();
        set(&mut row, SAME, SAME);
        (row.role, row.relative_cpu_of_slices) = (Role::Control, Some(estimate(control)));
        one.rows.push(row);
        let member = &report.microbenchmarks[0];
        assert_eq!(member.rows[0].cpu_verdict == Verdict::Better, cpu[2] < 1.0);
        let shown = member.shown_verdict(&member.rows[0], Metric::Cpu);
        let is_coloured = shown == Verdict::Better;
        assert_eq!(is_coloured, cpu[2] < 1.0 && (writes || base < 1.0), "colour");
        words(&report)
    };
    let of = |writes, base, cpu| of_slices(writes, base, cpu, SAME, SAME);
    let (lower, noisy) = ([0.499, 0.619, 0.767], [0.875, 1.0, 1.125]);
    let less = "38.1% less CPU per query (23.3% to 50.1%)";
    let none = "no certain difference without background work (within 0.2%)";
    assert_eq!(of(true, 12.0, lower), [format!("{less}; {none}")]);
    assert_eq!(of(true, 0.5, lower), [less], "little");
    // Reads do not cause it.
    let what = "CPU per query";
    assert_eq!(of(false, 12.0, lower), [format!("{what}: {none}; with it {less}")]);
    let too_noisy = "too noisy to tell (12.5% less to 12.5% more)";
    assert_eq!(of(false, 12.0, noisy), [format!("{what}: {none}; with it {too_noisy}")]);
    assert_eq!(of(true, 12.0, noisy), [format!("{what}: {too_noisy}; {none}")]);
    // It is a difference only with an interval without 1, and beyond the control's.
    let without = |own, control| of_slices(false, 12.0, noisy, own, control).remove(0);
    let (slight, wide) = ([0.968, 0.972, 0.976], [0.8, 0.972, 1.1]);
    assert_eq!(
        without(slight, SAME),
        format!("2.8% less {what} (2.4% to 3.2%) without background work; with it {too_noisy}")
    );
    assert_eq!(
        without(slight, [0.955, 0.965, 0.975]),
        format!(
            "{what}: no certain difference without background work (within 3.5%); with it {too_noisy}"
        )
    );
    assert_eq!(without(wide, SAME), format!("{what}: {too_noisy}, also without background work"));
    let found = of_slices(true, 12.0, lower, wide, SAME);
    let wide = "too noisy to tell without background work (20% less to 10% more)";
    assert_eq!(found, [format!("{less}; {wide}")]);
    // One of three microbenchmarks does not change the median of the group.
    let mut report = report("insert_range=100", SAME, lower);
    let one = report.microbenchmarks.remove(0);
    for (background, of_slices) in [(12.0, SAME), (0.3, lower), (0.3, lower)] {
        let mut one = one.clone();
        one.baseline.cpu_us_per_query = Some(20.0 + background);
        one.baseline.background_cpu_us_per_query = Some(background);
        one.rows[0].relative_cpu_of_slices = Some(estimate(of_slices));
        report.microbenchmarks.push(one);
    }
    assert_eq!(words(&report), [less]);
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
            "CPU per query: too noisy to tell (9% less to 7.14 times)"
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
    // Twice the time before it was rounded up to minutes.
    let (text, _) = command(&report);
    assert_eq!((minutes, text.as_str()), (6.0, "dbdyno run --resume results/first --more 11min"));
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
    let mixed =
        "QPS: 20% less to 20% more, depending on the microbenchmark; 1 of 3 faster, 1 slower";
    assert_eq!(words(&report), [mixed]);
    set(&mut report.microbenchmarks[1].rows[0], [1.03, 1.04, 1.05], SAME);
    assert_eq!(
        words(&report),
        ["0% to 20% more QPS, depending on the microbenchmark (median 4%); 2 of 3 faster, no \
          difference in the other"]
    );
}

#[test]
fn difference_in_few_members_is_only_one_of_the_group_if_chance_does_not_explain_it() {
    let words = |differing: &[[f64; 3]], members: usize| {
        let same = std::iter::repeat(&SAME);
        let value = |[low, median, high]: &[f64; 3]| {
            let [median, low, high] = [*median, *low, *high].map(Ratio::new);
            let estimate = Estimate { starts: Some(6), ..sample::interval(median, low, high) };
            let verdict = Verdict::of_estimate(Metric::Cpu, &estimate, None);
            GroupValue { ratio: median, estimate: Some(estimate), verdict }
        };
        let values: Vec<GroupValue> =
            differing.iter().chain(same).take(members).map(value).collect();
        Finding::of_values(Metric::Cpu, &values, None).words()
    };
    let slight = [1.003, 1.01, 1.017];
    let none = "CPU per query: no difference found (within 0.2%)";
    assert_eq!(words(&[slight], 9), format!("{none}; 1 of 9 with more, which may be chance"));
    assert_eq!(
        words(&[slight, [0.983, 0.99, 0.997]], 9),
        format!("{none}; 1 of 9 with less, 1 with more, which may be chance")
    );
    let mixed =
        |number| format!("CPU per query: {number} of 9 with more, no difference in the others");
    assert_eq!(words(&[slight; 3], 9), mixed(3), "too many");
    assert_eq!(words(&[[1.012, 1.02, 1.028]], 9), mixed(1), "certain");
    assert!(
        words(&[[1.001, 1.006, 1.011]], 2).ends_with("; 1 of 2 with more, which may be chance")
    );
    assert!(
        words(&[[1.012, 1.02, 1.028]], 2)
            .contains("; 1 of 2 with more, no difference in the other")
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
    // Two results of one group name what they are of.
    let words: Vec<Vec<String>> = results
        .iter()
        .map(|result| result.findings().into_iter().map(Finding::words).collect())
        .collect();
    assert_eq!(
        words,
        [
            vec!["scan_range=100: 2.1% more QPS (1.8% to 2.5%)"],
            vec![
                "insert_range=100: 2.1% more QPS (1.8% to 2.5%)",
                "insert_range=100: CPU per query: no difference found (within 0.2%)",
            ],
        ]
    );
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

#[test]
fn neighbouring_numbers_of_clients_with_the_same_finding_are_one_step() {
    let mut report = sample::sweep_of(&[1, 4, 16, 64]);
    let values = [SAME, [1.018, 1.021, 1.025], [1.050, 1.054, 1.061], [1.95, 2.314, 2.402]];
    for member in &mut report.microbenchmarks {
        let at = [1, 4, 16, 64].iter().position(|clients| *clients == member.clients).unwrap();
        let row = member.rows.iter_mut().find(|row| row.candidate == "myrocks").unwrap();
        set(row, values[at], SAME);
        row.trusted_metric = Metric::Qps;
    }
    let results = of(&report, Grouping::Five);
    let words = |results: &[KeyResult<'_>]| -> Vec<(String, String)> {
        let step = |one: Steps<'_, '_>| (one.clients(), one.findings()[0].0.clone());
        steps(results).map(step).collect()
    };
    let of_point = &results[..4];
    assert!(of_point.iter().all(|one| one.group == "point-1"));
    let none = "QPS: no difference found (within 0.2%)";
    let more = |words: &str| words.to_owned();
    assert_eq!(
        words(of_point),
        [
            (more("1 client"), more(none)),
            (more("4 to 64 clients"), more("1.02 to 2.31 times the QPS (1.02 to 2.40)"))
        ]
    );
    assert_eq!(
        words(&of_point[..3])[1],
        (more("4 to 16 clients"), more("2.1% to 5.4% more QPS (1.8% to 6.1%)"))
    );
    for member in &mut report.microbenchmarks {
        let row = member.rows.iter_mut().find(|row| row.candidate == "myrocks").unwrap();
        set(row, if member.clients < 16 { [0.8, 0.9, 0.95] } else { [0.7, 0.75, 0.76] }, SAME);
    }
    let mut results = of(&report, Grouping::Five);
    assert_eq!(
        words(&results[..4]),
        [(more("1 to 64 clients"), more("10% to 25% less QPS (5% to 30%)"))]
    );
    // A tally is not hidden, nor that a candidate is as the baseline.
    let mut tallied = of(&report, Grouping::Five);
    (tallied[1].finding.count, tallied[1].finding.better) = (9, 1);
    assert_eq!(words(&tallied[..2]).len(), 2);
    let mut as_baseline = of(&report, Grouping::Five);
    as_baseline[1].finding.is_as_baseline = true;
    assert_eq!(words(&as_baseline[..2]).len(), 2);
    let equal = Finding {
        outcome: Outcome::NoDifference,
        within: Some(Share::from_percent(1.0)),
        ..results[0].finding.clone()
    };
    results[0].finding.without_background = Some(Box::new(equal));
    let [(alone, first), (others, _)] = &words(&results[..4])[..] else { panic!() };
    assert_eq!([alone, others], ["1 client", "4 to 64 clients"]);
    assert!(first.contains("no certain difference without background work (within 1%)"), "{first}");
}

#[test]
fn difference_that_the_control_has_too_may_be_noise() {
    let mut report = sample::servers_of(&["scan_range=100"]);
    let found = |report: &mut Report, own: [f64; 3], control: [f64; 3]| {
        for row in &mut report.microbenchmarks[0].rows {
            let is_control = row.candidate == "control";
            set(row, if is_control { control } else { own }, SAME);
            row.trusted_metric = Metric::Qps;
        }
        words(report).remove(0)
    };
    let own = [0.390, 0.583, 0.814];
    for control in [[0.473, 0.584, 0.776], [0.473, 0.584, 1.010]] {
        assert_eq!(
            found(&mut report, own, control),
            "41.7% less QPS (18.6% to 61%); may be noise, as the control has 41.6% less"
        );
    }
    assert_eq!(
        found(&mut report, own, [0.5, 1.004, 2.0]),
        "41.7% less QPS (18.6% to 61%); may be noise, as the control is too noisy to tell (50% less to 2.00 times)"
    );
    for control in
        [[1.473, 1.584, 1.776], [0.980, 0.985, 0.990], [0.95, 1.0, 1.05], [0.6, 1.0, 1.7]]
    {
        assert_eq!(
            found(&mut report, own, control),
            "41.7% less QPS (18.6% to 61%)",
            "{control:?}"
        );
    }
}

#[test]
fn conclusion_says_that_the_control_has_the_same_difference() {
    for (factor, size) in [(1.0, "41.7% slower"), (4.0, "2.33 times as fast")] {
        let mut report = sample::servers_of(&["scan_range=100"]);
        for row in &mut report.microbenchmarks[0].rows {
            set(row, [0.52, 0.583, 0.6].map(|ratio| factor * ratio), SAME);
            row.trusted_metric = Metric::Qps;
        }
        let sentence = answers(&report).remove(0);
        assert!(sentence.contains(size), "{sentence}");
        assert!(sentence.contains("; may be noise, as the control has "), "{sentence}");
    }
}

#[test]
fn difference_of_a_candidate_that_is_as_the_baseline_may_be_noise() {
    let mut report = report("scan_range=100", [1.018, 1.021, 1.025], SAME);
    let certain = "2.1% more QPS (1.8% to 2.5%)";
    assert_eq!(words(&report), [certain]);
    let [baseline, own] = [Role::Baseline, Role::Candidate]
        .map(|role| report.candidates.iter().position(|one| one.role == role).unwrap());
    let mut equal = report.candidates[baseline].clone();
    (equal.name, equal.role) = (report.candidates[own].name.clone(), Role::Candidate);
    report.candidates[own] = equal;
    assert_eq!(words(&report), [certain], "nothing is set");
    report.candidates[own].in_force.without_effect = vec!["jit".to_owned()];
    let noise = "; may be noise, as all its settings have the baseline's values";
    assert_eq!(words(&report), [format!("{certain}{noise}")]);
    assert_eq!(conclusions(&report, Grouping::Five)[0].1, Verdict::WithinNoise);
}

#[test]
fn what_may_be_noise_has_no_colour_in_any_output() {
    let mut report = sample::servers_of(&["scan_range=100", "read-only.pre_range=100"]);
    let mut tones = |control: [f64; 3], is_noise: bool| {
        for row in report.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows) {
            let is_control = row.candidate == "control";
            set(row, if is_control { control } else { [0.52, 0.583, 0.6] }, SAME);
            row.trusted_metric = Metric::Qps;
        }
        let member = &report.microbenchmarks[0];
        let row = member.row("myrocks").unwrap();
        assert_eq!(row.verdict, Verdict::Worse, "exports");
        let summary = report.groups.iter().find(|one| one.candidate == "myrocks").unwrap();
        let options =
            TerminalOptions { width: 80, color: true, three_groups: false, details: false };
        let answer = terminal::answer(&report, &options).unwrap();
        assert_eq!(answer.contains("\x1b[31mmyrocks is "), !is_noise, "{answer}");
        for (text, coloured) in [
            (html::render(&report), "<li class=\"worse\">"),
            (markdown::render(&report), "0.583 `-` ("),
        ] {
            assert_eq!(text.contains("; may be noise, as the control has "), is_noise);
            assert_eq!(text.contains(coloured), !is_noise);
        }
        [
            conclusions(&report, Grouping::Five)[0].1,
            report.verdict_of_group(Metric::Qps, summary),
            member.shown_verdict(row, Metric::Qps),
        ]
    };
    assert_eq!(tones([0.473, 0.584, 0.776], true), [Verdict::WithinNoise; 3]);
    assert_eq!(tones(SAME, false), [Verdict::Worse; 3]);
}

#[test]
fn conclusions_are_sentences_with_intervals() {
    let of = |qps, cpu| {
        let report = report("scan_range=100", qps, cpu);
        let candidate = report.candidates[1].name.clone();
        let baseline = report.baseline.clone();
        let [sentence] = &answers(&report)[..] else { panic!("one result") };
        sentence.replace(&baseline, "old").replace(&candidate, "new")
    };
    for (qps, sentence) in [
        ([0.74, 0.76, 0.78], "new is 24% slower than old on scan_range=100 (95%: 22% to 26%)"),
        (
            [1.018, 1.021, 1.025],
            "new is 2.1% faster than old on scan_range=100 (95%: 1.8% to 2.5%)",
        ),
        (
            [2.2, 2.31, 2.4],
            "new is 2.31 times as fast as old on scan_range=100 (95%: 2.20 to 2.40)",
        ),
        (SAME, "no difference found between new and old on scan_range=100 (95%: within 0.2%)"),
        (
            [0.2, 1.0, 4.2],
            "too noisy to tell whether new or old is faster on scan_range=100: QPS (80% less to 4.20 \
             times)",
        ),
    ] {
        assert_eq!(of(qps, SAME), sentence);
    }
}

#[test]
fn conclusion_about_a_group_names_it_and_adds_the_metric_to_trust() {
    let mut report = report("insert_range=100", [0.70, 0.75, 0.80], [1.30, 1.40, 1.50]);
    let (candidate, baseline) = (report.candidates[1].name.clone(), report.baseline.clone());
    assert_eq!(
        answers(&report),
        [format!(
            "{candidate} is 25% slower than {baseline} on insert_range=100 (95%: 20% to 30%); 40% \
             more CPU per query (30% to 50%)"
        )]
    );
    let one = report.microbenchmarks[0].clone();
    report.microbenchmarks.push(MicrobenchmarkRows { name: "delete_range=100".to_owned(), ..one });
    let sentences = answers(&report);
    assert_eq!(sentences.len(), 1);
    assert!(sentences[0].contains(" on 2 of 10 of writes (95%: "), "{sentences:?}");
}

#[test]
fn conclusion_begins_with_what_is_known() {
    let report = report("insert_range=100", [0.2, 1.0, 4.2], [1.30, 1.40, 1.50]);
    let (candidate, baseline) = (&report.candidates[1].name, &report.baseline);
    assert_eq!(
        answers(&report),
        [format!(
            "{candidate} on insert_range=100 against {baseline}: 40% more CPU per query (30% to 50%); QPS: too noisy \
             to tell (80% less to 4.20 times)"
        )]
    );
}

#[test]
fn conclusion_about_a_part_of_a_group_names_it() {
    let mut report = report("scan_range=100", [0.74, 0.76, 0.78], SAME);
    let one = report.microbenchmarks[0].clone();
    for name in ["range-covered-pk_range=100", "range-covered-si_range=100"] {
        report.microbenchmarks.push(MicrobenchmarkRows { name: name.to_owned(), ..one.clone() });
    }
    report.microbenchmarks[0].rows[0].trusted_metric = Metric::Cpu;
    let sentences = answers(&report);
    assert!(sentences[0].contains(" on 2 microbenchmarks of range-1 (95%"), "{sentences:?}");
    assert!(sentences[1].contains(" on scan_range=100 (95%"), "{sentences:?}");
    for microbenchmark in &mut report.microbenchmarks[1..] {
        microbenchmark.rows[0].verdict = Verdict::Failed;
    }
    let failed = &answers(&report)[0];
    assert!(failed.ends_with(" on 2 microbenchmarks of range-1: QPS: failed"), "{failed}");
}

#[test]
fn conclusions_of_a_sweep_have_the_number_of_clients() {
    let report = sample::sweep_of(&[1, 4]);
    let sentences = answers(&report);
    assert!(sentences.iter().any(|one| one.contains(" with 1 client")), "{sentences:?}");
    assert!(sentences.iter().any(|one| one.contains(" with 4 clients")), "{sentences:?}");
}

/// A report of one candidate with a microbenchmark of each ratio, in the group `own`.
fn own_queries(qps: &[[f64; 3]]) -> Report {
    let names = ["point-query_range=100", "hot-points_range=100", "points-covered-pk_range=100"];
    let mut report = sample::no_control(&names[..qps.len()]);
    report.candidates.truncate(2);
    for (member, qps) in report.microbenchmarks.iter_mut().zip(qps) {
        "own".clone_into(&mut member.group);
        member.rows.truncate(1);
        set(&mut member.rows[0], *qps, SAME);
    }
    sample::refresh(&mut report);
    report
}

#[test]
fn median_of_unlike_queries_is_not_their_headline() {
    let unlike = own_queries(&[[0.144, 0.145, 0.146], [0.519, 0.529, 0.540], [0.82, 0.83, 0.84]]);
    assert_eq!(
        words(&unlike),
        ["17% to 85.5% less QPS, depending on the microbenchmark (median 47.1%)"]
    );
    assert_eq!(
        answers(&unlike),
        [
            "rel is 17% to 85.5% slower than rel_withdbg on the user-defined microbenchmarks, depending \
          on the microbenchmark (median 47.1%)"
        ]
    );
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    let screen = |report: &Report| {
        let text = terminal::answer(report, &options).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = screen(&unlike);
    let each = "rel is 47.1% slower than rel_withdbg on hot-points_range=100 of the user-defined microbenchmarks \
                (95%: 46% to 48.1%)";
    assert!(text.contains(each) && !text.contains("depending"), "{text}");
    let mut many = unlike.clone();
    let more = many.microbenchmarks[2].clone();
    for name in ["a", "b"] {
        many.microbenchmarks.push(MicrobenchmarkRows { name: name.to_owned(), ..more.clone() });
    }
    let text = screen(&many);
    assert!(!text.contains("hot-points") && text.contains("depending on the microb"), "{text}");
    let faster = own_queries(&[[6.8, 6.9, 7.0], [1.78, 1.8, 1.82], [1.18, 1.2, 1.22]]);
    assert_eq!(
        words(&faster),
        ["1.20 to 6.90 times the QPS, depending on the microbenchmark (median 1.80)"]
    );
    let both = own_queries(&[[6.8, 6.9, 7.0], [0.78, 0.8, 0.82], [1.18, 1.2, 1.22]]);
    assert_eq!(
        words(&both),
        ["QPS: 20% less to 6.90 times, depending on the microbenchmark (median 20% more); 2 of 3 \
          faster, 1 slower"]
    );
    let mixed = own_queries(&[[6.8, 6.9, 7.0], [0.78, 0.8, 0.82], SAME]);
    assert_eq!(
        words(&mixed),
        ["QPS: 20% less to 6.90 times, depending on the microbenchmark; 1 of 3 faster, 1 slower"]
    );
    let alike = own_queries(&[[0.50, 0.51, 0.52], [0.519, 0.529, 0.540], [0.53, 0.55, 0.56]]);
    assert_eq!(words(&alike), ["47.1% less QPS (46% to 48.1%)"]);
}

#[test]
fn imported_group_of_unlike_queries_has_its_range() {
    let mut report = own_queries(&[SAME, SAME, SAME]);
    for (member, ratio) in report.microbenchmarks.iter_mut().zip([0.31, 1.033, 2.04]) {
        let row = &mut member.rows[0];
        (row.relative_qps, row.single) = (None, Some(Ratio::new(ratio)));
        row.verdict = Verdict::NoInterval;
    }
    sample::refresh(&mut report);
    assert_eq!(
        words(&report),
        [
            "QPS: 0.310 to 2.040 times the baseline's, depending on the microbenchmark (median 1.033), \
          too few values for an interval"
        ]
    );
}

#[test]
fn microbenchmarks_that_are_too_noisy_are_not_called_equal() {
    let wide = [0.45, 0.9, 1.8];
    let some = own_queries(&[SAME, SAME, wide]);
    assert_eq!(words(&some), ["QPS: no difference found (within 0.2%); 1 of 3 too noisy to tell"]);
    let most = own_queries(&[SAME, wide, wide]);
    assert_eq!(words(&most), ["QPS: too noisy to tell (55% less to 80% more)"]);
    assert_eq!(of(&most, Grouping::Five)[0].finding.verdict(), Verdict::TooNoisy);
    let one = own_queries(&[[1.19, 1.2, 1.21], SAME, wide]);
    assert_eq!(
        words(&one),
        ["QPS: 1 of 3 faster, 1 too noisy to tell, no difference in the other"]
    );
    assert_eq!(
        answers(&most),
        [
            "too noisy to tell whether rel or rel_withdbg is faster on the user-defined microbenchmarks: \
          QPS (55% less to 80% more)"
        ]
    );
}
