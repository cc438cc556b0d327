use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dbdyno_record::server::{StorageEngine, Target};

use super::error::system;
use super::installation::{Parts, is_program, listed};
use super::mysql_config::{self as common, Settings, base_directory, numbers, option};
use super::program::{Program, SettingsRequest, write_config};
use super::spawn::Launcher;
use super::{ServerDir, ServerError, ServerPlan};

/// MariaDB, with InnoDB or with MyRocks as a plugin.
pub(crate) struct MariaDb;

/// How long making a data directory may take: about a second where nothing is wrong.
const INITIALISE_LIMIT: Duration = Duration::from_secs(300);

/// MyRocks' file among the plugins.
const MYROCKS: &str = "ha_rocksdb.so";

impl Program for MariaDb {
    fn names(&self) -> &'static [&'static str] {
        &["mariadbd", "mysqld"]
    }

    fn directories(&self) -> Vec<PathBuf> {
        ["/usr/sbin", "/usr/local/sbin", "/usr/local/mysql/bin", "/usr/libexec"]
            .map(PathBuf::from)
            .to_vec()
    }

    fn package(&self) -> &'static str {
        "mariadb-server"
    }

    fn version(&self, printed: &str) -> Result<String, String> {
        match common::version_word(printed) {
            Some(version) if version.contains("MariaDB") => {
                if numbers(version) < (10, 4, 0) {
                    return Err(format!(
                        "it is version {version}, and the oldest one that dbdyno can set up is \
                         10.4"
                    ));
                }
                Ok(version.to_owned())
            }
            Some(version) => Err(format!("it is version {version} of MySQL or a fork of it")),
            None => Err(format!("with --version it prints `{printed}`")),
        }
    }

    fn parts(&self, program: &Path, engine: Option<StorageEngine>) -> Result<Parts, ServerError> {
        let base = base_directory(program);
        let initialiser = ["bin", "scripts"]
            .iter()
            .flat_map(|inner| {
                ["mariadb-install-db", "mysql_install_db"].map(|name| base.join(inner).join(name))
            })
            .find(|file| is_program(file))
            .ok_or_else(|| ServerError::NotInstalled {
                what: "mariadb-install-db, which makes MariaDB's data directory,".to_owned(),
                looked: format!("looked in bin and scripts of {}", base.display()),
                package: "mariadb-server",
                advice: "",
            })?;
        let directories: Vec<PathBuf> =
            ["lib/mysql/plugin", "lib64/mysql/plugin", "lib/plugin", "lib/mariadb/plugin"]
                .iter()
                .map(|inner| base.join(inner))
                .collect();
        let plugins = directories.iter().find(|directory| directory.is_dir()).cloned();
        if engine == Some(StorageEngine::MyRocks)
            && !plugins.as_ref().is_some_and(|directory| directory.join(MYROCKS).is_file())
        {
            let looked = plugins.as_ref().map_or_else(
                || format!("looked in {}", listed(&directories)),
                |directory| format!("looked in {}", directory.display()),
            );
            return Err(ServerError::NotInstalled {
                what: format!("MyRocks for MariaDB, the plugin {MYROCKS},"),
                looked,
                package: "mariadb-plugin-rocksdb",
                advice: "",
            });
        }
        Ok(Parts { initialiser, plugins })
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
        let mut settings = Settings(common::settings(request));
        if request.engine != Some(StorageEngine::MyRocks) {
            settings.add("innodb_log_file_size", common::redo_log_size(request.shape));
        }
        // The server's own default, which depends on its version, said aloud: it decides how
        // texts are compared and sorted.
        let (charset, collation) = match numbers(&request.installation.version) >= (11, 6, 0) {
            true => ("utf8mb4", "utf8mb4_uca1400_ai_ci"),
            false => ("latin1", "latin1_swedish_ci"),
        };
        settings.add("character_set_server", charset);
        settings.add("collation_server", collation);
        settings.add("query_cache_type", "OFF");
        settings.add("query_cache_size", 0);
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
        write_config(&file, &common::bare_config(plan, server_dir, &[]))
            .map_err(system("writing", &file))?;
        let parts = &plan.installation.parts;
        let mut command = Command::new(&parts.initialiser);
        command
            .arg(option("--defaults-file=", &file))
            .arg(option("--basedir=", base_directory(&plan.installation.program)))
            .arg(option("--datadir=", server_dir.data()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg("--skip-name-resolve")
            // Asks nobody for the machine's address: a build of ours has no `resolveip`.
            .arg("--force");
        launcher.run("making MariaDB's data directory", command, INITIALISE_LIMIT)
    }

    fn command(&self, plan: &ServerPlan, server_dir: &ServerDir) -> Result<Command, ServerError> {
        let base = base_directory(&plan.installation.program);
        let mut fixed = vec![("basedir", base.to_string_lossy().into_owned())];
        if let Some(plugins) = &plan.installation.parts.plugins {
            fixed.push(("plugin_dir", plugins.to_string_lossy().into_owned()));
        }
        if plan.engine == Some(StorageEngine::MyRocks) {
            fixed.push(("plugin_load_add", MYROCKS.trim_end_matches(".so").to_owned()));
            fixed.push(("default_storage_engine", "ROCKSDB".to_owned()));
        } else {
            fixed.push(("default_storage_engine", "InnoDB".to_owned()));
        }
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
