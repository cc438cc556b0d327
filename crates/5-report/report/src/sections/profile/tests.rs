use dbdyno_text::width;

use super::*;
use crate::sample;
use crate::terminal::{TerminalOptions, why};

fn explain(report: &Report, candidate: Option<&str>, details: bool) -> String {
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details };
    let text = why(report, candidate, None, &options).unwrap();
    let too_long = text.lines().find(|line| width(line) > 80);
    assert_eq!(too_long, None, "{text}");
    text
}

#[test]
fn why_names_the_difference_its_layers_and_functions() {
    let report = sample::profiled(&["scan_range=100"]);
    let text = explain(&report, None, false);
    assert!(text.starts_with("scan_range=100\nmyrocks needs "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("sum ") && line.ends_with("100%")), "{text}");
    for what in ["new", "gone", "other functions"] {
        assert!(text.contains(what), "{what} is not in {text}");
    }
    assert!(!text.contains("MYSQLparse"), "it does not certainly differ");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "more CPU time per query than innodb (",
        "; 95%: ",
        "functions with what they call",
        "not counted (--instructions), so that more work cannot be told from slower work",
        "of the engine: Rocksdb_memtable_hit 0.78 per query, only myrocks has it",
        "100% of the differences, without their signs, are in functions with a name or a source file",
        "control no certain difference among ",
        ": the noise floor.",
        "smallest certain difference with these samples: ",
        "while sampling was 1.024 (1.011 to 1.037) and 1.019 times",
        "4.02 s CPU time of myrocks and 2.29 s of innodb; 4 s of each were requested. innodb used less",
    ] {
        assert!(words.contains(sentence), "{sentence} is not in {words}");
    }
    assert!(explain(&report, None, true).contains("MYSQLparse"));
}

#[test]
fn why_shows_the_control_only_if_it_is_named() {
    let report = sample::profiled(&["scan_range=100"]);
    assert!(!explain(&report, None, false).contains("control needs"));
    let text = explain(&report, Some("control"), false);
    let none = "no certain difference in CPU time per query between control and innodb";
    assert!(text.replace('\n', " ").contains(none), "{text}");
    assert!(text.contains("within noise") && !text.contains("of the difference\n"), "{text}");
}

#[test]
fn why_gives_the_reason_if_the_interval_suggests_another_verdict() {
    let mut report = sample::profiled(&["scan_range=100"]);
    report.cpu_noise.as_mut().unwrap().typical = Share::from_percent(6.0);
    let mut answer = |verdict: Verdict, us: [f64; 2], ends: [f64; 2], ratio: [f64; 3]| {
        let row = &mut report.microbenchmarks[0].rows[0];
        let [low, median, high] = ratio.map(dbdyno_units::Ratio::new);
        (row.cpu_verdict, row.relative_cpu) = (verdict, Some(sample::interval(median, low, high)));
        let profile = row.profile.as_mut().unwrap();
        (profile.total_us, profile.interval_us) = (us, Some(ends));
        let text = explain(&report, None, false);
        let (title, _) = text.split_once("\n\n").unwrap();
        title.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (noise, ends) = (Verdict::WithinNoise, [-2.67, -1.87]);
    let text = answer(noise, [52.4, 54.7], ends, [0.952, 0.96, 0.966]);
    let control = "95%: −2.67 to −1.87; the control typically differs by 3.28 µs)";
    assert!(text.ends_with(control), "{text}");
    let ratio = "the verdict is by the median ratio, with CPU time between slices: ";
    let text = answer(noise, [52.4, 54.7], ends, [0.984, 0.994, 1.012]);
    let of_ratio = format!("; {ratio}−0.6%, 95%: −1.6% to +1.2%)");
    assert!(text.ends_with(&of_ratio), "{text}");
    let text = answer(noise, [50.4, 54.7], [-4.5, -4.1], [0.984, 0.986, 0.988]);
    assert!(text.ends_with("−1.2%; the control typically differs by 3.28 µs)"), "{text}");
    let text = answer(Verdict::Better, [52.4, 54.4], [-4.67, 1.25], [0.904, 0.94, 0.992]);
    let of_ratio = format!("(52.4 against 54.4 µs; 95%: −4.67 to +1.25; {ratio}");
    assert!(text.contains("no certain difference ") && text.contains(&of_ratio), "{text}");
    assert!(text.ends_with("−9.6% to −0.8%)"), "{text}");
    let text = answer(Verdict::Better, [52.4, 54.4], [-4.67, -0.1], [0.904, 0.94, 0.992]);
    assert!(text.contains("µs less CPU time per query than innodb (52.4 against 54.4;"), "{text}");
    let text = answer(noise, [54.4, 54.7], [-0.6, 0.1], [0.99, 0.995, 1.002]);
    assert!(text.ends_with("µs; 95%: −0.600 to +0.100)"), "{text}");
    // The sum of the rows has no other interval.
    assert!(crate::html::render(&report).contains("−0.600, +0.100"));
    let text = explain(&report, None, false);
    let sum = text.lines().find(|line| line.starts_with("sum ")).unwrap();
    assert!(sum.contains("−0.300") && !sum.contains('±'), "{sum}");
}

#[test]
fn why_of_a_difference_that_the_control_has_too_is_not_certain() {
    let mut report = sample::profiled(&["scan_range=100"]);
    for row in &mut report.microbenchmarks[0].rows {
        let [low, median, high] = match row.candidate.as_str() {
            "control" => [0.93, 0.97, 1.01],
            _ => [0.92, 0.95, 0.98],
        }
        .map(dbdyno_units::Ratio::new);
        row.relative_cpu = Some(sample::interval(median, low, high));
        row.cpu_verdict = Verdict::WithinNoise;
    }
    let row = &mut report.microbenchmarks[0].rows[0];
    row.cpu_verdict = Verdict::Better;
    let profile = row.profile.as_mut().unwrap();
    (profile.total_us, profile.interval_us) = ([57.0, 60.0], Some([-4.0, -2.0]));
    let check = |report: &Report, control: &str| {
        let text = explain(report, None, false);
        let (title, _) = text.split_once("\n\n").unwrap();
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(title.contains("no certain difference in CPU time per query between "), "{title}");
        assert!(
            title.ends_with(&format!("95%: −4.00 to −2.00; the control {control})")),
            "{title}"
        );
    };
    check(&report, "differs by 1.80 µs");
    // Nor is one within the interval of a control that is too noisy.
    let mut rows = report.microbenchmarks[0].rows.iter_mut();
    let control = rows.find(|row| row.role == Role::Control).unwrap();
    let [low, median, high] = [0.7, 1.02, 1.4].map(dbdyno_units::Ratio::new);
    control.relative_cpu = Some(sample::interval(median, low, high));
    check(&report, "is too noisy to tell (30% less to 40% more)");
}

#[test]
fn function_of_one_side_is_neither_new_nor_gone_if_it_may_have_no_name_in_the_other() {
    let mut report = sample::profiled(&["scan_range=100"]);
    let functions = |text: &str| {
        let (_, functions) = text.split_once("without what they call").unwrap();
        let memcpy = functions.find("memcpy").unwrap();
        (functions.find("rocksdb::DBIter::Next").unwrap() < memcpy, text.contains(", gone"))
    };
    assert_eq!(functions(&explain(&report, None, false)), (true, true));
    let profile = report.microbenchmarks[0].rows[0].profile.as_mut().unwrap();
    profile.unnamed = [0.4, 0.04].map(Share::from_fraction);
    let text = explain(&report, None, false);
    assert_eq!(functions(&text), (false, false));
    assert!(text.contains("%, one side only") && !text.contains(", new"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let about = "without what they call; 40% of myrocks’s time is in functions without a name: what \
                 is only named in innodb may be there ";
    assert!(words.contains(about), "{text}");
}

#[test]
fn moved_functions_come_after_the_others_and_are_explained() {
    let mut report = sample::profiled(&["scan_range=100"]);
    let name = "rocksdb::DBIter::Next";
    let rows = &mut report.microbenchmarks[0].rows[0].profile.as_mut().unwrap().with_callees;
    rows.iter_mut().for_each(|one| one.moved = one.name == name);
    let about = " Moved: below the nearest caller that both have, the same functions, ";
    assert!(crate::html::render(&report).contains(about));
    let text = explain(&report, None, false);
    let (_, table) = text.split_once("functions with what they call").unwrap();
    let line = |name: &str| table.lines().position(|line| line.starts_with(name)).unwrap();
    assert!(line(name) > line("rocksdb::MergingIterator"), "{table}");
    assert!(table.lines().nth(line(name)).unwrap().ends_with("%, moved"), "{table}");
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(about), "{text}");
}

#[test]
fn why_of_many_microbenchmarks_is_short() {
    let names = ["scan_range=100", "insert_range=100", "hot-points_range=100", "delete_range=100"];
    let report = sample::profiled(&names);
    let text = explain(&report, None, false);
    assert_eq!(text.matches("  functions  ").count(), names.len(), "{text}");
    assert!(!text.contains("\nsum ") && text.lines().count() < 80, "{text}");
    assert_eq!(explain(&report, None, true).matches("\nsum ").count(), names.len());
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    assert!(why(&sample::servers_of(&names), None, None, &options).is_none());
}

#[test]
fn executed_instructions_tell_more_work_from_slower_work() {
    let mut report = sample::profiled(&["scan_range=100"]);
    let executed = CounterFigure::InstructionsPerQuery;
    let mut notes = |ratio: f64, half: f64| {
        let [median, low, high] = [ratio, ratio - half, ratio + half].map(dbdyno_units::Ratio::new);
        let estimate = sample::interval(median, low, high);
        report.microbenchmarks[0].rows[0].relative_counters.insert(executed, estimate);
        explain(&report, None, false).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(notes(1.6, 0.01).contains("60% more per query (±1.0%), and "));
    let fewer = notes(0.9, 0.01);
    assert!(fewer.contains("10% fewer per query (±") && fewer.contains("%), but "), "{fewer}");
    assert!(notes(1.0, 0.01).contains("as many per query (±1.0%): the same work, but "));
    assert!(notes(1.0, 0.9).contains("too uncertain"));
}
