//! Tables with columns as wide as their widest cell.
//!
//! Lines are coloured afterwards, as a whole: colours inside cells would need comfy-table's feature
//! `custom_styling`, which requires `tty` and with it crossterm. Tables with colours inside a line
//! are laid out by [`super::layout`].

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use dbdyno_units::visible;

use super::paint::width;

/// The lines of a table without trailing spaces, the heading first. The first `labels` columns are
/// left-aligned, the others right-aligned. Two spaces separate columns; one where `room` requires it.
pub(crate) fn lines(
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    labels: usize,
    room: usize,
) -> Vec<String> {
    // Cells may have names from others.
    let shown = |cells: Vec<String>| -> Vec<String> {
        cells.iter().map(|cell| visible(cell).into_owned()).collect()
    };
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(shown(heading));
    table.add_rows(rows.into_iter().map(shown));
    let mut with_gap = |gap| -> Vec<String> {
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding(if number == 0 { (0, 0) } else { (gap, 0) });
            if number >= labels {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let wide = with_gap(2);
    if wide.iter().all(|line| width(line) <= room) { wide } else { with_gap(1) }
}
