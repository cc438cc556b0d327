//! The processes of existing servers when a run is resumed: a server may have been restarted since
//! the experiment named its process.

use std::fs;
use std::time::Duration;

use dbdyno_machine::{ProcessIdentity, listener};
use dbdyno_record::server::{Address, ServerSystem};
use dbdyno_results::{Role, Warning};
use jiff::Timestamp;

use crate::resolved_candidate::{Deployment, ResolvedCandidate};

/// Clocks may be adjusted a little between the start of a process and that of the run.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Replaces the process of each server that was restarted since the run started: by the process that
/// listens at the server's socket, else by none.
pub(crate) fn replace_ended(
    candidates: &mut [ResolvedCandidate],
    run_started: &str,
) -> Vec<Warning> {
    let run_age = run_started.parse().map_or(Duration::ZERO, |started: Timestamp| {
        Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default()
    });
    let mut warnings = Vec::new();
    for candidate in candidates {
        let Deployment::Existing(server) = &mut candidate.deployment else { continue };
        let Some(pid) = server.pid.filter(|pid| !is_older_than(*pid, run_age)) else { continue };
        server.pid = match &server.target.address {
            Address::Socket(path) => listener(path).filter(|pid| is_server(*pid, server.system)),
            Address::Tcp { .. } => None,
        };
        // The control is on the baseline's server.
        if candidate.role != Role::Control {
            warnings.push(warning(&candidate.name, pid, server.pid));
        }
    }
    warnings
}

/// Whether the process runs and is older than the run. A younger one has the number by chance.
fn is_older_than(pid: u32, run_age: Duration) -> bool {
    ProcessIdentity::of(pid).is_ok_and(|process| process.age() + TOLERANCE >= run_age)
}

/// Whether the process is a server of this system, and not a proxy or a service manager.
fn is_server(pid: u32, system: ServerSystem) -> bool {
    let programs: &[&str] = match system {
        ServerSystem::MariaDb | ServerSystem::MySql => &["mariadbd", "mysqld"],
        ServerSystem::PostgreSql => &["postgres", "postmaster"],
    };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    programs.contains(&name.trim())
}

fn warning(candidate: &str, ended: u32, now: Option<u32>) -> Warning {
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
    use super::*;

    #[test]
    fn process_younger_than_the_run_is_another_one() {
        let own = std::process::id();
        assert!(is_older_than(own, Duration::ZERO));
        assert!(!is_older_than(own, Duration::from_secs(3_600 * 24 * 365)));
        assert!(!is_older_than(0x7fff_fff0, Duration::ZERO));
    }

    #[test]
    fn only_a_server_program_is_a_server() {
        assert!(!is_server(std::process::id(), ServerSystem::MariaDb));
        assert!(!is_server(1, ServerSystem::PostgreSql));
    }
}
