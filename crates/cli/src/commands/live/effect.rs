//! The effect of an optimization, measured by an A/B test.

use dbdyno_live::{AbTestOutcome, AttachedGroup, Attachment, KeepRule, LiveError};
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

    /// If the A/B test fails, nothing is proven, and the rule for that applies.
    pub(super) fn tested(
        group: Result<AttachedGroup, LiveError>,
        keep: KeepRule,
        ab_test: impl FnOnce(&mut AttachedGroup) -> Result<AbTestOutcome, LiveError>,
    ) -> Self {
        let mut group = match group {
            Ok(group) => group,
            Err(error) => {
                return Self::failed(&format!("active, but the A/B test failed: {error}"));
            }
        };
        match ab_test(&mut group) {
            Ok(outcome) => Self::applied(&outcome),
            Err(error) => {
                group.add_new_descendants();
                let (done, again) = match keep {
                    KeepRule::IfBetter => ("undone", group.switch(Attachment::undo)),
                    KeepRule::Always => ("active", group.switch(Attachment::redo)),
                };
                let mut text = format!("the A/B test failed: {error}; ");
                text.push_str(&match again {
                    Ok(_) => done.to_owned(),
                    Err(again) => format!("not {done}: {again}"),
                });
                Self::failed(&text)
            }
        }
    }

    fn applied(AbTestOutcome { result, active, applied }: &AbTestOutcome) -> Self {
        let [done, not_done] =
            if *active { ["active", "not active again"] } else { ["undone", "not undone"] };
        let mut json = serde_json::to_value(result).unwrap_or_default();
        json["active"] = json!(active);
        let mut text = format!("{result}; ");
        let errors: Vec<String> = match applied {
            Ok(all) => {
                text.push_str(done);
                all.failed.iter().map(|(pid, error)| format!("process {pid}: {error}")).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        for error in &errors {
            text.push_str(&format!("; {not_done}: {error}"));
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
