//! The share of statements that failed or answered wrongly.

use dbdyno_record::SliceMeasured;
use dbdyno_units::Share;

/// Failed and wrong statements of one candidate in one microbenchmark.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorShare {
    statements: u64,
    bad: u64,
    first_complaint: Option<String>,
}

impl ErrorShare {
    /// Adds a slice. Errors of its lead-in count but the lead-in's statements do not: the share is
    /// rather too high than too low.
    pub fn add(&mut self, measured: &SliceMeasured) {
        self.statements += measured.statements + measured.errors;
        self.bad += measured.errors + measured.wrong;
        if self.first_complaint.is_none() {
            self.first_complaint.clone_from(&measured.first_complaint);
        }
    }

    /// The failure to report if the share is larger than `allowed`.
    pub fn beyond(&self, allowed: Share) -> Option<String> {
        let share = self.bad as f64 / self.statements.max(1) as f64;
        (share > allowed.as_fraction()).then(|| {
            let complaint = self.first_complaint.as_deref().unwrap_or("no details");
            format!(
                "wrong answers or errors: {} of {} statements, more than the allowed {allowed}; \
                 the first: {complaint}",
                self.bad, self.statements
            )
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
        assert!(complaint.contains("1 of 1000"), "{complaint}");
        assert!(complaint.contains("0 rows instead of 1"), "{complaint}");
    }
}
