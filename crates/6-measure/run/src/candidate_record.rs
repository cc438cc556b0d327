//! The record of a candidate in the run directory.

use dbdyno_builds::Build;
use dbdyno_results::{
    AuditRecord, BuildRecord, CandidateRecord, OriginRecord, ReleaseRecord, Role,
};
use dbdyno_spec::experiment::{PrivateServer, System};

use crate::resolved_candidate::{Deployment, ResolvedCandidate};
use crate::{auditing, config_diff, settings};

impl ResolvedCandidate {
    /// The record of the candidate in a run with this baseline.
    pub fn record(&self, baseline: &Self) -> CandidateRecord {
        CandidateRecord {
            name: self.name.clone(),
            role: self.role,
            system: self.spec.system.name().to_owned(),
            version: self.version(),
            engine: self.engine(),
            build: self.build().map(|build| of_build(build, self.audit(baseline))),
            origin: self.origin(),
            configuration: settings::of_resolved(self),
            server_settings: Vec::new(),
            config_diff: config_diff::differences(self, baseline),
            injected_delay: self.spec.injected_delay,
        }
    }

    /// The flag audit of its build.
    fn audit(&self, baseline: &Self) -> Option<AuditRecord> {
        // The control is a second baseline.
        let baseline = baseline.audit.as_deref().filter(|_| self.role == Role::Candidate);
        Some(auditing::record::record(self.build()?, self.audit.as_deref()?, baseline))
    }

    /// The system's version; empty for an existing server until it is opened.
    fn version(&self) -> String {
        match &self.deployment {
            Deployment::Library(build) => build.source_version.clone(),
            Deployment::Private(plan) => plan.installation().version.clone(),
            Deployment::Existing(_) => String::new(),
        }
    }

    fn engine(&self) -> Option<String> {
        let engine = match &self.deployment {
            Deployment::Library(_) => None,
            Deployment::Private(plan) => plan.engine(),
            Deployment::Existing(server) => server.engine,
        };
        engine.map(|engine| engine.name().to_owned())
    }

    fn origin(&self) -> Option<OriginRecord> {
        match &self.deployment {
            Deployment::Library(_) => None,
            Deployment::Private(_) if self.server_build.is_some() => None,
            Deployment::Private(plan) => {
                let installation = plan.installation();
                Some(OriginRecord::Program {
                    path: installation.program.display().to_string(),
                    sha256: installation.sha256.clone(),
                    file_size: installation.file_size,
                    release: self.release(),
                })
            }
            Deployment::Existing(server) => {
                Some(OriginRecord::Server { address: server.target.address.to_string() })
            }
        }
    }
}

impl ResolvedCandidate {
    /// The release of its private server, if the experiment names one.
    fn release(&self) -> Option<ReleaseRecord> {
        let System::Private(PrivateServer { release: Some(origin), .. }) = &self.spec.system else {
            return None;
        };
        let files = self.release.as_ref().map(|release| release.files().to_vec());
        Some(ReleaseRecord { origin: origin.to_string(), files: files.unwrap_or_default() })
    }
}

/// The training of a build's profiles. A compiler's profile and BOLT's have the same.
fn trained_on(build: &Build) -> Option<String> {
    let compilers = build.profile.as_ref().map(|profile| profile.trained_on.clone());
    compilers.or_else(|| build.bolt.as_ref().map(|bolt| bolt.trained_on.clone()))
}

fn of_build(build: &Build, audit: Option<AuditRecord>) -> BuildRecord {
    let is_before_bolt = build.settings.bolt && build.bolt.is_none();
    BuildRecord {
        variant: format!("{}{}", build.variant, if is_before_bolt { " before BOLT" } else { "" }),
        trained_on: trained_on(build),
        bolted: build.bolt.is_some(),
        compiler: format!("{} ({})", build.compiler.path.display(), build.compiler.version_line),
        commands: build.commands.clone(),
        fingerprint: build.fingerprint.short(),
        source_sha256: build.source_sha256.to_string(),
        library_sha256: build.artifact_sha256.to_string(),
        text_size: build.text_size,
        file_size: build.file_size,
        stripped_size: Some(build.stripped_size),
        audit,
    }
}
