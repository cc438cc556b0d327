//! The insert benchmark in a terminal: tables per step, and bar charts over time.

use dbdyno_types::insert::Second;
use dbdyno_units::Share;

use super::figures::{SHORTEST, throughput};
use crate::figures::{compact, tiny};
use crate::model::Role;
use crate::model::{BUCKETS, CandidateStep, InsertReport, Responses, StepReport, StepRun};
use crate::model::{Better, INSERT_METRICS, InsertMetric};
use crate::terminal::paint::{Paint, break_name, cut, left, plain, right, width, wrap};
use crate::words;

/// Maximum width of a name; a longer one is continued in the next line.
const NAME: usize = 16;

/// Width of a figure, with the space before it.
const CELL: usize = 8;

/// Width of the longest response time, with the space before it.
const LONGEST: usize = 9;

/// Ratios within this distance from 1 are shown as equal: restarts of one candidate vary as much.
const CLOSE: f64 = 0.02;

/// Characters of a bar chart, from none to full.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Render all steps.
pub(crate) fn render(out: &mut String, report: &InsertReport, room: usize, paint: Paint) {
    if report.steps.is_empty() {
        out.push_str(&format!("\n{}\n", words::NOTHING_MEASURED));
        return;
    }
    introduction(out, report, room, paint);
    for step in &report.steps {
        Drawing { step, room, paint }.draw(out);
    }
    key(out, report, room, paint);
}

fn introduction(out: &mut String, report: &InsertReport, room: usize, paint: Paint) {
    let mut lines = wrap(&words::insert_benchmark(report), room);
    for (number, names) in (1..).zip(report.order.iter().filter(|names| names.len() > 1)) {
        lines.extend(wrap(&plain(&format!("Order {number}: {}", names.join(", "))), room));
    }
    for line in lines {
        out.push_str(&format!("{}\n", paint.dim(&line)));
    }
}

struct Drawing<'a> {
    step: &'a StepReport,
    room: usize,
    paint: Paint,
}

impl Drawing<'_> {
    fn draw(&self, out: &mut String) {
        let title = format!("{}: {}", self.step.name, self.step.what);
        out.push('\n');
        for (index, line) in wrap(&plain(&title), self.room).into_iter().enumerate() {
            let line = if index == 0 { self.paint.bold(&line) } else { line };
            out.push_str(&format!("{line}\n"));
        }
        let metrics = self.metrics();
        if !self.step.queries && !self.step.inserts {
            self.times(out);
        }
        for (number, part) in metrics.chunks(self.cells()).enumerate() {
            self.table(out, part, number == 0);
        }
        self.distribution(out);
        self.series(out);
        self.remarks(out);
    }

    /// The metrics with a value of at least one candidate in this step, those of work first.
    fn metrics(&self) -> Vec<&'static InsertMetric> {
        const FIRST: [&str; 8] = ["ips", "qps", "p50", "p99", "maxop", "cpupq", "ccpupq", "cspq"];
        let known = |metric: &&InsertMetric| {
            let candidates = &self.step.candidates;
            candidates.iter().any(|one| one.figures.get(metric.name).is_some())
        };
        let first = FIRST.iter().filter_map(|name| INSERT_METRICS.iter().find(|m| m.name == *name));
        let rest = INSERT_METRICS.iter().filter(|metric| !FIRST.contains(&metric.name));
        first.chain(rest).filter(known).collect()
    }

    /// Number of figures per line.
    fn cells(&self) -> usize {
        (self.room.saturating_sub(self.name_columns() + 1) / CELL).max(1)
    }

    fn name_columns(&self) -> usize {
        let names = self.step.candidates.iter().map(|one| width(&plain(&one.candidate)));
        names.max().unwrap_or(0).clamp("relative".len() + 1, NAME)
    }

    /// Absolute figures of all candidates, then relative ones of all but the baseline.
    fn table(&self, out: &mut String, metrics: &[&'static InsertMetric], first: bool) {
        let mut head = " ".repeat(self.name_columns() + 1);
        for metric in metrics {
            head.push_str(&right(metric.name, CELL));
        }
        if !first {
            out.push('\n');
        }
        out.push_str(&format!("{}\n", self.paint.dim(head.trim_end())));
        for candidate in &self.step.candidates {
            let mark = if candidate.sustained() == Some(false) { "!" } else { "" };
            self.line(out, &candidate.candidate, mark, metrics, |metric| {
                let text = candidate.figures.get(metric.name).map_or_else(|| "–".into(), figure);
                right(&text, CELL)
            });
        }
        let compared = self.step.candidates.iter().filter(|one| one.role != Role::Baseline);
        for (number, candidate) in compared.enumerate() {
            if number == 0 {
                out.push_str(&format!("{}\n", self.paint.dim("relative")));
            }
            self.relative(out, candidate, metrics);
        }
    }

    fn relative(
        &self,
        out: &mut String,
        candidate: &CandidateStep,
        metrics: &[&'static InsertMetric],
    ) {
        let Some(relative) = &candidate.relative else { return };
        self.line(out, &candidate.candidate, "", metrics, |metric| {
            let Some(ratio) = relative.get(metric.name) else { return right("–", CELL) };
            let text = right(&ratio_text(ratio), CELL);
            match standing(metric, ratio) {
                Some(true) => self.paint.better(&text),
                Some(false) => self.paint.worse(&text),
                None => text,
            }
        });
        let Some((low, high)) = &candidate.relative_spread else { return };
        for (label, ends) in [("  least", low), ("  greatest", high)] {
            self.line(out, label, "", metrics, |metric| {
                let text = ends.get(metric.name).map_or_else(|| "–".into(), ratio_text);
                self.paint.dim(&right(&text, CELL))
            });
        }
    }

    fn line(
        &self,
        out: &mut String,
        name: &str,
        mark: &str,
        metrics: &[&'static InsertMetric],
        cell: impl Fn(&'static InsertMetric) -> String,
    ) {
        let columns = self.name_columns();
        let mut parts = break_name(&plain(name), columns).into_iter();
        let first = parts.next().unwrap_or_default();
        let mark = self.paint.worse(&left(mark, 1));
        let cells: String = metrics.iter().map(|metric| cell(metric)).collect();
        out.push_str(format!("{}{mark}{cells}", left(&first, columns)).trim_end());
        out.push('\n');
        for part in parts {
            out.push_str(&format!("{part}\n"));
        }
    }

    /// Duration, for steps without throughput over time.
    fn times(&self, out: &mut String) {
        let columns = self.name_columns();
        for candidate in &self.step.candidates {
            let times: Vec<String> =
                candidate.repeats.iter().map(|run| run.wall.to_string()).collect();
            let name = plain(&candidate.candidate);
            let text = format!("{} took {}", left(&name, columns), times.join(", "));
            out.push_str(&format!("{}\n", text.trim_end()));
        }
    }

    /// Shares of the response times in each bucket, in percent.
    fn distribution(&self, out: &mut String) {
        type Of = fn(&StepRun) -> &Option<Responses>;
        let kinds: [(&str, Of); 4] = [
            ("inserts", |run| &run.insert_responses),
            ("service", |run| &run.insert_service),
            ("queries", |run| &run.query_responses),
            ("deletes", |run| &run.delete_responses),
        ];
        // Ten buckets and the maximum; of the last repeat, if there are several.
        let ends = BUCKETS.iter().map(|(_, end)| end.replace("us", "µs"));
        let ends: Vec<String> = ends.chain(["more".to_owned()]).collect();
        let columns: Vec<usize> = ends.iter().map(|end| (width(end) + 1).max(5)).collect();
        let taken = columns.iter().sum::<usize>() + LONGEST;
        let names = self.room.saturating_sub(1 + taken).clamp(14, 30);
        // Of several repeats, the last one.
        let what = if self.step.has_repeats() { "last response in %" } else { "response in %" };
        let mut title = left(what, names + 1);
        for (end, columns) in ends.iter().zip(&columns) {
            title.push_str(&right(end, *columns));
        }
        title.push_str(&right("max", LONGEST));
        let title = self.paint.dim(&title);
        let mut lines = Vec::new();
        for candidate in &self.step.candidates {
            let Some(run) = candidate.repeats.last() else { continue };
            for (kind, of) in kinds {
                let Some(responses) = of(run) else { continue };
                let room = names.saturating_sub(width(kind) + 1);
                let name = cut(&plain(&candidate.candidate), room);
                let mut line = left(&format!("{} {kind}", left(&name, room)), names + 1);
                for (share, columns) in responses.shares.into_iter().zip(&columns) {
                    line.push_str(&right(&percent(share), *columns));
                }
                line.push_str(&right(&responses.max.to_string(), LONGEST));
                lines.push(line.trim_end().to_owned());
            }
        }
        if !lines.is_empty() {
            out.push_str(&format!("\n{title}\n{}\n", lines.join("\n")));
        }
    }

    /// Throughput over time, with one scale for all candidates.
    fn series(&self, out: &mut String) {
        let Some(unit) = self.step.throughput() else { return };
        let columns = self.room.saturating_sub(self.name_columns() + 2);
        let runs = || {
            let all = self.step.candidates.iter();
            all.flat_map(|one| one.repeats.iter().map(move |run| (one, run)))
        };
        let longest = runs().map(|(_, run)| whole(run).len()).max().unwrap_or(0);
        if longest < 3 {
            return;
        }
        let greatest = runs()
            .flat_map(|(_, run)| whole(run).iter().map(|s| throughput(s, self.step.queries)))
            .fold(0.0, f64::max);
        let per_column = longest.div_ceil(columns.max(1));
        let title = format!(
            "{unit} over time: {per_column} s per column, full height {}; ! a write stall",
            compact(greatest)
        );
        out.push('\n');
        for line in wrap(&title, self.room) {
            out.push_str(&format!("{}\n", self.paint.dim(&line)));
        }
        for (candidate, run) in runs() {
            let name = cut(&plain(&candidate.candidate), self.name_columns());
            let seconds = whole(run);
            let bars: String = seconds
                .chunks(per_column)
                .map(|chunk| bar(chunk.iter().map(|s| throughput(s, self.step.queries)), greatest))
                .collect();
            let line = format!("{}  {bars}", left(&name, self.name_columns()));
            out.push_str(&format!("{}\n", line.trim_end()));
            let stalls: String = seconds
                .chunks(per_column)
                .map(|chunk| {
                    let stalled = chunk.iter().any(|second| run.stalls.contains(&second.number));
                    if stalled { '!' } else { ' ' }
                })
                .collect();
            if !run.stalls.is_empty() {
                let space = " ".repeat(self.name_columns() + 2);
                let line = format!("{space}{}", stalls.trim_end());
                out.push_str(&format!("{}\n", self.paint.worse(&line)));
            }
        }
    }

    /// Remarks about conditions that limit comparisons.
    fn remarks(&self, out: &mut String) {
        let mut remarks = Vec::new();
        for candidate in &self.step.candidates {
            let name = plain(&candidate.candidate);
            for run in &candidate.repeats {
                let at = match candidate.repeats.len() {
                    1 => name.clone(),
                    _ => format!("{name}, repeat {}", run.repeat),
                };
                remarks.extend(remarks_of(&at, run, self.step));
            }
        }
        for remark in remarks {
            for line in wrap(&remark, self.room) {
                out.push_str(&format!("{}\n", self.paint.worse(&line)));
            }
        }
    }
}

/// The complete seconds.
fn whole(run: &StepRun) -> &[Second] {
    match run.seconds.split_last() {
        Some((last, before)) if last.elapsed < SHORTEST && !before.is_empty() => before,
        _ => &run.seconds,
    }
}

/// Remarks about one run of a step, as sentences; also used by the HTML page.
pub(super) fn remarks_of(at: &str, run: &StepRun, step: &StepReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if let (Some(false), Some(rate)) = (run.sustained, step.rate) {
        let ips = run.figures.get("ips").unwrap_or(0.0);
        remarks.push(format!(
            "! {at}: the rate was not sustained: {ips:.0} of {rate} rows/s, {} rows still due at \
             the end; its qps cannot be compared",
            run.overdue
        ));
    }
    if !run.stalls.is_empty() {
        let seconds = if run.stalls.len() == 1 { "second" } else { "seconds" };
        remarks.push(format!("! {at}: write stalls in {} {seconds}", run.stalls.len()));
    }
    if run.lock_waits > 0 {
        let per = run.lock_waits as f64 / (run.rows.max(1)) as f64;
        remarks.push(format!(
            "{at}: clients tried {} times for a lock that another one had, {} per row inserted",
            run.lock_waits,
            compact(per)
        ));
    }
    if run.retries > 0 {
        remarks.push(format!("{at}: {} statements were tried again", run.retries));
    }
    if run.wrong > 0 {
        remarks.push(format!("! {at}: {} statements answered wrongly", run.wrong));
    }
    if run.from_copy {
        remarks.push(format!(
            "{at}: went on after an interruption, from data on storage with empty caches"
        ));
    }
    remarks
}

fn key(out: &mut String, report: &InsertReport, room: usize, paint: Paint) {
    out.push('\n');
    let mut text = String::new();
    for metric in INSERT_METRICS {
        text.push_str(&format!("{}: {}. ", metric.name, metric.what));
    }
    text.push_str(&words::insert_definitions(report));
    for line in wrap(&text, room) {
        out.push_str(&format!("{}\n", paint.dim(&line)));
    }
}

/// Whether a ratio is better or worse than the baseline; `None` for small differences.
pub(super) fn standing(metric: &InsertMetric, ratio: f64) -> Option<bool> {
    if (ratio - 1.0).abs() < CLOSE {
        return None;
    }
    match metric.better {
        Better::More => Some(ratio > 1.0),
        Better::Less => Some(ratio < 1.0),
        Better::Neither => None,
    }
}

/// Format with three significant digits, fewer for very small values.
pub(super) fn figure(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.001 {
        tiny(value)
    } else if value < 0.01 {
        format!("{value:.4}")
    } else if value < 0.1 {
        format!("{value:.3}")
    } else {
        compact(value)
    }
}

pub(super) fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 0.005 => tiny(ratio),
        ratio if ratio < 9.995 => format!("{ratio:.2}"),
        ratio if ratio < 99.95 => format!("{ratio:.1}"),
        ratio => compact(ratio),
    }
}

/// A share in at most four characters; empty for zero.
pub(super) fn percent(share: Share) -> String {
    let percent = share.as_percent();
    if percent <= 0.0 {
        String::new()
    } else if percent < 0.01 {
        "<.01".to_owned()
    } else if percent < 0.995 {
        format!("{percent:.2}")[1..].to_owned()
    } else if percent < 99.95 {
        format!("{percent:.1}")
    } else if percent < 100.0 {
        "99.9".to_owned()
    } else {
        "100".to_owned()
    }
}

/// The mean of these values as a bar.
fn bar(values: impl Iterator<Item = f64>, greatest: f64) -> char {
    let (count, sum) = values.fold((0.0, 0.0), |(n, sum), value| (n + 1.0, sum + value));
    if greatest <= 0.0 || count == 0.0 || sum <= 0.0 {
        return BARS[0];
    }
    let share = sum / count / greatest;
    BARS[((share * 8.0).ceil() as usize).clamp(1, 8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_at_most_four_characters_and_zero_is_empty() {
        let shown = [0.0, 0.001, 0.5, 0.994, 1.0, 12.34, 99.94, 99.99, 100.0]
            .map(|p| percent(Share::from_percent(p)));
        assert_eq!(shown, ["", "<.01", ".50", ".99", "1.0", "12.3", "99.9", "99.9", "100"]);
    }

    #[test]
    fn small_figures_and_ratios_differ_from_zero() {
        assert_eq!(
            [0.0, 0.000_04, 0.0042, 0.042, 4.2].map(figure),
            ["0", "4e-5", "0.0042", "0.042", "4.20"]
        );
        assert_eq!([0.0, 0.003, 0.03, 12.0].map(ratio_text), ["0.00", "3e-3", "0.03", "12.0"]);
    }

    #[test]
    fn bar_of_a_small_value_differs_from_zero() {
        assert_eq!(bar([0.0, 0.0].into_iter(), 8.0), ' ');
        assert_eq!(bar([0.1].into_iter(), 8.0), '▁');
        assert_eq!(bar([8.0, 8.0].into_iter(), 8.0), '█');
        assert_eq!(bar([4.0].into_iter(), 8.0), '▄');
    }

    #[test]
    fn better_depends_on_the_metric() {
        let metric = |name: &str| INSERT_METRICS.iter().find(|metric| metric.name == name).unwrap();
        assert_eq!(standing(metric("ips"), 1.2), Some(true));
        assert_eq!(standing(metric("cpupq"), 1.2), Some(false));
        assert_eq!(standing(metric("rps"), 1.2), None);
        assert_eq!(standing(metric("ips"), 1.01), None);
    }
}
