//! The samples of one candidate's build, given to the live optimizer for another's server.

use std::fs;
use std::sync::Arc;

use dbdyno_relayout::Profile;
use dbdyno_spec::experiment::Candidate;

use super::building::Built;
use crate::error::RunError;

/// What each candidate is given, in the order of the list.
pub(super) fn samples(
    candidates: &[&Candidate],
    builds: &[Option<Built>],
) -> Result<Vec<Option<Arc<Profile>>>, RunError> {
    let mut all = Vec::new();
    for (candidate, own) in candidates.iter().zip(builds) {
        let name = candidate.live.as_ref().and_then(|live| live.samples_of.as_deref());
        let Some(name) = name else {
            all.push(None);
            continue;
        };
        let place = candidates.iter().position(|other| other.name == name);
        let other = place.and_then(|place| builds[place].as_ref());
        let samples = read(own.as_ref(), other).map_err(|reason| RunError::Sampling {
            candidate: candidate.name.clone(),
            reason: format!("the samples of `{name}`: {reason}"),
        })?;
        all.push(Some(Arc::new(samples)));
    }
    Ok(all)
}

fn read(own: Option<&Built>, other: Option<&Built>) -> Result<Profile, String> {
    let (own, other) = own.zip(other).ok_or("it was not compiled for the run")?;
    let base = other.build.bolt.as_ref().map(|bolt| bolt.base);
    if base != Some(own.build.fingerprint) {
        return Err(format!("they are of another build than {}", own.build.fingerprint.short()));
    }
    let file = other.samples.as_ref().ok_or("there are none")?;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read(file).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}
