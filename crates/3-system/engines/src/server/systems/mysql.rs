use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dbdyno_types::server::{ServerSystem, StorageEngine, Target};

use super::super::access::ServerCertificate;
use super::super::error::system;
use super::super::installation::ProgramFiles;
use super::super::launcher::{Launcher, program_output};
use super::super::plan::{DiskRequest, Property, SettingsRequest};
use super::super::systems::{ProgramFacts, ServerProgram};
use super::super::{Network, ServerDir, ServerError, ServerPlan};
use super::mysql_config::{
    self as common, MYROCKS_PLUGIN, SettingsList, base_dir, has_plugin, option, version_numbers,
};
use super::mysql_versions::{Creation, OLDEST, OLDEST_ON_NETWORK, VersionFacts};
use super::{supported, write_config};

/// MySQL and compatible forks: Percona Server, Facebook's MySQL with MyRocks.
///
/// Tested with MySQL 9.7, 8.0 and 5.6. Other versions and the forks are written from their documentation.
pub(crate) struct MySql;

/// The dictionary, undo and temporary tablespaces, and the doublewrite buffer.
const INITIAL: u64 = 200 << 20;

/// Limit for creating a data directory, which usually takes about ten seconds.
const INITIALISE_TIMEOUT: Duration = Duration::from_secs(600);

impl ServerProgram for MySql {
    fn facts(&self) -> ProgramFacts {
        ProgramFacts {
            names: &["mysqld"],
            package: "mysql-community-server, from MySQL's own repository",
            // MariaDB's releases since 10.4 have it as well as `mysqld`; older ones tell by their version.
            not_beside: Some("mariadbd"),
            public_key: Some("public_key.pem"),
            properties,
            ..common::FACTS
        }
    }

    fn version(&self, printed: &str) -> Result<String, String> {
        match common::version_word(printed) {
            Some(version) if version.contains("MariaDB") => Err(format!(
                "it is MariaDB {version}; use the system mariadb, or set the path of MySQL's program in \
                 the experiment (Debian's mysqld is a link to MariaDB's)"
            )),
            version => supported(printed, version, |it| version_numbers(it) < OLDEST.0, OLDEST.1),
        }
    }

    fn files(
        &self,
        program: &Path,
        engine: Option<StorageEngine>,
    ) -> Result<ProgramFiles, ServerError> {
        let base = base_dir(program);
        let plugin_dir = ["lib/plugin", "lib/mysql/plugin", "lib64/mysql/plugin"]
            .iter()
            .map(|inner| base.join(inner))
            .find(|directory| directory.is_dir());
        let files = ProgramFiles { init_program: program.to_owned(), plugin_dir };
        if engine == Some(StorageEngine::MyRocks)
            && !has_plugin(&files)
            && !help(program)?.contains("--rocksdb-block-cache-size")
        {
            let reason = "it has no MyRocks; Percona Server, Facebook's MySQL and MariaDB have \
                          (Debian: apt install mariadb-plugin-rocksdb)";
            return Err(ServerError::unsuitable(program, ServerSystem::MySql, reason));
        }
        Ok(files)
    }

    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        let facts = VersionFacts::of(&request.installation.version);
        let mut settings = SettingsList(common::settings(request, facts.most_prepared));
        if request.engine != Some(StorageEngine::MyRocks) {
            let size = common::redo_log_part(request.shape, facts.redo_log_files.unwrap_or(1));
            match facts.redo_log_files {
                None => settings.add("innodb_redo_log_capacity", size),
                Some(files) => {
                    settings.add("innodb_log_files_in_group", files);
                    settings.add("innodb_log_file_size", size);
                }
            }
        }
        let (charset, collation) = facts.charset;
        settings.add_charset(charset, collation);
        // On by default since 8.0; MariaDB's is off.
        settings.add("skip_log_bin", "ON");
        if facts.has_query_cache {
            settings.add("query_cache_type", "OFF");
            settings.add("query_cache_size", 0);
        }
        settings.0
    }

    fn disk(&self, request: &DiskRequest<'_>) -> (u64, u64) {
        let (tables, logs) = common::disk(request, 2);
        (tables, logs + INITIAL)
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let doing = "creating MySQL's data directory";
        let file = common::write_init_config(plan, server_dir, &fixed(plan, server_dir))?;
        let (option, input) = match facts(plan).creation {
            Creation::Initialize => ("--initialize-insecure", Stdio::null()),
            Creation::Bootstrap => {
                let script = server_dir.path().join("bootstrap.sql");
                write_config(&script, &bootstrap_script(plan)?)?;
                let input = File::open(&script).map_err(system("reading", &script))?;
                ("--bootstrap", input.into())
            }
        };
        let command = init_command(plan, &file, option);
        launcher.run(doing, command, input, INITIALISE_TIMEOUT)
    }

    fn command(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        network: Option<&Network>,
        certificate: Option<&ServerCertificate>,
    ) -> Result<Command, ServerError> {
        let mut fixed = fixed(plan, server_dir);
        fixed.extend(engine_settings(plan));
        common::command(plan, server_dir, &fixed, network, certificate)
    }

    fn check_network(&self, plan: &ServerPlan) -> Result<(), ServerError> {
        common::check_network(plan, OLDEST_ON_NETWORK, "login that is safe over a network")
    }

    fn admit(&self, target: &Target, network: &Network) -> Result<(), dbdyno_drivers::Error> {
        common::admit(target, network, "WITH caching_sha2_password AS")
    }
}

fn facts(plan: &ServerPlan) -> VersionFacts {
    VersionFacts::of(&plan.installation.version)
}

fn properties(plan: &ServerPlan) -> Vec<Property> {
    common::properties(plan, facts(plan).checksums)
}

/// The command that creates a data directory. Root's password is empty; the socket is private.
fn init_command(plan: &ServerPlan, file: &Path, creation: &str) -> Command {
    let mut command = Command::new(&plan.installation.files.init_program);
    // The file must be the first option.
    command.arg(option("--defaults-file=", file)).arg(creation);
    command
}

/// The scripts that create the system tables, with accounts, before `--initialize`.
const SYSTEM_TABLES: [&str; 2] = ["mysql_system_tables.sql", "mysql_system_tables_data.sql"];

/// Leaves the same account as `--initialize-insecure`: the scripts also create anonymous ones, and roots of other
/// addresses, all without passwords, and rights of everybody on the schema `test`.
const ONE_ACCOUNT: &str = "DELETE FROM user WHERE User <> 'root' OR Host <> 'localhost';\n\
    DELETE FROM proxies_priv WHERE Host <> 'localhost';\nDELETE FROM db;\n";

/// The input of `--bootstrap`: statements that end with their lines. The first that fails ends the program.
fn bootstrap_script(plan: &ServerPlan) -> Result<String, ServerError> {
    let base = base_dir(&plan.installation.program);
    let share = scripts_dir(&base).ok_or_else(|| {
        let [name, _] = SYSTEM_TABLES;
        let what = format!("{name}, with which MySQL's data directory is created,");
        let searched = format!("searched share and share/mysql in {}", base.display());
        ServerError::not_installed(&what, &searched, MySql.facts().package, "")
    })?;
    let mut script = "CREATE DATABASE mysql;\nUSE mysql;\n".to_owned();
    for name in SYSTEM_TABLES {
        let file = share.join(name);
        script.push_str(&fs::read_to_string(&file).map_err(system("reading", &file))?);
        script.push('\n');
    }
    script.push_str(ONE_ACCOUNT);
    Ok(script)
}

fn scripts_dir(base: &Path) -> Option<PathBuf> {
    let all = ["share", "share/mysql"].map(|inner| base.join(inner));
    all.into_iter().find(|share| share.join(SYSTEM_TABLES[0]).is_file())
}

/// Settings that are not shown: paths and network.
fn fixed(plan: &ServerPlan, server_dir: &ServerDir) -> Vec<(&'static str, String)> {
    let facts = facts(plan);
    let mut fixed = common::install_dirs(plan);
    // The compiled-in default is a directory that must exist.
    let files = match facts.can_forbid_files {
        true => "NULL".to_owned(),
        false => server_dir.temporary().to_string_lossy().into_owned(),
    };
    fixed.push(("secure_file_priv", files));
    if facts.has_x_protocol {
        // The X protocol has its own port and socket. Servers that were compiled without it do not know
        // the setting.
        fixed.push(("loose_mysqlx", "OFF".to_owned()));
    }
    fixed
}

fn engine_settings(plan: &ServerPlan) -> Vec<(&'static str, String)> {
    if plan.engine != Some(StorageEngine::MyRocks) {
        return vec![("default_storage_engine", "InnoDB".to_owned())];
    }
    let load = if has_plugin(&plan.installation.files) {
        // All plugins of the library: figures are read from those with its statistics.
        ("plugin_load_add", MYROCKS_PLUGIN.to_owned())
    } else {
        ("rocksdb", "ON".to_owned())
    };
    vec![load, ("default_storage_engine", "ROCKSDB".to_owned())]
}

/// The program's list of options.
fn help(program: &Path) -> Result<String, ServerError> {
    program_output(program, ["--no-defaults", "--verbose", "--help"], MySql.facts().user)
        .map_err(system("running with --help, as the user for servers,", program))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dbdyno_types::server::Durability;
    use dbdyno_units::Bytes;

    use super::super::super::plan::CHECKSUMS;
    use super::super::super::{DataShape, Installation, ServerDirs};
    use super::*;

    fn plan(version: &str, engine: StorageEngine) -> ServerPlan {
        plan_of(ServerSystem::MySql, version, engine)
    }

    fn plan_of(system: ServerSystem, version: &str, engine: StorageEngine) -> ServerPlan {
        let installation = Installation {
            system,
            program: "/opt/mysql/bin/mysqld".into(),
            version: version.to_owned(),
            file_size: Bytes::from_mib(60),
            sha256: "0".repeat(64),
            file_state: Default::default(),
            files: ProgramFiles { init_program: "/opt/mysql/bin/mysqld".into(), plugin_dir: None },
        };
        let shape = DataShape { tables: 8, rows: 10_000_000, clients: 24 };
        ServerPlan::new(installation, Some(engine), Durability::Relaxed, Vec::new(), shape).unwrap()
    }

    fn config(plan: &ServerPlan) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let server_dirs = ServerDirs::open(dir.path()).unwrap();
        let server_dir = server_dirs.server_dir("a");
        fs::create_dir_all(server_dir.path()).unwrap();
        let command = MySql.command(plan, &server_dir, None, None).unwrap();
        let text = fs::read_to_string(server_dir.path().join("my.cnf")).unwrap();
        let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        server_dirs.remove().unwrap();
        (text, args)
    }

    #[test]
    fn version_is_parsed_for_mysql_and_its_forks() {
        let version = |printed| MySql.version(printed);
        let oracle =
            "/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)";
        assert_eq!(version(oracle).unwrap(), "8.0.36");
        let percona =
            "mysqld  Ver 8.0.36-28 for Linux on x86_64 (Percona Server (GPL), Release 28)";
        assert_eq!(version(percona).unwrap(), "8.0.36-28");
        let mariadb = "mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        assert!(version(mariadb).unwrap_err().to_string().contains("it is MariaDB 10.11.19"));
        assert_eq!(version("mysqld  Ver 5.6.35 for Linux").unwrap(), "5.6.35");
        let old = version("mysqld  Ver 5.5.62 for Linux").unwrap_err();
        assert!(old.contains("5.5.62; dbdyno requires 5.6 or later"), "{old}");
        assert!(version("").is_err());
    }

    #[test]
    fn configuration_depends_on_the_version() {
        let (text, args) = config(&plan("8.4.0", StorageEngine::InnoDb));
        assert!(args.len() == 1 && args[0].starts_with("--defaults-file=/"), "{args:?}");
        for line in [
            "innodb_redo_log_capacity = \"4096M\"",
            "loose_mysqlx = \"OFF\"",
            "skip_log_bin = \"ON\"",
            "collation_server = \"utf8mb4_0900_ai_ci\"",
            "skip_networking = \"ON\"",
            "basedir = \"/opt/mysql\"",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("innodb_log_file_size") && !text.contains("query_cache"), "{text}");

        let (text, _) = config(&plan("8.0.28", StorageEngine::InnoDb));
        assert!(text.contains("innodb_log_file_size = \"2048M\""), "{text}");
        assert!(!text.contains("innodb_redo_log_capacity"), "{text}");

        let (text, _) = config(&plan("5.7.44", StorageEngine::InnoDb));
        assert!(!text.contains("mysqlx"), "{text}");
        assert!(text.contains("query_cache_type = \"OFF\""), "{text}");
        assert!(text.contains("character_set_server = \"latin1\""), "{text}");
        assert!(text.contains("secure_file_priv = \"NULL\""), "{text}");

        let (text, _) = config(&plan("5.6.35", StorageEngine::InnoDb));
        assert!(text.contains("secure_file_priv = \"/"), "{text}");
        assert!(text.contains("innodb_log_file_size = \"2048M\""), "{text}");
    }

    #[test]
    fn checksums_of_pages_have_the_default_of_the_version() {
        use ServerSystem::{MariaDb, MySql};
        for (system, version, expected) in [
            (MySql, "5.6.35", "innodb"),
            (MySql, "5.7.44", "crc32"),
            (MySql, "9.7.4", "crc32"),
            (MariaDb, "10.4.34-MariaDB", "crc32"),
            (MariaDb, "10.11.6-MariaDB", "full_crc32"),
        ] {
            let properties = plan_of(system, version, StorageEngine::InnoDb).properties();
            let found = properties.iter().find(|(name, _)| *name == CHECKSUMS).unwrap();
            assert_eq!(found.1, expected, "{version}");
        }
    }

    #[test]
    fn old_versions_are_refused_on_hosts() {
        use ServerSystem::{MariaDb, MySql};
        let checked = |system, version: &str| {
            let plan = plan_of(system, version, StorageEngine::InnoDb);
            super::super::server_program(system).check_network(&plan)
        };
        for (system, version) in [(MySql, "8.0.4"), (MariaDb, "10.4.6-MariaDB")] {
            checked(system, version).unwrap();
        }
        for (system, version, expected) in [
            (
                MySql,
                "5.7.44",
                "MySQL 5.7.44 has no login that is safe over a network; one comes with 8.0.4",
            ),
            (
                MariaDb,
                "10.2.11-MariaDB",
                "MariaDB 10.2.11-MariaDB has no TLS library that is new enough",
            ),
        ] {
            let error = checked(system, version).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn built_in_myrocks_is_enabled() {
        let (text, _) = config(&plan("8.0.32", StorageEngine::MyRocks));
        assert!(text.contains("rocksdb = \"ON\""), "{text}");
        assert!(text.contains("default_storage_engine = \"ROCKSDB\""), "{text}");
        assert!(text.contains("rocksdb_block_cache_size = \"28800M\""), "{text}");
        assert!(!text.contains("plugin_load_add"), "{text}");
    }

    #[test]
    fn program_without_myrocks_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        // Another user runs it if the tests run as root.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = |name: &str, option: &str| {
            let program = dir.path().join(name);
            // A file that this process may have open for writing cannot be executed.
            let write = "printf '#!/bin/sh\\necho %s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
            let written =
                Command::new("sh").args(["-c", write, "sh", option]).arg(&program).status();
            assert!(written.unwrap().success());
            MySql.files(&program, Some(StorageEngine::MyRocks))
        };
        program("facebook", "--rocksdb-block-cache-size=#").unwrap();
        let error = program("oracle", "--innodb-buffer-pool-size=#").unwrap_err().to_string();
        assert!(error.contains("it has no MyRocks; Percona Server, Facebook's MySQL"), "{error}");
    }

    #[test]
    fn init_command_sets_no_password() {
        let plan = plan("8.4.0", StorageEngine::InnoDb);
        let command = init_command(&plan, Path::new("/a/b.cnf"), "--initialize-insecure");
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["--defaults-file=/a/b.cnf", "--initialize-insecure"]);
    }

    #[test]
    fn bootstrap_executes_the_scripts_and_leaves_one_account() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan("5.6.35", StorageEngine::InnoDb);
        plan.installation.program = dir.path().join("bin/mysqld");
        let error = bootstrap_script(&plan).unwrap_err().to_string();
        assert!(error.starts_with("mysql_system_tables.sql, with which"), "{error}");
        let share = dir.path().join("share/mysql");
        fs::create_dir_all(&share).unwrap();
        fs::write(share.join(SYSTEM_TABLES[0]), "CREATE TABLE user (x int);").unwrap();
        fs::write(share.join(SYSTEM_TABLES[1]), "INSERT INTO user VALUES (1);").unwrap();
        let expected = "CREATE DATABASE mysql;\nUSE mysql;\nCREATE TABLE user (x int);\n\
                        INSERT INTO user VALUES (1);\nDELETE FROM user";
        let script = bootstrap_script(&plan).unwrap();
        assert!(script.starts_with(expected), "{script}");
        assert!(script.ends_with(";\n"), "{script}");
    }
}
