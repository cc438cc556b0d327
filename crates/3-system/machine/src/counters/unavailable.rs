use std::fmt;
use std::io;

use dbdyno_types::Counter;
use serde::{Deserialize, Serialize};

use crate::FsRoot;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("cannot count {counter}: {reason}")]
pub struct Unavailable {
    pub counter: Counter,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The CPU's counters are hidden.
    NoHardwareCounters,
    /// This CPU has hardware counters, but not this one.
    NotOnThisCpu,
    /// Not permitted for this user at this level of `kernel.perf_event_paranoid`.
    NotPermitted {
        /// The level, if it can be read.
        paranoid: Option<i32>,
    },
    /// The event happens in kernel mode, which this user may not count at this level of
    /// `kernel.perf_event_paranoid`.
    KernelNotPermitted {
        paranoid: Option<i32>,
    },
    NoSuchProcess,
    /// Each counter of each thread takes an open file, and the limit is reached.
    TooManyFiles,
    /// Another error, with the kernel's message.
    Other(String),
}

impl Reason {
    /// The reason for the kernel's error when opening `counter`.
    pub(super) fn of(error: &io::Error, counter: Counter, has_cycles: impl Fn() -> bool) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENOSYS)
                if counter.is_hardware() && !has_cycles() =>
            {
                Self::NoHardwareCounters
            }
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL)
                if counter.is_hardware() =>
            {
                Self::NotOnThisCpu
            }
            Some(libc::EACCES | libc::EPERM) => {
                Self::NotPermitted { paranoid: paranoid(&FsRoot::this_machine()) }
            }
            Some(libc::ESRCH) => Self::NoSuchProcess,
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyFiles,
            _ => Self::Other(error.to_string()),
        }
    }

    /// The reason in at most 40 characters, for tables.
    pub fn in_short(&self) -> String {
        match self {
            Self::NoHardwareCounters => "none in this machine".to_owned(),
            Self::NotPermitted { paranoid: Some(level) } => {
                format!("perf_event_paranoid is {level}")
            }
            other => other.to_string().chars().take(40).collect(),
        }
    }

    /// How to make it available: a command if there is one.
    pub fn advice(&self) -> Option<String> {
        match self {
            // 2 lets all users count user mode of their own processes; some distributions ship 3
            // or 4, which do not. At 2 or below, something else forbids it.
            Self::NotPermitted { paranoid: Some(level) } if *level > 2 => {
                Some("sudo sysctl kernel.perf_event_paranoid=2".to_owned())
            }
            Self::KernelNotPermitted { paranoid: Some(level) } if *level > 1 => {
                Some("sudo sysctl kernel.perf_event_paranoid=1".to_owned())
            }
            Self::NotPermitted { .. } | Self::KernelNotPermitted { .. } => Some(
                "run as the user of the counted process; in a container, allow perf_event_open \
                 (docker run --cap-add PERFMON)"
                    .to_owned(),
            ),
            Self::NoHardwareCounters => Some(
                "enable the virtual PMU in the hypervisor (QEMU: -cpu host,pmu=on), or use a \
                 bare-metal machine"
                    .to_owned(),
            ),
            Self::TooManyFiles => Some("ulimit -n 65536".to_owned()),
            Self::NotOnThisCpu | Self::NoSuchProcess | Self::Other(_) => None,
        }
    }
}

pub(crate) fn paranoid(root: &FsRoot) -> Option<i32> {
    root.value("proc/sys/kernel/perf_event_paranoid")
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHardwareCounters => {
                f.write_str("this machine has no hardware counters (virtual machine without a PMU)")
            }
            Self::NotOnThisCpu => f.write_str("this CPU does not count this event"),
            Self::KernelNotPermitted { paranoid: Some(level) } => {
                write!(
                    f,
                    "watching the kernel is not permitted (kernel.perf_event_paranoid is {level})"
                )
            }
            Self::KernelNotPermitted { paranoid: None } => {
                f.write_str("watching the kernel is not permitted")
            }
            Self::NotPermitted { paranoid: Some(level) } => {
                write!(f, "not permitted (kernel.perf_event_paranoid is {level})")
            }
            Self::NotPermitted { paranoid: None } => f.write_str("not permitted"),
            Self::NoSuchProcess => f.write_str("there is no such process"),
            Self::TooManyFiles => f.write_str("too many open files"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(errno: i32, counter: Counter, has_cycles: bool) -> Reason {
        Reason::of(&io::Error::from_raw_os_error(errno), counter, || has_cycles)
    }

    #[test]
    fn missing_event_and_missing_pmu_have_different_reasons() {
        let missing = Reason::NoHardwareCounters;
        assert_eq!(reason(libc::ENOENT, Counter::Cycles, false), missing);
        assert_eq!(reason(libc::EOPNOTSUPP, Counter::ItlbMisses, false), missing);
        assert_eq!(reason(libc::ENOENT, Counter::ItlbMisses, true), Reason::NotOnThisCpu);
        assert_eq!(
            missing.to_string(),
            "this machine has no hardware counters (virtual machine without a PMU)"
        );
    }

    #[test]
    fn missing_permission_names_the_level_and_the_command() {
        assert!(matches!(
            reason(libc::EACCES, Counter::Cycles, false),
            Reason::NotPermitted { .. }
        ));
        let reason = Reason::NotPermitted { paranoid: Some(4) };
        let unavailable = Unavailable { counter: Counter::Cycles, reason };
        assert_eq!(
            unavailable.to_string(),
            "cannot count cycles: not permitted (kernel.perf_event_paranoid is 4)"
        );
        assert_eq!(
            unavailable.reason.advice().unwrap(),
            "sudo sysctl kernel.perf_event_paranoid=2"
        );
        let kernel = Reason::KernelNotPermitted { paranoid: Some(2) };
        assert_eq!(kernel.advice().unwrap(), "sudo sysctl kernel.perf_event_paranoid=1");
        let advice = Reason::NotPermitted { paranoid: Some(2) }.advice().unwrap();
        assert!(advice.contains("container"));
    }

    #[test]
    fn other_errors_keep_the_kernels_message() {
        assert!(matches!(reason(libc::E2BIG, Counter::MinorFaults, false), Reason::Other(_)));
        assert_eq!(reason(libc::ESRCH, Counter::MinorFaults, false), Reason::NoSuchProcess);
    }
}
