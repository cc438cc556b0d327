//! Rules of `--fail-if`.

use std::fs;
use std::path::Path;

use crate::common::{Experiment, Finished, Inserts, TestDir, call, call_with};
use crate::servers::count;

/// A candidate that needs eleven times the baseline's CPU time, more than noise on a machine with many runnable
/// threads hides, and an equal one. Rules about CPU time do not depend on when the threads run.
const CANDIDATES: [(&str, &str); 3] =
    [("base", ""), ("slow", "injected_delay = \"1000%\""), ("equal", "")];

#[test]
fn broken_rule_has_an_exit_code_of_its_own() {
    let test = TestDir::new();
    let experiment = Experiment {
        microbenchmarks: "\"range-covered-pk.pre_range=100\"",
        budget: "200ms",
        candidates: &CANDIDATES,
        ..Experiment::default()
    };
    let finished = test.run(&experiment, &["--fail-if", "more-cpu 20%"]);
    finished
        .assert_code(3)
        .assert_prints("more-cpu 20%: BROKEN by 1 of 2")
        .assert_prints("slow, range");
    let out = test.out();
    let file = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert!(file("junit.xml").contains("failures=\"1\""), "{}", file("junit.xml"));
    assert!(
        file("report.md").contains("`more-cpu 20%`: **BROKEN by 1 of 2"),
        "{}",
        file("report.md")
    );

    // Another rule for the same run.
    let rules =
        ["--fail-if", "more-cpu 99% of equal", "--fail-if", "more-cpu 99% in range-1 of equal"];
    let judge = |more: &[&str]| {
        let mut args = vec!["report", out.to_str().unwrap()];
        args.extend(more);
        call(args)
    };
    judge(&rules).assert_code(0).assert_prints("more-cpu 99% of equal: kept by 1 of 1");
    let strict = [&rules[..], &["--strict"]].concat();
    judge(&strict).assert_code(0).assert_prints("more-cpu 99% of equal: kept by 1 of 1");
    judge(&["--strict"]).assert_code(2).assert_prints("--fail-if <RULE>");
    // An invalid rule is reported before the report, and alone.
    let invalid = judge(&["--fail-if", "slower 9% of slwo"]);
    invalid.assert_code(2).assert_prints("did you mean `slow`?");
    assert_eq!(invalid.out, "");
    // A run is not resumed, or extended, with a rule that cannot be judged.
    let slices = count(&out, "SELECT COUNT(*) FROM slice");
    let more = ["run", "--resume", out.to_str().unwrap(), "--more", "1s"];
    let finished = call(more.into_iter().chain(["--fail-if", "slower 9% of slwo"]));
    finished.assert_code(2).assert_prints("did you mean `slow`?");
    let finished = call(more.into_iter().chain(["--script", "oltp_read_only"]));
    finished.assert_code(2).assert_prints("cannot be used with");
    assert_eq!(count(&out, "SELECT COUNT(*) FROM slice"), slices);
    let markdown = judge(&["--markdown", "--fail-if", "more-cpu 20%"]);
    markdown.assert_code(3).assert_prints("BROKEN");

    let summary = test.path().join("summary.md");
    fs::write(&summary, "before\n").unwrap();
    let environment =
        [("GITHUB_ACTIONS", "true"), ("GITHUB_STEP_SUMMARY", summary.to_str().unwrap())];
    let args = ["report", out.to_str().unwrap(), "--fail-if", "more-cpu 20%"];
    let finished = call_with(args, &environment);
    finished.assert_code(3).assert_prints("::error title=dbdyno%3A more-cpu 20%25::slow, range");
    let text = fs::read_to_string(&summary).unwrap();
    assert!(text.starts_with("before\n") && text.contains("### Rules"), "{text}");
    // Standard output is only the Markdown.
    let finished = call_with(args.iter().chain(&["--markdown"]), &environment);
    finished.assert_code(3);
    assert!(finished.err.contains("::error title=dbdyno%3A more-cpu 20%25::"), "{}", finished.err);
    let twice = fs::read_to_string(&summary).unwrap();
    assert_eq!(twice, format!("{text}{}", finished.out));
}

#[test]
fn rule_for_an_insert_benchmark_is_refused_without_a_report() {
    let test = TestDir::new();
    let out = test.out();
    let section = "rows = { i0 = 1000, i1 = 0 }\nrates = []\ncopies = false";
    let candidates = [("one", "system = \"sqlite\"\nvariant = \"o0\"")];
    Inserts { section, candidates: &candidates }.run(&test, &out, &[]).assert_code(0);
    for more in [&[][..], &["--markdown"]] {
        let args = ["report", out.to_str().unwrap(), "--fail-if", "slower 2%"];
        let finished = call(args.iter().chain(more));
        finished.assert_code(2).assert_prints("an insert benchmark has none");
        assert_eq!(finished.out, "");
    }
}

#[test]
fn invalid_rules_are_refused_before_measuring() {
    let test = TestDir::new();
    let refused = |rule: &str| -> Finished {
        let finished = test.run(&Experiment::default(), &["--fail-if", rule]);
        assert!(!Path::new(&test.out()).exists(), "{rule}");
        finished
    };
    refused("slowr 2%").assert_code(2).assert_prints("did you mean `slower`?");
    refused("slower 2% of othr").assert_code(2).assert_prints("did you mean `other`?");
    refused("slower 2% in writes").assert_code(2).assert_prints("no group or microbenchmark");
}
