//! The environment of compilers, build tools and tools that fetch sources.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use dbdyno_machine::remove_secrets;

/// Environment variables that affect the output of compilers and build tools, or decide which libraries
/// they find.
const HIDDEN: [&str; 41] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "LD_RUN_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "MAKEFILES",
    "MAKELEVEL",
    "MFLAGS",
    "CC",
    "CXX",
    "CPP",
    "AR",
    "RANLIB",
    "CC_LD",
    "CXX_LD",
    "CPPFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "LDFLAGS_EX",
    "LDFLAGS_SL",
    "LIBS",
    "CONFIG_SITE",
    "COPT",
    "PROFILE",
    "CMAKE_TOOLCHAIN_FILE",
    "CMAKE_PREFIX_PATH",
    "CMAKE_INCLUDE_PATH",
    "CMAKE_LIBRARY_PATH",
    "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "OPENSSL_ROOT_DIR",
    "PKG_CONFIG_PATH",
    "PKG_CONFIG_LIBDIR",
    "DESTDIR",
    "NINJA_STATUS",
];

/// Whether an environment variable tells CMake where a package is, such as `OpenSSL_ROOT`.
fn is_package_root(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"_ROOT")
}

/// Environment variables with passwords of databases, which no program that builds needs.
const DATABASE_PASSWORDS: [&str; 4] = ["DBDYNO_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "PGPASSFILE"];

/// Environment variables that make git use another repository than that of its directory. They are
/// set in hooks and in commands of `git rebase` and `git bisect`.
const GIT_REPOSITORY: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// A command without passwords and other secrets in its environment, since sources contain programs
/// that run during a build, and without the variables that affect compilers, since they are not part
/// of the fingerprint.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = unaffected_command(program);
    remove_secrets(&mut command);
    command
}

/// A command for a tool that fetches sources and runs nothing of them. It keeps tokens and the
/// addresses of proxies, which may contain a password.
pub(crate) fn network_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = unaffected_command(program);
    for variable in DATABASE_PASSWORDS {
        command.env_remove(variable);
    }
    command
}

fn unaffected_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    for variable in HIDDEN.into_iter().chain(GIT_REPOSITORY) {
        command.env_remove(variable);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| is_package_root(name)) {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_tools_do_not_see_what_the_fingerprint_does_not_have() {
        let command = clean_command("cmake");
        for name in HIDDEN {
            assert!(
                command.get_envs().any(|(known, value)| known == name && value.is_none()),
                "{name}"
            );
        }
    }

    #[test]
    fn roots_of_packages_are_recognised() {
        for name in ["ZLIB_ROOT", "OpenSSL_ROOT"] {
            assert!(is_package_root(OsStr::new(name)), "{name}");
        }
        assert!(!is_package_root(OsStr::new("HOME")));
    }

    #[test]
    fn tools_that_fetch_sources_get_no_passwords_of_databases_and_no_repository() {
        let command = network_command("git");
        for name in DATABASE_PASSWORDS.into_iter().chain(GIT_REPOSITORY) {
            let removed =
                |(known, value): (&OsStr, Option<&OsStr>)| known == name && value.is_none();
            assert!(command.get_envs().any(removed), "{name}");
        }
    }
}
