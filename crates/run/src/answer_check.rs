//! Candidates that do the same events on the same data must give the same answers.

use dbdyno_record::SliceMeasured;

/// What the candidates answered in the present block.
#[derive(Debug, Default)]
pub(crate) struct AnswerCheck {
    answers: Vec<(usize, Answers)>,
    /// Candidates whose answers come in another form than the baseline's: another system writes
    /// the same value in other bytes. Only their counts are compared.
    foreign: Vec<usize>,
    /// Candidates that a lost slice of writes left with other data than the rest: what they
    /// answer cannot be compared.
    differing: Vec<usize>,
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
    /// For candidates of which these speak otherwise than the baseline.
    pub fn with_foreign(foreign: Vec<usize>) -> Self {
        Self { foreign, ..Self::default() }
    }

    /// Compares none of these, which have other data, until this is called again; where the
    /// baseline is one of them, nobody is compared.
    pub fn set_differing(&mut self, candidates: Vec<usize>) {
        self.differing = candidates;
    }

    /// Compares this candidate no more.
    pub fn differs(&mut self, candidate: usize) {
        self.differing.push(candidate);
    }

    /// Whether its data is known to be another.
    pub fn is_differing(&self, candidate: usize) -> bool {
        self.differing.contains(&candidate)
    }

    /// Takes a slice of the present block.
    pub fn add(&mut self, candidate: usize, measured: &SliceMeasured) {
        // After an error the data differs; that is reported as the error that it is.
        if measured.errors == 0 {
            let SliceMeasured { events, rows, affected, digest, .. } = *measured;
            self.answers.push((candidate, Answers { events, rows, affected, digest }));
        }
    }

    /// Ends the block: which candidates answered otherwise than the baseline, and how. Each is
    /// named once; where its data differs, it differs from then on.
    pub fn check(&mut self) -> Vec<(usize, String)> {
        let answers = std::mem::take(&mut self.answers);
        let of_baseline = answers.iter().find(|(candidate, _)| *candidate == 0);
        let Some(&(_, baseline)) = of_baseline else { return Vec::new() };
        let mut disagreeing = Vec::new();
        if self.differing.contains(&0) {
            return disagreeing;
        }
        for (candidate, mut own) in answers {
            if self.foreign.contains(&candidate) {
                own.digest = baseline.digest;
            }
            let comparable = own.events == baseline.events && !self.differing.contains(&candidate);
            if comparable && own != baseline && !self.reported.contains(&candidate) {
                self.reported.push(candidate);
                disagreeing.push((candidate, difference(own, baseline)));
            }
        }
        disagreeing
    }
}

fn difference(own: Answers, baseline: Answers) -> String {
    let what = if own.rows != baseline.rows {
        format!("{} rows instead of {}", own.rows, baseline.rows)
    } else if own.affected != baseline.affected {
        format!("{} changed rows instead of {}", own.affected, baseline.affected)
    } else {
        "the same number of rows, with other values".to_owned()
    };
    format!("wrong answers: the same {} events as the baseline's gave {what}", own.events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rows: u64, digest: u64) -> SliceMeasured {
        SliceMeasured { events: 10, rows, digest, ..SliceMeasured::default() }
    }

    #[test]
    fn a_candidate_that_answers_otherwise_is_named_once() {
        let mut answer_check = AnswerCheck::default();
        for round in 0..2 {
            answer_check.add(1, &measured(9, 7));
            answer_check.add(0, &measured(10, 7));
            answer_check.add(2, &measured(10, 7));
            let named: Vec<usize> = answer_check.check().into_iter().map(|(c, _)| c).collect();
            assert_eq!(named, if round == 0 { vec![1] } else { vec![] });
        }
    }

    #[test]
    fn the_same_count_with_other_values_is_wrong_too() {
        let mut answer_check = AnswerCheck::default();
        answer_check.add(0, &measured(10, 7));
        answer_check.add(1, &measured(10, 8));
        let disagreeing = answer_check.check();
        assert!(disagreeing[0].1.contains("other values"), "{disagreeing:?}");
    }

    #[test]
    fn another_system_agrees_by_its_counts() {
        let mut answer_check = AnswerCheck::with_foreign(vec![1]);
        answer_check.add(0, &measured(10, 7));
        answer_check.add(1, &measured(10, 8));
        assert!(answer_check.check().is_empty());
        answer_check.add(0, &measured(10, 7));
        answer_check.add(1, &measured(11, 8));
        assert_eq!(answer_check.check().len(), 1);
    }

    #[test]
    fn data_that_lost_a_slice_is_not_compared() {
        let mut answer_check = AnswerCheck::default();
        answer_check.differs(1);
        answer_check.add(0, &measured(10, 7));
        answer_check.add(1, &measured(9, 7));
        answer_check.add(2, &measured(9, 7));
        let named: Vec<usize> = answer_check.check().into_iter().map(|(c, _)| c).collect();
        assert_eq!(named, [2]);
        answer_check.differs(0);
        answer_check.add(0, &measured(10, 7));
        answer_check.add(3, &measured(9, 7));
        assert!(answer_check.check().is_empty(), "nobody has the baseline's data");
        // Now that all have the same data again.
        answer_check.set_differing(Vec::new());
        answer_check.add(0, &measured(10, 7));
        answer_check.add(1, &measured(9, 7));
        assert_eq!(answer_check.check().len(), 1);
    }

    #[test]
    fn after_an_error_nothing_is_compared() {
        let mut answer_check = AnswerCheck::default();
        answer_check.add(0, &measured(10, 7));
        answer_check.add(1, &SliceMeasured { errors: 1, ..measured(8, 3) });
        assert!(answer_check.check().is_empty());
    }
}
