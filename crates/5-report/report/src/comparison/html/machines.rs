//! A table per machine: groups down, candidates across.

use maud::{Markup, html};

use super::{group_cell, marker};
use crate::comparison::Comparison;
use crate::comparison::machines::MachineTable;
use crate::html::elements::{breakable, scrollable, section};

/// Number of machines up to which the tables are open.
const OPEN: usize = 4;

const FIGURES: &str = "Relative QPS of each group: median, then min and max, then the worst and the best \
                       microbenchmark.";

/// The results of each machine, if there are several candidates, and those of all machines together, if
/// each microbenchmark was measured on one of them.
pub(super) fn render(comparison: &Comparison) -> Markup {
    if let Some(whole) = comparison.whole() {
        let content = html! {
            p.sentence {
                "Each microbenchmark is in one of the runs. Ratios are to the baseline of the same run."
            }
            p.muted { (FIGURES) }
            (table("All runs together", &whole))
        };
        return section("machines", "All runs together", content);
    }
    let columns = comparison.columns.iter().enumerate();
    let tables = columns.filter_map(|(index, column)| {
        let table = comparison.machine(index).filter(|table| table.candidates.len() > 1)?;
        Some((index, column, table))
    });
    let tables: Vec<_> = tables.collect();
    if tables.is_empty() {
        return html! {};
    }
    let open = tables.len() <= OPEN;
    let content = html! {
        p.muted { (FIGURES) }
        @for (index, column, machine) in &tables {
            details open[open] {
                summary { (marker(*index).inline()) (column.label) " " small { (column.machine) } }
                (table(&column.label, machine))
            }
        }
    };
    section("machines", "Each run", content)
}

fn table(label: &str, table: &MachineTable<'_>) -> Markup {
    let content = html! {
        table.facts {
            thead { tr {
                th scope="col" { "Group" }
                @for candidate in &table.candidates { th.num scope="col" { (breakable(candidate)) } }
            } }
            tbody {
                @for (group, cells) in &table.groups {
                    tr {
                        th scope="row" { (breakable(group)) }
                        @for cell in cells { td.num { (group_cell(*cell)) } }
                    }
                }
            }
        }
    };
    scrollable(label, content)
}
