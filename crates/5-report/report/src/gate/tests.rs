use super::*;
use crate::model::Role;
use crate::sample;

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[track_caller]
fn invalid(text: &str, part: &str) {
    let error = text.parse::<Rule>().unwrap_err().to_string();
    assert!(error.contains(part) && error.contains(text), "{error}");
}

#[test]
fn rules_are_parsed_and_mistakes_explained() {
    let rule: Rule = " slower  2.5% in point-1 of  new ".parse().unwrap();
    assert_eq!(rule.to_string(), "slower 2.5% in point-1 of new");
    assert_eq!(rule.limit, Share::from_percent(2.5));
    assert_eq!((rule.quantity, rule.part.as_deref()), (Quantity::Slower, Some("point-1")));
    assert!(rule.is_about("new") && !rule.is_about("old"));
    assert_eq!("more-cpu 0%".parse::<Rule>().unwrap().quantity, Quantity::MoreCpu);
    invalid("slow 2%", "did you mean `slower`?");
    invalid("", "slower 2%");
    invalid("slower", "write `slower 2%`");
    invalid("slower 2", "`2` is not a share");
    for share in ["-1%", "100%", "nan%", "inf%", "%"] {
        invalid(&format!("worse {share}"), "is not a share");
    }
    invalid("slower 2% on point-1", "`on` is unknown");
    invalid("slower 2% in", "nothing follows `in`");
    invalid("slower 2% in a in b", "appears twice");
}

#[test]
fn only_what_is_certain_breaks_a_rule() {
    let judged = |metric, limit: f64, [middle, low, high]: [f64; 3]| {
        let limit = Share::from_percent(limit);
        let [ratio, low, high] = [middle, low, high].map(Ratio::new);
        match judge_interval(metric, limit, Quotient { ratio, low, high }) {
            Outcome::Broken(_) => "broken",
            Outcome::Kept(_) => "kept",
            Outcome::Uncertain(_) => "uncertain",
            Outcome::NotJudged(_) => "not judged",
        }
    };
    assert_eq!(judged(Metric::Qps, 2.0, [0.95, 0.94, 0.96]), "broken");
    assert_eq!(judged(Metric::Qps, 2.0, [0.97, 0.95, 0.985]), "uncertain");
    assert_eq!(judged(Metric::Qps, 2.0, [0.99, 0.985, 1.01]), "kept");
    assert_eq!(judged(Metric::Qps, 2.0, [1.05, 1.04, 1.06]), "kept");
    assert_eq!(judged(Metric::Cpu, 2.0, [1.05, 1.04, 1.06]), "broken");
    assert_eq!(judged(Metric::Cpu, 2.0, [1.03, 1.01, 1.05]), "uncertain");
    assert_eq!(judged(Metric::Cpu, 2.0, [0.9, 0.8, 1.01]), "kept");
}

#[test]
fn difference_within_the_noise_floor_is_uncertain_and_not_kept() {
    let mut report = sample::report();
    let rules = rules(&["slower 0.1%"]);
    let outcomes = |report: &Report| {
        let judged = judge(report, &rules, true).unwrap();
        let broken = judged[0].count(|one| matches!(one, Outcome::Broken(_)));
        let kept = judged[0].count(|one| matches!(one, Outcome::Kept(_)));
        (broken, kept, judged[0].is_uncertain(), terminal(&judged, 100))
    };
    let (broken, kept, ..) = outcomes(&report);
    assert!(broken > 0 && kept > 0);
    report.noise.as_mut().unwrap().typical = Share::from_percent(60.0);
    let (none_broken, as_many_kept, is_uncertain, text) = outcomes(&report);
    assert_eq!((none_broken, as_many_kept), (0, kept));
    assert!(is_uncertain && text.contains("; no more than the noise floor, 60%"), "{text}");
}

#[test]
fn rule_is_unknown_if_nothing_of_one_candidate_is_judged() {
    let comparison = |candidate: &str, outcome| Comparison {
        candidate: candidate.to_owned(),
        group: "writes".to_owned(),
        microbenchmark: None,
        clients: None,
        metric: Metric::Cpu,
        limit: Share::from_percent(2.0),
        time: Nanos::ZERO,
        outcome,
    };
    let kept = Outcome::Kept(Quotient { ratio: Ratio::ONE, low: Ratio::ONE, high: Ratio::ONE });
    let rule = "more-cpu 2%".parse::<Rule>().unwrap();
    let judged = |comparisons| Judged { rule: &rule, strict: false, comparisons }.is_unknown();
    let unknown = Outcome::NotJudged("CPU time is unknown, or too few blocks");
    assert!(judged(vec![comparison("a", kept), comparison("b", unknown)]));
    assert!(!judged(vec![comparison("a", kept), comparison("a", unknown)]));
    assert!(judged(Vec::new()));
}

#[test]
fn every_microbenchmark_of_every_candidate_is_judged() {
    let report = sample::report();
    let rules = rules(&["slower 2%", "worse 2% in writes", "slower 0% in point-1 of rel"]);
    let names = |one: &Judged<'_>| {
        let names = one.comparisons.iter().map(|one| one.candidate.clone());
        names.collect::<BTreeSet<String>>()
    };
    let candidates: BTreeSet<String> = report
        .candidates
        .iter()
        .filter(|one| one.role == Role::Candidate)
        .map(|one| one.name.clone())
        .collect();
    let judged = judge(&report, &rules, false).unwrap();
    assert_eq!(names(&judged[0]), candidates);
    assert_eq!(judged[0].comparisons.len(), 42 * candidates.len());
    assert_eq!(names(&judged[1]), candidates);
    assert!(judged[1].comparisons.iter().all(|one| one.microbenchmark.is_none()));
    assert_eq!(names(&judged[2]), BTreeSet::from(["rel".to_owned()]));
    // The verdicts of the report agree: what breaks `slower 0%` is slower in the report.
    let zero = self::rules(&["slower 0%"]);
    let mut broken = 0;
    for one in &judge(&report, &zero, false).unwrap()[0].comparisons {
        let mut rows = report.microbenchmarks.iter();
        let name = one.microbenchmark.as_ref().unwrap();
        let row = rows.find(|row| row.name == *name).unwrap();
        let row = row.rows.iter().find(|row| row.candidate == one.candidate);
        let is_slower = row.is_some_and(|row| row.verdict == Verdict::Worse);
        assert!(!one.is_broken() || is_slower, "{one:?}");
        broken += usize::from(one.is_broken());
    }
    assert!(broken > 3, "{broken}");
}

#[test]
fn unknown_names_are_explained() {
    let report = sample::report();
    let error = |text: &str| judge(&report, &rules(&[text]), false).unwrap_err().to_string();
    assert!(error("slower 2% in point_1").contains("did you mean `point-1`?"));
    assert!(error("slower 2% of nobody").contains("the run has no candidate `nobody`"));
}

#[test]
fn nothing_known_protects_from_nothing() {
    let mut report = sample::report();
    for one in &mut report.microbenchmarks {
        one.rows.clear();
    }
    let rules = rules(&["slower 2%", "slower 2% in point-1"]);
    for judged in judge(&report, &rules, false).unwrap() {
        assert!(judged.is_unknown() && !judged.is_broken(), "{judged:?}");
    }
}

#[test]
fn outcome_is_shown_everywhere() {
    let mut report = sample::report_of(&["hot-points_range=100", "insert_range=100"]);
    report.name = "a <name>".to_owned();
    let rules = rules(&["slower 0.5%", "worse 90%"]);
    let judged = judge(&report, &rules, false).unwrap();
    insta::assert_snapshot!(terminal(&judged, 80), @r#"

Rules
  slower 0.5%: BROKEN by 1 of 6; kept by 3; uncertain for 2 (fail with --strict)
    rel, hot-points_range=100
      0.8% less QPS (0.6% to 1%)
  worse 90%: kept by 6 of 6
"#);
    insta::assert_snapshot!(markdown(&judged), @r#"

### Rules

- `slower 0.5%`: **BROKEN by 1 of 6; kept by 3; uncertain for 2 (fail with --strict)**
- `worse 90%`: **kept by 6 of 6**

| rule | candidate | microbenchmark or group | result |
| --- | --- | --- | --- |
| `slower 0.5%` | `rel` | `hot-points_range=100` | 0.8% less QPS (0.6% to 1%) |
"#);
    insta::assert_snapshot!(junit(&judged, &report.name).unwrap(), @r#"
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="a &lt;name&gt;">
  <testsuite name="slower 0.5%" tests="6" failures="1" errors="0" skipped="0" time="300.000">
    <testcase classname="rel" name="hot-points_range=100" time="50.000">
      <failure message="0.8% less QPS (0.6% to 1%)"/>
    </testcase>
    <testcase classname="rel" name="insert_range=100" time="50.000">
      <system-out>QPS: 1.1% less to 1.5% more; the interval contains the limit, 0.7%</system-out>
    </testcase>
    <testcase classname="rel_native" name="hot-points_range=100" time="50.000">
      <system-out>1.7% more QPS (1.5% to 1.8%)</system-out>
    </testcase>
    <testcase classname="rel_native" name="insert_range=100" time="50.000">
      <system-out>1.4% more QPS (0.1% to 2.8%)</system-out>
    </testcase>
    <testcase classname="rel_native_lto" name="hot-points_range=100" time="50.000">
      <system-out>5.5% more QPS (5.2% to 5.8%)</system-out>
    </testcase>
    <testcase classname="rel_native_lto" name="insert_range=100" time="50.000">
      <system-out>QPS: 1.2% less to 1.5% more; the interval contains the limit, 0.7%</system-out>
    </testcase>
  </testsuite>
  <testsuite name="worse 90%" tests="6" failures="0" errors="0" skipped="0" time="300.000">
    <testcase classname="rel" name="hot-points_range=100" time="50.000">
      <system-out>0.8% less QPS (0.6% to 1%)</system-out>
    </testcase>
    <testcase classname="rel" name="insert_range=100" time="50.000">
      <system-out>0.4% more CPU per query (0.2% to 0.7%)</system-out>
    </testcase>
    <testcase classname="rel_native" name="hot-points_range=100" time="50.000">
      <system-out>1.7% more QPS (1.5% to 1.8%)</system-out>
    </testcase>
    <testcase classname="rel_native" name="insert_range=100" time="50.000">
      <system-out>0.5% less CPU per query (0.2% to 0.7%)</system-out>
    </testcase>
    <testcase classname="rel_native_lto" name="hot-points_range=100" time="50.000">
      <system-out>5.5% more QPS (5.2% to 5.8%)</system-out>
    </testcase>
    <testcase classname="rel_native_lto" name="insert_range=100" time="50.000">
      <system-out>1.1% less CPU per query (0.8% to 1.3%)</system-out>
    </testcase>
  </testsuite>
</testsuites>
"#);
    insta::assert_snapshot!(annotations(&judged), @r#"
::error title=dbdyno%3A slower 0.5%25::rel, hot-points_range=100: 0.8%25 less QPS (0.6%25 to 1%25)
"#);
}

#[test]
fn failure_before_any_outcome_is_an_error_of_its_candidate() {
    let error = "candidate <b>: it exited;\n\x1b[1munknown setting\n";
    insta::assert_snapshot!(junit_of_failure(Some("b"), error, "a run").unwrap(), @r#"
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="a run">
  <testsuite name="run" tests="1" failures="0" errors="1">
    <testcase classname="b" name="run">
      <error message="candidate &lt;b&gt;: it exited; ␛[1munknown setting"/>
    </testcase>
  </testsuite>
</testsuites>
"#);
    let of_run = junit_of_failure(None, "the disk is full", "a run").unwrap();
    assert!(of_run.contains("classname=\"a run\""), "{of_run}");
}

#[test]
fn outcome_fits_80_columns() {
    let mut report = sample::sweep();
    let name =
        |name: &str| format!("{name}-with-a-name-that-is-longer-than-most-names-of-candidates");
    report.candidates.iter_mut().for_each(|one| one.name = name(&one.name));
    for row in report.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows) {
        row.candidate = name(&row.candidate);
        row.verdict = Verdict::ClientBound;
    }
    let rule = format!("slower 0.5% in point-1 of {}", report.candidates[1].name);
    let rules = rules(&[&rule, "worse 0.001%"]);
    let text = terminal(&judge(&report, &rules, false).unwrap(), 80);
    assert!(text.contains(" clients\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn sweep_names_numbers_of_clients() {
    let judged_rules = rules(&["slower 90%"]);
    let report = sample::sweep();
    let judged = judge(&report, &judged_rules, false).unwrap();
    assert!(judged[0].comparisons.iter().all(|one| one.clients.is_some()));
}

#[test]
fn failed_member_of_a_group_is_a_failure_and_the_others_are_judged() {
    let mut report = sample::report();
    let writes = report.microbenchmarks.iter_mut().filter(|one| one.group == "writes");
    let failed = writes.last().unwrap();
    failed.rows.iter_mut().for_each(|row| {
        row.verdict = Verdict::Failed;
        row.cpu_verdict = Verdict::Failed;
    });
    let name = failed.name.clone();
    let rules = rules(&["worse 90% in writes", "worse 90% in point-1"]);
    let judged = judge(&report, &rules, false).unwrap();
    assert!(judged[0].has_failed() && !judged[0].is_unknown());
    let of_one = |one: &&Comparison| one.microbenchmark.as_ref() == Some(&name);
    let candidates = report.candidates.iter().filter(|one| one.role == Role::Candidate).count();
    assert_eq!(judged[0].comparisons.iter().filter(of_one).count(), candidates);
    assert!(!judged[1].has_failed());
}

#[test]
fn members_that_a_group_does_not_count_are_listed_with_the_reason() {
    let mut report = sample::report();
    report.candidates.truncate(2);
    let members: Vec<_> =
        report.microbenchmarks.iter_mut().filter(|one| one.group == "point-2").collect();
    let count = members.len();
    for (number, member) in members.into_iter().enumerate() {
        match number {
            0 => {}
            1 => member.rows[0].relative_qps = None,
            _ => member.rows[0].verdict = Verdict::ClientBound,
        }
    }
    let rules = rules(&["slower 90% in point-2"]);
    let judged = &judge(&report, &rules, false).unwrap()[0];
    let outcomes = |reason| judged.count(|one| *one == Outcome::NotJudged(reason));
    assert_eq!(
        (outcomes("client-bound"), outcomes("too few blocks")),
        (count - 2, 1),
        "{judged:?}"
    );
    assert_eq!(judged.summary(), format!("kept by 1 of {count}; not judged for {}", count - 1));
}

#[test]
fn group_without_a_usable_member_is_not_judged_once() {
    let mut report = sample::report();
    report.candidates.truncate(2);
    for member in report.microbenchmarks.iter_mut().filter(|one| one.three_group == "point") {
        member.rows[0].verdict = Verdict::ClientBound;
    }
    let rules = rules(&["slower 90% in point"]);
    let judged = &judge(&report, &rules, false).unwrap()[0];
    let [only] = &judged.comparisons[..] else { panic!("{judged:?}") };
    assert_eq!((only.place(), only.words()), ("point".to_owned(), "client-bound".to_owned()));
    assert!(judged.is_unknown());
}

#[test]
fn part_of_a_group_is_named_as_such() {
    let places = |names: &[&str]| {
        let rules = rules(&["slower 90% in point-1 of rel"]);
        let judged = judge(&sample::report_of(names), &rules, false).unwrap();
        judged[0].comparisons.iter().map(Comparison::place).collect::<Vec<String>>()
    };
    let names = ["point-query_range=100", "hot-points_range=100"];
    assert_eq!(places(&names), ["point-1 (2 of 11)"]);
    assert_eq!(places(&names[..1]), [names[0]]);
}

#[test]
fn microbenchmarks_that_were_not_measured_are_not_judged() {
    let report = sample::interrupted(&["hot-points_range=100"]);
    let rules = rules(&[
        "slower 90%",
        "slower 90% in point-2",
        "slower 90% in writes",
        "slower 90% in insert_range=100 of rel",
    ]);
    let judged = judge(&report, &rules, false).unwrap();
    let summaries: Vec<String> = judged.iter().map(Judged::summary).collect();
    assert_eq!(summaries[0], "kept by 3 of 126; not judged for 123");
    assert!(!judged[0].is_unknown() && judged[1..].iter().all(Judged::is_unknown));
    assert_eq!(summaries[2], "NOT JUDGED for 3 of 3");
    assert_eq!(summaries[3], "NOT JUDGED for 1 of 1");
    assert!(judged.iter().all(|one| !one.has_failed()));
    let last = &judged[3..];
    let text = terminal(last, 80);
    assert!(text.ends_with("\n    rel, not measured: insert_range=100\n"), "{text}");
    assert!(terminal(&judged, 80).lines().all(|line| line.chars().count() <= 80));
    let text = markdown(last);
    assert!(text.ends_with("\n  - `rel` not measured: `insert_range=100`\n"), "{text}");
}

#[test]
fn candidate_without_rows_failed_only_if_the_run_says_so() {
    let names = ["hot-points_range=100"];
    let mut report = sample::failed_candidate(&names);
    let rules = rules(&["slower 90% of rel_native"]);
    assert!(judge(&report, &rules, false).unwrap()[0].has_failed());
    report.failures.clear();
    let judged = judge(&report, &rules, false).unwrap();
    assert!(judged[0].is_unknown() && !judged[0].has_failed());
    report.failures = sample::failed_candidate(&names).failures;
    report.failures[0].candidate.clone_from(&report.baseline);
    assert!(!judge(&report, &rules, false).unwrap()[0].has_failed(), "the others have rows");
}

#[test]
fn strict_fails_where_an_interval_contains_the_limit() {
    let report = sample::report_of(&["hot-points_range=100", "insert_range=100"]);
    let rules = rules(&["slower 0.5% in insert_range=100"]);
    let lenient = &judge(&report, &rules, false).unwrap()[0];
    assert!(!lenient.is_broken() && !lenient.is_uncertain());
    assert_eq!(lenient.summary(), "kept by 1 of 3; uncertain for 2 (fail with --strict)");
    let strict = judge(&report, &rules, true).unwrap();
    assert!(!strict[0].is_broken() && strict[0].is_uncertain());
    assert_eq!(strict[0].summary(), "kept by 1 of 3; UNCERTAIN for 2");
    let contains = "; the interval contains the limit, ";
    let xml = junit(&strict, "run").unwrap();
    assert!(xml.contains("failures=\"2\""), "{xml}");
    assert_eq!(xml.matches(contains).count(), 2, "{xml}");
    assert_eq!(annotations(&strict).matches("::error").count(), 2);
    assert_eq!(annotations(std::slice::from_ref(lenient)), "");
    assert_eq!(markdown(&strict).matches(contains).count(), 2);
    assert!(terminal(&strict, 80).contains("the interval contains the limit"));
}
