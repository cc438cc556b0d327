//! A short-lived thread with high priority for tracing.

use std::thread;

/// The highest priority of threads without real-time scheduling.
pub(crate) const HIGHEST_PRIORITY: libc::c_int = -20;

/// Runs `work` on a new thread and waits for it.
///
/// Tracing is bound to the thread that started it. When that thread ends, the kernel releases all
/// threads that it has seized, whatever their state: so `work` cannot leave a thread stopped.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| {
        scope
            .spawn(|| {
                raise_priority();
                work()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives this thread the highest priority, if permitted, and makes its short sleeps exact: for work while
/// other threads are stopped, or that must not wait for them on a busy machine.
pub fn raise_priority() {
    const THIS_THREAD: i32 = 0;
    set_priority(THIS_THREAD, HIGHEST_PRIORITY);
    dbdyno_machine::set_minimal_timer_slack();
}

/// Sets the nice value of a thread, if permitted.
pub(crate) fn set_priority(tid: i32, nice: i32) {
    // SAFETY: takes numbers. rustix supports this for processes only, and would reject the thread
    // ID.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) };
}
