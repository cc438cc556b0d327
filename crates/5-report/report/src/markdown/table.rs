//! Tables of GitHub-flavoured Markdown.

/// Alignment of a column.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table; cells must be escaped.
pub(crate) fn table(
    heading: &[(&str, Align)],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let titles: Vec<&str> = heading.iter().map(|(title, _)| *title).collect();
    let rules: Vec<&str> = heading
        .iter()
        .map(|(_, align)| match align {
            Align::Left => "---",
            Align::Right => "---:",
        })
        .collect();
    let mut out = format!("| {} |\n| {} |\n", titles.join(" | "), rules.join(" | "));
    for row in rows {
        out.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    out
}
