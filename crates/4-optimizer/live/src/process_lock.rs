//! One dbdyno at a time changes a process, whatever its user, directory of journals or container.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::LiveError;

/// The lock of a process: an abstract socket in its network namespace, which the kernel removes when the last
/// process with it ends: dbdyno, or its watchdog.
#[derive(Debug)]
pub struct ProcessLock {
    _socket: UnixListener,
}

impl ProcessLock {
    /// # Errors
    /// [`LiveError::Locked`] if another dbdyno has it for longer than the watchdog of a killed one needs, which
    /// is seconds on a busy machine.
    pub fn take(pid: u32) -> Result<Self, LiveError> {
        const ATTEMPTS: u32 = 1_000;
        let failed = |error: io::Error| {
            LiveError::failed(format!("locking process {pid}"), error.to_string(), "")
        };
        let place = Place::of(pid).map_err(failed)?;
        for _ in 0..ATTEMPTS {
            match place.run(UnixListener::bind_addr) {
                Ok(socket) => return Ok(Self { _socket: socket }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(LiveError::Locked { pid, by: place.holder() })
    }
}

/// Where the lock of a process is.
struct Place {
    address: SocketAddr,
    /// The network namespace, if it is not dbdyno's own.
    namespace: Option<File>,
}

impl Place {
    fn of(pid: u32) -> io::Result<Self> {
        // The number in the process's own namespace is the same for whoever asks.
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own = numbers.and_then(|numbers| numbers.split_whitespace().last()).unwrap_or("0");
        let namespace = fs::metadata(format!("/proc/{pid}/ns/pid"))?.ino();
        let address = SocketAddr::from_abstract_name(format!("dbdyno-live-{namespace}-{own}"))?;
        let network = File::open(format!("/proc/{pid}/ns/net"))?;
        let is_ours = network.metadata()?.ino() == fs::metadata("/proc/thread-self/ns/net")?.ino();
        Ok(Self { address, namespace: (!is_ours).then_some(network) })
    }

    /// Runs `task` in the network namespace; in dbdyno's own if it may not enter the other.
    fn run<T: Send>(&self, task: impl Fn(&SocketAddr) -> io::Result<T> + Sync) -> io::Result<T> {
        let Some(namespace) = &self.namespace else { return task(&self.address) };
        let entered = || {
            if let Err(error) =
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            {
                tracing::debug!(%error, "the network namespace of the process cannot be entered");
            }
            task(&self.address)
        };
        // Only this thread enters it.
        std::thread::scope(|scope| scope.spawn(entered).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread that enters its namespace ended")))
    }

    /// The process that has the lock; `None` if it is in another container, or has just ended.
    fn holder(&self) -> Option<u32> {
        let socket = self.run(UnixStream::connect_addr).ok()?;
        let holder = socket_peercred(&socket).ok()?.pid.as_raw_nonzero();
        u32::try_from(holder.get()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process, with a network namespace of its own if asked; `None` if this user may not make one.
    fn other(own_network: bool) -> Option<Child> {
        let unshare = |program: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(own_network.then_some("--net")).args(program).stderr(Stdio::null());
            command
        };
        if !unshare(&["true"]).status().unwrap().success() {
            return None;
        }
        let child = unshare(&["sleep", "1000"]).spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&name).unwrap().trim() != "sleep" {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(child)
    }

    #[test]
    fn process_is_locked_once_in_any_network_namespace() {
        for own_network in [false, true] {
            let Some(mut child) = other(own_network) else { continue };
            let lock = ProcessLock::take(child.id()).unwrap();
            let refused = ProcessLock::take(child.id()).unwrap_err();
            let me = std::process::id();
            assert!(
                matches!(refused, LiveError::Locked { by: Some(by), .. } if by == me),
                "{refused}"
            );
            drop(lock);
            ProcessLock::take(child.id()).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
