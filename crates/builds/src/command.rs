//! The environment of compilers, build tools and tools that fetch sources.

use std::env;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use dbdyno_machine::remove_secrets;

/// Environment variables that affect the output of compilers and build tools.
const HIDDEN: [&str; 18] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MFLAGS",
    "CC",
    "CXX",
    "CPPFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "COPT",
    "PROFILE",
    "DESTDIR",
    "NINJA_STATUS",
];

/// Environment variables with the addresses of proxies, which may contain a password.
const PROXIES: [&str; 7] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
];

/// A command without passwords and other secrets in its environment, since sources contain programs
/// that run during a build, and without the variables that affect compilers, since they are not part
/// of the fingerprint.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    remove_secrets(&mut command);
    for variable in HIDDEN {
        command.env_remove(variable);
    }
    command
}

/// A command as [`clean_command`], for a tool that uses the network, possibly through a proxy.
pub(crate) fn network_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = clean_command(program);
    for variable in PROXIES {
        if let Some(proxy) = env::var_os(variable) {
            command.env(variable, proxy);
        }
    }
    command
}
