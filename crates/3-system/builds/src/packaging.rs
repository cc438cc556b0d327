//! The distribution's flags for compiling packages.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::command::clean_command;
use dbdyno_types::build::Packaging;

use crate::variant::is_link_flag;
use crate::{BuildError, CompilerKind};

/// The distribution's flags for compiling and linking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackagingFlags {
    pub compile: Vec<String>,
    pub link: Vec<String>,
}

const PROGRAM: &str = "dpkg-buildflags";

impl PackagingFlags {
    /// Gets the flags from `dpkg-buildflags`.
    ///
    /// # Errors
    /// When `dpkg-buildflags` is not installed or fails.
    pub(crate) fn query(packaging: Packaging, compiler: CompilerKind) -> Result<Self, BuildError> {
        let lto = match packaging {
            Packaging::None => return Ok(Self::default()),
            Packaging::Flags => false,
            Packaging::FlagsWithLto => true,
        };
        let get = |what: &str| query_variable(what, lto);
        let compile = [get("CPPFLAGS")?, get("CFLAGS")?].join(" ");
        Ok(Self {
            compile: usable(&compile, compiler, false),
            link: usable(&get("LDFLAGS")?, compiler, true),
        })
    }
}

fn query_variable(what: &str, lto: bool) -> Result<String, BuildError> {
    let mut command = clean_command(PROGRAM);
    command.args(["--get", what]).stderr(Stdio::null());
    // They change the flags, such as DEB_BUILD_OPTIONS and DEB_CFLAGS_APPEND.
    for (variable, _) in env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"DEB_")) {
        command.env_remove(variable);
    }
    if lto {
        command.env("DEB_BUILD_MAINT_OPTIONS", "optimize=+lto");
    }
    let output = command.output().ok().filter(|output| output.status.success());
    let output = output.ok_or_else(|| BuildError::MissingTool {
        tool: PROGRAM.to_owned(),
        purpose: "the distribution's compiler flags".to_owned(),
        package: "dpkg-dev".to_owned(),
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn usable(text: &str, compiler: CompilerKind, link: bool) -> Vec<String> {
    text.split_whitespace()
        // It contains the current directory.
        .filter(|flag| !flag.starts_with("-ffile-prefix-map="))
        // It only warns about dates in the source, and only gcc supports it.
        .filter(|flag| *flag != "-Wdate-time")
        .filter(|flag| compiler == CompilerKind::Gcc || *flag != "-ffat-lto-objects")
        .filter(|flag| link || !is_link_flag(flag))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_unsupported_flags_are_omitted() {
        let text = "-g -O2 -ffile-prefix-map=/tmp=. -flto=auto -ffat-lto-objects -Wdate-time\n";
        let of = |compiler| usable(text, compiler, false).join(" ");
        assert_eq!(of(CompilerKind::Gcc), "-g -O2 -flto=auto -ffat-lto-objects");
        assert_eq!(of(CompilerKind::Clang), "-g -O2 -flto=auto");
    }
}
