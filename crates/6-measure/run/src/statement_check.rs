//! All statements are prepared on every candidate before anything is measured.

use std::fmt;

use dbdyno_spec::experiment::Experiment;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::RefusedStatement;

use crate::error::RunError;
use crate::instance::Instance;

/// A statement that a candidate's system refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementProblem {
    pub candidate: String,
    /// The statement, and the system's error.
    pub refused: RefusedStatement,
    /// The line of the experiment with the statement, from 1; `None` if it is a built-in one.
    pub line: Option<usize>,
}

impl fmt::Display for StatementProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidate, refused, line } = self;
        let RefusedStatement { microbenchmark, number, error } = refused;
        write!(f, "candidate {candidate}, microbenchmark {microbenchmark}, statement {number}")?;
        if let Some(line) = line {
            write!(f, " (line {line} of the experiment)")?;
        }
        write!(f, ": {error}")
    }
}

/// The statements of all microbenchmarks that an open instance refuses.
pub(crate) fn problems(
    experiment: &Experiment,
    instance: &mut Instance,
) -> Result<Vec<StatementProblem>, WorkerError> {
    let refused = instance.worker_mut()?.check_statements(&experiment.workload.microbenchmarks)?;
    let candidate = &instance.candidate.name;
    let problem = |refused| StatementProblem { candidate: candidate.clone(), refused, line: None };
    Ok(refused.into_iter().map(problem).collect())
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
