//! What was found about each candidate in each step of an insert benchmark, in words: differences, and stalls of inserts
//! and queries.

use dbdyno_stats::{Side, interval_of_repeats, is_too_noisy, median, possible_difference};
use dbdyno_text::{Fact, Facts, Style, Text, Tone};
use dbdyno_units::{Nanos, Ratio, Share};

use super::by_candidate;
use crate::figures::{compact, percent};
use crate::key_results::{change, ends_in_words, sized};
use crate::model::{
    CandidateStep, INSERT_METRICS, InsertFigures, InsertMetric, InsertReport, Responses, Role,
    StepReport, StepRun, Verdict,
};
use crate::sections::{Output, Section, titled};
use crate::words::joined;

/// Ratios closer to 1 have no colour.
const CLOSE: f64 = 0.02;

/// What was found about a candidate in a step, in words, and whether its throughput is better or worse.
pub(crate) struct StepFinding<'a> {
    pub(crate) step: &'a str,
    pub(crate) words: String,
    pub(crate) tone: Option<Tone>,
    /// The stalls, in words.
    pub(crate) stalls: String,
    /// Whether there were any.
    has_stalled: bool,
    /// The throughput alone, of the baseline its value.
    rate: String,
    /// CPU alone.
    cpu: String,
    /// What is to be said of both.
    remarks: Vec<String>,
}

impl StepFinding<'_> {
    /// `l.i1 61% more rows/s, 38% less CPU per row (under 10 s: no verdict)`. `said` are remarks on all steps.
    fn brief(&self, extent: Extent, said: &[String]) -> String {
        let with_cpu = extent != Extent::Rates && !self.cpu.is_empty();
        let cpu = if with_cpu { format!(", {}", self.cpu) } else { String::new() };
        let remarks = self.remarks.iter().filter(|one| !said.contains(one));
        let remarks: Vec<String> = remarks.cloned().collect();
        in_parentheses(&format!("{} {}{cpu}", self.step, self.rate), &remarks)
    }
}

/// How much an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A sentence for each candidate and step, with intervals and stalls.
    Steps,
    /// A sentence for each candidate, with throughput and CPU of each step.
    Costs,
    /// The same without CPU.
    Rates,
}

/// The findings as sentences with the tone of their throughput, those of the baseline first.
pub(crate) fn conclusions(
    report: &InsertReport,
    baseline: &str,
    extent: Extent,
) -> Vec<(String, Tone)> {
    let mut sentences = Vec::new();
    for (candidate, findings) in findings(report) {
        let name = &candidate.candidate;
        let is_baseline = candidate.role == Role::Baseline;
        let against = if is_baseline { String::new() } else { format!(" against {baseline}") };
        if is_baseline || extent != Extent::Steps {
            let steps = || findings.iter().filter(|one| !one.rate.is_empty());
            let first = steps().next().map(|first| first.remarks.clone()).unwrap_or_default();
            let on_all = |remark: &String| steps().all(|one| one.remarks.contains(remark));
            let said: Vec<String> = first.into_iter().filter(on_all).collect();
            if let Some(briefs) = joined(steps().map(|one| one.brief(extent, &said)), "; ") {
                let of = in_parentheses(&format!("{name}{against}"), &said);
                sentences.push((format!("{of}: {briefs}"), Tone::Alone));
            }
        }
        for one in findings.into_iter().filter(|_| extent == Extent::Steps) {
            let stalls = if one.has_stalled { one.stalls } else { String::new() };
            // What is said of the baseline is in its first sentence.
            let words = if is_baseline { String::new() } else { one.words };
            let parts = [words, stalls].into_iter().filter(|part| !part.is_empty());
            if let Some(words) = joined(parts, "; ") {
                let sentence = format!("{name} in {}{against}: {words}", one.step);
                sentences.push((sentence, one.tone.unwrap_or(Tone::Alone)));
            }
        }
    }
    sentences
}

/// Whether the rates of inserts were sustained; `None` without rates.
pub(crate) fn rates(report: &InsertReport) -> Option<String> {
    let steps = || report.steps.iter().filter(|step| step.rate.is_some());
    steps().next()?;
    let missed = steps().flat_map(|step| {
        let missed = step.candidates.iter().filter(|one| one.misses_rate());
        missed.map(move |one| format!("{} in {}", one.candidate, step.name))
    });
    Some(match joined(missed, ", ") {
        None => "all rates of inserts were sustained".to_owned(),
        Some(missed) => format!("not sustained: {missed}"),
    })
}

/// What was found about each candidate in each step: throughput, CPU, and stalls.
pub(crate) fn findings(report: &InsertReport) -> Vec<(&CandidateStep, Vec<StepFinding<'_>>)> {
    let mut all = Vec::new();
    for (_, steps) in by_candidate(report) {
        let found = steps.iter().map(|&(step, own)| found(report, step, own));
        let found = found.filter(|one| !one.words.is_empty() || !one.stalls.is_empty());
        all.push((steps[0].1, found.collect()));
    }
    all
}

/// The findings for a terminal and as Markdown; the page has its own form of them.
pub(crate) fn key_results(report: &InsertReport, output: Output) -> Section {
    let mut section = titled(output, "key", ["key results", "Key results"]);
    for (candidate, findings) in findings(report) {
        if candidate.role == Role::Baseline {
            section.about = format!("compared with {}", candidate.candidate);
        }
        let fact = |StepFinding { step, words, tone, stalls, .. }| {
            let parts = [words, stalls].into_iter().filter(|part| !part.is_empty());
            Fact::new(step, joined(parts, "; ").unwrap_or_default())
                .style(tone.map_or(Style::Plain, Style::Tone))
        };
        let facts: Vec<Fact> = findings.into_iter().map(fact).collect();
        if !facts.is_empty() {
            section.push(Text::new(&candidate.candidate));
            section.push(Facts::new(facts).indent(2));
        }
    }
    section
}

fn found<'a>(report: &InsertReport, step: &'a StepReport, own: &CandidateStep) -> StepFinding<'a> {
    let baseline = step.candidates.iter().find(|one| one.role == Role::Baseline);
    let (unit, work) = if step.queries { ("queries/s", "query") } else { ("rows/s", "row") };
    let missed = match baseline {
        _ if own.misses_rate() => Some("the rate of inserts was not sustained"),
        Some(one) if one.misses_rate() => Some("the baseline did not sustain the rate of inserts"),
        _ => None,
    };
    let throughput = step.throughput();
    let rate = match (missed, throughput) {
        (Some(missed), _) => Some(Difference { words: missed.to_owned(), ..Difference::default() }),
        (None, Some(metric)) => difference(own, metric, unit),
        (None, None) => difference_of_times(step, own, baseline),
    };
    let rate = rate.map(|rate| match missed {
        Some(_) => rate,
        None => Difference { remarks: caveats(report, step, own, baseline), ..rate },
    });
    let cpu = throughput.and_then(|_| difference(own, "cpupq", &format!("CPU per {work}")));
    let judged = INSERT_METRICS.iter().find(|one| Some(one.name) == throughput);
    let tone = judged.filter(|_| missed.is_none()).and_then(|metric| verdict(step, own, metric));
    let both = || [&rate, &cpu].into_iter().flatten();
    let words = joined(both().map(Difference::words), "; ").unwrap_or_default();
    let is_single = both().any(|one| one.certainty.as_deref() == Some(ONE_REPEAT));
    let cpu = cpu.map_or_else(String::new, |cpu| cpu.words);
    let (rate, remarks) = match rate {
        rate if own.role == Role::Baseline => {
            let value = throughput.and_then(|metric| own.figures.get(metric));
            let value = value.map(|value| format!("{} {unit}", compact(value)));
            let missed = rate.into_iter().map(|missed| missed.words).collect();
            (value.unwrap_or_default(), missed)
        }
        Some(rate) => {
            let single = is_single.then(|| ONE_REPEAT.to_owned());
            (rate.words, single.into_iter().chain(rate.remarks).collect())
        }
        None => (String::new(), Vec::new()),
    };
    let (stalls, has_stalled) = stalls_in_words(own);
    StepFinding { step: &step.name, words, tone, stalls, has_stalled, rate, cpu, remarks }
}

/// The name of the step that creates indexes, of which the time is compared.
const INDEXES: &str = "l.x";

/// What is said of a difference without an interval.
const ONE_REPEAT: &str = "one repeat: not certain";

/// A figure compared with the baseline's.
#[derive(Default)]
struct Difference {
    /// `61% more rows/s`
    words: String,
    /// The interval, or what else is known.
    certainty: Option<String>,
    /// What must be known about it.
    remarks: Vec<String>,
}

impl Difference {
    fn of(ratio: Ratio, interval: Option<(Ratio, Ratio)>, what: &str) -> Self {
        let (words, certainty) = match interval {
            None => (sized(ratio, None, what), ONE_REPEAT.to_owned()),
            Some((low, high)) if low > Ratio::ONE || high < Ratio::ONE => {
                (sized(ratio, None, what), ends_in_words(ratio, (low, high)))
            }
            Some((low, high)) => match possible_difference((low, high), None) {
                possible if is_too_noisy(possible) => (
                    format!("{what}: too noisy to tell"),
                    format!("{} to {}", change(low), change(high)),
                ),
                possible => (
                    format!("{what}: no difference found"),
                    format!("within {}", percent(possible)),
                ),
            },
        };
        Self { words, certainty: Some(certainty), remarks: Vec::new() }
    }

    /// `61% more rows/s (57% to 65%)`
    fn words(&self) -> String {
        let remarks: Vec<String> = self.certainty.iter().chain(&self.remarks).cloned().collect();
        in_parentheses(&self.words, &remarks)
    }
}

fn in_parentheses(words: &str, remarks: &[String]) -> String {
    match remarks {
        [] => words.to_owned(),
        [..] => format!("{words} ({})", remarks.join("; ")),
    }
}

/// A figure of a step; `None` for the baseline.
fn difference(own: &CandidateStep, metric: &str, what: &str) -> Option<Difference> {
    let ratio = Ratio::new(own.relative.as_ref()?.get(metric)?);
    Some(Difference::of(ratio, interval_of(own, metric), what))
}

/// The time in which the indexes were created; `None` for the baseline and for other steps.
fn difference_of_times(
    step: &StepReport,
    own: &CandidateStep,
    baseline: Option<&CandidateStep>,
) -> Option<Difference> {
    let baseline = baseline.filter(|one| step.name == INDEXES && one.candidate != own.candidate)?;
    let ratio = |run: &StepRun| {
        let base = baseline.repeats.iter().find(|base| base.repeat == run.repeat)?;
        Some(Ratio::of(run.wall.as_secs_f64(), base.wall.as_secs_f64())?.get())
    };
    let ratios: Vec<f64> = own.repeats.iter().filter_map(ratio).collect();
    let ratio = Ratio::new(median(&ratios)?);
    Some(Difference::of(ratio, interval_of_repeats(&ratios), "time"))
}

/// Shorter steps have no verdict: the start of the clients, and a pause of the machine, weigh too much.
const SHORTEST_STEP: Nanos = Nanos::from_secs(10);

/// What is said of a difference in a shorter step.
const TOO_SHORT: &str = "under 10 s: no verdict";

/// From this share of waiting on, it is said.
const MOSTLY: Share = Share::from_fraction(0.5);

/// Whether a step of a candidate or of the baseline is too short for a verdict.
fn is_too_short(step: &StepReport, own: &CandidateStep) -> bool {
    let is_used =
        |one: &&CandidateStep| one.role == Role::Baseline || one.candidate == own.candidate;
    let mut runs = step.candidates.iter().filter(is_used).flat_map(|one| &one.repeats);
    runs.any(|run| run.wall < SHORTEST_STEP)
}

/// What a reader must know about a candidate's throughput in a step, relative to the baseline's.
fn caveats(
    report: &InsertReport,
    step: &StepReport,
    own: &CandidateStep,
    baseline: Option<&CandidateStep>,
) -> Vec<String> {
    let short = is_too_short(step, own).then(|| TOO_SHORT.to_owned());
    let waited = |one: &CandidateStep| {
        step.throughput()?;
        let used = one.figures.get("cpups")? / 100.0 / f64::from(report.busy_cpus?);
        Some(Share::from_fraction((1.0 - used).max(0.0)))
    };
    let waiting = waited(own).zip(baseline).and_then(|(share, baseline)| {
        let of_baseline = waited(baseline)?;
        (share >= MOSTLY || of_baseline >= MOSTLY).then(|| {
            format!(
                "waited {:.0}% of the time, {} {:.0}%",
                share.as_percent(),
                baseline.candidate,
                of_baseline.as_percent()
            )
        })
    });
    short.into_iter().chain(waiting).collect()
}

/// Whether a figure is better or worse than the baseline's; `None` also in short steps.
pub(super) fn verdict(
    step: &StepReport,
    own: &CandidateStep,
    metric: &InsertMetric,
) -> Option<Tone> {
    let ratio = own.relative.as_ref()?.get(metric.name)?;
    let interval = interval_of(own, metric.name).filter(|_| !is_too_short(step, own));
    standing(metric, ratio, interval)
}

/// The ends of the interval of a candidate's ratio over the repeats.
fn interval_of(candidate: &CandidateStep, metric: &str) -> Option<(Ratio, Ratio)> {
    let (low, high) = candidate.relative_interval.as_ref()?;
    let of = |figures: &InsertFigures| figures.get(metric).map(Ratio::new);
    of(low).zip(of(high))
}

/// Whether a ratio is better or worse; `None` if it is close to 1 or neither, or if the repeats do not
/// tell: one repeat never does.
fn standing(metric: &InsertMetric, ratio: f64, interval: Option<(Ratio, Ratio)>) -> Option<Tone> {
    let (low, high) = interval?;
    if (ratio - 1.0).abs() < CLOSE || (low <= Ratio::ONE && high >= Ratio::ONE) {
        return None;
    }
    let verdict = metric.better?.verdict(Some(Side::of(Ratio::new(ratio))));
    Some(Verdict::from(verdict).tone())
}

/// What can stall in a step.
pub(super) struct Stalls<'a> {
    /// The name of one.
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// The seconds in which they stalled.
    pub(super) seconds: &'a [u32],
    pub(super) responses: &'a Option<Responses>,
}

pub(super) fn kinds_of_stalls(run: &StepRun) -> [Stalls<'_>; 2] {
    let (seconds, responses) = (&run.stalls, &run.insert_responses);
    let inserts = Stalls { one: "insert", many: "inserts", seconds, responses };
    let (seconds, responses) = (&run.query_stalls, &run.query_responses);
    [inserts, Stalls { one: "query", many: "queries", seconds, responses }]
}

/// Where something stalled, and the longest insert or query of each candidate; `None` if no times are known.
pub(crate) fn stalls(report: &InsertReport) -> Option<String> {
    let mut longest: Vec<String> = Vec::new();
    let mut stalled: Vec<String> = Vec::new();
    for (name, steps) in by_candidate(report) {
        let times = steps.iter().flat_map(|(step, one)| {
            let kinds = one.repeats.iter().flat_map(kinds_of_stalls);
            kinds.filter_map(move |kind| Some((kind.responses.as_ref()?.max, &step.name)))
        });
        let time = times.max_by_key(|(time, _)| *time);
        longest.extend(time.map(|(time, step)| format!("{name} {time} in {step}")));
        let in_steps = steps.iter().filter(|(_, one)| {
            let mut kinds = one.repeats.iter().flat_map(kinds_of_stalls);
            kinds.any(|kind| !kind.seconds.is_empty())
        });
        let in_steps = joined(in_steps.map(|(step, _)| step.name.clone()), " and ");
        stalled.extend(in_steps.map(|steps| format!("{name} in {steps}")));
    }
    let stalled = joined(stalled, ", ").unwrap_or_else(|| "none".to_owned());
    joined(longest, ", ").map(|longest| format!("{stalled} (longest insert or query: {longest})"))
}

/// The stalls of all repeats: `inserts stalled in 6 of 60 seconds, the longest insert took 1.9 s; queries did not
/// stall, the longest took 12 ms`; and whether there were any.
pub(super) fn stalls_in_words(own: &CandidateStep) -> (String, bool) {
    let mut has_stalled = false;
    let all: usize = own.repeats.iter().map(|run| run.seconds.len()).sum();
    let of_kind = |kind: usize| {
        let kinds = own.repeats.iter().map(|run| kinds_of_stalls(run).into_iter().nth(kind));
        let kinds: Vec<Stalls<'_>> = kinds.flatten().collect();
        let Stalls { one, many, .. } = kinds.first()?;
        let longest = kinds.iter().filter_map(|one| Some(one.responses.as_ref()?.max)).max()?;
        let stalls = kinds.iter().map(|one| one.seconds.len()).sum::<usize>();
        has_stalled |= stalls > 0 || longest >= Nanos::from_secs(1);
        Some(match stalls {
            // With fewer than two a second, none is counted.
            0 if longest >= Nanos::from_secs(1) => format!("the longest {one} took {longest}"),
            0 => format!("{many} did not stall, the longest took {longest}"),
            stalls => format!(
                "{many} stalled in {stalls} of {all} seconds, the longest {one} took {longest}"
            ),
        })
    };
    let words = joined((0..2).filter_map(of_kind), "; ").unwrap_or_default();
    (words, has_stalled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn better_depends_on_the_metric() {
        let of = |name, ratio: f64| {
            let metric = INSERT_METRICS.iter().find(|metric| metric.name == name).unwrap();
            let ends =
                |low: f64, high: f64| Some((Ratio::new(ratio * low), Ratio::new(ratio * high)));
            assert_eq!(standing(metric, ratio, None), None, "one repeat");
            assert_eq!(standing(metric, ratio, ends(0.5, 1.5)), None);
            standing(metric, ratio, ends(0.99, 1.01))
        };
        assert_eq!(of("ips", 1.2), Some(Tone::Better));
        assert_eq!(of("cpupq", 1.2), Some(Tone::Worse));
        for of_the_device in ["rps", "rpq", "rkbpq", "wpi", "wkbpi", "wmbps"] {
            assert_eq!(of(of_the_device, 1.2), None);
        }
        assert_eq!(of("ips", 1.01), None);
    }

    /// The sentences of the answer, each of one candidate and step.
    fn sentences(insert: &InsertReport) -> Vec<(String, Tone)> {
        conclusions(insert, "innodb", Extent::Steps)
    }

    #[test]
    fn waiting_of_either_one_is_said_beside_the_throughput() {
        let mut report = sample::inserts();
        let insert = report.insert.as_mut().unwrap();
        let expected =
            "myrocks-with-a-long-name in l.i1 against innodb: 61.3% more rows/s (59.9% to 62.8%";
        let first = |insert: &InsertReport| sentences(insert)[1].clone();
        assert!(first(insert).0.starts_with(&format!("{expected}); ")), "{:?}", first(insert));
        insert.steps[0].candidates[1].figures.set("cpups", Some(12.0));
        let (words, tone) = first(insert);
        let waited = format!("{expected}; waited 88% of the time, innodb 25%); ");
        assert!(words.starts_with(&waited), "{words}");
        assert_eq!(tone, Tone::Better);
        insert.busy_cpus = None;
        assert!(!first(insert).0.contains("waited"));
    }

    #[test]
    fn short_steps_and_single_repeats_have_no_verdict() {
        let mut report = sample::inserts();
        let insert = report.insert.as_mut().unwrap();
        let of = |insert: &InsertReport, step: &str| {
            let start = format!("postgresql in {step} against innodb: ");
            let found = sentences(insert).into_iter().find(|(words, _)| words.starts_with(&start));
            let (words, tone) = found.unwrap();
            (words.strip_prefix(&start).unwrap().to_owned(), tone)
        };
        assert_eq!(of(insert, "l.i1").1, Tone::Better);
        insert.steps[0].candidates[2].repeats[1].wall = Nanos::from_secs(3);
        let (words, tone) = of(insert, "l.i1");
        let short = "24.8% more rows/s (24.2% to 25.3%; under 10 s: no verdict); ";
        assert!(words.starts_with(short), "{words}");
        assert_eq!(tone, Tone::Alone);
        // Steps that the baseline ended early are no better.
        insert.steps[2].candidates[0].repeats[0].wall = Nanos::from_secs(9);
        assert_eq!(of(insert, "q1000").1, Tone::Alone);
        for run in &mut insert.steps[1].candidates[2].repeats {
            run.wall = Nanos::from_secs(40);
        }
        assert_eq!(of(insert, "l.x").0, "2.00 times the time (2.00 to 2.00)");
        insert.steps[0].candidates[1].relative_interval = None;
        let brief = &conclusions(insert, "innodb", Extent::Costs)[1].0;
        let one = "l.i1 61.3% more rows/s, 37.9% less CPU per row (one repeat: not certain); ";
        assert!(brief.contains(one), "{brief}");
        // What holds for all steps is said once.
        for step in &mut insert.steps {
            step.candidates[1].repeats.truncate(1);
            step.candidates[1].relative_interval = None;
        }
        let brief = &conclusions(insert, "innodb", Extent::Rates)[1].0;
        let start = "myrocks-with-a-long-name against innodb (one repeat: not certain): l.i1 61.3% more rows/s; ";
        assert!(brief.starts_with(start), "{brief}");
        assert_eq!(brief.matches("one repeat").count(), 1, "{brief}");
    }
}
