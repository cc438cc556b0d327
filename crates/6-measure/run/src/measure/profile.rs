//! Sampling of stacks in blocks of their own, after those that are measured: sampling costs CPU time. Whatever fails
//! here fails the profile only.

use dbdyno_machine::clock;
use dbdyno_profile::{ProfileError, Sampler};
use dbdyno_results::{ProfileRecord, Role, Warning};
use dbdyno_spec::experiment::{Experiment, Profiling};
use dbdyno_types::SliceMeasured;
use dbdyno_types::profile::{SampleScope, StatementCpu};
use dbdyno_units::Nanos;
use dbdyno_worker::schedule::{BASELINE, BlockPlan, Schedule};

use super::{MicrobenchmarkRun, NumberedCase};
use crate::candidates::{Deployment, ResolvedCandidate};
use crate::error::RunError;
use crate::instance::{Instance, SliceError, running};
use crate::plan::cases::{ProfiledBlocks, plain_blocks, profile_times, profiled_slice};
use crate::record::Recorder;
use crate::session::progress::RunEvent;

/// The number of the first block in which stacks are sampled: none that is measured has such a number.
const FIRST_SAMPLED: u32 = 1 << 20;

/// The number of the first block in which waits are recorded.
pub(super) const FIRST_RECORDED: u32 = FIRST_SAMPLED + BLOCKS_OF_START / 2;

/// The numbers of blocks that a start has, half of them for waits.
const BLOCKS_OF_START: u32 = 1 << 13;

/// Blocks that take longer are reported.
const REPORTED: Nanos = Nanos::from_secs(2);

/// What an instance did in slices that were sampled, and in those that were not.
#[derive(Clone, Copy, Default)]
struct Sums {
    sampled: StatementCpu,
    unsampled: StatementCpu,
}

impl MicrobenchmarkRun<'_> {
    /// Samples the stacks of all instances.
    pub(super) fn profile(
        &mut self,
        restart: u32,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let experiment = self.context.experiment;
        let Some(profiling) = &experiment.profile else { return Ok(()) };
        let is_included =
            |one: &NumberedCase<'_>| profiling.includes(&one.case.microbenchmark.name);
        let cases: Vec<NumberedCase<'_>> = self.left.iter().copied().filter(is_included).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let began = clock::monotonic();
        let mut sampled = start(profiling, instances, recorder);
        let mut outcome = Ok(());
        for case in cases {
            if outcome.is_ok() && sampled[BASELINE] {
                outcome = self.profile_case(case, restart, &mut sampled, instances, recorder);
            }
        }
        recorder.profiled += clock::monotonic() - began;
        outcome
    }

    fn profile_case(
        &mut self,
        numbered: NumberedCase<'_>,
        restart: u32,
        sampled: &mut [bool],
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let NumberedCase { id, case } = numbered;
        if profile_times(self.context.experiment, &case.microbenchmark)[0].least > REPORTED {
            recorder.report(RunEvent::SamplingStacks);
        }
        let mut sums = vec![Sums::default(); instances.len()];
        let was_sampled = sampled.to_vec();
        let blocks = self.profiled_blocks(numbered, (FIRST_SAMPLED, restart), instances);
        let sampling =
            self.sample_blocks(blocks, (sampled, sums.as_mut_slice()), instances, recorder);
        let mut profiles = Vec::new();
        // Also of a run that is being stopped, and of an instance that failed.
        for (number, instance) in running(instances).filter(|(number, _)| was_sampled[*number]) {
            let name = instance.candidate.name.clone();
            let mut profile = match instance.profile() {
                Ok(Some(profile)) => profile,
                Ok(None) => continue,
                Err(error) => {
                    recorder.warnings.push(failed(&name, &error));
                    continue;
                }
            };
            let Sums { sampled: StatementCpu { statements, cpu }, unsampled } = sums[number];
            if statements > 0 {
                profile.unsampled = (unsampled.statements > 0).then_some(unsampled);
                let candidate = number as u32;
                let record = ProfileRecord { candidate, restart, statements, cpu, profile };
                recorder.results.set_profile(id, &record)?;
                profiles.push(record);
            }
        }
        sampling?;
        self.record_waits(numbered, restart, sampled, instances, recorder)?;
        self.count_instructions(numbered, &profiles, instances, recorder)
    }

    /// The blocks of a start in which stacks are sampled or waits recorded, by the number of the first of all starts.
    pub(super) fn profiled_blocks(
        &self,
        NumberedCase { id, case }: NumberedCase<'_>,
        (first, restart): (u32, u32),
        instances: &[Instance],
    ) -> Schedule {
        let experiment = self.context.experiment;
        let first = first.saturating_add(restart.saturating_mul(BLOCKS_OF_START));
        let slice = profiled_slice(experiment, &case.microbenchmark);
        let plan =
            BlockPlan { clients: case.clients, ..plain_blocks(experiment, id, first, slice) };
        Schedule::new(plan, self.taking_part(instances))
    }

    /// Which instances run slices of this microbenchmark.
    pub(super) fn taking_part(&self, instances: &[Instance]) -> Vec<bool> {
        let takes_part = |(number, instance): (usize, &Instance)| {
            instance.is_running() && !self.left_out.contains(&number)
        };
        instances.iter().enumerate().map(takes_part).collect()
    }

    /// Runs the blocks, and more than planned until each system had its share of CPU time. Instances that cannot be
    /// sampled run them, too: all have the same history. Ends with the first failure, whose instance is not sampled any
    /// more.
    fn sample_blocks(
        &mut self,
        mut blocks: Schedule,
        (sampled, sums): (&mut [bool], &mut [Sums]),
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let prepare = self.prepare_request();
        let phase = self.phase("sampling stacks");
        let microbenchmark = &self.first().case.microbenchmark;
        let wanted = ProfiledBlocks::of(self.context.experiment, microbenchmark);
        let mut complete = 0;
        while let Some(mut slice) = blocks.next() {
            let number = slice.candidate;
            let instance = &mut instances[number];
            let is_measured = !slice.warmup && sampled[number];
            slice.request.profile = is_measured && wanted.is_profiled(complete);
            let error = match instance.run_slice(self.context, slice.request, &prepare) {
                Ok(measured) => {
                    blocks.calibrate(&measured);
                    if is_measured {
                        let sum = match slice.request.profile {
                            true => &mut sums[number].sampled,
                            false => &mut sums[number].unsampled,
                        };
                        add(sum, &measured);
                    }
                    recorder.check_cancelled()?;
                    if !blocks.is_block_complete() || slice.warmup {
                        continue;
                    }
                    complete += 1;
                    let of_sampled = sums.iter().zip(&*sampled).filter(|(_, sampled)| **sampled);
                    if wanted.are_enough(complete, of_sampled.map(|(sum, _)| sum.sampled.cpu)) {
                        return Ok(());
                    }
                    continue;
                }
                Err(SliceError::Lost(lost)) => {
                    recorder.lost(&instance.candidate.name, number, &phase, &lost)?;
                    if instance.has_diverged {
                        self.answers.exclude(number);
                    }
                    lost.error
                }
                Err(SliceError::Failed(error)) if error.is_loss() => {
                    self.fail(number, instance, &phase, &error, recorder)?;
                    error
                }
                Err(SliceError::Failed(error)) => error,
            };
            recorder.check_cancelled()?;
            sampled[number] = false;
            recorder.warnings.push(failed(&instances[number].candidate.name, &error));
            return Ok(());
        }
        Ok(())
    }
}

/// Adds a slice to a sum.
pub(super) fn add(sum: &mut StatementCpu, slice: &SliceMeasured) {
    sum.statements += slice.statements;
    sum.cpu += slice.server.map_or(slice.cpu, |server| server.cpu);
}

/// Prepares to sample instances, and returns which of them can be.
fn start(
    profiling: &Profiling,
    instances: &mut [Instance],
    recorder: &mut Recorder<'_>,
) -> Vec<bool> {
    let is_permitted = Sampler::permitted().is_ok();
    let mut sampled = vec![false; instances.len()];
    for (number, instance) in running(instances) {
        let candidate = &instance.candidate;
        // It is reported already.
        if candidate.host.is_none() && !is_permitted || !can_be_sampled(candidate) {
            continue;
        }
        match instance.start_profile(profiling.frequency) {
            Ok(()) => sampled[number] = true,
            Err(error) => recorder.warnings.push(failed(&instance.candidate.name, &error)),
        }
    }
    sampled
}

fn failed(candidate: &str, error: &impl std::fmt::Display) -> Warning {
    Warning {
        what: format!("{} of {candidate}: {error}", Warning::NO_STACKS),
        advice: "everything else is measured".to_owned(),
    }
}

/// Whether it is an existing server whose process is not known.
fn is_unknown(candidate: &ResolvedCandidate) -> bool {
    matches!(&candidate.deployment, Deployment::Existing(server) if server.pid.is_none())
}

/// Whether stacks of it tell functions. The live optimizer moves those of the server to memory without a file, where they
/// have neither names nor tables for unwinding.
fn can_be_sampled(candidate: &ResolvedCandidate) -> bool {
    !is_unknown(candidate) && candidate.spec.live.is_none()
}

/// Warnings about candidates that cannot be sampled.
pub(crate) fn warnings_of_candidates(
    experiment: &Experiment,
    candidates: &[ResolvedCandidate],
) -> Vec<Warning> {
    let others = candidates.iter().filter(|one| one.role != Role::Control && !can_be_sampled(one));
    let warning = |one: &ResolvedCandidate| {
        let (why, advice) = match is_unknown(one) {
            true => (
                "the server runs on another machine, or its process is not known",
                "set `pid`, or `host` for a server on another machine",
            ),
            false => (
                "the live optimizer moves its functions to where they have no names",
                "compare builds without `live` by function",
            ),
        };
        let what = format!("{} of {}: {why}", Warning::NO_STACKS, one.name);
        Warning { what, advice: advice.to_owned() }
    };
    others.filter(|_| experiment.profile.is_some()).map(warning).collect()
}

/// A warning if the kernel does not permit to sample all CPUs of this machine, before a run with a profile.
pub(crate) fn warning_of_permission(experiment: &Experiment) -> Option<Warning> {
    let is_local = experiment.candidates.iter().any(|one| one.system.host().is_none());
    experiment.profile.as_ref().filter(|_| is_local)?;
    warning_of(Sampler::permitted())
}

fn warning_of(permitted: Result<SampleScope, ProfileError>) -> Option<Warning> {
    let by_thread =
        "stacks are sampled by thread, at most 100 times per second, which costs more CPU time";
    let (what, advice) = match permitted {
        Ok(SampleScope::Cpus) => return None,
        Ok(SampleScope::Threads) => (by_thread.to_owned(), ALL_CPUS),
        Ok(SampleScope::UserMode) => {
            (format!("{by_thread}, and in user mode only: the kernel is one row"), ALL_CPUS)
        }
        Err(error) => {
            let what = format!("{}: {error}", Warning::NO_STACKS);
            (what, "everything else is measured as without --profile")
        }
    };
    Some(Warning { what, advice: advice.to_owned() })
}

const ALL_CPUS: &str = "run as root, or sysctl kernel.perf_event_paranoid=-1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_says_what_is_not_permitted_and_what_to_do() {
        let text = |permitted| {
            let warning = warning_of(permitted)?;
            Some(format!("{} {}", warning.what_with_stop(), warning.advice))
        };
        assert_eq!(text(Ok(SampleScope::Cpus)), None);
        let user_mode = text(Ok(SampleScope::UserMode)).unwrap();
        assert!(user_mode.contains("user mode only") && user_mode.contains("run as root"));
        let paranoid = "3".to_owned();
        let refused = text(Err(ProfileError::NotPermitted { paranoid })).unwrap();
        for part in ["kernel.perf_event_paranoid is 3", "run as root", "everything else"] {
            assert!(refused.contains(part), "{refused}");
        }
        let blocked = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let blocked = text(Err(ProfileError::Blocked(blocked))).unwrap();
        assert!(blocked.contains("docker run --cap-add PERFMON"), "{blocked}");
    }
}
