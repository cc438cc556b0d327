//! Audits of builds: a build that does not match its variant is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_audit::Audit;
use dbdyno_builds::{Build, Cache, Fingerprint};
use dbdyno_spec::experiment::Candidate;

use crate::auditing::audit_of;
use crate::auditing::refusal::refusal;
use crate::error::RunError;
use crate::pgo_training::PgoTrainer;
use crate::progress::{Progress, RunEvent};

/// Audits builds, each once.
pub(super) struct Auditor<'a> {
    cache: Cache,
    /// The directory of the cache, if it is not the default one.
    custom_cache: Option<String>,
    cancel: &'a AtomicBool,
    progress: Progress<'a>,
    /// Audits without a candidate's exceptions.
    known: RefCell<BTreeMap<Fingerprint, Audit>>,
}

impl<'a> Auditor<'a> {
    pub fn new(cache: Cache, custom_cache: Option<String>, trainer: &'a PgoTrainer<'a>) -> Self {
        let (cancel, progress) = (trainer.cancel, trainer.progress);
        Self { cache, custom_cache, cancel, progress, known: RefCell::default() }
    }

    /// Audits the candidates' builds. The error lists all builds that are refused.
    pub fn audit(
        &self,
        candidates: &[&Candidate],
        builds: &[Build],
    ) -> Result<Vec<Arc<Audit>>, RunError> {
        let mut audits = Vec::new();
        let mut refusals = Vec::new();
        for (candidate, build) in candidates.iter().zip(builds) {
            let name = &candidate.name;
            let audit = self.read(name, build)?;
            let mut expected = audit.expected.clone();
            let build_spec = candidate.system.build();
            expected.ignored.extend(build_spec.iter().flat_map(|one| &one.audit_ignore));
            let audit = audit.checked_against(expected);
            if let Some(text) = refusal(build, &audit, self.custom_cache.as_deref()) {
                refusals.push((name.clone(), text));
            }
            audits.push(Arc::new(audit));
        }
        if refusals.is_empty() { Ok(audits) } else { Err(RunError::NotAsNamed(refusals)) }
    }

    fn read(&self, candidate: &str, build: &Build) -> Result<Audit, RunError> {
        if let Some(audit) = self.known.borrow().get(&build.fingerprint) {
            return Ok(audit.clone());
        }
        let watch = |read: dbdyno_audit::Progress| {
            let line = format!("auditing {candidate}: {} of {} files read", read.done, read.of);
            (self.progress)(RunEvent::Stage(line));
        };
        let audit = audit_of(&self.cache, build, self.cancel, &watch)
            .map_err(|source| RunError::Audit { candidate: candidate.to_owned(), source })?;
        self.known.borrow_mut().insert(build.fingerprint, audit.clone());
        Ok(audit)
    }
}
