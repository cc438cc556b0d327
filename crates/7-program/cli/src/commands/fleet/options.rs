//! The options of a fleet run: those of the command line, then those of the experiment.

use std::path::Path;

use dbdyno_fleet::{Limits, NodeChoice, Request, Slurm};
use dbdyno_spec::experiment::{Experiment, Fleet};

use crate::args::FleetRun;
use crate::error::CliError;

/// Where nodes keep runs by default: on disk, and kept over a restart.
const SCRATCH: &str = "/var/tmp";

/// What was asked, and the choice of nodes.
pub fn request(
    args: &FleetRun,
    experiment: &Experiment,
) -> Result<(Request, NodeChoice), CliError> {
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
                return Err(CliError::Usage("--nodelist names no node".to_owned()));
            }
            names => NodeChoice::Named(names),
        },
        (None, Some(0)) => return Err(CliError::Usage("--nodes must be at least 1".to_owned())),
        (None, Some(number)) => NodeChoice::Count(number as usize),
        (None, None) => {
            let message = "on which nodes? Use --nodes N or --nodelist LIST, or `nodes` or \
                           `nodelist` under [fleet] of the experiment";
            return Err(CliError::Usage(message.to_owned()));
        }
    };
    let shard = args.shard || section.shard;
    if shard && experiment.insert_benchmark.is_some() {
        let message = "an insert benchmark cannot be divided among nodes: remove --shard";
        return Err(CliError::Usage(message.to_owned()));
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
