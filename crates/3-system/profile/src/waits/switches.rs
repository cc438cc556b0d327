//! Recording of each switch of threads.
//!
//! One event per CPU writes a record when a thread loses the CPU and when it gets it, and a sample with the stack of
//! the kernel before it loses it. This is the software event of context switches and not the tracepoint `sched_switch`:
//! it comes from the same place of the kernel, and needs no tracefs, which is often not mounted. Copies of user stacks
//! are too large for each switch. A second event takes one of many; as each switch is recorded, times remain whole.

use std::collections::{HashMap, HashSet};
use std::io;

use dbdyno_types::profile::WaitKind;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag};

use super::kinds::Kinds;
use super::threads::{Change, Event};
use crate::kernel::KernelSymbols;
use crate::sampler::{ProfileError, REGISTERS, Sample, kernel_part, refused, stack_of};

/// Bytes of a user's stack that are copied: only its inner end is shown.
const DUMP: u32 = 16 << 10;

/// Of how many switches one stack is copied: primes, so that it is not always the same switch of a query.
const PERIODS: [u64; 5] = [1, 3, 7, 31, 127];

/// Copied stacks per second and CPU at most.
const STACKS: f64 = 1_000.0;

/// Bytes of the buffers of a CPU: 40,000 switches, which must not be lost, and 250 copied stacks.
const RING: usize = 8 << 20;
const RING_OF_STACKS: usize = 4 << 20;

/// `PERF_RECORD_SWITCH_CPU_WIDE`, and the bits in `misc` (`uapi/linux/perf_event.h` of the kernel).
const SWITCH: u32 = 15;
const OUT: u16 = 1 << 13;
const STILL_RUNNABLE: u16 = 1 << 14;

pub(super) struct Switches {
    cpus: Vec<usize>,
    all: Vec<perf_event::Sampler>,
    stacks: Vec<perf_event::Sampler>,
    period: u64,
    /// By address of a function of the kernel.
    kinds: HashMap<u64, Option<WaitKind>>,
    /// Records that were lost because a buffer was full, and all others.
    pub lost: u64,
    pub records: u64,
}

/// A record of a switch: `next_prev_pid`, `next_prev_tid` and, of the thread that is switched, `pid`, `tid`, `time`.
#[derive(Debug, PartialEq, Eq)]
struct Switch {
    pid: u32,
    thread: u32,
    time: u64,
    is_out: bool,
    /// Whether it could continue to run.
    is_preempted: bool,
}

impl Switch {
    fn parse(misc: u16, record: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?));
        Some(Self {
            pid: number(8)?,
            thread: number(12)?,
            time: u64::from_ne_bytes(*record.get(16..)?.first_chunk()?),
            is_out: misc & OUT != 0,
            is_preempted: misc & STILL_RUNNABLE != 0,
        })
    }
}

impl Switches {
    /// Opens disabled events.
    pub fn open(cpus: &[usize]) -> Result<Self, ProfileError> {
        let all = open(cpus, RING, |builder| {
            builder.sample_period(1).sample_id_all(true).context_switch(true);
        })?;
        let period = PERIODS[PERIODS.len() - 1];
        let stacks = with_stacks(cpus, period)?;
        let (kinds, cpus) = (HashMap::new(), cpus.to_owned());
        Ok(Self { cpus, all, stacks, period, kinds, lost: 0, records: 0 })
    }

    pub fn enable(&mut self) -> Result<(), ProfileError> {
        let all = self.stacks.iter_mut().chain(&mut self.all);
        Ok(all.map(|ring| ring.as_counter_mut()).try_for_each(|one| one.enable())?)
    }

    pub fn disable(&mut self) -> Result<(), ProfileError> {
        let all = self.all.iter_mut().chain(&mut self.stacks);
        Ok(all.map(|ring| ring.as_counter_mut()).try_for_each(|one| one.disable())?)
    }

    /// Adds what happened to the threads of these processes. Returns the number of switches of all.
    pub fn drain(
        &mut self,
        pids: &HashSet<u32>,
        kernel: &KernelSymbols,
        table: &Kinds,
        events: &mut Vec<Event>,
    ) -> u64 {
        let Self { all, kinds, lost, records, .. } = self;
        let mut of_address = |address: &u64| {
            let kind = || kernel.name(*address).and_then(|name| table.of(true, name));
            *kinds.entry(*address).or_insert_with(kind)
        };
        let mut switches = 0;
        for ring in all {
            let mut kind = WaitKind::Other;
            while let Some(record) = ring.next_record() {
                *records += 1;
                if record.ty() == SWITCH {
                    let Some(switch) = Switch::parse(record.misc(), &record.to_contiguous()) else {
                        continue;
                    };
                    switches += u64::from(switch.is_out);
                    if pids.contains(&switch.pid) {
                        let Switch { pid, thread, time, is_out, is_preempted } = switch;
                        let change = match is_out {
                            true if is_preempted => Change::Out(WaitKind::Cpu),
                            true => Change::Out(kind),
                            false => Change::In,
                        };
                        events.push(Event { time, pid, thread, change });
                    }
                    kind = WaitKind::Other;
                    continue;
                }
                match record.parse_record() {
                    Ok(Record::Lost(one)) => {
                        *records -= 1;
                        *lost = lost.saturating_add(one.lost);
                    }
                    Ok(Record::Sample(sample)) => {
                        // The record of the switch comes next.
                        let is_own = sample.pid().is_some_and(|pid| pids.contains(&pid));
                        let chain = sample.callchain().filter(|_| is_own).unwrap_or_default();
                        let known = kernel_part(chain).iter().find_map(&mut of_address);
                        kind = known.unwrap_or(WaitKind::Other);
                    }
                    _ => {}
                }
            }
        }
        switches
    }

    /// The copied stacks of these processes. `keep` stores a stack and returns its number.
    pub fn drain_stacks(
        &mut self,
        pids: &HashSet<u32>,
        events: &mut Vec<Event>,
        mut keep: impl FnMut(&Sample<'_>) -> usize,
    ) {
        for ring in &mut self.stacks {
            while let Some(record) = ring.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else { continue };
                let Some(pid) = sample.pid().filter(|pid| pids.contains(pid)) else { continue };
                let Some((thread, time)) = sample.tid().zip(sample.time()) else { continue };
                let change = Change::Stack(keep(&stack_of(pid, &sample)));
                events.push(Event { time, pid, thread, change });
            }
        }
    }

    /// Copies stacks as often as so many switches per second permit.
    pub fn adapt(&mut self, switches_per_second: f64) -> Result<(), ProfileError> {
        let period = period_for(switches_per_second / self.cpus.len().max(1) as f64);
        if period != self.period {
            self.stacks = with_stacks(&self.cpus, period)?;
            self.period = period;
        }
        Ok(())
    }
}

fn period_for(switches_per_second: f64) -> u64 {
    let permits = |period: &u64| switches_per_second / *period as f64 <= STACKS;
    PERIODS.into_iter().find(permits).unwrap_or(PERIODS[PERIODS.len() - 1])
}

fn with_stacks(cpus: &[usize], period: u64) -> Result<Vec<perf_event::Sampler>, ProfileError> {
    open(cpus, RING_OF_STACKS, |builder| {
        builder
            .sample_period(period)
            .sample_regs_user(REGISTERS.iter().map(|register| 1 << register).sum())
            .sample_stack_user(DUMP)
            .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER);
    })
}

/// Opens events of switches on these CPUs, with samples that have the time of the monotonic clock.
fn open(
    cpus: &[usize],
    ring: usize,
    set: impl Fn(&mut Builder<'_>),
) -> Result<Vec<perf_event::Sampler>, ProfileError> {
    let open = |cpu: &usize| -> io::Result<perf_event::Sampler> {
        let mut builder = Builder::new(Software::CONTEXT_SWITCHES);
        builder
            .any_pid()
            .one_cpu(*cpu)
            .include_kernel()
            .exclude_callchain_user(true)
            .clockid(Clock::MONOTONIC)
            .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN);
        set(&mut builder);
        builder.build()?.sampled(ring)
    };
    cpus.iter().map(open).collect::<io::Result<_>>().map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_switches_are_parsed() {
        let mut record = Vec::new();
        for number in [0_u32, 0, 41, 43] {
            record.extend(number.to_ne_bytes());
        }
        record.extend(5_000_000_000_u64.to_ne_bytes());
        let parsed = Switch::parse(OUT | STILL_RUNNABLE, &record).unwrap();
        let expected =
            Switch { pid: 41, thread: 43, time: 5_000_000_000, is_out: true, is_preempted: true };
        assert_eq!(parsed, expected);
        let into = Switch::parse(0, &record).unwrap();
        assert_eq!((into.is_out, into.is_preempted), (false, false));
        for length in 0..record.len() {
            assert_eq!(Switch::parse(OUT, &record[..length]), None, "{length}");
        }
    }

    #[test]
    fn damaged_records_of_switches_are_parsed_if_they_are_whole() {
        dbdyno_fuzz::Fuzz::new(vec![vec![7; 24]]).run(|record| {
            assert_eq!(Switch::parse(OUT, record).is_some(), record.len() >= 24);
        });
    }

    #[test]
    fn stacks_are_copied_less_often_the_more_switches_there_are() {
        assert_eq!([0.0, 1_000.0, 3_000.0, 30_000.0, 1e9].map(period_for), [1, 1, 3, 31, 127]);
    }
}
