//! The processes of existing servers, whose CPU time is read: the experiment may name them, and a
//! server may have been restarted since.

use std::fs;
use std::time::Duration;

use dbdyno_machine::{CpuSet, ProcessIdentity, ProcessTree, TcpListener, listener, tcp_listener};
use dbdyno_record::server::{Address, ServerSystem};
use dbdyno_results::{Role, Warning};
use dbdyno_spec::experiment::ExistingServer;
use jiff::Timestamp;

use crate::client_wait::ServerCpus;
use crate::error::RunError;
use crate::resolved_candidate::{Deployment, ResolvedCandidate};

/// Clocks may be adjusted a little between the start of a process and that of the run.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Why a process is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unknown {
    why: String,
    /// What to do to know it.
    advice: String,
}

/// The process of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    /// This process. If it could not be verified, why not.
    Process(u32, Option<Unknown>),
    /// It is not known.
    Unknown(Unknown),
    /// `pid` is wrong: why, and what to do.
    Wrong(String),
}

/// The process of each existing server: the one that the experiment names, if it is the server, else
/// the one that listens at the server's address. `run_started` is the time of the run's first session
/// if it is resumed.
///
/// Returns warnings, and a line about each process that was found.
///
/// # Errors
/// The experiment names a process that is not the server.
pub(crate) fn find_all(
    candidates: &mut [ResolvedCandidate],
    run_started: Option<&str>,
) -> Result<(Vec<Warning>, Vec<String>), RunError> {
    let run_age = run_started.map(|started| {
        started.parse().map_or(Duration::ZERO, |started: Timestamp| {
            Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default()
        })
    });
    let (mut warnings, mut found) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let Deployment::Existing(server) = &mut candidate.deployment else { continue };
        let ended = server.pid.filter(|pid| run_age.is_some_and(|age| !is_older_than(*pid, age)));
        let named = server.pid.filter(|_| ended.is_none());
        let choice = choose(server, named, &|pid| name_of(pid));
        let name = &candidate.name;
        let (pid, unknown) = match choice {
            Choice::Process(pid, unverified) => (Some(pid), unverified),
            Choice::Unknown(unknown) => (None, Some(unknown)),
            Choice::Wrong(reason) => {
                return Err(RunError::WrongPid { candidate: name.clone(), reason });
            }
        };
        server.pid = pid;
        // The control is on the baseline's server.
        if candidate.role == Role::Control {
            continue;
        }
        if let (Some(pid), None, None) = (pid, named, ended) {
            found.push(format!("{name}: CPU time of {}", describe(pid, name_of(pid))));
        }
        match (ended, unknown) {
            (Some(ended), _) => warnings.push(restarted(name, ended, pid)),
            (None, Some(unknown)) => warnings.push(missing(name, pid, unknown)),
            (None, None) => {}
        }
    }
    Ok((warnings, found))
}

/// The process of a server for `dbdyno check`: a text about it, or why it is unknown.
///
/// # Errors
/// The experiment names a process that is not the server.
pub(crate) fn describe_process(server: &ExistingServer) -> Result<String, String> {
    match choose(server, server.pid, &|pid| name_of(pid)) {
        Choice::Process(pid, _) => Ok(describe(pid, name_of(pid))),
        Choice::Unknown(Unknown { why, advice }) => {
            Ok(format!("CPU time unknown: {why}; {advice}"))
        }
        Choice::Wrong(reason) => Err(reason),
    }
}

/// The CPUs that a server may use: those of its process and that process's descendants.
pub(crate) fn cpus(server: &ExistingServer) -> ServerCpus {
    if let (Address::Tcp { host, port }, None) = (&server.target.address, server.pid)
        && tcp_listener(host, *port) == TcpListener::Elsewhere
    {
        return ServerCpus::Elsewhere;
    }
    let process = |named| match choose(server, named, &|pid| name_of(pid)) {
        Choice::Process(pid, _) => Some(pid),
        Choice::Unknown(_) | Choice::Wrong(_) => None,
    };
    // The process that the experiment names may have ended since.
    let Some(pid) = process(server.pid).or_else(|| process(None)) else {
        return ServerCpus::Unknown;
    };
    let Ok(mut tree) = ProcessTree::of(pid) else { return ServerCpus::Unknown };
    // Descendants are known from a reading.
    let _ = tree.read();
    let mut all = Vec::new();
    for pid in tree.pids() {
        // Processes may end at any time.
        all.extend(CpuSet::of_process(pid).iter().flat_map(CpuSet::iter));
    }
    if all.is_empty() { ServerCpus::Unknown } else { ServerCpus::Here(all.into_iter().collect()) }
}

/// Chooses between the process that the experiment names and the one that listens.
fn choose(
    server: &ExistingServer,
    named: Option<u32>,
    name_of: &dyn Fn(u32) -> Option<String>,
) -> Choice {
    let ExistingServer { system, target, .. } = server;
    let (address, title) = (&target.address, system.title());
    let is_server = |pid: u32| name_of(pid).is_some_and(|name| is_name_of(*system, &name));
    let found = find(address).and_then(|pid| match ProcessTree::of(pid) {
        Ok(_) => Ok(pid),
        Err(error) => Err(Unknown {
            why: format!("the usage of process {pid} cannot be read: {error}"),
            advice: "run dbdyno as root or as the server's user".to_owned(),
        }),
    });
    let Some(named) = named else {
        return match found {
            Ok(pid) if is_server(pid) => Choice::Process(pid, None),
            Ok(pid) => Choice::Unknown(Unknown {
                why: format!("{} listens at {address}", describe(pid, name_of(pid))),
                advice: format!("if {title} runs on this machine behind it, set `pid`"),
            }),
            Err(unknown) => Choice::Unknown(unknown),
        };
    };
    let its_name = name_of(named);
    let what = describe(named, its_name.clone());
    match found {
        Ok(pid) if pid == named => Choice::Process(named, None),
        Ok(pid) if is_server(pid) => Choice::Wrong(format!(
            "`pid` is {what}, but {} listens at {address}: remove `pid`, or set it to {pid}",
            describe(pid, name_of(pid))
        )),
        _ if its_name.is_none() => {
            Choice::Wrong(format!("`pid` is {named}, and there is no such process"))
        }
        _ if !is_server(named) => Choice::Wrong(format!(
            "`pid` is {what}, which is no {title} server: remove `pid`, or set it to that of the server"
        )),
        Ok(pid) => Choice::Process(
            named,
            Some(Unknown {
                why: format!("{} listens at {address}", describe(pid, name_of(pid))),
                advice: "check that it forwards connections to that process".to_owned(),
            }),
        ),
        Err(Unknown { why, .. }) => Choice::Process(
            named,
            Some(Unknown {
                why,
                advice: "check that `pid` is the process of this server".to_owned(),
            }),
        ),
    }
}

/// The process that listens at an address.
fn find(address: &Address) -> Result<u32, Unknown> {
    let unknown = |why: String, advice: &str| Err(Unknown { why, advice: advice.to_owned() });
    let set_pid = "set `pid` if the server runs on this machine";
    let (host, port) = match address {
        Address::Socket(path) => match listener(path) {
            Some(pid) => return Ok(pid),
            None => return unknown(format!("no known process listens at {address}"), set_pid),
        },
        Address::Tcp { host, port } => (host, *port),
    };
    match tcp_listener(host, port) {
        TcpListener::Process(pid) => Ok(pid),
        TcpListener::Hidden => unknown(
            format!("this user may not see which process listens at {address}"),
            "run dbdyno as root or as the server's user, or set `pid`",
        ),
        TcpListener::Nobody => unknown(format!("no known process listens at {address}"), set_pid),
        TcpListener::Elsewhere => unknown(
            format!("{host} is another machine"),
            "run dbdyno on the server's machine to measure its CPU time",
        ),
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
    let programs: &[&str] = match system {
        ServerSystem::MariaDb | ServerSystem::MySql => &["mariadbd", "mysqld"],
        ServerSystem::PostgreSql => &["postgres", "postmaster"],
    };
    programs.contains(&name)
}

/// The warning about a process that is unknown, or not verified.
fn missing(candidate: &str, pid: Option<u32>, Unknown { why, advice }: Unknown) -> Warning {
    let what = match pid {
        None => format!("the CPU time of {candidate} is unknown: {why}"),
        Some(pid) => format!("the CPU time of {candidate} is read from process {pid}, but {why}"),
    };
    Warning { what, advice }
}

fn restarted(candidate: &str, ended: u32, now: Option<u32>) -> Warning {
    let restarted = format!(
        "the server of {candidate} was restarted: process {ended}, which the experiment names, is \
         not the server any more"
    );
    match now {
        Some(pid) => Warning {
            what: format!("{restarted}; its CPU time is read from process {pid}"),
            advice: "its caches were emptied since the earlier sessions; if that matters, start a \
                     new run"
                .to_owned(),
        },
        None => Warning {
            what: format!("{restarted}; its CPU time is unknown from now on"),
            advice: "for its CPU time, start a new run with the present `pid`".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use dbdyno_record::server::{StatementMode, Target, Tls};

    use super::*;

    /// A server at this address.
    fn server(address: Address) -> ExistingServer {
        let target = Target {
            address,
            user: "me".to_owned(),
            database: None,
            tls: Tls::Off,
            server_public_key: None,
            password: true,
        };
        let (system, schema) = (ServerSystem::MariaDb, "dbdyno_a".to_owned());
        let statements = StatementMode::Prepared;
        ExistingServer { system, engine: None, target, schema, statements, pid: None }
    }

    fn at(socket: &Path) -> ExistingServer {
        server(Address::Socket(socket.to_owned()))
    }

    #[test]
    fn process_that_does_not_listen_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _socket = UnixListener::bind(&socket).unwrap();
        let own = std::process::id();
        let server = at(&socket);
        let mariadbd = |pid: u32| Some(if pid == own { "mariadbd" } else { "systemd" }.to_owned());
        assert_eq!(choose(&server, Some(own), &mariadbd), Choice::Process(own, None));
        assert_eq!(choose(&server, None, &mariadbd), Choice::Process(own, None));
        let Choice::Wrong(reason) = choose(&server, Some(1), &mariadbd) else { panic!("accepted") };
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
        let server = at(&socket);
        let proxy = |pid: u32| Some(if pid == 4711 { "mysqld" } else { "proxy" }.to_owned());
        let Choice::Unknown(unknown) = choose(&server, None, &proxy) else { panic!("taken") };
        assert!(unknown.why.contains("(proxy) listens at"), "{unknown:?}");
        // The server is behind it.
        let chosen = choose(&server, Some(4711), &proxy);
        assert!(matches!(chosen, Choice::Process(4711, Some(_))), "{chosen:?}");
        let chosen = choose(&server, Some(4712), &proxy);
        assert!(
            matches!(&chosen, Choice::Wrong(why) if why.contains("no MariaDB server")),
            "{chosen:?}"
        );
    }

    #[test]
    fn unknown_process_has_a_reason_and_advice() {
        let remote = server(Address::Tcp { host: "192.0.2.1".to_owned(), port: 3306 });
        let Choice::Unknown(unknown) = choose(&remote, None, &name_of) else { panic!("found") };
        assert_eq!(unknown.why, "192.0.2.1 is another machine");
        let warning = missing("a", None, unknown);
        assert_eq!(warning.what, "the CPU time of a is unknown: 192.0.2.1 is another machine");
        assert!(warning.advice.contains("on the server's machine"), "{warning:?}");
        let none = choose(&remote, Some(0x7fff_fff0), &name_of);
        assert!(matches!(&none, Choice::Wrong(why) if why.contains("no such process")), "{none:?}");
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
