//! Where a candidate needs another CPU time per query than the baseline: in words, layers, functions and flame graphs.

use dbdyno_profile::UNKNOWN;
use dbdyno_text::{Cell, Column, Fact, Facts, Interval, Row, Style, Table, Text, cut};
use dbdyno_units::{Share, grouped};

use super::{Block, Chart, Output, Section, csv_of_rows, instructions, rows, tone_of_time};
use crate::assemble::profile::share_of_differences;
use crate::charts::flame::Flame;
use crate::figures::{
    number, percent, percent_change, plus_minus, ratio, signed_us, size_of, tiny, us,
};
use crate::key_results::{Finding, Measured};
use crate::metric::with_clients;
use crate::model::Row as Compared;
use crate::model::{
    CounterFigure, LeastCertain, Metric, MicrobenchmarkRows, ProfileDifference, ProfileRow,
    ProfilingCost, RelativeCounter, Report, Role, Verdict, by_key,
};
use crate::profile_change::Remark;
use crate::words::joined;

/// Results of which a terminal has tables at most, instead of a few lines.
const FEW: usize = 3;

/// Layers that do not certainly differ are shown from this share of the CPU time on.
const LEAST_DIFFERENCE: f64 = 0.01;

/// Functions with this share of the CPU time of a candidate, with what they call, explain nothing.
const EVERYTHING: f64 = 0.9;

/// Share of the CPU time that was to be sampled from which on it was sampled.
const ENOUGH_SAMPLED: f64 = 0.95;

/// So many functions are shown where none certainly differs.
const UNCERTAIN: usize = 3;

const LONGEST_IN_TABLE: usize = 44;

const LONGEST_IN_SENTENCE: usize = 40;

const LONGEST_IN_HEADING: usize = 14;

const KEY: &str = "profile: CPU time per query in µs. Shares are those of sampled slices, scaled to the CPU time \
     of slices that were not sampled, so that rows add up to it. Not sampled: what the kernel does with interrupts off, \
     as when threads sleep and wake up, and sampling itself; all of the kernel if only user mode may be sampled. Within noise: not certain, with 5% false discoveries among \
     those that are, or not larger than the control's difference. More time is slower work or more work: executed \
     instructions and the engine's counters tell which. Moved: below the nearest caller that both have, the same \
     functions, or some of one side only, differ the other way, so the time is elsewhere there (inlining, tail calls, \
     other names, another order of calls).";

/// So many functions are shown.
const ON_TERMINAL: usize = 12;

const ON_PAGE: usize = 25;

/// A candidate with a profile on a microbenchmark.
#[derive(Clone, Copy)]
pub(crate) struct Explained<'r> {
    report: &'r Report,
    pub(crate) member: &'r MicrobenchmarkRows,
    pub(crate) row: &'r Compared,
    pub(crate) profile: &'r ProfileDifference,
}

/// Those of one candidate and one microbenchmark if they are named; the control only if it is named or alone.
pub(crate) fn explained<'r>(
    report: &'r Report,
    candidate: Option<&str>,
    microbenchmark: Option<&str>,
) -> Vec<Explained<'r>> {
    let is_alone = report.is_alone();
    let is_wanted = |row: &Compared| match candidate {
        Some(name) => row.candidate == name,
        None => is_alone || row.role == Role::Candidate,
    };
    let rows = rows(report).filter(|(member, row)| {
        microbenchmark.is_none_or(|name| member.name == name) && is_wanted(row)
    });
    let explained = rows.filter_map(|(member, row)| {
        Some(Explained { report, member, row, profile: row.profile.as_ref()? })
    });
    explained.collect()
}

/// The answer on a terminal: a section per result, and what it means; empty without results.
pub(crate) fn why(
    report: &Report,
    candidate: Option<&str>,
    microbenchmark: Option<&str>,
    everything: bool,
) -> Vec<Section> {
    let all = explained(report, candidate, microbenchmark);
    let is_short = all.len() > FEW && !everything;
    let most = (!everything).then_some(ON_TERMINAL);
    let section = |one: &Explained<'_>| {
        let mut section = Section::new("why", one.title());
        section.push(Text::new(one.answer()).style(Style::Strong));
        if is_short {
            section.push(one.largest());
            return section;
        }
        for (table, title, about) in one.tables(most) {
            section.title(title, about);
            section.push(table);
        }
        section.title("notes", "");
        section.push(one.notes());
        section
    };
    let mut sections: Vec<Section> = all.iter().map(section).collect();
    if !sections.is_empty() {
        let mut key = Section::new("key", "key");
        key.note(KEY);
        if is_short {
            key.note("dbdyno why DIR CANDIDATE MICROBENCHMARK prints layers and functions.");
        } else if !everything {
            key.note("--details prints all layers and functions.");
        }
        sections.push(key);
    }
    sections
}

/// The largest certain differences of all results.
pub(crate) fn summary(report: &Report, output: Output) -> Section {
    let mut section = Section::new("why", "Where CPU time differs");
    let all = explained(report, None, None);
    if all.is_empty() {
        return section;
    }
    if output == Output::Terminal {
        for one in &all {
            section.title(one.title(), "");
            section.push(Text::new(one.answer()));
            section.push(one.largest());
        }
        return section;
    }
    let names = ["microbenchmark", "candidate"].map(Column::name);
    let texts = ["layers, µs", "functions, µs"].map(Column::text);
    let columns = names.into_iter().chain([Column::number("difference µs")]).chain(texts);
    let mut table = Table::new(columns)
        .class("facts")
        .caption("Layers and functions with the largest certain differences in CPU time per query");
    for one in &all {
        let mut microbenchmark = Cell::text(one.title());
        if output == Output::Page {
            let mut members = report.microbenchmarks.iter();
            let index = members.position(|member| std::ptr::eq(member, one.member));
            microbenchmark = microbenchmark.link(format!("m{}", index.unwrap_or_default()));
        }
        table.push(Row::new([
            microbenchmark,
            Cell::text(&one.row.candidate),
            one.total(),
            Cell::number(one.list(&one.profile.layers, 3)),
            Cell::number(one.list(&one.profile.functions, 5)),
        ]));
    }
    section.push(table);
    for (_, of_candidate) in by_key(all.iter().map(|one| (&one.row.candidate, *one))) {
        if let Some(text) = unnamed(&of_candidate) {
            section.note(format!("{}: {text}", Remark::OneSide.word()));
        }
    }
    section.note(KEY);
    section
}

/// Where functions with samples on one side only may be on the other, in results of one candidate; `None` if nearly all
/// have a name.
fn unnamed(all: &[Explained<'_>]) -> Option<String> {
    let first = all.first()?;
    let names = [&first.row.candidate, &first.report.baseline];
    let at_most = if all.len() > 1 { "up to " } else { "" };
    let text = |side: usize| {
        let lacking = all.iter().map(|one| one.profile).filter(|one| one.lacks_names()[side]);
        let share = lacking.map(|one| one.unnamed[side].as_fraction()).reduce(f64::max)?;
        Some(format!(
            "{at_most}{} of {}’s time is in functions without a name: what is only named in {} may be \
             there",
            percent(Share::from_fraction(share)),
            names[side],
            names[1 - side]
        ))
    };
    joined([0, 1].into_iter().filter_map(text), "; ")
}

/// The profiles of a microbenchmark on the page.
pub(crate) fn of_microbenchmark(report: &Report, member: &MicrobenchmarkRows) -> Vec<Block> {
    let all = explained(report, None, Some(&member.name));
    let all: Vec<_> = all.into_iter().filter(|one| std::ptr::eq(one.member, member)).collect();
    let mut blocks: Vec<Block> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        blocks.push(Text::default().strong(one.answer()).into());
        let mut tables = one.tables(Some(ON_PAGE)).into_iter();
        blocks.extend(tables.next().map(|(table, ..)| Block::Table(table)));
        let functions = tables.flat_map(|(table, title, about)| {
            [Block::Title(title.to_owned(), about), Block::Table(table)]
        });
        let candidate = &one.row.candidate;
        let all_functions = Text::new("functions.csv has all functions.").style(Style::Dim);
        let functions = functions.chain([all_functions.into()]).collect();
        blocks.push(Block::Details(format!("Functions of {candidate}"), functions));
        blocks.extend(one.flame_graphs(at == 0));
        blocks.push(one.notes().into());
    }
    if !blocks.is_empty() {
        blocks.push(Text::new(KEY).style(Style::Dim).into());
    }
    blocks
}

impl Explained<'_> {
    fn title(&self) -> String {
        with_clients(&self.member.name, self.member.clients, self.report.is_sweep())
    }

    fn finding(&self) -> Finding {
        let measured = Measured { microbenchmark: self.member, row: self.row };
        Finding::beside(&[measured], Metric::Cpu, None)
    }

    /// A difference that may be noise because of the control is none. Background work is not in the rows.
    fn verdict(&self) -> Verdict {
        if self.finding().is_of_control() { Verdict::WithinNoise } else { self.row.cpu_verdict }
    }

    /// Whether the CPU time per query certainly differs, and that of the rows, without background work, as well.
    fn is_certain(&self) -> bool {
        let contains_none = |[low, high]: [f64; 2]| low <= 0.0 && high >= 0.0;
        self.verdict().is_certain() && !self.profile.interval_us.is_some_and(contains_none)
    }

    fn difference_us(&self) -> f64 {
        let [us, baseline_us] = self.profile.total_us;
        us - baseline_us
    }

    /// The difference in a sentence.
    fn answer(&self) -> String {
        let [own, base] = self.profile.total_us.map(us);
        let (candidate, baseline) = (&self.row.candidate, &self.report.baseline);
        let (word, sign) = if self.difference_us() < 0.0 { ("less", -1.0) } else { ("more", 1.0) };
        let needs = format!(
            "{candidate} needs {} µs {word} CPU time per query than {baseline} ({own} against {base}",
            us(self.difference_us().abs())
        );
        match (self.profile.interval_us, self.why_other_verdict()) {
            (None, _) => format!("{needs}; too few blocks for an interval)"),
            (Some(_), Some(reason)) if self.is_certain() => format!("{needs}; {reason})"),
            (Some(ends), _) if self.is_certain() => {
                let mut ends = ends.map(|end| sign * end);
                ends.sort_unstable_by(f64::total_cmp);
                format!("{needs}; 95%: {} to {})", us(ends[0]), us(ends[1]))
            }
            (Some([low, high]), reason) => format!(
                "no certain difference in CPU time per query between {candidate} and {baseline} \
                 ({own} against {base} µs; 95%: {} to {}{})",
                signed_us(low),
                signed_us(high),
                reason.map_or_else(String::new, |reason| format!("; {reason}"))
            ),
        }
    }

    /// Why the verdict is not the one that the interval suggests; `None` if it is. The interval is around the difference
    /// of sums over slices, to which rows add up; the verdict is that of the median ratio, as in all reports.
    fn why_other_verdict(&self) -> Option<String> {
        let ([low, high], cpu) = (self.profile.interval_us?, self.row.relative_cpu?);
        let is_expected = match self.verdict() {
            Verdict::Worse => low > 0.0,
            Verdict::Better => high < 0.0,
            Verdict::Failed => return Some("one of them failed".to_owned()),
            _ => low <= 0.0 && high >= 0.0,
        };
        if is_expected {
            return None;
        }
        let [median, low, high] = [cpu.median, cpu.low, cpu.high].map(percent_change);
        let of_ratio = format!(
            "the verdict is by the median ratio, with CPU time between slices: {median}, 95%: \
             {low} to {high}"
        );
        let floor = self.report.floor_of(Metric::Cpu, self.member);
        let is_noise = !self.verdict().is_certain() && !cpu.contains_one();
        let Some(floor) = floor.filter(|_| is_noise) else { return Some(of_ratio) };
        let own = self.member.control().and_then(|row| row.counted(Metric::Cpu));
        let is_own = own.is_some_and(|own| own.distance() >= floor.as_fraction());
        let typically = if is_own { "" } else { "typically " };
        let floor_us = floor.as_fraction() * self.profile.total_us[1];
        let differs = || format!("the control {typically}differs by {} µs", us(floor_us));
        let of_control = self.finding().noisy_control().unwrap_or_else(differs);
        let is_like_control = self.verdict() != self.row.cpu_verdict;
        Some(match is_like_control || self.difference_us().abs() <= floor_us {
            true => of_control,
            false => format!("{of_ratio}; {of_control}"),
        })
    }

    /// The largest certain differences in a few lines.
    fn largest(&self) -> Facts {
        let parts =
            [("layers", &self.profile.layers, 3), ("functions", &self.profile.functions, 5)];
        let none = || "no certain difference".to_owned();
        let fact = |(label, rows, most): (&str, &Vec<ProfileRow>, usize)| {
            Fact::new(label, self.list(rows, most).unwrap_or_else(none))
        };
        let unnamed = unnamed(&[*self]).map(|text| Fact::new("unnamed", text));
        Facts::new(parts.into_iter().map(fact).chain(unnamed)).indent(2)
    }

    /// The certain differences among rows, the largest first; `None` without any.
    fn list(&self, rows: &[ProfileRow], most: usize) -> Option<String> {
        let text = |one: &ProfileRow| {
            let name = cut(&one.name, LONGEST_IN_SENTENCE);
            let remark = self.of_certain(one).map(|remark| format!(" ({remark})"));
            format!("{name} {}{}", signed_us(one.difference()), remark.unwrap_or_default())
        };
        joined(self.certain(rows.iter(), most).into_iter().map(text), ", ")
    }

    /// The largest certain differences, then as many that may not be of work: moved ones, and with many functions without
    /// a name, those of one side only.
    fn certain<'p>(
        &self,
        rows: impl Iterator<Item = &'p ProfileRow>,
        most: usize,
    ) -> Vec<&'p ProfileRow> {
        let is_sure = |one: &&ProfileRow| !self.remark_of(one).is_some_and(Remark::is_doubtful);
        let (first, last): (Vec<&ProfileRow>, Vec<&ProfileRow>) =
            rows.filter(|one| one.certain).partition(is_sure);
        first.into_iter().take(most).chain(last.into_iter().take(most)).collect()
    }

    /// A part of the difference in percent; `None` if there may be no difference.
    fn share(&self, part_us: f64) -> Option<String> {
        let percent = 100.0 * part_us / self.difference_us();
        self.is_certain().then(|| match percent {
            ..-0.5 => format!("−{:.0}%", percent.abs()),
            ..0.5 => "<1%".to_owned(),
            _ => format!("{percent:.0}%"),
        })
    }

    /// Tables of layers, system calls, functions, and functions with what they call, with their titles. `most`
    /// functions; everything without it.
    fn tables(&self, most: Option<usize>) -> Vec<(Table, &'static str, String)> {
        let ProfileDifference { layers, system_calls, functions, with_callees, .. } = self.profile;
        let total_us = self.profile.total_us;
        let everything = most.is_none();
        let least = LEAST_DIFFERENCE * total_us[0].max(total_us[1]);
        let is_large = |one: &&ProfileRow| one.certain || one.difference().abs() >= least;
        let shown: Vec<&ProfileRow> =
            layers.iter().filter(|one| everything || is_large(one)).collect();
        let mut of_layers = self.table("layer", &shown, ("layers", layers));
        of_layers.push(self.sum());
        let mut tables = vec![(of_layers, "layers", "µs per query".to_owned())];
        let shown: Vec<&ProfileRow> =
            system_calls.iter().filter(|one| everything || one.certain).collect();
        if !shown.is_empty() {
            let of_calls = self.table("system call", &shown, ("entries", system_calls));
            tables.push((of_calls, "kernel", "µs per query, by system call".to_owned()));
        }
        let most = most.unwrap_or(usize::MAX);
        let mut shown: Vec<&ProfileRow> = match everything {
            true => functions.iter().collect(),
            false => self.certain(functions.iter(), most),
        };
        if shown.is_empty() {
            shown = functions.iter().take(UNCERTAIN).collect();
        }
        let of_functions = self.table("function", &shown, ("functions", functions));
        let mut about = "µs per query, without what they call".to_owned();
        about.extend(unnamed(&[*self]).map(|unnamed| format!("; {unnamed}")));
        tables.push((of_functions, "functions", about));
        let is_nearly_all = |time: f64, total: f64| time == 0.0 || time >= EVERYTHING * total;
        let has_everything = |one: &&ProfileRow| {
            is_nearly_all(one.us, total_us[0]) && is_nearly_all(one.baseline_us, total_us[1])
        };
        let shown = self.certain(with_callees.iter().filter(|one| !has_everything(one)), most);
        if !shown.is_empty() {
            let about =
                "µs per query; certain differences, without functions that have 90% of the time";
            let with_callees = self.table("with what it calls", &shown, ("", &[]));
            tables.push((with_callees, "functions with what they call", about.to_owned()));
        }
        tables
    }

    /// A table of some rows, and the sum of the others of `all`, which are `several`.
    fn table(
        &self,
        what: &'static str,
        rows: &[&ProfileRow],
        (several, all): (&str, &[ProfileRow]),
    ) -> Table {
        let names = [self.report.baseline.as_str(), self.row.candidate.as_str(), "difference"];
        let numbers = names.map(|name| Column::number(cut(name, LONGEST_IN_HEADING)));
        let remarks = if self.is_certain() { "of the difference" } else { "" };
        let first = Column::name(what).most(LONGEST_IN_TABLE);
        let is_counted = what == "function" && self.profile.instructions.is_some();
        let executed = is_counted.then(|| Column::number("executed"));
        let remarks = [Column::text(remarks)];
        let columns = [first].into_iter().chain(numbers).chain(executed).chain(remarks);
        let mut table = Table::new(columns)
            .class("facts operations")
            .caption(format!("CPU time per query of {}, by {what}", self.row.candidate));
        let time = |time: f64| if time > 0.0 { Cell::text(us(time)) } else { Cell::dash() };
        for one in rows {
            let cells = [
                Cell::text(&one.name),
                time(one.baseline_us),
                time(one.us),
                difference(one.difference(), Some(one.half_width_us), one.certain),
            ];
            let executed = is_counted.then(|| instructions::cell(self.profile, &one.name));
            let remark = [Cell::text(self.remark(one))];
            table.push(Row::new(cells.into_iter().chain(executed).chain(remark)));
        }
        if rows.len() < all.len() {
            let names: Vec<&str> = rows.iter().map(|one| one.name.as_str()).collect();
            let others = all.iter().filter(|one| !names.contains(&one.name.as_str()));
            let (mut own, mut base) = (0.0, 0.0);
            others.for_each(|one| (own, base) = (own + one.us, base + one.baseline_us));
            let name = format!("{} other {several}", all.len() - rows.len());
            let cells = [name, us(base), us(own), signed_us(own - base)].map(Cell::text);
            let executed = is_counted.then(Cell::dash);
            let share = [Cell::text(self.share(own - base).unwrap_or_default())];
            table.push(Row::new(cells.into_iter().chain(executed).chain(share)));
        }
        table
    }

    fn sum(&self) -> Row {
        let sum = |of: fn(&ProfileRow) -> f64| {
            Cell::text(us(self.profile.layers.iter().map(of).sum::<f64>()))
        };
        let whole = self.share(self.difference_us()).unwrap_or_else(|| "within noise".to_owned());
        Row::new([
            Cell::text("sum"),
            sum(|one| one.baseline_us),
            sum(|one| one.us),
            self.total(),
            Cell::text(whole),
        ])
    }

    /// The whole difference with the interval of the answer, which need not be centred on it.
    fn total(&self) -> Cell {
        let ends = self.profile.interval_us.map(|ends| ends.map(signed_us).join(", "));
        let interval = ends.map(|ends| Interval { ends, plus_minus: String::new() });
        difference(self.difference_us(), None, self.is_certain()).interval(interval)
    }

    /// What there is to say about a row: its share of the difference, whether one of both lacks it.
    fn remark(&self, one: &ProfileRow) -> String {
        if !one.certain {
            return "within noise".to_owned();
        }
        self.of_certain(one).unwrap_or_else(|| "certain".to_owned())
    }

    fn of_certain(&self, one: &ProfileRow) -> Option<String> {
        let remark = self.remark_of(one).map(|it| it.word().to_owned());
        joined(self.share(one.difference()).into_iter().chain(remark), ", ")
    }

    fn remark_of(&self, one: &ProfileRow) -> Option<Remark> {
        let lacks_names = self.profile.lacks_names().contains(&true);
        Remark::of([one.us, one.baseline_us], one.moved, lacks_names)
    }

    fn flame_graphs(&self, with_baseline: bool) -> Option<Block> {
        let (candidate, baseline) = (&self.row.candidate, &self.report.baseline);
        let [own, base] = &self.profile.stacks;
        if own.stacks.is_empty() || base.stacks.is_empty() {
            return None;
        }
        let own = Flame::of_candidate(candidate, baseline, self.profile);
        let base = with_baseline.then(|| Flame::of_baseline(baseline, self.profile));
        let title = match with_baseline {
            true => format!("Flame graphs of {candidate} and {baseline}"),
            false => format!("Flame graph of {candidate}"),
        };
        let charts = [own].into_iter().chain(base);
        let blocks = charts.map(|one| Block::Chart(Chart::Flame(Box::new(one)))).collect();
        Some(Block::Details(title, blocks))
    }

    fn notes(&self) -> Facts {
        let notes = [
            ("instructions", self.instructions()),
            ("counters", self.counters()),
            ("named", Some(self.named())),
            ("control", self.control()),
            ("precision", Some(self.precision())),
            ("samples", Some(self.samples())),
            ("sampled time", self.sampled_time()),
            ("background", self.background()),
        ];
        let known = notes.into_iter().filter_map(|(label, text)| Some(Fact::new(label, text?)));
        Facts::new(known)
    }

    /// Whether there is more work or slower work.
    fn instructions(&self) -> Option<String> {
        let names = [self.row.candidate.as_str(), self.report.baseline.as_str()];
        let counted = joined(instructions::sentences(self.profile, names), "; ");
        if counted.is_some() {
            return counted;
        }
        let cpu = self.row.relative_cpu.filter(|_| self.is_certain())?;
        let word = if cpu.median.get() < 1.0 { "less" } else { "more" };
        let time = format!("{} {word} CPU time", size_of(cpu.median));
        let executed = self.row.relative_counters.get(&CounterFigure::InstructionsPerQuery);
        let Some(&executed) = executed else {
            let text =
                "not counted (--instructions), so that more work cannot be told from slower work";
            return Some(text.to_owned());
        };
        let (size, half) = (size_of(executed.median), plus_minus(executed));
        let [fewer, less] = [executed, cpu].map(|one| one.median.get() < 1.0);
        let also = if fewer == less { "and" } else { "but" };
        let is_precise = executed.half_width().as_fraction() < cpu.median.distance() / 2.0;
        Some(match (executed.contains_one(), fewer) {
            (true, _) if is_precise => {
                format!("as many per query ({half}): the same work, but {time}")
            }
            (true, _) => format!("{half} per query: too uncertain for {time}"),
            (false, true) => format!("{size} fewer per query ({half}), {also} {time}"),
            (false, false) => format!("{size} more per query ({half}), {also} {time}"),
        })
    }

    /// The most relevant counters of the engine.
    fn counters(&self) -> Option<String> {
        let baseline = &self.report.baseline;
        let candidate = &self.row.candidate;
        let text = |one: &RelativeCounter| {
            let name = &one.counter;
            let [own, base] = [one.per_query, one.baseline_per_query].map(tiny);
            match (one.only_one_has_it, one.per_query > 0.0) {
                (false, _) => format!("{name} {own} per query against {base}"),
                (true, true) => format!("{name} {own} per query, only {candidate} has it"),
                (true, false) => {
                    format!("{name} {base} per query of {baseline}, which only it has")
                }
            }
        };
        let largest = joined(self.row.engine_counters.iter().take(3).map(text), "; ");
        largest.map(|largest| format!("of the engine: {largest}"))
    }

    /// How much of the differences has a name.
    fn named(&self) -> String {
        let known = |unknown: Share| percent(Share::from_fraction(1.0 - unknown.as_fraction()));
        let layers = share_of_differences(&self.profile.layers, |one| one.name == UNKNOWN);
        format!(
            "{} of the differences, without their signs, are in functions with a name or a source file, {} \
             in known layers",
            known(self.profile.unknown),
            known(layers)
        )
    }

    fn control(&self) -> Option<String> {
        let control = self.member.control().filter(|row| row.candidate != self.row.candidate)?;
        let functions = &control.profile.as_ref()?.functions;
        let largest = functions.first()?;
        let certain = functions.iter().filter(|one| one.certain).count();
        let certain = if certain == 0 { "no".to_owned() } else { certain.to_string() };
        Some(format!(
            "{certain} certain difference among {} functions; its largest is {} µs in {}: the noise \
             floor. Only a difference larger than the control’s of the same function is certain",
            functions.len(),
            signed_us(largest.difference()),
            cut(&largest.name, LONGEST_IN_SENTENCE)
        ))
    }

    fn precision(&self) -> String {
        let LeastCertain { new_us, change_us } = self.profile.least;
        format!(
            "smallest certain difference with these samples: {} µs of a new function, {} µs of one \
             that takes {:.0}% of {}’s time; more where the control differs by more",
            us(new_us),
            us(change_us),
            100.0 * LeastCertain::SHARE,
            self.report.baseline
        )
    }

    /// CPU time of the server between slices, which is reported, but not sampled.
    fn background(&self) -> Option<String> {
        let all = [&self.row.absolute, &self.member.baseline];
        let times = all.map(|one| one.background_cpu_us_per_query.unwrap_or(0.0));
        let is_much = times.iter().zip(self.profile.total_us).any(|(time, all)| *time > 0.01 * all);
        let [own, base] = times.map(us);
        is_much.then(|| {
            format!(
                "{own} µs per query of {} and {base} of {} are spent between slices; they are reported, \
                 and not sampled",
                self.row.candidate, self.report.baseline
            )
        })
    }

    /// The CPU time that was sampled, what was asked for, and what to do if it is less; `None` if it is unknown.
    fn sampled_time(&self) -> Option<String> {
        let ProfileDifference { sampled_cpu: [own, base], asked_cpu, .. } = *self.profile;
        let asked = asked_cpu?;
        let (candidate, baseline) = (&self.row.candidate, &self.report.baseline);
        let text = format!(
            "{own} CPU time of {candidate} and {base} of {baseline}; {asked} of each were requested"
        );
        let least = ENOUGH_SAMPLED * asked.as_secs_f64();
        let times = [(own, candidate), (base, baseline)].into_iter();
        let short = times.filter(|(time, _)| time.as_secs_f64() < least);
        Some(match joined(short.map(|(_, name)| name.clone()), " and ") {
            None => text,
            Some(names) => format!(
                "{text}. {names} used less than that in the sampled slices: a server that waits uses none, and a \
                 start that was not sampled adds none. Only larger differences are certain; set a longer \
                 `time` in [profile], or measure with more clients"
            ),
        })
    }

    fn samples(&self) -> String {
        let ProfileDifference { samples, cut, lost, cost, .. } = self.profile;
        let [own, base] = samples.map(grouped);
        let [of_own, of_base] = cost.map(cost_of_profiling);
        let lost = match lost {
            0 => String::new(),
            lost => format!(
                "{} of any process were lost, as a buffer was full: what is at the end of slices has \
                 less than its share; ",
                grouped(*lost)
            ),
        };
        format!(
            "{own} of {} and {base} of {}; {lost}{cut} of the stacks were cut; CPU time per query while \
             sampling was {of_own} and {of_base} times that of other slices",
            self.row.candidate, self.report.baseline
        )
    }
}

/// `1.024 (1.011 to 1.037)`.
pub(super) fn cost_of_profiling(cost: Option<ProfilingCost>) -> String {
    let Some(ProfilingCost { relative_cpu, interval }) = cost else { return "unknown".to_owned() };
    let interval = interval.map(|[low, high]| format!(" ({} to {})", ratio(low), ratio(high)));
    format!("{}{}", ratio(relative_cpu), interval.unwrap_or_default())
}

fn difference(size_us: f64, half_width_us: Option<f64>, is_certain: bool) -> Cell {
    let interval = half_width_us.map(|half| {
        let half = format!("±{}", us(half));
        Interval { ends: half.clone(), plus_minus: half }
    });
    Cell::text(signed_us(size_us)).tone(tone_of_time(size_us, is_certain)).interval(interval)
}

/// One line per microbenchmark, candidate and layer, system call or function.
pub(crate) fn functions_csv(report: &Report) -> String {
    let lines = csv_of_rows(report, |row| {
        row.profile.iter().flat_map(|profile| {
            let layers = profile.layers.iter().map(|one| ("layer", one));
            let calls = profile.system_calls.iter().map(|one| ("system call", one));
            let functions = profile.functions.iter().map(|one| ("function", one));
            let with_callees = profile.with_callees.iter();
            let with_callees = with_callees.map(|one| ("function with callees", one));
            layers.chain(calls).chain(functions).chain(with_callees)
        })
    });
    lines
        .column("kind", |(.., (kind, _))| (*kind).to_owned())
        .column("name", |(.., (_, one))| one.name.clone())
        .column("baseline_us_per_query", |(.., (_, one))| number(Some(one.baseline_us)))
        .column("us_per_query", |(.., (_, one))| number(Some(one.us)))
        .column("difference_us", |(.., (_, one))| number(Some(one.difference())))
        .column("half_width_us", |(.., (_, one))| number(Some(one.half_width_us)))
        .column("certain", |(.., (_, one))| one.certain.to_string())
        .column("baseline_instructions_per_query", |(_, row, (kind, one))| {
            number(executed(row, kind, &one.name)[1])
        })
        .column("instructions_per_query", |(_, row, (kind, one))| {
            number(executed(row, kind, &one.name)[0])
        })
        .column("moved", |(.., (_, one))| one.moved.to_string())
        .text()
}

/// Executed instructions per query of a function, of the candidate and the baseline.
fn executed(row: &Compared, kind: &str, name: &str) -> [Option<f64>; 2] {
    let profile = row.profile.as_ref().filter(|_| kind == "function");
    profile.map(|profile| instructions::of_function(profile, name)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
