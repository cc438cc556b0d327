//! Which process is meant: numbers are given out again.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::LiveError;

/// A process as it is until it ends or becomes another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub started: u64,
    /// Which start of the machine.
    pub boot: String,
    /// Where its program and its stack start: others after an `exec`.
    pub image: (u64, u64),
}

/// What `/proc/PID/stat` says and is of use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) started: u64,
    pub(crate) image: (u64, u64),
}

impl Stat {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let text = fs::read(path).ok()?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything: count from its end, where field 3 starts.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |position| field(position).and_then(|text| text.parse::<u64>().ok());
        Some(Self {
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            started: number(22)?,
            image: (number(26)?, number(28)?),
        })
    }
}

impl Identity {
    /// Of the process that has this number now.
    ///
    /// # Errors
    /// There is none.
    pub fn of(pid: u32) -> Result<Self, LiveError> {
        let stat = Stat::of(&format!("/proc/{pid}/stat")).ok_or(LiveError::Exited { pid })?;
        if matches!(stat.state, b'Z' | b'X') {
            return Err(LiveError::Exited { pid });
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        Ok(Self { pid, started: stat.started, boot, image: stat.image })
    }

    /// Whether it still runs, and still the same program.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    /// For `?` before something is done to it.
    ///
    /// # Errors
    /// It ended, or became another program.
    pub fn check(&self) -> Result<(), LiveError> {
        if self.is_alive() { Ok(()) } else { Err(LiveError::Exited { pid: self.pid }) }
    }
}

/// The numbers of a process's threads at this moment, those that ended left out.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>, LiveError> {
    let entries = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(LiveError::Exited { pid });
        }
        Err(error) => return Err(LiveError::system("listing the threads of", pid)(error)),
    };
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect())
}

/// The state of a thread as one letter; `None` when it is gone.
pub(crate) fn thread_state(pid: u32, tid: i32) -> Option<u8> {
    Stat::of(&format!("/proc/{pid}/task/{tid}/stat")).map(|stat| stat.state)
}

/// Whether a thread is gone, or is no more than a note of its end.
pub(crate) fn has_ended(pid: u32, tid: i32) -> bool {
    matches!(thread_state(pid, tid), None | Some(b'Z' | b'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_itself() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(me.image.0 != 0 && me.image.1 != 0, "{me:?}");
        let other = Identity { started: me.started + 1, ..me.clone() };
        assert!(!other.is_alive());
        assert!(matches!(other.check(), Err(LiveError::Exited { .. })));
    }

    #[test]
    fn a_number_that_nobody_has_is_gone() {
        assert!(matches!(Identity::of(0x7fff_fff0), Err(LiveError::Exited { .. })));
    }
}
