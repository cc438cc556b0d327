//! The share of statements that failed or had a wrong result.

use dbdyno_types::SliceMeasured;
use dbdyno_units::Share;

/// Statements of one candidate in one microbenchmark that failed, and those with a wrong result.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorShare {
    /// All that were executed, including those of lead-ins.
    statements: u64,
    failed: u64,
    /// Succeeded, but with a wrong number of rows.
    wrong: u64,
    first_complaint: Option<String>,
}

impl ErrorShare {
    /// Adds a slice. Of a slice that an earlier session stored, the statements of the lead-in that had
    /// a right result are unknown and not counted: the share is rather too high than too low.
    pub fn add(&mut self, measured: &SliceMeasured) {
        let succeeded = match measured.lead_in_statements {
            Some(lead_in) => measured.statements + lead_in,
            None => measured.statements.max(measured.wrong),
        };
        self.statements += succeeded + measured.errors;
        self.failed += measured.errors;
        self.wrong += measured.wrong;
        if self.first_complaint.is_none() {
            self.first_complaint.clone_from(&measured.first_complaint);
        }
    }

    /// The failure to report if the share is larger than `allowed`.
    pub fn beyond(&self, allowed: Share) -> Option<String> {
        let Self { statements, failed, wrong, .. } = self;
        let share = (failed + wrong) as f64 / (*statements).max(1) as f64;
        (share > allowed.as_fraction()).then(|| {
            let what = match (failed, wrong) {
                (_, 0) => format!("{failed} of {statements} statements failed"),
                (0, _) => format!("{wrong} of {statements} statements had a wrong result"),
                _ => format!(
                    "{failed} of {statements} statements failed, and {wrong} had a wrong result"
                ),
            };
            let complaint = self.first_complaint.as_deref().unwrap_or("no details");
            format!("{what}; {allowed} are allowed (`max_error_share`); the first: {complaint}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_share_beyond_the_limit_is_reported() {
        let mut errors = ErrorShare::default();
        errors.add(&SliceMeasured { statements: 999, ..SliceMeasured::default() });
        assert_eq!(errors.beyond(Share::from_fraction(0.0)), None);
        errors.add(&SliceMeasured {
            statements: 1,
            wrong: 1,
            first_complaint: Some("returned 0 rows instead of 1".to_owned()),
            ..SliceMeasured::default()
        });
        assert_eq!(errors.beyond(Share::from_percent(0.1)), None);
        let complaint = errors.beyond(Share::from_percent(0.05)).unwrap();
        assert!(complaint.contains("1 of 1000 statements had a wrong result;"), "{complaint}");
        assert!(complaint.contains("0 rows instead of 1"), "{complaint}");
    }

    #[test]
    fn errors_and_wrong_results_are_counted_apart_and_with_the_lead_in() {
        let mut errors = ErrorShare::default();
        // 70 statements succeeded with a wrong result, 30 of them in the lead-in; 5 failed.
        let slice = SliceMeasured {
            statements: 40,
            lead_in_statements: Some(30),
            wrong: 70,
            errors: 5,
            ..SliceMeasured::default()
        };
        errors.add(&slice);
        let complaint = errors.beyond(Share::from_percent(0.1)).unwrap();
        let counts = "5 of 75 statements failed, and 70 had a wrong result; 0.1% are allowed";
        assert!(complaint.starts_with(counts), "{complaint}");
        // As an earlier session stored it.
        let mut stored = ErrorShare::default();
        stored.add(&SliceMeasured { lead_in_statements: None, ..slice });
        let complaint = stored.beyond(Share::from_percent(0.1)).unwrap();
        assert!(complaint.starts_with(counts), "{complaint}");
    }
}
