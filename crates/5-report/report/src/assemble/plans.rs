//! Plans that differ from the baseline's.

use std::collections::BTreeMap;

use dbdyno_results::{CandidateRecord, Role};

use super::Measured;
use crate::model::OtherPlan;

/// Systems that explain statements in the same words.
const ALIKE: [&str; 2] = ["mariadb", "mysql"];

impl Measured {
    /// The statements for which a candidate of the same system has another plan than the baseline in some start.
    pub(super) fn other_plans(
        &self,
        candidate: usize,
        [own, baseline]: [&CandidateRecord; 2],
    ) -> Vec<OtherPlan> {
        let is_alike = |system: &str| ALIKE.contains(&system);
        let comparable =
            own.system == baseline.system || is_alike(&own.system) && is_alike(&baseline.system);
        if own.role != Role::Candidate || !comparable {
            return Vec::new();
        }
        let (own, mut of_baseline) = (self.plans_of(candidate), self.plans_of(0));
        let compared = own.into_iter().filter_map(|(number, (sql, own))| {
            let (_, baseline) = of_baseline.remove(&number)?;
            let changes = own.len() > 1 || baseline.len() > 1;
            let (plan, baseline) = (own.first()?.to_vec(), baseline.first()?.to_vec());
            let is_known = !plan.is_empty() && !baseline.is_empty();
            (is_known && (plan != baseline || changes)).then(|| OtherPlan {
                sql: sql.to_owned(),
                plan,
                baseline,
                changes,
            })
        });
        compared.collect()
    }

    /// Each statement with its different plans, in the order of the starts.
    fn plans_of(&self, candidate: usize) -> BTreeMap<u32, (&str, Vec<&[String]>)> {
        let mut all: BTreeMap<u32, (&str, Vec<&[String]>)> = BTreeMap::new();
        for (_, _, plan) in self.plans.iter().filter(|one| one.0 as usize == candidate) {
            let (_, known) = all.entry(plan.number).or_insert((&plan.sql, Vec::new()));
            if !known.contains(&&plan.lines[..]) {
                known.push(&plan.lines);
            }
        }
        all
    }
}
