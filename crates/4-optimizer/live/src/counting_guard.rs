//! A process that ends the counting of executions if dbdyno is killed meanwhile, or cannot end it.
//!
//! The code that counts is slow, and must not stay active. The guard waits for the end of a pipe whose other
//! end only dbdyno has: the kernel closes it when dbdyno ends for any reason, and dbdyno after an error.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::LiveError;
use crate::target::Target;

/// The guard of this process. Ends when it is dropped.
pub(crate) struct CountingGuard(Option<Child>);

impl CountingGuard {
    /// Starts the guard: a command that calls [`end_counting_after_input`].
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // Ctrl-C is for dbdyno, which ends the counting itself.
        Ok(Self(Some(command.process_group(0).spawn()?)))
    }

    /// Has the guard activate the original code, as soon as this dbdyno is not attached any more.
    pub(crate) fn act(mut self) {
        if let Some(mut guard) = self.0.take() {
            // This closes its standard input.
            thread::spawn(move || guard.wait());
        }
    }
}

impl Drop for CountingGuard {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.0 {
            // It waits for its standard input, which is open until then: it has not done anything.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

/// Time in which the guard tries again to activate the original code. Right after dbdyno was killed, the kernel may
/// not have ended its tracing yet; or the process is stopped, or another program traces it.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until standard input ends, and then activates the original code, if code that counts is active. Returns
/// whether it was.
///
/// # Errors
/// The process exited, or could not be changed for a minute.
pub fn end_counting_after_input(target: &Target) -> Result<bool, LiveError> {
    // An error is the end, too.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let start = Instant::now();
    loop {
        match target.attach().and_then(|mut it| it.end_abandoned_counting()) {
            Err(error) if !matches!(error, LiveError::Exited { .. }) => {
                if start.elapsed() > PATIENCE {
                    return Err(error);
                }
                thread::sleep(PAUSE);
            }
            ended => return ended,
        }
    }
}
