//! A server program with its settings, and what is derived from them.

use dbdyno_types::server::{Durability, ServerSystem, SettingDefaults, StorageEngine};
use dbdyno_types::settings::of_version;
use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::systems::server_program;
use super::{Installation, ServerError};
use crate::in_force::{is_same_value, parse_number};

/// Amount of data and number of clients; determines the sizes of caches and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataShape {
    pub tables: u32,
    pub rows: u64,
    pub clients: u32,
}

impl DataShape {
    /// Size of all tables at this size of a row with its index entries.
    pub(crate) fn data_bytes(self, row_bytes: u64) -> u64 {
        let rows = self.rows.saturating_mul(self.tables.into());
        rows.saturating_mul(row_bytes).min(LARGEST_SIZE)
    }
}

/// A server program and the settings it runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerPlan {
    pub(super) installation: Installation,
    pub(super) engine: Option<StorageEngine>,
    pub(super) durability: Durability,
    pub(super) defaults: SettingDefaults,
    pub(super) settings: Vec<(String, String)>,
    /// The canonical names of the settings that the candidate sets.
    pub(super) own: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
}

impl ServerPlan {
    /// Sets the environment of the server and of the program that creates its data, which is empty
    /// otherwise. Instrumented programs need it.
    pub fn with_environment(self, environment: Vec<(String, String)>) -> Self {
        Self { environment, ..self }
    }

    /// All settings that differ from the server's defaults, except paths and sockets.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The storage engine; `None` if the system has no choice of engines.
    pub fn engine(&self) -> Option<StorageEngine> {
        self.engine
    }

    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Whose values the settings have that the candidate does not set.
    pub fn defaults(&self) -> SettingDefaults {
        self.defaults
    }

    /// The settings that the candidate sets: canonical names and values.
    pub fn own_settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(|(name, _)| self.own.iter().any(|own| own == name))
    }

    /// dbdyno's own values of settings that make benchmarks differ from the server's defaults.
    pub fn notable_defaults(&self) -> Vec<(String, String)> {
        let notable = server_program(self.installation.system).facts().notable;
        let is_dbdynos = |name: &str| !self.own.iter().any(|own| own == name);
        let value = |name: &&str| Some(((*name).to_owned(), self.setting(name)?.to_owned()));
        notable.iter().filter(|name| is_dbdynos(name)).filter_map(value).collect()
    }

    /// The canonical name of a setting.
    pub fn canonical_name(&self, name: &str) -> String {
        (server_program(self.installation.system).facts().canonical_name)(name)
    }

    /// The names of the settings with the sizes of caches of the engine's data.
    pub fn cache_settings(&self) -> impl Iterator<Item = &'static str> {
        let caches = server_program(self.installation.system).facts().caches.iter();
        caches.filter(|cache| cache.engines.contains(&self.engine)).map(|cache| cache.name)
    }

    /// The value of a setting, by its canonical name; `default` is the server's.
    pub(crate) fn setting_or(&self, name: &str, default: &str) -> String {
        self.setting(name).unwrap_or(default).to_owned()
    }

    /// The value of a setting, by its canonical name.
    pub fn setting(&self, name: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|(known, _)| known == name);
        setting.map(|(_, value)| value.as_str())
    }
}

/// A property of a server and its value.
pub type Property = (&'static str, String);

pub(crate) const DURABILITY: &str = "durability of a commit";
pub(crate) const CHARACTERS: &str = "character set";
pub(crate) const CHECKSUMS: &str = "checksums of pages";
pub(crate) const TORN_PAGES: &str = "protection against torn pages";
pub(crate) const ISOLATION: &str = "isolation";

/// The names of [`ServerPlan::properties`].
pub const PROPERTIES: [&str; 5] = [DURABILITY, CHARACTERS, CHECKSUMS, TORN_PAGES, ISOLATION];

/// The durability of a commit with these values: its name if all are the values of one, else the values. `of` has
/// each setting's value, and its values for relaxed and strict durability.
pub(crate) fn durability_of(of: &[(&str, String, [&str; 2])]) -> Property {
    let is = |index: usize| of.iter().all(|(_, value, by)| is_same_value(value, by[index]));
    let values = || of.iter().map(|(name, value, _)| format!("{name} = {value}"));
    let text = match () {
        () if is(0) => Durability::Relaxed.name().to_owned(),
        () if is(1) => Durability::Strict.name().to_owned(),
        () => values().collect::<Vec<_>>().join(", "),
    };
    (DURABILITY, text)
}

/// What default settings depend on.
pub(crate) struct SettingsRequest<'a> {
    pub(crate) installation: &'a Installation,
    pub(crate) engine: Option<StorageEngine>,
    pub(crate) durability: Durability,
    pub(crate) shape: DataShape,
}

impl ServerPlan {
    /// Derives the settings from the shape of the data, then applies `overrides`, which replace
    /// settings or add to them.
    pub fn new(
        installation: Installation,
        engine: Option<StorageEngine>,
        durability: Durability,
        overrides: Vec<(String, String)>,
        shape: DataShape,
    ) -> Result<Self, ServerError> {
        let defaults = SettingDefaults::Dbdyno;
        Self::with_defaults(installation, engine, (defaults, durability), overrides, shape)
    }

    /// The same with the server's own defaults if `defaults` says so: then only what dbdyno cannot run without is
    /// set in addition to the overrides.
    pub fn with_defaults(
        installation: Installation,
        engine: Option<StorageEngine>,
        (defaults, durability): (SettingDefaults, Durability),
        overrides: Vec<(String, String)>,
        shape: DataShape,
    ) -> Result<Self, ServerError> {
        let program = server_program(installation.system);
        let engine = check_engine(installation.system, engine)?;
        let request = SettingsRequest { installation: &installation, engine, durability, shape };
        let mut settings = program.settings(&request);
        if defaults == SettingDefaults::Server {
            let needed = program.facts().needed;
            settings.retain(|(name, value)| {
                let mut needed = needed.iter().filter(|(needed, _)| needed == name);
                needed.any(|(_, enough)| parse_number(value, 1.0).is_none_or(|it| it > *enough))
            });
        }
        let mut valid = Vec::with_capacity(overrides.len());
        for (name, value) in overrides {
            let Some(name) = name_for(&name, &installation.version) else { continue };
            valid.push((check_override(installation.system, name, &value)?, value));
        }
        let own: Vec<String> = valid.iter().map(|(name, _)| name.clone()).collect();
        // The server derives the others of a group from the user's.
        settings.retain(|(name, _)| {
            let mut groups = program.facts().groups.iter();
            groups.all(|group| {
                !group.contains(&name.as_str())
                    || !own.iter().any(|own| group.contains(&own.as_str()))
            })
        });
        for (name, value) in valid {
            match settings.iter_mut().find(|(known, _)| *known == name) {
                Some(setting) => setting.1 = value,
                None => settings.push((name, value)),
            }
        }
        let environment = Vec::new();
        Ok(Self { installation, engine, durability, defaults, settings, own, environment })
    }

    /// The first cache that is larger than the memory of this machine, and may prevent the start.
    pub(crate) fn beyond_memory(&self) -> Option<String> {
        let memory = dbdyno_machine::total_memory()?;
        let caches = server_program(self.installation.system).facts().caches;
        let is_beyond = |(name, value): &&(String, String)| {
            let cache = caches.iter().find(|cache| cache.is_allocated && cache.name == name);
            let size = cache.and_then(|cache| parse_size(value, cache.unit));
            size.is_some_and(|size| size > memory.as_bytes())
        };
        let (name, value) = self.settings.iter().find(is_beyond)?;
        Some(format!("{name} = {value} is more than the memory of this machine, {memory}"))
    }

    /// What may explain a difference in speed between servers with the same statements.
    pub fn properties(&self) -> Vec<Property> {
        (server_program(self.installation.system).facts().properties)(self)
    }

    /// Equal for plans whose servers can use copies of the same data directory: same system, version
    /// and engine, and same values of the settings that affect the format on disk. A server that was
    /// compiled for the run has a source, whose SHA-256 this is, and arguments of its configure tool.
    pub fn data_kind(&self, compiled: Option<(&str, &[String])>) -> String {
        let Installation { system, version, sha256, .. } = &self.installation;
        let mut words = vec![system.name().to_owned(), version.clone()];
        if *system == ServerSystem::PostgreSql {
            let (source, arguments) = compiled.unwrap_or((sha256, &[]));
            let sizes = |word: &&String| word.contains("blocksize") || word.contains("segsize");
            words.extend(arguments.iter().filter(sizes).cloned());
            // The system catalogs may change from commit to commit until the release.
            if ["devel", "alpha", "beta", "rc"].iter().any(|word| version.contains(word)) {
                words.push(source.to_owned());
            }
        }
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
pub fn check_settings(
    system: ServerSystem,
    overrides: &[(String, String)],
) -> Result<(), ServerError> {
    let mut overrides = overrides.iter().map(|(name, value)| (of_version(name).1, value));
    overrides.try_for_each(|(name, value)| check_override(system, name, value).map(drop))
}

/// The name of a setting. `None` if it is for another version only.
fn name_for<'n>(name: &'n str, version: &str) -> Option<&'n str> {
    let (Some(only), name) = of_version(name) else { return Some(name) };
    let rest = version.strip_prefix(only)?;
    (!rest.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
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
        Some(engine) => {
            let reason = format!("{} has no storage engine {}", system.title(), engine.name());
            Err(ServerError::setting("engine", reason))
        }
    }
}

/// Settings that name files which a server changes, and lists of files of which it removes old ones.
const LOGS: [&str; 4] = ["log_bin", "log_bin_index", "relay_log", "relay_log_index"];

/// The canonical name of the setting.
fn check_override(system: ServerSystem, name: &str, value: &str) -> Result<String, ServerError> {
    let refused = |reason: &str| ServerError::setting(name, reason);
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(valid) {
        return Err(refused("the name of a setting consists of letters, digits, `_`, `-` and `.`"));
    }
    if value.chars().any(char::is_control) {
        return Err(refused("its value contains a line break or another control character"));
    }
    let canonical = (server_program(system).facts().canonical_name)(name);
    if matches!(canonical.as_str(), "default_storage_engine" | "storage_engine") {
        return Err(refused(
            "the storage engine is a key of the candidate, not a setting: `engine = \"innodb\"` or \
             `engine = \"myrocks\"`, and in words such as `mariadb:engine=myrocks`",
        ));
    }
    if LOGS.contains(&canonical.as_str()) && value.contains('/') {
        return Err(refused(
            "its path may be another server's, whose log would change, and the control would share it; \
             give a name without a directory",
        ));
    }
    if system.reserved_setting(name).is_some() {
        return Err(refused(
            "dbdyno sets the files, the sockets and the user of a private server itself; leave the \
             setting out",
        ));
    }
    Ok(canonical)
}

/// Log volume of a busy server per second, full-page images excluded: tens of thousands of changes.
const LOG_BYTES_PER_SECOND: u64 = 10 << 20;

/// The approximate disk space of one private server after it has been used for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEstimate {
    /// Tables and their indexes.
    pub tables: Bytes,
    /// Write-ahead or redo logs and system tables.
    pub overhead: Bytes,
}

impl DiskEstimate {
    /// The estimate for data of this shape and the candidate's own settings. `writing` is the time
    /// that is written between two settled states; zero for read-only data.
    pub fn of(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        shape: DataShape,
        configuration: &[(String, String)],
        writing: Nanos,
    ) -> Self {
        let request = DiskRequest { engine, shape, configuration, writing };
        let (tables, overhead) = server_program(system).disk(&request);
        Self { tables: Bytes::from_bytes(tables), overhead: Bytes::from_bytes(overhead) }
    }

    pub fn total(self) -> Bytes {
        self.tables + self.overhead
    }
}

/// What the disk space depends on.
pub(crate) struct DiskRequest<'a> {
    pub(crate) engine: Option<StorageEngine>,
    pub(crate) shape: DataShape,
    configuration: &'a [(String, String)],
    pub(crate) writing: Nanos,
}

impl DiskRequest<'_> {
    /// The candidate's own value of a setting with this canonical name. A number without a unit is in units of `unit`
    /// bytes.
    pub(crate) fn own_size(
        &self,
        name: &str,
        canonical_name: fn(&str) -> String,
        unit: f64,
    ) -> Option<u64> {
        let mut settings = self.configuration.iter().rev();
        let (_, value) = settings.find(|(known, _)| canonical_name(of_version(known).1) == name)?;
        parse_size(value, unit)
    }

    /// The volume of logs that are written between two settled states.
    pub(crate) fn logged(&self) -> u64 {
        (self.writing.as_nanos() / 1_000_000_000).saturating_mul(LOG_BYTES_PER_SECOND)
    }
}

/// A size in bytes; `None` if it is not one.
fn parse_size(value: &str, unit: f64) -> Option<u64> {
    let bytes = parse_number(value.trim(), unit)?;
    (0.0..=LARGEST_SIZE as f64).contains(&bytes).then_some(bytes as u64)
}

/// No machine has so many bytes, and two of them can be added.
const LARGEST_SIZE: u64 = 1 << 62;

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
            file_state: Default::default(),
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
    fn server_defaults_leave_only_what_is_needed_and_asked_for() {
        let dbdynos = plan(None, &[]).unwrap();
        let names = |clients, overrides: &[(&str, &str)]| {
            let overrides =
                overrides.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let shape = DataShape { tables: 8, rows: 10_000_000, clients };
            let defaults = (SettingDefaults::Server, Durability::Strict);
            let installation = dbdynos.installation.clone();
            let plan =
                ServerPlan::with_defaults(installation, None, defaults, overrides.collect(), shape);
            plan.unwrap().settings
        };
        assert_eq!(names(24, &[]), [("max_prepared_stmt_count".to_owned(), u32::MAX.to_string())]);
        assert!(names(2000, &[]).contains(&("max_connections".to_owned(), "2064".to_owned())));
        let own = names(24, &[("innodb_doublewrite", "OFF")]);
        assert_eq!(own[1], ("innodb_doublewrite".to_owned(), "OFF".to_owned()));
        let notable: Vec<String> =
            dbdynos.notable_defaults().into_iter().map(|(name, _)| name).collect();
        assert!(notable.contains(&"innodb_flush_log_at_trx_commit".to_owned()), "{notable:?}");
    }

    #[test]
    fn durability_is_that_of_the_values() {
        let of = |overrides: &[_]| plan(None, overrides).unwrap().properties()[0].1.clone();
        let name = "innodb_flush_log_at_trx_commit";
        assert_eq!(of(&[]), "relaxed");
        assert_eq!(of(&[(name, "1")]), "strict");
        assert_eq!(of(&[(name, "0")]), "innodb_flush_log_at_trx_commit = 0");
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
    fn caches_are_those_of_the_data_of_the_engine() {
        let caches =
            |engine| -> Vec<&str> { plan(Some(engine), &[]).unwrap().cache_settings().collect() };
        assert_eq!(caches(StorageEngine::InnoDb), ["innodb_buffer_pool_size"]);
        assert_eq!(caches(StorageEngine::MyRocks), ["rocksdb_block_cache_size"]);
    }

    #[test]
    fn cache_beyond_the_memory_is_named() {
        let beyond =
            |size: &str| plan(None, &[("innodb_buffer_pool_size", size)]).unwrap().beyond_memory();
        assert_eq!(beyond("64M"), None);
        let planner = [("effective_cache_size".to_owned(), "8000TB".to_owned())];
        let server = plan(None, &[]).unwrap();
        let installation = Installation { system: ServerSystem::PostgreSql, ..server.installation };
        let shape = DataShape { tables: 1, rows: 1, clients: 1 };
        let planner =
            ServerPlan::new(installation, None, Durability::Relaxed, planner.to_vec(), shape);
        assert_eq!(planner.unwrap().beyond_memory(), None, "not allocated");
        let reason = beyond("8000T").unwrap();
        assert!(
            reason.starts_with("innodb_buffer_pool_size = 8000T is more than the memory"),
            "{reason}"
        );
    }

    #[test]
    fn settings_for_one_version_are_for_no_other() {
        let overrides = [
            ("10.11/innodb_io_capacity", "7"),
            ("10.1/innodb_io_capacity", "8"),
            ("11.4/sort_buffer_size", "1M"),
        ];
        let plan = plan(None, &overrides).unwrap();
        assert_eq!(plan.setting("innodb_io_capacity"), Some("7"));
        assert_eq!(plan.setting("sort_buffer_size"), None);
    }

    #[test]
    fn settings_that_belong_together_are_left_to_the_server_if_one_is_given() {
        for (own, left) in [
            (("character-set-server", "utf8mb4"), "collation_server"),
            (("collation_server", "utf8mb4_bin"), "character_set_server"),
            (("innodb_io_capacity", "10000"), "innodb_io_capacity_max"),
            (("query_cache_size", "16M"), "query_cache_type"),
        ] {
            let with_own = plan(None, &[own]).unwrap();
            assert_eq!(with_own.setting(left), None, "{own:?}");
            assert!(plan(None, &[]).unwrap().setting(left).is_some(), "{left}");
            assert!(with_own.settings().iter().any(|(_, value)| value == own.1), "{own:?}");
        }
        let characters = |own| {
            plan(None, &[own]).unwrap().properties().into_iter().find(|it| it.0 == CHARACTERS)
        };
        assert_eq!(characters(("collation_server", "utf8mb4_bin")).unwrap().1, "utf8mb4");
    }

    #[test]
    fn storage_engine_is_a_key_of_the_candidate() {
        for name in ["default_storage_engine", "default-storage-engine", "storage_engine"] {
            let error = plan(None, &[(name, "ROCKSDB")]).unwrap_err().to_string();
            assert!(error.contains("engine = \"myrocks\""), "{error}");
        }
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
        // Another server may have its logs there.
        assert!(plan(None, &[("log-bin", "/var/log/mysql/mysql-bin")]).is_err());
        assert!(plan(None, &[("log_bin", "mysql-bin")]).is_ok());
    }

    #[test]
    fn data_kind_depends_on_engine_and_format_settings_only() {
        let kind = |engine, overrides: &[_]| plan(Some(engine), overrides).unwrap().data_kind(None);
        let innodb = kind(StorageEngine::InnoDb, &[]);
        assert_eq!(innodb, kind(StorageEngine::InnoDb, &[("innodb_buffer_pool_size", "1G")]));
        assert_ne!(innodb, kind(StorageEngine::InnoDb, &[("innodb_page_size", "8K")]));
        // Pages and statistics are made when the data is loaded.
        assert_ne!(innodb, kind(StorageEngine::InnoDb, &[("innodb-fill-factor", "50")]));
        assert_ne!(innodb, kind(StorageEngine::InnoDb, &[("histogram_size", "0")]));
        assert_ne!(innodb, kind(StorageEngine::InnoDb, &[("default_table_encryption", "ON")]));
        assert_ne!(innodb, kind(StorageEngine::MyRocks, &[]));
    }

    #[test]
    fn postgresql_of_one_version_can_have_several_formats() {
        let kind = |version: &str, sha256: &str, compiled: Option<(&str, &[&str])>| {
            let installation = Installation {
                system: ServerSystem::PostgreSql,
                version: version.to_owned(),
                sha256: sha256.to_owned(),
                ..plan(None, &[]).unwrap().installation
            };
            let shape = DataShape { tables: 1, rows: 1, clients: 1 };
            let plan = ServerPlan::new(installation, None, Durability::Relaxed, vec![], shape);
            let arguments: Vec<String> =
                compiled.iter().flat_map(|(_, words)| *words).map(|&word| word.into()).collect();
            plan.unwrap().data_kind(compiled.map(|(source, _)| (source, arguments.as_slice())))
        };
        assert_eq!(kind("18.1", "1", None), kind("18.1", "2", None));
        assert_ne!(kind("19devel", "1", None), kind("19devel", "2", None));
        assert_ne!(kind("19beta2", "1", None), kind("19beta2", "2", None));
        // Variants of one source can share data.
        let variant = |program, argument| kind("19devel", program, Some(("source", &[argument])));
        assert_eq!(variant("1", "--with-lz4"), variant("2", "--without-icu"));
        assert_ne!(variant("1", "--with-blocksize=8"), variant("1", "--with-blocksize=32"));
    }

    const MIB: u64 = 1 << 20;

    const SMALL: DataShape = DataShape { tables: 1, rows: 100_000, clients: 1 };
    const LARGE: DataShape = DataShape { tables: 8, rows: 10_000_000, clients: 1 };

    fn mib(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        shape: DataShape,
        own: &[(&str, &str)],
        seconds: u64,
    ) -> (u64, u64) {
        let own: Vec<(String, String)> =
            own.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let estimate = DiskEstimate::of(system, engine, shape, &own, Nanos::from_secs(seconds));
        (estimate.tables.as_bytes() / MIB, estimate.overhead.as_bytes() / MIB)
    }

    #[test]
    fn redo_log_has_a_minimum_size() {
        let innodb = |shape, own: &[_]| {
            mib(ServerSystem::MariaDb, Some(StorageEngine::InnoDb), shape, own, 60)
        };
        assert_eq!(innodb(SMALL, &[]), (23, 256 + 32 + 64));
        assert_eq!(innodb(LARGE, &[]), (19_073, 4_096 + 32 + 64));
        assert_eq!(innodb(SMALL, &[("innodb-log-file-size", "1G")]), (23, 1_024 + 32 + 64));
        let own = [("innodb_log_file_size", "67108864")];
        let mysql = mib(ServerSystem::MySql, Some(StorageEngine::InnoDb), SMALL, &own, 60);
        assert_eq!(mysql, (23, 2 * 64 + 200));
        let myrocks = mib(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), SMALL, &[], 60);
        assert_eq!(myrocks, (23, 96 + 256 + 32));
        let myrocks = mib(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), SMALL, &[], 3);
        assert_eq!(myrocks, (23, 96 + 53 + 32));
    }

    #[test]
    fn write_ahead_log_grows_with_writes() {
        let of =
            |shape, own: &[_], seconds| mib(ServerSystem::PostgreSql, None, shape, own, seconds);
        assert_eq!(of(SMALL, &[], 0), (25, 80 + 40));
        assert_eq!(of(SMALL, &[], 3), (51, 81 + 40));
        assert_eq!(of(SMALL, &[], 600), (51, 1_024 + 40));
        assert_eq!(of(LARGE, &[], 600), (41_198, 8_192 + 40));
        for limit in ["128MB", "128", "131072 kB", "134217728B"] {
            assert_eq!(of(SMALL, &[("max_wal_size", limit)], 600), (51, 128 + 40), "{limit}");
        }
    }
}
