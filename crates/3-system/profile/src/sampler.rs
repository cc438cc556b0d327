//! Events that sample stacks, and the buffers that they fill.

use std::collections::HashSet;
use std::{fs, io};

use dbdyno_machine::{VaryingPeriod, share_buffer};
use dbdyno_types::profile::SampleScope;
use dbdyno_units::Nanos;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Counter, SampleFlag};

/// Bytes of a user's stack that are copied: what MySQL's deepest stacks need.
pub const DUMP: u32 = 56 << 10;

/// Samples per second of the events of threads at most: each arms a timer whenever its thread gets a CPU, which costs a
/// virtual machine up to a fifth of a server's time at 1,000.
const FREQUENCY_OF_THREADS: u32 = 100;

/// Bytes of the buffer of a CPU: the samples of 250 ms.
const RING: usize = 16 << 20;

/// The smallest buffer that is tried, of two samples. How much a user may lock in memory is limited.
const LEAST_RING: usize = 128 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "the kernel does not permit sampling (kernel.perf_event_paranoid is {paranoid}): run as root, or \
         sysctl kernel.perf_event_paranoid=-1"
    )]
    NotPermitted { paranoid: String },
    #[error(
        "sampling is blocked here, as in a container ({0}): permit perf_event_open, for example with \
         docker run --cap-add PERFMON, or measure outside of it"
    )]
    Blocked(io::Error),
    #[error(
        "each sampled thread needs an open file per CPU, and the limit is reached: ulimit -n 65536"
    )]
    TooManyFiles,
    #[error("sampling stacks: {0}")]
    System(#[from] io::Error),
}

/// What was sampled at one moment on one CPU.
pub(crate) struct Sample<'a> {
    pub pid: u32,
    /// Of the kernel, the innermost first; empty in user mode.
    pub kernel: Vec<u64>,
    /// In user mode, or where it entered the kernel; `None` for threads of the kernel.
    pub user: Option<UserStack<'a>>,
}

/// The registers and the top of a stack.
pub(crate) struct UserStack<'a> {
    pub ip: u64,
    pub sp: u64,
    /// The frame pointer, or whatever else is in its register.
    pub bp: u64,
    /// Where the innermost function returns to.
    #[cfg(target_arch = "aarch64")]
    pub lr: u64,
    pub bytes: &'a [u8],
}

/// Open events with their buffers.
pub struct Sampler {
    /// One per CPU.
    rings: Vec<perf_event::Sampler>,
    /// Events of other threads, whose samples are in the same buffers.
    redirected: Vec<Counter>,
    scope: SampleScope,
    /// CPU time that a sample stands for.
    period: Nanos,
    /// Of events of CPUs. Those of threads begin anew when their thread gets a CPU.
    varying: Option<VaryingPeriod>,
    /// Samples that were lost because a buffer was full.
    pub(crate) lost: u64,
}

/// The numbers of the registers in samples (`uapi/asm/perf_regs.h` of the kernel): frame pointer, on aarch64 the link
/// register, stack pointer, instruction pointer.
#[cfg(target_arch = "x86_64")]
pub(crate) const REGISTERS: [u32; 3] = [6, 7, 8];
#[cfg(target_arch = "aarch64")]
pub(crate) const REGISTERS: [u32; 4] = [29, 30, 31, 32];

/// Addresses in call chains that begin the part of the kernel and that of the user.
const KERNEL_PART: u64 = -128_i64 as u64;
const USER_PART: u64 = -512_i64 as u64;

impl Sampler {
    /// Opens disabled events of everything on these CPUs, with this number of samples per second and CPU.
    pub fn on_cpus(cpus: &[usize], frequency: u32) -> Result<Self, ProfileError> {
        let (scope, period) = (SampleScope::Cpus, period_of(frequency));
        let build = |cpu: usize| event(scope, period).any_pid().one_cpu(cpu).build();
        let rings = rings(build, cpus).map_err(refused)?;
        let varying = Some(VaryingPeriod::around(period));
        Ok(Self { rings, redirected: Vec::new(), scope, period, varying, lost: 0 })
    }

    /// Opens disabled events of these threads, and of all that they start, on these CPUs: the kernel allows buffers for
    /// them only per CPU. The first thread must not end before. At most 100 samples per second.
    pub fn of_threads(
        threads: &[i32],
        cpus: &[usize],
        frequency: u32,
    ) -> Result<Self, ProfileError> {
        let open = |scope| Self::of_threads_in(scope, threads, cpus, frequency);
        let opened = match open(SampleScope::Threads) {
            Err(error) if is_refusal(&error) => open(SampleScope::UserMode),
            opened => opened,
        };
        opened.map_err(refused)
    }

    fn of_threads_in(
        scope: SampleScope,
        threads: &[i32],
        cpus: &[usize],
        frequency: u32,
    ) -> io::Result<Self> {
        let period = period_of(frequency.min(FREQUENCY_OF_THREADS));
        let event_of = |thread: i32, cpu: usize| {
            event(scope, period).observe_pid(thread).inherit(true).one_cpu(cpu).build()
        };
        let [first, others @ ..] = threads else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        let rings = rings(|cpu| event_of(*first, cpu), cpus)?;
        let mut redirected = Vec::new();
        for (cpu, ring) in cpus.iter().zip(&rings) {
            for thread in others {
                match event_of(*thread, *cpu) {
                    Ok(counter) => {
                        share_buffer(&counter, ring.as_counter())?;
                        redirected.push(counter);
                    }
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Self { rings, redirected, scope, period, varying: None, lost: 0 })
    }

    /// What the kernel permits to sample: everything, or the threads of processes of this user. Opens events of this
    /// thread only, and enables none.
    pub fn permitted() -> Result<SampleScope, ProfileError> {
        let try_open = |scope| {
            let mut builder = event(scope, period_of(FREQUENCY_OF_THREADS));
            if scope == SampleScope::Cpus {
                builder.any_pid().one_cpu(0);
            }
            builder.build().map(|_| scope)
        };
        let or = |error: io::Error, next: SampleScope| match is_refusal(&error) {
            true => try_open(next),
            false => Err(error),
        };
        try_open(SampleScope::Cpus)
            .or_else(|error| or(error, SampleScope::Threads))
            .or_else(|error| or(error, SampleScope::UserMode))
            .map_err(refused)
    }

    pub fn enable(&mut self) -> Result<(), ProfileError> {
        if let Some(varying) = &mut self.varying {
            varying.vary(self.rings.iter().map(perf_event::Sampler::as_counter))?;
        }
        Ok(self.counters().try_for_each(Counter::enable)?)
    }

    pub fn disable(&mut self) -> Result<(), ProfileError> {
        Ok(self.counters().try_for_each(Counter::disable)?)
    }

    fn counters(&mut self) -> impl Iterator<Item = &mut Counter> {
        let rings = self.rings.iter_mut().map(perf_event::Sampler::as_counter_mut);
        rings.chain(&mut self.redirected)
    }

    pub const fn scope(&self) -> SampleScope {
        self.scope
    }

    /// CPU time that a sample stands for.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Reads what was sampled of these processes.
    pub(crate) fn drain(&mut self, pids: &HashSet<u32>, mut each: impl FnMut(Sample<'_>)) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                match record.parse_record() {
                    Ok(Record::Lost(lost)) => self.lost = self.lost.saturating_add(lost.lost),
                    Ok(Record::Sample(sample)) => {
                        let Some(pid) = sample.pid().filter(|pid| pids.contains(pid)) else {
                            continue;
                        };
                        each(stack_of(pid, &sample));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The stack in a sample of a process.
pub(crate) fn stack_of<'a>(pid: u32, sample: &'a perf_event::data::Sample<'_>) -> Sample<'a> {
    let user = sample.regs_user().zip(sample.stack_user());
    let user = user.and_then(|(registers, bytes)| match registers.regs[..] {
        #[cfg(target_arch = "x86_64")]
        [bp, sp, ip] => Some(UserStack { ip, sp, bp, bytes }),
        #[cfg(target_arch = "aarch64")]
        [bp, lr, sp, ip] => Some(UserStack { ip, sp, bp, lr, bytes }),
        _ => None,
    });
    Sample { pid, kernel: kernel_part(sample.callchain().unwrap_or_default()), user }
}

/// The addresses in the kernel of a call chain.
pub(crate) fn kernel_part(chain: &[u64]) -> Vec<u64> {
    let mut is_kernel = false;
    let mut found = Vec::new();
    for address in chain {
        match *address {
            KERNEL_PART => is_kernel = true,
            USER_PART => is_kernel = false,
            address if is_kernel => found.push(address),
            _ => {}
        }
    }
    found
}

/// A disabled event of this thread on all CPUs.
fn event(scope: SampleScope, period: Nanos) -> Builder<'static> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .exclude_kernel(scope == SampleScope::UserMode)
        .exclude_callchain_user(true)
        .exclude_idle(true)
        .sample_period(period.as_nanos())
        .sample_regs_user(REGISTERS.iter().map(|register| 1 << register).sum())
        .sample_stack_user(DUMP)
        .sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::CALLCHAIN)
        .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER);
    builder
}

/// Time between samples. A period that has a common factor with ticks of the kernel, which are multiples of
/// 0.1 ms, would hit the same moments of them again and again.
const fn period_of(frequency: u32) -> Nanos {
    let period = 1_000_000_000 / if frequency == 0 { 1 } else { frequency as u64 };
    let longer = period + period / 331;
    let has_factor = period % 2 == 0 || period % 5 == 0;
    Nanos::from_nanos(if has_factor { longer - longer % 10 + 1 } else { period })
}

/// One event per CPU, with buffers as large as this user may lock.
fn rings(
    build: impl Fn(usize) -> io::Result<Counter>,
    cpus: &[usize],
) -> io::Result<Vec<perf_event::Sampler>> {
    let mut size = RING;
    loop {
        let counters = cpus.iter().map(|cpu| build(*cpu)).collect::<io::Result<Vec<Counter>>>()?;
        let rings = counters.into_iter().map(|one| one.sampled(size));
        match rings.collect::<io::Result<Vec<_>>>() {
            Err(error) if is_too_large(&error) && size > LEAST_RING => size /= 2,
            rings => return rings,
        }
    }
}

fn is_too_large(error: &io::Error) -> bool {
    is_refusal(error) || error.raw_os_error() == Some(libc::ENOMEM)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

pub(crate) fn refused(error: io::Error) -> ProfileError {
    match error.raw_os_error() {
        Some(libc::EACCES) => {
            let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let paranoid = paranoid.unwrap_or_default().trim().to_owned();
            ProfileError::NotPermitted { paranoid }
        }
        // The kernel itself answers EACCES.
        Some(libc::EPERM | libc::ENOSYS) => ProfileError::Blocked(error),
        Some(libc::EMFILE | libc::ENFILE) => ProfileError::TooManyFiles,
        _ => ProfileError::System(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_part_of_a_call_chain_is_found() {
        let chain = [KERNEL_PART, 0xffff_8000, 0xffff_9000, USER_PART, 0x1000, 0x2000];
        assert_eq!(kernel_part(&chain), [0xffff_8000, 0xffff_9000]);
        assert_eq!(kernel_part(&[USER_PART, 0x1000]), [] as [u64; 0]);
    }

    #[test]
    fn period_has_no_common_factor_with_the_tick() {
        for frequency in [1, 100, 250, 300, 997, 1_000, 4_000, 10_000] {
            let period = period_of(frequency).as_nanos();
            assert!(period % 2 == 1 && !period.is_multiple_of(5), "{frequency}: {period}");
            let actual = 1e9 / period as f64;
            assert!((actual / f64::from(frequency) - 1.0).abs() < 0.004, "{frequency}: {actual}");
        }
    }

    #[test]
    fn refusals_of_the_kernel_and_of_a_container_are_told_apart() {
        let of = |code| refused(io::Error::from_raw_os_error(code));
        assert!(matches!(of(libc::EACCES), ProfileError::NotPermitted { .. }));
        assert!(matches!(of(libc::EPERM), ProfileError::Blocked(_)));
        assert!(matches!(of(libc::ENOSYS), ProfileError::Blocked(_)));
        assert!(matches!(of(libc::EMFILE), ProfileError::TooManyFiles));
        assert!(matches!(of(libc::EINVAL), ProfileError::System(_)));
    }
}
