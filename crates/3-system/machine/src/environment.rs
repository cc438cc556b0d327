//! The environment: the default cache directory, and secrets that other programs must not see.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::geteuid;

/// The directory for what dbdyno keeps between runs: `$XDG_CACHE_HOME/dbdyno`, or `~/.cache/dbdyno`; for
/// root `/var/cache/dbdyno`, because servers that root compiles run as another user, who may not have
/// access to root's home directory. `None` if the environment has neither XDG_CACHE_HOME nor HOME.
pub fn default_cache_path() -> Option<PathBuf> {
    path(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"), geteuid().is_root())
}

/// Relative paths are ignored, as required by the XDG Base Directory Specification.
fn path(xdg: Option<OsString>, home: Option<OsString>, root: bool) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    let own = || match root {
        true => Some(PathBuf::from("/var/cache")),
        false => absolute(home).map(|home| home.join(".cache")),
    };
    Some(absolute(xdg).or_else(own)?.join("dbdyno"))
}

/// Removes passwords, tokens and keys from the environment that a command inherits. For programs that
/// need none of them, such as compilers.
///
/// Variables are recognised by their names, and by values that are URLs with a password. Those that
/// are set for the command afterwards are kept.
pub fn remove_secrets(command: &mut Command) {
    for (name, value) in env::vars_os() {
        if is_secret(&name, &value) {
            command.env_remove(name);
        }
    }
}

/// Parts of the names of variables with secrets. `DBDYNO_PASSWORD`, `PGPASSFILE` and
/// `AWS_SECRET_ACCESS_KEY` contain one.
const IN_NAMES: [&str; 10] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PGPASS",
    "SECRET",
    "TOKEN",
    "CREDENTIAL",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
];

/// Ends of the names of variables with secrets: `MYSQL_PWD`, but not `PWD`, the working directory.
const AT_END: [&str; 3] = ["_PWD", "_PASS", "APIKEY"];

fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    IN_NAMES.iter().any(|part| name.contains(part))
        || AT_END.iter().any(|end| name.ends_with(end))
        || has_password(&value.to_string_lossy())
}

/// Whether the text is a URL with a password, such as `http://user:password@proxy`.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_path_depends_on_environment() {
        let of = |xdg: Option<&str>, home: Option<&str>, root| {
            path(xdg.map(OsString::from), home.map(OsString::from), root)
        };
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of(None, Some("/root"), true), expected("/var/cache/dbdyno"));
        assert_eq!(of(Some("/x"), Some("/home/a"), false), expected("/x/dbdyno"));
        assert_eq!(of(None, Some("/home/a"), false), expected("/home/a/.cache/dbdyno"));
        assert_eq!(of(Some("x"), Some("/home/a"), false), expected("/home/a/.cache/dbdyno"));
        assert_eq!(of(Some(""), None, false), None);
    }

    #[test]
    fn secrets_are_recognised_by_name_and_value() {
        let secret = |name: &str, value: &str| is_secret(OsStr::new(name), OsStr::new(value));
        for name in [
            "DBDYNO_PASSWORD",
            "MYSQL_PWD",
            "PGPASSWORD",
            "PGPASSFILE",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "github_token",
            "SMTP_PASS",
        ] {
            assert!(secret(name, "x"), "{name}");
        }
        for name in ["PWD", "OLDPWD", "PATH", "HOME", "SSH_ASKPASS", "XKB_KEYMAP", "CCACHE_DIR"] {
            assert!(!secret(name, "/x"), "{name}");
        }
        assert!(secret("DATABASE_URL", "postgres://ann:x@host/a"));
        assert!(secret("https_proxy", "http://ann:x@proxy:3128"));
        assert!(!secret("https_proxy", "http://proxy:3128"));
        assert!(!secret("HOMEPAGE", "http://ann@host/a:b@c"));
    }
}
