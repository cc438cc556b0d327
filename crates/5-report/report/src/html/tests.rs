use std::collections::BTreeSet;

use dbdyno_results::{
    AdjustedSetting, AuditRecord, CommandLineDifference, CommandLinesRecord, NamedCount,
};
use dbdyno_units::Share;

use super::*;
use crate::model::{
    Failure, Lost, NotCounted, OriginRecord, ProfileDifference, StateSnapshots, Warning,
};
use crate::sample;

#[test]
fn text_from_outside_is_escaped() {
    let mut report = sample::report_of(&["scan_range=100"]);
    let evil = || "<script>alert(1)</script>\"'&\x1b]0;x\x07\u{202e}".to_owned();
    report.name = evil();
    report.directory = evil().into();
    report.started = evil();
    report.version = evil();
    report.interval_method = evil();
    report.experiment_text = evil();
    report.host.push((evil(), evil()));
    report.settings.push((evil(), evil()));
    report.warnings.push(Warning { what: evil(), advice: evil() });
    let data_differs_from = Some(evil());
    let (candidate, at, reason) = (evil(), evil(), evil());
    report.lost.push(Lost { candidate, count: 3, at, reason, data_differs_from });
    report.state_snapshots.push(StateSnapshots {
        at: evil(),
        candidates: vec![evil()],
        state: vec![(evil(), vec![Some(1)])],
    });
    report.failures.push(Failure { candidate: evil(), at: evil(), reason: evil() });
    report.not_counted.push(NotCounted {
        what: evil(),
        candidates: vec![evil()],
        reason: evil(),
        advice: Some(evil()),
    });
    let microbenchmark = &mut report.microbenchmarks[0];
    microbenchmark.name = evil();
    microbenchmark.group = evil();
    microbenchmark.three_group = evil();
    microbenchmark.throughput_unit = evil();
    microbenchmark.rows[0].candidate = evil();
    let candidate = &mut report.candidates[1];
    candidate.name = evil();
    candidate.system = evil();
    let build = candidate.build.as_mut().unwrap();
    build.variant = evil();
    build.compiler = evil();
    build.commands = vec![evil()];
    build.fingerprint = evil();
    let tally =
        || vec![NamedCount { name: evil(), count: 2 }, NamedCount { name: evil(), count: 1 }];
    build.audit = Some(AuditRecord {
        objects: 5,
        optimization: tally(),
        march: tally(),
        hardening: tally(),
        ignored: tally(),
        warnings: tally(),
        against_baseline: Some(CommandLinesRecord {
            compared: 5,
            kinds: vec![CommandLineDifference {
                added: vec![evil()],
                removed: vec![evil()],
                files: 1,
                examples: vec![evil()],
            }],
            ..CommandLinesRecord::default()
        }),
        ..AuditRecord::default()
    });
    candidate.origin = Some(OriginRecord::Program {
        path: evil(),
        sha256: evil(),
        file_size: dbdyno_units::Bytes::from_kib(1),
        release: None,
    });
    candidate.config_diff.push(evil());
    candidate.in_force.server_log.push(evil());
    let adjusted = AdjustedSetting { name: evil(), asked: evil(), in_force: evil() };
    candidate.in_force.adjusted.push(adjusted);
    candidate.configuration.push((evil(), evil()));
    for summary in report.groups.iter_mut().chain(&mut report.three_groups) {
        summary.group = evil();
        summary.worst = evil();
        summary.best = evil();
        summary.candidate = evil();
    }
    // A second number of clients makes it a sweep.
    let mut again = report.microbenchmarks[0].clone();
    again.clients = 2;
    report.microbenchmarks.push(again);
    let page = render(&report);
    assert!(page.contains("id=\"sweep\""));
    assert_eq!(page.matches("<script>").count(), 1, "only the page's own script");
    assert!(!page.contains("alert(1)</script"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;"));
    assert!(page.contains("␛]0;x␇\u{fffd}"));
    let is_safe = |c: char| matches!(c, '\n' | '\t') || dbdyno_units::visible_char(c) == c;
    assert!(page.chars().all(is_safe), "a character controls terminals or turns text around");
}

#[test]
fn page_refers_to_no_other_address() {
    let page = render(&sample::report());
    for address in ["http://", "https://", "//cdn", "@import", "url("] {
        assert!(!page.contains(address), "{address}");
    }
}

#[test]
fn every_microbenchmark_has_details_and_links_to_them() {
    let report = sample::report();
    let page = render(&report);
    for index in 0..report.microbenchmarks.len() {
        assert_eq!(page.matches(&format!("id=\"m{index}\"")).count(), 1);
        assert!(page.matches(&format!("href=\"#m{index}\"")).count() >= 4);
    }
}

#[test]
fn ids_are_unique_and_header_cells_have_a_scope() {
    for report in [
        sample::report(),
        sample::servers(),
        sample::sweep(),
        sample::imported(),
        sample::inserts(),
    ] {
        let page = render(&report);
        check_ids_and_scopes(&page);
        // Browsers ignore the second of two equal attributes.
        let mut tags = page.split('<').filter_map(|rest| rest.split('>').next());
        assert_eq!(tags.find(|tag| tag.matches(" class=").count() > 1), None);
    }
}

fn check_ids_and_scopes(page: &str) {
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for rest in page.split("<th").skip(1).filter(|rest| !rest.starts_with("ead")) {
        let attributes = rest.split('>').next().unwrap();
        assert!(attributes.contains(" scope=\""), "<th{attributes}>");
    }
}

#[test]
fn page_contains_experiment_host_and_compiler_flags() {
    let page = render(&sample::report());
    for text in [
        "seed = 20260301",
        "AMD EPYC 7B13",
        "<code>-flto=auto</code>",
        "<span>-DSQLITE_THREADSAFE=2</span>",
        "journal_<wbr>mode",
        "CPU frequency governor: unknown",
        "order statistics",
        "1.1 MiB (+16.3%)",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn empty_failed_and_incomplete_runs_are_drawn() {
    assert!(render(&sample::report_of(&[])).contains("Nothing has been measured yet."));
    let names = ["scan_range=100", "insert_range=100"];
    assert!(render(&sample::incomplete(&names)).contains("too few blocks"));
    assert!(render(&sample::incomplete(&names)).contains("incomplete: can be resumed"));
    let running = Report { running_pid: Some(4711), ..sample::incomplete(&names) };
    assert!(render(&running).contains("running (pid 4711)"));
    let failed = render(&sample::failed_candidate(&names));
    assert!(failed.contains("signal 4") && failed.contains("class=\"num failed\""));
    assert!(render(&sample::no_control(&names)).contains("unknown: no control"));
    let unknown = Report { noise: None, cpu_noise: None, ..sample::incomplete(&names) };
    let incomplete = render(&unknown);
    assert!(!incomplete.contains("no control") && !incomplete.contains("ithout a control"));
    assert!(incomplete.contains("the control has no usable interval"));
}

#[test]
fn imprecise_noise_floor_is_doubted_wherever_it_is_shown() {
    let mut report = sample::report_of(&["scan_range=100"]);
    let doubts = |report: &Report| render(report).matches("but its own intervals reach").count();
    assert_eq!(doubts(&report), 0);
    report.noise.as_mut().unwrap().reach = Share::from_percent(90.0);
    assert_eq!(doubts(&report), 3, "in the header, the legend and the footer");
    report.cpu_noise.as_mut().unwrap().reach = Share::from_percent(90.0);
    assert_eq!(doubts(&report), 5, "in the legend and the footer");
}

#[test]
fn background_cpu_is_shown_from_3_percent() {
    let mut report = sample::servers_of(&["insert_range=100"]);
    let label = "Background CPU µs per query";
    assert!(!render(&report).contains(label), "not measured");
    let own = &mut report.microbenchmarks[0].rows[0].absolute;
    own.cpu_us_per_query = Some(50.0);
    own.background_cpu_us_per_query = Some(1.0);
    assert!(!render(&report).contains(label), "2%");
    report.microbenchmarks[0].rows[0].absolute.background_cpu_us_per_query = Some(20.0);
    let page = render(&report);
    assert!(page.contains(label) && page.contains("20.00 <small>40%</small>"));
}

/// The text of markup, with a space for each tag except line break opportunities.
fn text_of(markup: &str) -> String {
    let markup = markup.replace("<wbr>", "");
    let parts = markup.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    parts.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn key_results_are_findings_in_words() {
    let page = render(&sample::report());
    let (_, rest) = page.split_once("<div class=\"findings\">").unwrap();
    let (findings, _) = rest.split_once("<div class=\"view").unwrap();
    insta::assert_snapshot!(text_of(findings).replace(" rel", "\nrel"), @"
    rel variant
    rel point-1 0.4% less QPS (0.2% to 0.5%); 3 of 11 faster, 6 slower point-2 QPS: 1 of 6 faster, 1 slower (median 0.04% less) range-1 QPS: 3 of 9 faster, 2 slower (median 0.2% less) range-2 0.5% less QPS (0.2% to 0.7%); 2 of 6 faster, 3 slower writes CPU per query: 3 of 10 with more, no difference in the others (median 0.2% more) QPS: no difference found (within 1.7%)
    rel_native variant
    rel_native point-1 2.1% more QPS (1.7% to 2.3%) point-2 1.2% more QPS (1% to 1.5%) range-1 1.3% more QPS (1.1% to 1.6%) range-2 1.1% more QPS (0.9% to 1.3%) writes 0.5% less CPU per query (0.2% to 0.7%); 9 of 10 with less, no difference in the other QPS: no difference found (within 1.7%); 1 of 10 faster, which may be chance
    rel_native_lto variant
    rel_native_lto point-1 5.1% more QPS (4.8% to 5.4%) point-2 5.6% more QPS (5.4% to 5.9%) range-1 4.5% more QPS (4.2% to 4.7%) range-2 4.3% more QPS (4% to 4.5%) writes 1.1% less CPU per query (0.8% to 1.3%) QPS: 2 of 10 faster, no difference in the others (median 0.8% more)
    ");
}

#[test]
fn page_opens_with_the_metric_to_trust() {
    let checked = |report: &Report| {
        let page = render(report);
        let (_, rest) = page.split_once("id=\"t-cpu\"").unwrap();
        rest.starts_with(" checked")
    };
    assert!(!checked(&sample::report()));
    assert!(checked(&sample::report_of(&["insert_range=100"])));
    assert!(checked(&sample::servers()), "one client");
}

#[test]
fn single_microbenchmark_has_no_summaries() {
    let page = render(&sample::report_of(&["scan_range=100"]));
    assert!(!page.contains("id=\"groups\"") && !page.contains("class=\"matrix\""));
    let two = ["scan_range=100", "range-covered-pk_range=100", "insert_range=100"];
    let page = render(&sample::report_of(&two));
    let groups = page.split("id=\"groups\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(groups.contains(">range-<wbr>1<") && !groups.contains("writes"), "{groups}");
}

#[test]
fn builds_have_a_table_and_command_line_differences() {
    let page = render(&sample::audited(&["scan_range=100"]));
    let section = page.split("id=\"builds\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!(section.matches("<tr>").count(), 1 + 4 + 1 + 3 + 6 + 6);
    for text in [
        "O3 <small>O2 in 5 of 912</small> <small>O0 in 2 of 912</small>",
        "ignored findings: optimization-level (5), unoptimized (2)",
        "added -<wbr>O3; removed -<wbr>O2 -<wbr>g",
        "6 files only here, 1 file only in the baseline",
    ] {
        assert!(section.contains(text), "{text} is not in {section}");
    }
    assert!(!render(&sample::report_of(&["scan_range=100"])).contains("id=\"builds\""));
}

#[test]
fn counters_have_a_section_if_any_was_requested() {
    let few = ["scan_range=100"];
    let none = render(&sample::report_of(&few));
    assert!(!none.contains("id=\"counters\"") && !none.contains("Counters per query"));
    let kernel = render(&sample::only_kernel_counters(&few));
    assert!(kernel.contains("hardware counters: not available here: this machine has no"));
    assert!(kernel.contains("minor page faults") && !kernel.contains("instructions per cycle"));
    let counted = render(&sample::counted(&few));
    assert!(counted.contains("<th class=\"num\" scope=\"col\">instructions per cycle</th>"));
    assert!(counted.contains("at least 62.5% of the time"));
    assert!(!counted.contains("not available here"));
}

#[test]
fn sweep_draws_counters_over_clients() {
    let page = render(&sample::counted_sweep());
    for title in ["Instructions per cycle", "Events per million cycles", "ITLB misses"] {
        assert_eq!(page.contains(title), title != "ITLB misses", "{title}");
    }
    assert!(page.contains("relative instructions per cycle"));
    assert!(!render(&sample::sweep()).contains("Instructions per cycle"));
}

#[test]
fn key_results_of_a_sweep_have_a_column_per_number_of_clients() {
    let report = sample::sweep();
    let page = render(&report);
    let table = page.split("<table class=\"matrix\">").nth(1).unwrap();
    let head = table.split("</thead>").next().unwrap();
    assert_eq!(head.matches("scope=\"col\">").count(), 2 + report.clients().len());
    let first_row = table.split("<tbody>").nth(1).unwrap().split("</tr>").next().unwrap();
    assert_eq!(first_row.matches("<td class=").count(), report.clients().len(), "{first_row}");
}

#[test]
fn long_compile_commands_are_collapsed() {
    let mut report = sample::report_of(&["scan_range=100"]);
    assert!(!render(&report).contains("<details class=\"command\">"));
    let build = report.candidates[1].build.as_mut().unwrap();
    build.commands = vec!["-DNAME=VALUE ".repeat(60)];
    assert_eq!(render(&report).matches("<details class=\"command\">").count(), 1);
}

#[test]
fn refused_optimization_has_a_reason_and_no_figures() {
    let mut report = sample::servers_of(&["insert_range=100"]);
    let mut refused = report.optimizations[0].clone();
    refused.refused = Some("too few samples".to_owned());
    report.optimizations.push(refused);
    let page = render(&report);
    assert!(page.contains(": not optimized: too few samples"));
    assert!(page.contains("original code, in 1 of 2 cases; the last is"));
    assert!(page.contains("9,874</td><td class=\"num\">–</td>"));
}

#[test]
fn page_of_a_matrix_has_its_effects() {
    let page = render(&sample::matrix(&["scan_range=100", "insert_range=100"], false));
    for part in ["Effects of settings", "ON", "1.124", "is 1.057 ±0.9% times the ratio"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!render(&sample::report_of(&["scan_range=100"])).contains("id=\"effects\""));
}

#[test]
fn thirty_releases_are_shown_in_order() {
    let report = sample::series(30);
    let page = render(&report);
    assert!(page.contains("<section id=\"series\""));
    // Names lose what they share.
    assert!(page.contains("<span>ma10.2.0</span>") && page.contains("<span>ma10.9.1</span>"));
    assert_eq!(page.matches("<td class=\"first\">").count(), report.microbenchmarks.len());
    let cells = page.matches("<td class=\"up").count() + page.matches("<td class=\"down").count();
    let even = page.matches("<td class=\"even").count();
    assert_eq!(cells + even, 29 * report.microbenchmarks.len());
    let groups: BTreeSet<&String> = report.microbenchmarks.iter().map(|one| &one.group).collect();
    let (_, table) = page.split_once("<table class=\"heat\"").unwrap();
    let (table, _) = table.split_once("</table>").unwrap();
    assert_eq!(table.matches("scope=\"rowgroup\"").count(), groups.len());
    assert!(page.contains(" more changes"));
    // Tables with thirty columns are not the first thing to read.
    assert!(page.contains("Every candidate relative to the baseline"));
    let few = render(&sample::series(5));
    assert!(few.contains("id=\"series\"") && !few.contains("Every candidate relative to"));
    assert!(!render(&sample::report()).contains("id=\"series\""));
}

#[test]
fn profiles_have_an_overview_tables_and_flame_graphs() {
    let mut report = sample::profiled(&["scan_range=100", "insert_range=100"]);
    let page = render(&report);
    check_ids_and_scopes(&page);
    assert_eq!(page.matches("class=\"graph\"").count(), 2 * 2);
    for part in ["id=\"why\"", "myrocks needs ", "Functions of myrocks", "Flame graphs of myrocks"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("href=\"#m1\"") && page.contains("class=\"frame more4\""));
    assert!(!page.contains(" style=\""), "the policy forbids it");
    let evil = "<script>alert(1)</script>\"\u{202e}";
    for row in report.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows) {
        let profile = row.profile.as_mut().unwrap();
        let ProfileDifference { layers, system_calls, functions, with_callees, .. } = profile;
        let rows = [layers, system_calls, functions, with_callees];
        rows.into_iter().flatten().for_each(|one| one.name.push_str(evil));
        let stacks = profile.stacks.iter_mut().flat_map(|one| &mut one.functions);
        stacks.for_each(|name| name.push_str(evil));
    }
    let page = render(&report);
    assert_eq!(page.matches("<script>").count(), 1, "only the page's own script");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;\u{fffd}"));
    assert!(!render(&sample::servers()).contains("id=\"why\""));
}
