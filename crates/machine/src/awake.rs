//! CPUs that never sleep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::facts::{Hardware, hypervisor_signature};
use crate::pin::pin_current_thread;
use crate::quota::has_cpu_quota;
use crate::{CpuSet, PinError, Root};

/// How often the processor is told that this is only waiting, between two looks at the time to stop.
const PAUSES: u32 = 64;

/// Keeps CPUs awake for as long as it lives: a thread on each of them spins while nothing else
/// wants to run there.
///
/// Where client and server wait for each other, a CPU without work goes to sleep many thousand
/// times a second. On a virtual machine it then leaves to the hypervisor, and to wake it takes
/// tens of microseconds, now more, now less: time that is added to every statement, is nobody's
/// work, and draws ratios towards 1. The threads have the kernel's class for what may only run when
/// a CPU is idle (`SCHED_IDLE`): anything else takes their place at once.
#[derive(Debug)]
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A thread that keeps a CPU awake could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AwakeError {
    /// It could not be started, or was not let into its class.
    #[error("cannot keep CPU {cpu} awake: {source}")]
    Thread {
        /// Where.
        cpu: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It could not be kept on its CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl Awake {
    /// Whether it is worth its price on this machine: where it is a virtual one, and no control
    /// group has so much CPU time and no more.
    #[must_use]
    pub fn pays(root: &Root) -> bool {
        let signature = hypervisor_signature();
        let hardware = Hardware::read(root, signature.as_deref());
        hardware.is_some_and(|hardware| hardware.is_virtual()) && has_cpu_quota(root) == Some(false)
    }

    /// Keeps these CPUs awake.
    ///
    /// # Errors
    /// A thread cannot be started, or the process may not use one of the CPUs. None is left then.
    pub fn keep(cpus: &CpuSet) -> Result<Self, AwakeError> {
        let mut awake = Self { stop: Arc::default(), threads: Vec::new() };
        for cpu in cpus.iter() {
            let stop = Arc::clone(&awake.stop);
            let (ready, told) = std::sync::mpsc::channel();
            let thread = thread::Builder::new().name(format!("awake-{cpu}")).spawn(move || {
                let prepared = prepare(cpu);
                let failed = prepared.is_err();
                // Who asks waits for this.
                let _ = ready.send(prepared);
                while !failed && !stop.load(Ordering::Relaxed) {
                    (0..PAUSES).for_each(|_| std::hint::spin_loop());
                }
            });
            let thread = thread.map_err(|source| AwakeError::Thread { cpu, source })?;
            awake.threads.push(thread);
            told.recv().unwrap_or_else(|_| {
                let source = io::Error::other("the thread ended");
                Err(AwakeError::Thread { cpu, source })
            })?;
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// First the class, so that nothing has to make room for it where it goes.
fn prepare(cpu: u32) -> Result<(), AwakeError> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: it reads the parameters and concerns this thread alone.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
        return Err(AwakeError::Thread { cpu, source: io::Error::last_os_error() });
    }
    Ok(pin_current_thread(&std::iter::once(cpu).collect())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;

    /// Tests see the threads of each other: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// State and policy of this process's thread of that name.
    fn policy_of(name: &str) -> Option<u64> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        let stat = stats.find(|stat| stat.contains(&format!("({name})")))?;
        let (_, fields) = stat.rsplit_once(')')?;
        // proc(5) counts from 1, and the state, the first here, is number 3.
        fields.split_whitespace().nth(41 - 3)?.parse().ok()
    }

    #[test]
    fn the_threads_are_idle_ones_and_end_with_it() {
        let _alone = ALONE.lock().unwrap();
        let cpu = CpuSet::allowed().unwrap().iter().next().unwrap();
        let name = format!("awake-{cpu}");
        assert_eq!(policy_of(&name), None);
        let awake = Awake::keep(&std::iter::once(cpu).collect()).unwrap();
        assert_eq!(policy_of(&name), Some(libc::SCHED_IDLE as u64));
        drop(awake);
        let start = Instant::now();
        while policy_of(&name).is_some() {
            assert!(start.elapsed() < Duration::from_secs(10), "it still spins");
        }
    }

    #[test]
    fn a_cpu_that_may_not_be_used_is_an_error_and_leaves_no_thread() {
        let _alone = ALONE.lock().unwrap();
        let own = CpuSet::allowed().unwrap().iter().next().unwrap();
        let cpus: CpuSet = [own, 4_000].into_iter().collect();
        let error = Awake::keep(&cpus).unwrap_err().to_string();
        assert!(error.contains("4000"), "{error}");
        assert_eq!(policy_of("awake-4000"), None);
    }
}
