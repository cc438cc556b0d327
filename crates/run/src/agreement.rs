//! Candidates that do the same events on the same data must give the same answers.

use dbdyno_record::SliceMeasured;

/// What the candidates answered in the present block.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    answers: Vec<(usize, Answers)>,
    /// Candidates whose answers come in another form than the baseline's: another system writes
    /// the same value in other bytes. Only their counts are compared.
    foreign: Vec<usize>,
    /// Candidates that are not compared any more: they were reported already, or a lost slice
    /// left their data in another state.
    left_out: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    events: u64,
    rows: u64,
    affected: u64,
    digest: u64,
}

impl Agreement {
    /// For candidates of which these speak otherwise than the baseline.
    pub fn with_foreign(foreign: Vec<usize>) -> Self {
        Self { foreign, ..Self::default() }
    }

    /// Compares this candidate no more; without the baseline, nobody is compared.
    pub fn leave_out(&mut self, candidate: usize) {
        self.left_out.push(candidate);
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
        if self.left_out.contains(&0) {
            return disagreeing;
        }
        for (candidate, mut own) in answers {
            if self.foreign.contains(&candidate) {
                own.digest = baseline.digest;
            }
            let comparable = own.events == baseline.events;
            if comparable && own != baseline && !self.left_out.contains(&candidate) {
                self.left_out.push(candidate);
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
        let mut agreement = Agreement::default();
        for round in 0..2 {
            agreement.add(1, &measured(9, 7));
            agreement.add(0, &measured(10, 7));
            agreement.add(2, &measured(10, 7));
            let named: Vec<usize> = agreement.check().into_iter().map(|(c, _)| c).collect();
            assert_eq!(named, if round == 0 { vec![1] } else { vec![] });
        }
    }

    #[test]
    fn the_same_count_with_other_values_is_wrong_too() {
        let mut agreement = Agreement::default();
        agreement.add(0, &measured(10, 7));
        agreement.add(1, &measured(10, 8));
        let disagreeing = agreement.check();
        assert!(disagreeing[0].1.contains("other values"), "{disagreeing:?}");
    }

    #[test]
    fn another_system_agrees_by_its_counts() {
        let mut agreement = Agreement::with_foreign(vec![1]);
        agreement.add(0, &measured(10, 7));
        agreement.add(1, &measured(10, 8));
        assert!(agreement.check().is_empty());
        agreement.add(0, &measured(10, 7));
        agreement.add(1, &measured(11, 8));
        assert_eq!(agreement.check().len(), 1);
    }

    #[test]
    fn data_that_lost_a_slice_is_not_compared() {
        let mut agreement = Agreement::default();
        agreement.leave_out(1);
        agreement.add(0, &measured(10, 7));
        agreement.add(1, &measured(9, 7));
        assert!(agreement.check().is_empty());
    }

    #[test]
    fn after_an_error_nothing_is_compared() {
        let mut agreement = Agreement::default();
        agreement.add(0, &measured(10, 7));
        agreement.add(1, &SliceMeasured { errors: 1, ..measured(8, 3) });
        assert!(agreement.check().is_empty());
    }
}
