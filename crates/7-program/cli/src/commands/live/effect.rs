//! The effect of an optimization, measured by an A/B test.

use dbdyno_live::{
    AbTestOutcome, AttachedGroup, GroupSwitched, KeepRule, LiveError, retry_while_busy,
};
use serde_json::{Value, json};

/// The measured effect of an optimization.
pub(super) struct Effect {
    pub(super) text: String,
    pub(super) json: Value,
    /// Whether a requested A/B test failed.
    pub(super) has_failed: bool,
}

impl Effect {
    pub(super) fn not_requested() -> Self {
        let text = "not measured (no --work-command)".to_owned();
        Self { text, json: Value::Null, has_failed: false }
    }

    /// If the A/B test fails, nothing is proven, and the rule for that applies. `open` attaches to the processes; it
    /// is retried, because without it the optimization cannot be undone either.
    pub(super) fn tested(
        open: impl FnMut() -> Result<AttachedGroup, LiveError>,
        keep: KeepRule,
        ab_test: impl FnOnce(&mut AttachedGroup) -> Result<AbTestOutcome, LiveError>,
    ) -> Self {
        let may_recover = |error: &LiveError| !matches!(error, LiveError::Exited { .. });
        let mut group = match retry_while_busy(open, may_recover).0 {
            Ok(group) => group,
            Err(error) => {
                let state = match keep {
                    KeepRule::IfBetter => "active and unproven, because it cannot be undone now",
                    KeepRule::Always => "active",
                };
                return Self::failed(&format!("{state}; the A/B test failed: {error}"));
            }
        };
        match ab_test(&mut group) {
            Ok(outcome) => Self::applied(&outcome, group.unattached()),
            Err(error) => {
                let (done, again) = match keep {
                    KeepRule::IfBetter => ("undone", Ok(group.undo_all())),
                    KeepRule::Always => ("active", group.redo_all()),
                };
                let mut text = format!("the A/B test failed: {error}");
                match again {
                    Ok(all) => {
                        if is_switched(&all) {
                            text.push_str(&format!("; {done}"));
                        }
                        for error in of_processes(all.failed.iter().chain(group.unattached())) {
                            text.push_str(&format!("; not {done}: {error}"));
                        }
                    }
                    Err(again) => text.push_str(&format!("; not {done}: {again}")),
                }
                Self::failed(&text)
            }
        }
    }

    /// `unattached`: processes that could not take part.
    fn applied(outcome: &AbTestOutcome, unattached: &[(u32, LiveError)]) -> Self {
        let AbTestOutcome { result, active, applied, missed } = outcome;
        let [done, not_done] =
            if *active { ["active", "not active again"] } else { ["undone", "not undone"] };
        let mut json = serde_json::to_value(result).unwrap_or_default();
        json["active"] = json!(active);
        let mut text = result.to_string();
        let mut errors: Vec<String> = match applied {
            Ok(all) => {
                if is_switched(all) {
                    text.push_str(&format!("; {done}"));
                }
                of_processes(&all.failed).map(|error| format!("{not_done}: {error}")).collect()
            }
            Err(error) => vec![format!("{not_done}: {error}")],
        };
        errors.extend(of_processes(unattached).map(|error| format!("not in the test: {error}")));
        let missed = of_processes(missed);
        errors.extend(missed.map(|error| format!("not switched in a period: {error}")));
        for error in &errors {
            text.push_str(&format!("; {error}"));
        }
        if !errors.is_empty() {
            json["error"] = json!(errors);
        }
        Self { text, json, has_failed: !errors.is_empty() }
    }

    fn failed(text: &str) -> Self {
        Self { text: text.to_owned(), json: json!({ "error": text }), has_failed: true }
    }
}

/// Whether any process was switched, or none was to be.
fn is_switched(all: &GroupSwitched) -> bool {
    !all.stops.is_empty() || all.failed.is_empty()
}

/// Errors of processes, with their process IDs.
fn of_processes<'a>(
    failed: impl IntoIterator<Item = &'a (u32, LiveError)>,
) -> impl Iterator<Item = String> {
    failed.into_iter().map(|(pid, error)| format!("process {pid}: {error}"))
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Nanos;

    use super::*;

    /// A test of a group with a session that is locked; it is unproven and undone.
    fn outcome(applied: Result<GroupSwitched, LiveError>) -> AbTestOutcome {
        let result = dbdyno_live::AbTestResult::default();
        AbTestOutcome { result, active: false, applied, missed: Vec::new() }
    }

    fn locked(pid: u32) -> (u32, LiveError) {
        (pid, LiveError::Locked { pid })
    }

    #[test]
    fn attaching_is_retried_before_an_unproven_optimization_stays_active() {
        let effect = |keep, error: fn() -> LiveError| {
            let mut attempts = 0;
            let open = || {
                attempts += 1;
                Err(error())
            };
            let effect = Effect::tested(open, keep, |_| Err(error()));
            (effect, attempts)
        };
        let (locked, exited) = (|| LiveError::Locked { pid: 7 }, || LiveError::Exited { pid: 7 });
        let (unproven, attempts) = effect(KeepRule::IfBetter, locked);
        assert!(unproven.has_failed && attempts > 5, "{attempts}");
        assert!(unproven.text.starts_with("active and unproven, "), "{}", unproven.text);
        let (kept, attempts) = effect(KeepRule::Always, exited);
        assert!(kept.text.starts_with("active; the A/B test failed: "), "{}", kept.text);
        assert_eq!(attempts, 1);
    }

    #[test]
    fn processes_that_were_not_switched_or_attached_are_named() {
        let effect = Effect::applied(&outcome(Ok(GroupSwitched::default())), &[]);
        assert!(!effect.has_failed && effect.text.ends_with("; undone"), "{}", effect.text);
        let effect = Effect::applied(&outcome(Ok(GroupSwitched::default())), &[locked(7)]);
        let expected = "; undone; not in the test: process 7: another dbdyno is attached";
        assert!(effect.has_failed && effect.text.contains(expected), "{}", effect.text);
        let failed = |stops| GroupSwitched { stops, failed: vec![locked(8)], retries: 0 };
        let effect = Effect::applied(&outcome(Ok(failed(vec![]))), &[]);
        let is_undone = |effect: &Effect| effect.text.contains("; undone");
        assert!(effect.has_failed && !is_undone(&effect), "{}", effect.text);
        let failed = failed(vec![Nanos::from_millis(1)]);
        let missed = AbTestOutcome { missed: vec![locked(9)], ..outcome(Ok(failed)) };
        let effect = Effect::applied(&missed, &[]);
        assert!(effect.has_failed && is_undone(&effect), "{}", effect.text);
        assert!(effect.text.contains("; not undone: process 8: "), "{}", effect.text);
        assert!(effect.text.contains("; not switched in a period: process 9: "), "{}", effect.text);
    }
}
