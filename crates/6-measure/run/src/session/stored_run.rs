//! Stored runs: opening them, the registry of runs that this user made, replacing a run that measured
//! nothing, removing a run's data, and how much of it is stored.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use dbdyno_engines::SchemaRemoval;
use dbdyno_engines::server::{LOG_FILE, ServerDirs, external_servers};
use dbdyno_machine::safe_files::{SafeDir, UntrustedDir};
use dbdyno_results::{OriginRecord, ResultsError, RunDirectory, RunReader, RunWriter};
use dbdyno_spec::experiment::{Build, Experiment, System};
use dbdyno_types::build::VariantOverrides;
use dbdyno_units::Bytes;
use dbdyno_worker::{WorkerError, WorkerHandle};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::Script;
use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};
use rustix::process::geteuid;

use crate::candidates::hosts::Hosts;
use crate::candidates::{Deployment, ResolvedCandidate, on_existing_servers};
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::cpus::chosen_cpus;
use crate::instance::{Instance, data};
use crate::options::WorkerProgram;

/// Opens a run to resume it or to remove its data; also returns its experiment.
///
/// The experiment names programs, compilers, sources and servers. They are used only if the run is
/// registered: if this user made it on this machine, or trusted it before. With `trust`, it is
/// registered.
pub(crate) fn open_stored_run(
    directory: &Path,
    trust: bool,
) -> Result<(RunWriter, Experiment), RunError> {
    let reader = RunReader::open(directory)?;
    SafeDir::check_links(directory).map_err(|error| RunError::Refused(error.to_string()))?;
    RunDirectory::at(directory).check_own()?;
    let is_imported = |origin: &OriginRecord| matches!(origin, OriginRecord::Imported { .. });
    if reader.candidates()?.iter().any(|one| one.origin.as_ref().is_some_and(is_imported)) {
        return Err(RunError::Refused(format!(
            "{} holds imported results, which dbdyno did not measure: they can be reported and \
             compared, but not resumed, extended or cleaned",
            directory.display()
        )));
    }
    let experiment: Experiment = reader.experiment()?;
    if !experiment.candidates.iter().any(|candidate| candidate.name == experiment.baseline) {
        return Err(RunError::Results(ResultsError::Damaged {
            path: directory.to_owned(),
            what: "the experiment",
            why: "its baseline is not one of its candidates".to_owned(),
        }));
    }
    let id = reader.identity()?.map(|identity| identity.id);
    drop(reader);
    let is_registered = id.is_some_and(|id| is_registered(directory, id.as_str()));
    if !is_registered && !trust {
        return Err(not_registered(directory, &experiment, Vec::new()));
    }
    let results = RunWriter::resume(directory)?;
    if !is_registered {
        register(directory, results.identity().id.as_str());
    }
    Ok((results, experiment))
}

/// Whether this user made a run, or a fleet run, in this directory on this machine, or has trusted it. `id` has letters
/// and digits.
pub fn is_registered(directory: &Path, id: &str) -> bool {
    RunRegistry::of_user().is_some_and(|registry| registry.contains(directory, id))
}

/// Registers a run that this user has made or trusts. If the registry cannot be written, resuming
/// the run requires trust.
pub fn register(directory: &Path, id: &str) {
    let registered = RunRegistry::of_user().map(|registry| registry.add(directory, id));
    if let Some(Err(error)) = registered {
        tracing::warn!(%error, "the run is not registered: resuming it will require --trust");
    }
}

/// The question before a run that is not registered is continued: all that it would execute, besides `more`.
pub fn not_registered(directory: &Path, experiment: &Experiment, more: Vec<String>) -> RunError {
    let mut uses: Vec<String> = more.into_iter().chain(uses(experiment)).collect();
    // The experiment may be of somebody else, too.
    uses.iter_mut().for_each(|text| *text = text.escape_debug().to_string());
    uses.sort();
    uses.dedup();
    RunError::NotRegistered { path: directory.to_owned(), uses }
}

/// What a run of the experiment executes, starts and connects to.
fn uses(experiment: &Experiment) -> Vec<String> {
    let mut uses = Vec::new();
    for script in &experiment.workload.setup {
        uses.push(format!("execute the SQL of {}", script.origin));
    }
    let builds = || experiment.candidates.iter().filter_map(|one| one.system.build());
    let training = builds().filter_map(|build| Some(&build.training.as_ref()?.microbenchmarks));
    let known = Catalog::builtin();
    for one in experiment.workload.microbenchmarks.iter().chain(training.flatten()) {
        if let Some(Script { source, .. }) = &one.script {
            let all = [&source.name].into_iter().chain(source.modules.iter().map(|one| &one.file));
            let names: Vec<&str> = all.map(String::as_str).collect();
            uses.push(format!("execute the Lua of {}", names.join(", ")));
        } else if !known.entries().iter().any(|entry| entry.microbenchmark == *one) {
            uses.push(format!("execute the SQL of microbenchmark {}", one.name));
        }
    }
    for host in &experiment.hosts {
        let directory = host.directory.as_ref().map(|path| format!(", in {}", path.display()));
        uses.push(format!("run dbdyno on {} with ssh{}", host.ssh, directory.unwrap_or_default()));
    }
    for candidate in &experiment.candidates {
        if let Some(build) = candidate.system.build() {
            uses.push(compilation(build));
        }
        match &candidate.system {
            System::Private(server) => {
                let title = server.system.title();
                let host = server.host.as_ref().map(|host| format!(" on host {host}"));
                let host = host.unwrap_or_default();
                let start = match (&server.build, &server.release, &server.program) {
                    (Some(_), ..) => format!("start the compiled {title}"),
                    (None, Some(release), _) => format!("start {title}, release {release}"),
                    (None, None, Some(program)) => format!("start {}", program.display()),
                    (None, None, None) => format!("start the installed {title}"),
                };
                let settings = server.configuration.iter();
                let settings = settings.map(|(name, value)| format!(", {name} = {value}"));
                uses.push(start + &host + &settings.collect::<String>());
            }
            System::Existing(server) => {
                let target = &server.target;
                uses.push(format!("connect to {} as {}", target.address, target.user));
            }
            System::Sqlite { .. } => {}
        }
    }
    uses
}

/// How something is compiled, with all that can make the compiler or a build tool execute something else.
fn compilation(build: &Build) -> String {
    let mut text = format!("compile {} as {} with {}", build.source, build.variant, build.compiler);
    if let Some(VariantOverrides { march, mtune, linker, compiler, flags, .. }) = &build.settings {
        for (name, value) in
            [("march", march), ("mtune", mtune), ("linker", linker), ("compiler", compiler)]
        {
            text.extend(value.iter().map(|value| format!(", {name} {value}")));
        }
        text.extend(flags.iter().map(|flag| format!(" {flag}")));
    }
    text.extend(build.flags.iter().chain(&build.configure).map(|flag| format!(" {flag}")));
    text
}

/// The mode of the registry's directory.
const MODE: u32 = 0o700;

/// The limit for the size of an entry, which contains a path.
const MAX_ENTRY: Bytes = Bytes::from_kib(8);

/// How long an entry is kept although its path does not exist: the run may have been moved.
const KEEP_MOVED: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Old entries are not removed from a registry with more than this.
const MAX_ENTRIES: usize = 100_000;

/// The registry of runs, a directory with a file for each.
///
/// The name of a file is the run's id, which is stored in the run, with the inode number of the run
/// directory and the time of its creation. So a run directory may be moved, but a copy of it, which
/// somebody could have changed, is not registered. The content is the path of the run directory.
pub(crate) struct RunRegistry {
    directory: PathBuf,
}

/// A run could not be registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// Others could have written the registry.
    #[error(transparent)]
    Untrusted(#[from] UntrustedDir),
    /// A file could not be read or written.
    #[error("registering the run: {0}")]
    Io(#[from] io::Error),
}

impl RunRegistry {
    /// The registry of this user; `None` if the environment defines no directory for it.
    pub fn of_user() -> Option<Self> {
        let (xdg, home) = (std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
        let directory = directory_from(xdg, home, geteuid().is_root())?;
        Some(Self { directory })
    }

    /// Whether the run directory is registered. A registry that others could have written is ignored.
    pub fn contains(&self, run: &Path, id: &str) -> bool {
        let entry = || {
            let registry = SafeDir::open_trusted(&self.directory)?;
            let name = entry_name(run, id)?;
            Ok(registry.is_some_and(|registry| registry.read(&name, MAX_ENTRY).is_ok()))
        };
        entry().unwrap_or_else(|error: RegistryError| {
            tracing::warn!(%error, "cannot read the registry of runs");
            false
        })
    }

    /// Registers a run directory, and removes old entries of those that do not exist any more.
    pub fn add(&self, run: &Path, id: &str) -> Result<(), RegistryError> {
        let registry = SafeDir::create_trusted(&self.directory, MODE)?;
        remove_stale(&registry, SystemTime::now() - KEEP_MOVED);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let entry = registry.open_beneath(&entry_name(run, id)?, flags, Mode::RUSR | Mode::WUSR)?;
        let path = run.canonicalize()?;
        Ok(fs::File::from(entry).write_all(path.as_os_str().as_encoded_bytes())?)
    }
}

fn entry_name(run: &Path, id: &str) -> io::Result<PathBuf> {
    let metadata = fs::metadata(run)?;
    // Some file systems do not store it.
    let created = metadata.created().ok();
    let created = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(PathBuf::from(format!("{id}-{}-{}", metadata.ino(), created.as_nanos())))
}

/// Removes entries from before `limit` whose path does not exist. Errors are ignored: the entries
/// stay.
fn remove_stale(registry: &SafeDir, limit: SystemTime) {
    for entry in registry.walk(MAX_ENTRIES).unwrap_or_default() {
        let file =
            registry.file(&entry.path, MAX_ENTRY).and_then(|file| file.metadata()?.modified());
        if !file.is_ok_and(|modified| modified < limit) {
            continue;
        }
        let Ok(content) = registry.read(&entry.path, MAX_ENTRY) else { continue };
        let run = PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(content));
        let gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        if fs::symlink_metadata(run).is_err_and(gone) {
            let _ = unlinkat(registry, &entry.path, AtFlags::empty());
        }
    }
}

/// `$XDG_STATE_HOME/dbdyno/runs`; else for root `/var/lib/dbdyno/runs`, for other users
/// `~/.local/state/dbdyno/runs`. Relative paths are ignored, as the specification requires.
fn directory_from(xdg: Option<OsString>, home: Option<OsString>, root: bool) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    let own = || match root {
        true => Some(PathBuf::from("/var/lib")),
        false => absolute(home).map(|home| home.join(".local/state")),
    };
    absolute(xdg).or_else(own).map(|base| base.join("dbdyno/runs"))
}

/// Removes the run in a directory, with its data, if it measured nothing and this user made it on this
/// machine. Returns whether it did.
///
/// A run of an experiment with the same text that has loaded data is kept: it can be resumed with that.
pub(crate) fn remove_empty_run(
    directory: &Path,
    text: &str,
    worker: &WorkerProgram,
) -> Result<bool, RunError> {
    let Ok(run) = RunReader::open(directory) else { return Ok(false) };
    if run.writer_pid().is_some() || run.has_measured()? {
        return Ok(false);
    }
    let stored = StoredData::of(directory);
    if run.experiment_text()? == text && !stored.places.is_empty() {
        return Ok(false);
    }
    let may_have_schemas = run.may_have_schemas()?;
    drop(run);
    let (mut results, experiment) = match open_stored_run(directory, false) {
        Ok(opened) => opened,
        Err(RunError::NotRegistered { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let removed = remove_data(&mut results, &experiment, worker, may_have_schemas);
    removed.and_then(Cleaned::complete).map_err(|source| {
        let path = directory.display();
        RunError::Refused(format!(
            "{path} holds a run that measured nothing, but it cannot be replaced by a new run: {source}. \
             Try `dbdyno clean` on it, or choose another directory with --out"
        ))
    })?;
    results.delete()?;
    Ok(true)
}

/// What was removed of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub data: StoredData,
    /// The logs of servers.
    pub logs: Vec<PathBuf>,
    /// The dropped schemas, each with its server.
    pub schemas: Vec<String>,
    /// Why schemas were left alone that are not this run's.
    pub left_alone: Vec<String>,
    /// Why schemas could not be removed.
    pub failed: Vec<String>,
}

impl Cleaned {
    /// The error if something could not be removed.
    pub fn complete(self) -> Result<(), RunError> {
        if self.failed.is_empty() { Ok(()) } else { Err(RunError::Other(self.failed.join("\n"))) }
    }
}

/// Removes all data of a run, also from existing servers. The results stay, and the run can still
/// be resumed: its data is then loaded again.
///
/// With `trust`, also of a run that this user did not make on this machine.
pub fn clean_run(
    directory: &Path,
    worker: &WorkerProgram,
    trust: bool,
) -> Result<Cleaned, RunError> {
    let (mut results, experiment) = open_stored_run(directory, trust)?;
    let mut cleaned = remove_data(&mut results, &experiment, worker, true)?;
    // An agent removes what killed ones have left on its host; one that cannot be reached now does when it starts again.
    if let Err(error) = Hosts::connect(&experiment, worker, None) {
        cleaned.left_alone.push(format!("what killed agents left: {error}"));
    }
    Ok(cleaned)
}

/// Removes the data of a run; from existing servers only `with_schemas`. A server that does not answer does not keep the
/// rest.
pub(crate) fn remove_data(
    results: &mut RunWriter,
    experiment: &Experiment,
    worker: &WorkerProgram,
    with_schemas: bool,
) -> Result<Cleaned, RunError> {
    let (run, directory) = (results.identity().clone(), results.directory().clone());
    let mut cleaned = Cleaned { logs: logs(directory.path()), ..Cleaned::default() };
    if with_schemas && results.reader()?.may_have_schemas()? {
        // Nothing is measured: the machine may have other CPUs now.
        let cpus = chosen_cpus(experiment);
        let context = RunContext::new(experiment, Some(run), directory, worker, cpus);
        for (candidate, schemas, removed) in remove_schemas(&context) {
            match removed {
                Ok(SchemaRemoval::LeftAlone(reason)) => cleaned.left_alone.push(reason),
                Ok(SchemaRemoval::Dropped) => cleaned.schemas.extend(schemas),
                Ok(SchemaRemoval::Absent) => {}
                Err(error) => {
                    let text = format!("removing the tables of {candidate}: {error}");
                    cleaned.failed.push(text);
                }
            }
        }
        results.set_may_have_schemas(!cleaned.failed.is_empty())?;
    }
    cleaned.data = StoredData::of(results.directory().path());
    if results.directory().data().exists() {
        ServerDirs::open(&results.directory().data())?.remove()?;
    }
    data::remove(results.directory())?;
    // What is not certainly this run's was left alone.
    cleaned.data.places.retain(|(place, _)| !place.exists());
    cleaned.logs.retain(|log| !log.exists());
    Ok(cleaned)
}

/// Removes the databases of a run that failed before anything was measured, but not the logs of its servers, which errors
/// name.
pub(crate) fn remove_loaded(context: &RunContext<'_>) -> Result<(), RunError> {
    let Some(local) = &context.local else { return data::remove(&context.directory) };
    local.remove_all_data()?;
    for one in subdirectories(&context.directory.data()) {
        // They may be in the run's directory.
        if one.canonicalize().ok().as_deref() != Some(local.root()) {
            data::check_links(&one)?;
            fs::remove_dir_all(&one).map_err(RunError::io(&one))?;
        }
    }
    Ok(())
}

/// The schemas of a candidate and their server; `None` if it is on no existing server.
fn describe_schemas(candidate: &ResolvedCandidate, experiment: &Experiment) -> Option<String> {
    let Deployment::Existing(server) = &candidate.deployment else { return None };
    let schemas = experiment.workload.existing_schemas(&server.schema).join(", ");
    Some(format!("{schemas} at {}", server.target.address))
}

/// Removes a run's schemas from existing servers, one after another. Returns each candidate's name, its schemas, and the
/// outcome.
pub(crate) fn remove_schemas(
    context: &RunContext<'_>,
) -> impl Iterator<Item = (String, Option<String>, Result<SchemaRemoval, WorkerError>)> {
    on_existing_servers(context.experiment).into_iter().map(move |one| {
        let schemas = describe_schemas(&one, context.experiment);
        (one.name.clone(), schemas, on_its_server(context, one, WorkerHandle::remove))
    })
}

/// Removes the schemas that this session used. Errors are logged only: a resumed run and
/// [`clean_run`] report them. Returns whether none are left; others may be left if earlier sessions `had_schemas`.
pub(crate) fn remove_used_schemas(context: &RunContext<'_>, had_schemas: bool) -> bool {
    let mut is_none_left = true;
    for one in on_existing_servers(context.experiment) {
        let name = one.name.clone();
        let is_open = context.used_schemas.borrow().get(&name).copied();
        let removed = is_open.map(|_| on_its_server(context, one, WorkerHandle::remove));
        if let Some(Err(error)) = &removed {
            tracing::info!(candidate = name, %error, "cannot remove its tables");
        }
        // A server that this session could never use has only what earlier ones created.
        is_none_left &= match removed {
            Some(Ok(_)) => true,
            Some(Err(_)) if is_open == Some(true) => false,
            _ => !had_schemas,
        };
    }
    is_none_left
}

/// Ends the statements that workers left which had to be killed because the session is interrupted. Errors are logged only.
pub(crate) fn end_statements(context: &RunContext<'_>) {
    for one in on_existing_servers(context.experiment) {
        let name = one.name.clone();
        if context.used_schemas.borrow().contains_key(&name)
            && let Err(error) = on_its_server(context, one, WorkerHandle::end_statements)
        {
            tracing::info!(candidate = name, %error, "cannot end statements");
            // The server does not answer, or the user does not wait.
            if error == WorkerError::Stopped {
                return;
            }
        }
    }
}

/// Works in a new worker of a candidate on an existing server.
fn on_its_server<T>(
    context: &RunContext<'_>,
    candidate: ResolvedCandidate,
    work: fn(&mut WorkerHandle) -> Result<T, WorkerError>,
) -> Result<T, WorkerError> {
    let mut instance = Instance::new(context, candidate);
    // With no connection to the schema, which may not exist any more.
    let opened = instance.open(context, 0, false);
    let done = opened.and_then(|()| work(instance.worker_mut()?));
    instance.stop();
    done
}

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Databases of a run in directories of this machine. What is on existing servers is not included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredData {
    /// Directories with files, and the disk space of these.
    pub places: Vec<(PathBuf, Bytes)>,
}

impl StoredData {
    /// The stored data of the run in a directory, as far as this user may read it. Links are not
    /// followed, except that to the servers' data, if dbdyno made it.
    pub fn of(run: &Path) -> Self {
        let data = RunDirectory::at(run).data();
        let external = external_servers(&data);
        let mut places = Vec::new();
        for place in std::iter::once(data).chain(external) {
            // Files beside the directories of databases, such as the one that names the run, are no data.
            let size = subdirectories(&place).iter().map(|one| size_of(one)).sum();
            if size > 0 {
                places.push((place, Bytes::from_bytes(size)));
            }
        }
        Self { places }
    }

    pub fn total(&self) -> Bytes {
        Bytes::from_bytes(self.places.iter().map(|(_, size)| size.as_bytes()).sum())
    }
}

pub(crate) fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|one| one.path()).collect()
}

/// The logs of a run's servers on this machine.
fn logs(run: &Path) -> Vec<PathBuf> {
    let data = RunDirectory::at(run).data();
    let roots = subdirectories(&data).into_iter().chain(external_servers(&data));
    let logs = roots.flat_map(|root| subdirectories(&root)).map(|one| one.join(LOG_FILE));
    logs.filter(|log| log.is_file()).collect()
}

/// The disk space of all files in a directory but logs; 0 if it does not exist. Files that are copies may share
/// blocks with others, and count in full.
fn size_of(directory: &Path) -> u64 {
    let mut size = 0;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            size += size_of(&entry.path());
        } else if metadata.is_file() && entry.file_name() != LOG_FILE {
            size += metadata.blocks() * BLOCK;
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn entries(registry: &RunRegistry) -> usize {
        fs::read_dir(&registry.directory).unwrap().count()
    }

    #[test]
    fn moved_directory_stays_registered_and_a_copy_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let registry = RunRegistry { directory: dir.path().join("state/runs") };
        let (run, moved, copy) =
            (dir.path().join("run"), dir.path().join("moved"), dir.path().join("copy"));
        fs::create_dir(&run).unwrap();
        let (id, other) = ("a1", "a2");
        assert!(!registry.contains(&run, id));
        registry.add(&run, id).unwrap();
        assert!(registry.contains(&run, id) && !registry.contains(&run, other));
        fs::create_dir(&copy).unwrap();
        assert!(!registry.contains(&copy, id));
        fs::rename(&run, &moved).unwrap();
        registry.add(&copy, other).unwrap();
        assert!(registry.contains(&moved, id));
    }

    const EXPERIMENT: &str = r#"
    name = "x"
    baseline = "a"
    [workload]
    setup = "tables.sql"
    microbenchmarks = ["mine", "own"]
    [[microbenchmark]]
    name = "mine"
    script = "evil.lua"
    [[microbenchmark]]
    name = "own"
    statements = [{ sql = "DROP TABLE precious", affects = 0 }]
    [host.db]
    ssh = "user@db"
    address = "10.0.0.1"
    [[candidate]]
    name = "a"
    system = "mariadb"
    program = "/tmp/mariadbd"
    configuration = { plugin_load_add = "/tmp/evil.so" }
    [[candidate]]
    name = "b"
    system = "mariadb"
    host = "db"
    [[candidate]]
    name = "c"
    system = "postgresql"
    variant = "rel"
    source = { path = "/tmp/source" }
    compiler = "/tmp/gcc"
    flags = ["-fplugin=/tmp/evil.so"]
    configure = ["--with-evil"]
    "#;

    fn experiment() -> Experiment {
        let read = |path: &str| match path {
            "tables.sql" => Ok("CREATE TABLE t (a INT);".to_owned()),
            "evil.lua" => Ok("require('helper') function event() end".to_owned()),
            path if path.ends_with("helper.lua") => Ok("return 1".to_owned()),
            _ => Err("it is not there".to_owned()),
        };
        dbdyno_spec::parse_with_files("x.toml", EXPERIMENT, &read).unwrap()
    }

    #[test]
    fn damaged_experiments_are_described_or_refused() {
        let sample = serde_json::to_vec(&experiment()).unwrap();
        let words = ["null", "-1", "1e400", "[[[[", "\\u001b", "\\n", "{}"];
        Fuzz::new(vec![sample]).words(&words).run(|bytes| {
            let Ok(experiment) = serde_json::from_slice::<Experiment>(bytes) else { return };
            let question = not_registered(Path::new("run"), &experiment, Vec::new()).to_string();
            for line in question.lines() {
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        });
    }

    #[test]
    fn question_names_all_that_would_be_executed() {
        let experiment = experiment();
        let question = |experiment: &Experiment, more: &str| match not_registered(
            Path::new("run"),
            experiment,
            vec![more.to_owned()],
        ) {
            RunError::NotRegistered { uses, .. } => uses,
            other => panic!("{other}"),
        };
        assert_eq!(
            question(&experiment, "a\x1b\nb"),
            [
                "a\\u{1b}\\nb",
                "compile /tmp/source as rel with /tmp/gcc -fplugin=/tmp/evil.so --with-evil",
                "execute the Lua of evil.lua, helper.lua",
                "execute the SQL of microbenchmark own",
                "execute the SQL of tables.sql",
                "run dbdyno on user@db with ssh",
                "start /tmp/mariadbd, plugin_load_add = /tmp/evil.so",
                "start the compiled PostgreSQL",
                "start the installed MariaDB on host db",
            ]
        );
        let own = r#"
            name = "x"
            baseline = "a"
            [[candidate]]
            name = "a"
            system = "sqlite"
            variant = "rel"
        "#;
        let experiment = dbdyno_spec::parse("x.toml", own).unwrap();
        let compiled = "compile bundled with dbdyno as rel with gcc";
        assert_eq!(question(&experiment, "more"), [compiled, "more"], "and SQL of dbdyno's own");
    }

    #[test]
    fn old_entries_of_removed_runs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let registry = RunRegistry { directory: dir.path().join("runs") };
        let add = |name: &str| {
            let run = dir.path().join(name);
            fs::create_dir(&run).unwrap();
            registry.add(&run, "a1").unwrap();
        };
        add("a");
        add("b");
        for entry in fs::read_dir(&registry.directory).unwrap() {
            let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(UNIX_EPOCH).unwrap();
        }
        add("c");
        for name in ["a", "c"] {
            fs::remove_dir(dir.path().join(name)).unwrap();
        }
        add("d");
        assert_eq!(entries(&registry), 3, "b exists, and c is new");
    }

    #[test]
    fn registry_that_others_can_write_to_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let registry = RunRegistry { directory: dir.path().join("runs") };
        let (run, id) = (dir.path().join("run"), "a1");
        fs::create_dir(&run).unwrap();
        registry.add(&run, id).unwrap();
        fs::set_permissions(&registry.directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!registry.contains(&run, id) && registry.add(&run, id).is_err());
    }

    #[test]
    fn directory_depends_on_the_environment() {
        let of = |xdg: Option<&str>, home: Option<&str>, root| {
            directory_from(xdg.map(OsString::from), home.map(OsString::from), root)
        };
        let path = |text| Some(PathBuf::from(text));
        assert_eq!(of(None, Some("/root"), true), path("/var/lib/dbdyno/runs"));
        assert_eq!(of(Some("/s"), Some("/root"), true), path("/s/dbdyno/runs"));
        assert_eq!(of(Some("s"), Some("/h"), false), path("/h/.local/state/dbdyno/runs"));
        assert_eq!(of(None, None, false), None);
    }

    #[test]
    fn logs_without_data_are_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(logs(dir.path()).is_empty());
        let server = dir.path().join("data/servers/a");
        fs::create_dir_all(&server).unwrap();
        assert!(logs(dir.path()).is_empty());
        fs::write(server.join(LOG_FILE), "an error").unwrap();
        assert_eq!(logs(dir.path()), [server.join(LOG_FILE)]);
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
    }

    #[test]
    fn only_data_of_the_run_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
        fs::create_dir_all(data.join("a/empty")).unwrap();
        fs::write(data.join("run.txt"), "no data").unwrap();
        fs::write(data.join("a").join(LOG_FILE), [1; 100_000]).unwrap();
        // A link that dbdyno did not make is not followed.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("precious"), [1; 100_000]).unwrap();
        std::os::unix::fs::symlink(other.path(), data.join("servers")).unwrap();
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
        fs::write(data.join("a/test.sqlite"), [1; 100_000]).unwrap();
        let stored = StoredData::of(dir.path());
        assert_eq!(stored.places[0].0, data);
        assert!(stored.total() >= Bytes::from_bytes(100_000), "{stored:?}");
        assert!(stored.total() < Bytes::from_bytes(200_000), "{stored:?}");
    }
}
