//! The report as GitHub-flavoured Markdown, to paste into a pull request, an issue or a wiki: what was
//! compared, key results, groups, effects of settings, numbers of clients, microbenchmarks.

use dbdyno_text::{Cell, Column, Row, Table, escape, markdown};

use crate::metric::Grouping;
use crate::model::{Report, Role, RunStatus};
use crate::sections::engine_counters::engine_counters;
use crate::sections::key_results::{key_results, summaries};
use crate::sections::overview::{notes, times};
use crate::sections::plans::plans;
use crate::sections::profile;
use crate::sections::series::effects;
use crate::sections::statements::statements;
use crate::sections::sweep::scaling;
use crate::sections::waits::waits;
use crate::sections::{Output, Section, groups, inserts};
use crate::words::{self, NOTHING_MEASURED, identity, summary};

/// Differences from the baseline per candidate.
const MAX_DIFFERENCES: usize = 6;

/// Render the report, ending with a line feed.
pub fn render(report: &Report) -> String {
    let output = Output::Markdown;
    let mut sections = vec![candidates(report)];
    if let Some(insert) = &report.insert {
        sections.extend([inserts::key_results(insert, output), inserts::markdown(insert)]);
    } else if !report.microbenchmarks.is_empty() {
        sections.push(key_results(report, Grouping::Five, output));
        sections.push(summaries(report, report.leading_metric(), Grouping::Five, output));
        sections.push(effects(report, output));
        sections.push(scaling(report, Grouping::Five, output));
        sections.push(groups::microbenchmarks(report));
        sections.push(statements(report, output));
        sections.push(engine_counters(report, output));
        sections.push(plans(report));
        sections.push(profile::summary(report, output));
        sections.push(waits(report, None));
    }
    sections.push(notes(report, output));
    format!("{}{}", introduction(report), markdown(&sections))
}

fn introduction(report: &Report) -> String {
    let status = match (report.status, report.running_pid) {
        (_, Some(pid)) => format!("**Running** (pid {pid})"),
        (RunStatus::Complete, None) => "Complete".to_owned(),
        (RunStatus::Incomplete, None) => "**Incomplete**".to_owned(),
    };
    let workload = words::workload(report).map_or_else(String::new, |text| format!(" {text}."));
    let times = times(report, " of ").map(|times| format!(", measured {times}"));
    let times = times.unwrap_or_default();
    format!(
        "## {}\n\n{status}; started {}{times} with dbdyno {}.{}\n",
        escape(&report.name),
        escape(&report.started),
        escape(&report.version),
        escape(&workload),
    )
}

fn candidates(report: &Report) -> Section {
    let mut table = Table::new([Column::name("candidate"), Column::text("is")]);
    for candidate in &report.candidates {
        let what = match (candidate.role, report.candidates.first()) {
            (Role::Baseline, _) | (_, None) => format!("baseline: {}", identity(candidate)),
            (_, Some(baseline)) => summary(candidate, baseline, MAX_DIFFERENCES),
        };
        table.push(Row::new([Cell::text(&candidate.name), Cell::text(what)]));
    }
    let mut section = Section::new("candidates", "");
    section.push(table);
    if report.insert.is_none() && report.microbenchmarks.is_empty() {
        section.note(NOTHING_MEASURED);
    }
    section
}

#[cfg(test)]
pub(crate) mod tests {
    use dbdyno_units::Share;
    use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

    use super::*;
    use crate::{html, sample};

    /// The tables of a text as a parser reads them: rows of cells with their text.
    pub(crate) fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
        let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
        let mut inside = false;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
            match event {
                Event::Start(Tag::Table(_)) => tables.push(Vec::new()),
                Event::Start(Tag::TableHead | Tag::TableRow) => {
                    tables.last_mut().unwrap().push(Vec::new());
                }
                Event::Start(Tag::TableCell) => {
                    tables.last_mut().unwrap().last_mut().unwrap().push(String::new());
                    inside = true;
                }
                Event::End(TagEnd::TableCell) => inside = false,
                Event::Text(text) | Event::Code(text) if inside => {
                    let cell = tables.last_mut().unwrap().last_mut().unwrap().last_mut().unwrap();
                    cell.push_str(&text);
                }
                Event::Html(_) | Event::InlineHtml(_) | Event::Start(Tag::Link { .. }) => {
                    panic!("{event:?} in {text}")
                }
                _ => {}
            }
        }
        tables
    }

    #[test]
    fn parser_reads_candidates_key_results_groups_and_microbenchmarks_as_tables() {
        let report = sample::report();
        let tables = tables(&render(&report));
        let heads: Vec<(&str, usize)> =
            tables.iter().map(|table| (table[0][0].as_str(), table.len() - 1)).collect();
        let microbenchmarks = "microbenchmark";
        assert_eq!(
            heads,
            [
                ("candidate", 5),
                ("candidate", 3 * 5),
                ("group", 5 * 4),
                (microbenchmarks, 42),
                (microbenchmarks, 10)
            ]
        );
        for table in &tables {
            assert!(table.iter().all(|row| row.len() == table[0].len()), "{table:?}");
        }
    }

    #[test]
    fn text_of_others_is_shown_as_it_is() {
        let odd = r"a|b\|c `x` *y* _z_ <b> [l](u) & ~~s~~ \";
        let mut report = sample::report_of(&["scan_range=100"]);
        report.name = odd.to_owned();
        report.candidates[1].name = odd.to_owned();
        report.candidates[1].configuration.push((odd.to_owned(), odd.to_owned()));
        report.microbenchmarks[0].rows[0].candidate = odd.to_owned();
        report.microbenchmarks[0].name = odd.to_owned();
        report.microbenchmarks[0].group = odd.to_owned();
        let tables = tables(&render(&report));
        assert_eq!(tables[0][2][0], odd);
        assert!(tables[0][2][1].contains(&format!("{odd} = ")), "{}", tables[0][2][1]);
        assert_eq!(tables[1][1][..2], [odd, odd]);
        let last = tables.last().unwrap();
        assert_eq!((last[0][3].as_str(), last[1][1].as_str()), (odd, odd));
        assert!(last[1][0].starts_with(odd));
    }

    #[test]
    fn markdown_of_one_microbenchmark_is_short() {
        let mut report = sample::no_control(&["insert_range=100"]);
        report.candidates.truncate(2);
        report.microbenchmarks[0].rows.truncate(1);
        sample::refresh(&mut report);
        insta::assert_snapshot!(render(&report), @"
    ## sqlite-variants

    Complete; started 2026-03-01T09:30:00Z, measured 35 min 30 s of 42 min 24 s with dbdyno 0.1.0. 1 table × 1,000,000 rows, 1 client.

    | candidate | is |
    | --- | --- |
    | `rel_withdbg` | baseline: SQLite 3.50.0, variant rel_withdbg, gcc 12.2.0 |
    | `rel` | variant rel |

    ### Key results: compared with rel_withdbg

    CPU per query comes first where throughput includes waiting that is not the candidate's work: for storage (writes), for wake-ups (one client of a server), for the load generator (client-bound).

    | candidate | group | result | also | more time |
    | --- | --- | --- | --- | --- |
    | `rel` | insert_range=100 | **0.4% more CPU per query (0.2% to 0.7%)** | QPS: no difference found (within 1.5%) |  |

    ### Microbenchmarks

    #### relative QPS: above 1 is better

    | microbenchmark | group | baseline QPS | rel |
    | --- | --- | ---: | ---: |
    | `insert_range=100` | writes | 118,900 | 1.002 `~` (0.989, 1.015) |

    #### relative CPU per query: below 1 is better

    | microbenchmark | group | baseline CPU µs | rel |
    | --- | --- | ---: | ---: |
    | `insert_range=100` | writes | 5.21 | 1.004 `-` (1.002, 1.007) |

    `+` better than the baseline, `-` worse, `~` within noise, `?` too noisy to tell; the 95% interval in parentheses.

    - noise floor: unknown: without a control, differences cannot be told from noise
    - warning: CPU frequency governor: unknown (virtual machine). Frequency changes cannot be ruled out; compare the control's spread before you trust differences under 1%.
    ");
    }

    #[test]
    fn sweep_imported_failed_and_insert_runs_are_tables_too() {
        for report in [
            sample::sweep(),
            sample::matrix(&["scan_range=100", "insert_range=100"], false),
            sample::imported(),
            sample::failed_candidate(&["scan_range=100"]),
            sample::incomplete(&["scan_range=100"]),
            sample::inserts(),
            sample::report_of(&[]),
        ] {
            for table in tables(&render(&report)) {
                assert!(table.iter().all(|row| row.len() == table[0].len()), "{table:?}");
            }
        }
    }

    #[test]
    fn largest_certain_differences_of_profiles_are_a_table() {
        let tables = tables(&render(&sample::profiled(&["scan_range=100", "insert_range=100"])));
        let has_functions =
            |table: &&Vec<Vec<String>>| table[0].len() == 5 && table[0][4] == "functions, µs";
        let table = tables.iter().find(has_functions).unwrap();
        assert_eq!(table.len(), 3);
        assert_eq!((table[1][0].as_str(), table[1][1].as_str()), ("scan_range=100", "myrocks"));
        assert!(table[1][2].starts_with('+') && table[1][2].contains("(+"), "{table:?}");
        assert!(table[1][3].contains("storage engine: read path +"), "{table:?}");
        assert!(table[1][4].contains("rocksdb::DBIter::Next +"), "{table:?}");
        assert_eq!(table[1][4].matches('%').count(), 6, "five, then one that moved: {table:?}");
    }

    #[test]
    fn table_of_profiles_says_where_functions_of_one_side_may_be() {
        let mut report = sample::profiled(&["scan_range=100", "insert_range=100"]);
        let about = "one side only: up to 40% of myrocks’s time is in functions without a name: \
                     what is only named in innodb may be there";
        let has = |report: &Report| {
            [render(report), html::render(report)].map(|text| text.contains(about))
        };
        assert_eq!(has(&report), [false; 2]);
        for (member, share) in report.microbenchmarks.iter_mut().zip([0.4, 0.3]) {
            let profile = member.rows[0].profile.as_mut().unwrap();
            profile.unnamed[0] = Share::from_fraction(share);
        }
        assert_eq!(has(&report), [true; 2]);
    }

    #[test]
    fn effects_of_settings_and_numbers_of_clients_are_tables() {
        let matrix = render(&sample::matrix(&["scan_range=100", "insert_range=100"], false));
        let effects = tables(&matrix)
            .into_iter()
            .find(|table| table[0].contains(&"innodb_doublewrite OFF/ON".to_owned()))
            .unwrap();
        let columns: Vec<&str> = effects.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(
            columns,
            ["microbenchmark", "scan_range=100", "insert_range=100", "geometric mean"]
        );
        assert_eq!(effects[1][1], "1.124 + (1.112, 1.136)");
        assert!(matrix.contains("times the ratio with innodb_flush_neighbors"), "{matrix}");
        let sweep = tables(&render(&sample::sweep_of(&[1, 4, 16])));
        let medians = sweep.iter().find(|table| table[0].contains(&"16 : 4".to_owned())).unwrap();
        assert_eq!(medians[1], ["point-query_range=100", "innodb", "QPS", "3.073 +", "2.061 +"]);
        let steps =
            sweep.iter().find(|table| table[0].contains(&"relative p99".to_owned())).unwrap();
        assert_eq!(steps.len(), 1 + 2 * 3 * 3);
        assert_eq!(steps[1][2..], ["1", "21,916", "", "46.1 µs", ""]);
    }
}
