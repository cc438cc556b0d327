use dbdyno_record::server::{Durability, ServerSystem, StorageEngine};

use super::program::{Program, SettingsRequest, program};
use super::{Installation, ServerError};

/// How much data a server will hold and how many ask for it: what sizes its caches and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataShape {
    /// Tables.
    pub tables: u32,
    /// Rows per table.
    pub rows: u64,
    /// Connections at work at the same time.
    pub clients: u32,
}

/// A program and the settings it is to run with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlan {
    pub(crate) installation: Installation,
    pub(crate) engine: Option<StorageEngine>,
    pub(crate) durability: Durability,
    pub(crate) shape: DataShape,
    settings: Vec<(String, String)>,
    pub(crate) environment: Vec<(String, String)>,
}

impl ServerPlan {
    /// Makes the settings for this shape of data; `overrides` replace or join them.
    ///
    /// # Errors
    /// The system has no such engine, or an override is of what dbdyno itself sets, or cannot be
    /// written into a configuration file.
    pub fn new(
        installation: Installation,
        engine: Option<StorageEngine>,
        durability: Durability,
        overrides: Vec<(String, String)>,
        shape: DataShape,
    ) -> Result<Self, ServerError> {
        let kind = program(installation.system);
        let engine = checked_engine(installation.system, engine)?;
        let request = SettingsRequest { installation: &installation, engine, durability, shape };
        let mut settings = kind.settings(&request);
        for (name, value) in overrides {
            let normal = checked_name(kind, &name, &value)?;
            match settings.iter_mut().find(|(known, _)| *known == normal) {
                Some(setting) => setting.1 = value,
                None => settings.push((normal, value)),
            }
        }
        let environment = Vec::new();
        Ok(Self { installation, engine, durability, shape, settings, environment })
    }

    /// Adds to the environment of the server and of what makes its data, which is empty otherwise:
    /// for programs that are instrumented.
    #[must_use]
    pub fn with_environment(self, environment: Vec<(String, String)>) -> Self {
        Self { environment, ..self }
    }

    /// Every setting in force beside the server's own defaults, but for those that say where its
    /// files and its socket are.
    #[must_use]
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// The program.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The storage engine; none where the system has only its own.
    #[must_use]
    pub fn engine(&self) -> Option<StorageEngine> {
        self.engine
    }

    /// What a commit promises, as it was asked for.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Equal for two plans whose data directories can be copies of each other: the same system,
    /// version and engine, and the same values of what shapes data on disk.
    #[must_use]
    pub fn data_kind(&self) -> String {
        let kind = program(self.installation.system);
        let mut words =
            vec![self.installation.system.name().to_owned(), self.installation.version.clone()];
        words.extend(self.engine.map(|engine| engine.name().to_owned()));
        for name in kind.shapes_data() {
            // A setting without a value here has the server's default, which the version decides.
            if let Some(value) = self.setting(name) {
                words.push(format!("{name}={value}"));
            }
        }
        words.join(" ")
    }

    /// The value of a setting, by its normal name.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|(known, _)| known == name);
        setting.map(|(_, value)| value.as_str())
    }
}

fn checked_engine(
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

fn checked_name(kind: &dyn Program, name: &str, value: &str) -> Result<String, ServerError> {
    let refused =
        |reason: &str| ServerError::Setting { name: name.to_owned(), reason: reason.to_owned() };
    let writable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(writable) {
        return Err(refused("a setting's name has letters, digits, `_`, `-` and `.` only"));
    }
    if value.chars().any(char::is_control) {
        return Err(refused("its value has a line break or another control character"));
    }
    let normal = kind.normal_name(name);
    if kind.reserved().contains(&normal.as_str()) {
        return Err(refused(
            "dbdyno itself decides where a private server's files and sockets are and who it \
             runs as; leave the setting out",
        ));
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Bytes;

    use super::super::installation::Parts;
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
            parts: Parts { initialiser: "/usr/bin/mariadb-install-db".into(), plugins: None },
        };
        let overrides = overrides.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let shape = DataShape { tables: 8, rows: 10_000_000, clients: 24 };
        ServerPlan::new(installation, engine, Durability::Relaxed, overrides.collect(), shape)
    }

    #[test]
    fn the_cache_holds_the_data_with_room() {
        let plan = plan(None, &[]).unwrap();
        // 80 million rows of 250 bytes are 18.6 GiB.
        assert_eq!(plan.setting("innodb_buffer_pool_size"), Some("28800M"));
        assert_eq!(plan.setting("innodb_flush_log_at_trx_commit"), Some("2"));
        assert_eq!(plan.engine(), Some(StorageEngine::InnoDb));
    }

    #[test]
    fn an_override_replaces_or_joins_a_setting() {
        let overrides = [("innodb-buffer-pool-size", "1G"), ("innodb_adaptive_hash_index", "ON")];
        let plan = plan(None, &overrides).unwrap();
        let of = |name| plan.settings().iter().filter(move |(known, _)| known == name).count();
        assert_eq!(plan.setting("innodb_buffer_pool_size"), Some("1G"));
        assert_eq!(plan.setting("innodb_adaptive_hash_index"), Some("ON"));
        assert_eq!((of("innodb_buffer_pool_size"), of("innodb_adaptive_hash_index")), (1, 1));
    }

    #[test]
    fn what_dbdyno_sets_cannot_be_overridden() {
        for name in ["datadir", "SOCKET", "skip-networking", "plugin-dir", "loose-port", "dat"] {
            let error = plan(None, &[(name, "x")]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("leave the setting out"), "{error}");
        }
    }

    #[test]
    fn nothing_can_be_smuggled_into_a_configuration_file() {
        assert!(plan(None, &[("max_connections", "9\ndatadir=/etc")]).is_err());
        assert!(plan(None, &[("a=1\ndatadir", "/etc")]).is_err());
        assert!(plan(None, &[("!include", "/etc/passwd")]).is_err());
        assert!(plan(None, &[("", "")]).is_err());
    }

    #[test]
    fn data_is_shared_between_plans_that_keep_it_the_same_way() {
        let kind = |engine, overrides: &[_]| plan(Some(engine), overrides).unwrap().data_kind();
        let innodb = kind(StorageEngine::InnoDb, &[]);
        assert_eq!(innodb, kind(StorageEngine::InnoDb, &[("innodb_buffer_pool_size", "1G")]));
        assert_ne!(innodb, kind(StorageEngine::InnoDb, &[("innodb_page_size", "8K")]));
        assert_ne!(innodb, kind(StorageEngine::MyRocks, &[]));
    }
}
