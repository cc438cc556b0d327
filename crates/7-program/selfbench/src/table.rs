//! Tables on the terminal. Only this module prints to standard output.

use std::io::{Write, stdout};

/// A table; the first column is left-aligned, all others right-aligned.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Appends a row; it has a cell for each heading.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The table as text, a line per row.
    #[must_use]
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = (0..)
                .zip(row)
                .map(|(column, cell)| match (column, width(column)) {
                    (0, width) => format!("{cell:<width$}"),
                    (_, width) => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// Prints the table.
    pub fn print(&self) {
        print(&self.render());
    }
}

/// Prints text. A closed pipe, as with `head`, is not an error.
pub fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_width_is_that_of_the_widest_cell() {
        let mut table = Table::new(&["case", "ns"]);
        table.row(["a point query".to_owned(), "7".to_owned()]);
        table.row(["b".to_owned(), "1234".to_owned()]);
        assert_eq!(
            table.render(),
            "case             ns\na point query     7\nb              1234\n"
        );
    }
}
