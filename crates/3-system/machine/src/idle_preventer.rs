//! Threads that keep CPUs from entering idle states.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::control_groups::has_cpu_quota;
use crate::cpus::pin_current_thread;
use crate::facts::{Hardware, hypervisor_signature};
use crate::{CpuSet, FsRoot, PinError};

/// Pause instructions between two checks of the stop flag.
const PAUSES_PER_CHECK: u32 = 64;

/// Keeps CPUs out of idle states: one `SCHED_IDLE` thread per CPU spins until this is dropped.
///
/// When client and server wait for each other, an idle CPU enters a sleep state many thousand
/// times a second. On a virtual machine it is then handed back to the hypervisor, and a wake-up
/// takes tens of microseconds with high variance. That time is added to every statement, belongs
/// to no candidate, and moves ratios towards 1. `SCHED_IDLE` threads are preempted immediately by
/// anything else that can run.
#[derive(Debug)]
pub struct IdlePreventer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A spinning thread could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdlePreventerError {
    /// The thread could not be started or given the scheduling policy `SCHED_IDLE`.
    #[error("cannot keep CPU {cpu} from idling: {source}")]
    Thread { cpu: u32, source: io::Error },
    /// The thread could not be pinned to its CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl IdlePreventer {
    /// Whether this machine needs it: a virtual machine without a CPU quota, which the spinning
    /// threads would use up.
    pub fn is_worthwhile(root: &FsRoot) -> bool {
        let signature = hypervisor_signature();
        let hardware = Hardware::read(root, signature.as_deref());
        hardware.is_some_and(|hardware| hardware.is_virtual()) && has_cpu_quota(root) == Some(false)
    }

    pub fn start(cpus: &CpuSet) -> Result<Self, IdlePreventerError> {
        let mut preventer = Self { stop: Arc::default(), threads: Vec::new() };
        for cpu in cpus.iter() {
            let stop = Arc::clone(&preventer.stop);
            let (ready, is_ready) = std::sync::mpsc::channel();
            let thread = thread::Builder::new().name(format!("no-idle-{cpu}")).spawn(move || {
                let prepared = prepare_thread(cpu);
                let failed = prepared.is_err();
                let _ = ready.send(prepared);
                while !failed && !stop.load(Ordering::Relaxed) {
                    (0..PAUSES_PER_CHECK).for_each(|_| std::hint::spin_loop());
                }
            });
            let thread = thread.map_err(|source| IdlePreventerError::Thread { cpu, source })?;
            preventer.threads.push(thread);
            is_ready.recv().unwrap_or_else(|_| {
                let source = io::Error::other("the thread ended");
                Err(IdlePreventerError::Thread { cpu, source })
            })?;
        }
        Ok(preventer)
    }
}

impl Drop for IdlePreventer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sets policy and affinity of the calling thread: the policy first, so that it preempts nothing
/// on the target CPU.
fn prepare_thread(cpu: u32) -> Result<(), IdlePreventerError> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: it reads the parameters and concerns this thread alone.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
        return Err(IdlePreventerError::Thread { cpu, source: io::Error::last_os_error() });
    }
    Ok(pin_current_thread(&std::iter::once(cpu).collect())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use super::*;

    /// Serializes the tests: they count threads of this process by name.
    static SERIAL: Mutex<()> = Mutex::new(());

    /// Scheduling policy of this process's thread with that name.
    fn policy_of(name: &str) -> Option<u64> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        let stat = stats.find(|stat| stat.contains(&format!("({name})")))?;
        let (_, fields) = stat.rsplit_once(')')?;
        // proc_pid_stat(5): field 41; the first one here is field 3.
        fields.split_whitespace().nth(41 - 3)?.parse().ok()
    }

    /// Waits: the kernel lists a thread for a moment after its end was announced.
    #[track_caller]
    fn ends(name: &str) {
        let start = Instant::now();
        while policy_of(name).is_some() {
            assert!(start.elapsed() < Duration::from_secs(60), "the thread still runs");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn threads_have_policy_sched_idle_and_end_on_drop() {
        let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = CpuSet::allowed().unwrap().iter().next().unwrap();
        let name = format!("no-idle-{cpu}");
        assert_eq!(policy_of(&name), None);
        let preventer = IdlePreventer::start(&std::iter::once(cpu).collect()).unwrap();
        assert_eq!(policy_of(&name), Some(libc::SCHED_IDLE as u64));
        drop(preventer);
        ends(&name);
    }

    #[test]
    fn cpu_not_allowed_is_an_error_and_leaves_no_thread() {
        let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let own = CpuSet::allowed().unwrap().iter().next().unwrap();
        let cpus: CpuSet = [own, 4_000].into_iter().collect();
        let error = IdlePreventer::start(&cpus).unwrap_err().to_string();
        assert!(error.contains("4000"), "{error}");
        ends("no-idle-4000");
    }
}
