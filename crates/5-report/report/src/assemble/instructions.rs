//! Instructions that functions execute per query, by exact counts, beside the samples of a profile.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

/// Instructions per query by start.
type OfStarts = BTreeMap<u32, f64>;

/// What was counted of one candidate, in all starts.
#[derive(Default)]
struct Counts {
    /// Instructions per query by name and start.
    of: BTreeMap<String, OfStarts>,
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
        let names: BTreeSet<&String> = counts.iter().flat_map(|one| one.of.keys()).collect();
        let of_both = |name: &String| per_query(counts.each_ref().map(|one| one.of.get(name)));
        let functions = names.into_iter().map(|name| (name.clone(), of_both(name))).collect();
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
                    let known = self.known_functions(&record.profile);
                    counts.add(*restart, &known, functions, *statements, titles);
                }
                (Executed::Counted { .. }, _) => {}
                (Executed::NotCounted { reason }, _) => counts.refused = Some(reason.clone()),
            }
        }
        for record in self.records(candidate) {
            counts.add_samples(&record.profile, titles);
        }
        counts
    }

    /// The functions of a program outside of the kernel and their samples: those of its profile, and without samples those
    /// that were sampled in another process of the same build, which are also counted.
    fn known_functions<'a>(&'a self, own: &'a Profile) -> Vec<(&'a Function, u64)> {
        let mut known: Vec<(&Function, u64)> = outside_of_kernel(own).collect();
        let mut addresses: HashSet<(&str, u64)> =
            known.iter().map(|&(function, _)| address(function)).collect();
        for ProfileRecord { profile, .. } in &self.profiles {
            let same_builds = profile.modules.iter().filter(|one| own.modules.contains(one));
            let same: HashSet<&str> = same_builds.map(|one| one.module.as_str()).collect();
            let sampled = outside_of_kernel(profile).filter(|(_, samples)| *samples > 0);
            let others = sampled
                .map(|(function, _)| function)
                .filter(|function| function.start > 0 && same.contains(function.module.as_str()));
            let new = others.filter(|&function| addresses.insert(address(function)));
            known.extend(new.map(|function| (function, 0)));
        }
        known
    }
}

/// Instructions per query of a function on both sides: the mean over the starts in which both counted it, if there are
/// any, so that both are of the same work.
fn per_query(counted: [Option<&OfStarts>; 2]) -> [Option<f64>; 2] {
    let in_both =
        |start: &u32| counted.iter().all(|one| one.is_some_and(|of| of.contains_key(start)));
    let has_common = counted[0].is_some_and(|of| of.keys().any(in_both));
    counted.map(|of| {
        let used = of?.iter().filter(|&(start, _)| !has_common || in_both(start));
        let values: Vec<f64> = used.map(|(_, instructions)| *instructions).collect();
        Some(values.iter().sum::<f64>() / values.len() as f64)
    })
}

/// Where a function is, which tells functions of a build apart.
fn address(function: &Function) -> (&str, u64) {
    (function.module.as_str(), function.start)
}

impl Counts {
    /// Adds what was counted in one start, in a program with these functions.
    fn add(
        &mut self,
        restart: u32,
        known: &[(&Function, u64)],
        executed: &[ExecutedFunction],
        statements: u64,
        titles: &Titles,
    ) {
        let executed: HashMap<(&str, u64), u64> =
            executed.iter().map(|one| ((&*one.module, one.start), one.instructions)).collect();
        // Samples, those in counted functions, and instructions. A function that only others sampled has none.
        let mut names: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        for (function, samples) in known {
            let instructions = executed.get(&address(function));
            if *samples == 0 && instructions.is_none() {
                continue;
            }
            let sums = names.entry(titles.title(function)).or_default();
            sums[0] += samples;
            if let Some(instructions) = instructions {
                sums[1] += samples;
                sums[2] = sums[2].saturating_add(*instructions);
            }
        }
        for (name, sums) in names {
            let [samples, counted, instructions] = sums.map(|sum| sum as f64);
            if counted >= samples * WHOLE {
                let per_query = instructions / statements as f64;
                self.of.entry(name).or_default().insert(restart, per_query);
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

/// The functions outside of the kernel, and their samples without what they call.
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
    all.filter(|(function, _)| !is_in_kernel(function))
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
        let known: Vec<(&Function, u64)> = outside_of_kernel(&profile).collect();
        let first = [executed(16, 700), executed(32, 300), executed(48, 900)];
        counts.add(0, &known, &first, 10, &titles);
        counts.add(1, &known, &[executed(16, 1_300), executed(32, 300)], 10, &titles);
        let of_starts = BTreeMap::from([(0, 100.0), (1, 160.0)]);
        assert_eq!(counts.of, BTreeMap::from([("parse".to_owned(), of_starts)]));
        counts.add_samples(&profile, &titles);
        assert_eq!(counts.covered(), Some(Share::from_fraction(0.5)));
    }

    #[test]
    fn both_sides_are_compared_in_starts_that_both_counted() {
        let of = |starts: &[(u32, f64)]| -> OfStarts { starts.iter().copied().collect() };
        let [both, first, second] = [of(&[(0, 10.0), (1, 14.0)]), of(&[(0, 8.0)]), of(&[(1, 9.0)])];
        assert_eq!(per_query([Some(&both), Some(&first)]), [Some(10.0), Some(8.0)]);
        assert_eq!(per_query([Some(&both), Some(&both)]), [Some(12.0); 2]);
        assert_eq!(per_query([Some(&first), Some(&second)]), [Some(8.0), Some(9.0)]);
        assert_eq!(per_query([None, Some(&both)]), [None, Some(12.0)]);
    }
}
