//! Names of functions of the kernel.

use std::fs;

use dbdyno_types::profile::NOT_SAMPLED;

/// The module of functions of the kernel.
pub(crate) const KERNEL: &str = "[k]";

/// The functions of the kernel, by address. Empty if this user may not see them.
#[derive(Clone, Debug)]
pub(crate) struct KernelSymbols(Vec<(u64, String)>);

/// Reads the functions of the running kernel.
impl Default for KernelSymbols {
    fn default() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }
}

impl KernelSymbols {
    fn parse(text: &str) -> Self {
        let symbol = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_code = words.next()?.eq_ignore_ascii_case("t");
            (is_code && address != 0).then(|| Some((address, words.next()?.to_owned())))?
        };
        let mut all: Vec<(u64, String)> = text.lines().filter_map(symbol).collect();
        all.sort_unstable();
        Self(all)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        self.0.get(after.checked_sub(1)?).map(|(_, name)| name.as_str())
    }
}

/// What the entry functions of system calls begin with.
const ENTRIES: [&str; 5] = ["__x64_sys_", "__ia32_sys_", "__arm64_sys_", "__se_sys_", "__do_sys_"];

/// The functions that call these. An entry function that ends in another call is not on the stack; what it calls is.
const DISPATCHERS: [&str; 4] = ["x64_sys_call", "do_syscall_64", "invoke_syscall", "do_el0_svc"];

/// What such functions begin with before the name of their system call.
const IMPLEMENTATIONS: [&str; 4] = ["do_sys_", "ksys_", "__sys_", "do_"];

/// The beginnings of functions with which dispatchers prepare and end any system call, and of interrupts there.
const ENTRY_AND_EXIT: [&str; 6] = ["syscall_", "entry_", "exit_to_", "do_syscall_", "asm_", "its_"];

/// What the kernel works for, by the functions of a stack in it, the innermost first: `pread64` or another system call,
/// or what else leads into the kernel.
pub fn kernel_entry<'a>(functions: impl IntoIterator<Item = &'a str>) -> &'a str {
    let functions: Vec<&str> = functions.into_iter().collect();
    if functions == [NOT_SAMPLED] {
        return NOT_SAMPLED;
    }
    let strip = |prefixes: &[&str], name: &'a str| {
        prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))
    };
    // An interrupt while a system call is executed is in its time, as elsewhere.
    if let Some(call) = functions.iter().rev().find_map(|&name| strip(&ENTRIES, name)) {
        return call;
    }
    if let Some(dispatcher) = functions.iter().position(|name| DISPATCHERS.contains(name)) {
        let called = dispatcher.checked_sub(1).map(|at| functions[at]);
        let is_of_call = |name: &&str| !ENTRY_AND_EXIT.iter().any(|start| name.starts_with(start));
        let Some(called) = called.filter(is_of_call) else { return "entry and exit" };
        return strip(&IMPLEMENTATIONS, called).unwrap_or(called);
    }
    let has =
        |parts: &[&str]| functions.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    if has(&["exc_page_fault", "do_page_fault", "el0_da", "el0_ia"]) {
        "page fault"
    } else if has(&[
        "sysvec_",
        "common_interrupt",
        "apic_timer_interrupt",
        "do_IRQ",
        "el0_irq",
        "el0_interrupt",
    ]) {
        "interrupt"
    } else {
        "other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_kernel_is_that_of_a_system_call() {
        for (stack, entry) in [
            (
                "copy_to_iter filemap_read __x64_sys_pread64 do_syscall_64 entry_SYSCALL_64",
                "pread64",
            ),
            ("futex_wait do_futex __x64_sys_futex x64_sys_call do_syscall_64", "futex"),
            (
                "ktime_get sysvec_apic_timer_interrupt asm_sysvec __x64_sys_poll do_syscall_64",
                "poll",
            ),
            ("sock_sendmsg __sys_sendto x64_sys_call do_syscall_64 entry_SYSCALL_64", "sendto"),
            ("vfs_read ksys_pread64 do_syscall_64", "pread64"),
            ("ext4_sync_file do_fsync do_syscall_64", "fsync"),
            ("schedule syscall_exit_to_user_mode do_syscall_64", "entry and exit"),
            ("do_syscall_64 entry_SYSCALL_64", "entry and exit"),
            ("sysvec_apic_timer_interrupt asm_sysvec_apic do_syscall_64", "entry and exit"),
            ("clear_page handle_mm_fault exc_page_fault asm_exc_page_fault", "page fault"),
            ("handle_softirqs sysvec_apic_timer_interrupt asm_sysvec", "interrupt"),
            ("ep_poll __arm64_sys_epoll_pwait invoke_syscall do_el0_svc el0_svc", "epoll_pwait"),
            ("run_ksoftirqd", "other"),
        ] {
            assert_eq!(kernel_entry(stack.split(' ')), entry, "{stack}");
        }
        assert_eq!(kernel_entry([NOT_SAMPLED]), NOT_SAMPLED);
    }

    #[test]
    fn function_before_an_address_is_found() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t do_poll\nffffffff81000180 D data\n\
                    ffffffff81000200 t schedule\t[module]\n0000000000000000 T hidden\n";
        let symbols = KernelSymbols::parse(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_01ff), Some("do_poll"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0200), Some("schedule"));
        assert_eq!(symbols.name(0xffff_ffff_8000_0000), None);
    }
}
