//! Sentences of the comparison, shared by the terminal and the page.

use super::{ChangeSummary, Column, Comparison, RunInfo};
use crate::candidates::is_existing_server;
use crate::figures::ratio;
use crate::model::{CandidateRecord, Report, RunStatus};
use crate::words::status;

/// Nothing was measured in any run.
pub(super) const NOTHING: &str = "Nothing to compare: no run has results of microbenchmarks.";

/// What a quotient of absolute figures contains.
pub(super) const CAUTION: &str = "The runs were not interleaved: a quotient of their absolute figures also contains what \
     changed on the machine between them (clock frequency, other load on the same host, \
     temperature). It is marked as better or worse if it is farther from 1 than the intervals, \
     which contain the spread between the starts and sessions of a run, and three noise floors of \
     both runs. That does not say why. Where it is not certain, the data show no change.";

/// Absolute figures of the runs have no counterparts.
pub(super) const NO_COUNTERPART: &str = "Absolute figures are compared with those of the first run, and no other run has one of its \
     candidates, on the same microbenchmark with the same number of clients.";

/// Signs of quotients of absolute figures.
pub(super) const CHANGE_KEY: &str = "+ better: higher QPS, less CPU, shorter p99; - worse; ~ not certain; · no interval; c \
     client-bound; ! failed.";

/// Signs of the agreement, in the order of severity.
pub(super) const AGREEMENT_KEY: &str = "= agree, ~ not certain, s same direction but certainly different size, d one shows a \
     difference and another none, x contradict";

/// Differences between the runs that limit the comparison. Those of the baselines matter only for
/// ratios to them.
pub(super) fn notes(
    reports: &[&Report],
    runs: &[RunInfo],
    columns: &[Column],
    has_ratios: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differing = |what: &str, of: &dyn Fn(&Report) -> String| {
        let mut values: Vec<String> = reports.iter().map(|report| of(report)).collect();
        values.dedup();
        if values.len() > 1 {
            notes.push(format!("{what}: {}", values.join("; ")));
        }
    };
    if has_ratios {
        differing("the runs have different baselines", &|report| report.baseline.clone());
        differing("the baseline is not the same program everywhere", &|report| {
            report.candidates.first().map_or_else(String::new, CandidateRecord::system_title)
        });
    }
    let mut machines: Vec<&str> = columns.iter().map(|column| column.machine.as_str()).collect();
    machines.dedup();
    if machines.len() > 1 {
        notes.push(
            "the runs were made on different machines: quotients of absolute figures compare the \
             machines, too"
                .to_owned(),
        );
    }
    let named = |wanted: &dyn Fn(&Report) -> bool| {
        let all = runs.iter().zip(reports);
        let names = all.filter(|(_, report)| wanted(report)).map(|(run, _)| &*run.label);
        names.collect::<Vec<&str>>().join(", ")
    };
    let mut about = |what: &str, names: String| {
        if !names.is_empty() {
            notes.push(format!("{what}: {names}"));
        }
    };
    let incomplete =
        runs.iter().zip(reports).filter(|(_, report)| report.status == RunStatus::Incomplete).map(
            |(run, report)| match report.running_pid {
                Some(_) => format!("{} ({})", run.label, status(report)),
                None => run.label.clone(),
            },
        );
    about("not complete", incomplete.collect::<Vec<String>>().join(", "));
    about("insert benchmarks are not compared", named(&|report| report.insert.is_some()));
    about(
        "without a control, so that the noise floor is unknown",
        named(&|report| !report.has_control()),
    );
    about(
        "existing servers, whose settings are not recorded",
        named(&|report| {
            let unknown =
                |one: &CandidateRecord| is_existing_server(one) && one.server_settings.is_empty();
            report.candidates.iter().any(unknown)
        }),
    );
    notes
}

/// What tells drift from an effect, for each pair of a run with the first one.
pub(super) fn drift(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    for (column, earlier) in comparison.compared_columns() {
        let of: Vec<&ChangeSummary> = comparison
            .changes
            .iter()
            .filter(|change| (change.column, change.compared_with) == (column, earlier))
            .collect();
        if of.is_empty() {
            continue;
        }
        let label = |column: usize| &comparison.columns[column].label;
        let (b, a) = (label(column), label(earlier));
        let equal: Vec<&&ChangeSummary> = of.iter().filter(|change| change.is_equal).collect();
        if equal.is_empty() {
            sentences.push(format!(
                "No candidate is equal in {a} and {b} in program, configuration, data and number of \
                 clients: drift cannot be separated from the effect of what differs."
            ));
            continue;
        }
        let changes: Vec<String> = match &equal[..] {
            [only] => vec![spread(comparison, only)],
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
fn spread(comparison: &Comparison, change: &ChangeSummary) -> String {
    let ChangeSummary { column, compared_with, count, median, min, max, .. } = change;
    let label = |column: usize| &comparison.columns[column].label;
    let [median, min, max] = [*median, *min, *max].map(ratio);
    let over = match count {
        1 => "1 microbenchmark".to_owned(),
        count => format!("{min} to {max} over {count} microbenchmarks"),
    };
    format!("QPS of {}/{} median {median} ({over})", label(*column), label(*compared_with))
}

fn named_spread(comparison: &Comparison, change: &ChangeSummary) -> String {
    format!("{}: {}", change.candidate, spread(comparison, change))
}

/// The changes of a candidate's QPS in one sentence.
pub(super) fn change(comparison: &Comparison, change: &ChangeSummary) -> String {
    let ChangeSummary { count, higher, lower, .. } = *change;
    let uncertain = count - higher - lower;
    let drift = if change.is_equal { "; equal in both, so no effect of the candidate" } else { "" };
    format!(
        "{}: {higher} higher, {lower} lower, {uncertain} not certain{drift}",
        named_spread(comparison, change)
    )
}

/// How many microbenchmarks of a candidate have which agreement.
pub(super) fn agreement(comparison: &Comparison, candidate: &str) -> String {
    use super::Agreement;
    use crate::model::Verdict::{Better, WithinNoise, Worse};
    let rows = || comparison.rows.iter().filter(|row| row.candidate == candidate);
    let count =
        |wanted: &dyn Fn(Agreement) -> bool| rows().filter(|row| wanted(row.agreement)).count();
    let same = |verdict| count(&|agreement| agreement == Agreement::Agree(verdict));
    let (faster, slower, noise) = (same(Better), same(Worse), same(WithinNoise));
    let by_clients = count(&|agreement| agreement == Agreement::AgreeByClients);
    let of_clients = match by_clients {
        0 => String::new(),
        number => format!(", {number} by number of clients"),
    };
    let sizes = count(&|agreement| matches!(agreement, Agreement::SizeDiffers(_)));
    let differ = count(&|agreement| agreement == Agreement::Differ);
    let contradict = count(&|agreement| agreement == Agreement::Contradict);
    let uncertain = count(&|agreement| agreement == Agreement::NotCertain);
    let unknown = count(&|agreement| agreement == Agreement::Unknown);
    let unknown = match unknown {
        0 => String::new(),
        unknown => format!(" {unknown} have fewer than two verdicts."),
    };
    format!(
        "{candidate}: of {} microbenchmarks the runs agree on {} ({faster} faster, {slower} \
         slower, {noise} within noise{of_clients}). They certainly differ on {}: {sizes} in the same direction \
         by different sizes, {differ} with a difference in one run and none in another, \
         {contradict} contradict. {uncertain} not certain.{unknown}",
        rows().count(),
        faster + slower + noise + by_clients,
        sizes + differ + contradict,
    )
}

/// The candidates whose ratios only one run has; `None` if there is none.
pub(super) fn only_in_one(comparison: &Comparison) -> Option<String> {
    let mut parts = Vec::new();
    for (index, run) in comparison.runs.iter().enumerate() {
        let own: Vec<&str> = comparison
            .candidates_of_one_run()
            .into_iter()
            .filter(|(_, of)| *of == index)
            .map(|(name, _)| name)
            .collect();
        if !own.is_empty() {
            parts.push(format!("{} has {}", run.label, own.join(", ")));
        }
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Ratios to the baseline that only one run has are in its own report: {}.",
            parts.join("; ")
        )
    })
}
