use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use rustix::process::geteuid;

/// The directory for what dbdyno keeps between runs: `$XDG_CACHE_HOME/dbdyno`, or `~/.cache/dbdyno`; for
/// root `/var/cache/dbdyno`, because servers that root compiles run as another user, who may not have
/// access to root's home directory. `None` if the environment has neither XDG_CACHE_HOME nor HOME.
#[must_use]
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
}
