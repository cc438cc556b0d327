//! Resolving the candidates of a run to the programs that they run.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dbdyno_relayout::Profile;
use dbdyno_spec::experiment::{Candidate, Experiment, System};

use crate::building::{BuiltCandidate, build, obtain_all};
use crate::candidates::hosts::{Copying, Hosts};
use crate::candidates::{Deployment, ResolvedCandidate, server_plan};
use crate::error::{RunError, SamplingError};
use crate::training::PgoTrainer;

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
    let (cancel, progress) = (&trainer.worker.cancel, trainer.progress);
    let copying = Copying { progress, cancel };
    let releases = obtain_all(&candidates, cache.as_deref(), cancel, progress)?;
    let servers = server_plan::find(experiment, &candidates, &releases, hosts, copying)?;
    let builds = build(&candidates, cache, trainer)?;
    tracing::info!(candidates = candidates.len(), "found all servers and builds");
    let samples = reused_samples(&candidates, &builds)?;
    let mut resolved = Vec::new();
    let parts =
        candidates.into_iter().zip(servers.into_iter().zip(releases)).zip(builds).zip(samples);
    for (((spec, (server, release)), built), samples) in parts {
        let of = |deployment| ResolvedCandidate::new(experiment, spec, deployment);
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

/// The samples for each candidate, in the order of the list.
fn reused_samples(
    candidates: &[&Candidate],
    builds: &[Option<BuiltCandidate>],
) -> Result<Vec<Option<Arc<Profile>>>, RunError> {
    let mut all = Vec::new();
    for (candidate, own) in candidates.iter().zip(builds) {
        let name = candidate.live.as_ref().and_then(|live| live.samples_of.as_deref());
        let Some(name) = name else {
            all.push(None);
            continue;
        };
        let index = candidates.iter().position(|other| other.name == name);
        let other = index.and_then(|index| builds[index].as_ref());
        let samples = read(own.as_ref(), other).map_err(|source| {
            let candidate_of = name.to_owned();
            let reused =
                SamplingError::Reused { candidate: candidate_of, source: Box::new(source) };
            RunError::sampling(&candidate.name, &reused)
        })?;
        all.push(Some(Arc::new(samples)));
    }
    Ok(all)
}

fn read(
    own: Option<&BuiltCandidate>,
    other: Option<&BuiltCandidate>,
) -> Result<Profile, SamplingError> {
    let (own, other) = own.zip(other).ok_or(SamplingError::NoSamples)?;
    let base = other.build.bolt.as_ref().map(|bolt| bolt.base);
    if base != Some(own.build.fingerprint) {
        return Err(SamplingError::OtherBuild(own.build.fingerprint.short()));
    }
    let path = other.samples.as_ref().ok_or(SamplingError::NoSamples)?;
    let text = fs::read(path).map_err(|source| SamplingError::Io { path: path.clone(), source })?;
    Ok(serde_json::from_slice(&text)?)
}
