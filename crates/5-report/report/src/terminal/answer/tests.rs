use dbdyno_text::width;

use super::*;
use crate::sample;

#[test]
fn answer_is_one_screen_with_what_a_reader_must_know() {
    let mut report = sample::report_of(&["scan_range=100", "insert_range=100"]);
    report.candidates[1].config_diff =
        (1..6).map(|number| format!("setting_{number}: 1; the baseline: 2")).collect();
    let options = |color| TerminalOptions { width: 80, color, three_groups: false, details: false };
    let text = answer(&report, &options(false)).unwrap();
    insta::assert_snapshot!(text, @"
sqlite-variants  complete  dbdyno 0.1.0

rel is 0.8% faster than rel_withdbg on scan_range=100 (95%: 0.6% to 1%)
no difference found between rel and rel_withdbg on insert_range=100 (95%:
  within 1.5%); 0.4% more CPU per query (0.2% to 0.7%)
rel_native is 1.6% faster than rel_withdbg on scan_range=100 (95%: 1.4% to
  1.9%)
rel_native is 1.4% faster than rel_withdbg on insert_range=100 (95%: 0.1% to
  2.8%); 0.5% less CPU per query (0.2% to 0.7%)
rel_native_lto is 3.5% faster than rel_withdbg on scan_range=100 (95%: 3.1% to
  3.7%)
no difference found between rel_native_lto and rel_withdbg on insert_range=100
  (95%: within 1.5%); 1.1% less CPU per query (0.8% to 1.3%)

warning  CPU frequency governor: unknown (virtual machine). Frequency changes
         cannot be ruled out; more: --details
differs  5 in all: --details
flags    rel_withdbg, rel, rel_native, rel_native_lto: not audited
noise    the control differs from 1 by 0.39% typically and 0.7% at most
         (insert_range=100); more: --details
data     1 table × 1,000,000 rows, 1 client; more: --details
all      dbdyno report results/first --details
charts   results/first/report.html
");
    // However much there is to say.
    let mut long = sample::sweep();
    for report in [&mut report, &mut long] {
        let warning = report.warnings.first().cloned();
        report.warnings = warning.into_iter().cycle().take(9).collect();
        let rows = report.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows);
        let names = report.candidates.iter_mut().map(|one| &mut one.name);
        let names = names.chain(rows.map(|row| &mut row.candidate));
        names.for_each(|name| name.push_str("-of-a-kind-with-a-long-name"));
        let text = answer(report, &options(false)).unwrap();
        assert!(text.lines().count() <= 23, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(" more result"), "{text}");
        assert!(answer(report, &options(true)).unwrap().contains('\x1b'));
    }
}

#[test]
fn answer_with_profiles_names_the_command_that_explains_it() {
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    let of = |report: &Report| answer(report, &options).unwrap();
    let names = ["scan_range=100"];
    let text = of(&sample::profiled(&names));
    assert!(text.ends_with("/report.html\nwhy      dbdyno why results/first\n"), "{text}");
    assert!(!of(&sample::servers_of(&names)).contains("dbdyno why"));
}

#[test]
fn answer_of_a_baseline_alone_has_its_figures() {
    let mut report = sample::single(&["scan_range=100", "insert_range=100"]);
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    let text = answer(&report, &options).unwrap();
    assert!(text.lines().count() <= 20, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for figures in [
        "rel_withdbg on scan_range=100: 5.83 million rows/s (95%: 5.80 to 5.86), ",
        "rel_withdbg on insert_range=100: 118,900 QPS (95%: 118,187 to ",
        ", 5.21 µs CPU time per query ",
    ] {
        assert!(words.contains(figures), "{text}");
    }
    report.microbenchmarks[0].baseline_failed = true;
    report.microbenchmarks[1].baseline.client_busy = Some(dbdyno_units::Share::from_percent(95.0));
    let text = answer(&report, &options).unwrap();
    assert!(text.contains("rel_withdbg on scan_range=100: failed\n"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" per query; limited by the load generator "), "{text}");
}

#[test]
fn text_of_an_answer_ends_with_a_sentence_or_a_clause() {
    let text = "one two (three; four). Five six; seven eight nine";
    let fit = |columns, most| whole_sentences(text, columns, most);
    assert_eq!(fit(80, 1), (vec![text.to_owned()], true));
    let first = "one two (three; four); more: --details";
    assert_eq!(fit(40, 1), (vec![first.to_owned()], false));
    let whole = ["one two (three; four). Five six; seven", "eight nine"].map(str::to_owned);
    assert_eq!(fit(38, 2), (whole.to_vec(), true));
    let longer = format!("{text} ten, eleven twelve thirteen fourteen");
    let part = ["one two (three; four). Five six; more:", "--details"].map(str::to_owned);
    assert_eq!(whole_sentences(&longer, 38, 2), (part.to_vec(), false));
    let endless = "word ".repeat(100);
    let (lines, is_whole) = whole_sentences(endless.trim(), 40, 2);
    assert!(lines.len() == 2 && lines[1].ends_with("… --details") && !is_whole, "{lines:?}");
    assert!(lines.iter().all(|line| width(line) <= 40), "{lines:?}");
}

#[test]
fn answer_of_an_insert_benchmark_has_its_steps_in_words() {
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    let mut report = sample::inserts();
    report.candidates.iter_mut().for_each(|one| one.build = None);
    let text = answer(&report, &options).unwrap();
    insta::assert_snapshot!(text, @"
insert-benchmark  complete  dbdyno 0.1.0

innodb: l.i1 20.2k rows/s; q1000 8.91k queries/s
myrocks-with-a-long-name against innodb: l.i1 61.3% more rows/s, 37.9% less
  CPU per row; l.x time: no difference found; q1000 the rate of inserts was not
  sustained, 61.9% more CPU per query
postgresql against innodb: l.i1 24.8% more rows/s, 19.9% less CPU per row; l.x
  time: no difference found; q1000 16.8% more queries/s, 14.4% less CPU per
  query

warning  CPU frequency governor: unknown (virtual machine). Frequency changes
         cannot be ruled out; compare the control's spread before you trust
         differences under 1%.
rates    not sustained: myrocks-with-a-long-name in q1000
stalls   myrocks-with-a-long-name in l.i1 and q1000 (longest insert or query:
         innodb 29 ms in q1000, myrocks-with-a-long-name 1.9 s in q1000,
         postgresql 29 ms in q1000)
data     4 clients on 4 tables. Candidates ran one after another, each alone
         through all steps, 2 times; values are medians; more: --details
all      dbdyno report results/first --details
charts   results/first/report.html
");
    // With room for intervals and stalls.
    for step in &mut report.insert.as_mut().unwrap().steps {
        step.candidates.truncate(2);
    }
    let text = answer(&report, &options).unwrap();
    insta::assert_snapshot!(text.split("\n\n").nth(1).unwrap(), @"
innodb: l.i1 20.2k rows/s; q1000 8.91k queries/s
myrocks-with-a-long-name in l.i1 against innodb: 61.3% more rows/s (59.9% to
  62.8%); 37.9% less CPU per row (36.2% to 39.6%); inserts stalled in 12 of 600
  seconds, the longest insert took 1.9 s
myrocks-with-a-long-name in l.x against innodb: time: no difference found
  (within 0%)
myrocks-with-a-long-name in q1000 against innodb: the rate of inserts was not
  sustained; 61.9% more CPU per query (60.3% to 63.4%); inserts stalled in 12 of
  600 seconds, the longest insert took 1.9 s; queries stalled in 12 of 600
  seconds, the longest query took 1.9 s
");
    // However many steps there are.
    let insert = report.insert.as_mut().unwrap();
    insert.steps = insert.steps.iter().cycle().take(40).cloned().collect();
    let text = answer(&report, &options).unwrap();
    assert!(text.lines().count() <= 23, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    report.insert.as_mut().unwrap().steps.clear();
    assert_eq!(answer(&report, &options), None);
}

#[test]
fn answer_names_a_setting_beside_a_default_of_dbdyno_first() {
    let mut report = sample::servers();
    let pool = |size| sample::pairs(&[("innodb_buffer_pool_size", size)]);
    report.candidates[0].in_force.notable_defaults = pool("4G");
    report.candidates[1].configuration = pool("1G");
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: false };
    let text = answer(&report, &options).unwrap();
    let line = "default  myrocks sets innodb_buffer_pool_size = 1G; the baseline innodb has";
    assert!(text.contains(line), "{text}");
}
