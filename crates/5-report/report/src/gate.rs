//! A gate for continuous integration: rules such as `slower 2%`, and what a run says about them.
//!
//! A rule is broken only by a difference that is certain: the whole 95% interval is beyond the limit,
//! and beyond the noise floor if that is larger. With `--strict`, an interval that contains the limit
//! fails as well.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::{fmt, io};

use dbdyno_document::did_you_mean;
use dbdyno_stats::{Estimate, MIN_RESTARTS, Quotient};
use dbdyno_text::{Cell, Column, NoChart, Section, Table, break_name, code, escape, plain, wrap};
use dbdyno_units::{Nanos, Ratio, Share};
use quick_xml::Writer;
use quick_xml::events::BytesText;

use crate::figures::{percent, size_of};
use crate::key_results::{Finding, change};
use crate::metric::{Grouping, clients};
use crate::model::{Metric, MicrobenchmarkRows, Report, Row, RunStatus, Verdict, compared_names};

/// What a run says about one rule.
#[derive(Debug)]
pub struct Judged<'a> {
    pub rule: &'a Rule,
    /// Whether an interval that contains the limit fails.
    pub strict: bool,
    /// One for each candidate, microbenchmark (or group) and number of clients that the rule is about.
    pub comparisons: Vec<Comparison>,
}

#[derive(Debug)]
pub struct Comparison {
    pub candidate: String,
    /// Its name in reports.
    pub group: String,
    /// The microbenchmark; `None` for a whole group.
    pub microbenchmark: Option<String>,
    /// The number of clients, in a run with several numbers.
    pub clients: Option<u32>,
    pub metric: Metric,
    /// The difference that is permitted: the rule's, or the noise floor if that is larger.
    pub limit: Share,
    /// The measuring time of its microbenchmarks, of all candidates.
    pub time: Nanos,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Certainly worse by more than the limit.
    Broken(Quotient),
    /// Certainly not worse by more than the limit.
    Kept(Quotient),
    /// The interval contains the limit, or what is beyond the rule's is not beyond the noise floor.
    Uncertain(Quotient),
    /// Nothing is known, for this reason.
    NotJudged(&'static str),
}

/// The reason if the candidate or the baseline failed.
const FAILED: &str = "it failed";

/// The reason if the run ended before.
const NOT_MEASURED: &str = "not measured";

impl Comparison {
    pub const fn is_broken(&self) -> bool {
        matches!(self.outcome, Outcome::Broken(_))
    }
}

impl Judged<'_> {
    pub fn is_broken(&self) -> bool {
        self.comparisons.iter().any(Comparison::is_broken)
    }

    /// Whether it fails because an interval contains the limit.
    pub fn is_uncertain(&self) -> bool {
        self.strict && self.count(|one| matches!(one, Outcome::Uncertain(_))) > 0
    }

    /// Whether a comparison fails.
    fn fails(&self, one: &Comparison) -> bool {
        one.is_broken() || self.strict && matches!(one.outcome, Outcome::Uncertain(_))
    }

    /// Whether nothing is known about any comparison of a candidate: such a rule does not protect from it.
    pub fn is_unknown(&self) -> bool {
        let is_unknown =
            |of: &[Comparison]| of.iter().all(|one| matches!(one.outcome, Outcome::NotJudged(_)));
        let mut candidates = self.comparisons.chunk_by(|a, b| a.candidate == b.candidate);
        self.comparisons.is_empty() || candidates.any(is_unknown)
    }

    /// Whether a candidate failed in a microbenchmark that the rule is about.
    pub fn has_failed(&self) -> bool {
        self.comparisons.iter().any(|one| one.outcome == Outcome::NotJudged(FAILED))
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.comparisons.iter().filter(|one| is(&one.outcome)).count()
    }
}

/// Judges a run by rules.
pub fn judge<'a>(
    report: &Report,
    rules: &'a [Rule],
    strict: bool,
) -> Result<Vec<Judged<'a>>, InvalidRule> {
    let candidates = compared_names(&[report]);
    let parts = planned(report).flat_map(|one| [&one.name, &one.group, &one.three_group]);
    let parts: BTreeSet<&str> = parts.map(String::as_str).collect();
    let parts: Vec<&str> = parts.into_iter().collect();
    let mut judged = Vec::new();
    for rule in rules {
        rule.check_names(&candidates, &parts)?;
        let candidates = candidates.iter().filter(|name| rule.is_about(name));
        let comparisons = candidates.flat_map(|name| comparisons(report, rule, name)).collect();
        judged.push(Judged { rule, strict, comparisons });
    }
    Ok(judged)
}

/// All microbenchmarks of the run, those that were not measured last.
fn planned(report: &Report) -> impl Iterator<Item = &MicrobenchmarkRows> {
    report.microbenchmarks.iter().chain(&report.unmeasured)
}

/// The comparisons of one candidate that a rule is about.
fn comparisons(report: &Report, rule: &Rule, candidate: &str) -> Vec<Comparison> {
    let context = Context { report, rule, candidate };
    if let Some(part) = rule.part.as_deref() {
        for grouping in [Grouping::Five, Grouping::Three] {
            let members: Vec<_> = planned(report).filter(|one| grouping.of(one) == part).collect();
            if !members.is_empty() {
                return context.group(part, &members);
            }
        }
    }
    let is_meant =
        |one: &&MicrobenchmarkRows| rule.part.as_deref().is_none_or(|part| part == one.name);
    planned(report).filter(is_meant).map(|one| context.microbenchmark(one)).collect()
}

/// A rule and the candidate that is compared with the baseline.
struct Context<'a> {
    report: &'a Report,
    rule: &'a Rule,
    candidate: &'a str,
}

impl Context<'_> {
    /// The metric of the rule for a row.
    fn metric(&self, row: &Row) -> Metric {
        match self.rule.quantity {
            Quantity::Slower => Metric::Qps,
            Quantity::MoreCpu => Metric::Cpu,
            Quantity::Worse => row.trusted_metric,
        }
    }

    /// Why there is no row. A baseline that failed elsewhere has nothing to do with the missing row of a
    /// candidate.
    fn missing(&self, microbenchmark: &MicrobenchmarkRows) -> &'static str {
        let baseline = &self.report.baseline;
        let mut failed = self.report.failures.iter().map(|failure| &failure.candidate);
        let is_reason = |name: &String| {
            name == self.candidate || name == baseline && microbenchmark.rows.is_empty()
        };
        if failed.any(is_reason) { FAILED } else { NOT_MEASURED }
    }

    fn microbenchmark(&self, microbenchmark: &MicrobenchmarkRows) -> Comparison {
        let row = microbenchmark.row(self.candidate);
        let metric = row.map_or(Metric::Qps, |row| self.metric(row));
        let limit = self.limit(self.report.floor_of(metric, microbenchmark));
        let outcome = match row.map(|row| (row.verdict_of(metric), row.estimate(metric))) {
            None => Outcome::NotJudged(self.missing(microbenchmark)),
            Some((Verdict::Failed, _)) => Outcome::NotJudged(FAILED),
            Some((Verdict::ClientBound, _)) => Outcome::NotJudged("client-bound"),
            Some((_, None)) => Outcome::NotJudged(match metric {
                Metric::Qps => "too few blocks",
                Metric::Cpu => "CPU time is unknown, or too few blocks",
            }),
            Some(_) if self.has_few_starts(row) => Outcome::NotJudged("too few starts"),
            Some((_, Some(Estimate { median, low, high, .. }))) => {
                self.judge(metric, limit, Quotient { ratio: median, low, high })
            }
        };
        let name = Some(microbenchmark.name.clone());
        let (group, clients) = (&microbenchmark.group, microbenchmark.clients);
        let place = (group.as_str(), name, clients, microbenchmark.measuring_time);
        self.comparison(place, metric, limit, outcome)
    }

    /// A whole group, at each number of clients. Reads and writes are apart if the rule's metric differs.
    /// Members that are not in its figure are listed with their reasons, or the group with the reason if
    /// it is the same for all.
    fn group(&self, group: &str, members: &[&MicrobenchmarkRows]) -> Vec<Comparison> {
        let steps: BTreeSet<u32> = members.iter().map(|member| member.clients).collect();
        let mut comparisons = Vec::new();
        for clients in steps {
            let mut rows: Vec<&Row> = Vec::new();
            let mut left_out: Vec<Comparison> = Vec::new();
            for member in members.iter().filter(|member| member.clients == clients) {
                let alone = self.microbenchmark(member);
                match (alone.outcome, member.row(self.candidate)) {
                    (Outcome::NotJudged(_), _) | (_, None) => left_out.push(alone),
                    (_, Some(row)) => rows.push(row),
                }
            }
            let is_same = left_out.windows(2).all(|pair| pair[0].outcome == pair[1].outcome);
            if rows.is_empty() && is_same {
                left_out.truncate(1);
                for one in &mut left_out {
                    (one.group, one.microbenchmark) = (self.report.group_label(group), None);
                }
            }
            comparisons.extend(left_out);
            let of_step = members.iter().filter(|member| member.clients == clients);
            let time: Nanos = of_step.map(|member| member.measuring_time).sum();
            for metric in [Metric::Qps, Metric::Cpu] {
                let of_metric = rows.iter().copied().filter(|row| self.metric(row) == metric);
                let of_metric: Vec<&Row> = of_metric.collect();
                let noise = self.report.noise_of(metric);
                let finding = Finding::of(metric, &of_metric, noise);
                let Some((ratio, (low, high))) = finding.ratio.zip(finding.interval) else {
                    continue;
                };
                let limit = self.limit(noise);
                let outcome = self.judge(metric, limit, Quotient { ratio, low, high });
                let place = (group, None, clients, time);
                comparisons.push(self.comparison(place, metric, limit, outcome));
            }
        }
        comparisons
    }

    /// The rule's limit, or the noise floor if that is larger.
    fn limit(&self, floor: Option<Share>) -> Share {
        let least = self.rule.limit.as_fraction();
        Share::from_fraction(floor.map_or(least, |floor| floor.as_fraction().max(least)))
    }

    /// Judges by the larger of both limits. What is beyond the rule's own is not kept because the control is as far away.
    fn judge(&self, metric: Metric, limit: Share, interval: Quotient) -> Outcome {
        match judge_interval(metric, limit, interval) {
            Outcome::Kept(_) => match judge_interval(metric, self.rule.limit, interval) {
                Outcome::Kept(_) => Outcome::Kept(interval),
                _ => Outcome::Uncertain(interval),
            },
            known => known,
        }
    }

    /// Whether the run has ended before the starts that an interval is to be over: what a single one differs by would be
    /// certain.
    fn has_few_starts(&self, row: Option<&Row>) -> bool {
        let least = self.report.planned_restarts.unwrap_or(1).min(MIN_RESTARTS as u32) as usize;
        self.report.status != RunStatus::Complete
            && row.is_some_and(|row| row.restart_medians.len() < least)
    }

    fn comparison(
        &self,
        (group, microbenchmark, clients, time): (&str, Option<String>, u32, Nanos),
        metric: Metric,
        limit: Share,
        outcome: Outcome,
    ) -> Comparison {
        let is_sweep = planned(self.report).any(|one| one.clients != clients);
        Comparison {
            candidate: self.candidate.to_owned(),
            group: match microbenchmark {
                Some(_) => group.to_owned(),
                None => self.report.group_label(group),
            },
            microbenchmark,
            clients: is_sweep.then_some(clients),
            metric,
            limit,
            time,
            outcome,
        }
    }
}

/// Whether an interval is beyond a limit.
fn judge_interval(metric: Metric, limit: Share, interval: Quotient) -> Outcome {
    let Quotient { low, high, .. } = interval;
    let (is_beyond, reaches) = match metric {
        Metric::Qps => {
            let worst = 1.0 - limit.as_fraction();
            (high.get() < worst, low.get() < worst)
        }
        Metric::Cpu => {
            let worst = 1.0 + limit.as_fraction();
            (low.get() > worst, high.get() > worst)
        }
    };
    match (is_beyond, reaches) {
        (true, _) => Outcome::Broken(interval),
        (false, true) => Outcome::Uncertain(interval),
        (false, false) => Outcome::Kept(interval),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Slower,
    MoreCpu,
    /// The metric to trust: more CPU time per query for writes and for one client of a server, less
    /// throughput otherwise.
    Worse,
}

/// A rule: `slower 2%`, `more-cpu 5% in writes`, `worse 3% in point-1 of new`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    quantity: Quantity,
    limit: Share,
    part: Option<String>,
    candidate: Option<String>,
}

/// A rule that cannot be understood, or names something that the run does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rule `{rule}`: {reason}")]
pub struct InvalidRule {
    rule: String,
    reason: String,
}

const QUANTITIES: [(&str, Quantity); 3] =
    [("slower", Quantity::Slower), ("more-cpu", Quantity::MoreCpu), ("worse", Quantity::Worse)];

const FORM: &str = "write `slower 2%`, `more-cpu 2%` or `worse 2%`, then maybe `in` with a group or \
                    microbenchmark, and `of` with a candidate";

impl Rule {
    /// Whether the rule is about this candidate.
    pub fn is_about(&self, candidate: &str) -> bool {
        self.candidate.as_deref().is_none_or(|wanted| wanted == candidate)
    }

    /// Checks the names in the rule. `parts` are groups and microbenchmarks.
    pub fn check_names(&self, candidates: &[&str], parts: &[&str]) -> Result<(), InvalidRule> {
        let known = |what: &str, wanted: Option<&str>, names: &[&str]| match wanted {
            Some(wanted) if !names.contains(&wanted) => {
                let help = did_you_mean(wanted, names);
                Err(self.invalid(format!("the run has no {what} `{wanted}`; {help}")))
            }
            _ => Ok(()),
        };
        known("candidate", self.candidate.as_deref(), candidates)?;
        known("group or microbenchmark", self.part.as_deref(), parts)
    }

    fn invalid(&self, reason: String) -> InvalidRule {
        InvalidRule { rule: self.text.clone(), reason }
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid = |reason: String| InvalidRule { rule: text.to_owned(), reason };
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default();
        let quantity = QUANTITIES.iter().find(|(name, _)| *name == word);
        let quantity = quantity.ok_or_else(|| {
            let help = did_you_mean(word, &QUANTITIES.map(|(name, _)| name));
            invalid(format!("`{word}` is unknown; {help}; {FORM}"))
        })?;
        let limit = words.next().ok_or_else(|| invalid(FORM.to_owned()))?;
        let percent = limit.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..100.0).contains(percent));
        let percent =
            percent.ok_or_else(|| invalid(format!("`{limit}` is not a share from 0% to 99.9%")))?;
        let mut rule = Self {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            quantity: quantity.1,
            limit: Share::from_percent(percent),
            part: None,
            candidate: None,
        };
        while let Some(word) = words.next() {
            let place = match word {
                "in" => &mut rule.part,
                "of" => &mut rule.candidate,
                _ => return Err(invalid(format!("`{word}` is unknown; {FORM}"))),
            };
            let name = words.next().ok_or_else(|| invalid(format!("nothing follows `{word}`")))?;
            if place.replace(name.to_owned()).is_some() {
                return Err(invalid(format!(
                    "`{word}` appears twice; give --fail-if twice instead"
                )));
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Comparison {
    /// `hot-points_range=100, 16 clients`, or the group.
    fn place(&self) -> String {
        let name = self.microbenchmark.as_ref().unwrap_or(&self.group);
        match self.clients {
            Some(number) => format!("{name}, {}", clients(number)),
            None => name.clone(),
        }
    }

    /// `5.1% less QPS (4.6% to 5.7%)`, or why nothing is known.
    fn words(&self) -> String {
        match self.outcome {
            Outcome::Broken(interval) | Outcome::Kept(interval) => words(self.metric, interval),
            Outcome::Uncertain(interval) => {
                let limit = percent(self.limit);
                let words = words(self.metric, interval);
                match judge_interval(self.metric, self.limit, interval) {
                    Outcome::Kept(_) => format!("{words}; no more than the noise floor, {limit}"),
                    _ => format!("{words}; the interval contains the limit, {limit}"),
                }
            }
            Outcome::NotJudged(reason) => reason.to_owned(),
        }
    }
}

/// Without a direction if the interval contains 1: `QPS: 1.1% less to 1.5% more`.
fn words(metric: Metric, Quotient { ratio, low, high }: Quotient) -> String {
    let what = metric.quantity();
    let [middle, near, far] = [ratio, low, high].map(size_of);
    match (high < Ratio::ONE, low > Ratio::ONE) {
        (true, _) => format!("{middle} less {what} ({far} to {near})"),
        (_, true) => format!("{middle} more {what} ({near} to {far})"),
        _ => format!("{what}: {} to {}", change(low), change(high)),
    }
}

impl Judged<'_> {
    /// `BROKEN by 3 of 42; kept by 30; uncertain for 9 (fail with --strict)`: of the comparisons, those that fail in capitals.
    fn summary(&self) -> String {
        let (uncertain, by_strict) = match self.strict {
            true => ("UNCERTAIN for", ""),
            false => ("uncertain for", " (fail with --strict)"),
        };
        let unknown = if self.is_unknown() { "NOT JUDGED for" } else { "not judged for" };
        let counts = [
            ("BROKEN by", self.count(|one| matches!(one, Outcome::Broken(_))), ""),
            ("kept by", self.count(|one| matches!(one, Outcome::Kept(_))), ""),
            (uncertain, self.count(|one| matches!(one, Outcome::Uncertain(_))), by_strict),
            (unknown, self.count(|one| matches!(one, Outcome::NotJudged(_))), ""),
        ];
        let shown = counts.into_iter().filter(|(_, count, _)| *count > 0);
        let all = format!(" of {}", self.comparisons.len());
        let text = |(at, (what, count, remark)): (usize, (&str, usize, &str))| {
            format!("{what} {count}{}{remark}", if at == 0 { &all } else { "" })
        };
        let parts: Vec<String> = shown.enumerate().map(text).collect();
        if parts.is_empty() { "NOT JUDGED".to_owned() } else { parts.join("; ") }
    }

    /// The comparisons to name: those that fail, and those that are not judged although they were
    /// measured.
    fn remarkable(&self) -> impl Iterator<Item = &Comparison> {
        let is = |one: &&Comparison| match one.outcome {
            Outcome::NotJudged(reason) => reason != NOT_MEASURED,
            _ => self.fails(one),
        };
        self.comparisons.iter().filter(is)
    }

    /// Each candidate with what was not measured of it.
    fn unmeasured(&self) -> Vec<(&str, Vec<String>)> {
        let is = |one: &&Comparison| one.outcome == Outcome::NotJudged(NOT_MEASURED);
        let all: Vec<&Comparison> = self.comparisons.iter().filter(is).collect();
        let of_candidates = all.chunk_by(|a, b| a.candidate == b.candidate);
        let places = |all: &[&Comparison]| all.iter().map(|one| one.place()).collect();
        of_candidates.map(|all| (all[0].candidate.as_str(), places(all))).collect()
    }
}

/// The outcome for a terminal in lines of at most `room` characters, ending with a line feed.
pub fn terminal(judged: &[Judged<'_>], room: usize) -> String {
    let mut out = "\nRules\n".to_owned();
    let mut lines = |indent: usize, text: &str| {
        let room = room.saturating_sub(indent).max(20);
        let lines = wrap(&plain(text), room);
        for line in lines.iter().flat_map(|line| break_name(line, room)) {
            out.push_str(&format!("{:indent$}{line}\n", ""));
        }
    };
    for one in judged {
        lines(2, &format!("{}: {}", one.rule, one.summary()));
        for comparison in one.remarkable() {
            lines(4, &format!("{}, {}", comparison.candidate, comparison.place()));
            lines(6, &comparison.words());
        }
        for (candidate, places) in one.unmeasured() {
            lines(4, &format!("{candidate}, {NOT_MEASURED}: {}", places.join("; ")));
        }
    }
    out
}

/// The outcome as Markdown, to append to the report.
pub fn markdown(judged: &[Judged<'_>]) -> String {
    let mut text = "\n### Rules\n\n".to_owned();
    for one in judged {
        let (rule, summary) = (code(&one.rule.to_string()), escape(&one.summary()));
        text.push_str(&format!("- {rule}: **{summary}**\n"));
        for (candidate, places) in one.unmeasured() {
            let places: Vec<String> = places.iter().map(|place| code(place)).collect();
            let (candidate, places) = (code(candidate), places.join(", "));
            text.push_str(&format!("  - {candidate} {NOT_MEASURED}: {places}\n"));
        }
    }
    let columns = ["rule", "candidate", "microbenchmark or group"].map(Column::name);
    let mut table = Table::new(columns.into_iter().chain([Column::text("result")]));
    for one in judged {
        for comparison in one.remarkable() {
            let names = [one.rule.to_string(), comparison.candidate.clone(), comparison.place()];
            let cells = names.into_iter().chain([comparison.words()]).map(Cell::text);
            table.push(dbdyno_text::Row::new(cells));
        }
    }
    let mut section = Section::<NoChart>::new("rules", "");
    if !table.rows.is_empty() {
        section.push(table);
    }
    text + &dbdyno_text::markdown(&[section])
}

/// An annotation for each comparison that fails, and one for each rule of which nothing is
/// known; each on a line of its own.
pub fn annotations(judged: &[Judged<'_>]) -> String {
    let mut text = String::new();
    for one in judged {
        let title = property(&format!("dbdyno: {}", one.rule));
        if one.is_unknown() {
            text.push_str(&format!(
                "::warning title={title}::nothing could be judged of a candidate\n"
            ));
        }
        for comparison in one.comparisons.iter().filter(|comparison| one.fails(comparison)) {
            let message =
                format!("{}, {}: {}", comparison.candidate, comparison.place(), comparison.words());
            text.push_str(&format!("::error title={title}::{}\n", data(&message)));
        }
    }
    text
}

/// A message with the escapes of workflow commands.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a command: `:` and `,` would end it.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// The outcome of the run of this name as JUnit XML: a test suite for each rule, with a test case for each
/// comparison and its measuring time. What failed is an error, and what else is not judged a skipped test.
pub fn junit(judged: &[Judged<'_>], name: &str) -> io::Result<String> {
    junit_of(name, |xml| judged.iter().try_for_each(|one| suite(xml, one)))
}

/// A run of this name that failed as JUnit XML: a test case with the error, of the candidate that failed or of the run.
pub fn junit_of_failure(candidate: Option<&str>, error: &str, name: &str) -> io::Result<String> {
    let (class, error) = (plain(candidate.unwrap_or(name)), plain(error.trim_end()));
    let suite = [("name", "run"), ("tests", "1"), ("failures", "0"), ("errors", "1")];
    let case = [("classname", class.as_str()), ("name", "run")];
    junit_of(name, |xml| {
        element(xml, "testsuite", &suite, |xml| {
            element(xml, "testcase", &case, |xml| message(xml, "error", &error))
        })
    })
}

fn element(
    xml: &mut Writer<Vec<u8>>,
    name: &str,
    attributes: &[(&str, &str)],
    content: impl FnOnce(&mut Writer<Vec<u8>>) -> io::Result<()>,
) -> io::Result<()> {
    let element = xml.create_element(name).with_attributes(attributes.iter().copied());
    element.write_inner_content(content)?;
    Ok(())
}

fn message(xml: &mut Writer<Vec<u8>>, name: &str, text: &str) -> io::Result<()> {
    xml.create_element(name).with_attribute(("message", text)).write_empty()?;
    Ok(())
}

fn junit_of(
    name: &str,
    suites: impl FnOnce(&mut Writer<Vec<u8>>) -> io::Result<()>,
) -> io::Result<String> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    element(&mut xml, "testsuites", &[("name", plain(name).as_str())], suites)?;
    let mut text = String::from_utf8_lossy(&xml.into_inner()).into_owned();
    text.insert_str(0, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push('\n');
    Ok(text)
}

fn suite(xml: &mut Writer<Vec<u8>>, judged: &Judged<'_>) -> io::Result<()> {
    let failed = judged.comparisons.iter().filter(|one| judged.fails(one)).count();
    let is_error = |one: &Outcome| *one == Outcome::NotJudged(FAILED);
    let errors = judged.count(is_error);
    let skipped = judged.count(|one| matches!(one, Outcome::NotJudged(_)) && !is_error(one));
    let rule = plain(&judged.rule.to_string());
    let seconds = |time: Nanos| format!("{:.3}", time.as_secs_f64());
    let time = seconds(judged.comparisons.iter().map(|one| one.time).sum());
    let [all, failed, errors, skipped] =
        [judged.comparisons.len(), failed, errors, skipped].map(|count| count.to_string());
    let attributes = [
        ("name", rule.as_str()),
        ("tests", &all),
        ("failures", &failed),
        ("errors", &errors),
        ("skipped", &skipped),
        ("time", &time),
    ];
    element(xml, "testsuite", &attributes, |xml| {
        judged.comparisons.iter().try_for_each(|comparison| {
            let place = plain(&comparison.place());
            let candidate = plain(&comparison.candidate);
            let time = seconds(comparison.time);
            let case =
                [("classname", candidate.as_str()), ("name", place.as_str()), ("time", &time)];
            let words = comparison.words();
            element(xml, "testcase", &case, |xml| match comparison.outcome {
                _ if judged.fails(comparison) => message(xml, "failure", &words),
                outcome if is_error(&outcome) => message(xml, "error", &words),
                Outcome::NotJudged(_) => message(xml, "skipped", &words),
                _ => {
                    let text = BytesText::new(&words);
                    xml.create_element("system-out").write_text_content(text)?;
                    Ok(())
                }
            })
        })
    })
}

#[cfg(test)]
mod tests;
