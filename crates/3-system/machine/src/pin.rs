use std::io;

use crate::CpuSet;

/// A CPU mask for the kernel. Pinning with it does not allocate.
///
/// Not rustix's `CpuSet`, which is limited to 1024 CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMask(pub(crate) Vec<u64>);

impl CpuMask {
    /// Pins the calling thread, and all threads and processes that it starts later, to these CPUs.
    ///
    /// A single system call, so it may run between `fork` and `exec`
    /// ([`std::os::unix::process::CommandExt::pre_exec`]). A server started this way allocates
    /// its first memory near its CPUs.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` if this thread may use none of the CPUs.
    pub fn pin_current_thread(&self) -> io::Result<()> {
        self.pin(0)
    }

    fn pin(&self, thread: libc::pid_t) -> io::Result<()> {
        // SAFETY: the mask has the number of bytes that is given, and is only read.
        let status =
            unsafe { libc::sched_setaffinity(thread, self.0.len() * 8, self.0.as_ptr().cast()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn cpus(&self) -> CpuSet {
        let bits = (0_u32..).zip(&self.0).flat_map(|(index, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        });
        bits.collect()
    }
}

/// A thread or process could not be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The set of CPUs is empty.
    #[error("cannot pin {who} to an empty set of CPUs")]
    Empty {
        /// The thread or process.
        who: String,
    },
    /// None of the CPUs may be used.
    #[error("cannot pin {who} to CPUs {cpus}: none of them may be used here (allowed: {allowed})")]
    NotAllowed {
        who: String,
        /// The requested CPUs.
        cpus: CpuSet,
        /// The allowed CPUs, or why they are unknown.
        allowed: String,
    },
    #[error("cannot pin {who} to CPUs {cpus}: there is no such process")]
    Gone { who: String, cpus: CpuSet },
    /// Another error; for other users' processes mostly a missing permission.
    #[error("cannot pin {who} to CPUs {cpus}: {source}")]
    Refused { who: String, cpus: CpuSet, source: io::Error },
}

/// Pins the calling thread, and all threads and processes that it starts later, to `cpus`.
///
/// # Errors
/// If none of `cpus` may be used, the error lists the allowed CPUs.
pub fn pin_current_thread(cpus: &CpuSet) -> Result<(), PinError> {
    pin("this thread", cpus, || cpus.mask().pin_current_thread())
}

/// Calls `work` with the calling thread pinned to `cpus`, and then gives back the CPUs that it had.
///
/// # Errors
/// As [`pin_current_thread`]; nothing was called then.
pub fn while_pinned<T>(cpus: &CpuSet, work: impl FnOnce() -> T) -> Result<T, PinError> {
    let before = CpuSet::allowed();
    pin_current_thread(cpus)?;
    let done = work();
    // Fails only if all of them have been taken from the process meanwhile.
    let _ = before.map(|before| pin_current_thread(&before));
    Ok(done)
}

/// Pins all threads of the process `pid`, and those they start later, to `cpus`.
///
/// The kernel pins single threads, so this repeats until there is no new thread. Existing child
/// processes are not pinned.
///
/// # Errors
/// [`PinError::Gone`] if there is no such process; also see [`pin_current_thread`].
pub fn pin_process(pid: u32, cpus: &CpuSet) -> Result<(), PinError> {
    let mask = cpus.mask();
    pin(&format!("process {pid}"), cpus, || {
        let mut pinned: Vec<u32> = Vec::new();
        loop {
            let mut threads = threads_of(pid)?;
            threads.retain(|thread| !pinned.contains(thread));
            if threads.is_empty() {
                return Ok(());
            }
            for thread in threads {
                match mask.pin(thread.cast_signed()) {
                    // Threads other than the main one may end at any time.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) && thread != pid => {}
                    result => result?,
                }
                pinned.push(thread);
            }
        }
    })
}

/// The thread IDs of a process, in ascending order, from `/proc/PID/task`.
pub fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    threads.sort_unstable();
    Ok(threads)
}

fn pin(who: &str, cpus: &CpuSet, act: impl FnOnce() -> io::Result<()>) -> Result<(), PinError> {
    let who = who.to_owned();
    if cpus.is_empty() {
        return Err(PinError::Empty { who });
    }
    act().map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL) => PinError::NotAllowed {
            who,
            cpus: cpus.clone(),
            allowed: CpuSet::allowed()
                .map_or_else(|error| error.to_string(), |set| set.to_string()),
        },
        Some(libc::ESRCH | libc::ENOENT) => PinError::Gone { who, cpus: cpus.clone() },
        _ => PinError::Refused { who, cpus: cpus.clone(), source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn pinned_thread_has_the_new_affinity() {
        std::thread::spawn(|| {
            let one: CpuSet = CpuSet::allowed().unwrap().first().into_iter().collect();
            pin_current_thread(&one).unwrap();
            assert_eq!(CpuSet::allowed().unwrap(), one);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn thread_has_its_affinity_again_after_the_work() {
        let all = CpuSet::allowed().unwrap();
        let one: CpuSet = all.first().into_iter().collect();
        assert_eq!(while_pinned(&one, || CpuSet::allowed().unwrap()).unwrap(), one);
        assert_eq!(CpuSet::allowed().unwrap(), all);
    }

    #[test]
    fn pins_another_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let last: CpuSet = CpuSet::allowed().unwrap().iter().last().into_iter().collect();
        let result = pin_process(child.id(), &last);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        result.unwrap();
        assert!(status.unwrap().contains(&format!("Cpus_allowed_list:\t{last}\n")));
        let error = pin_process(child.id(), &last).unwrap_err();
        assert!(matches!(error, PinError::Gone { .. }), "{error}");
    }

    #[test]
    fn errors_list_the_allowed_cpus() {
        let error = pin_current_thread(&set("16000")).unwrap_err().to_string();
        let allowed = CpuSet::allowed().unwrap();
        assert_eq!(
            error,
            format!(
                "cannot pin this thread to CPUs 16000: none of them may be used here (allowed: {allowed})"
            )
        );
        assert!(matches!(pin_current_thread(&set("")), Err(PinError::Empty { .. })));
    }
}
