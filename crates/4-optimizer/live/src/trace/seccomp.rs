//! System call filters (seccomp) of a thread: what they do with the calls that it is to execute.
//!
//! A filter is a program for the classic BPF machine, with the number and arguments of a system call as
//! its input; see seccomp(2). Of several filters, the most restrictive result counts.

use std::io;

use super::raw::{self, FilterStep};
use super::stub::SystemCall;
use crate::probe::{FilterMode, Status};

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;
/// Part of a result that says what happens; the rest is data.
const ACTION: u32 = 0xffff_0000;
const MEMORY_WORDS: usize = 16;

/// What a filter does with a system call, the most restrictive first, as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FilterAction {
    KillProcess,
    KillThread,
    Signal,
    Fail,
    /// Another process decides.
    Notify,
    /// A tracer decides; without one it fails.
    Trace,
    Permit,
}

impl FilterAction {
    fn of(result: u32) -> Self {
        match result & ACTION {
            libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Self::Permit,
            libc::SECCOMP_RET_TRACE => Self::Trace,
            libc::SECCOMP_RET_USER_NOTIF => Self::Notify,
            libc::SECCOMP_RET_ERRNO => Self::Fail,
            libc::SECCOMP_RET_TRAP => Self::Signal,
            libc::SECCOMP_RET_KILL_THREAD => Self::KillThread,
            // Also an unknown one.
            _ => Self::KillProcess,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::KillProcess => "kills the process",
            Self::KillThread => "kills the thread",
            Self::Signal => "sends SIGSYS",
            Self::Fail => "makes it fail",
            Self::Notify => "leaves the decision to another process",
            Self::Trace => "leaves the decision to a tracer",
            Self::Permit => "permits it",
        }
    }
}

/// What the filters of a stopped thread do with system calls of a stub at `address`, if they do not permit
/// all of them.
///
/// # Errors
/// The kernel does not show the filters: it does so for root only, if root has none itself.
pub(crate) fn forbidden(
    tid: i32,
    address: u64,
    calls: &[SystemCall],
) -> io::Result<Option<String>> {
    let status = Status::of(tid.cast_unsigned()).map_err(io::Error::other)?;
    match status.filter_mode() {
        FilterMode::None => return Ok(None),
        FilterMode::Strict => return Ok(Some("permits almost no system call".to_owned())),
        FilterMode::Filter => {}
    }
    let filters = raw::filters(tid)?;
    let all = calls.iter().map(|call| (call, action(&filters, call, address)));
    let forbidden = all.filter(|(_, action)| *action != FilterAction::Permit).min_by_key(|it| it.1);
    Ok(forbidden.map(|(call, action)| format!("{} {}", action.name(), describe(call))))
}

/// The action of the most restrictive filter.
fn action(filters: &[Vec<FilterStep>], call: &SystemCall, address: u64) -> FilterAction {
    let data = data(call, address);
    let actions = filters.iter().map(|filter| {
        // The kernel accepts only valid filters.
        execute(filter, &data).map_or(FilterAction::KillProcess, FilterAction::of)
    });
    actions.min().unwrap_or(FilterAction::Permit)
}

fn describe(call: &SystemCall) -> String {
    let name = match call.number {
        libc::SYS_mmap => "mmap",
        libc::SYS_munmap => "munmap",
        libc::SYS_madvise => "madvise",
        libc::SYS_prctl => "prctl",
        libc::SYS_rt_sigprocmask => "rt_sigprocmask",
        _ => return format!("for system call {}", call.number),
    };
    let executable =
        call.number == libc::SYS_mmap && call.arguments[2] & libc::PROT_EXEC as u64 != 0;
    format!("for {name}{}", if executable { " of executable memory" } else { "" })
}

/// `struct seccomp_data` as 32-bit words: number, architecture, instruction pointer, arguments.
fn data(call: &SystemCall, address: u64) -> [u32; 16] {
    let mut words = [0; 16];
    (words[0], words[1]) = (call.number as u32, X86_64);
    let long = std::iter::once(address).chain(call.arguments);
    for (pair, value) in words[2..].chunks_exact_mut(2).zip(long) {
        (pair[0], pair[1]) = (value as u32, (value >> 32) as u32);
    }
    words
}

/// Executes a filter. `None`: it is invalid.
fn execute(filter: &[FilterStep], data: &[u32; 16]) -> Option<u32> {
    const SIZE: u32 = 64;
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY_WORDS]);
    let mut next = 0_usize;
    // Jumps lead forward only.
    while let Some(step) = filter.get(next) {
        next += 1;
        let (code, k) = (u32::from(step.code), step.k);
        let slot = || usize::try_from(k).ok().filter(|slot| *slot < MEMORY_WORDS);
        let operand = if code & libc::BPF_X == 0 { k } else { x };
        match code & 0x07 {
            libc::BPF_LD => {
                a = match code & 0xe0 {
                    libc::BPF_ABS if k.is_multiple_of(4) => *data.get(k as usize / 4)?,
                    libc::BPF_IMM => k,
                    libc::BPF_LEN => SIZE,
                    libc::BPF_MEM => memory[slot()?],
                    _ => return None,
                }
            }
            libc::BPF_LDX => {
                x = match code & 0xe0 {
                    libc::BPF_IMM => k,
                    libc::BPF_LEN => SIZE,
                    libc::BPF_MEM => memory[slot()?],
                    _ => return None,
                }
            }
            libc::BPF_ST => memory[slot()?] = a,
            libc::BPF_STX => memory[slot()?] = x,
            libc::BPF_ALU => a = compute(code & 0xf0, a, operand)?,
            libc::BPF_JMP => {
                let is_met = match code & 0xf0 {
                    libc::BPF_JA => {
                        next = next.checked_add(k as usize)?;
                        continue;
                    }
                    libc::BPF_JEQ => a == operand,
                    libc::BPF_JGT => a > operand,
                    libc::BPF_JGE => a >= operand,
                    libc::BPF_JSET => a & operand != 0,
                    _ => return None,
                };
                next += usize::from(if is_met { step.jt } else { step.jf });
            }
            libc::BPF_RET => return Some(if code & 0x18 == libc::BPF_A { a } else { k }),
            libc::BPF_MISC if code & 0xf8 == libc::BPF_TAX => x = a,
            libc::BPF_MISC => a = x,
            _ => return None,
        }
    }
    None
}

/// An operation on the accumulator.
fn compute(operation: u32, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => a.wrapping_add(operand),
        libc::BPF_SUB => a.wrapping_sub(operand),
        libc::BPF_MUL => a.wrapping_mul(operand),
        libc::BPF_DIV => a.checked_div(operand)?,
        libc::BPF_AND => a & operand,
        libc::BPF_OR => a | operand,
        libc::BPF_XOR => a ^ operand,
        libc::BPF_LSH => a.wrapping_shl(operand),
        libc::BPF_RSH => a.wrapping_shr(operand),
        libc::BPF_NEG => a.wrapping_neg(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(code: u32, jt: u8, jf: u8, k: u32) -> FilterStep {
        FilterStep { code: code as u16, jt, jf, k }
    }

    fn load(offset: u32) -> FilterStep {
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
    }

    fn end(result: u32) -> FilterStep {
        step(libc::BPF_RET | libc::BPF_K, 0, 0, result)
    }

    fn jump(condition: u32, k: u32, jt: u8, jf: u8) -> FilterStep {
        step(libc::BPF_JMP | condition | libc::BPF_K, jt, jf, k)
    }

    fn mmap(protection: i32) -> SystemCall {
        let arguments = [0x5555_0000_0000, 4096, protection as u64, 0x22, u64::MAX, 0];
        SystemCall { number: libc::SYS_mmap, arguments }
    }

    /// Permits mmap, except of executable memory, which kills; everything else fails.
    fn no_executable_memory() -> Vec<FilterStep> {
        vec![
            load(4),
            jump(libc::BPF_JEQ, X86_64, 1, 0),
            end(libc::SECCOMP_RET_KILL_PROCESS),
            load(0),
            jump(libc::BPF_JEQ, libc::SYS_mmap as u32, 0, 3),
            load(32),
            jump(libc::BPF_JSET, libc::PROT_EXEC as u32, 2, 0),
            end(libc::SECCOMP_RET_ALLOW),
            end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            end(libc::SECCOMP_RET_KILL_PROCESS),
        ]
    }

    #[test]
    fn filter_decides_by_number_and_arguments() {
        let filters = [no_executable_memory()];
        let action = |call: &SystemCall| action(&filters, call, 0x1000);
        assert_eq!(action(&mmap(libc::PROT_READ)), FilterAction::Permit);
        let executable = mmap(libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(action(&executable), FilterAction::KillProcess);
        assert_eq!(describe(&executable), "for mmap of executable memory");
        let other = SystemCall { number: libc::SYS_munmap, arguments: [0; 6] };
        assert_eq!(action(&other), FilterAction::Fail);
    }

    #[test]
    fn most_restrictive_filter_counts() {
        let call = mmap(libc::PROT_READ);
        let of = |results: &[u32]| {
            let filters: Vec<_> = results.iter().map(|result| vec![end(*result)]).collect();
            action(&filters, &call, 0)
        };
        assert_eq!(of(&[]), FilterAction::Permit);
        assert_eq!(of(&[libc::SECCOMP_RET_LOG, libc::SECCOMP_RET_ALLOW]), FilterAction::Permit);
        assert_eq!(
            of(&[libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_TRAP | 7]),
            FilterAction::Signal
        );
        assert_eq!(
            of(&[libc::SECCOMP_RET_KILL_THREAD, libc::SECCOMP_RET_KILL_PROCESS]),
            FilterAction::KillProcess
        );
        assert_eq!(of(&[0x1234_0000]), FilterAction::KillProcess);
    }

    /// The bits of an address, in every way that a filter can compute them.
    #[test]
    fn all_operations_are_executed() {
        let alu = |operation, k| step(libc::BPF_ALU | operation | libc::BPF_K, 0, 0, k);
        let filter = vec![
            step(libc::BPF_LD | libc::BPF_IMM, 0, 0, 6),
            step(libc::BPF_ST, 0, 0, 3),
            step(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
            alu(libc::BPF_ADD, 10),                                     // 16
            alu(libc::BPF_MUL, 3),                                      // 48
            alu(libc::BPF_SUB, 8),                                      // 40
            alu(libc::BPF_DIV, 5),                                      // 8
            alu(libc::BPF_LSH, 2),                                      // 32
            alu(libc::BPF_RSH, 1),                                      // 16
            alu(libc::BPF_OR, 1),                                       // 17
            alu(libc::BPF_XOR, 2),                                      // 19
            alu(libc::BPF_AND, 18),                                     // 18
            step(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0, 0, 0), // 24
            step(libc::BPF_LDX | libc::BPF_MEM, 0, 0, 3),
            step(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0, 0, 0), // 18
            step(libc::BPF_STX, 0, 0, 15),
            step(libc::BPF_ALU | libc::BPF_NEG, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
            end(1),
            step(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
        ];
        assert_eq!(execute(&filter, &[0; 16]), Some(18_u32.wrapping_neg()));
        let x = vec![
            step(libc::BPF_LDX | libc::BPF_IMM, 0, 0, 5),
            step(libc::BPF_MISC | libc::BPF_TXA, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_X, 0, 1, 0),
            jump(libc::BPF_JGT, 4, 1, 0),
            end(1),
            end(2),
        ];
        assert_eq!(execute(&x, &[0; 16]), Some(2));
        assert_eq!(execute(&[load(64)], &[0; 16]), None);
        assert_eq!(execute(&[load(2)], &[0; 16]), None);
        assert_eq!(execute(&[jump(libc::BPF_JEQ, 0, 200, 200)], &[0; 16]), None);
    }
}
