//! What threads wait for, by the functions in which they wait.

use dbdyno_types::profile::WaitKind;

/// Rules as data.
const TABLE: &str = include_str!("kinds.tsv");

struct Rule {
    of_kernel: bool,
    kind: WaitKind,
    /// Names, or their beginnings.
    names: Vec<&'static str>,
}

pub(super) struct Kinds(Vec<Rule>);

impl Kinds {
    pub fn builtin() -> Self {
        let rule = |line: &'static str| {
            let mut columns = line.split('\t');
            let of_kernel = columns.next()? == "kernel";
            let name = columns.next()?;
            let kind = WaitKind::ALL.into_iter().find(|kind| kind.name() == name)?;
            Some(Rule { of_kernel, kind, names: columns.next()?.split(' ').collect() })
        };
        Self(TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(rule).collect())
    }

    /// The kind of a wait in a function of the kernel or of a program; `None` if its callers tell.
    pub fn of(&self, of_kernel: bool, function: &str) -> Option<WaitKind> {
        let function = match of_kernel {
            // Without what compilers append to copies and parts of functions.
            true => function.split('.').next().unwrap_or(function),
            false => function,
        };
        let is_named = |name: &&str| match name.strip_suffix('*') {
            Some(start) => function.starts_with(start),
            None => function == *name,
        };
        let mut rules = self.0.iter().filter(|rule| rule.of_kernel == of_kernel);
        rules.find(|rule| rule.names.iter().any(&is_named)).map(|rule| rule.kind)
    }

    /// The kind of a wait that the kernel takes for `known`, by the functions of the program, the innermost first.
    pub fn of_program<'a>(
        &self,
        known: WaitKind,
        functions: impl Iterator<Item = &'a str>,
    ) -> WaitKind {
        match known {
            WaitKind::Lock | WaitKind::Client | WaitKind::Other => {
                let mut kinds = functions.filter_map(|function| self.of(false, function));
                kinds.next().unwrap_or(known)
            }
            _ => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_listed_function_tells_the_kind() {
        let kinds = Kinds::builtin();
        assert_eq!(kinds.0.len(), TABLE.lines().filter(|line| !line.starts_with('#')).count());
        let of_kernel = |stack: &str| stack.split(' ').find_map(|one| kinds.of(true, one));
        for (stack, kind) in [
            ("__schedule schedule futex_wait_queue __futex_wait futex_wait", WaitKind::Lock),
            ("schedule io_schedule folio_wait_bit_common filemap_fault", WaitKind::Storage),
            ("schedule jbd2_log_wait_commit.isra.0 ext4_sync_file", WaitKind::Storage),
            ("schedule schedule_timeout unix_stream_read_generic", WaitKind::Client),
            ("schedule_timeout sock_alloc_send_pskb unix_stream_sendmsg", WaitKind::Network),
            ("schedule_hrtimeout_range do_poll.constprop.0 do_sys_poll", WaitKind::Client),
            ("schedule do_nanosleep hrtimer_nanosleep", WaitKind::Sleep),
            ("schedule anon_pipe_read vfs_read ksys_read", WaitKind::Other),
        ] {
            assert_eq!(of_kernel(stack), Some(kind), "{stack}");
        }
        assert_eq!(of_kernel("__schedule schedule"), None);
    }

    #[test]
    fn program_tells_what_a_wait_for_others_is_for() {
        let kinds = Kinds::builtin();
        let in_stack = |known, stack: &'static str| kinds.of_program(known, stack.split(' '));
        let lock = "WaitEventSetWait WaitLatch ProcSleep LockAcquireExtended heap_update";
        assert_eq!(in_stack(WaitKind::Client, lock), WaitKind::Lock);
        let reading = "WaitEventSetWait secure_read pq_recvbuf PostgresMain";
        assert_eq!(in_stack(WaitKind::Client, reading), WaitKind::Client);
        let commit = "pthread_cond_wait os_event::wait log_write_up_to trx_commit";
        assert_eq!(in_stack(WaitKind::Lock, commit), WaitKind::Storage);
        assert_eq!(in_stack(WaitKind::Storage, lock), WaitKind::Storage);
        assert_eq!(in_stack(WaitKind::Cpu, reading), WaitKind::Cpu);
    }
}
