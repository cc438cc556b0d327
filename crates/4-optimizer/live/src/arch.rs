//! All that needs x86-64. On other architectures dbdyno compiles, and [`check_platform`] refuses every process before
//! anything here is used.

use std::io;

use crate::LiveError;

/// Checks that machine code can be read and processes be optimized on this machine.
pub fn check_platform() -> Result<(), LiveError> {
    if cfg!(target_arch = "x86_64") {
        Ok(())
    } else {
        let machine = std::env::consts::ARCH;
        let what = format!(
            "the live optimizer and profiles from samples need x86-64, and this machine is {machine}"
        );
        Err(LiveError::Failed(what))
    }
}

pub(crate) use imp::{
    Registers, SYS_EPOLL_WAIT, SYS_PAUSE, SYS_POLL, SYS_RENAME, SYS_SELECT, SYS_UNLINK, registers,
    set_registers, size_of_vectors,
};

/// The result of `ptrace`.
pub(crate) fn check(status: libc::c_long) -> io::Result<()> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::{io, ptr};

    pub(crate) use libc::{
        SYS_epoll_wait as SYS_EPOLL_WAIT, SYS_pause as SYS_PAUSE, SYS_poll as SYS_POLL,
        SYS_rename as SYS_RENAME, SYS_select as SYS_SELECT, SYS_unlink as SYS_UNLINK,
        user_regs_struct as Registers,
    };

    use super::check;

    /// The registers of a stopped thread.
    pub(crate) fn registers(tid: i32) -> io::Result<Registers> {
        let mut registers = std::mem::MaybeUninit::<Registers>::uninit();
        let nothing = ptr::null_mut::<libc::c_void>();
        // SAFETY: the kernel fills a structure of this type at the given address.
        check(unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, nothing, registers.as_mut_ptr()) })?;
        // SAFETY: it succeeded and filled the whole structure.
        Ok(unsafe { registers.assume_init() })
    }

    pub(crate) fn set_registers(tid: i32, registers: &Registers) -> io::Result<()> {
        let nothing = ptr::null_mut::<libc::c_void>();
        // SAFETY: the kernel reads a structure of this type.
        check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, nothing, ptr::from_ref(registers)) })
    }

    /// Size of all vector registers in the format of `XSAVE`, in bytes.
    pub(crate) fn size_of_vectors() -> u32 {
        std::arch::x86_64::__cpuid_count(0xd, 0).ebx
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    use std::io;

    /// The registers of x86-64, of which no thread here has any.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Registers {
        pub(crate) r15: u64,
        pub(crate) r14: u64,
        pub(crate) r13: u64,
        pub(crate) r12: u64,
        pub(crate) rbp: u64,
        pub(crate) rbx: u64,
        pub(crate) r11: u64,
        pub(crate) r10: u64,
        pub(crate) r9: u64,
        pub(crate) r8: u64,
        pub(crate) rax: u64,
        pub(crate) rcx: u64,
        pub(crate) rdx: u64,
        pub(crate) rsi: u64,
        pub(crate) rdi: u64,
        pub(crate) orig_rax: u64,
        pub(crate) rip: u64,
        pub(crate) eflags: u64,
        pub(crate) rsp: u64,
        pub(crate) fs_base: u64,
    }

    /// System calls that only x86-64 has.
    const NONE: libc::c_long = -1;
    pub(crate) const SYS_EPOLL_WAIT: libc::c_long = NONE;
    pub(crate) const SYS_PAUSE: libc::c_long = NONE;
    pub(crate) const SYS_POLL: libc::c_long = NONE;
    pub(crate) const SYS_RENAME: libc::c_long = NONE;
    pub(crate) const SYS_SELECT: libc::c_long = NONE;
    pub(crate) const SYS_UNLINK: libc::c_long = NONE;

    pub(crate) fn registers(_tid: i32) -> io::Result<Registers> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn set_registers(_tid: i32, _registers: &Registers) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) const fn size_of_vectors() -> u32 {
        u32::MAX
    }
}
