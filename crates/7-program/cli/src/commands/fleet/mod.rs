//! `dbdyno fleet`: the start of a fleet run, with options of the command line before those of the experiment,
//! and the cache into which it is compiled for all nodes.

mod follow;
mod task;

use std::path::Path;
use std::process::ExitCode;

use dbdyno_builds::{CacheDir, CacheDirError};
use dbdyno_fleet::{
    Controller, FleetDirectory, FleetRecord, Limits, NodeChoice, Outcome, Request, Slurm, Store,
    TaskRecord, choose_nodes, mark_cache, tasks, unmark_cache, with_builds,
};
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_results::new_run_id;
use dbdyno_run::{is_registered, not_registered, register};
use dbdyno_spec::experiment::{Build, Experiment, Fleet};

use self::follow::{exit_code, report_on, until_end};
use crate::args::{self, FleetCommand, FleetRun};
use crate::commands::session::{directory_or, now, own_program, read_experiment};
use crate::error::CliError;
use crate::output;

pub fn fleet(args: &args::Fleet) -> Result<ExitCode, CliError> {
    match &args.command {
        FleetCommand::Run(args) => run(args),
        FleetCommand::Status(status) => follow::status(status),
        FleetCommand::Collect(collect) => follow::collect(collect),
        FleetCommand::Cancel(cancel) => follow::cancel(cancel),
        FleetCommand::Task(task) => task::task(task),
    }
}

/// Starts or continues a fleet run, follows it, and reports.
fn run(args: &FleetRun) -> Result<ExitCode, CliError> {
    let (directory, record) = match (&args.file, &args.resume) {
        (Some(file), _) => start(args, file)?,
        (None, Some(directory)) => {
            let (directory, mut record) = FleetDirectory::open(directory)?;
            check_trusted(&directory, &record, args.trust)?;
            Slurm::check()?;
            // What lies there may be another program, or an older version.
            directory.copy_program(&own_program()?)?;
            directory.take_cancel();
            match record.reopen() {
                0 => {}
                1 => output::note("1 task is tried again"),
                number => output::note(&format!("{number} tasks are tried again")),
            }
            mark_again(&record)?;
            (directory, record)
        }
        (None, None) => return Err(CliError::usage("no experiment file given")),
    };
    let path = directory.path().to_owned();
    let mut controller = Controller::new(record, Slurm, directory);
    if let Some(code) = until_end(&mut controller, args.detach)? {
        return Ok(code);
    }
    check_builds(controller.record())?;
    report_on(controller.store(), &path, Some(&path), args.view, true)?;
    Ok(exit_code(controller.record()))
}

/// Checks that this user made a fleet run on this machine, or trusts it: otherwise it is not controlled.
pub fn check_trusted(
    directory: &FleetDirectory,
    record: &FleetRecord,
    trust: bool,
) -> Result<(), CliError> {
    if is_registered(directory.path(), &record.id) {
        return Ok(());
    }
    if !trust {
        let experiment = parsed(directory.experiment()?.0)?;
        let Request { partition, account, scratch, cache, .. } = &record.request;
        let named = [("partition", partition), ("account", account), ("cache", cache)].into_iter();
        let named = named.filter_map(|(what, name)| Some(format!(", {what} {}", name.as_ref()?)));
        let jobs = format!("submit and cancel jobs of Slurm with data in {scratch}");
        let more = vec![jobs + &named.collect::<String>()];
        return Err(not_registered(directory.path(), &experiment, more).into());
    }
    register(directory.path(), &record.id);
    Ok(())
}

/// A stored experiment.
fn parsed(experiment: serde_json::Value) -> Result<Experiment, CliError> {
    serde_json::from_value(experiment)
        .map_err(|error| CliError::Other(format!("reading the experiment: {error}")))
}

/// Nothing is measured without builds: their error is that of the fleet run.
fn check_builds(record: &FleetRecord) -> Result<(), CliError> {
    let Some(task) = record.failed_builds() else { return Ok(()) };
    match &task.outcome {
        Some(Outcome::Failed { reason } | Outcome::Lost { reason }) => {
            Err(CliError::Other(format!("{} on {}: {reason}", task.name, task.node)))
        }
        _ => Ok(()),
    }
}

/// Plans a new fleet run, and creates its directory.
fn start(args: &FleetRun, file: &Path) -> Result<(FleetDirectory, FleetRecord), CliError> {
    let (experiment, text) = read_experiment(file)?;
    Slurm::check()?;
    let (request, choice) = request_of(args, &experiment)?;
    let nodes = choose_nodes(&request, &choice, &Slurm::nodes_for(&request)?)?;
    let names = experiment.workload.microbenchmarks.iter().map(|one| one.name.clone());
    let tasks = tasks(&nodes, &names.collect::<Vec<_>>(), request.shard)?;
    let path = directory_or(args.out.as_deref(), &format!("{}-fleet", experiment.name));
    let encoded = serde_json::to_value(&experiment)
        .map_err(|error| CliError::Other(format!("encoding the experiment: {error}")))?;
    let mut directory = FleetDirectory::create(&path, &own_program()?, &encoded, &text)?;
    // Half of it is enough, and the names of jobs stay short.
    let id = new_run_id()?.as_str().chars().take(16).collect();
    let version = env!("CARGO_PKG_VERSION");
    let mut record = FleetRecord::new(id, version, &now(), request, tasks);
    plan_builds(&mut record, &experiment);
    directory.save(&record)?;
    register(directory.path(), &record.id);
    let shown = directory.path().display();
    output::note(&match record.tasks.iter().filter(|task| !task.builds).count() {
        1 => format!("1 task in {shown}; `dbdyno fleet status` shows it"),
        number => format!("{number} tasks in {shown}; `dbdyno fleet status` shows them"),
    });
    Ok((directory, record))
}

/// Where nodes keep runs by default: on disk, and kept over a restart.
const SCRATCH: &str = "/var/tmp";

/// What was asked, and the choice of nodes.
fn request_of(args: &FleetRun, experiment: &Experiment) -> Result<(Request, NodeChoice), CliError> {
    let none = Fleet::default();
    let section = experiment.fleet.as_ref().unwrap_or(&none);
    let either = |arg: &Option<String>, key: &Option<String>| arg.clone().or_else(|| key.clone());
    let nodelist = match (&args.nodelist, args.nodes) {
        (Some(list), _) => Some(list.clone()),
        (None, Some(_)) => None,
        (None, None) => section.nodelist.clone(),
    };
    let choice = match (&nodelist, args.nodes.or(section.nodes)) {
        (Some(list), _) => match Slurm::expand(list)? {
            names if names.is_empty() => {
                return Err(CliError::usage("--nodelist names no node"));
            }
            names => NodeChoice::Named(names),
        },
        (None, Some(0)) => return Err(CliError::usage("--nodes must be at least 1")),
        (None, Some(number)) => NodeChoice::Count(number as usize),
        (None, None) => {
            let message = "on which nodes? Use --nodes N or --nodelist LIST, or `nodes` or \
                           `nodelist` under [fleet] of the experiment";
            return Err(CliError::usage(message));
        }
    };
    let shard = args.shard || section.shard;
    if shard && experiment.insert_benchmark.is_some() {
        let message = "an insert benchmark cannot be divided among nodes: remove --shard";
        return Err(CliError::usage(message));
    }
    let path = |path: &Path| {
        let text = path.to_str().filter(|_| path.is_absolute()).map(str::to_owned);
        text.ok_or_else(|| {
            CliError::Usage(format!("{} must be an absolute path in UTF-8", path.display()))
        })
    };
    let cache = args.cache.as_deref().map(path).transpose()?;
    let scratch = args.scratch.as_deref().map(path).transpose()?;
    let scratch = scratch.or_else(|| section.scratch.clone()).unwrap_or_else(|| SCRATCH.to_owned());
    let request = Request {
        name: experiment.name.clone(),
        partition: either(&args.partition, &section.partition),
        constraint: either(&args.constraint, &section.constraint),
        account: either(&args.account, &section.account),
        time: args.time.or(section.time),
        shard,
        named_nodes: matches!(choice, NodeChoice::Named(_)),
        scratch,
        cache,
        limits: Limits {
            retries: args.retries,
            retry_wait: args.retry_wait,
            node_wait: args.node_wait,
            result_wait: args.result_wait,
        },
    };
    Ok((request, choice))
}

/// Whether each type of CPU needs builds of its own; `None` if nothing is compiled.
pub fn builds_per_cpu(experiment: &Experiment) -> Option<bool> {
    let builds = experiment.candidates.iter().filter_map(|one| one.system.build());
    builds.map(Build::depends_on_cpu).max()
}

/// The build cache of a fleet run, on this machine.
pub fn cache_of(request: &Request) -> Result<CacheDir, CacheDirError> {
    CacheDir::chosen_or_default(request.cache.as_deref().map(Path::new))
}

/// Puts tasks of builds before the others, if something is compiled and the cache can be marked.
pub fn plan_builds(record: &mut FleetRecord, experiment: &Experiment) {
    let Some(per_cpu) = builds_per_cpu(experiment) else { return };
    match mark(record) {
        Ok(()) => {
            let tasks: Vec<TaskRecord> = std::mem::take(&mut record.tasks);
            record.tasks = with_builds(tasks, per_cpu);
        }
        Err(error) => output::note(&format!(
            "each node compiles what it needs, because the build cache cannot be used here: {error}"
        )),
    }
}

/// Marks the cache again for builds that are tried again.
pub fn mark_again(record: &FleetRecord) -> Result<(), CliError> {
    if record.tasks.iter().any(|task| task.builds && task.outcome.is_none()) {
        mark(record).map_err(|error| CliError::Other(format!("the build cache: {error}")))?;
    }
    Ok(())
}

fn mark(record: &FleetRecord) -> Result<(), Box<dyn std::error::Error>> {
    let cache = cache_of(&record.request)?;
    SafeDir::create_trusted(cache.path(), 0o755)?;
    Ok(mark_cache(cache.path(), record)?)
}

/// Removes the mark when all tasks have ended.
pub fn unmark(record: &FleetRecord) {
    if !record.tasks.iter().any(|task| task.builds) {
        return;
    }
    let removed = cache_of(&record.request)
        .map_err(|error| error.to_string())
        .and_then(|cache| unmark_cache(cache.path(), record).map_err(|error| error.to_string()));
    if let Err(error) = removed {
        output::note(&format!("the mark in the build cache was not removed: {error}"));
    }
}
