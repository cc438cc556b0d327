//! The program and the memory of a process.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use dbdyno_units::Bytes;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};

use super::{Found, note, ok};
use crate::LiveError;
use crate::attachment::MAX_CODE;
use crate::journal::Area;
use crate::maps::{Mapping, Maps};
use crate::module::Module;
use crate::process::Process;
use crate::unwind::UnwinderVersion;

/// Checks that the program is for x86-64 and dynamically linked.
pub(crate) fn check_executable(pid: u32) -> Result<(), LiveError> {
    let path = format!("/proc/{pid}/exe");
    let file = fs::File::open(&path).map_err(LiveError::system("opening the program of", pid))?;
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
        None => note(
            "no shared libgcc_s is loaded: libraries that handle exceptions stay where they are",
        ),
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

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
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
}
