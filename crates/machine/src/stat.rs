//! The one line of `/proc/PID/stat`.

use dbdyno_units::Nanos;

/// What is of use in `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// What children had spent, their own children included, that ended and were waited for.
    pub(crate) waited: Waited,
    pub(crate) threads: u64,
    /// When it started, in ticks since the machine did.
    pub(crate) started: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waited {
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
}

impl Stat {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, and may hold anything, spaces
        // and parentheses included: count from the last one. Fields are numbered from 1 in
        // proc_pid_stat(5); the state, the next one, is number 3.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = [""; 20];
        for (place, field) in fields.iter_mut().zip(rest.split_ascii_whitespace()) {
            *place = field;
        }
        let number = |position: usize| fields[position - 3].parse().ok();
        Some(Self {
            parent: fields[4 - 3].parse().ok()?,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            waited: Waited {
                minor_faults: number(11)?,
                major_faults: number(13)?,
                user_ticks: number(16)?,
                system_ticks: number(17)?,
            },
            threads: number(20)?,
            started: number(22)?,
        })
    }
}

/// The length of a number of the kernel's ticks.
pub(crate) fn ticks(count: u64) -> Nanos {
    tick().times(count)
}

/// The kernel's tick as `/proc` counts in.
pub(crate) fn tick() -> Nanos {
    // SAFETY: takes a number and returns a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // Every Linux that runs on x86-64 or aarch64 says 100.
    let per_second = u64::try_from(per_second).ok().filter(|rate| *rate > 0).unwrap_or(100);
    Nanos::from_nanos(1_000_000_000 / per_second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let text = "17 (a) R ) (b) S 1 17 17 0 -1 4194304 101 5 7 1 23 45 6 8 20 0 9 0 4711 1 2";
        let expected = Stat {
            parent: 1,
            minor_faults: 101,
            major_faults: 7,
            user_ticks: 23,
            system_ticks: 45,
            waited: Waited { minor_faults: 5, major_faults: 1, user_ticks: 6, system_ticks: 8 },
            threads: 9,
            started: 4711,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("17 (a) R 1 2"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(?s).{0,200}") {
            let _ = Stat::parse(&text);
        }

        #[test]
        fn no_text_of_the_right_shape_does_either(text in r"[0-9]{1,22} \([ ()a-z]*\) [ 0-9RS-]{0,120}") {
            let _ = Stat::parse(&text);
        }
    }
}
