//! What a server reports about itself: its version and its settings.

use dbdyno_results::{CandidateRecord, OriginRecord, Warning};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_types::server::ServerSystem;

/// Changes of settings that a warning lists.
const LISTED: usize = 5;

/// Whether the reported settings of the servers are stored: if one of them is an existing server, whose
/// settings the experiment does not tell. They are then compared with those of private servers, too.
pub(crate) fn with_settings(experiment: &Experiment) -> bool {
    experiment.candidates.iter().any(|one| matches!(one.system, System::Existing(_)))
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
            let named = ServerSystem::ALL.into_iter().find(|one| one.name() == record.system);
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
