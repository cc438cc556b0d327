//! PostgreSQL: its program, its default settings and its configuration file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dbdyno_drivers::Connection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_machine::Signal;
use dbdyno_types::server::{Address, Durability, StatementMode, StorageEngine, Target, Tls};
use dbdyno_types::settings::postgresql_canonical_name;
use dbdyno_units::Nanos;

use super::super::access::{ACCOUNT, ServerCertificate};
use super::super::error::system;
use super::super::installation::{ProgramFiles, is_executable};
use super::super::launcher::{Launcher, program_output};
use super::super::plan::{DiskRequest, Property, SettingsRequest};
use super::super::postgres_lock::LOCK_FILE;
use super::super::systems::{Cache, ProgramFacts, ReleaseFolders, ServerProgram};
use super::super::{DataShape, Network, ServerDir, ServerError, ServerPlan, plan, postgres_lock};
use super::{supported, write_config};
use crate::postgres::session;
use crate::server_engine::Purpose;

pub(crate) struct Postgres;

const PACKAGE: &str = "postgresql";

/// The unit of cache sizes: a page, in bytes.
const PAGE: f64 = 8192.0;

/// Limit for creating a data directory, which usually takes about a second.
const INITIALISE_TIMEOUT: Duration = Duration::from_secs(300);

/// Debian's directory, with a subdirectory per version.
const DEBIAN_DIR: &str = "/usr/lib/postgresql";

const USER: &str = ACCOUNT;

/// A database that every server has.
const DEFAULT_DATABASE: &str = "postgres";

/// Part of the socket's name only, if the server does not listen on the network.
const PORT: u16 = 5432;

/// The oldest supported version.
const OLDEST: (u32, &str) = (10, "10");

impl ServerProgram for Postgres {
    fn facts(&self) -> ProgramFacts {
        ProgramFacts {
            names: &["postgres"],
            package: PACKAGE,
            user: "postgres",
            // The last three act when data is loaded.
            format_settings: &[
                CHECKSUMS,
                "default_statistics_target",
                "default_table_access_method",
                "default_toast_compression",
            ],
            needed: &[("max_connections", 100.0), ("restart_after_crash", f64::INFINITY)],
            notable: &[
                "jit",
                "fsync",
                "shared_buffers",
                "max_parallel_workers_per_gather",
                "checkpoint_timeout",
                "max_wal_size",
            ],
            caches: &[
                Cache { name: "shared_buffers", unit: PAGE, engines: &[None], is_allocated: true },
                Cache {
                    name: "effective_cache_size",
                    unit: PAGE,
                    engines: &[None],
                    is_allocated: false,
                },
            ],
            groups: &[],
            releases: ReleaseFolders {
                names: &["postgresql"],
                prefixes: &["postgresql-", "pgsql-"],
                packages: &[("usr/lib/postgresql", ""), ("usr", "pgsql-")],
                sandboxes: false,
            },
            not_beside: None,
            processes: &["postgres", "postmaster"],
            database: Some(DEFAULT_DATABASE),
            // Fast shutdown: transactions are aborted, then a checkpoint is written.
            stop_signal: Signal::INT,
            // Immediate shutdown: no checkpoint, but the postmaster ends its children and removes
            // its shared memory, which it cannot when killed.
            death_signal: Signal::QUIT,
            public_key: None,
            search_dirs,
            canonical_name: postgresql_canonical_name,
            properties,
            target,
            is_ready,
        }
    }

    fn version(&self, printed: &str) -> Result<String, String> {
        let mut words = printed.split_whitespace().skip_while(|word| *word != "(PostgreSQL)");
        let version = words.nth(1).filter(|version| session::major_version(version) > 0);
        supported(printed, version, |it| session::major_version(it) < OLDEST.0, OLDEST.1)
    }

    fn files(&self, program: &Path, _: Option<StorageEngine>) -> Result<ProgramFiles, ServerError> {
        let init_program = program.with_file_name("initdb");
        if !is_executable(&init_program) {
            let what = "initdb, which creates PostgreSQL's data directory,";
            let searched = format!("searched the directory of {}", program.display());
            return Err(ServerError::not_installed(what, &searched, PACKAGE, ""));
        }
        Ok(ProgramFiles { init_program, plugin_dir: None })
    }

    /// Default settings: the data fits in memory, and costs are comparable with other systems'.
    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        // Updates leave old row versions until they are vacuumed.
        let buffers = 2 * request.shape.data_bytes(ROW_BYTES) + 128 * MIB;
        let mut settings = Vec::new();
        let mut add = |name: &str, value: String| settings.push((name.to_owned(), value));
        add("max_connections", (request.shape.clients + SPARE_CONNECTIONS).max(100).to_string());
        add("shared_buffers", megabytes(buffers));
        // With `try` the first instance would get all available huge pages and the others none.
        add("huge_pages", "off".to_owned());
        add("effective_cache_size", megabytes(buffers + buffers / 2));
        // Relaxed durability means that a commit survives a crash of the server but not a power cut: it
        // is written to the kernel without waiting for storage. That is fsync = off with
        // synchronous_commit = on. synchronous_commit = off would promise less (a crash of the server
        // loses the last commits) and would move work to another process. The price: a power cut may
        // corrupt the data, while InnoDB and MyRocks lose only the last commits.
        let fsync = match request.durability {
            Durability::Relaxed => "off",
            Durability::Strict => "on",
        };
        add("fsync", fsync.to_owned());
        add("synchronous_commit", "on".to_owned());
        add("full_page_writes", "on".to_owned());
        add(CHECKSUMS, "off".to_owned());
        // Checkpoints by time only, and rarely: dbdyno runs one before each microbenchmark that needs it.
        add("max_wal_size", megabytes(wal_size(request.shape)));
        add("checkpoint_timeout", "30min".to_owned());
        add("default_transaction_isolation", "read committed".to_owned());
        // One CPU per query, like the other systems.
        add("max_parallel_workers_per_gather", "0".to_owned());
        // Compilation takes longer than most of these queries.
        if session::major_version(&request.installation.version) >= session::FIRST_WITH_JIT {
            add("jit", "off".to_owned());
        }
        add("autovacuum", "on".to_owned());
        // A crash must be noticed as such: the server must not restart by itself.
        add("restart_after_crash", "off".to_owned());
        add("log_checkpoints", "on".to_owned());
        add("log_timezone", "UTC".to_owned());
        add("timezone", "UTC".to_owned());
        settings
    }

    fn disk(&self, request: &DiskRequest<'_>) -> (u64, u64) {
        let loaded = request.shape.data_bytes(ROW_BYTES);
        // Updates leave old row versions until they are vacuumed.
        let tables = if request.writing > Nanos::ZERO { 2 * loaded } else { loaded };
        // Without a unit it is in megabytes.
        let limit = request.own_size("max_wal_size", postgresql_canonical_name, MIB as f64);
        // After each checkpoint the first change of a page logs the whole page; a load is logged, too. Log files are reused
        // or removed at checkpoints.
        let log = (tables + request.logged()).min(limit.unwrap_or_else(|| wal_size(request.shape)));
        (tables, log.max(MIN_WAL) + INITIAL)
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let mut command = Command::new(&plan.installation.files.init_program);
        command.arg("--pgdata").arg(server_dir.data());
        command.arg(format!("--username={USER}"));
        // The socket's directory is private, so no password is needed.
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C"]);
        // Copies of the data are synced before they are used.
        command.arg("--no-sync");
        command.args(checksum_option(plan)?);
        let doing = "creating PostgreSQL's data directory";
        launcher.run(doing, command, Stdio::null(), INITIALISE_TIMEOUT)
    }

    fn command(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        network: Option<&Network>,
        certificate: Option<&ServerCertificate>,
    ) -> Result<Command, ServerError> {
        let data = server_dir.data();
        // A lock file left by a killed server prevents the start if its process id was reused.
        postgres_lock::clear(&data).map_err(system("removing", &data.join(LOCK_FILE)))?;
        let file = server_dir.path().join("postgresql.conf");
        let mut settings = vec![
            ("listen_addresses", network.map(|it| it.address.to_string()).unwrap_or_default()),
            ("port", port(network).to_string()),
            ("unix_socket_directories", directory(&server_dir.sockets())),
            ("unix_socket_permissions", "0700".to_owned()),
            // In files of the data directory: segments that a killed server leaves in /dev/shm are
            // never removed. Only parallel queries and large statistics use it.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
        ];
        if let Some(network) = network {
            // Instead of initdb's, which trusts all connections from the machine itself.
            let access = server_dir.path().join("pg_hba.conf");
            write_config(&access, &network_access(USER, network))?;
            settings.push(("hba_file", access.display().to_string()));
        }
        let chosen = plan.settings().iter().filter(|(name, _)| name != CHECKSUMS);
        settings.extend(chosen.map(|(name, value)| (name.as_str(), value.clone())));
        if let Some(ServerCertificate { certificate, key, .. }) = certificate {
            // Last, so that no setting of the user replaces it.
            settings.push(("ssl", "on".to_owned()));
            settings.push(("ssl_cert_file", certificate.display().to_string()));
            settings.push(("ssl_key_file", key.display().to_string()));
        }
        write_config(&file, &text(&settings))?;
        let mut command = Command::new(&plan.installation.program);
        command.arg("-D").arg(data);
        command.arg("-c").arg(format!("config_file={}", file.display()));
        Ok(command)
    }

    fn admit(&self, target: &Target, network: &Network) -> Result<(), dbdyno_drivers::Error> {
        let mut connection = PostgresConnection::connect(target, StatementMode::Text)?;
        session::set_up(&mut connection, Purpose::Administer)?;
        connection.run(&format!("ALTER ROLE {USER} PASSWORD '{}'", network.verifier))
    }
}

fn search_dirs() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    directories.extend(pg_config_bin_dir());
    directories.extend(debian_bin_dirs(Path::new(DEBIAN_DIR)));
    directories.extend(["/usr/local/pgsql/bin", "/usr/local/bin"].map(PathBuf::from));
    directories
}

fn target(server_dir: &ServerDir, network: Option<&Network>) -> Target {
    let socket = format!(".s.PGSQL.{}", port(network));
    Target {
        address: Address::Socket(server_dir.sockets().join(socket)),
        user: USER.to_owned(),
        database: Some(DEFAULT_DATABASE.to_owned()),
        tls: Tls::Off,
        server_public_key: None,
        password: false,
    }
}

fn is_ready(target: &Target) -> bool {
    PostgresConnection::connect(target, StatementMode::Text).is_ok()
}

/// The port, which is also part of the socket's name.
fn port(network: Option<&Network>) -> u16 {
    network.map_or(PORT, |network| network.port)
}

/// initdb's option for page checksums.
fn checksum_option(plan: &ServerPlan) -> Result<Option<&'static str>, ServerError> {
    match plan.setting(CHECKSUMS) {
        // The server's default.
        None => Ok(None),
        Some("on") => Ok(Some("--data-checksums")),
        // Off was the default before version 18, without an option to say so.
        Some("off") if session::major_version(&plan.installation.version) < 18 => Ok(None),
        Some("off") => Ok(Some("--no-data-checksums")),
        Some(other) => {
            let reason = format!("`{other}` is neither `on` nor `off`");
            Err(ServerError::setting(CHECKSUMS, reason))
        }
    }
}

/// The program directory of the version that `pg_config` belongs to.
fn pg_config_bin_dir() -> Option<PathBuf> {
    let text = program_output(Path::new("pg_config"), ["--bindir"], Postgres.facts().user).ok()?;
    let directory = PathBuf::from(text.trim());
    directory.is_absolute().then_some(directory)
}

/// The program directories of all versions, the newest first.
fn debian_bin_dirs(all: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(all) else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .map(|entry| {
            (session::major_version(&entry.file_name().to_string_lossy()), entry.path().join("bin"))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, directory)| directory).collect()
}

const MIB: u64 = 1 << 20;

/// Bytes per row with its two index entries: 264 measured after loading 200,000 rows.
const ROW_BYTES: u64 = 270;

/// Connections in addition to the clients': for settling and snapshots, for the control, for users, and
/// those that PostgreSQL reserves for superusers.
const SPARE_CONNECTIONS: u32 = 64;

/// A property of the data directory, not a setting of the server.
pub(crate) const CHECKSUMS: &str = "data_checksums";

/// Maximum size of the write-ahead log between checkpoints, in bytes.
fn wal_size(shape: DataShape) -> u64 {
    (2 * shape.data_bytes(ROW_BYTES)).clamp(1024 * MIB, 8192 * MIB)
}

/// See [`ServerProgram::properties`](super::ServerProgram::properties).
pub(crate) fn properties(plan: &ServerPlan) -> Vec<Property> {
    let full_pages = plan.setting_or("full_page_writes", "on");
    let value = |name, default| plan.setting_or(name, default);
    let commit = [
        ("fsync", value("fsync", "on"), ["off", "on"]),
        ("synchronous_commit", value("synchronous_commit", "on"), ["on", "on"]),
    ];
    vec![
        plan::durability_of(&commit),
        (plan::CHARACTERS, "UTF8, compared byte by byte".to_owned()),
        (plan::CHECKSUMS, plan.setting_or(CHECKSUMS, "the server's default")),
        (plan::TORN_PAGES, format!("full_page_writes = {full_pages}")),
        (plan::ISOLATION, plan.setting_or("default_transaction_isolation", "read committed")),
    ]
}

/// Size of a new data directory of PostgreSQL 15 without its write-ahead log.
const INITIAL: u64 = 40 * MIB;

/// The default `min_wal_size`, which is kept for reuse.
const MIN_WAL: u64 = 80 * MIB;

pub(crate) fn text(settings: &[(&str, String)]) -> String {
    let mut text = "# Written by dbdyno at each start of the server.\n".to_owned();
    for (name, value) in settings {
        text.push_str(&format!("{name} = '{}'\n", escape(value)));
    }
    text
}

/// The access rules of a server on the network: through the socket, whose directory is private, as any
/// role; from the client as `role`, with a password, and with TLS if the network has it.
pub(crate) fn network_access(role: &str, network: &Network) -> String {
    let Network { client, tls, .. } = network;
    let host = if *tls { "hostssl" } else { "host" };
    let bits = if client.is_ipv4() { 32 } else { 128 };
    format!(
        "# Written by dbdyno at each start of the server.\n\
         local all all trust\n\
         {host} all {role} {client}/{bits} scram-sha-256\n"
    )
}

/// A directory as an entry of a list.
pub(crate) fn directory(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('"', "\"\""))
}

/// Escapes a value for single quotes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\'', "''")
}

fn megabytes(bytes: u64) -> String {
    format!("{}MB", bytes.div_ceil(64 * MIB) * 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed() {
        let version = |printed| Postgres.version(printed);
        let debian = "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)";
        assert_eq!(version(debian), Ok("15.13".to_owned()));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Ok("18beta1".to_owned()));
        assert!(
            version("postgres (PostgreSQL) 9.6.24")
                .unwrap_err()
                .to_string()
                .contains("requires 10")
        );
        assert!(version("mariadbd  Ver 10.11").unwrap_err().to_string().contains("`mariadbd"));
        assert!(version("postgres (PostgreSQL)").is_err());
    }

    #[test]
    fn newest_debian_version_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "17"] {
            std::fs::create_dir(directory.path().join(version)).unwrap();
        }
        let found = debian_bin_dirs(directory.path());
        let expected =
            ["17", "15", "9.6"].map(|version| directory.path().join(version).join("bin"));
        assert_eq!(found, expected);
        assert!(debian_bin_dirs(&directory.path().join("missing")).is_empty());
    }

    #[test]
    fn values_are_quoted() {
        let settings = [("search_path", "\"a'b\"".to_owned()), ("x.y", "c\\d".to_owned())];
        let expected = "# Written by dbdyno at each start of the server.\n\
                        search_path = '\"a''b\"'\nx.y = 'c\\\\d'\n";
        assert_eq!(text(&settings), expected);
        assert_eq!(directory(Path::new("/a, \"b\"")), "\"/a, \"\"b\"\"\"");
    }

    #[test]
    fn network_access_is_for_one_address_with_a_password() {
        let rules = |client: &str, tls: bool| {
            let client = client.parse().unwrap();
            let verifier = String::new();
            network_access("dbdyno", &Network { address: client, port: 1, client, verifier, tls })
        };
        let expected = "# Written by dbdyno at each start of the server.\nlocal all all trust\n\
                        host all dbdyno 10.0.0.1/32 scram-sha-256\n";
        assert_eq!(rules("10.0.0.1", false), expected);
        let encrypted = rules("fd00::1", true);
        assert!(encrypted.ends_with("\nhostssl all dbdyno fd00::1/128 scram-sha-256\n"));
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(1), "64MB");
        assert_eq!(megabytes(64 * MIB), "64MB");
        assert_eq!(megabytes(64 * MIB + 1), "128MB");
    }
}
