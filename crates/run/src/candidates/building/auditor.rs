//! Refusing builds that are not what they are called.

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
    /// Where the cache is, if it is not where everybody looks for it.
    elsewhere: Option<String>,
    cancel: &'a AtomicBool,
    progress: Progress<'a>,
    /// Not judged yet: what is allowed depends on the candidate.
    known: RefCell<BTreeMap<Fingerprint, Audit>>,
}

impl<'a> Auditor<'a> {
    pub fn new(cache: Cache, elsewhere: Option<String>, trainer: &'a PgoTrainer<'a>) -> Self {
        let (cancel, progress) = (trainer.cancel, trainer.progress);
        Self { cache, elsewhere, cancel, progress, known: RefCell::default() }
    }

    /// Audits the candidates' builds; the error names every one that is not as it should be.
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
            if let Some(text) = refusal(build, &audit, self.elsewhere.as_deref()) {
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
        let watch = |told: dbdyno_audit::Progress| {
            let line = format!("auditing {candidate}: {} of {} files read", told.done, told.of);
            (self.progress)(RunEvent::Stage(line));
        };
        let audit = audit_of(&self.cache, build, self.cancel, &watch)
            .map_err(|source| RunError::Audit { candidate: candidate.to_owned(), source })?;
        self.known.borrow_mut().insert(build.fingerprint, audit.clone());
        Ok(audit)
    }
}
