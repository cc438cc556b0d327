//! Logging in to existing servers before anything is compiled or loaded.

use std::path::Path;

use dbdyno_engines::server::ServerAccess;
use dbdyno_results::Role;
use dbdyno_spec::experiment::{ExistingServer, Experiment};
use dbdyno_types::{ClientWait, RunIdentity};
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::{Open, SystemUnderTest};

use crate::context::WorkerProgram;
use crate::resolved_candidate::{Deployment, on_existing_servers};

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
    for candidate in candidates {
        let Deployment::Existing(server) = &candidate.deployment else { continue };
        let checked = check(experiment, server, worker, run);
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
            settings: ServerAccess {
                system: server.system,
                engine: server.engine,
                target: server.target.clone(),
                schema: server.schema.clone(),
                statements: server.statements,
                owner: Some(run.clone()),
            },
            pid: None,
        },
        create: false,
        clients: 0,
        threads: 1,
        wait: ClientWait::Sleep,
        tables: experiment.workload.tables,
        load_tables: false,
        own_tables: false,
        scripts: Vec::new(),
        script_clients: 0,
        setup: Vec::new(),
        rows: experiment.workload.rows,
        seed: experiment.seed,
        cpus: None,
        injected_delay: None,
        count: false,
        insert: None,
    })?;
    worker.check_access()?;
    worker.close()?;
    Ok(opened.version)
}
