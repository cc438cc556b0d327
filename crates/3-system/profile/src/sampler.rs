//! Events that sample stacks, and the buffers that they fill.

use std::collections::HashSet;
use std::{fs, io};

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};

/// Bytes of a user's stack that are copied: what MySQL's deepest stacks need.
pub const DUMP: u32 = 56 << 10;

/// Nanoseconds of a CPU's clock between samples: no divisor of the kernel's tick.
const PERIOD: u64 = 1_003_001;

/// Bytes of the buffer of a CPU: the samples of 250 ms.
const RING: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "the kernel does not permit sampling of all processes (kernel.perf_event_paranoid is {paranoid}): run as root, or \
         sysctl kernel.perf_event_paranoid=0"
    )]
    NotPermitted { paranoid: String },
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

/// Events that sample everything on these CPUs.
pub struct Sampler {
    rings: Vec<perf_event::Sampler>,
    /// Samples that were lost because a buffer was full.
    lost: u64,
}

/// The numbers of the registers in samples (`uapi/asm/perf_regs.h` of the kernel): frame pointer, on aarch64 the link
/// register, stack pointer, instruction pointer.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 3] = [6, 7, 8];
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32];

/// Addresses in call chains that begin the part of the kernel and that of the user.
const KERNEL_PART: u64 = -128_i64 as u64;
const USER_PART: u64 = -512_i64 as u64;

impl Sampler {
    /// Opens disabled events.
    pub fn open(cpus: &[usize]) -> Result<Self, ProfileError> {
        let open = |cpu: &usize| -> io::Result<perf_event::Sampler> {
            let mut builder = Builder::new(Software::CPU_CLOCK);
            builder
                .any_pid()
                .one_cpu(*cpu)
                .include_kernel()
                .exclude_callchain_user(true)
                .exclude_idle(true)
                .sample_period(PERIOD)
                .sample_regs_user(REGISTERS.iter().map(|register| 1 << register).sum())
                .sample_stack_user(DUMP)
                .sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::CALLCHAIN)
                .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER);
            builder.build()?.sampled(RING)
        };
        let rings = cpus.iter().map(open).collect::<io::Result<_>>().map_err(refused)?;
        Ok(Self { rings, lost: 0 })
    }

    pub fn enable(&mut self) -> Result<(), ProfileError> {
        let all = self.rings.iter_mut();
        Ok(all.map(|ring| ring.as_counter_mut()).try_for_each(|one| one.enable())?)
    }

    pub fn disable(&mut self) -> Result<(), ProfileError> {
        let all = self.rings.iter_mut();
        Ok(all.map(|ring| ring.as_counter_mut()).try_for_each(|one| one.disable())?)
    }

    /// Samples that were lost because a buffer was full.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Nanoseconds of CPU time that a sample stands for.
    pub const fn period() -> u64 {
        PERIOD
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
                        let user = sample.regs_user().zip(sample.stack_user());
                        let user = user.and_then(|(registers, bytes)| match registers.regs[..] {
                            #[cfg(target_arch = "x86_64")]
                            [bp, sp, ip] => Some(UserStack { ip, sp, bp, bytes }),
                            #[cfg(target_arch = "aarch64")]
                            [bp, lr, sp, ip] => Some(UserStack { ip, sp, bp, lr, bytes }),
                            _ => None,
                        });
                        let kernel = kernel_part(sample.callchain().unwrap_or_default());
                        each(Sample { pid, kernel, user });
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The addresses in the kernel of a call chain.
fn kernel_part(chain: &[u64]) -> Vec<u64> {
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

fn refused(error: io::Error) -> ProfileError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let paranoid = paranoid.unwrap_or_default().trim().to_owned();
            ProfileError::NotPermitted { paranoid }
        }
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
}
