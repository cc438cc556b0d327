//! The comparison for terminals, as a page, as Markdown and as CSV: each table is described once.

use dbdyno_results::DataSize;
use dbdyno_stats::Difference;
use dbdyno_text::{
    Cell, Column, Csv, Fact, Facts, Interval, Mark, Paint, Row, Style, Table, Text, Tone,
};
use dbdyno_units::Ratio;
use maud::html;

use super::absolute::{COMPARED, ComparedFigure};
use super::{
    AbsoluteRow, AbsoluteValue, Agreement, ChangeSummary, Comparison, GroupRow, RatioCell,
    RatioRow, Ratios, facts,
};
use crate::charts::{Lane, point_estimate};
use crate::figures::{compact, number, plus_minus_percent, ratio};
use crate::html::document as page;
use crate::metric::clients;
use crate::model::{GroupSummary, Metric, Role, Verdict, distinct};
use crate::sections::{Block, Chart, Output, Section, interval, ratio_cell};
use crate::words::{capitalized, joined};

/// Nothing was measured in any run.
const NOTHING: &str = "Nothing to compare: no run has results of microbenchmarks.";

/// What a quotient of absolute figures contains.
const CAUTION: &str = "The runs were not interleaved: a quotient of their absolute figures also contains what \
     changed on the machine between them (clock frequency, other load on the same host, \
     temperature). It is marked as better or worse if it is farther from 1 than the intervals, \
     which contain the spread between the starts and sessions of a run, and three noise floors of \
     both runs. That does not say why. Where it is not certain, the data show no change.";

/// Absolute figures of the runs have no counterparts.
const NO_COUNTERPART: &str = "Absolute figures are compared with those of the first run, and no other run has one of its \
     candidates, on the same microbenchmark with the same number of clients.";

/// Signs of quotients of absolute figures.
const CHANGE_KEY: &str = "Signs: + better: higher QPS, less CPU, shorter p99; - worse; ~ not certain; · no interval; c \
     client-bound; ! failed.";

/// Signs of ratios.
const RATIO_KEY: &str = "Signs: + better than the baseline of the same run, - worse, ~ within noise, ? too noisy or too \
     few blocks to tell, c client-bound, · no interval, ! failed.";

/// Signs of the agreement, in the order of severity.
const AGREEMENT_KEY: &str = "Last column, of the runs: = agree, ~ not certain, s same direction but certainly \
     different size, d one shows a difference and another none, x contradict.";

const AGREEMENT_COLUMN: &str = "The last column compares the runs with each other: the most certain difference \
     between two of them, as the quotient of their ratios, with an interval that allows for the noise floors \
     and for the number of runs.";

/// The metrics, the one that may be to trust first.
const METRICS: [Metric; 2] = [Metric::Cpu, Metric::Qps];

/// Which values of the two metrics are better.
const BOTH: &str = "QPS: above 1 is better; CPU per query: below 1 is better";

/// About the tables of a group whose reports say to trust CPU per query.
const CPU_TABLE: &str = "relative CPU per query, below 1 is better; trust this one";
const QPS_TABLE: &str = "relative QPS, above 1 is better";

/// Highest number of runs at which a table fits a wide window and its header may be sticky.
const FITTING_RUNS: usize = 4;

/// Most machines with a table on a terminal, unless details are asked for; on a page, more are closed.
const MOST_MACHINES: usize = 8;
const MOST_OPEN: usize = 4;

/// Most differences to list per candidate.
const LISTED: usize = 10;

/// The comparison in lines of at most `room` characters. Absolute figures are only shown with
/// `details`, or if there are no ratios to a baseline.
pub fn terminal(comparison: &Comparison, room: usize, color: bool, details: bool) -> String {
    let sections = View { comparison, output: Output::Terminal, details }.sections();
    dbdyno_text::terminal(&sections, room, Paint::new(color)).trim_start().to_owned()
}

/// The comparison as GitHub-flavoured Markdown. Absolute figures of every microbenchmark only with
/// `details`, or if there are no ratios to a baseline.
pub fn markdown(comparison: &Comparison, details: bool) -> String {
    let sections = View { comparison, output: Output::Markdown, details }.sections();
    format!("## {}\n{}", title(comparison), dbdyno_text::markdown(&sections))
}

/// The comparison as a self-contained page, styled like a report.
pub fn html(comparison: &Comparison) -> String {
    let sections = View { comparison, output: Output::Page, details: true }.sections();
    let content = html! { @for section in &sections { (page::section(section)) } };
    crate::html::of_runs(&title(comparison), None, &comparison.notes, content)
}

fn title(comparison: &Comparison) -> String {
    format!("{} runs side by side", comparison.runs.len())
}

fn list(section: &mut Section, facts: Facts) {
    if !facts.rows.is_empty() {
        section.push(facts);
    }
}

/// Summaries of a metric of several microbenchmarks: a row per group, a column per run or candidate.
struct Summaries<'a> {
    metric: Metric,
    columns: Vec<(&'a str, Option<Mark>)>,
    groups: Vec<(&'a str, Vec<Option<&'a GroupSummary>>)>,
}

type Statistic = (&'static str, fn(&GroupSummary) -> Ratio);

const SUMMARY: [Statistic; 4] = [
    ("median", |summary| summary.median),
    ("min", |summary| summary.min),
    ("max", |summary| summary.max),
    ("mean", |summary| summary.avg),
];

#[derive(Clone, Copy)]
struct View<'a> {
    comparison: &'a Comparison,
    output: Output,
    /// Whether to show absolute figures of every microbenchmark.
    details: bool,
}

impl<'a> View<'a> {
    fn is(self, output: Output) -> bool {
        self.output == output
    }

    fn sections(self) -> Vec<Section> {
        let candidates = self.comparison.candidates();
        let several = || candidates.iter().filter(|(_, runs)| runs.len() > 1);
        let mut sections = vec![self.runs(), self.facts(), self.about_ratios(&candidates)];
        sections.extend(self.machines());
        sections.extend(several().map(|(candidate, _)| self.candidate(candidate)));
        sections.push(self.absolute());
        sections
    }

    /// The runs; on a page, notes about them are above.
    fn runs(self) -> Section {
        let comparison = self.comparison;
        let columns = comparison.columns.iter().enumerate();
        let mut section = Section::new("runs", "Runs");
        if self.is(Output::Terminal) {
            section.title = title(comparison);
            section.push(Facts::new(
                columns.map(|(index, column)| Fact::new(&column.label, self.describe(index))),
            ));
            let notes = comparison.notes.iter();
            let notes = notes.map(|note| Fact::new("Note:", note).style(Style::Tone(Tone::Worse)));
            list(&mut section, Facts { gap: 1, ..Facts::new(notes) });
            return section;
        }
        let names = [Column::text(""), Column::name("run")].into_iter();
        let of_run = ["directory", "started", "machine", "clients"].map(Column::text);
        let of_results = [DataSize::LABEL, "baseline", "noise floor"].map(Column::text);
        let mut runs = Table::new(names.chain(of_run).chain(of_results));
        for (index, column) in columns {
            let run = &comparison.runs[column.run];
            let at = |text: &str| Cell::text(text).class("at");
            runs.push(Row::new([
                Cell::text(&column.label).mark(Mark::Candidate(index)),
                Cell::text(&run.name),
                at(&run.directory),
                at(&run.when()),
                at(&column.machine),
                at(&column.clients.to_string()),
                at(column.data.as_deref().unwrap_or("–")),
                at(&column.baseline),
                at(&column.noise),
            ]));
        }
        if !runs.rows.is_empty() {
            section.push(runs.caption("Runs").class("groups").frame("cards"));
        }
        if self.is(Output::Markdown) {
            section.title.clear();
            let notes = comparison.notes.iter().map(|note| Fact::new("", note));
            list(&mut section, Facts::new(notes));
        }
        section
    }

    /// A column in one line, without the label.
    fn describe(self, index: usize) -> String {
        let column = &self.comparison.columns[index];
        let run = &self.comparison.runs[column.run];
        let data = column.data.as_ref().map_or_else(String::new, |data| format!(", {data}"));
        format!(
            "{}: {}, {}; {}; {}{data}; baseline {}; noise {}",
            run.directory,
            run.name,
            run.when(),
            column.machine,
            clients(column.clients),
            column.baseline,
            column.noise
        )
    }

    /// What differs between the runs.
    fn facts(self) -> Section {
        let facts = &self.comparison.facts;
        let mut section = Section::new("differences", "What differs");
        if self.comparison.runs.is_empty() {
            return section;
        }
        if facts.different.is_empty() {
            section.push(Text::new(
                "No recorded setting, version, build or fact about the machine differs.",
            ));
        } else {
            section.push(self.fact_table("What differs", &facts.different));
        }
        if !facts.momentary.is_empty() {
            section.title("State of the machines at the start", "");
            section.push(self.fact_table("State of the machines", &facts.momentary));
        }
        if !facts.equal.is_empty() {
            section.note(format!("Equal: {}.", facts.equal.join("; ")));
        }
        if !facts.incomplete.is_empty() {
            let incomplete = facts.incomplete.join("; ");
            section.note(format!("Recorded by some of the runs only: {incomplete}."));
        }
        section
    }

    /// Values are often longer than a column of a terminal: there, a line has them all.
    fn fact_table(self, caption: &str, facts: &[facts::Fact]) -> Block {
        let runs = &self.comparison.runs;
        if self.is(Output::Terminal) {
            let line = |fact: &facts::Fact| {
                let values = runs.iter().zip(&fact.values);
                let known = values
                    .filter_map(|(run, value)| Some(format!("{} {}", run.label, value.as_ref()?)));
                let known: Vec<String> = known.collect();
                Fact::new("", format!("{}: {}", fact.what, known.join("; ")))
            };
            return Facts::new(facts.iter().map(line)).into();
        }
        let columns = runs.iter().map(|run| Column::text(&run.label));
        let mut table = Table::new([Column::name("fact")].into_iter().chain(columns));
        for fact in facts {
            let values = fact.values.iter();
            let values = values.map(|value| Cell::number(value.as_ref()).class("at"));
            table.push(Row::new([Cell::text(&fact.what)].into_iter().chain(values)));
        }
        table.caption(caption).class("groups differing").frame("cards").into()
    }

    /// The meaning of the signs, and the candidates that are not compared.
    fn about_ratios(self, candidates: &[(&str, Vec<usize>)]) -> Section {
        let comparison = self.comparison;
        let mut section = match comparison.cpu.rows.is_empty() {
            true => Section::new("", "Relative QPS").about("above 1 is better"),
            false => Section::new("", "Ratios to the baselines").about(BOTH),
        };
        if comparison.absolute.is_empty() {
            section = Section::new("", "Results");
            section.push(Text::new(NOTHING));
        }
        if candidates.iter().any(|(_, runs)| runs.len() > 1) {
            section.note(RATIO_KEY);
            section.note(match self.output {
                Output::Terminal => AGREEMENT_KEY,
                Output::Page | Output::Markdown => AGREEMENT_COLUMN,
            });
        }
        let runs = comparison.runs.iter().enumerate();
        let own = runs.filter_map(|(index, run)| {
            let own = candidates.iter().filter(|(_, runs)| runs[..] == [index]);
            let own: Vec<&str> = own.map(|(name, _)| *name).collect();
            (!own.is_empty()).then(|| format!("{} has {}", run.label, own.join(", ")))
        });
        if let Some(own) = joined(own, "; ") {
            section.push(Text::new(format!(
                "Ratios to the baseline that only one run has are in its own report: {own}."
            )));
        }
        section
    }

    /// The results of each column, if there are several candidates, and of all columns together if each
    /// microbenchmark was measured in one of them.
    fn machines(self) -> Option<Section> {
        let comparison = self.comparison;
        let tables = |of: &dyn Fn(&'a Ratios) -> Vec<&'a GroupSummary>| -> Vec<Summaries<'a>> {
            let of = |metric| Summaries::of_candidates(metric, of(comparison.ratios(metric)));
            METRICS.into_iter().filter_map(of).collect()
        };
        let whole = tables(&|ratios| ratios.merged.iter().collect());
        if !whole.is_empty() {
            let mut section = Section::new("machines", "All runs together");
            section.push(Text::new(
                "Each microbenchmark is in one of the runs. Ratios are to the baseline of the same run.",
            ));
            push_all(&whole, &mut section, "All runs together", self.output);
            return Some(section);
        }
        let of_column = |column: usize| {
            let mut tables = tables(&|ratios| {
                ratios.groups.iter().filter_map(|row| row.cells[column].as_ref()).collect()
            });
            tables.retain(|table| table.columns.len() > 1);
            tables
        };
        let columns = (0..comparison.columns.len()).map(|column| (column, of_column(column)));
        let all: Vec<(usize, Vec<Summaries<'_>>)> =
            columns.filter(|(_, tables)| !tables.is_empty()).collect();
        if self.is(Output::Terminal) && all.len() > MOST_MACHINES && !self.details {
            return None;
        }
        let mut section = Section::new("machines", "Each run");
        for (index, tables) in &all {
            let column = &comparison.columns[*index];
            let directory = &comparison.runs[column.run].directory;
            let title = format!("{}: {directory}", column.label);
            let mut part = Section::new("", "");
            push_all(tables, &mut part, &column.label, self.output);
            if self.is(Output::Page) && all.len() > MOST_OPEN {
                section.push(Block::Details(title, part.blocks));
            } else {
                section.title(title, column.machine.as_str());
                section.blocks.extend(part.blocks);
            }
        }
        Some(section)
    }

    fn candidate(self, candidate: &'a str) -> Section {
        let cpu_rows = self.comparison.cpu.rows.iter();
        let cpu_rows: Vec<&RatioRow> = cpu_rows.filter(|row| row.candidate == candidate).collect();
        let about = if cpu_rows.is_empty() { "relative QPS, above 1 is better" } else { BOTH };
        let mut section = Section::new("", candidate).about(about);
        section.push(Text::new(agreement(self.comparison, candidate)));
        if self.is(Output::Terminal) {
            self.largest_differences(&mut section, candidate);
        }
        let named = |title: &str| match self.output {
            Output::Terminal => format!("{candidate}: {title}"),
            Output::Page | Output::Markdown => title.to_owned(),
        };
        for metric in METRICS {
            let groups = self.comparison.summaries_of(metric, candidate);
            if groups.is_empty() {
                continue;
            }
            section.title(named("groups"), metric.title());
            let cells = |row: &'a GroupRow| row.cells.iter().map(Option::as_ref).collect();
            let groups = groups.into_iter().map(|row| (row.group.as_str(), cells(row))).collect();
            let columns = self.comparison.columns.iter().enumerate();
            let columns = columns
                .map(|(index, column)| (column.label.as_str(), Some(Mark::Candidate(index))))
                .collect();
            Summaries { metric, columns, groups }.push(&mut section, "Groups", self.output);
        }
        let rows: Vec<&RatioRow> = self.comparison.rows_of(candidate).collect();
        for of_group in rows.chunk_by(|a, b| a.group == b.group) {
            let group = &of_group[0].group;
            let cpu: Vec<&RatioRow> =
                cpu_rows.iter().copied().filter(|row| row.group == *group).collect();
            let mut tables = vec![(of_group, "")];
            if !cpu.is_empty() {
                tables = vec![(&cpu, CPU_TABLE), (of_group, QPS_TABLE)];
            }
            for (rows, about) in tables {
                section.title(named(group), about);
                let table = self.ratios(rows);
                section.push(match self.output {
                    Output::Page => Block::Chart(Chart::Lanes(table, lanes(rows), None)),
                    Output::Terminal | Output::Markdown => table.into(),
                });
            }
        }
        section
    }

    fn largest_differences(self, section: &mut Section, candidate: &str) {
        let rows = self.comparison.trusted_rows_of(candidate);
        let differing = rows.filter_map(|row| {
            Some((row, row.difference.filter(|_| row.agreement.is_difference())?))
        });
        let mut all: Vec<(&RatioRow, Difference)> = differing.collect();
        let size = |one: &Difference| one.quotient.ratio.get().ln().abs();
        all.sort_by(|(_, a), (_, b)| size(b).total_cmp(&size(a)));
        let mut lines: Vec<Fact> = all
            .iter()
            .take(LISTED)
            .map(|(row, difference)| {
                let difference = self.difference(difference);
                let metric = match row.metric {
                    Metric::Qps => "",
                    Metric::Cpu => ", CPU per query",
                };
                let agreement = row.agreement.words(row.metric);
                let text = format!("{}{metric}: {agreement}: {difference}", row.microbenchmark);
                Fact::new("", text)
            })
            .collect();
        if all.len() > LISTED {
            let more = all.len() - LISTED;
            lines.push(Fact::new("", format!("and {more} smaller ones: see comparison.csv")));
        }
        list(section, Facts::new(lines));
    }

    /// `B/A 1.523 (1.498 to 1.549)`
    fn difference(self, difference: &Difference) -> String {
        let quotient = &difference.quotient;
        let [middle, low, high] = [quotient.ratio, quotient.low, quotient.high].map(ratio);
        let columns = self.comparison.quotient_label(difference.later, difference.earlier);
        format!("{columns} {middle} ({low} to {high})")
    }

    fn columns(self) -> impl Iterator<Item = Column> {
        let columns = self.comparison.columns.iter().enumerate();
        columns.map(|(index, column)| Column::number(&column.label).mark(Mark::Candidate(index)))
    }

    fn ratios(self, rows: &[&RatioRow]) -> Table {
        let last = Column::text(if self.is(Output::Terminal) { "" } else { "agreement" });
        let start = [Column::name("microbenchmark")].into_iter();
        let fits = self.comparison.columns.len() <= FITTING_RUNS;
        let mut table = Table::new(start.chain(self.columns()).chain([last]))
            .caption(&rows[0].group)
            .frame(if fits { "compare fits" } else { "compare" });
        for row in rows {
            let difference = row.difference.as_ref().map(|one| self.difference(one));
            let agreement = match (self.output, difference) {
                (Output::Terminal, _) => Cell::text(row.agreement.rank_sign_words().1),
                (Output::Page, Some(difference)) => {
                    Cell::text(row.agreement.words(row.metric)).note(difference)
                }
                (Output::Markdown, Some(difference)) if row.agreement.is_difference() => {
                    Cell::text(format!("{}: {difference}", row.agreement.words(row.metric)))
                }
                _ => Cell::text(row.agreement.words(row.metric)),
            };
            let cells = row.cells.iter().map(|cell| self.ratio(row.metric, cell.as_ref()));
            let start = [Cell::text(&row.microbenchmark)].into_iter();
            table.push(Row::new(start.chain(cells).chain([agreement.class("at agreement")])));
        }
        table
    }

    fn ratio(self, metric: Metric, cell: Option<&RatioCell>) -> Cell {
        let Some(RatioCell { ratio, estimate, verdict, .. }) = cell else { return Cell::dash() };
        let with_interval = self.is(Output::Page);
        match (ratio, verdict) {
            (Some(value), _) => ratio_cell(*value, metric, *verdict)
                .interval(estimate.filter(|_| with_interval).map(interval)),
            (None, Verdict::Failed) => Cell::text("failed"),
            (None, _) => Cell::text("too few"),
        }
    }

    fn absolute(self) -> Section {
        let comparison = self.comparison;
        let mut section = Section::new("absolute", "Absolute figures");
        if comparison.changes.is_empty() {
            if !comparison.absolute.is_empty() {
                section.push(Text::new(NO_COUNTERPART));
            }
            return section;
        }
        section.note(CAUTION);
        for sentence in drift(comparison) {
            section.push(Text::new(sentence));
        }
        let changes =
            comparison.changes.iter().map(|change| Fact::new("", self::change(comparison, change)));
        list(&mut section, Facts::new(changes));
        // With ratios to a baseline, these are the result.
        let are_details = !comparison.qps.rows.is_empty();
        if are_details && !self.details {
            if self.is(Output::Terminal) {
                section.note("--details shows QPS, CPU time and p99 of every microbenchmark.");
            }
            return section;
        }
        section.note(CHANGE_KEY);
        for candidate in distinct(comparison.absolute.iter().map(|row| row.candidate.as_str())) {
            let mut part = Section::new("", "");
            for (index, figure) in COMPARED.iter().enumerate() {
                let table = self.figures(candidate, index, figure);
                if !table.rows.is_empty() {
                    part.title(format!("{candidate}: {}", figure.title), "");
                    part.push(table);
                }
            }
            if self.is(Output::Page) && are_details {
                section.push(Block::Details(candidate.to_owned(), part.blocks));
            } else {
                section.blocks.extend(part.blocks);
            }
        }
        section
    }

    /// A figure of a candidate on the microbenchmarks of which it is known.
    fn figures(self, candidate: &str, index: usize, figure: &ComparedFigure) -> Table {
        let comparison = self.comparison;
        let compared = comparison.compared_columns();
        let quotients = compared.iter();
        let quotients =
            quotients.map(|(later, earlier)| comparison.quotient_label(*later, *earlier));
        let quotients = quotients.map(Column::number);
        let start = [Column::name("microbenchmark")].into_iter();
        let mut table = Table::new(start.chain(self.columns()).chain(quotients))
            .caption(figure.title)
            .class("groups")
            .frame("cards values");
        for row in comparison.absolute.iter().filter(|row| row.candidate == candidate) {
            let of = |column: usize| row.value(column, index);
            if (0..row.cells.len()).all(|column| of(column).is_none()) {
                continue;
            }
            let unit = match row.throughput_unit.as_str() {
                "million rows/s" if figure.is_throughput() => " (M rows/s)",
                _ => "",
            };
            let values = (0..row.cells.len()).map(|column| value(of(column)));
            let quotients = compared.iter().map(|(column, _)| quotient(of(*column), figure));
            let start = [Cell::text(format!("{}{unit}", row.microbenchmark))].into_iter();
            table.push(Row::new(start.chain(values).chain(quotients)));
        }
        table
    }
}

impl<'a> Summaries<'a> {
    /// The summaries of several microbenchmarks by candidate; `None` if there are none.
    fn of_candidates(metric: Metric, mut all: Vec<&'a GroupSummary>) -> Option<Self> {
        all.retain(|one| one.role == Role::Candidate && one.count > 1);
        let candidates = distinct(all.iter().map(|one| one.candidate.as_str()));
        let mut names = distinct(all.iter().map(|one| one.group.as_str()));
        names.sort_unstable();
        let of = |group: &str, candidate: &str| {
            all.iter().find(|one| one.group == group && one.candidate == candidate).copied()
        };
        let row = |group| (group, candidates.iter().map(|one| of(group, one)).collect());
        let groups: Vec<_> = names.into_iter().map(row).collect();
        let columns = candidates.iter().map(|name| (*name, None)).collect();
        (!groups.is_empty()).then_some(Self { metric, columns, groups })
    }

    fn push(&self, section: &mut Section, caption: &str, output: Output) {
        let columns =
            self.columns.iter().map(|(name, mark)| Column { mark: *mark, ..Column::number(*name) });
        if output == Output::Terminal {
            let labels = [Column::group("group"), Column::group("")].into_iter();
            let mut table = Table::new(labels.chain(columns));
            for (group, cells) in &self.groups {
                for (title, of) in SUMMARY {
                    let cells = cells.iter().map(|one| Cell::number(one.map(|one| ratio(of(one)))));
                    let labels = [Cell::text(*group), Cell::text(title)].into_iter();
                    table.push(Row::new(labels.chain(cells)));
                }
            }
            section.push(table);
            list(section, self.extremes());
            return;
        }
        let what = capitalized(self.metric.title());
        let figures = match output {
            Output::Markdown => "median, mean, worst to best microbenchmark",
            _ => "median, then min and max, then the worst and the best microbenchmark",
        };
        section.note(format!("{what} of each group: {figures}."));
        let mut table = Table::new([Column::text("group")].into_iter().chain(columns));
        for (group, cells) in &self.groups {
            let cells =
                cells.iter().map(|one| one.map_or_else(Cell::dash, |one| spread(one, output)));
            table.push(Row::new([Cell::text(*group)].into_iter().chain(cells)));
        }
        section.push(table.caption(caption).class("facts"));
    }

    /// The best and the worst microbenchmark of each group, with the columns in which it is that.
    fn extremes(&self) -> Facts {
        let mut facts = Vec::new();
        for (group, cells) in &self.groups {
            for (word, best) in [("best", true), ("worst", false)] {
                let named = self.columns.iter().zip(cells).filter_map(|((column, _), cell)| {
                    let one = (*cell)?;
                    let name = if best { &one.best } else { &one.worst };
                    let is_max = best == (self.metric == Metric::Qps);
                    let value = if is_max { one.max } else { one.min };
                    Some((name, format!("{column} {}", ratio(value))))
                });
                let named: Vec<(&String, String)> = named.collect();
                for name in distinct(named.iter().map(|(name, _)| *name)) {
                    let own = named.iter().filter(|(known, _)| *known == name);
                    let columns: Vec<&str> = own.map(|(_, text)| text.as_str()).collect();
                    let text = format!("{name} ({})", columns.join(", "));
                    facts.push(Fact::new(format!("{group} {word}"), text));
                }
            }
        }
        Facts::new(facts)
    }
}

/// The tables of metrics, each with its name if there are several.
fn push_all(tables: &[Summaries<'_>], section: &mut Section, caption: &str, output: Output) {
    for table in tables {
        if tables.len() > 1 && output == Output::Terminal {
            section.push(Text::new(format!("{}, {}", table.metric.title(), table.metric.better())));
        }
        table.push(section, caption, output);
    }
}

/// The median, minimum and maximum, and the microbenchmarks with these.
fn spread(summary: &GroupSummary, output: Output) -> Cell {
    let GroupSummary { worst, best, .. } = summary;
    let [median, mean, min, max] =
        [summary.median, summary.avg, summary.min, summary.max].map(ratio);
    if output == Output::Markdown {
        return Cell::text(format!("{median} (mean {mean}); {worst} {min} to {best} {max}"));
    }
    let ends = format!("{min} to {max}");
    Cell::text(median)
        .interval(Some(Interval { ends, plus_minus: String::new() }))
        .note(format!("worst {worst}"))
        .note(format!("best {best}"))
}

/// A lane per column of each row; without an interval it has no whisker.
fn lanes(rows: &[&RatioRow]) -> Vec<Vec<Option<Lane>>> {
    let lane = |(index, cell): (usize, &Option<RatioCell>)| {
        let cell = cell.as_ref()?;
        let estimate = cell.estimate.or_else(|| cell.ratio.map(point_estimate))?;
        Some(Lane { mark: Mark::Candidate(index), tone: cell.verdict.tone(), estimate })
    };
    rows.iter().map(|row| row.cells.iter().enumerate().map(lane).collect()).collect()
}

/// `51.2k`, with its interval both ways.
fn value(value: Option<&AbsoluteValue>) -> Cell {
    let Some(AbsoluteValue { value, interval, .. }) = value else { return Cell::dash() };
    let interval = interval.map(|(low, high)| {
        let farther = 100.0 * (high - value).max(value - low) / value;
        Interval {
            ends: format!("{} to {}", compact(low), compact(high)),
            plus_minus: if *value > 0.0 { plus_minus_percent(farther) } else { String::new() },
        }
    });
    Cell::text(compact(*value)).interval(interval)
}

fn quotient(value: Option<&AbsoluteValue>, figure: &ComparedFigure) -> Cell {
    let Some(change) = value.and_then(|value| value.change) else { return Cell::dash() };
    let middle = change.ratio.get();
    let interval = change.quotient.map(|quotient| {
        let farther = (quotient.high.get() - middle).max(middle - quotient.low.get());
        Interval {
            ends: format!("{} to {}", ratio(quotient.low), ratio(quotient.high)),
            plus_minus: plus_minus_percent(100.0 * farther),
        }
    });
    Cell::text(ratio(change.ratio))
        .verdict(change.verdict.tone(), figure.word(change.verdict))
        .interval(interval)
}

/// What tells drift from an effect, for each pair of a run with the first one.
pub(super) fn drift(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    for (column, earlier) in comparison.compared_columns() {
        let of: Vec<&ChangeSummary> = comparison
            .changes
            .iter()
            .filter(|change| change.metric == Metric::Qps)
            .filter(|change| (change.column, change.compared_with) == (column, earlier))
            .collect();
        if of.is_empty() {
            continue;
        }
        let (b, a) = (comparison.label(column), comparison.label(earlier));
        let equal: Vec<&&ChangeSummary> = of.iter().filter(|change| change.is_equal).collect();
        if equal.is_empty() {
            sentences.push(format!(
                "No candidate is equal in {a} and {b} in program, configuration, data and number of \
                 clients: drift cannot be separated from the effect of what differs."
            ));
            continue;
        }
        let changes: Vec<String> = match &equal[..] {
            [only] => vec![spread_of(comparison, only)],
            _ => equal.iter().map(|change| named_spread(comparison, change)).collect(),
        };
        let rest = if equal.len() == of.len() {
            "Nothing else is in both."
        } else {
            "A change of another candidate that is within this one's interval in the same \
             microbenchmark is not certain."
        };
        let verb = if equal.len() == 1 { "is" } else { "are" };
        let names: Vec<&str> = equal.iter().map(|change| change.candidate.as_str()).collect();
        sentences.push(format!(
            "{} {verb} equal in {a} and {b} in program, configuration, data and number of clients. \
             What changes there comes from the machine, or from the other candidates of the run, \
             which share its caches: {}. {rest}",
            names.join(", "),
            changes.join("; ")
        ));
    }
    sentences
}

/// `QPS of B/A median 0.98 (0.95 to 1.01 over 5 microbenchmarks)`.
fn spread_of(comparison: &Comparison, change: &ChangeSummary) -> String {
    let ChangeSummary { column, compared_with, count, median, min, max, .. } = change;
    let [median, min, max] = [*median, *min, *max].map(ratio);
    let over = match count {
        1 => "1 microbenchmark".to_owned(),
        count => format!("{min} to {max} over {count} microbenchmarks"),
    };
    let columns = comparison.quotient_label(*column, *compared_with);
    format!("{} of {columns} median {median} ({over})", change.metric.quantity())
}

fn named_spread(comparison: &Comparison, change: &ChangeSummary) -> String {
    format!("{}: {}", change.candidate, spread_of(comparison, change))
}

/// The changes of a candidate's figure in one sentence.
fn change(comparison: &Comparison, change: &ChangeSummary) -> String {
    let ChangeSummary { count, higher, lower, .. } = *change;
    let uncertain = count - higher - lower;
    let drift = if change.is_equal { "; equal in both, so no effect of the candidate" } else { "" };
    format!(
        "{}: {higher} higher, {lower} lower, {uncertain} not certain{drift}",
        named_spread(comparison, change)
    )
}

/// How many microbenchmarks of a candidate have which agreement.
fn agreement(comparison: &Comparison, candidate: &str) -> String {
    use Verdict::{Better, WithinNoise, Worse};
    let rows = comparison.trusted_rows_of(candidate);
    let by_cpu = rows.clone().filter(|row| row.metric == Metric::Cpu).count();
    let (better, worse, metric) = match by_cpu {
        0 => ("faster", "slower", String::new()),
        all if all == rows.clone().count() => {
            ("with less", "with more", ", by CPU per query,".to_owned())
        }
        some => ("better", "worse", format!(", {some} of them by CPU per query,")),
    };
    let count = |wanted: &dyn Fn(Agreement) -> bool| {
        rows.clone().filter(|row| wanted(row.agreement)).count()
    };
    let is = |agreement: Agreement| count(&|one| one == agreement);
    let [faster, slower, noise] =
        [Better, Worse, WithinNoise].map(|verdict| is(Agreement::Agree(verdict)));
    let by_clients = is(Agreement::AgreeByClients);
    let of_clients = match by_clients {
        0 => String::new(),
        number => format!(", {number} by number of clients"),
    };
    let sizes = count(&|agreement| matches!(agreement, Agreement::SizeDiffers(_)));
    let [differ, contradict] = [Agreement::Differ, Agreement::Contradict].map(is);
    let uncertain = is(Agreement::NotCertain);
    let unknown = match is(Agreement::Unknown) {
        0 => String::new(),
        unknown => format!(" {unknown} have fewer than two verdicts."),
    };
    format!(
        "{candidate}: of {} microbenchmarks{metric} the runs agree on {} ({faster} {better}, {slower} \
         {worse}, {noise} within noise{of_clients}). They certainly differ on {}: {sizes} in the same direction \
         by different sizes, {differ} with a difference in one run and none in another, \
         {contradict} contradict. {uncertain} not certain.{unknown}",
        rows.clone().count(),
        faster + slower + noise + by_clients,
        sizes + differ + contradict,
    )
}

/// Relative QPS: one line per candidate, microbenchmark and column.
pub fn csv(comparison: &Comparison) -> String {
    // With the cell of CPU per query, where it is to be trusted.
    let cpu = |row: &RatioRow| comparison.cpu_of(row);
    let lines = comparison.qps.rows.iter().flat_map(|row| {
        let cells = comparison.columns.iter().zip(&row.cells).enumerate();
        cells.filter_map(move |(at, (column, cell))| {
            Some((row, column, cpu(row).and_then(|cpu| cpu.cells[at]), cell.as_ref()?))
        })
    });
    let run = |column: &super::Column| &comparison.runs[column.run];
    Csv::of(lines)
        .column("column", |(_, column, ..)| column.label.clone())
        .column("run", |(_, column, ..)| run(column).name.clone())
        .column("machine", |(_, column, ..)| column.machine.clone())
        .column("clients", |(_, column, ..)| column.clients.to_string())
        .column("baseline", |(_, column, ..)| column.baseline.clone())
        .column("candidate", |(row, ..)| row.candidate.clone())
        .column("group", |(row, ..)| row.group.clone())
        .column("microbenchmark", |(row, ..)| row.microbenchmark.clone())
        .ratio("relative_qps", |(.., cell)| cell.ratio)
        .ratio("ci_low", |(.., cell)| Some(cell.estimate?.low))
        .ratio("ci_high", |(.., cell)| Some(cell.estimate?.high))
        .column("verdict", |(.., cell)| cell.verdict.name().to_owned())
        .column("agreement", |(row, ..)| row.agreement.words(row.metric).to_owned())
        .column("directory", |(_, column, ..)| run(column).directory.clone())
        .column("started", |(_, column, ..)| run(column).started.clone())
        .column("difference_between", |(row, ..)| {
            let difference = row.difference.as_ref();
            difference
                .map_or_else(String::new, |one| comparison.quotient_label(one.later, one.earlier))
        })
        .ratios(["difference", "difference_low", "difference_high"], |(row, ..)| {
            Some(row.difference.as_ref()?.quotient)
        })
        .column("trusted_metric", |(row, ..)| {
            cpu(row).map_or(Metric::Qps, |cpu| cpu.metric).name().to_owned()
        })
        .ratio("relative_cpu", |(.., cpu, _)| cpu.as_ref()?.ratio)
        .ratio("relative_cpu_ci_low", |(.., cpu, _)| Some(cpu.as_ref()?.estimate?.low))
        .ratio("relative_cpu_ci_high", |(.., cpu, _)| Some(cpu.as_ref()?.estimate?.high))
        .column("cpu_verdict", |(.., cpu, _)| {
            cpu.as_ref().map_or("", |cell| cell.verdict.word(Metric::Cpu)).to_owned()
        })
        .column("cpu_agreement", |(row, ..)| {
            cpu(row).map_or("", |cpu| cpu.agreement.words(Metric::Cpu)).to_owned()
        })
        .text()
}

/// Absolute figures: one line per candidate, including the baseline, microbenchmark and column.
pub fn absolute_csv(comparison: &Comparison) -> String {
    let lines = comparison.absolute.iter().flat_map(|row| {
        let cells = row.cells.iter().enumerate();
        cells.filter(|(_, cell)| cell.is_some()).map(move |(column, _)| (row, column))
    });
    let column = |index: &usize| &comparison.columns[*index];
    let run = |index: &usize| &comparison.runs[column(index).run];
    let mut csv = Csv::of(lines)
        .column("column", |(_, at)| column(at).label.clone())
        .column("run", |(_, at)| run(at).name.clone())
        .column("directory", |(_, at)| run(at).directory.clone())
        .column("started", |(_, at)| run(at).started.clone())
        .column("machine", |(_, at)| column(at).machine.clone())
        .column("clients", |(_, at)| column(at).clients.to_string())
        .column("candidate", |(row, _)| row.candidate.clone())
        .column("group", |(row, _)| row.group.clone())
        .column("microbenchmark", |(row, _)| row.microbenchmark.clone())
        .column("unit", |(row, _)| row.throughput_unit.clone())
        .column("compared_with", |(_, at)| {
            let earlier = column(at).compared_with;
            earlier.map_or("", |earlier| comparison.label(earlier)).to_owned()
        });
    for (index, figure) in COMPARED.iter().enumerate() {
        let ComparedFigure { name, change, .. } = figure;
        let of = move |(row, at): &(&AbsoluteRow, usize)| row.value(*at, index).copied();
        let changes = ["", "_low", "_high"].map(|end| format!("{change}_change{end}"));
        csv = csv
            .column(*name, move |line| number(of(line).map(|one| one.value)))
            .column(format!("{name}_low"), move |line| {
                number(of(line).and_then(|one| Some(one.interval?.0)))
            })
            .column(format!("{name}_high"), move |line| {
                number(of(line).and_then(|one| Some(one.interval?.1)))
            })
            .ratio(&changes[0], move |line| Some(of(line)?.change?.ratio))
            .ratio(&changes[1], move |line| Some(of(line)?.change?.quotient?.low))
            .ratio(&changes[2], move |line| Some(of(line)?.change?.quotient?.high))
            .column(format!("{change}_verdict"), move |line| {
                let change = of(line).and_then(|value| value.change);
                change.map_or_else(String::new, |change| figure.word(change.verdict).to_owned())
            });
    }
    csv.text()
}
