//! Counting of the instructions that an instance's system under test executes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use std::{ptr, slice};

use dbdyno_live::{InstructionCounting, ProbeOptions, SampledFunction, Target};
use dbdyno_spec::experiment::System;
use dbdyno_types::SliceMeasured;
use dbdyno_types::executed::Executed;
use dbdyno_types::profile::{Function, Profile};
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::SliceRequest;

use crate::instance::Instance;
use crate::instance::context::RunContext;

/// How long threads may be stopped: nothing is measured meanwhile.
const MAX_PAUSE: Duration = Duration::from_millis(500);

impl Instance {
    /// Runs a slice, and counts meanwhile the instructions of those of these functions that have most samples. A slice in
    /// which they cannot be counted is run all the same, so that all instances execute the same statements.
    pub fn run_counted_slice(
        &mut self,
        context: &RunContext<'_>,
        functions: &[SampledFunction],
        request: SliceRequest,
    ) -> Result<(SliceMeasured, Executed), WorkerError> {
        let prepared = self.countable_process(context).and_then(|target| {
            InstructionCounting::prepare(&target, functions).map_err(|error| error.to_string())
        });
        let worker = self.worker_mut()?;
        let (slice, counted) = match prepared {
            Ok(counting) => {
                let (slice, counted) = counting.count(|| worker.slice(request));
                (slice, counted.map_err(|error| error.to_string()))
            }
            Err(reason) => (worker.slice(request), Err(reason)),
        };
        let measured = slice?;
        let statements = measured.statements + measured.lead_in_statements.unwrap_or_default();
        let executed = match counted {
            Ok(functions) => Executed::Counted { statements, functions },
            Err(reason) => Executed::NotCounted { reason },
        };
        Ok((measured, executed))
    }

    /// The process in which instructions can be counted, or why there is none.
    fn countable_process(&self, context: &RunContext<'_>) -> Result<Target, String> {
        let spec = &self.candidate.spec;
        let refused = match &spec.system {
            _ if spec.live.is_some() => Some("the live optimizer changes its code"),
            _ if self.candidate.host.is_some() => Some("it runs on another host"),
            System::Existing(_) => Some("dbdyno did not start it"),
            System::Private(server) if server.system.has_process_per_session() => {
                Some("it has a process for each session")
            }
            System::Private(_) | System::Sqlite { .. } => None,
        };
        if let Some(reason) = refused {
            return Err(reason.to_owned());
        }
        let process = self.process().map_err(|error| error.to_string())?;
        Ok(Target {
            pid: process.pid,
            family: false,
            state: context.journals(),
            probe: ProbeOptions::UNMAP,
            max_pause: MAX_PAUSE,
        })
    }
}

/// The functions to count in a process with one of these profiles: those in which something was sampled in any of them, so
/// that candidates count the same where possible. A function of another profile is the one at its address in a file of the
/// same build, or else one with its name in a stack of `own`; others are not counted.
pub(crate) fn functions_to_count(own: &Profile, all: &[&Profile]) -> Vec<SampledFunction> {
    let mut by_name: HashMap<(&str, &str), Vec<u64>> = HashMap::new();
    for Function { module, name, start, .. } in &own.functions {
        if let (Some(name), 1..) = (name, *start) {
            by_name.entry((module.as_str(), name.as_str())).or_default().push(*start);
        }
    }
    let mut sums: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for &profile in all {
        for (Function { module, name, start, .. }, samples) in sampled_functions(profile) {
            let build = |of: &Profile| {
                let build = of.modules.iter().find(|one| one.module == *module);
                build.map(|one| one.build.clone())
            };
            let is_same =
                ptr::eq(profile, own) || build(own).is_some_and(|own| build(profile) == Some(own));
            let starts: &[u64] = if is_same {
                slice::from_ref(start)
            } else {
                let name = name.as_deref();
                let named = name.and_then(|name| by_name.get(&(module.as_str(), name)));
                named.map_or(&[], Vec::as_slice)
            };
            for start in starts {
                *sums.entry((module.as_str(), *start)).or_default() += samples;
            }
        }
    }
    let functions = sums.into_iter().map(|((module, start), samples)| SampledFunction {
        module: module.to_owned(),
        start,
        samples,
    });
    functions.collect()
}

/// The functions of files in which something was sampled.
fn sampled_functions(profile: &Profile) -> impl Iterator<Item = (&Function, u64)> {
    let mut samples = vec![0; profile.functions.len()];
    for stack in &profile.stacks {
        if let Some(innermost) = stack.frames.first()
            && let Some(count) = samples.get_mut(*innermost as usize)
        {
            *count += stack.samples;
        }
    }
    let sampled = profile.functions.iter().zip(samples);
    sampled.filter(|(function, samples)| function.start > 0 && *samples > 0)
}

#[cfg(test)]
mod tests {
    use dbdyno_types::profile::{ModuleBuild, Stack};

    use super::*;

    #[test]
    fn functions_have_the_samples_of_stacks_that_they_are_innermost_in() {
        let function = |module: &str, start| Function {
            module: module.to_owned(),
            name: None,
            source: None,
            start,
        };
        let profile = Profile {
            functions: vec![function("server", 16), function("[k]", 0), function("libc.so.6", 32)],
            stacks: [(vec![0], 1), (vec![1, 0], 2), (vec![2, 0], 3), (vec![0, 2], 4), (vec![], 5)]
                .map(|(frames, samples)| Stack { frames, samples })
                .into(),
            ..Profile::default()
        };
        let found = counted(&profile, &[&profile]);
        assert_eq!(found, [("libc.so.6".to_owned(), 32, 3), ("server".to_owned(), 16, 5)]);
    }

    fn counted(own: &Profile, all: &[&Profile]) -> Vec<(String, u64, u64)> {
        let functions = functions_to_count(own, all).into_iter();
        functions.map(|function| (function.module, function.start, function.samples)).collect()
    }

    #[test]
    fn functions_of_other_profiles_are_found_by_address_or_by_name() {
        let profile = |build: &str, moved: u64, samples: [u64; 3]| {
            let function = |name: Option<&str>, start| Function {
                module: "server".to_owned(),
                name: name.map(str::to_owned),
                source: None,
                start,
            };
            let module = "server".to_owned();
            let stack = |(frame, samples)| Stack { frames: vec![frame], samples };
            Profile {
                functions: vec![
                    function(Some("parse"), 16 + moved),
                    function(Some("read"), 32 + moved),
                    function(None, 48 + moved),
                ],
                modules: vec![ModuleBuild { module, build: build.to_owned() }],
                stacks: (0..).zip(samples).map(stack).collect(),
                ..Profile::default()
            }
        };
        let of = |own: &Profile, all: &[&Profile]| -> Vec<(u64, u64)> {
            counted(own, all).into_iter().map(|(_, start, samples)| (start, samples)).collect()
        };
        let base = profile("1a", 0, [100, 0, 0]);
        let same_build = profile("1a", 0, [90, 0, 7]);
        let other_build = profile("2b", 4_096, [80, 60, 5]);
        let all = [&base, &same_build, &other_build];
        assert_eq!(of(&base, &all), [(16, 270), (32, 60), (48, 7)]);
        assert_eq!(of(&same_build, &all), of(&base, &all));
        assert_eq!(of(&other_build, &all), [(4_112, 270), (4_128, 60), (4_144, 5)]);
    }
}
