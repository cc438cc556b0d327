//! Results as a document, written for terminals, as Markdown and as CSV.
//!
//! A [`Section`] is plain data: build it once, compare it in tests, and let a renderer decide about
//! widths, colours, escapes and what does not fit. External text is made harmless by the renderers,
//! never by the caller. A page in HTML is written by the crate `report`, from the same sections.
//!
//! ```
//! use dbdyno_text::{Cell, Column, Paint, Row, Section, Table, markdown, terminal};
//!
//! let mut table = Table::new([Column::name("task"), Column::number("seconds")]);
//! table.push(Row::new([Cell::text("build"), Cell::number(Some(12.5))]));
//! let mut section = Section::new("tasks", "tasks").about("of this machine");
//! section.push(table);
//! print!("{}", terminal(&[section.clone()], 80, Paint::new(false)));
//! print!("{}", markdown(&[section]));
//! ```
//!
//! [`Csv`] writes a table for programs: each column is a name and a function of a row.

mod csv;
mod document;
mod markdown;
mod short_names;
mod terminal;
mod width;

pub use csv::{Csv, decimals};
pub use document::{
    Block, Cell, Column, Fact, Facts, Interval, Kind, Mark, NoChart, Row, Section, Span, SpanKind,
    Style, Table, Text, Tone,
};
pub use markdown::{code, escape, markdown};
pub use short_names::{letter, short_names, without_common_ends};
pub use terminal::{COLOR_CODES, Paint, terminal, write_blocks};
pub use width::{break_name, cut, left, plain, right, width, wrap};
