//! The hosts of an experiment's servers, and the programs that are copied there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use dbdyno_builds::{Build, HostCpu, Release};
use dbdyno_engines::server::Installation;
use dbdyno_hosts::protocol::Machine;
use dbdyno_hosts::{CopyProgress, HostConnection, HostError, HostOptions, ProgramTree};
use dbdyno_results::Warning;
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer};
use dbdyno_types::ReleaseOrigin;

use crate::options::WorkerProgram;
use crate::session::progress::{Progress, RunEvent};

/// Connections to the hosts that an experiment's candidates run on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(BTreeMap<String, HostConnection>);

impl Hosts {
    /// Connects to the hosts of all candidates, with logs in this directory.
    ///
    /// Call it on the main thread: ssh ends with the thread that started it.
    pub fn connect(
        experiment: &Experiment,
        worker: &WorkerProgram,
        logs: Option<&Path>,
    ) -> Result<Self, HostError> {
        let mut hosts = BTreeMap::new();
        for host in &experiment.hosts {
            let is_used = |one: &Candidate| one.system.host() == Some(host.name.as_str());
            if !experiment.candidates.iter().any(is_used) {
                continue;
            }
            let log = logs.map(|logs| logs.join(format!("host-{}.log", host.name)));
            let connection = HostConnection::connect(&HostOptions {
                name: &host.name,
                ssh: &host.ssh,
                address: &host.address,
                cpus: host.cpus.as_deref(),
                directory: host.directory.as_deref(),
                program: &worker.program,
                log: log.as_deref(),
            })?;
            hosts.insert(host.name.clone(), connection);
        }
        Ok(Self(hosts))
    }

    /// The host that a candidate's server runs on; `None` for this machine.
    pub fn of(&self, candidate: &Candidate) -> Result<Option<&HostConnection>, HostError> {
        let Some(name) = candidate.system.host() else { return Ok(None) };
        match self.0.get(name) {
            Some(host) => Ok(Some(host)),
            None => Err(HostError::on(name, "the experiment does not define it")),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &HostConnection> {
        self.0.values()
    }

    /// The timing of each host: label and value.
    pub fn rows(&self) -> Vec<(String, String)> {
        let row = |(name, host): (&String, &HostConnection)| {
            (format!("host {name}"), host.timing().describe())
        };
        self.0.iter().map(row).collect()
    }

    /// Conditions of the network that distort the results.
    pub fn warnings(&self) -> Vec<Warning> {
        let far = self.0.iter().filter(|(_, host)| host.timing().network_dominates());
        let warning = |(name, host): (&String, &HostConnection)| {
            Warning {
            what: format!(
                "the network round trip to host {name} takes {}: more than a short query at the server",
                host.timing().network
            ),
            advice: "compare CPU time per query, or throughput with many clients, or use hosts that are \
                     closer"
                .to_owned(),
        }
        };
        far.map(warning).collect()
    }
}

/// Most missing features that an error lists.
const FEATURES_SHOWN: usize = 8;

/// How a copy reports its progress and is interrupted.
#[derive(Clone, Copy)]
pub(crate) struct Copying<'a> {
    pub progress: Progress<'a>,
    /// Set to interrupt it.
    pub cancel: &'a AtomicBool,
}

/// Copies a release to a host, where its programs run with its own loader and libraries as they do here.
/// Returns the server program there.
pub(crate) fn copy_release(
    host: &HostConnection,
    release: &Release,
    copying: Copying<'_>,
) -> Result<PathBuf, HostError> {
    if !release.has_own_loader() {
        host.check_libc(release.program())?;
    }
    let what = format!("the release of {}, {}", release.system().title(), release.origin());
    let mut tree = |folder: &Path| -> io::Result<ProgramTree> {
        let staging = tempfile::tempdir()?;
        let replaced = release.relocate(folder, staging.path()).map_err(io::Error::other)?;
        let tree = ProgramTree::read(release.folder(), &replaced)?;
        Ok(tree.with_staging(staging))
    };
    let folder = copy(host, &release.copy_name(), &what, &mut tree, copying)?;
    Ok(folder.join(release.inner_program()))
}

/// Copies a compiled server to a host, if the CPU and the C library there allow it. Returns the server
/// program there and the environment that it needs.
pub(crate) fn copy_build(
    host: &HostConnection,
    build: &Build,
    copying: Copying<'_>,
) -> Result<(PathBuf, Vec<(String, String)>), HostError> {
    if build.is_native() {
        check_cpu(host, build)?;
    }
    host.check_libc(&build.artifact)?;
    let (root, program) = root_of(&build.artifact);
    let what = build.to_string();
    let mut tree = |_: &Path| ProgramTree::read(root, &BTreeMap::new());
    let folder = copy(host, &build.copy_name(), &what, &mut tree, copying)?;
    // Programs that create data look for their libraries in the directory that they were installed into here.
    let libraries = folder.join("lib").to_string_lossy().into_owned();
    Ok((folder.join(program), vec![("LD_LIBRARY_PATH".to_owned(), libraries)]))
}

/// Copies a release that is installed here, in a directory of its own, under the name in the experiment.
/// `None` if there is none.
pub(crate) fn copy_installed(
    host: &HostConnection,
    server: &PrivateServer,
    copying: Copying<'_>,
) -> Result<Option<PathBuf>, HostError> {
    let Some((name, found)) = installed_here(server) else { return Ok(None) };
    let (root, program) = root_of(&found.program);
    host.check_libc(&found.program)?;
    let what = format!("{} {name}", server.system.title());
    let here = |error: io::Error| host.failed(format!("reading {}: {error}", root.display()));
    let content = ProgramTree::read(root, &BTreeMap::new()).map_err(here)?;
    let name = format!("{}-{}", server.system.name(), &content.sha256()[..24]);
    let mut tree = |_: &Path| Ok(content.clone());
    let folder = copy(host, &name, &what, &mut tree, copying)?;
    Ok(Some(folder.join(program)))
}

/// A release that is installed here in a directory of its own, with its name.
pub(crate) fn installed_here(server: &PrivateServer) -> Option<(&str, Installation)> {
    let Some(ReleaseOrigin::Installed { name }) = &server.release else { return None };
    let found = Installation::of_release(server.system, server.engine, name).ok()?;
    is_own_directory(root_of(&found.program).0).then_some((name, found))
}

fn copy(
    host: &HostConnection,
    name: &str,
    what: &str,
    tree: &mut dyn FnMut(&Path) -> io::Result<ProgramTree>,
    copying: Copying<'_>,
) -> Result<PathBuf, HostError> {
    let mut report = |progress: CopyProgress| {
        let host = host.name();
        let text = match progress {
            CopyProgress::Waiting => {
                format!("waiting for another dbdyno to copy {what} to host {host}")
            }
            CopyProgress::Sending { done, total } => {
                format!("copying {what} to host {host}: {done} of {total}")
            }
        };
        (copying.progress)(RunEvent::Stage(text));
    };
    host.copy_programs(name, tree, &mut report, copying.cancel)
}

/// The directory that a server was installed into, and its program in it.
fn root_of(program: &Path) -> (&Path, &Path) {
    let root = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    (root, program.strip_prefix(root).unwrap_or(program))
}

/// Whether a directory belongs to one release, unlike those of the system.
fn is_own_directory(root: &Path) -> bool {
    let shared = ["/", "/usr", "/usr/local", "/opt"].map(Path::new);
    let is_of_system = root.starts_with("/usr") && !root.starts_with("/usr/local");
    !is_of_system && !shared.contains(&root)
}

/// Checks that code for this machine's CPU runs on the host's.
fn check_cpu(host: &HostConnection, build: &Build) -> Result<(), HostError> {
    let here = HostCpu::read();
    let here = here.map_err(|error| host.failed(format!("reading /proc/cpuinfo here: {error}")))?;
    let there = HostCpu::parse(&host.call(Machine())?);
    let missing = here.features_missing_on(&there);
    if missing.is_empty() {
        return Ok(());
    }
    let more = match missing.len().saturating_sub(FEATURES_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let missing = missing[..missing.len().min(FEATURES_SHOWN)].join(", ");
    Err(host.failed(format!(
        "{build} is compiled for the CPU of this machine, {}, and the CPU there, {}, does not have {missing}\
         {more}: remove `native`, or compile it there and set `program`",
        here.model(),
        there.model()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_the_system_is_not_copied() {
        for (program, own) in [
            ("/opt/mysql/8.0.37/bin/mysqld", true),
            ("/home/me/opt/postgresql/17/bin/postgres", true),
            ("/usr/local/mysql-8.0.37/bin/mysqld", true),
            ("/usr/local/bin/mysqld", false),
            ("/usr/sbin/mariadbd", false),
            ("/usr/lib/postgresql/15/bin/postgres", false),
            ("/opt/bin/mysqld", false),
        ] {
            assert_eq!(is_own_directory(root_of(Path::new(program)).0), own, "{program}");
        }
    }
}
