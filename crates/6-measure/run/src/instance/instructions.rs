//! Counting of the instructions that an instance's system under test executes.

use std::time::Duration;

use dbdyno_live::{InstructionCounting, ProbeOptions, SampledFunction, Target};
use dbdyno_spec::experiment::System;
use dbdyno_types::SliceMeasured;
use dbdyno_types::executed::Executed;
use dbdyno_types::profile::Profile;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::SliceRequest;

use crate::instance::Instance;
use crate::instance::context::RunContext;

/// How long threads may be stopped: nothing is measured meanwhile.
const MAX_PAUSE: Duration = Duration::from_millis(500);

impl Instance {
    /// Runs a slice, and counts meanwhile the instructions of the functions in which most was sampled. A slice in
    /// which they cannot be counted is run all the same, so that all instances execute the same statements.
    pub fn run_counted_slice(
        &mut self,
        context: &RunContext<'_>,
        profile: &Profile,
        request: SliceRequest,
    ) -> Result<(SliceMeasured, Executed), WorkerError> {
        let prepared = self.countable_process(context).and_then(|target| {
            let prepared = InstructionCounting::prepare(&target, &sampled_functions(profile));
            prepared.map_err(|error| error.to_string())
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

/// The functions of files in which something was sampled.
fn sampled_functions(profile: &Profile) -> Vec<SampledFunction> {
    let mut samples = vec![0; profile.functions.len()];
    for stack in &profile.stacks {
        if let Some(innermost) = stack.frames.first()
            && let Some(count) = samples.get_mut(*innermost as usize)
        {
            *count += stack.samples;
        }
    }
    let sampled = profile.functions.iter().zip(samples);
    let sampled = sampled.filter(|(function, samples)| function.start > 0 && *samples > 0);
    let sampled = sampled.map(|(function, samples)| SampledFunction {
        module: function.module.clone(),
        start: function.start,
        samples,
    });
    sampled.collect()
}

#[cfg(test)]
mod tests {
    use dbdyno_types::profile::{Function, Stack};

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
        let found: Vec<_> = sampled_functions(&profile)
            .into_iter()
            .map(|function| (function.module, function.start, function.samples))
            .collect();
        assert_eq!(found, [("server".to_owned(), 16, 5), ("libc.so.6".to_owned(), 32, 3)]);
    }
}
