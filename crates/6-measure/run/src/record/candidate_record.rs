//! What is stored of a candidate: its program, and what its system reports.

use dbdyno_builds::Build;
use dbdyno_results::{
    AuditRecord, BuildRecord, CandidateRecord, InForceRecord, OriginRecord, ReleaseRecord, Role,
    Warning,
};
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System};
use dbdyno_types::server::{ServerSystem, SettingDefaults};

use crate::candidates::{Deployment, ResolvedCandidate, auditing};
use crate::record::settings;

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
            config_diff: settings::differences(self, baseline),
            in_force: self.in_force(),
            injected_delay: self.spec.injected_delay,
        }
    }

    /// The flag audit of its build.
    fn audit(&self, baseline: &Self) -> Option<AuditRecord> {
        // The control is a second baseline.
        let baseline = baseline.audit.as_deref().filter(|_| self.role == Role::Candidate);
        Some(auditing::record(self.build()?, self.audit.as_deref()?, baseline))
    }

    /// The system's version; empty for an existing server until it is opened.
    fn version(&self) -> String {
        match &self.deployment {
            Deployment::Library(build) => build.source_version.clone(),
            Deployment::Private(plan) => plan.installation().version.clone(),
            Deployment::Existing(_) => String::new(),
        }
    }

    /// Whose values its settings have; the rest is known once its server has started.
    fn in_force(&self) -> InForceRecord {
        let Deployment::Private(plan) = &self.deployment else { return InForceRecord::default() };
        let is_dbdynos = plan.defaults() == SettingDefaults::Dbdyno;
        InForceRecord {
            defaults: Some(plan.defaults()),
            notable_defaults: if is_dbdynos { plan.notable_defaults() } else { Vec::new() },
            ..InForceRecord::default()
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

    /// The release of its private server, if the experiment names one.
    fn release(&self) -> Option<ReleaseRecord> {
        let origin = self.spec.system.release()?;
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

/// Changes of settings that a warning lists.
const LISTED: usize = 5;

/// Whether the reported settings of the servers are stored: if the experiment does not tell those of one, an
/// existing server or one with its own defaults, or if there are programs of one system whose defaults may differ. They
/// are then compared with those of the others, too.
pub(crate) fn with_settings(experiment: &Experiment) -> bool {
    let is_known = |one: &Candidate| match &one.system {
        System::Existing(_) => false,
        System::Private(server) => server.defaults == SettingDefaults::Dbdyno,
        System::Sqlite { .. } => true,
    };
    let servers: Vec<&PrivateServer> = experiment
        .candidates
        .iter()
        .filter_map(|one| match &one.system {
            System::Private(server) => Some(server),
            _ => None,
        })
        .collect();
    let has_other = |one: &&PrivateServer| servers.iter().any(|other| is_other_program(one, other));
    !experiment.candidates.iter().all(is_known) || servers.iter().any(has_other)
}

fn is_other_program(one: &PrivateServer, other: &PrivateServer) -> bool {
    let source = |of: &PrivateServer| of.build.as_ref().map(|build| build.source.clone());
    one.system == other.system
        && (one.program != other.program
            || one.release != other.release
            || source(one) != source(other))
}

/// Adds the version and the settings that a system reports to its record. What is known already stays;
/// if an existing server reports something else than before, a warning is returned. An existing server is the
/// system that its version tells, whichever of MariaDB and MySQL its URL names.
pub(crate) fn update(
    record: &mut CandidateRecord,
    version: &str,
    settings: &[(String, String)],
) -> Option<Warning> {
    let is_existing = matches!(record.origin, Some(OriginRecord::Server { .. }));
    let mut changes = Vec::new();
    let mut change = |name: &str, before: &str, now: &str| {
        if before != now {
            changes.push(format!("{name} {before} → {now}"));
        }
    };
    match record.version.is_empty() {
        true => {
            version.clone_into(&mut record.version);
            let named = ServerSystem::by_name(&record.system);
            if let Some(named) = named.filter(|_| is_existing) {
                named.of_version(version).name().clone_into(&mut record.system);
            }
        }
        false => change("version", &record.version, version),
    }
    if record.server_settings.is_empty() {
        record.server_settings = settings.to_vec();
    }
    for (name, now) in settings {
        let mut known = record.server_settings.iter();
        if let Some((_, before)) = known.find(|(known, _)| known == name) {
            change(name, before, now);
        }
    }
    let rest = changes.len().saturating_sub(LISTED);
    changes.truncate(LISTED);
    if rest > 0 {
        changes.push(format!("and {rest} more"));
    }
    (is_existing && !changes.is_empty()).then(|| Warning {
        what: format!(
            "the server of {} changed since the run began: {}",
            record.name,
            changes.join(", ")
        ),
        advice: "results from before and after the change are mixed: start a new run".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use dbdyno_results::Role;

    use super::*;

    fn record(origin: OriginRecord) -> CandidateRecord {
        CandidateRecord {
            name: "production".to_owned(),
            role: Role::Candidate,
            system: "mariadb".to_owned(),
            version: String::new(),
            engine: None,
            build: None,
            origin: Some(origin),
            configuration: Vec::new(),
            server_settings: Vec::new(),
            config_diff: Vec::new(),
            in_force: InForceRecord::default(),
            injected_delay: None,
        }
    }

    fn existing() -> CandidateRecord {
        record(OriginRecord::Server { address: "db:3306".to_owned() })
    }

    fn settings(values: &[(&str, &str)]) -> Vec<(String, String)> {
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn first_report_of_a_server_is_kept_and_changes_are_named() {
        let mut record = existing();
        let first = settings(&[("fsync", "on"), ("work_mem", "4MB")]);
        assert_eq!(update(&mut record, "15.1", &first), None);
        assert_eq!((record.version.as_str(), &record.server_settings), ("15.1", &first));
        assert_eq!(update(&mut record, "15.1", &first), None, "unchanged");

        let now = settings(&[("fsync", "off"), ("work_mem", "4MB")]);
        let warning = update(&mut record, "15.2", &now).unwrap();
        assert_eq!(
            warning.what,
            "the server of production changed since the run began: version 15.1 → 15.2, fsync on → off"
        );
        assert_eq!((record.version.as_str(), &record.server_settings), ("15.1", &first));
    }

    #[test]
    fn settings_are_stored_if_they_are_not_those_of_one_program() {
        let stored = |second: &str| {
            let text = format!(
                "name = \"test\"\nbaseline = \"a\"\n\
                 [[candidate]]\nname = \"a\"\nsystem = \"mysql\"\nrelease = {{ debian = \"sid\" }}\n\
                 [[candidate]]\nname = \"b\"\n{second}\n"
            );
            let experiment =
                dbdyno_spec::parse("test.toml", &text).unwrap_or_else(|p| panic!("{p}"));
            with_settings(&experiment)
        };
        let same = "system = \"mysql\"\nrelease = { debian = \"sid\" }";
        assert!(!stored(same));
        assert!(stored("system = \"mysql\""), "another program");
        assert!(stored(&format!("{same}\ndefaults = \"server\"")));
        assert!(!stored("system = \"postgresql\""), "not comparable");
    }

    #[test]
    fn system_is_the_one_that_runs_and_not_the_one_of_the_url() {
        for (named, version, actual) in [
            ("mysql", "10.11.19-MariaDB-0+deb12u1", "mariadb"),
            ("mariadb", "9.7.0", "mysql"),
            ("mariadb", "11.4.2-MariaDB", "mariadb"),
            ("mariadb", "unknown (no login)", "mariadb"),
            ("postgresql", "15.18", "postgresql"),
        ] {
            let mut record = CandidateRecord { system: named.to_owned(), ..existing() };
            assert_eq!(update(&mut record, version, &[]), None);
            assert_eq!(record.system, actual, "{named} {version}");
        }
    }

    #[test]
    fn long_list_of_changes_is_shortened() {
        let mut record = existing();
        let all = |value: &str| -> Vec<(String, String)> {
            (0..8).map(|index| (format!("s{index}"), value.to_owned())).collect()
        };
        assert_eq!(update(&mut record, "15.1", &all("1")), None);
        let warning = update(&mut record, "15.1", &all("2")).unwrap();
        assert!(warning.what.ends_with("s4 1 → 2, and 3 more"), "{}", warning.what);
    }

    #[test]
    fn private_server_is_not_said_to_have_changed() {
        // Its settings are those of the experiment; the server may calculate others from the machine.
        let mut record = record(OriginRecord::Program {
            path: "/usr/sbin/mariadbd".to_owned(),
            sha256: String::new(),
            file_size: dbdyno_units::Bytes::from_bytes(0),
            release: None,
        });
        assert_eq!(update(&mut record, "10.11", &settings(&[("open_files_limit", "1")])), None);
        assert_eq!(update(&mut record, "10.11", &settings(&[("open_files_limit", "2")])), None);
    }
}
