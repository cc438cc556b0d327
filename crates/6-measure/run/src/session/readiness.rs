//! Whether this machine and the existing servers are ready for a run: for `dbdyno check`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use dbdyno_builds::{Bolt, Compiler, Release, SourceOrigin, check_compiler};
use dbdyno_engines::server::{Server, check_settings};
use dbdyno_results::{Role, Warning};
use dbdyno_spec::experiment::{Build, Candidate, ExistingServer, Experiment, System};
use dbdyno_types::server::Target;
use dbdyno_types::{ClientWait, RunId, RunIdentity};
use dbdyno_units::Bytes;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::{Open, SystemUnderTest};

use crate::building;
use crate::candidates::hosts::Hosts;
use crate::candidates::server_process::{describe_on_host, describe_process};
use crate::candidates::{Deployment, ResolvedCandidate, on_existing_servers, server_plan};
use crate::error::RunError;
use crate::instance::cpus::{WaitChoice, divide_cpus};
use crate::instance::data::{Space, planned_space, space_on_hosts};
use crate::instance::opening::access_of;
use crate::measure::profile::warning_of_permission;
use crate::options::WorkerProgram;
use crate::session::in_force;
use crate::session::start::{same_servers, unused_releases};
use crate::training::sampling;

/// What a run needs of this machine and of existing servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// What was found: label and value.
    pub found: Vec<(String, String)>,
    /// What is missing or wrong, each with what to do.
    pub problems: Vec<String>,
}

/// Label and value of an installed program: one that several of all candidates share is named once.
fn found(program: String, candidates: &[&str], all: usize) -> (String, String) {
    match candidates {
        [one] => ((*one).to_owned(), program),
        several if several.len() == all => ("all candidates".to_owned(), program),
        several => {
            let value = format!("{program}, for {}", several.join(", "));
            (format!("{} candidates", several.len()), value)
        }
    }
}

impl Readiness {
    /// Looks for programs and compilers, logs in to existing servers, and compares the data with the
    /// free disk space. Changes nothing. `run` is the run directory, which does not have to exist.
    ///
    /// Call it on the main thread: workers end with the thread that started them.
    pub fn of(experiment: &Experiment, run: &Path, worker: &WorkerProgram) -> Self {
        let mut readiness = Self::default();
        let choice = divide_cpus(experiment).and_then(|cpus| WaitChoice::of(experiment, &cpus));
        if let Some(choice) = readiness.or_problem(choice).flatten() {
            readiness.add("client wait", choice.description());
        }
        let hosts = readiness.hosts(experiment, worker);
        readiness.or_problem(check_platform(experiment));
        let mut compilers = BTreeMap::new();
        let (mut programs, mut resolved) = (Vec::new(), Vec::new());
        for candidate in &experiment.candidates {
            match (candidate.system.build(), &candidate.system) {
                (Some(build), system) => {
                    let compiler = compilers
                        .entry(&build.compiler)
                        .or_insert_with(|| readiness.compiler(&build.compiler));
                    readiness.build(candidate, build, compiler.as_ref());
                    if let System::Private(server) = system {
                        let checked = check_settings(server.system, &server.configuration);
                        readiness.or_problem_of(&candidate.name, checked);
                    }
                }
                (None, System::Private(_)) => {
                    // Without the hosts, their problem is reported already.
                    if let Some(hosts) = &hosts {
                        readiness.program(
                            experiment,
                            candidate,
                            (&mut programs, &mut resolved),
                            hosts,
                        );
                    }
                }
                (None, System::Existing(_) | System::Sqlite { .. }) => {}
            }
        }
        let all = experiment.candidates.len();
        readiness.warn(same_servers(experiment));
        readiness.warn(unused_releases(experiment));
        readiness.warn(warning_of_permission(experiment).into_iter().collect());
        // Settings of compiled and existing servers are compared in a run only.
        if resolved.len() == all {
            let warnings = readiness.or_problem(in_force::planned(&resolved));
            readiness.warn(warnings.unwrap_or_default());
        }
        let programs = in_force::by_value(programs.into_iter()).into_iter();
        readiness.found.extend(programs.map(|(program, of)| found(program, &of, all)));
        readiness.existing_servers(experiment, worker, hosts.as_ref());
        readiness.disk(experiment, run);
        readiness
    }

    fn add(&mut self, label: &str, value: String) {
        self.found.push((label.to_owned(), value));
    }

    fn warn(&mut self, warnings: Vec<Warning>) {
        for warning in warnings {
            self.add("warning", format!("{} {}", warning.what_with_stop(), warning.advice));
        }
    }

    /// The value; an error is a problem.
    fn or_problem<T>(&mut self, found: Result<T, impl Display>) -> Option<T> {
        found.map_err(|error| self.problems.push(error.to_string())).ok()
    }

    /// The same for a candidate.
    fn or_problem_of<T>(&mut self, candidate: &str, found: Result<T, impl Display>) -> Option<T> {
        self.or_problem(found.map_err(|error| format!("candidate {candidate}: {error}")))
    }

    /// Logs in to the hosts of servers; `None` if that failed.
    fn hosts(&mut self, experiment: &Experiment, worker: &WorkerProgram) -> Option<Hosts> {
        let hosts = self.or_problem(Hosts::connect(experiment, worker, None))?;
        self.found.extend(hosts.rows());
        let spaces = self.or_problem(space_on_hosts(experiment, hosts.all()));
        spaces.iter().flatten().for_each(|space| self.space(space));
        Some(hosts)
    }

    /// The compiler, if it can be used.
    fn compiler(&mut self, name: &str) -> Option<Compiler> {
        let compiler = self.or_problem(Compiler::find(name))?;
        self.add(name, compiler.to_string());
        Some(compiler)
    }

    /// The parts of a build that are on this machine. Sources that are to be fetched are not looked for.
    fn build(&mut self, candidate: &Candidate, build: &Build, compiler: Option<&Compiler>) {
        if let SourceOrigin::Path(path) = &build.source {
            let missing = || format!("there is no source directory {}", path.display());
            let found = path.is_dir().then_some(()).ok_or_else(missing);
            self.or_problem_of(&candidate.name, found);
        }
        let Ok(variant) = build.resolved_variant() else { return };
        if let Some(compiler) = compiler {
            let checked = check_compiler(compiler, &variant, &build.flags);
            self.or_problem_of(&candidate.name, checked);
        }
        if variant.bolt && build.bolt {
            self.or_problem_of(&candidate.name, Bolt::find());
        }
        if building::is_sampled(build, &variant) {
            self.or_problem_of(&candidate.name, sampling::check_permitted());
        }
    }

    /// The installed program of a private server, and whether it accepts the settings' names.
    fn program<'e>(
        &mut self,
        experiment: &Experiment,
        candidate: &'e Candidate,
        (programs, resolved): (&mut Vec<(String, &'e str)>, &mut Vec<ResolvedCandidate>),
        hosts: &Hosts,
    ) {
        let release = match (building::cached(candidate), building::unpacked(candidate)) {
            (Ok(None), Some((_, origin))) => {
                let text = format!("{origin}, fetched when the run starts");
                if let System::Private(server) = &candidate.system {
                    let checked = check_settings(server.system, &server.configuration);
                    self.or_problem_of(&candidate.name, checked);
                }
                return self.add(&candidate.name, text);
            }
            (Ok(Some(release)), _) if candidate.system.host().is_some() => {
                let host = candidate.system.host().unwrap_or_default();
                let origin = release.origin();
                let text = format!("{origin}, copied to host {host} when the run starts");
                let plan = server_plan::plan_of(experiment, candidate, Some(release.program()));
                if let Some(plan) = self.or_problem(plan) {
                    self.or_problem_of(&candidate.name, Server::check_network(&plan));
                }
                return self.add(&candidate.name, text);
            }
            (Ok(release), _) => release,
            (Err(error), _) => return self.problems.push(error.to_string()),
        };
        let found = match hosts.of(candidate) {
            Ok(Some(host)) => server_plan::find_on_host(experiment, candidate, host),
            Ok(None) => {
                let program = release.as_ref().map(Release::program);
                let plan = server_plan::plan_of(experiment, candidate, program);
                plan.map(|plan| Some(Box::new(plan)))
            }
            Err(error) => Err(error.into()),
        };
        let plan = match found {
            Ok(Some(plan)) => plan,
            Ok(None) => {
                let host = candidate.system.host().unwrap_or_default();
                let text = format!("installed here, copied to host {host} when the run starts");
                return self.add(&candidate.name, text);
            }
            Err(error) => return self.problems.push(error.to_string()),
        };
        let program = plan.installation();
        let path = program.program.display();
        let host = candidate.system.host().map(|host| format!(" on host {host}"));
        let program = format!("{path}{}, version {}", host.unwrap_or_default(), program.version);
        resolved.push(ResolvedCandidate::new(experiment, candidate, Deployment::Private(plan)));
        programs.push((program, candidate.name.as_str()));
    }

    fn existing_servers(
        &mut self,
        experiment: &Experiment,
        worker: &WorkerProgram,
        hosts: Option<&Hosts>,
    ) {
        // A run that does not exist: all schemas belong to others.
        let nobody = RunIdentity::new(RunId::from_random([0; 16]), "", "");
        for (name, checked) in check_all(experiment, worker, &nobody) {
            let Some(version) = self.or_problem_of(&name, checked) else { continue };
            // The control is on the baseline's server.
            let candidate = experiment.candidates.iter().find(|one| one.name == name);
            let Some(System::Existing(server)) = candidate.map(|one| &one.system) else { continue };
            let described = match (hosts, candidate) {
                (Some(hosts), Some(candidate)) => match hosts.of(candidate) {
                    Ok(Some(host)) => {
                        describe_on_host(server, host).map_err(|error| error.to_string())
                    }
                    Ok(None) => describe_process(server),
                    Err(error) => Err(error.to_string()),
                },
                // Without the host, its problem is reported already.
                _ if server.host.is_some() => continue,
                _ => describe_process(server),
            };
            let Some(process) = self.or_problem_of(&name, described) else { continue };
            let title = server.system.of_version(&version).title();
            let address = &server.target.address;
            self.add(&name, format!("{title} {version} at {address}, {process}"));
        }
    }

    fn disk(&mut self, experiment: &Experiment, run: &Path) {
        // Unknown free space is no problem.
        let spaces = planned_space(experiment, run).into_iter().filter_map(Space::here);
        for space in spaces.filter(|space| space.needed > Bytes::default()) {
            self.space(&space);
        }
    }

    fn space(&mut self, space: &Space) {
        let Space { host, path, needed, free } = space;
        let label = host.as_ref().map(|host| format!("disk on {host}"));
        let text = format!("about {needed} needed, {free} free in {}", path.display());
        self.add(label.as_deref().unwrap_or("disk"), text);
        self.or_problem(space.check());
    }
}

/// Checks that servers can be optimized while they run, if the experiment says so. Hosts of servers have the
/// architecture of this machine, because they run this program.
pub(crate) fn check_platform(experiment: &Experiment) -> Result<(), RunError> {
    match experiment.candidates.iter().find(|candidate| candidate.live.is_some()) {
        Some(Candidate { name, .. }) => dbdyno_live::check_platform()
            .map_err(|error| RunError::Refused(format!("candidate {name}: {error}"))),
        None => Ok(()),
    }
}

/// Logs in to every existing server and checks that this run can create its schemas, without changing
/// anything. Returns the version of each server, or why it cannot be used, by candidate; the same error
/// of several candidates once.
pub(crate) fn check_all(
    experiment: &Experiment,
    worker: &WorkerProgram,
    run: &RunIdentity,
) -> Vec<(String, Result<String, WorkerError>)> {
    let mut all: Vec<(String, Result<String, WorkerError>)> = Vec::new();
    let mut candidates = on_existing_servers(experiment);
    // An error of the baseline's server is reported for the baseline, not for its control.
    candidates.sort_by_key(|candidate| candidate.role == Role::Control);
    let mut not_reached: Vec<Target> = Vec::new();
    for candidate in candidates {
        let Deployment::Existing(server) = &candidate.deployment else { continue };
        if not_reached.contains(&server.target) {
            continue;
        }
        let checked = check(experiment, server, worker, run);
        if checked.as_ref().is_err_and(WorkerError::is_loss) {
            not_reached.push(server.target.clone());
        }
        if checked.is_ok() || all.iter().all(|(_, other)| *other != checked) {
            all.push((candidate.name, checked));
        }
    }
    all
}

fn check(
    experiment: &Experiment,
    server: &ExistingServer,
    worker: &WorkerProgram,
    run: &RunIdentity,
) -> Result<String, WorkerError> {
    // It runs nothing that could fail without a response.
    let mut worker = worker.start(Path::new("/dev/null"), &[], true)?;
    let opened = worker.open(Open {
        system: SystemUnderTest::Server {
            on_host: false,
            settings: access_of(server, run.clone()),
            pid: None,
        },
        create: false,
        clients: 0,
        threads: 1,
        wait: ClientWait::Sleep,
        tables: experiment.workload.tables,
        load_tables: false,
        own_tables: false,
        more_schemas: experiment.workload.existing_schemas(&server.schema).split_off(1),
        scripts: Vec::new(),
        script_clients: 0,
        setup: Vec::new(),
        rows: experiment.workload.rows,
        seed: experiment.seed,
        cpus: None,
        injected_delay: None,
        count: false,
        insert: None,
        settings: Vec::new(),
    })?;
    worker.check_access(connections(experiment, &server.target))?;
    worker.close()?;
    Ok(opened.version)
}

/// The maximum number of connections to this server at the same time: of each instance those of its clients, and two for
/// dbdyno's own statements.
fn connections(experiment: &Experiment, target: &Target) -> u32 {
    let is_there = |candidate: &ResolvedCandidate| match &candidate.deployment {
        Deployment::Existing(server) => server.target == *target,
        _ => false,
    };
    let candidates = on_existing_servers(experiment);
    let instances = match experiment.insert_benchmark {
        // One candidate after another.
        Some(_) => 1,
        None => candidates.into_iter().filter(is_there).count() as u32,
    };
    instances * (experiment.workload.most_clients() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_several_candidates_is_named_once() {
        let program = "/usr/sbin/mariadbd, version 10.11";
        let text = |candidates: &[&str], all| {
            let (label, value) = found(program.to_owned(), candidates, all);
            format!("{label}: {value}")
        };
        assert_eq!(text(&["a"], 3), format!("a: {program}"));
        assert_eq!(text(&["a", "b"], 3), format!("2 candidates: {program}, for a, b"));
        assert_eq!(text(&["a", "b"], 2), format!("all candidates: {program}"));
    }
}
