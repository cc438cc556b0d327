//! The processes of existing servers, whose CPU time is read: the experiment may name them, and a
//! server may have been restarted since.

use std::net::ToSocketAddrs;
use std::time::Duration;

use dbdyno_engines::server::{ProcessDoubt, ProcessFound, ProcessSearch};
use dbdyno_hosts::protocol::Find;
use dbdyno_hosts::{HostConnection, HostError};
use dbdyno_machine::{CpuSet, ProcessTree, TcpListener, tcp_listener};
use dbdyno_results::{Role, Warning};
use dbdyno_spec::experiment::ExistingServer;
use dbdyno_types::server::Address;
use jiff::Timestamp;

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::error::RunError;

/// Which CPUs a server may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerCpus {
    /// These CPUs of this machine.
    Here(CpuSet),
    /// Those of another machine.
    Elsewhere,
    Unknown,
}

/// The process of each existing server: the one that the experiment names, if it is the server, else
/// the one that listens at the server's address. `run_started` is the time of the run's first session
/// if it is resumed.
///
/// Returns warnings, and a line about each process that was found.
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
        let (name, host) = (&candidate.name, candidate.host.as_ref());
        let ProcessFound { pid, description, is_named, ended, doubt } = match host {
            Some(host) => find_on_host(server, host, run_age)
                .map_err(|source| RunError::server(name, source))?,
            None => search(server, run_age)
                .run()
                .map_err(|reason| RunError::Other(format!("candidate {name}: {reason}")))?,
        };
        server.pid = pid;
        // The control is on the baseline's server.
        if candidate.role == Role::Control {
            continue;
        }
        let host = host.map(HostConnection::name);
        if pid.is_some() && ended.is_none() && (!is_named || host.is_some()) {
            let there = host.map(|host| format!(" on host {host}")).unwrap_or_default();
            found.push(format!("{name}: CPU time of {description}{there}"));
        }
        match (ended, doubt) {
            (Some(ended), _) => warnings.push(restarted(name, ended, pid)),
            (None, Some(doubt)) => warnings.push(missing(name, pid, &doubt, host)),
            (None, None) => {}
        }
    }
    Ok((warnings, found))
}

/// The process of a server on this machine for `dbdyno check`: a text about it, or why it is unknown.
pub(crate) fn describe_process(server: &ExistingServer) -> Result<String, String> {
    let ProcessFound { description, doubt, pid, .. } = search(server, None).run()?;
    Ok(match (pid, doubt) {
        (None, Some(doubt)) => {
            format!("CPU time unknown: {}; {}", doubt.why(None), doubt.advice(None))
        }
        _ => description,
    })
}

/// The same for a server on a host.
pub(crate) fn describe_on_host(
    server: &ExistingServer,
    host: &HostConnection,
) -> Result<String, HostError> {
    let found = find_on_host(server, host, None)?;
    Ok(format!("{} on host {}", found.description, host.name()))
}

/// The process on this host, whose usage can be read.
fn find_on_host(
    server: &ExistingServer,
    host: &HostConnection,
    run_age: Option<Duration>,
) -> Result<ProcessFound, HostError> {
    let failed = |why: String, advice: String| host.failed(format!("{why}; {advice}"));
    let mut search = search(server, run_age);
    // Names may mean something else there.
    if let Address::Tcp { host: name, port } = &mut search.address {
        let resolved = (name.as_str(), *port).to_socket_addrs();
        let ip = resolved.ok().and_then(|mut all| all.next()).map(|address| address.ip());
        *name = match ip {
            Some(ip) if !ip.is_loopback() => ip.to_string(),
            Some(ip) => {
                let advice = "use an address of the host in `url`".to_owned();
                return Err(failed(format!("{name} is {ip}, an address of this machine"), advice));
            }
            None => {
                let advice = "use an IP address in `url`".to_owned();
                return Err(failed(format!("{name} has no IP address here"), advice));
            }
        };
    }
    let found = host.call(Find(search))?;
    match (found.pid, &found.doubt) {
        (None, Some(doubt)) => {
            let host = Some(host.name());
            let why = format!("the process of the server is not known: {}", doubt.why(host));
            Err(failed(why, doubt.advice(host)))
        }
        (None, None) | (Some(_), _) => Ok(found),
    }
}

fn search(server: &ExistingServer, run_age: Option<Duration>) -> ProcessSearch {
    let ExistingServer { system, target, pid, .. } = server;
    ProcessSearch { system: *system, address: target.address.clone(), named: *pid, run_age }
}

/// The CPUs that a server may use: those of its process and that process's descendants.
pub(crate) fn cpus(server: &ExistingServer) -> ServerCpus {
    if server.host.is_some() {
        return ServerCpus::Elsewhere;
    }
    if let (Address::Tcp { host, port }, None) = (&server.target.address, server.pid)
        && tcp_listener(host, *port) == TcpListener::Elsewhere
    {
        return ServerCpus::Elsewhere;
    }
    let search = search(server, None);
    let process = |named| ProcessSearch { named, ..search.clone() }.run().ok()?.pid;
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

/// The warning about a process that is unknown, or not verified.
fn missing(candidate: &str, pid: Option<u32>, doubt: &ProcessDoubt, host: Option<&str>) -> Warning {
    let why = doubt.why(host);
    match pid {
        None => Warning {
            what: format!("the CPU time of {candidate} is unknown: {why}"),
            advice: doubt.advice(host),
        },
        Some(pid) => Warning {
            what: format!("the CPU time of {candidate} is read from process {pid}, but {why}"),
            advice: doubt.advice_if_named().to_owned(),
        },
    }
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
