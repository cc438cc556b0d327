//! Instructions that functions execute per query, by exact counts, beside the samples of a profile.

use std::collections::{BTreeMap, HashMap};

use dbdyno_profile::Titles;
use dbdyno_results::ProfileRecord;
use dbdyno_types::executed::{Executed, ExecutedFunction};
use dbdyno_types::profile::{Function, Profile};
use dbdyno_units::Share;

use super::Measured;
use super::profile::is_in_kernel;
use crate::model::Instructions;

/// Share of the samples under a name that must be in counted functions: otherwise the instructions are not those of
/// all that have the name.
const WHOLE: f64 = 0.95;

/// What was counted of one candidate, in all starts.
#[derive(Default)]
struct Counts {
    /// Instructions per query by name: the sum over starts, and their number.
    of: BTreeMap<String, (f64, u32)>,
    /// Samples of all starts outside of the kernel, and those in counted functions.
    samples: (f64, f64),
    /// Why nothing was counted in the last start in which nothing was.
    refused: Option<String>,
}

impl Measured {
    /// `None` if nothing was to be counted.
    pub(super) fn instructions(&self, candidate: usize, titles: &Titles) -> Option<Instructions> {
        let counts = [candidate, 0].map(|number| self.counts(number, titles));
        if counts.iter().all(|one| one.of.is_empty() && one.refused.is_none()) {
            return None;
        }
        let mut functions: BTreeMap<String, [Option<f64>; 2]> = BTreeMap::new();
        for (side, one) in counts.iter().enumerate() {
            for (name, (sum, starts)) in &one.of {
                let per_query = sum / f64::from(*starts);
                functions.entry(name.clone()).or_default()[side] = Some(per_query);
            }
        }
        Some(Instructions {
            covered: counts.each_ref().map(Counts::covered),
            not_counted: counts.map(|one| one.refused.filter(|_| one.of.is_empty())),
            functions,
        })
    }

    fn counts(&self, candidate: usize, titles: &Titles) -> Counts {
        let mut counts = Counts::default();
        for (number, restart, executed) in &self.executed {
            if *number as usize != candidate {
                continue;
            }
            let is_of = |one: &&ProfileRecord| one.candidate == *number && one.restart == *restart;
            match (executed, self.profiles.iter().find(is_of)) {
                (Executed::Counted { statements, functions }, Some(record)) if *statements > 0 => {
                    counts.add(&record.profile, functions, *statements, titles);
                }
                (Executed::Counted { .. }, _) => {}
                (Executed::NotCounted { reason }, _) => counts.refused = Some(reason.clone()),
            }
        }
        for record in self.profiles.iter().filter(|one| one.candidate as usize == candidate) {
            counts.add_samples(&record.profile, titles);
        }
        counts
    }
}

impl Counts {
    /// Adds what was counted in one start, in which this was sampled.
    fn add(
        &mut self,
        profile: &Profile,
        executed: &[ExecutedFunction],
        statements: u64,
        titles: &Titles,
    ) {
        let executed: HashMap<(&str, u64), u64> =
            executed.iter().map(|one| ((&*one.module, one.start), one.instructions)).collect();
        // Samples, those in counted functions, and instructions.
        let mut names: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        for (function, samples) in outside_of_kernel(profile) {
            let sums = names.entry(titles.title(function)).or_default();
            sums[0] += samples;
            if let Some(instructions) = executed.get(&(&*function.module, function.start)) {
                sums[1] += samples;
                sums[2] = sums[2].saturating_add(*instructions);
            }
        }
        for (name, sums) in names {
            let [samples, counted, instructions] = sums.map(|sum| sum as f64);
            if counted >= samples * WHOLE {
                let sum = self.of.entry(name).or_default();
                sum.0 += instructions / statements as f64;
                sum.1 += 1;
            }
        }
    }

    /// Adds the samples of a start, also of one in which nothing was counted.
    fn add_samples(&mut self, profile: &Profile, titles: &Titles) {
        for (function, samples) in outside_of_kernel(profile) {
            self.samples.0 += samples as f64;
            if self.of.contains_key(&titles.title(function)) {
                self.samples.1 += samples as f64;
            }
        }
    }

    fn covered(&self) -> Option<Share> {
        let (samples, counted) = self.samples;
        (samples > 0.0).then(|| Share::from_fraction(counted / samples))
    }
}

/// The functions outside of the kernel in which something was sampled, without what they call, and their samples.
fn outside_of_kernel(profile: &Profile) -> impl Iterator<Item = (&Function, u64)> {
    let mut samples = vec![0; profile.functions.len()];
    for stack in &profile.stacks {
        if let Some(innermost) = stack.frames.first()
            && let Some(count) = samples.get_mut(*innermost as usize)
        {
            *count += stack.samples;
        }
    }
    let all = profile.functions.iter().zip(samples);
    all.filter(|(function, samples)| *samples > 0 && !is_in_kernel(function))
}

#[cfg(test)]
mod tests {
    use dbdyno_types::profile::Stack;

    use super::*;

    #[test]
    fn instructions_are_those_of_all_functions_with_a_name() {
        let function = |module: &str, name: Option<&str>, start| Function {
            module: module.to_owned(),
            name: name.map(str::to_owned),
            source: None,
            start,
        };
        let functions = vec![
            function("server", Some("parse"), 16),
            function("server", Some("parse"), 32),
            function("server", None, 48),
            function("server", None, 64),
            function("[k]", Some("read"), 0),
        ];
        let stack = |(frame, samples)| Stack { frames: vec![frame], samples };
        let stacks = [(0, 30), (1, 20), (2, 30), (3, 20), (4, 100)].map(stack).into();
        let profile = Profile { functions, stacks, ..Profile::default() };
        let executed = |start, instructions| ExecutedFunction {
            module: "server".to_owned(),
            start,
            instructions,
        };
        let mut counts = Counts::default();
        let titles = Titles::of([]);
        // Of the functions without a name, one was not counted.
        counts.add(
            &profile,
            &[executed(16, 700), executed(32, 300), executed(48, 900)],
            10,
            &titles,
        );
        counts.add(&profile, &[executed(16, 1_300), executed(32, 300)], 10, &titles);
        assert_eq!(counts.of, BTreeMap::from([("parse".to_owned(), (100.0 + 160.0, 2))]));
        counts.add_samples(&profile, &titles);
        assert_eq!(counts.covered(), Some(Share::from_fraction(0.5)));
    }
}
