use dbdyno_types::server::{Durability, ServerSystem, StorageEngine};

use super::plan::SettingsRequest;
use super::program::ServerProgram;
use super::systems::server_program;
use super::{DataShape, Installation, ServerError, ServerPlan};

impl ServerPlan {
    /// Derives the settings from the shape of the data, then applies `overrides`, which replace
    /// settings or add to them.
    ///
    /// # Errors
    /// The system has no such engine, or an override is reserved or cannot be written into a
    /// configuration file.
    pub fn new(
        installation: Installation,
        engine: Option<StorageEngine>,
        durability: Durability,
        overrides: Vec<(String, String)>,
        shape: DataShape,
    ) -> Result<Self, ServerError> {
        let program = server_program(installation.system);
        let engine = check_engine(installation.system, engine)?;
        let request = SettingsRequest { installation: &installation, engine, durability, shape };
        let mut settings = program.settings(&request);
        for (name, value) in overrides {
            let name = check_override(program, &name, &value)?;
            match settings.iter_mut().find(|(known, _)| *known == name) {
                Some(setting) => setting.1 = value,
                None => settings.push((name, value)),
            }
        }
        Ok(Self { installation, engine, durability, settings, environment: Vec::new() })
    }

    /// Equal for plans whose servers can use copies of the same data directory: same system, version
    /// and engine, and same values of the settings that affect the format on disk.
    #[must_use]
    pub fn data_kind(&self) -> String {
        let Installation { system, version, .. } = &self.installation;
        let mut words = vec![system.name().to_owned(), version.clone()];
        words.extend(self.engine.map(|engine| engine.name().to_owned()));
        for name in server_program(*system).facts().format_settings {
            // Without a value the server's default applies, which depends on the version only.
            if let Some(value) = self.setting(name) {
                words.push(format!("{name}={value}"));
            }
        }
        words.join(" ")
    }
}

/// Checks settings of a private server that is not compiled yet.
///
/// # Errors
/// A setting is reserved, or cannot be written into a configuration file.
pub fn check_settings(
    system: ServerSystem,
    overrides: &[(String, String)],
) -> Result<(), ServerError> {
    let program = server_program(system);
    overrides.iter().try_for_each(|(name, value)| check_override(program, name, value).map(drop))
}

/// The given engine, or the system's default.
fn check_engine(
    system: ServerSystem,
    engine: Option<StorageEngine>,
) -> Result<Option<StorageEngine>, ServerError> {
    let all = system.storage_engines();
    match engine {
        None => Ok(all.first().copied()),
        Some(engine) if all.contains(&engine) => Ok(Some(engine)),
        Some(engine) => Err(ServerError::Setting {
            name: "engine".to_owned(),
            reason: format!("{} has no storage engine {}", system.title(), engine.name()),
        }),
    }
}

/// The canonical name of the setting.
fn check_override(
    program: &dyn ServerProgram,
    name: &str,
    value: &str,
) -> Result<String, ServerError> {
    let refused =
        |reason: &str| ServerError::Setting { name: name.to_owned(), reason: reason.to_owned() };
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(valid) {
        return Err(refused("the name of a setting consists of letters, digits, `_`, `-` and `.`"));
    }
    if value.chars().any(char::is_control) {
        return Err(refused("its value contains a line break or another control character"));
    }
    let canonical = program.canonical_name(name);
    if program.facts().reserved.contains(&canonical.as_str()) {
        return Err(refused(
            "dbdyno sets the files, the sockets and the user of a private server itself; leave the \
             setting out",
        ));
    }
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Bytes;

    use super::super::installation::ProgramFiles;
    use super::*;

    fn plan(
        engine: Option<StorageEngine>,
        overrides: &[(&str, &str)],
    ) -> Result<ServerPlan, ServerError> {
        let installation = Installation {
            system: ServerSystem::MariaDb,
            program: "/usr/sbin/mariadbd".into(),
            version: "10.11.19-MariaDB".to_owned(),
            file_size: Bytes::from_mib(25),
            sha256: "0".repeat(64),
            files: ProgramFiles {
                init_program: "/usr/bin/mariadb-install-db".into(),
                plugin_dir: None,
            },
        };
        let overrides = overrides.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let shape = DataShape { tables: 8, rows: 10_000_000, clients: 24 };
        ServerPlan::new(installation, engine, Durability::Relaxed, overrides.collect(), shape)
    }

    #[test]
    fn buffer_pool_is_larger_than_the_data() {
        let plan = plan(None, &[]).unwrap();
        // 80 million rows of 250 bytes are 18.6 GiB.
        assert_eq!(plan.setting("innodb_buffer_pool_size"), Some("28800M"));
        assert_eq!(plan.setting("innodb_flush_log_at_trx_commit"), Some("2"));
        assert_eq!(plan.engine(), Some(StorageEngine::InnoDb));
    }

    #[test]
    fn override_replaces_or_adds_a_setting() {
        let overrides = [("innodb-buffer-pool-size", "1G"), ("innodb_adaptive_hash_index", "ON")];
        let plan = plan(None, &overrides).unwrap();
        let of = |name| plan.settings().iter().filter(move |(known, _)| known == name).count();
        assert_eq!(plan.setting("innodb_buffer_pool_size"), Some("1G"));
        assert_eq!(plan.setting("innodb_adaptive_hash_index"), Some("ON"));
        assert_eq!((of("innodb_buffer_pool_size"), of("innodb_adaptive_hash_index")), (1, 1));
    }

    #[test]
    fn reserved_settings_cannot_be_overridden() {
        for name in ["datadir", "SOCKET", "skip-networking", "plugin-dir", "loose-port", "dat"] {
            let error = plan(None, &[(name, "x")]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("leave the setting out"), "{error}");
        }
    }

    #[test]
    fn overrides_cannot_inject_lines() {
        assert!(plan(None, &[("max_connections", "9\ndatadir=/etc")]).is_err());
        assert!(plan(None, &[("a=1\ndatadir", "/etc")]).is_err());
        assert!(plan(None, &[("!include", "/etc/passwd")]).is_err());
        assert!(plan(None, &[("", "")]).is_err());
    }

    #[test]
    fn data_kind_depends_on_engine_and_format_settings_only() {
        let kind = |engine, overrides: &[_]| plan(Some(engine), overrides).unwrap().data_kind();
        let innodb = kind(StorageEngine::InnoDb, &[]);
        assert_eq!(innodb, kind(StorageEngine::InnoDb, &[("innodb_buffer_pool_size", "1G")]));
        assert_ne!(innodb, kind(StorageEngine::InnoDb, &[("innodb_page_size", "8K")]));
        assert_ne!(innodb, kind(StorageEngine::MyRocks, &[]));
    }
}
