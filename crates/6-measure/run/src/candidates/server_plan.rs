//! Servers that are not compiled for the run, and the plans of private servers.

use std::path::{Path, PathBuf};

use dbdyno_builds::{Build, Release};
use dbdyno_engines::server::{DataShape, ServerPlan};
use dbdyno_hosts::protocol::{Plan, PlanRequest};
use dbdyno_hosts::{HostConnection, HostError};
use dbdyno_scripts::OptionValue;
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System};
use dbdyno_types::ReleaseOrigin;
use dbdyno_workloads::definition::Script;

use crate::candidates::hosts::{Copying, Hosts};
use crate::candidates::{Deployment, hosts};
use crate::error::RunError;

/// The installed, unpacked and existing servers among the candidates, in the order of the list; `None`
/// for a candidate that is to be compiled. `releases` are those of the candidates. Releases are copied to the
/// hosts that they are for.
pub(crate) fn find(
    experiment: &Experiment,
    candidates: &[&Candidate],
    releases: &[Option<Release>],
    hosts: &Hosts,
    copying: Copying<'_>,
) -> Result<Vec<Option<Deployment>>, RunError> {
    let find = |(candidate, release): (&&Candidate, &Option<Release>)| match &candidate.system {
        system if system.build().is_some() => Ok(None),
        System::Existing(server) => Ok(Some(Deployment::Existing(Box::new(server.clone())))),
        System::Sqlite { .. } | System::Private(_) => {
            let plan = match hosts.of(candidate)? {
                Some(host) => plan_on_host(experiment, candidate, host, release.as_ref(), copying)?,
                None => plan_of(experiment, candidate, release.as_ref().map(Release::program))?,
            };
            Ok(Some(Deployment::Private(Box::new(plan))))
        }
    };
    candidates.iter().zip(releases).map(find).collect()
}

/// The plan of a private server: with the program `made`, which was compiled or unpacked for the run,
/// else the one that the experiment names, else the installed one.
///
/// # Panics
/// The candidate is not a private server.
pub(crate) fn plan_of(
    experiment: &Experiment,
    candidate: &Candidate,
    made: Option<&Path>,
) -> Result<ServerPlan, RunError> {
    let server = private(candidate);
    let program = made.or(server.program.as_deref()).map(Path::to_owned);
    let Plan(request) = request(experiment, server, program);
    request.plan().map_err(|error| RunError::server(&candidate.name, error))
}

/// The plan of a private server on a host: with the release, which is copied there, else the program or the
/// release that the experiment names, else the installed one.
fn plan_on_host(
    experiment: &Experiment,
    candidate: &Candidate,
    host: &HostConnection,
    release: Option<&Release>,
    copying: Copying<'_>,
) -> Result<ServerPlan, RunError> {
    let server = private(candidate);
    let plan = || {
        if let Some(release) = release {
            let program = hosts::copy_release(host, release, copying)?;
            return host.call(request(experiment, server, Some(program)));
        }
        let installed = host.call(request(experiment, server, server.program.clone()));
        match installed {
            Err(error) if !error.is_lost() => match hosts::copy_installed(host, server, copying)? {
                Some(program) => host.call(request(experiment, server, Some(program))),
                None => Err(error),
            },
            plan => plan,
        }
    };
    plan().map(|plan| *plan).map_err(|source| RunError::server(&candidate.name, source))
}

/// The plan of an installed server on its host; `None` if it is to be copied there.
pub(crate) fn find_on_host(
    experiment: &Experiment,
    candidate: &Candidate,
    host: &HostConnection,
) -> Result<Option<Box<ServerPlan>>, RunError> {
    let server = private(candidate);
    match host.call(request(experiment, server, server.program.clone())) {
        Ok(plan) => Ok(Some(plan)),
        Err(error) if !error.is_lost() && hosts::installed_here(server).is_some() => Ok(None),
        Err(error) => Err(RunError::server(&candidate.name, error)),
    }
}

/// The plan of a server that was compiled here, and is copied to a host.
pub(crate) fn plan_of_build_on_host(
    experiment: &Experiment,
    candidate: &Candidate,
    host: &HostConnection,
    build: &Build,
    copying: Copying<'_>,
) -> Result<ServerPlan, RunError> {
    let server = private(candidate);
    let plan = || -> Result<ServerPlan, HostError> {
        let (program, environment) = hosts::copy_build(host, build, copying)?;
        let plan = host.call(request(experiment, server, Some(program)))?;
        Ok(plan.with_environment(environment))
    };
    plan().map_err(|source| RunError::server(&candidate.name, source))
}

fn request(experiment: &Experiment, server: &PrivateServer, program: Option<PathBuf>) -> Plan {
    let release = match &server.release {
        Some(ReleaseOrigin::Installed { name }) => Some(name.clone()),
        _ => None,
    };
    Plan(Box::new(PlanRequest {
        system: server.system,
        engine: server.engine,
        program,
        release,
        durability: server.durability,
        configuration: server.configuration.clone(),
        defaults: server.defaults,
        shape: shape(experiment),
    }))
}

fn private(candidate: &Candidate) -> &PrivateServer {
    match &candidate.system {
        System::Private(server) => server,
        System::Sqlite { .. } | System::Existing(_) => {
            panic!("{} is no private server", candidate.name)
        }
    }
}

/// The tables of scripts are those of their option for it, and have all rows together.
fn shape(experiment: &Experiment) -> DataShape {
    let workload = &experiment.workload;
    let option = |script: &Script, name: &str| match script.options.get(name) {
        Some(OptionValue::Int(tables)) => u32::try_from(*tables).ok(),
        Some(OptionValue::Text(tables)) => tables.parse().ok(),
        _ => None,
    };
    let of_script = |script| {
        let found = TABLE_OPTIONS.iter().find_map(|name| option(script, name));
        found.unwrap_or(1)
    };
    let of_scripts = workload.data_scripts().map(of_script).fold(0, u32::saturating_add);
    let tables = workload.tables.max(of_scripts);
    let rows = workload.rows.saturating_mul(workload.tables.into()).div_ceil(tables.into());
    DataShape { tables, rows, clients: workload.most_clients() }
}

/// The options of sysbench's scripts with a number of tables, of 1.0 and of 0.5.
const TABLE_OPTIONS: [&str; 2] = ["tables", "oltp_tables_count"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_scripts_are_expected_with_all_rows_together() {
        let shape_of = |workload: &str| {
            let declared = "{ tables = {'', 1}, oltp_tables_count = {'', 1} }";
            let files = |_: &str| {
                Ok(format!("sysbench.cmdline.options = {declared}\nfunction event() end"))
            };
            let candidate =
                "name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\nsystem = 'mariadb'\n";
            let text = format!("{candidate}[workload]\n{workload}");
            let parsed = dbdyno_spec::parse_with_files("x.toml", &text, &files);
            shape(&parsed.unwrap_or_else(|problems| panic!("{problems}")))
        };
        let script = |name: &str, option: &str| {
            format!("[[microbenchmark]]\nname = '{name}'\nscript = '{name}.lua'\n{option}\n")
        };
        let own = shape_of("tables = 4\nrows = 1000\nmicrobenchmarks = ['point-query_range=100']");
        assert_eq!((own.tables, own.rows), (4, 1000));
        let many = "rows = 100001\nclients = 300\nmicrobenchmarks = ['own']\n";
        let options = ["options.tables = 999", "options.oltp_tables_count = '2'"];
        let scripts = [script("one", options[0]), script("two", options[1])].concat();
        let many = shape_of(&format!("{many}{scripts}"));
        assert!(many.tables >= 999 && many.clients == 300, "{many:?}");
        assert_eq!(many.rows, 100_001_u64.div_ceil(many.tables.into()));
    }
}
