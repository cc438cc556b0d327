use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dbdyno_record::server::{StorageEngine, Target};

use dbdyno_machine::Signal;

use super::super::installation::{ProgramFiles, is_executable, join_paths};
use super::super::launcher::Launcher;
use super::super::plan::SettingsRequest;
use super::super::program::{ServerProgram, VersionError};
use super::super::{ServerDir, ServerError, ServerPlan};
use super::config_file::write_config;
use super::mysql_config::{self as common, SettingsList, base_dir, option, version_numbers};

/// MariaDB, with InnoDB or with the MyRocks plugin.
pub(crate) struct MariaDb;

/// Limit for creating a data directory, which usually takes about a second.
const INITIALISE_TIMEOUT: Duration = Duration::from_secs(300);

/// The plugin file of MyRocks.
const MYROCKS_PLUGIN: &str = "ha_rocksdb.so";

impl ServerProgram for MariaDb {
    fn names(&self) -> &'static [&'static str] {
        &["mariadbd", "mysqld"]
    }

    fn search_dirs(&self) -> Vec<PathBuf> {
        ["/usr/sbin", "/usr/local/sbin", "/usr/local/mysql/bin", "/usr/libexec"]
            .map(PathBuf::from)
            .to_vec()
    }

    fn package(&self) -> &'static str {
        "mariadb-server"
    }

    fn version(&self, printed: &str) -> Result<String, VersionError> {
        match common::version_word(printed) {
            Some(version) if !version.contains("MariaDB") => Err(VersionError::OtherSystem {
                found: format!("MySQL {version}, or a fork of it"),
                advice: "",
            }),
            Some(version) if version_numbers(version) < (10, 4, 0) => {
                Err(VersionError::TooOld { found: version.to_owned(), oldest: "10.4", advice: "" })
            }
            Some(version) => Ok(version.to_owned()),
            None => Err(VersionError::Unrecognised(printed.to_owned())),
        }
    }

    fn files(
        &self,
        program: &Path,
        engine: Option<StorageEngine>,
    ) -> Result<ProgramFiles, ServerError> {
        let base = base_dir(program);
        let init_program = ["bin", "scripts"]
            .iter()
            .flat_map(|inner| {
                ["mariadb-install-db", "mysql_install_db"].map(|name| base.join(inner).join(name))
            })
            .find(|file| is_executable(file))
            .ok_or_else(|| ServerError::NotInstalled {
                what: "mariadb-install-db, which creates MariaDB's data directory,".to_owned(),
                searched: format!("searched bin and scripts in {}", base.display()),
                package: "mariadb-server",
                advice: "",
            })?;
        let directories: Vec<PathBuf> =
            ["lib/mysql/plugin", "lib64/mysql/plugin", "lib/plugin", "lib/mariadb/plugin"]
                .iter()
                .map(|inner| base.join(inner))
                .collect();
        let plugin_dir = directories.iter().find(|directory| directory.is_dir()).cloned();
        if engine == Some(StorageEngine::MyRocks)
            && !plugin_dir
                .as_ref()
                .is_some_and(|directory| directory.join(MYROCKS_PLUGIN).is_file())
        {
            let searched = plugin_dir.as_ref().map_or_else(
                || format!("searched {}", join_paths(&directories)),
                |directory| format!("searched {}", directory.display()),
            );
            return Err(ServerError::NotInstalled {
                what: format!("MyRocks for MariaDB, the plugin {MYROCKS_PLUGIN},"),
                searched,
                package: "mariadb-plugin-rocksdb",
                advice: "",
            });
        }
        Ok(ProgramFiles { init_program, plugin_dir })
    }

    fn user(&self) -> &'static str {
        "mysql"
    }

    fn reserved(&self) -> &'static [&'static str] {
        common::RESERVED
    }

    fn canonical_name(&self, name: &str) -> String {
        common::canonical_name(name)
    }

    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        let mut settings = SettingsList(common::settings(request));
        if request.engine != Some(StorageEngine::MyRocks) {
            settings.add("innodb_log_file_size", common::redo_log_size(request.shape));
        }
        // The server's default, set explicitly because it depends on the version and affects the
        // speed of comparing and sorting.
        let (charset, collation) =
            match version_numbers(&request.installation.version) >= (11, 6, 0) {
                true => ("utf8mb4", "utf8mb4_uca1400_ai_ci"),
                false => ("latin1", "latin1_swedish_ci"),
            };
        settings.add("character_set_server", charset);
        settings.add("collation_server", collation);
        settings.add("query_cache_type", "OFF");
        settings.add("query_cache_size", 0);
        settings.0
    }

    fn format_settings(&self) -> &'static [&'static str] {
        common::FORMAT_SETTINGS
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let file = server_dir.path().join("initialise.cnf");
        write_config(&file, &common::init_config(plan, server_dir, &[]))?;
        let mut command = Command::new(&plan.installation.files.init_program);
        command
            .arg(option("--defaults-file=", &file))
            .arg(option("--basedir=", base_dir(&plan.installation.program)))
            .arg(option("--datadir=", server_dir.data()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg("--skip-name-resolve")
            // Skips the lookup of the host name: dbdyno's builds have no `resolveip`.
            .arg("--force");
        launcher.run("creating MariaDB's data directory", command, INITIALISE_TIMEOUT)
    }

    fn command(&self, plan: &ServerPlan, server_dir: &ServerDir) -> Result<Command, ServerError> {
        let base = base_dir(&plan.installation.program);
        let mut fixed = vec![("basedir", base.to_string_lossy().into_owned())];
        if let Some(plugin_dir) = &plan.installation.files.plugin_dir {
            fixed.push(("plugin_dir", plugin_dir.to_string_lossy().into_owned()));
        }
        if plan.engine == Some(StorageEngine::MyRocks) {
            fixed.push(("plugin_load_add", MYROCKS_PLUGIN.trim_end_matches(".so").to_owned()));
            fixed.push(("default_storage_engine", "ROCKSDB".to_owned()));
        } else {
            fixed.push(("default_storage_engine", "InnoDB".to_owned()));
        }
        let file = server_dir.path().join("my.cnf");
        write_config(&file, &common::config(plan, server_dir, &fixed))?;
        let mut command = Command::new(&plan.installation.program);
        command.arg(option("--defaults-file=", &file));
        Ok(command)
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    fn target(&self, server_dir: &ServerDir) -> Target {
        common::target(server_dir)
    }

    fn is_ready(&self, target: &Target) -> bool {
        common::is_ready(target)
    }
}
