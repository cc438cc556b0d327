//! Text output of the difference between two builds.

use dbdyno_units::{Bytes, grouped};

use super::TextOptions;
use super::layout::{Lines, counted, shortened};
use crate::difference::{Change, Difference, FileDifference};

/// Maximum number of file names shown.
const MAX_FILE_NAMES: usize = 10;

/// Renders a difference from the baseline of this name, ending with a line feed.
#[must_use]
pub fn render_difference(difference: &Difference, baseline: &str, options: &TextOptions) -> String {
    let mut out = Lines::new(options.width.max(60));
    out.line(&format!("Command lines against {baseline}"));
    out.field(
        "compared",
        &format!(
            "{}, {} with the same command line",
            counted(difference.compared, "file"),
            grouped(difference.same as u64)
        ),
    );
    for (name, files) in
        [("only here", &difference.only_here), ("only there", &difference.only_in_baseline)]
    {
        if !files.is_empty() {
            let examples: Vec<&str> = files.iter().take(3).map(String::as_str).collect();
            let dots = if files.len() > 3 { ", …" } else { "" };
            let text = format!("{}: {}{dots}", counted(files.len(), "file"), examples.join(", "));
            out.field(name, &text);
        }
    }
    if difference.compared == 0 {
        out.blank();
        let why = "No file has a recorded command line in both: build both with -g or \
                   -frecord-gcc-switches (clang: -frecord-command-line).";
        out.wrapped("", why);
    }
    summary(&mut out, "Added, and in how many files", '+', &difference.added);
    summary(&mut out, "Removed, and in how many files", '-', &difference.removed);
    files(&mut out, &difference.files, options);
    sizes(&mut out, difference);
    out.into_text()
}

fn summary(out: &mut Lines, heading: &str, sign: char, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    out.blank();
    out.line(heading);
    for change in changes {
        let count = grouped(change.files as u64);
        out.wrapped(&format!("  {count:>7}  "), &format!("{sign} {}", change.flag));
    }
}

/// Files, grouped by difference.
fn files(out: &mut Lines, files: &[FileDifference], options: &TextOptions) {
    if files.is_empty() {
        return;
    }
    out.blank();
    out.line("Per file");
    let mut rest: Vec<&FileDifference> = files.iter().collect();
    while let Some(first) = rest.first().copied() {
        let is_like =
            |file: &FileDifference| file.added == first.added && file.removed == first.removed;
        let (like, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|file| is_like(file));
        let flags: Vec<String> = (first.added.iter().map(|flag| format!("+ {flag}")))
            .chain(first.removed.iter().map(|flag| format!("- {flag}")))
            .collect();
        out.wrapped("  ", &format!("{}: {}", counted(like.len(), "file"), flags.join("  ")));
        let shown = options.entries(MAX_FILE_NAMES);
        for file in like.iter().take(shown) {
            out.wrapped("      ", &file.file);
        }
        if like.len() > shown {
            out.line(&format!("      … and {} more (--all shows them)", like.len() - shown));
        }
        rest = others;
    }
}

fn sizes(out: &mut Lines, difference: &Difference) {
    if difference.sizes.is_empty() {
        return;
    }
    out.blank();
    let name = out.width.saturating_sub(46).max(14);
    out.line(&format!("{:<name$}{:>23}{:>23}", "Sizes", "text", "stripped"));
    for size in &difference.sizes {
        out.line(&format!(
            "{:<name$}{:>23}{:>23}",
            shortened(&size.file, name),
            pair(size.text),
            pair(size.stripped)
        ));
    }
}

fn pair((before, now): (Option<Bytes>, Option<Bytes>)) -> String {
    let word = |bytes: Option<Bytes>| bytes.map_or_else(|| "–".to_owned(), |b| b.to_string());
    format!("{} → {}", word(before), word(now))
}
