//! Sampling of stacks in the timed part of slices.

use std::collections::{BTreeSet, HashSet};
use std::io;

use dbdyno_machine::{CpuSet, ProcessTree, ProcessTreeUsage};
use dbdyno_profile::{Collector, ProfileError, Sampler};
use dbdyno_types::ServerUsage;
use dbdyno_types::profile::{Function, NOT_SAMPLED, Profile, SampleScope, Stack};
use dbdyno_units::Nanos;

/// Samples processes, and collects their stacks between slices.
pub struct Profiler {
    sampler: Sampler,
    collector: Collector,
    /// CPU time while it was sampled, since the last profile.
    used: Nanos,
    /// This process, if it is sampled in user mode only, and its usage at the beginning.
    own: Option<(ProcessTree, Option<ProcessTreeUsage>)>,
}

impl Profiler {
    /// Prepares to sample these processes: as a part of all that runs on the CPUs if the kernel permits that, else by
    /// their threads. The first must not end before.
    pub fn open(pids: &[u32], frequency: u32) -> Result<Self, ProfileError> {
        let online = CpuSet::online();
        let online = online.ok_or_else(|| io::Error::other("the online CPUs are not known"))?;
        let sampler = match Sampler::on_cpus(&numbers(&online), frequency) {
            Err(ProfileError::NotPermitted { .. } | ProfileError::Blocked(_)) => {
                let threads: Vec<i32> = pids.iter().flat_map(|pid| threads_of(*pid)).collect();
                let sets = pids.iter().filter_map(|pid| CpuSet::of_process(*pid).ok());
                let cpus: BTreeSet<usize> = sets.flat_map(|set| numbers(&set)).collect();
                let cpus: Vec<usize> = cpus.into_iter().collect();
                Sampler::of_threads(&threads, &cpus, frequency)?
            }
            opened => opened?,
        };
        let is_own = pids == [std::process::id()] && sampler.scope() == SampleScope::UserMode;
        let own = if is_own { ProcessTree::of(pids[0]).ok() } else { None };
        Ok(Self {
            sampler,
            collector: Collector::default(),
            used: Nanos::ZERO,
            own: own.map(|own| (own, None)),
        })
    }

    pub fn begin(&mut self) -> Result<(), ProfileError> {
        if let Some((own, before)) = &mut self.own {
            *before = own.read().ok();
        }
        self.sampler.enable()
    }

    pub fn end(&mut self) -> Result<(), ProfileError> {
        let ended = self.sampler.disable();
        if let Some((own, before)) = &mut self.own
            && let Some((before, after)) = before.take().zip(own.read().ok())
        {
            let used = after.since(&before);
            self.used += used.cpu;
        }
        ended
    }

    /// Collects what was sampled of these processes, which used this meanwhile.
    pub fn collect(&mut self, pids: &HashSet<u32>, used: Option<&ServerUsage>) {
        self.collector.collect(&mut self.sampler, pids);
        if let Some(used) = used {
            self.used += used.cpu;
        }
    }

    /// All that was collected since the last call.
    pub fn take(&mut self) -> Profile {
        let mut profile = self.collector.take();
        profile.scope = self.sampler.scope();
        profile.period = self.sampler.period();
        add_not_sampled(&mut profile, std::mem::take(&mut self.used));
        profile
    }
}

/// Adds the rest of the CPU time that was used, as one function of the kernel: shares are of all CPU time. Samples have no
/// time with interrupts off, as in the scheduler when a thread goes to sleep and when it wakes another one, which in
/// virtual machines is long; nor their own; nor, in user mode, any of the kernel.
fn add_not_sampled(profile: &mut Profile, used: Nanos) {
    let all = used.as_nanos().checked_div(profile.period.as_nanos()).unwrap_or(0);
    let samples = all.saturating_sub(profile.samples.saturating_add(profile.lost));
    if samples == 0 {
        return;
    }
    let (module, name) = ("[k]".to_owned(), Some(NOT_SAMPLED.to_owned()));
    let frame = profile.functions.len() as u32;
    profile.functions.push(Function { module, name, source: None, start: 0 });
    profile.stacks.push(Stack { frames: vec![frame], samples });
    profile.samples += samples;
}

fn numbers(cpus: &CpuSet) -> Vec<usize> {
    cpus.iter().map(|cpu| cpu as usize).collect()
}

/// The threads of a process, its first one first; none if it has ended.
fn threads_of(pid: u32) -> Vec<i32> {
    let mut threads = dbdyno_machine::threads_of(pid).unwrap_or_default();
    threads.sort_by_key(|thread| *thread != pid);
    threads.into_iter().map(u32::cast_signed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_samples_is_added_as_a_function_of_the_kernel() {
        let period = Nanos::from_millis(1);
        let sampled = || Profile { samples: 300, lost: 20, period, ..Profile::default() };
        let mut profile = sampled();
        add_not_sampled(&mut profile, Nanos::from_millis(400));
        assert_eq!((profile.samples, profile.stacks[0].samples), (380, 80));
        assert!(profile.is_consistent() && profile.functions[0].module == "[k]");
        let unknown = Profile { period: Nanos::ZERO, ..sampled() };
        for (mut profile, used) in
            [(sampled(), 0), (sampled(), 250), (sampled(), 320), (unknown, 400)]
        {
            add_not_sampled(&mut profile, Nanos::from_millis(used));
            assert_eq!((profile.samples, profile.stacks.len()), (300, 0), "of {used} ms");
        }
    }

    #[test]
    fn first_thread_of_a_process_comes_first() {
        let own = std::process::id();
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || receiver.recv());
            let threads = threads_of(own);
            assert_eq!(threads[0], own.cast_signed());
            assert!(threads.len() > 1);
            drop(sender);
        });
        assert!(threads_of(u32::MAX).is_empty());
    }
}
