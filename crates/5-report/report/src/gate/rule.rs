//! The rules of a gate, as people write them.

use std::fmt;
use std::str::FromStr;

use dbdyno_document::did_you_mean;
use dbdyno_units::Share;

/// What a rule limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Less throughput.
    Slower,
    /// More CPU time per query.
    MoreCpu,
    /// The metric to trust: more CPU time per query for writes and for one client of a server, less
    /// throughput otherwise.
    Worse,
}

/// A rule: `slower 2%`, `more-cpu 5% in writes`, `worse 3% in point-1 of new`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    quantity: Quantity,
    limit: Share,
    part: Option<String>,
    candidate: Option<String>,
}

/// A rule that cannot be understood, or names something that the run does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rule `{rule}`: {reason}")]
pub struct InvalidRule {
    rule: String,
    reason: String,
}

const QUANTITIES: [(&str, Quantity); 3] =
    [("slower", Quantity::Slower), ("more-cpu", Quantity::MoreCpu), ("worse", Quantity::Worse)];

const FORM: &str = "write `slower 2%`, `more-cpu 2%` or `worse 2%`, then maybe `in` with a group or \
                    microbenchmark, and `of` with a candidate";

impl Rule {
    /// What is limited.
    #[must_use]
    pub const fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// The difference that is permitted.
    #[must_use]
    pub const fn limit(&self) -> Share {
        self.limit
    }

    /// The group or microbenchmark; `None` for every microbenchmark.
    #[must_use]
    pub fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }

    /// Whether the rule is about this candidate.
    #[must_use]
    pub fn is_about(&self, candidate: &str) -> bool {
        self.candidate.as_deref().is_none_or(|wanted| wanted == candidate)
    }

    /// Checks the names in the rule. `parts` are groups and microbenchmarks.
    ///
    /// # Errors
    /// A name is none of these.
    pub fn check_names<'a>(
        &self,
        candidates: impl IntoIterator<Item = &'a str>,
        parts: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), InvalidRule> {
        let known = |what: &str, wanted: Option<&str>, names: Vec<&str>| match wanted {
            Some(wanted) if !names.contains(&wanted) => {
                let help = did_you_mean(wanted, &names);
                Err(self.invalid(format!("the run has no {what} `{wanted}`; {help}")))
            }
            _ => Ok(()),
        };
        known("candidate", self.candidate.as_deref(), candidates.into_iter().collect())?;
        known("group or microbenchmark", self.part(), parts.into_iter().collect())
    }

    fn invalid(&self, reason: String) -> InvalidRule {
        InvalidRule { rule: self.text.clone(), reason }
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid = |reason: String| InvalidRule { rule: text.to_owned(), reason };
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default();
        let quantity = QUANTITIES.iter().find(|(name, _)| *name == word);
        let quantity = quantity.ok_or_else(|| {
            let help = did_you_mean(word, &QUANTITIES.map(|(name, _)| name));
            invalid(format!("`{word}` is unknown; {help}; {FORM}"))
        })?;
        let limit = words.next().ok_or_else(|| invalid(FORM.to_owned()))?;
        let percent = limit.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..100.0).contains(percent));
        let percent =
            percent.ok_or_else(|| invalid(format!("`{limit}` is no share from 0% to 99.9%")))?;
        let mut rule = Self {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            quantity: quantity.1,
            limit: Share::from_percent(percent),
            part: None,
            candidate: None,
        };
        while let Some(word) = words.next() {
            let place = match word {
                "in" => &mut rule.part,
                "of" => &mut rule.candidate,
                _ => return Err(invalid(format!("`{word}` is unknown; {FORM}"))),
            };
            let name = words.next().ok_or_else(|| invalid(format!("nothing follows `{word}`")))?;
            if place.replace(name.to_owned()).is_some() {
                return Err(invalid(format!(
                    "`{word}` appears twice; give --fail-if twice instead"
                )));
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
