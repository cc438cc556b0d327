//! What forbids to optimize a process: permissions, and the program and its libraries.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use dbdyno_units::Bytes;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::geteuid;

use crate::LiveError;
use crate::attachment::MAX_CODE;
use crate::journal::Area;
use crate::memory::{Mapping, Maps, ProcessMemory};
use crate::module::Module;
use crate::probe::{Found, Status, note, ok};
use crate::process::{Process, has_ended, identify, is_kernel_thread};
use crate::unwind::UnwinderVersion;

/// Checks that the program is for x86-64 and dynamically linked.
pub(crate) fn check_executable(pid: u32) -> Result<(), LiveError> {
    let path = format!("/proc/{pid}/exe");
    let file = File::open(&path).map_err(LiveError::system("opening the program of", pid))?;
    let mut header = [0_u8; 4096];
    let got =
        file.read_at(&mut header, 0).map_err(LiveError::system("reading the program of", pid))?;
    unsupported(&header[..got]).map_or(Ok(()), |what| Err(LiveError::refused(pid, what)))
}

/// Why a program that starts with these bytes is not supported.
fn unsupported(header: &[u8]) -> Option<&'static str> {
    if header.len() < 64 || header[..4] != *b"\x7fELF" {
        return Some("its program is not an ELF file");
    }
    const CLASS_64: u8 = 2;
    const X86_64: [u8; 2] = [62, 0];
    if header[4] != CLASS_64 {
        return Some("it is a 32-bit program; only x86-64 is supported");
    }
    if header[18..20] != X86_64 {
        return Some("it is not a program for x86-64");
    }
    const PT_INTERP: u8 = 3;
    let table = usize::from(header[32]) | usize::from(header[33]) << 8;
    let count = usize::from(header[56]) | usize::from(header[57]) << 8;
    let mut kinds = (0..count).filter_map(|index| header.get(table + index * 56));
    let is_dynamic = kinds.any(|kind| *kind == PT_INTERP);
    (!is_dynamic)
        .then_some("it is statically linked; only dynamically linked programs are supported")
}

/// Checks that the limit of the address space leaves enough.
pub(super) fn check_address_space(pid: u32, maps: &Maps) -> Result<Found, LiveError> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let used = maps.all().iter().map(|mapping| mapping.range.end - mapping.range.start).sum();
    match address_space_limit(&limits) {
        Some(limit) if limit.saturating_sub(used) < MAX_CODE.as_bytes() => note(format!(
            "its limit (ulimit -v) is {}, of which it uses {}: memory for new code, up to {MAX_CODE}, may \
             be refused",
            Bytes::from_bytes(limit),
            Bytes::from_bytes(used),
        )),
        _ => ok("enough for new code"),
    }
}

/// The limit of the address space in bytes; `None`: there is none.
fn address_space_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Checks for code that is in no file. `own`: memory that dbdyno added.
pub(super) fn check_generated_code(maps: &Maps, own: &[Area]) -> Result<Found, LiveError> {
    let is_own = |range: &Range<u64>| own.iter().any(|area| area.range().contains(&range.start));
    let generated = maps.all().iter().filter(|mapping| {
        let is_file = mapping.inode != 0 && mapping.name.starts_with('/') && !is_memory(mapping);
        let is_kernel = matches!(&*mapping.name, "[vdso]" | "[vsyscall]" | "[uprobes]");
        mapping.executable && !is_file && !is_kernel && !is_own(&mapping.range)
    });
    let size: u64 = generated.map(|mapping| mapping.range.end - mapping.range.start).sum();
    if size == 0 {
        return ok("none");
    }
    note(format!(
        "{} of executable memory in no file, of a just-in-time compiler for instance: that code is not \
         optimized, and an optimization is refused if most samples are in it",
        Bytes::from_bytes(size)
    ))
}

/// Whether a file exists in memory only.
fn is_memory(mapping: &Mapping) -> bool {
    mapping.name.starts_with("/memfd:") || mapping.name.starts_with("/dev/zero")
}

/// Checks how much code dbdyno has added.
pub(super) fn check_new_code(own: &[Area]) -> Result<Found, LiveError> {
    let size = own.iter().map(|area| area.code).sum();
    let text = format!("{} of at most {MAX_CODE}", Bytes::from_bytes(size));
    match size * 2 > MAX_CODE.as_bytes() {
        false => ok(text),
        true => note(format!(
            "{text}: an optimization that would exceed the limit is refused; --unmap removes replaced code \
             that no thread uses"
        )),
    }
}

/// Checks for breakpoints of tracing tools.
pub(super) fn check_uprobes(maps: &Maps) -> Result<Found, LiveError> {
    if !maps.has_uprobes() {
        return ok("none since its start");
    }
    note(
        "a tracing tool has or had uprobes in it: functions that have one stay where they are, and \
         memory of replaced code is not freed",
    )
}

/// Checks whether the program has static probes.
pub(super) fn check_static_probes(process: &Process, maps: &Maps) -> Result<Found, LiveError> {
    let loaded = Module::loaded(maps);
    let program = loaded.iter().find(|loaded| loaded.path == process.program());
    let Some(program) = program else { return ok("the file of the program is not mapped") };
    let module = Module::open(process, program)?;
    let file = ElfFile64::<Endianness>::parse(module.bytes());
    if !file.is_ok_and(|file| file.section_by_name(".note.stapsdt").is_some()) {
        return ok("the program has none");
    }
    note(
        "the program has some (USDT): those in functions that are moved are not seen by tracing tools, \
         unless they are attached before an optimization; undo it to see all",
    )
}

/// Checks whether C++ exceptions can pass through new code, and what that costs.
pub(super) fn check_unwinder(process: &Process) -> Result<Found, LiveError> {
    match UnwinderVersion::of(process)? {
        None => {
            note("no shared libgcc_s is used: libraries that handle exceptions stay where they are")
        }
        Some(UnwinderVersion::LockFree) => ok("libgcc 13 or newer: exceptions take no lock"),
        Some(UnwinderVersion::Locking) => note(
            "libgcc 12 or older: after an optimization of C++ code each exception takes a lock that all \
             threads share",
        ),
    }
}

/// Checks whether threads use restartable sequences.
pub(super) fn check_rseq(process: &Process, maps: &Maps) -> Result<Found, LiveError> {
    let size = rseq_size(process, maps)?.unwrap_or(0);
    if size == 0 {
        return ok("the C library registers none");
    }
    ok("the C library registers them: functions are redirected while no thread is in one")
}

/// The variable `__rseq_size` of glibc from 2.35 on; `None`: there is none.
fn rseq_size(process: &Process, maps: &Maps) -> Result<Option<u64>, LiveError> {
    let Some(loader) = Module::with_prefix(maps, "ld-linux-x86-64") else { return Ok(None) };
    let module = Module::open(process, &loader)?;
    let Ok(file) = ElfFile64::<Endianness>::parse(module.bytes()) else { return Ok(None) };
    let variable = file.dynamic_symbols().find(|it| it.name() == Ok("__rseq_size"));
    let Some(variable) = variable else { return Ok(None) };
    let bytes = process.memory().read(module.bias().wrapping_add(variable.address()), 4)?;
    Ok(Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))))
}

/// Path of a process's program.
pub(crate) fn program(pid: u32) -> Result<PathBuf, LiveError> {
    if pid == std::process::id() {
        return Err(LiveError::refused(pid, "it is dbdyno itself"));
    }
    fs::read_link(format!("/proc/{pid}/exe")).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if is_kernel_thread(pid) => {
            LiveError::refused(pid, "it is a kernel thread")
        }
        std::io::ErrorKind::NotFound if has_no_main_thread(pid) => {
            LiveError::refused(pid, "its main thread has ended")
        }
        // While it ends, and as a zombie, it has no program.
        std::io::ErrorKind::NotFound => LiveError::Exited { pid },
        std::io::ErrorKind::PermissionDenied => {
            let owner = fs::metadata(format!("/proc/{pid}")).map(|it| it.uid()).ok();
            LiveError::refused(pid, inaccessible(owner, geteuid().as_raw()))
        }
        _ => LiveError::system("reading the program path of", pid)(error),
    })
}

/// Whether the main thread of a process has ended, and others run.
fn has_no_main_thread(pid: u32) -> bool {
    identify(pid).is_ok() && has_ended(pid, pid.cast_signed())
}

/// Why this user may not read a process.
fn inaccessible(owner: Option<u32>, own: u32) -> String {
    match owner {
        Some(owner) if owner != own => format!(
            "it belongs to the user with ID {owner}, and dbdyno runs as user {own}; run dbdyno as \
             root or as that user"
        ),
        // Such as a program with capabilities.
        _ => "it has privileges that this user does not have; run dbdyno as root".to_owned(),
    }
}

/// Checks the permission to trace. The kernel requires the same for access to the memory.
pub(super) fn check_access(pid: u32) -> Result<Found, LiveError> {
    check_ptrace_scope(pid)?;
    ProcessMemory::open(pid)?;
    ok("this user may trace it")
}

/// Checks whether the security module Yama permits tracing.
pub(crate) fn check_ptrace_scope(pid: u32) -> Result<(), LiveError> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    const CAP_SYS_PTRACE: u32 = 19;
    let status = fs::read_to_string("/proc/self/status").map(Status).ok();
    let may_trace = status.and_then(|status| status.has_capability(CAP_SYS_PTRACE));
    // The kernel asks Yama for access to the memory, too.
    let is_permitted = || ProcessMemory::open(pid).is_ok();
    refused_by_yama(scope.trim(), may_trace, is_permitted)
        .map_or(Ok(()), |what| Err(LiveError::refused(pid, what)))
}

/// Why Yama forbids to trace. `may_trace`: whether dbdyno has the capability. `is_permitted`: whether it may trace
/// this process in particular: with 1, its own descendants, and those that permit it.
fn refused_by_yama(
    scope: &str,
    may_trace: Option<bool>,
    is_permitted: impl FnOnce() -> bool,
) -> Option<String> {
    match (scope, may_trace) {
        ("3", _) => Some(
            "kernel.yama.ptrace_scope is 3, which prohibits tracing until the next boot".to_owned(),
        ),
        ("1", Some(false)) if is_permitted() => None,
        ("1" | "2", Some(false)) => Some(format!(
            "kernel.yama.ptrace_scope is {scope}, which permits only root to trace; run as root, or: \
             sysctl kernel.yama.ptrace_scope=0"
        )),
        _ => None,
    }
}

/// Checks whether the kernel permits writing to code through `/proc/PID/mem`, by writing to a
/// read-only page of dbdyno itself.
pub(crate) fn check_memory_writes(pid: u32) -> Result<(), LiveError> {
    const SIZE: usize = 4096;
    let failed = || LiveError::system("testing writes to read-only memory, before changing", pid);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe {
        mmap_anonymous(std::ptr::null_mut(), SIZE, ProtFlags::READ, MapFlags::PRIVATE)
            .map_err(|error| failed()(error.into()))?
    };
    let written = File::options()
        .write(true)
        .open("/proc/self/mem")
        .and_then(|memory| memory.write_all_at(&[1], page as u64));
    // SAFETY: the mapping above, which nothing else uses. If it fails, one page stays.
    let _ = unsafe { munmap(page, SIZE) };
    written.map_err(|error| {
        LiveError::refused(
            pid,
            format!(
                "the kernel does not permit writing to code of other processes ({error}); start it \
                 with proc_mem.force_override=always"
            ),
        )
    })
}

/// Checks whether SELinux may forbid new executable memory.
pub(super) fn check_security_module(pid: u32) -> Result<Found, LiveError> {
    let context = fs::read_to_string(format!("/proc/{pid}/attr/current")).unwrap_or_default();
    selinux(Path::new("/sys/fs/selinux"), context.trim_end_matches(['\0', '\n']))
}

/// `root`: the directory of SELinux.
fn selinux(root: &Path, context: &str) -> Result<Found, LiveError> {
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    if read("enforce").trim() != "1" {
        return ok("SELinux does not forbid anything");
    }
    let denied = read("booleans/deny_execmem").starts_with('1');
    let what = if denied { "the boolean deny_execmem forbids" } else { "its policy may forbid" };
    note(format!(
        "SELinux is enforcing, and the process runs as `{context}`: {what} executable memory without a \
         file (execmem); if so, the optimization is refused before anything is redirected"
    ))
}

#[cfg(test)]
mod tests {
    use crate::probe::CheckResult;

    use super::*;

    #[test]
    fn only_dynamic_programs_for_x86_64_are_supported() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert_eq!(unsupported(&own[..4096]), None);
        assert!(unsupported(b"#!/bin/sh").unwrap().contains("not an ELF file"));
        let changed = |at: usize, value: u8| {
            let mut header = own[..4096].to_vec();
            header[at] = value;
            unsupported(&header).unwrap()
        };
        assert!(changed(4, 1).contains("32-bit"));
        assert!(changed(18, 183).contains("not a program for x86-64"));
        assert!(changed(56, 0).contains("statically linked"));
    }

    #[test]
    fn limit_of_the_address_space_is_read() {
        let text = "Limit Soft Limit Hard Limit Units\nMax address space  4096  unlimited  bytes\n";
        assert_eq!(address_space_limit(text), Some(4_096));
        assert_eq!(address_space_limit(&text.replace("4096", "unlimited")), None);
    }

    #[test]
    fn much_new_code_is_noted() {
        let check = |code| check_new_code(&[Area { address: 0, code, data: 4096 }]).unwrap();
        assert_eq!(check(1 << 20), (CheckResult::Ok, "1 MiB of at most 32 MiB".to_owned()));
        let (result, text) = check(17 << 20);
        assert!(result == CheckResult::Note && text.contains("--unmap"), "{text}");
    }

    #[test]
    fn code_of_files_of_the_kernel_and_of_dbdyno_is_not_generated() {
        let code = |start: u64, inode: u64, name: &str| {
            format!("{start:x}-{:x} r-xp 00000000 fe:00 {inode} {name}\n", start + 4096)
        };
        let known = code(0x1_0000, 7, "/usr/bin/a") + &code(0x2_0000, 0, "[vdso]");
        let own = Area { address: 0x3_0000, code: 4096, data: 4096 };
        let check = |text: &str| check_generated_code(&Maps::parse(text).unwrap(), &[own]).unwrap();
        assert_eq!(check(&(known.clone() + &code(0x3_0000, 0, ""))).0, CheckResult::Ok);
        let generated = check(&(known.clone() + &code(0x4_0000, 0, "")));
        assert_eq!(generated.0, CheckResult::Note);
        assert!(generated.1.starts_with("4 KiB of executable memory"), "{}", generated.1);
        let file = code(0x5_0000, 9, "/memfd:doublemapper (deleted)");
        assert_eq!(check(&(known + &file)).0, CheckResult::Note);
    }

    #[test]
    fn zombie_has_exited() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while !has_ended(pid, pid.cast_signed()) {
            std::thread::yield_now();
        }
        let found = program(pid);
        child.wait().unwrap();
        assert!(matches!(found, Err(LiveError::Exited { .. })), "{found:?}");
    }

    #[test]
    fn process_of_another_user_is_refused_with_both_users() {
        let text = inaccessible(Some(105), 1_000);
        assert!(text.contains("user with ID 105, and dbdyno runs as user 1000"), "{text}");
        assert!(inaccessible(Some(0), 0).contains("privileges"));
        assert!(inaccessible(None, 1_000).contains("run dbdyno as root"));
    }

    #[test]
    fn yama_forbids_without_the_capability_or_in_any_case() {
        let refused = |scope, may_trace| refused_by_yama(scope, may_trace, || false);
        assert_eq!(refused("", Some(false)), None);
        assert_eq!(refused("0", Some(false)), None);
        assert_eq!(refused("1", Some(true)), None);
        assert!(refused("1", Some(false)).unwrap().contains("ptrace_scope=0"));
        assert!(refused("3", Some(true)).unwrap().contains("until the next boot"));
    }

    #[test]
    fn yama_permits_tracing_of_own_descendants_only_in_scope_1() {
        let is_refused = |scope| refused_by_yama(scope, Some(false), || true).is_some();
        assert_eq!(["1", "2", "3"].map(is_refused), [false, true, true]);
    }

    #[test]
    fn selinux_is_noted_only_while_it_is_enforcing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let result = || selinux(root, "system_u:system_r:mysqld_t:s0").unwrap();
        assert_eq!(result().0, CheckResult::Ok);
        fs::write(root.join("enforce"), "1").unwrap();
        assert_eq!(result().0, CheckResult::Note);
        assert!(result().1.contains("`system_u:system_r:mysqld_t:s0`: its policy may forbid"));
        fs::create_dir(root.join("booleans")).unwrap();
        fs::write(root.join("booleans/deny_execmem"), "1 1").unwrap();
        assert!(result().1.contains("deny_execmem forbids"));
        fs::write(root.join("enforce"), "0").unwrap();
        assert_eq!(result().0, CheckResult::Ok);
    }

    #[test]
    fn read_only_memory_is_writable_from_outside() {
        check_memory_writes(1).unwrap();
    }
}
