//! Samples of one candidate's build that the live optimizer uses for another candidate's server.

use std::fs;
use std::sync::Arc;

use dbdyno_relayout::Profile;
use dbdyno_spec::experiment::Candidate;

use super::building::BuiltCandidate;
use crate::error::RunError;
use crate::sampling::SamplingError;

/// The samples for each candidate, in the order of the list.
pub(super) fn read_all(
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
        let samples = read(own.as_ref(), other).map_err(|source| RunError::Sampling {
            candidate: candidate.name.clone(),
            source: SamplingError::Reused { candidate: name.to_owned(), source: Box::new(source) },
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
