//! A table per machine: groups down, candidates across.

use super::Drawn;
use super::relative::FIGURES;
use crate::comparison::machines::MachineTable;
use crate::figures::ratio;
use crate::terminal::paint::{left, plain, right, width, wrap};

/// Most machines with a table, unless details are asked for.
const SHOWN: usize = 8;

/// Least width of a candidate's column, with the space before it.
const LEAST: usize = 8;

impl Drawn<'_> {
    /// The results of each machine, if there are several candidates, and those of all machines together, if
    /// each microbenchmark was measured on one of them.
    pub(super) fn machines(&self, out: &mut String, details: bool) {
        if let Some(whole) = self.comparison.whole() {
            self.machine(out, "All runs together: each microbenchmark is in one of them", &whole);
            return;
        }
        let columns = &self.comparison.columns;
        if columns.len() > SHOWN && !details {
            return;
        }
        for (index, column) in columns.iter().enumerate() {
            let Some(table) = self.comparison.machine(index) else { continue };
            if table.candidates.len() > 1 {
                let directory = &self.comparison.runs[column.run].directory;
                self.machine(out, &format!("{}  {directory}", column.label), &table);
            }
        }
    }

    fn machine(&self, out: &mut String, title: &str, table: &MachineTable<'_>) {
        for (index, line) in wrap(&plain(title), self.room).iter().enumerate() {
            let start = if index == 0 { "\n" } else { "" };
            out.push_str(&format!("{start}{}\n", self.paint.bold(line)));
        }
        let groups = table.groups.iter().map(|(group, _)| width(group)).max().unwrap_or(0).max(5);
        let names: Vec<String> = table.candidates.iter().map(|name| plain(name)).collect();
        let wide = names.iter().map(|name| width(name) + 2).max().unwrap_or(0).max(LEAST);
        let fit = (self.room.saturating_sub(groups + 8) / wide).max(1);
        for from in (0..names.len()).step_by(fit) {
            let part = from..(from + fit).min(names.len());
            let heads: String = names[part.clone()].iter().map(|name| right(name, wide)).collect();
            let line = format!("{}{heads}", left("group", groups + 8));
            out.push_str(&format!("{}\n", self.paint.dim(&line)));
            for (group, cells) in &table.groups {
                for (index, (title, figure)) in FIGURES.into_iter().enumerate() {
                    let group = if index == 0 { plain(group) } else { String::new() };
                    let mut line = format!("{}  {}", left(&group, groups), left(title, 6));
                    for cell in &cells[part.clone()] {
                        let text = cell.map_or_else(|| "–".to_owned(), |one| ratio(figure(one)));
                        line.push_str(&right(&text, wide));
                    }
                    out.push_str(&format!("{}\n", line.trim_end()));
                }
            }
        }
        for (group, cells) in &table.groups {
            for (word, best) in [("best ", true), ("worst", false)] {
                let named = table.candidates.iter().zip(cells).filter_map(|(candidate, cell)| {
                    let (name, value) = match (best, cell.as_ref()?) {
                        (true, one) => (&one.best, one.max),
                        (false, one) => (&one.worst, one.min),
                    };
                    Some(format!("{candidate} {name} {}", ratio(value)))
                });
                let group = if best { plain(group) } else { String::new() };
                let start = format!("{}  {word}  ", left(&group, groups));
                let text = plain(&named.collect::<Vec<_>>().join(", "));
                let lines = wrap(&text, self.room.saturating_sub(width(&start)).max(20));
                for (index, line) in lines.iter().enumerate() {
                    let start = if index == 0 { start.clone() } else { " ".repeat(width(&start)) };
                    out.push_str(&format!("{start}{line}\n"));
                }
            }
        }
    }
}
