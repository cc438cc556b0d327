//! The outcome of a gate: for the terminal, as Markdown, as annotations and as JUnit XML.

use std::io;

use dbdyno_text::{
    Cell, Column, NoChart, Row, Section, Table, break_name, code, escape, plain, wrap,
};
use dbdyno_units::{Ratio, Share};
use quick_xml::Writer;
use quick_xml::events::BytesText;

use super::{Comparison, Interval, Judged, NOT_MEASURED, Outcome};
use crate::figures::percent;
use crate::metric::clients;
use crate::model::Metric;

impl Comparison {
    /// `hot-points_range=100, 16 clients`, or the group.
    pub(super) fn place(&self) -> String {
        let name = self.microbenchmark.as_ref().unwrap_or(&self.group);
        match self.clients {
            Some(number) => format!("{name}, {}", clients(number)),
            None => name.clone(),
        }
    }

    /// `5.1% less QPS (4.6% to 5.7%)`, or why nothing is known.
    pub(super) fn words(&self) -> String {
        match self.outcome {
            Outcome::Broken(interval) | Outcome::Kept(interval) | Outcome::Unclear(interval) => {
                interval.words(self.metric)
            }
            Outcome::NotJudged(reason) => reason.to_owned(),
        }
    }
}

impl Interval {
    fn words(&self, metric: Metric) -> String {
        let Self { middle, low, high } = *self;
        let what = metric.quantity();
        let change = |ratio: Ratio| percent(Share::from_fraction(ratio.distance()));
        let signed = |ratio: Ratio| {
            let sign = if ratio < Ratio::ONE { "-" } else { "+" };
            format!("{sign}{}", change(ratio))
        };
        match (high < Ratio::ONE, low > Ratio::ONE) {
            (true, _) => {
                format!("{} less {what} ({} to {})", change(middle), change(high), change(low))
            }
            (_, true) => {
                format!("{} more {what} ({} to {})", change(middle), change(low), change(high))
            }
            _ => format!("{what} {} ({} to {})", signed(middle), signed(low), signed(high)),
        }
    }
}

impl Judged<'_> {
    /// `BROKEN by 3 of 42 comparisons`, `kept`, with what is not certain.
    pub(super) fn summary(&self) -> String {
        let all = self.comparisons.len();
        let broken = self.count(|one| matches!(one, Outcome::Broken(_)));
        let unclear = self.count(|one| matches!(one, Outcome::Unclear(_)));
        let unknown = self.count(|one| matches!(one, Outcome::NotJudged(_)));
        let mut text = match broken {
            0 if self.is_unknown() => "NOT JUDGED".to_owned(),
            0 => format!("kept by {} of {all}", all - unknown),
            broken => format!("BROKEN by {broken} of {all}"),
        };
        if unclear > 0 {
            text.push_str(&format!("; {unclear} with intervals that contain the limit"));
        }
        if unknown > 0 {
            text.push_str(&format!("; {unknown} not judged"));
        }
        text
    }

    /// The comparisons to name: those that break the rule, and those that are not judged although they
    /// were measured.
    pub(super) fn remarkable(&self) -> impl Iterator<Item = &Comparison> {
        let is = |one: &&Comparison| match one.outcome {
            Outcome::Broken(_) => true,
            Outcome::NotJudged(reason) => reason != NOT_MEASURED,
            Outcome::Kept(_) | Outcome::Unclear(_) => false,
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
        text.push_str(&format!(
            "- {}: **{}**\n",
            code(&one.rule.to_string()),
            escape(&one.summary())
        ));
        for (candidate, places) in one.unmeasured() {
            let places: Vec<String> = places.iter().map(|place| code(place)).collect();
            text.push_str(&format!(
                "  - {} {NOT_MEASURED}: {}\n",
                code(candidate),
                places.join(", ")
            ));
        }
    }
    let columns = ["rule", "candidate", "microbenchmark or group"].map(Column::name);
    let mut table = Table::new(columns.into_iter().chain([Column::text("result")]));
    for one in judged {
        for comparison in one.remarkable() {
            let names = [one.rule.to_string(), comparison.candidate.clone(), comparison.place()];
            let cells = names.into_iter().chain([comparison.words()]).map(Cell::text);
            table.push(Row::new(cells));
        }
    }
    let mut section = Section::<NoChart>::new("rules", "");
    if !table.rows.is_empty() {
        section.push(table);
    }
    text + &dbdyno_text::markdown(&[section])
}

/// An annotation for each comparison that breaks a rule, and one for each rule of which nothing is
/// known; each on a line of its own.
pub fn annotations(judged: &[Judged<'_>]) -> String {
    let mut text = String::new();
    for one in judged {
        let title = property(&format!("dbdyno: {}", one.rule));
        if one.is_unknown() {
            text.push_str(&format!("::warning title={title}::nothing could be judged\n"));
        }
        for comparison in one.comparisons.iter().filter(|one| one.is_broken()) {
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

/// The outcome of the run of this name as JUnit XML: a test suite for each rule, with a test case for each comparison. What is
/// not judged is a skipped test.
///
/// # Errors
/// Never: it is written to memory.
pub fn junit(judged: &[Judged<'_>], name: &str) -> io::Result<String> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    xml.create_element("testsuites")
        .with_attribute(("name", plain(name).as_str()))
        .write_inner_content(|xml| judged.iter().try_for_each(|one| suite(xml, one)))?;
    let mut text = String::from_utf8_lossy(&xml.into_inner()).into_owned();
    text.insert_str(0, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push('\n');
    Ok(text)
}

fn suite(xml: &mut Writer<Vec<u8>>, judged: &Judged<'_>) -> io::Result<()> {
    let broken = judged.count(|one| matches!(one, Outcome::Broken(_)));
    let skipped = judged.count(|one| matches!(one, Outcome::NotJudged(_)));
    let rule = plain(&judged.rule.to_string());
    let (all, broken, skipped) =
        (judged.comparisons.len().to_string(), broken.to_string(), skipped.to_string());
    let attributes =
        [("name", rule.as_str()), ("tests", &all), ("failures", &broken), ("skipped", &skipped)];
    xml.create_element("testsuite").with_attributes(attributes).write_inner_content(|xml| {
        for comparison in &judged.comparisons {
            let place = plain(&comparison.place());
            let candidate = plain(&comparison.candidate);
            let case = [("classname", candidate.as_str()), ("name", place.as_str())];
            let case = xml.create_element("testcase").with_attributes(case);
            let words = comparison.words();
            case.write_inner_content(|xml| {
                let (tag, text) = match comparison.outcome {
                    Outcome::Broken(_) => ("failure", ("message", words.as_str())),
                    Outcome::NotJudged(_) => ("skipped", ("message", words.as_str())),
                    Outcome::Kept(_) | Outcome::Unclear(_) => {
                        let text = BytesText::new(&words);
                        xml.create_element("system-out").write_text_content(text)?;
                        return Ok(());
                    }
                };
                xml.create_element(tag).with_attribute(text).write_empty()?;
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(())
}
