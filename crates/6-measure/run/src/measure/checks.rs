//! Checks of a candidate: that its system accepts all statements, and that its answers are those of the baseline.

use dbdyno_types::SliceMeasured;
use dbdyno_worker::protocol::RefusedStatement;

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
    /// Candidates of another system than the baseline's, which may encode the same value in other
    /// bytes: only their counts are compared.
    other_systems: Vec<usize>,
    /// Candidates whose data differs since they lost a slice of writes: not compared.
    diverged: Vec<usize>,
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
    pub fn new(other_systems: Vec<usize>) -> Self {
        Self { other_systems, ..Self::default() }
    }

    /// Sets which candidates have diverged: they are not compared. If the baseline is among them,
    /// nothing is compared.
    pub fn set_diverged(&mut self, candidates: Vec<usize>) {
        self.diverged = candidates;
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
    pub fn end_block(&mut self) -> Vec<(usize, String)> {
        let answers = std::mem::take(&mut self.answers);
        let of_baseline = answers.iter().find(|(candidate, _)| *candidate == 0);
        let Some(&(_, baseline)) = of_baseline else { return Vec::new() };
        let mut differing = Vec::new();
        if self.diverged.contains(&0) {
            return differing;
        }
        for (candidate, mut own) in answers {
            if self.other_systems.contains(&candidate) {
                own.digest = baseline.digest;
            }
            let comparable = own.events == baseline.events && !self.diverged.contains(&candidate);
            if comparable && own != baseline && !self.reported.contains(&candidate) {
                self.reported.push(candidate);
                differing.push((candidate, difference(own, baseline)));
            }
        }
        differing
    }
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
            let named: Vec<usize> = check.end_block().into_iter().map(|(c, _)| c).collect();
            assert_eq!(named, if round == 0 { vec![1] } else { vec![] });
        }
    }

    #[test]
    fn equal_counts_with_other_values_are_reported() {
        let mut check = AnswerCheck::default();
        check.add(0, &measured(10, 7));
        check.add(1, &measured(10, 8));
        let differing = check.end_block();
        assert!(differing[0].1.contains("other values"), "{differing:?}");
    }

    #[test]
    fn another_system_is_compared_by_counts_only() {
        let mut check = AnswerCheck::new(vec![1]);
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
        let named: Vec<usize> = check.end_block().into_iter().map(|(c, _)| c).collect();
        assert_eq!(named, [2]);
        check.exclude(0);
        check.add(0, &measured(10, 7));
        check.add(3, &measured(9, 7));
        assert!(check.end_block().is_empty(), "the baseline has diverged");
        // All have the same data again.
        check.set_diverged(Vec::new());
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
}
