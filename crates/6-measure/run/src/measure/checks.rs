//! Checks of a candidate: that its system accepts all statements, and that its answers are those of the baseline.

use dbdyno_types::SliceMeasured;
use dbdyno_worker::protocol::RefusedStatement;
use dbdyno_workloads::answers::Answers as Compared;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::Microbenchmark;

use crate::error::RunError;

/// The error, with the lines of refused statements in the experiment's text.
pub(crate) fn with_lines(error: RunError, text: &str) -> RunError {
    let RunError::Statements(mut problems) = error else { return error };
    for problem in &mut problems {
        problem.line = line_of(&problem.refused, text);
    }
    RunError::Statements(problems)
}

/// The line of a statement's key `sql` in the experiment, from 1; `None` if the microbenchmark is a
/// built-in one, or written without a line for each key. The experiment is valid.
fn line_of(refused: &RefusedStatement, text: &str) -> Option<usize> {
    let (mut is_it, mut statement) = (false, 0);
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        if line.starts_with("[[microbenchmark]]") {
            (is_it, statement) = (false, 0);
        } else if line.starts_with('[') && !line.starts_with("[[microbenchmark.") {
            is_it = false;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        match key.trim_end() {
            "name" if statement == 0 => {
                // The key `ranges` makes several microbenchmarks of one definition.
                let name = value.trim().trim_matches(['"', '\'']);
                let rest = refused.microbenchmark.strip_prefix(name);
                is_it = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.']));
            }
            "sql" => {
                statement += 1;
                if is_it && statement == refused.number {
                    return Some(number);
                }
            }
            _ => {}
        }
    }
    None
}

#[derive(Debug, Default)]
pub(crate) struct AnswerCheck {
    answers: Vec<(usize, Answers)>,
    compared: Compared,
    /// Whether the experiment can set what is compared: not of built-in microbenchmarks.
    can_be_set: bool,
    /// The control. Where its values differ from the baseline's, those of a script are not determined.
    control: Option<usize>,
    /// Candidates of another system than the baseline's, which may encode the same value in other
    /// bytes: only their counts are compared.
    other_systems: Vec<usize>,
    /// Candidates whose data differs since they lost a slice of writes: not compared. If the baseline is among them,
    /// nothing is compared.
    pub diverged: Vec<usize>,
    /// Candidates that were reported already.
    reported: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    events: u64,
    rows: u64,
    affected: u64,
    digest: u64,
}

impl AnswerCheck {
    /// A check in which these candidates are of another system than the baseline's.
    pub fn new(
        microbenchmark: &Microbenchmark,
        other_systems: Vec<usize>,
        control: Option<usize>,
    ) -> Self {
        Self {
            other_systems,
            compared: microbenchmark.compared_answers().0,
            can_be_set: Catalog::builtin().get(&microbenchmark.name).is_none(),
            control: control
                .filter(|_| microbenchmark.script.is_some() && microbenchmark.answers.is_none()),
            ..Self::default()
        }
    }

    /// Excludes a candidate whose data has diverged.
    pub fn exclude(&mut self, candidate: usize) {
        if !self.diverged.contains(&candidate) {
            self.diverged.push(candidate);
        }
    }

    /// Adds a slice of the current block. A slice with errors is not compared: its data differs,
    /// and the errors are reported as such.
    pub fn add(&mut self, candidate: usize, measured: &SliceMeasured) {
        if measured.errors == 0 {
            let SliceMeasured { events, rows, affected, digest, .. } = *measured;
            self.answers.push((candidate, Answers { events, rows, affected, digest }));
        }
    }

    /// Ends the block. Returns the candidates whose answers differ from the baseline's, and how;
    /// each candidate once, since its data may differ from then on.
    pub fn end_block(&mut self) -> Vec<Difference> {
        let answers = std::mem::take(&mut self.answers);
        let of_baseline = answers.iter().find(|(candidate, _)| *candidate == 0);
        let Some(&(_, baseline)) = of_baseline else { return Vec::new() };
        let mut differing = Vec::new();
        if self.diverged.contains(&0) || self.compared == Compared::None {
            return differing;
        }
        let of_control = answers.iter().find(|(candidate, _)| Some(*candidate) == self.control);
        if let Some(&(candidate, own)) = of_control
            && self.compared == Compared::Values
            && !self.diverged.contains(&candidate)
            && own.digest != baseline.digest
            && own == (Answers { digest: own.digest, ..baseline })
        {
            self.compared = Compared::Rows;
            let reason = BY_NATURE.to_owned();
            differing.push(Difference { candidate, reason, is_by_nature: true });
        }
        for (candidate, mut own) in answers {
            if self.compared == Compared::Rows || self.other_systems.contains(&candidate) {
                own.digest = baseline.digest;
            }
            let comparable = own.events == baseline.events && !self.diverged.contains(&candidate);
            if comparable && own != baseline && !self.reported.contains(&candidate) {
                self.reported.push(candidate);
                let mut reason = difference(own, baseline);
                if self.can_be_set {
                    reason.push_str(&advice(own, baseline));
                }
                differing.push(Difference { candidate, reason, is_by_nature: false });
            }
        }
        differing
    }
}

/// A candidate whose answers differ from the baseline's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub candidate: usize,
    pub reason: String,
    /// Whether equal instances differ.
    pub is_by_nature: bool,
}

const BY_NATURE: &str = "the baseline and the control, which are equal, returned the same number of rows with \
    other values: from here on, only numbers of rows are compared";

/// How to declare that such a difference is not an error.
fn advice(own: Answers, baseline: Answers) -> String {
    let counts = (own.rows, own.affected) == (baseline.rows, baseline.affected);
    let answers = if counts { "rows" } else { "none" };
    format!("; if they differ by nature, set `answers = \"{answers}\"` for the microbenchmark")
}

fn difference(own: Answers, baseline: Answers) -> String {
    let what = if own.rows != baseline.rows {
        format!("returned {} rows instead of {}", own.rows, baseline.rows)
    } else if own.affected != baseline.affected {
        format!("changed {} rows instead of {}", own.affected, baseline.affected)
    } else {
        "returned the same number of rows with other values".to_owned()
    };
    format!("wrong answers: the same {} events as the baseline's {what}", own.events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StatementProblem;

    const TEXT: &str = "name = \"own\"\n\n[[candidate]]\nname = \"a\"\n\n\
        [[microbenchmark]]\nname = \"other\"\n[[microbenchmark.statements]]\nsql = \"SELECT 1\"\n\n\
        [[microbenchmark]]\nname = \"own\"\nranges = [10, 20]\n\
        [[microbenchmark.statements]]\nsql = \"SELECT c FROM {table} LIMIT {R}\"\n\
        [[microbenchmark.statements]]\nsql = \"SELECT nope FROM {table} LIMIT {R}\"\n";

    fn message(microbenchmark: &str, number: u32) -> String {
        let refused = RefusedStatement {
            microbenchmark: microbenchmark.to_owned(),
            number,
            error: "no column nope".to_owned(),
        };
        let candidate = "a".to_owned();
        let error = RunError::Statements(vec![StatementProblem { candidate, refused, line: None }]);
        with_lines(error, TEXT).to_string()
    }

    #[test]
    fn problem_names_candidate_microbenchmark_statement_and_line() {
        assert_eq!(
            message("own_range=20", 2),
            "candidate a, microbenchmark own_range=20, statement 2 (line 17 of the experiment): \
             no column nope"
        );
        assert!(message("other", 1).contains("statement 1 (line 9 of"), "{}", message("other", 1));
        assert!(message("scan_range=100", 1).contains("statement 1: no column"));
    }

    fn measured(rows: u64, digest: u64) -> SliceMeasured {
        SliceMeasured { events: 10, rows, digest, ..SliceMeasured::default() }
    }

    #[test]
    fn a_candidate_with_other_answers_is_reported_once() {
        let mut check = AnswerCheck::default();
        for round in 0..2 {
            check.add(1, &measured(9, 7));
            check.add(0, &measured(10, 7));
            check.add(2, &measured(10, 7));
            let named: Vec<usize> =
                check.end_block().into_iter().map(|one| one.candidate).collect();
            assert_eq!(named, if round == 0 { vec![1] } else { vec![] });
        }
    }

    #[test]
    fn equal_counts_with_other_values_are_reported() {
        let mut check = AnswerCheck::default();
        check.add(0, &measured(10, 7));
        check.add(1, &measured(10, 8));
        let differing = check.end_block();
        assert!(differing[0].reason.contains("other values"), "{differing:?}");
    }

    #[test]
    fn another_system_is_compared_by_counts_only() {
        let mut check = AnswerCheck { other_systems: vec![1], ..AnswerCheck::default() };
        check.add(0, &measured(10, 7));
        check.add(1, &measured(10, 8));
        assert!(check.end_block().is_empty());
        check.add(0, &measured(10, 7));
        check.add(1, &measured(11, 8));
        assert_eq!(check.end_block().len(), 1);
    }

    #[test]
    fn diverged_candidates_are_not_compared() {
        let mut check = AnswerCheck::default();
        check.exclude(1);
        check.add(0, &measured(10, 7));
        check.add(1, &measured(9, 7));
        check.add(2, &measured(9, 7));
        let named: Vec<usize> = check.end_block().into_iter().map(|one| one.candidate).collect();
        assert_eq!(named, [2]);
        check.exclude(0);
        check.add(0, &measured(10, 7));
        check.add(3, &measured(9, 7));
        assert!(check.end_block().is_empty(), "the baseline has diverged");
        // All have the same data again.
        check.diverged = Vec::new();
        check.add(0, &measured(10, 7));
        check.add(1, &measured(9, 7));
        assert_eq!(check.end_block().len(), 1);
    }

    #[test]
    fn slices_with_errors_are_not_compared() {
        let mut check = AnswerCheck::default();
        check.add(0, &measured(10, 7));
        check.add(1, &SliceMeasured { errors: 1, ..measured(8, 3) });
        assert!(check.end_block().is_empty());
    }

    #[test]
    fn values_that_differ_between_equal_instances_are_not_compared() {
        let mut check = AnswerCheck { control: Some(2), ..AnswerCheck::default() };
        let mut block = |digests: [u64; 3], rows: u64| {
            for (candidate, digest) in digests.into_iter().enumerate() {
                check.add(candidate, &measured(if candidate == 1 { rows } else { 10 }, digest));
            }
            check.end_block()
        };
        assert!(block([7, 7, 7], 10).is_empty());
        let differing = block([7, 8, 9], 10);
        assert_eq!(differing.len(), 1, "{differing:?}");
        assert!(differing[0].is_by_nature && differing[0].candidate == 2);
        assert!(block([1, 2, 3], 10).is_empty());
        let differing = block([1, 2, 3], 9);
        assert_eq!(differing.len(), 1, "numbers of rows are compared");
        assert!(!differing[0].is_by_nature && differing[0].candidate == 1);
    }

    #[test]
    fn error_of_an_own_microbenchmark_names_the_setting() {
        let reason = |compared, rows| {
            let mut check = AnswerCheck { can_be_set: true, compared, ..AnswerCheck::default() };
            check.add(0, &measured(10, 7));
            check.add(1, &measured(rows, 8));
            check.end_block().pop().map(|one| one.reason)
        };
        let values = reason(Compared::Values, 10).unwrap();
        assert!(values.ends_with("set `answers = \"rows\"` for the microbenchmark"), "{values}");
        let rows = reason(Compared::Rows, 9).unwrap();
        assert!(rows.contains("`answers = \"none\"`"), "{rows}");
        assert_eq!((reason(Compared::Rows, 10), reason(Compared::None, 9)), (None, None));
    }
}
