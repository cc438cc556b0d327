//! The process of an existing server on the machine where this runs: the one that the experiment names, or
//! the one that listens at the server's address.

use std::fs;
use std::time::Duration;

use dbdyno_machine::{ProcessIdentity, ProcessTree, TcpListener, listener, tcp_listener};
use dbdyno_types::server::{Address, ServerSystem};
use serde::{Deserialize, Serialize};

use super::systems::server_program;

/// Clocks may be adjusted a little between the start of a process and that of the run.
const TOLERANCE: Duration = Duration::from_secs(2);

/// The server whose process is searched for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSearch {
    pub system: ServerSystem,
    pub address: Address,
    /// The process that the experiment names.
    pub named: Option<u32>,
    /// If the run is resumed, the time since its start: a younger process is not the named one.
    pub run_age: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFound {
    /// The process; `None` if it is not known.
    pub pid: Option<u32>,
    /// The process with its name, such as `process 7 (mariadbd)`.
    pub description: String,
    /// Whether it is the one that the experiment names.
    pub is_named: bool,
    /// The process that the experiment names, if it has ended since.
    pub ended: Option<u32>,
    /// Why the process is not known, or could not be verified.
    pub doubt: Option<ProcessDoubt>,
}

/// Why a process is not known, or not verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessDoubt {
    /// This user may not read the usage of the process: number and error.
    Unreadable(u32, String),
    /// This process, which is no server of the system, listens at the address.
    OtherProgram(String, Address, ServerSystem),
    /// Nobody listens there.
    Nobody(Address),
    /// This user may not see who listens there.
    Hidden(Address),
    /// The address is none of the machine.
    Elsewhere(String),
}

impl ProcessDoubt {
    /// The reason. `host` is the name of the host that was searched; `None` for this machine.
    pub fn why(&self, host: Option<&str>) -> String {
        match (self, host) {
            (Self::Unreadable(pid, error), _) => {
                format!("the usage of process {pid} cannot be read: {error}")
            }
            (Self::OtherProgram(process, address, _), _) => {
                format!("{process} listens at {address}")
            }
            (Self::Nobody(address), _) => format!("no known process listens at {address}"),
            (Self::Hidden(address), _) => {
                format!("this user may not see which process listens at {address}")
            }
            (Self::Elsewhere(address), None) => format!("{address} is another machine"),
            (Self::Elsewhere(address), Some(host)) => {
                format!("{address} is not an address of host {host}")
            }
        }
    }

    /// What to do to know the process.
    pub fn advice(&self, host: Option<&str>) -> String {
        let there = host.map_or("on this machine".to_owned(), |host| format!("on host {host}"));
        let as_root = match host {
            None => "run dbdyno as root or as the server's user".to_owned(),
            Some(host) => format!("log in to host {host} as root or as the server's user"),
        };
        match self {
            Self::Unreadable(..) => as_root,
            Self::OtherProgram(_, _, system) => {
                format!("if {} runs {there} behind it, set `pid`", system.title())
            }
            Self::Nobody(_) => format!("set `pid` if the server runs {there}"),
            Self::Hidden(_) => format!("{as_root}, or set `pid`"),
            Self::Elsewhere(_) if host.is_some() => {
                format!("use an address of the host in `url`, or set `pid` if the server runs {there}")
            }
            Self::Elsewhere(_) => {
                "set `host` to read its CPU time there, with ssh, or run dbdyno on the server's machine"
                    .to_owned()
            }
        }
    }

    /// What to check if the experiment names the process.
    pub const fn advice_if_named(&self) -> &'static str {
        match self {
            Self::OtherProgram(..) => "check that it forwards connections to that process",
            _ => "check that `pid` is the process of this server",
        }
    }
}

/// The process, and why it is not known or could not be verified.
type Choice = (Option<u32>, Option<ProcessDoubt>);

impl ProcessSearch {
    /// Searches on the machine where this runs.
    pub fn run(&self) -> Result<ProcessFound, String> {
        let is_ended = |pid: &u32| self.run_age.is_some_and(|age| !is_older_than(*pid, age));
        let ended = self.named.filter(is_ended);
        let named = self.named.filter(|_| ended.is_none());
        let (pid, doubt) = self.choose(named, &name_of)?;
        let description = pid.map(|pid| describe(pid, name_of(pid))).unwrap_or_default();
        let is_named = pid.is_some() && pid == named;
        Ok(ProcessFound { pid, description, is_named, ended, doubt })
    }

    /// Chooses between the process that the experiment names and the one that listens. The error says why `pid` is
    /// wrong, and what to do.
    fn choose(
        &self,
        named: Option<u32>,
        name_of: &dyn Fn(u32) -> Option<String>,
    ) -> Result<Choice, String> {
        let Self { system, address, .. } = self;
        let title = system.title();
        let is_server = |pid: u32| name_of(pid).is_some_and(|name| is_name_of(*system, &name));
        let other_program = |pid: u32| {
            let process = describe(pid, name_of(pid));
            ProcessDoubt::OtherProgram(process, address.clone(), *system)
        };
        let found = find(address).and_then(|pid| match ProcessTree::of(pid) {
            Ok(_) => Ok(pid),
            Err(error) => Err(ProcessDoubt::Unreadable(pid, error.to_string())),
        });
        let Some(named) = named else {
            return match found {
                Ok(pid) if is_server(pid) => Ok((Some(pid), None)),
                Ok(pid) => Ok((None, Some(other_program(pid)))),
                Err(doubt) => Ok((None, Some(doubt))),
            };
        };
        let its_name = name_of(named);
        let what = describe(named, its_name.clone());
        match found {
            Ok(pid) if pid == named => Ok((Some(named), None)),
            Ok(pid) if is_server(pid) => Err(format!(
                "`pid` is {what}, but {} listens at {address}: remove `pid`, or set it to {pid}",
                describe(pid, name_of(pid))
            )),
            _ if its_name.is_none() => {
                Err(format!("`pid` is {named}, and there is no such process"))
            }
            _ if !is_server(named) => Err(format!(
                "`pid` is {what}, which is no {title} server: remove `pid`, or set it to that of the \
                 server"
            )),
            Ok(pid) => Ok((Some(named), Some(other_program(pid)))),
            Err(doubt) => Ok((Some(named), Some(doubt))),
        }
    }
}

/// The process that listens at an address.
fn find(address: &Address) -> Result<u32, ProcessDoubt> {
    let (host, port) = match address {
        Address::Socket(path) => {
            return listener(path).ok_or_else(|| ProcessDoubt::Nobody(address.clone()));
        }
        Address::Tcp { host, port } => (host, *port),
    };
    match tcp_listener(host, port) {
        TcpListener::Process(pid) => Ok(pid),
        TcpListener::Hidden => Err(ProcessDoubt::Hidden(address.clone())),
        TcpListener::Nobody => Err(ProcessDoubt::Nobody(address.clone())),
        TcpListener::Elsewhere => Err(ProcessDoubt::Elsewhere(host.clone())),
    }
}

/// Whether the process runs and is older than the run. A younger one has the number by chance.
fn is_older_than(pid: u32, run_age: Duration) -> bool {
    ProcessIdentity::of(pid).is_ok_and(|process| process.age() + TOLERANCE >= run_age)
}

/// The name of a process's program; `None` if there is no such process.
fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn describe(pid: u32, name: Option<String>) -> String {
    match name {
        Some(name) => format!("process {pid} ({name})"),
        None => format!("process {pid}"),
    }
}

/// Whether this is the name of a server program of this system, and not a proxy or a service manager.
fn is_name_of(system: ServerSystem, name: &str) -> bool {
    server_program(system).facts().processes.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::*;

    fn search(address: Address) -> ProcessSearch {
        ProcessSearch { system: ServerSystem::MariaDb, address, named: None, run_age: None }
    }

    fn at(socket: &Path) -> ProcessSearch {
        search(Address::Socket(socket.to_owned()))
    }

    #[test]
    fn process_that_does_not_listen_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _socket = UnixListener::bind(&socket).unwrap();
        let own = std::process::id();
        let search = at(&socket);
        let mariadbd = |pid: u32| Some(if pid == own { "mariadbd" } else { "systemd" }.to_owned());
        assert_eq!(search.choose(Some(own), &mariadbd), Ok((Some(own), None)));
        assert_eq!(search.choose(None, &mariadbd), Ok((Some(own), None)));
        let reason = search.choose(Some(1), &mariadbd).unwrap_err();
        let socket = socket.display();
        let expected = format!(
            "`pid` is process 1 (systemd), but process {own} (mariadbd) listens at {socket}: remove \
             `pid`, or set it to {own}"
        );
        assert_eq!(reason, expected);
    }

    #[test]
    fn listener_that_is_no_server_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _socket = UnixListener::bind(&socket).unwrap();
        let search = at(&socket);
        let proxy = |pid: u32| Some(if pid == 4711 { "mysqld" } else { "proxy" }.to_owned());
        let Ok((None, Some(doubt))) = search.choose(None, &proxy) else { panic!("taken") };
        assert!(doubt.why(None).contains("(proxy) listens at"), "{doubt:?}");
        assert!(doubt.advice(Some("db1")).contains("MariaDB runs on host db1"), "{doubt:?}");
        // The server is behind it.
        let chosen = search.choose(Some(4711), &proxy);
        assert!(matches!(chosen, Ok((Some(4711), Some(_)))), "{chosen:?}");
        let chosen = search.choose(Some(4712), &proxy);
        assert!(matches!(&chosen, Err(why) if why.contains("no MariaDB server")), "{chosen:?}");
    }

    #[test]
    fn unknown_process_has_a_reason_and_advice() {
        let remote = search(Address::Tcp { host: "192.0.2.1".to_owned(), port: 3306 });
        let found = remote.run().unwrap();
        assert_eq!((found.pid, found.is_named), (None, false));
        let doubt = found.doubt.unwrap();
        assert_eq!(doubt.why(None), "192.0.2.1 is another machine");
        assert!(doubt.advice(None).contains("set `host`"), "{doubt:?}");
        assert_eq!(doubt.why(Some("db1")), "192.0.2.1 is not an address of host db1");
        let none = ProcessSearch { named: Some(0x7fff_fff0), ..remote }.run().unwrap_err();
        assert!(none.contains("no such process"), "{none}");
    }

    #[test]
    fn process_younger_than_the_run_is_another_one() {
        let own = std::process::id();
        assert!(is_older_than(own, Duration::ZERO));
        assert!(!is_older_than(own, Duration::from_secs(3_600 * 24 * 365)));
        assert!(!is_older_than(0x7fff_fff0, Duration::ZERO));
    }

    #[test]
    fn only_a_server_program_is_a_server() {
        assert!(is_name_of(ServerSystem::MariaDb, "mysqld"));
        assert!(!is_name_of(ServerSystem::MariaDb, "postgres"));
        assert!(!is_name_of(ServerSystem::PostgreSql, "systemd"));
    }
}
