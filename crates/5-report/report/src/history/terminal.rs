//! The history as text for a terminal.

use super::{FigureChange, FigureHistory, History, words};
use crate::metric::with_clients;
use crate::terminal::paint::{Paint, break_name, cut, left, plain, width, wrap};
use crate::terminal::table;
use crate::words::readable_time;

/// Changes that are listed.
const LISTED: usize = 10;

/// Characters of the labels below a change.
const LABELS: usize = 10;

/// Most characters of a candidate's name in the table of groups.
const NAMES: usize = 20;

/// Render the history in lines of at most `room` characters, ending with a line feed.
#[must_use]
pub fn terminal(history: &History, room: usize, color: bool) -> String {
    let drawn = Drawn { history, room, paint: Paint::new(color) };
    let mut out = drawn.header();
    drawn.changes(&mut out);
    drawn.groups(&mut out);
    out
}

struct Drawn<'a> {
    history: &'a History,
    room: usize,
    paint: Paint,
}

impl Drawn<'_> {
    /// The runs and notes about them.
    fn header(&self) -> String {
        let Self { history, room, paint } = *self;
        let runs = &history.runs;
        let title = format!("history of {}: {} runs", plain(&history.name), runs.len());
        let mut out = format!("{}\n", paint.bold(&title));
        if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
            let [from, to] = [first, last].map(|run| readable_time(&run.started));
            self.lines(&mut out, "", &format!("{from} to {to}, baseline {}", history.baseline));
        }
        for note in &history.notes {
            for line in wrap(&format!("Note: {}", plain(note)), room) {
                out.push_str(&format!("{}\n", paint.worse(&line)));
            }
        }
        out
    }

    /// The largest changes.
    fn changes(&self, out: &mut String) {
        let Self { history, paint, .. } = *self;
        out.push_str(&format!("\n{}\n", paint.bold("changes")));
        for change in history.changes.iter().take(LISTED) {
            self.change(out, change);
        }
        let mut about = words::about(history);
        if history.changes.len() > LISTED {
            let more = history.changes.len() - LISTED;
            about
                .push_str(&format!(" The largest {LISTED} are above, and {more} more in exports."));
        }
        self.dim(out, &about);
        if let Some(left_out) = words::left_out(history) {
            self.dim(out, &left_out);
        }
    }

    fn change(&self, out: &mut String, change: &FigureChange) {
        let Self { history, room, paint } = *self;
        let FigureChange { figure, verdict, point } = change;
        let size = format!("{} {}", words::size(point), figure.metric.quantity());
        let subject = words::subject(figure, history.is_sweep());
        let text =
            format!("({}), {}: {subject}", words::interval(point), words::with_p(point.p_value));
        // The size is coloured after the text is broken into lines.
        let mut lines = wrap(&plain(&format!("{size} {text}")), room).into_iter();
        let first = lines.next().unwrap_or_default();
        let (head, tail) = first.split_at(first.len().min(size.len()));
        out.push_str(&format!("{}{tail}\n", paint.tone(verdict.tone(), head)));
        for line in lines {
            out.push_str(&format!("  {line}\n"));
        }
        for (label, index) in [("before", point.before), ("after", point.after)] {
            let run = &history.runs[index];
            let version = run.version_of(&figure.candidate);
            let version = version.map_or_else(String::new, |version| format!(", {version}"));
            self.lines(out, label, &format!("{}{version}", words::run(run)));
        }
        if let Some(position) = words::position(history, point) {
            self.lines(out, "position", &position);
        }
        if let Some(versions) = words::baseline(history, point) {
            self.lines(out, "baseline", &versions);
        }
    }

    /// The level of each group and its last change.
    fn groups(&self, out: &mut String) {
        let Self { history, room, paint } = *self;
        let known = history.groups().filter(|group| !group.levels.is_empty());
        let mut rows: Vec<Vec<String>> = known.map(|group| self.group(group)).collect();
        if rows.is_empty() {
            return;
        }
        let heading = ["candidate", "group", "metric", "level", "since", "last change"];
        shorten_labels(&heading, &mut rows, room);
        let mut lines = table::lines(heading.map(str::to_owned).into(), rows, 3, room).into_iter();
        let heading = lines.next().unwrap_or_default();
        let rule = paint.dim(&"─".repeat(width(&heading)));
        out.push_str(&format!("\n{}\n{heading}\n{rule}\n", paint.bold("groups")));
        for line in lines {
            out.push_str(&format!("{line}\n"));
        }
        self.dim(out, words::LEVELS);
    }

    fn group(&self, group: &FigureHistory) -> Vec<String> {
        let history = self.history;
        let figure = &group.figure;
        let level = group.levels.last();
        let since = group.points.last().map(|point| history.runs[point.after].date());
        let name = with_clients(&figure.group, figure.clients, history.is_sweep());
        vec![
            cut(&plain(&figure.candidate), NAMES),
            plain(&name),
            figure.metric.name().to_uppercase(),
            level.map_or_else(String::new, words::level),
            since.unwrap_or("–").to_owned(),
            words::last_change(group),
        ]
    }

    /// A label and a text beside it.
    fn lines(&self, out: &mut String, label: &str, text: &str) {
        let indent = if label.is_empty() { 0 } else { LABELS + 2 };
        let room = self.room.saturating_sub(indent).max(20);
        let lines = wrap(&plain(text), room);
        let lines = lines.iter().flat_map(|line| break_name(line, room));
        for (number, line) in lines.enumerate() {
            let label = match (label, number) {
                ("", _) => String::new(),
                (label, 0) => format!("  {}", left(label, LABELS)),
                _ => " ".repeat(indent),
            };
            out.push_str(&format!("{}{line}\n", self.paint.dim(&label)));
        }
    }

    fn dim(&self, out: &mut String, text: &str) {
        for line in wrap(&plain(text), self.room) {
            out.push_str(&format!("{}\n", self.paint.dim(&line)));
        }
    }
}

/// Shortens the first two columns, candidates and groups, where the table is wider than `room`.
fn shorten_labels(heading: &[&str], rows: &mut [Vec<String>], room: usize) {
    let columns = |column: usize| {
        let cells = rows.iter().filter_map(|row| Some(width(row.get(column)?)));
        cells.chain([width(heading[column])]).max().unwrap_or(0)
    };
    // At least one space is before each column but the first.
    let figures: usize = (2..heading.len()).map(columns).sum::<usize>() + heading.len() - 1;
    let labels = room.saturating_sub(figures);
    let candidates = labels.saturating_sub(columns(1)).max(width(heading[0])).min(columns(0));
    let groups = labels.saturating_sub(candidates).max(width(heading[1]));
    for row in rows {
        for (cell, columns) in row.iter_mut().zip([candidates, groups]) {
            *cell = cut(cell, columns);
        }
    }
}
