//! Where instances keep their data: loaded once per kind, then copied.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dbdyno_engines::clone_file;
use dbdyno_engines::server::{ServerDirs, external_servers};
use dbdyno_engines::sqlite::Sqlite;
use dbdyno_hosts::{HostConnection, HostError, LocalHost, ServerHost, protocol};
use dbdyno_machine::facts::DiskFacts;
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_units::Bytes;
use dbdyno_worker::WorkerError;

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::error::RunError;
use crate::instance::Instance;
use crate::instance::context::RunContext;
use crate::instance::in_force::{Settings, refuse_ignored};
use crate::plan::disk_space::DiskSpace;
use crate::session::progress::{Progress, RunEvent};

/// Checks that no link of another user is in a path to a directory of the run.
pub(crate) fn check_links(directory: &Path) -> Result<(), RunError> {
    SafeDir::check_links(directory).map_err(|error| RunError::Other(error.to_string()))
}

/// The kind of a candidate's data: data of one kind can be copied from candidate to candidate.
/// `None` if the data cannot be copied.
fn kind(candidate: &ResolvedCandidate) -> Option<String> {
    match (&candidate.deployment, &candidate.spec.system) {
        (Deployment::Private(plan), _) => {
            let host = candidate
                .host
                .as_ref()
                .map_or(String::new(), |host| format!(" on host {}", host.name()));
            let build = candidate.server_build.as_deref();
            let source = build.map(|build| build.source_sha256.to_string());
            let arguments = build.map(|build| build.options.arguments.as_slice());
            Some(plan.data_kind(source.as_deref().zip(arguments)) + &host)
        }
        (_, System::Sqlite { config, .. }) => {
            Some(format!("sqlite {}", config.page_size.as_bytes()))
        }
        _ => None,
    }
}

/// Gives every candidate a fresh copy of the loaded data.
pub(crate) fn fresh(
    context: &RunContext<'_>,
    candidates: &[ResolvedCandidate],
    progress: Progress<'_>,
) -> Result<(), RunError> {
    let mut kinds: BTreeMap<Option<String>, Vec<&ResolvedCandidate>> = BTreeMap::new();
    for candidate in candidates {
        kinds.entry(kind(candidate)).or_default().push(candidate);
    }
    let mut some_loaded = false;
    for (number, (kind, of_kind)) in kinds.into_iter().enumerate() {
        if kind.is_none() {
            for candidate in of_kind {
                report_loading(context, candidate, progress);
                load(context, candidate, &DataLocation::Schema)?;
            }
            continue;
        }
        let loaded = context.data_location(of_kind[0], &format!(".loaded-{number}"));
        if loaded.exists() {
            some_loaded = true;
        } else {
            // The estimate is for an empty disk: with some data loaded, the rest is unknown.
            if !std::mem::replace(&mut some_loaded, true) {
                check_free_space(context, candidates)?;
            }
            report_loading(context, of_kind[0], progress);
            // Under a temporary name, so that a killed load leaves nothing that looks complete.
            let unfinished = context.data_location(of_kind[0], &format!(".loading-{number}"));
            unfinished.remove()?;
            load(context, of_kind[0], &unfinished)?;
            unfinished.move_to(&loaded)?;
            tracing::info!(candidate = of_kind[0].name, "loaded data");
        }
        for candidate in of_kind {
            loaded.copy_to(&context.data_location(candidate, &candidate.name))?;
            tracing::info!(candidate = candidate.name, "copied the loaded data");
        }
    }
    Ok(())
}

fn report_loading(context: &RunContext<'_>, candidate: &ResolvedCandidate, progress: Progress<'_>) {
    let workload = &context.experiment.workload;
    let name = &candidate.name;
    let load = match workload.loaded_tables() {
        0 => None,
        tables => Some(format!("loading {tables} × {} rows", workload.rows)),
    };
    let setup = (!workload.setup.is_empty()).then(|| {
        let scripts: Vec<&str> =
            workload.setup.iter().map(|script| script.origin.as_str()).collect();
        format!("running {}", scripts.join(", "))
    });
    let scripts = workload.data_scripts();
    let names: Vec<&str> = scripts.map(|one| one.source.name.as_str()).collect();
    let prepare = (!names.is_empty()).then(|| format!("running prepare of {}", names.join(", ")));
    let doing: Vec<String> = [load, setup, prepare].into_iter().flatten().collect();
    let doing = if doing.is_empty() { "preparing".to_owned() } else { doing.join(", then ") };
    progress(RunEvent::Stage(format!("{doing} with {name}")));
}

/// Gives every candidate a copy of the baseline's current data, so that all continue from the same
/// state; with `kept`, of the copy that the baseline kept before its tables shrank.
///
/// Returns false, and does nothing, if the baseline has no data, or if some candidate's data is of
/// another kind.
pub(crate) fn from_baseline(
    context: &RunContext<'_>,
    candidates: &[ResolvedCandidate],
    kept: bool,
) -> Result<bool, RunError> {
    let baseline = &candidates[0];
    let source = context.data_location(baseline, &baseline.name);
    let kept = kept.then(|| context.kept_copy(baseline));
    if !can_be_copied(candidates) || !restore(kept.as_ref(), &source)? {
        return Ok(false);
    }
    // Opening recovers from the log what a killed instance left there; settling writes it back.
    let mut instance = Instance::at(baseline.clone(), source.clone());
    let settled = instance.open(context, 1, false).and_then(|()| {
        instance.worker_mut()?.settle()?;
        instance.close()
    });
    settled.map_err(|error| match error {
        WorkerError::Stopped => RunError::Interrupted,
        error => {
            RunError::baseline(&baseline.name, "recovering its data", &error.to_string(), true)
        }
    })?;
    for candidate in &candidates[1..] {
        source.copy_to(&context.data_location(candidate, &candidate.name))?;
    }
    Ok(true)
}

/// Whether the data of the baseline can be copied to all candidates.
fn can_be_copied(candidates: &[ResolvedCandidate]) -> bool {
    let of_baseline = kind(&candidates[0]);
    of_baseline.is_some() && candidates.iter().all(|one| kind(one) == of_baseline)
}

/// Whether a later session can continue with the data of the baseline, see [`from_baseline`].
pub(crate) fn outlives_session(candidates: &[ResolvedCandidate]) -> bool {
    let host = candidates[0].host.as_ref();
    host.is_none_or(HostConnection::keeps_data) && can_be_copied(candidates)
}

/// Replaces data by the kept copy, if there is one; the data is missing if a session was killed while it did this.
/// Returns whether there is data.
fn restore(kept: Option<&DataLocation>, data: &DataLocation) -> Result<bool, RunError> {
    if let Some(kept) = kept.filter(|kept| kept.exists()) {
        kept.copy_to(data)?;
    }
    Ok(data.exists())
}

/// Removes all data of a run, also that of servers to which its directory only has a link.
pub(crate) fn remove(directory: &RunDirectory) -> Result<(), RunError> {
    let path = directory.data();
    if external_servers(&path).is_some() {
        ServerDirs::open(&path)?.remove()?;
    }
    DataLocation::Directory(path).remove()
}

/// Checks that there is enough free disk space for all data, before any is loaded: here, and on the hosts of
/// these candidates.
pub(crate) fn check_free_space<'c>(
    context: &RunContext<'_>,
    candidates: impl IntoIterator<Item = &'c ResolvedCandidate>,
) -> Result<(), RunError> {
    check_space_on_hosts(
        context.experiment,
        candidates.into_iter().filter_map(|candidate| candidate.host.as_ref()),
    )?;
    let servers = context.local.as_deref().map(LocalHost::root);
    check_spaces(space_needed(context.experiment, context.directory.path(), servers))
}

/// Checks that there is enough free disk space on these hosts, before anything is loaded there.
pub(crate) fn check_space_on_hosts<'c>(
    experiment: &Experiment,
    hosts: impl Iterator<Item = &'c HostConnection>,
) -> Result<(), RunError> {
    space_on_hosts(experiment, hosts)?.iter().try_for_each(Space::check)
}

/// The disk space that is needed and free in a directory.
pub(crate) struct Space {
    /// The host with the directory; `None` for this machine.
    pub host: Option<String>,
    pub path: PathBuf,
    pub needed: Bytes,
    pub free: Bytes,
}

impl Space {
    /// The space that is needed in a directory of this machine; `None` if the free space is unknown.
    pub fn here((path, needed): (PathBuf, Bytes)) -> Option<Self> {
        let free = DiskFacts::of(&path)?.free;
        Some(Self { host: None, path, needed, free })
    }

    /// Fails if there is not enough.
    pub fn check(&self) -> Result<(), RunError> {
        let Self { host, path, needed, free } = self;
        if free >= needed {
            return Ok(());
        }
        let need = format!(
            "the data needs about {needed} in {}, but only {free} are free",
            path.display()
        );
        Err(RunError::Other(match host {
            None => format!(
                "{need}: free disk space, choose another disk with --out, or lower `rows` or `tables`"
            ),
            Some(host) => format!(
                "host {host}: {need}: free disk space there, choose another disk with `directory` of the \
                 host, or lower `rows` or `tables`"
            ),
        }))
    }
}

/// The disk space on each of these hosts; none where the free space is unknown.
pub(crate) fn space_on_hosts<'c>(
    experiment: &Experiment,
    hosts: impl Iterator<Item = &'c HostConnection>,
) -> Result<Vec<Space>, HostError> {
    let all = DiskSpace::of(experiment).on_hosts;
    let mut spaces = Vec::new();
    for host in hosts {
        let Some(needed) = all.get(host.name()).copied() else { continue };
        if let Some((path, free)) = host.call(protocol::FreeSpace())? {
            spaces.push(Space { host: Some(host.name().to_owned()), path, needed, free });
        }
    }
    Ok(spaces)
}

/// Checks that each of these directories has this free disk space.
pub(crate) fn check_spaces(needs: Vec<(PathBuf, Bytes)>) -> Result<(), RunError> {
    // Unknown free space is no reason to refuse.
    needs.into_iter().filter_map(Space::here).try_for_each(|space| space.check())
}

/// The directories where a run in this directory would have its data, and the disk space that is needed
/// there.
pub(crate) fn planned_space(experiment: &Experiment, run: &Path) -> Vec<(PathBuf, Bytes)> {
    let servers = ServerDirs::planned_root(&RunDirectory::at(run).data());
    space_needed(experiment, run, Some(&servers))
}

/// The space for results and logs, in the run directory.
const RESULTS: Bytes = Bytes::from_mib(16);

/// The directories of a run's data, and the disk space that is needed there. `servers` is the directory
/// for private servers.
fn space_needed(
    experiment: &Experiment,
    run: &Path,
    servers: Option<&Path>,
) -> Vec<(PathBuf, Bytes)> {
    let space = DiskSpace::of(experiment);
    let in_run = space.embedded + RESULTS;
    let Some(servers) = servers.filter(|_| space.servers > Bytes::default()) else {
        return vec![(run.to_owned(), in_run)];
    };
    if device(run).is_some() && device(run) == device(servers) {
        return vec![(servers.to_owned(), in_run + space.servers)];
    }
    vec![(run.to_owned(), in_run), (servers.to_owned(), space.servers)]
}

/// The file system of a path, or of its nearest directory that exists.
fn device(path: &Path) -> Option<u64> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|one| fs::metadata(one).ok()).map(|metadata| metadata.dev())
}

/// Creates the data directory of a candidate's private server; does nothing for other candidates.
pub(crate) fn initialise_server(
    candidate: &ResolvedCandidate,
    location: &DataLocation,
) -> Result<(), RunError> {
    match (&candidate.deployment, location) {
        (Deployment::Private(plan), DataLocation::Server(host, name)) => {
            host.initialise(plan, name).map_err(|source| RunError::server(&candidate.name, source))
        }
        _ => Ok(()),
    }
}

/// Creates and loads a candidate's data in an empty location. If it fails, only the log of its server is left.
pub(crate) fn load(
    context: &RunContext<'_>,
    candidate: &ResolvedCandidate,
    location: &DataLocation,
) -> Result<(), RunError> {
    load_into(context, candidate, location).inspect_err(|_| {
        // The first error is the one to report.
        let _ = location.remove_data();
    })
}

fn load_into(
    context: &RunContext<'_>,
    candidate: &ResolvedCandidate,
    location: &DataLocation,
) -> Result<(), RunError> {
    location.make()?;
    initialise_server(candidate, location)?;
    let mut instance = Instance::at(candidate.clone(), location.clone());
    let failed = |instance: &mut Instance, error: WorkerError| match instance.lost_host() {
        Some(lost) => lost.into(),
        None => RunError::load(&candidate.name, &instance.cause(error)),
    };
    if let Err(error) = instance.open(context, 1, true) {
        return Err(failed(&mut instance, error));
    }
    // Before the data is loaded, which may take long.
    let settings = Settings::of(candidate, Some(&instance));
    refuse_ignored(&settings.into_iter().collect::<Vec<_>>())?;
    let mut load = || {
        instance.worker_mut()?.load()?;
        let problems = instance.statement_problems(context.experiment)?;
        if problems.is_empty() {
            instance.worker_mut()?.settle()?;
        }
        instance.close()?;
        Ok(problems)
    };
    let loaded = load();
    let problems = loaded.map_err(|error| failed(&mut instance, error))?;
    if problems.is_empty() { Ok(()) } else { Err(RunError::Statements(problems)) }
}

/// Where an instance keeps its data.
#[derive(Clone, Debug)]
pub(crate) enum DataLocation {
    /// A directory with a SQLite database file.
    Directory(PathBuf),
    /// A private server's directory with this name on a machine.
    Server(Arc<dyn ServerHost>, String),
    /// A schema on an existing server, which cannot be copied.
    Schema,
}

impl DataLocation {
    /// Whether complete data is here; false for a schema, where this is unknown.
    pub fn exists(&self) -> bool {
        match self {
            Self::Directory(directory) => Sqlite::file_in(directory).exists(),
            Self::Server(host, name) => host.exists(name),
            Self::Schema => false,
        }
    }

    pub const fn can_be_copied(&self) -> bool {
        !matches!(self, Self::Schema)
    }

    /// Whether a later session can use the data.
    pub fn outlives_session(&self) -> bool {
        !matches!(self, Self::Server(host, _) if !host.keeps_data())
    }

    /// Prepares the location for new data.
    pub fn make(&self) -> Result<(), RunError> {
        match self {
            Self::Directory(directory) => {
                fs::create_dir_all(directory).map_err(RunError::io(directory))
            }
            Self::Server(..) | Self::Schema => Ok(()),
        }
    }

    /// Removes the data, with the logs and journals of a database file: a stale one would be
    /// replayed into the next database. The database must be closed.
    pub fn remove(&self) -> Result<(), RunError> {
        match self {
            Self::Directory(directory) => {
                // Somebody may have led the path to it elsewhere since the run began.
                check_links(directory)?;
                match fs::remove_dir_all(directory) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        Err(RunError::io(directory)(error))
                    }
                    _ => Ok(()),
                }
            }
            Self::Server(host, name) => Ok(host.remove(name)?),
            Self::Schema => Ok(()),
        }
    }

    /// Does the same, but leaves the log of a server here, which an error may name.
    pub fn remove_data(&self) -> Result<(), RunError> {
        match self {
            Self::Server(host, name) => Ok(host.remove_data(name)?),
            Self::Directory(_) | Self::Schema => self.remove(),
        }
    }

    /// The directory of the database's files on this machine.
    pub fn files(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(directory) => Some(directory.clone()),
            Self::Server(host, name) => host.files(name),
            Self::Schema => None,
        }
    }

    /// Replaces `to`, which is on the same machine, by a copy of the data, completely or not at all. Both databases
    /// must be closed. Does nothing for a schema.
    pub fn copy_to(&self, to: &Self) -> Result<(), RunError> {
        match (self, to) {
            (Self::Directory(from), Self::Directory(directory)) => {
                let mut unfinished = directory.clone().into_os_string();
                unfinished.push(".part");
                let unfinished = Self::Directory(unfinished.into());
                unfinished.remove()?;
                unfinished.make()?;
                if let Self::Directory(unfinished) = &unfinished {
                    copy_database(from, unfinished)?;
                }
                to.remove()?;
                unfinished.move_to(to)
            }
            (Self::Server(host, from), Self::Server(_, name)) => {
                to.remove()?;
                Ok(host.copy(from, name)?)
            }
            (Self::Directory(_) | Self::Server(..) | Self::Schema, _) => Ok(()),
        }
    }

    /// Moves the data to the empty location `to` on the same machine. The database must be closed.
    pub fn move_to(&self, to: &Self) -> Result<(), RunError> {
        match (self, to) {
            (Self::Directory(from), Self::Directory(to)) => {
                fs::rename(from, to).map_err(RunError::io(to))
            }
            (Self::Server(host, from), Self::Server(_, to)) => Ok(host.rename(from, to)?),
            (Self::Directory(_) | Self::Server(..) | Self::Schema, _) => Ok(()),
        }
    }
}

fn copy_database(from: &Path, to: &Path) -> Result<(), RunError> {
    let (from, to) = (Sqlite::file_in(from), Sqlite::file_in(to));
    let (from_log, to_log) = (Sqlite::log_of(&from), Sqlite::log_of(&to));
    // The log may hold committed changes that are not in the file yet.
    if from_log.exists() {
        clone_file(&from_log, &to_log)?;
    }
    Ok(clone_file(&from, &to)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dbdyno_engines::sqlite::Sqlite;

    use super::*;

    #[test]
    fn missing_data_is_restored_from_the_kept_copy() {
        let dir = tempfile::tempdir().unwrap();
        let location = |name: &str| DataLocation::Directory(dir.path().join(name));
        let (kept, data) = (location(".kept-a"), location("a"));
        assert!(!restore(Some(&kept), &data).unwrap(), "there is neither");
        kept.make().unwrap();
        fs::write(Sqlite::file_in(&dir.path().join(".kept-a")), "kept").unwrap();
        assert!(!restore(None, &data).unwrap(), "the copy is not of the current data");
        assert!(restore(Some(&kept), &data).unwrap());
        assert_eq!(fs::read(Sqlite::file_in(&dir.path().join("a"))).unwrap(), b"kept");
    }

    #[test]
    fn data_of_servers_outside_of_the_run_directory_is_removed() {
        // Servers of root cannot reach it: their data is in another directory.
        let closed = fs::Permissions::from_mode(0o700);
        let run = tempfile::Builder::new().permissions(closed).tempdir().unwrap();
        let directory = RunDirectory::at(run.path());
        let server_dirs = ServerDirs::open(&directory.data()).unwrap();
        let root = server_dirs.root().to_owned();
        fs::create_dir(root.join("base")).unwrap();
        // The session is killed.
        drop(server_dirs);
        remove(&directory).unwrap();
        assert!(!root.exists(), "{}", root.display());
        assert!(!directory.data().exists());
        remove(&directory).unwrap();
    }
}
