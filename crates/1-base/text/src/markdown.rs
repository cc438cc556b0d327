//! GitHub-flavoured Markdown, to paste into a pull request, an issue or a wiki.

use super::width::plain;
use super::{Block, Cell, Column, Kind, Section, SpanKind, Style, Table, Text};

/// Characters that can start markup, an entity or a reference.
const SPECIAL: &str = "\\`*[]<>|&~#$@!";

/// Text of others without markup, in one line, also inside a table.
pub fn escape(text: &str) -> String {
    let characters: Vec<char> = plain(text).chars().collect();
    let mut escaped = String::with_capacity(characters.len());
    for (at, c) in characters.iter().enumerate() {
        let is_word = |at: Option<usize>| {
            at.and_then(|at| characters.get(at)).is_some_and(|c| c.is_alphanumeric())
        };
        // An underscore inside a word is not markup.
        let inside = is_word(at.checked_sub(1)) && is_word(Some(at + 1));
        match c {
            // Parsers differ on a backslash before an escaped pipe.
            '\\' => escaped.push_str("&#92;"),
            '_' if inside => escaped.push('_'),
            '_' => escaped.push_str("\\_"),
            c if SPECIAL.contains(*c) => escaped.extend(['\\', *c]),
            c => escaped.push(*c),
        }
    }
    escaped
}

/// Text of others as code; without markup where code cannot show it.
pub fn code(text: &str) -> String {
    let text = plain(text);
    let is_code = !text.trim().is_empty() && !text.contains(['`', '|', '\\']);
    if is_code { format!("`{text}`") } else { escape(&text) }
}

/// The sections that have content, each below a blank line.
pub fn markdown<C>(sections: &[Section<C>]) -> String {
    let mut out = String::new();
    for section in sections.iter().filter(|section| !section.blocks.is_empty()) {
        title(&mut out, "###", &section.title, &section.about);
        blocks(&mut out, &section.blocks);
    }
    out
}

fn blocks<C>(out: &mut String, blocks: &[Block<C>]) {
    for block in blocks {
        match block {
            Block::Table(one) => out.push_str(&format!("\n{}", table(one))),
            Block::Text(text) => out.push_str(&format!("\n{}\n", paragraph(text))),
            Block::Title(text, about) => title(out, "####", text, about),
            Block::Facts(facts) => {
                out.push('\n');
                for fact in &facts.rows {
                    let [label, text] = [&fact.label, &fact.text].map(|text| escape(text));
                    let between = if label.is_empty() { "" } else { ": " };
                    out.push_str(&format!("- {label}{between}{text}\n"));
                }
            }
            Block::Details(_, inner) => self::blocks(out, inner),
            Block::Chart(_) => {}
        }
    }
}

fn title(out: &mut String, level: &str, title: &str, about: &str) {
    let about = if about.is_empty() { String::new() } else { format!(": {}", escape(about)) };
    if !title.is_empty() {
        out.push_str(&format!("\n{level} {}{about}\n", escape(title)));
    }
}

fn paragraph(text: &Text) -> String {
    let spans = text.spans.iter().map(|span| match span.kind {
        SpanKind::Plain => escape(&span.text),
        SpanKind::Strong => format!("**{}**", escape(&span.text)),
        SpanKind::Code => code(&span.text),
    });
    let line: String = spans.collect();
    if text.style == Style::Strong { format!("**{line}**") } else { line }
}

fn table(table: &Table) -> String {
    let titles: Vec<String> = table.columns.iter().map(|column| escape(&column.title)).collect();
    let rule = |column: &Column| if column.kind == Kind::Number { "---:" } else { "---" };
    let rules: Vec<&str> = table.columns.iter().map(rule).collect();
    let mut out = format!("| {} |\n| {} |\n", titles.join(" | "), rules.join(" | "));
    for row in &table.rows {
        let mut cells: Vec<String> = match &row.part {
            Some(part) => vec![format!("**{}**", escape(part))],
            None => {
                let cells = table.columns.iter().zip(&row.cells);
                cells.map(|(column, one)| cell(column, one)).collect()
            }
        };
        cells.resize(table.columns.len(), String::new());
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out
}

fn cell(column: &Column, cell: &Cell) -> String {
    let mut text = match (&cell.class, column.kind) {
        (&"strong", _) => format!("**{}**", escape(&cell.text)),
        (_, Kind::Name) => code(&cell.text),
        _ => escape(&cell.text),
    };
    if let Some((tone, _)) = cell.verdict {
        let space = if text.is_empty() { "" } else { " " };
        text.push_str(&format!("{space}`{}`", tone.sign()));
    }
    if let Some(interval) = cell.interval.as_ref().filter(|one| !one.ends.is_empty()) {
        text.push_str(&format!(" ({})", escape(&interval.ends)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Row, Tone};

    #[test]
    fn tables_escape_what_others_named() {
        let mut table = Table::new([Column::name("name"), Column::number("value")]);
        let ends = Interval { ends: "0.9, 1.1".to_owned(), plus_minus: "±10%".to_owned() };
        let value = Cell::text("1.000").verdict(Tone::Noise, "within noise").interval(Some(ends));
        table.push(Row::new([Cell::text("a|b"), value]));
        let mut section: Section = Section::new("x", "results").about("above 1 is better");
        section.push(table);
        section.push(Text::new("See ").code("run.json").and(" *now*"));
        assert_eq!(
            markdown(&[section]),
            "\n### results: above 1 is better\n\n| name | value |\n| --- | ---: |\n| a\\|b | 1.000 \
             `~` (0.9, 1.1) |\n\nSee `run.json` \\*now\\*\n"
        );
    }
}
