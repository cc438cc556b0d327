//! A short-lived thread with high priority for tracing.

use std::thread;

/// The highest priority of threads without real-time scheduling.
pub(crate) const HIGHEST_PRIORITY: libc::c_int = -20;

/// To Linux, the thread that calls.
const THIS_THREAD: i32 = 0;

/// Runs `work` on a new thread and waits for it.
///
/// Tracing is bound to the thread that started it. When that thread ends, the kernel releases all
/// threads that it has seized, whatever their state: so `work` cannot leave a thread stopped.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| {
        scope
            .spawn(|| {
                raise_priority();
                use_real_time();
                work()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives this thread the highest priority, if permitted, and makes its short sleeps exact: for work while
/// other threads are stopped, or that must not wait for them on a busy machine.
pub fn raise_priority() {
    set_priority(THIS_THREAD, HIGHEST_PRIORITY);
    dbdyno_machine::set_minimal_timer_slack();
}

/// Lets this thread run before all threads without real-time scheduling, if permitted. The highest nice
/// value is not enough: Linux divides CPU time between sessions first (`CONFIG_SCHED_AUTOGROUP`), and
/// nice values count within a session only.
fn use_real_time() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // Processes and threads that it starts do not inherit it.
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the structure lives during the call. rustix does not support this.
    unsafe { libc::sched_setscheduler(THIS_THREAD, policy, &raw const lowest) };
}

/// Sets the nice value of a thread, if permitted.
pub(crate) fn set_priority(tid: i32, nice: i32) {
    // SAFETY: takes numbers. rustix supports this for processes only, and would reject the thread
    // ID.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: takes a number.
        unsafe { libc::sched_getscheduler(THIS_THREAD) }
    }

    #[test]
    fn own_thread_is_real_time_where_permitted_and_threads_that_it_starts_are_not() {
        let lowest = libc::sched_param { sched_priority: 1 };
        // SAFETY: the structure lives during the call.
        let is_permitted = thread::spawn(move || unsafe {
            libc::sched_setscheduler(THIS_THREAD, libc::SCHED_FIFO, &raw const lowest) == 0
        });
        let [own, started] = on_own_thread(|| [policy(), thread::spawn(policy).join().unwrap()]);
        if is_permitted.join().unwrap() {
            assert_eq!(own, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK);
        }
        assert_eq!([policy(), started], [libc::SCHED_OTHER; 2]);
    }
}
