use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dbdyno_types::server::{StorageEngine, Target};
use dbdyno_units::Nanos;

use super::super::access::ServerCertificate;
use super::super::error::system;
use super::super::installation::{ProgramFiles, is_executable, join_paths};
use super::super::launcher::Launcher;
use super::super::plan::{DiskRequest, SettingsRequest};
use super::super::systems::{ProgramFacts, ReleaseFolders, ServerProgram};
use super::super::{Network, ServerDir, ServerError, ServerPlan};
use super::mysql_config::{
    self as common, MYROCKS_PLUGIN, SettingsList, base_dir, has_plugin, option, version_numbers,
};
use super::{supported, write_config};

/// MariaDB, with InnoDB or with the MyRocks plugin.
pub(crate) struct MariaDb;

/// The oldest version of private servers.
const OLDEST: ((u32, u32, u32), &str) = ((10, 2, 0), "10.2");

/// The oldest version on a host. The programs of MariaDB's archives before it have yaSSL, which knows no keys of elliptic
/// curves and no safe renegotiation; and accounts are in another table.
const OLDEST_ON_NETWORK: (u32, u32, u32) = (10, 4, 6);

/// Size of a new data directory of MariaDB 10.11 without its redo log.
const INITIAL: u64 = 32 << 20;

/// The increment of the system tablespace (`innodb_autoextend_increment`). Undo logs of writes need at least one.
const UNDO: u64 = 64 << 20;

/// Limit for creating a data directory, which usually takes about a second.
const INITIALISE_TIMEOUT: Duration = Duration::from_secs(300);

impl ServerProgram for MariaDb {
    fn facts(&self) -> ProgramFacts {
        ProgramFacts {
            names: &["mariadbd", "mysqld"],
            package: "mariadb-server",
            // dbdeployer has MariaDB in the directory of MySQL, too.
            releases: ReleaseFolders {
                names: &["mariadb", "mysql"],
                prefixes: &["mariadb-"],
                ..common::FACTS.releases
            },
            ..common::FACTS
        }
    }

    fn version(&self, printed: &str) -> Result<String, String> {
        match common::version_word(printed) {
            Some(version) if !version.contains("MariaDB") => {
                Err(format!("it is MySQL {version}, or a fork of it"))
            }
            version => supported(printed, version, |it| version_numbers(it) < OLDEST.0, OLDEST.1),
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
            .ok_or_else(|| {
                let what = "mariadb-install-db, which creates MariaDB's data directory,";
                let searched = format!("searched bin and scripts in {}", base.display());
                ServerError::not_installed(what, &searched, "mariadb-server", "")
            })?;
        let directories: Vec<PathBuf> =
            ["lib/mysql/plugin", "lib64/mysql/plugin", "lib/plugin", "lib/mariadb/plugin"]
                .iter()
                .map(|inner| base.join(inner))
                .collect();
        let plugin_dir = directories.iter().find(|directory| directory.is_dir()).cloned();
        let files = ProgramFiles { init_program, plugin_dir };
        if engine == Some(StorageEngine::MyRocks) && !has_plugin(&files) {
            let searched = files.plugin_dir.map_or(directories, |directory| vec![directory]);
            let searched = format!("searched {}", join_paths(&searched));
            let what = format!("MyRocks for MariaDB, the plugin {MYROCKS_PLUGIN},");
            return Err(ServerError::not_installed(&what, &searched, "mariadb-plugin-rocksdb", ""));
        }
        Ok(files)
    }

    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        let version = version_numbers(&request.installation.version);
        let most_prepared = if version < (10, 3, 6) { 1_048_576 } else { u32::MAX.into() };
        let mut settings = SettingsList(common::settings(request, most_prepared));
        if request.engine != Some(StorageEngine::MyRocks) {
            let files = redo_log_files(version);
            settings.add("innodb_log_file_size", common::redo_log_part(request.shape, files));
        }
        let (charset, collation) = match version >= (11, 6, 0) {
            true => ("utf8mb4", "utf8mb4_uca1400_ai_ci"),
            false => ("latin1", "latin1_swedish_ci"),
        };
        settings.add_charset(charset, collation);
        settings.add("query_cache_type", "OFF");
        settings.add("query_cache_size", 0);
        settings.0
    }

    fn disk(&self, request: &DiskRequest<'_>) -> (u64, u64) {
        let (tables, logs) = common::disk(request, 1);
        let has_undo =
            request.engine != Some(StorageEngine::MyRocks) && request.writing > Nanos::ZERO;
        (tables, logs + INITIAL + if has_undo { UNDO } else { 0 })
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let file = common::write_init_config(plan, server_dir, &[])?;
        let program = &plan.installation.files.init_program;
        let mut command = Command::new(program);
        command
            .arg(option("--defaults-file=", &file))
            .arg(option("--basedir=", base_dir(&plan.installation.program)))
            .arg(option("--datadir=", server_dir.data()))
            .args(["--auth-root-authentication-method=normal", without_guests(program)?])
            .arg("--skip-name-resolve")
            // Skips the lookup of the host name: dbdyno's builds have no `resolveip`.
            .arg("--force");
        let doing = "creating MariaDB's data directory";
        launcher.run(doing, command, Stdio::null(), INITIALISE_TIMEOUT)
    }

    fn command(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        network: Option<&Network>,
        certificate: Option<&ServerCertificate>,
    ) -> Result<Command, ServerError> {
        let mut fixed = common::install_dirs(plan);
        if plan.engine == Some(StorageEngine::MyRocks) {
            fixed.push(("plugin_load_add", MYROCKS_PLUGIN.trim_end_matches(".so").to_owned()));
            fixed.push(("default_storage_engine", "ROCKSDB".to_owned()));
        } else {
            fixed.push(("default_storage_engine", "InnoDB".to_owned()));
        }
        let mut command = common::command(plan, server_dir, &fixed, network, certificate)?;
        if network.is_some() {
            close_network(&mut command, server_dir)?;
        }
        Ok(command)
    }

    fn check_network(&self, plan: &ServerPlan) -> Result<(), ServerError> {
        common::check_network(plan, OLDEST_ON_NETWORK, "TLS library that is new enough")
    }

    fn admit(&self, target: &Target, network: &Network) -> Result<(), dbdyno_drivers::Error> {
        common::admit(target, network, "BY PASSWORD")
    }
}

/// The number of files of the redo log by default; one is the only value since 10.5.
fn redo_log_files(version: (u32, u32, u32)) -> u64 {
    if version < (10, 5, 0) { 2 } else { 1 }
}

/// The option by which the script that creates a data directory adds no accounts without a name.
fn without_guests(script: &Path) -> Result<&'static str, ServerError> {
    const NO_TEST_DATABASE: &str = "--skip-test-db";
    let text = fs::read_to_string(script).map_err(system("reading", script))?;
    Ok(if text.contains(NO_TEST_DATABASE) {
        NO_TEST_DATABASE
    } else {
        "--skip-auth-anonymous-user"
    })
}

/// Adds the options that keep a server closed on the network until its account is created. Its new data has
/// a `root` without password at 127.0.0.1, which local users who connect to another address of the machine
/// may have, too. Options of the command line take precedence over the user's settings.
fn close_network(command: &mut Command, server_dir: &ServerDir) -> Result<(), ServerError> {
    // Executed before the server accepts connections.
    let file = server_dir.path().join("remove-network-accounts.sql");
    let statements =
        "DELETE FROM mysql.global_priv WHERE Host <> 'localhost';\nFLUSH PRIVILEGES;\n";
    write_config(&file, statements)?;
    command
        .arg(option("--init-file=", &file))
        .arg(option("--secure-file-priv=", server_dir.temporary()))
        .arg("--skip-name-resolve");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_refused() {
        let version = |printed| MariaDb.version(printed);
        let oldest = "mysqld  Ver 10.2.11-MariaDB for Linux on x86_64 (MariaDB Server)";
        assert_eq!(version(oldest).unwrap(), "10.2.11-MariaDB");
        let old = version("mysqld  Ver 10.1.23-MariaDB for Linux on x86_64").unwrap_err();
        assert!(old.contains("10.1.23-MariaDB; dbdyno requires 10.2 or later"), "{old}");
        let other = version("mysqld  Ver 5.6.14 for linux-glibc2.5 on x86_64").unwrap_err();
        assert!(other.contains("it is MySQL 5.6.14"), "{other}");
    }
}
