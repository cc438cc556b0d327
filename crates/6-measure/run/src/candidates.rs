//! Resolves the experiment's candidates to those that take part in the run.

mod building;
mod reused_samples;

pub(crate) use building::{build as build_all, of_server};

use std::path::PathBuf;

use dbdyno_results::Role;
use dbdyno_spec::experiment::{Candidate, Experiment, System};

use building::BuiltCandidate;

use crate::error::RunError;
use crate::host_programs::Copying;
use crate::hosts::Hosts;
use crate::pgo_training::PgoTrainer;
use crate::resolved_candidate::{Deployment, ResolvedCandidate};
use crate::{releases, server_plan};

/// Builds libraries and servers, finds installed programs, and lists the candidates and the
/// control: the baseline first, the control last.
pub(crate) fn resolve_all(
    experiment: &Experiment,
    cache: Option<PathBuf>,
    trainer: &PgoTrainer<'_>,
    hosts: &Hosts,
) -> Result<Vec<ResolvedCandidate>, RunError> {
    let baseline = experiment.baseline_candidate();
    let others = experiment.candidates.iter().filter(|candidate| candidate.name != baseline.name);
    let candidates: Vec<&Candidate> = std::iter::once(baseline).chain(others).collect();
    // First, so that a missing program is reported before anything is compiled.
    let (cancel, progress) = (trainer.cancel, trainer.progress);
    let copying = Copying { progress, cancel };
    let releases = releases::obtain_all(&candidates, cache.as_deref(), cancel, progress)?;
    let servers = server_plan::find(experiment, &candidates, &releases, hosts, copying)?;
    let builds = building::build(&candidates, cache, trainer)?;
    tracing::info!(candidates = candidates.len(), "found all servers and builds");
    let samples = reused_samples::read_all(&candidates, &builds)?;
    let mut resolved = Vec::new();
    let parts =
        candidates.into_iter().zip(servers.into_iter().zip(releases)).zip(builds).zip(samples);
    for (number, (((spec, (server, release)), built), samples)) in parts.enumerate() {
        let role = if number == 0 { Role::Baseline } else { Role::Candidate };
        let of =
            |deployment| ResolvedCandidate::new(spec.name.clone(), role, spec.clone(), deployment);
        resolved.push(match (server, built) {
            (Some(server), _) => {
                let host = hosts.of(spec)?.cloned();
                ResolvedCandidate { host, samples, release, ..of(server) }
            }
            (None, Some(BuiltCandidate { build, audit, held, .. })) => {
                let build = Box::new(build);
                let host = hosts.of(spec)?;
                let (deployment, server_build) = if matches!(spec.system, System::Private(_)) {
                    let plan = match host {
                        Some(host) => server_plan::plan_of_build_on_host(
                            experiment, spec, host, &build, copying,
                        )?,
                        None => server_plan::plan_of(experiment, spec, Some(&build.artifact))?,
                    };
                    (Deployment::Private(Box::new(plan)), Some(build))
                } else {
                    (Deployment::Library(build), None)
                };
                ResolvedCandidate {
                    host: host.cloned(),
                    server_build,
                    audit: Some(audit),
                    samples,
                    _held: Some(held),
                    ..of(deployment)
                }
            }
            (None, None) => unreachable!("a candidate is a server, or it was built"),
        });
    }
    if experiment.control {
        resolved.push(resolved[0].control());
    }
    Ok(resolved)
}
