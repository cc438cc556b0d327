use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dbdyno_record::server::{ServerSystem, StorageEngine, Target};

use super::error::system;
use super::installation::Parts;
use super::mysql_config::{self as common, Settings, base_directory, numbers, option};
use super::program::{Program, SettingsRequest, write_config};
use super::spawn::{Launcher, clean_environment};
use super::{ServerDir, ServerError, ServerPlan};

/// MySQL and the forks that kept its ways: Percona Server, Facebook's MySQL with MyRocks.
///
/// Written against MySQL's documentation: what is made for it is tested, and the programs
/// themselves are not among Debian's packages.
pub(crate) struct MySql;

/// How long making a data directory may take: some ten seconds where nothing is wrong.
const INITIALISE_LIMIT: Duration = Duration::from_secs(600);

/// MyRocks' file among the plugins, where it is not built in.
const MYROCKS: &str = "ha_rocksdb.so";

impl Program for MySql {
    fn names(&self) -> &'static [&'static str] {
        &["mysqld"]
    }

    fn directories(&self) -> Vec<PathBuf> {
        ["/usr/sbin", "/usr/local/sbin", "/usr/local/mysql/bin", "/usr/libexec"]
            .map(PathBuf::from)
            .to_vec()
    }

    fn package(&self) -> &'static str {
        "mysql-community-server, from MySQL's own repository"
    }

    fn version(&self, printed: &str) -> Result<String, String> {
        match common::version_word(printed) {
            Some(version) if version.contains("MariaDB") => Err(format!(
                "it is MariaDB {version}; ask for mariadb instead, or name MySQL's program in \
                 the experiment (Debian's mysqld is a link to MariaDB's)"
            )),
            Some(version) if numbers(version) < (5, 7, 6) => Err(format!(
                "it is version {version}, and the oldest one that dbdyno can set up is 5.7.6; \
                 start an older one yourself and give its url"
            )),
            Some(version) => Ok(version.to_owned()),
            None => Err(format!("with --version it prints `{printed}`")),
        }
    }

    fn parts(&self, program: &Path, engine: Option<StorageEngine>) -> Result<Parts, ServerError> {
        let base = base_directory(program);
        let plugins = ["lib/plugin", "lib/mysql/plugin", "lib64/mysql/plugin"]
            .iter()
            .map(|inner| base.join(inner))
            .find(|directory| directory.is_dir());
        let parts = Parts { initialiser: program.to_owned(), plugins };
        if engine == Some(StorageEngine::MyRocks)
            && !has_plugin(&parts)
            && !help(program)?.contains("--rocksdb-block-cache-size")
        {
            return Err(ServerError::Unsuitable {
                program: program.to_owned(),
                system: ServerSystem::MySql,
                message: "it has no MyRocks; that is in Percona Server, in Facebook's MySQL, and \
                          in MariaDB (Debian: apt install mariadb-plugin-rocksdb)"
                    .to_owned(),
            });
        }
        Ok(parts)
    }

    fn user(&self) -> &'static str {
        "mysql"
    }

    fn reserved(&self) -> &'static [&'static str] {
        common::RESERVED
    }

    fn normal_name(&self, name: &str) -> String {
        common::normal_name(name)
    }

    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        let version = numbers(&request.installation.version);
        let mut settings = Settings(common::settings(request));
        if request.engine != Some(StorageEngine::MyRocks) {
            if version >= (8, 0, 30) {
                let size = common::redo_log_size(request.shape);
                settings.add("innodb_redo_log_capacity", size);
            } else {
                settings.add("innodb_log_files_in_group", 2);
                settings.add("innodb_log_file_size", common::redo_log_part(request.shape, 2));
            }
        }
        // The server's own default, which depends on its version, said aloud: it decides how
        // texts are compared and sorted.
        let (charset, collation) = match version >= (8, 0, 0) {
            true => ("utf8mb4", "utf8mb4_0900_ai_ci"),
            false => ("latin1", "latin1_swedish_ci"),
        };
        settings.add("character_set_server", charset);
        settings.add("collation_server", collation);
        // On by default since 8.0, and MariaDB's is off.
        settings.add("skip_log_bin", "ON");
        if version < (8, 0, 0) {
            settings.add("query_cache_type", "OFF");
            settings.add("query_cache_size", 0);
        }
        settings.0
    }

    fn shapes_data(&self) -> &'static [&'static str] {
        common::SHAPES_DATA
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let file = server_dir.directory().join("initialise.cnf");
        write_config(&file, &common::bare_config(plan, server_dir, &fixed(plan)))
            .map_err(system("writing", &file))?;
        launcher.run("making MySQL's data directory", initialiser(plan, &file), INITIALISE_LIMIT)
    }

    fn command(&self, plan: &ServerPlan, server_dir: &ServerDir) -> Result<Command, ServerError> {
        let mut fixed = fixed(plan);
        fixed.extend(engine_settings(plan));
        let file = server_dir.directory().join("my.cnf");
        write_config(&file, &common::config(plan, server_dir, &fixed))
            .map_err(system("writing", &file))?;
        let mut command = Command::new(&plan.installation.program);
        command.arg(option("--defaults-file=", &file));
        Ok(command)
    }

    fn stop_signal(&self) -> i32 {
        libc::SIGTERM
    }

    fn target(&self, server_dir: &ServerDir) -> Target {
        common::target(server_dir)
    }

    fn is_ready(&self, target: &Target) -> bool {
        common::is_ready(target)
    }
}

fn initialiser(plan: &ServerPlan, file: &Path) -> Command {
    let mut command = Command::new(&plan.installation.parts.initialiser);
    // First, or it is not looked at. Root's password is empty then; only we reach the socket.
    command.arg(option("--defaults-file=", file)).arg("--initialize-insecure");
    command
}

/// Settings that are not shown: they lead to files and to the network.
fn fixed(plan: &ServerPlan) -> Vec<(&'static str, String)> {
    let base = base_directory(&plan.installation.program);
    let mut fixed = vec![("basedir", base.to_string_lossy().into_owned())];
    if let Some(plugins) = &plan.installation.parts.plugins {
        fixed.push(("plugin_dir", plugins.to_string_lossy().into_owned()));
    }
    // Packages compile a directory in that must exist.
    fixed.push(("secure_file_priv", "NULL".to_owned()));
    if numbers(&plan.installation.version) >= (8, 0, 0) {
        // A second protocol with a port and a socket of its own.
        fixed.push(("mysqlx", "OFF".to_owned()));
    }
    fixed
}

fn engine_settings(plan: &ServerPlan) -> Vec<(&'static str, String)> {
    if plan.engine != Some(StorageEngine::MyRocks) {
        return vec![("default_storage_engine", "InnoDB".to_owned())];
    }
    let load = if has_plugin(&plan.installation.parts) {
        ("plugin_load_add", format!("rocksdb={MYROCKS}"))
    } else {
        ("rocksdb", "ON".to_owned())
    };
    vec![load, ("default_storage_engine", "ROCKSDB".to_owned())]
}

fn has_plugin(parts: &Parts) -> bool {
    parts.plugins.as_ref().is_some_and(|directory| directory.join(MYROCKS).is_file())
}

/// All options that the program knows.
fn help(program: &Path) -> Result<String, ServerError> {
    let mut command = Command::new(program);
    command.args(["--no-defaults", "--verbose", "--help"]);
    clean_environment(&mut command);
    let output = command.output().map_err(system("running with --help", program))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use dbdyno_record::server::Durability;
    use dbdyno_units::Bytes;

    use super::super::{DataShape, Installation, ServerDirs};
    use super::*;

    fn plan(version: &str, engine: StorageEngine) -> ServerPlan {
        let installation = Installation {
            system: ServerSystem::MySql,
            program: "/opt/mysql/bin/mysqld".into(),
            version: version.to_owned(),
            file_size: Bytes::from_mib(60),
            sha256: "0".repeat(64),
            parts: Parts { initialiser: "/opt/mysql/bin/mysqld".into(), plugins: None },
        };
        let shape = DataShape { tables: 8, rows: 10_000_000, clients: 24 };
        ServerPlan::new(installation, Some(engine), Durability::Relaxed, Vec::new(), shape).unwrap()
    }

    fn config(plan: &ServerPlan) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let server_dirs = ServerDirs::open(dir.path()).unwrap();
        let server_dir = server_dirs.server_dir("a");
        std::fs::create_dir_all(server_dir.directory()).unwrap();
        let command = MySql.command(plan, &server_dir).unwrap();
        let text = std::fs::read_to_string(server_dir.directory().join("my.cnf")).unwrap();
        let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        server_dirs.remove().unwrap();
        (text, args)
    }

    #[test]
    fn tells_mysql_from_its_forks() {
        let version = |printed| MySql.version(printed);
        let oracle =
            "/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)";
        assert_eq!(version(oracle).unwrap(), "8.0.36");
        let percona =
            "mysqld  Ver 8.0.36-28 for Linux on x86_64 (Percona Server (GPL), Release 28)";
        assert_eq!(version(percona).unwrap(), "8.0.36-28");
        let mariadb = "mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        assert!(version(mariadb).unwrap_err().contains("it is MariaDB 10.11.19"));
        assert!(version("mysqld  Ver 5.6.35 for Linux").unwrap_err().contains("5.7.6"));
        assert!(version("").is_err());
    }

    #[test]
    fn the_configuration_follows_the_version() {
        let (text, args) = config(&plan("8.4.0", StorageEngine::InnoDb));
        assert!(args.len() == 1 && args[0].starts_with("--defaults-file=/"), "{args:?}");
        for line in [
            "innodb_redo_log_capacity = \"4096M\"",
            "mysqlx = \"OFF\"",
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
    }

    #[test]
    fn myrocks_that_is_built_in_is_switched_on() {
        let (text, _) = config(&plan("8.0.32", StorageEngine::MyRocks));
        assert!(text.contains("rocksdb = \"ON\""), "{text}");
        assert!(text.contains("default_storage_engine = \"ROCKSDB\""), "{text}");
        assert!(text.contains("rocksdb_block_cache_size = \"28800M\""), "{text}");
        assert!(!text.contains("plugin_load_add"), "{text}");
    }

    #[test]
    fn data_is_made_without_a_password_by_the_server_itself() {
        let command = initialiser(&plan("8.4.0", StorageEngine::InnoDb), Path::new("/a/b.cnf"));
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["--defaults-file=/a/b.cnf", "--initialize-insecure"]);
    }
}
