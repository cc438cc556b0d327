use std::path::{Path, PathBuf};

use crate::BuildError;
use crate::command::clean_command;
use crate::compiler::{locate, path_folders};

/// The installed BOLT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bolt {
    /// The program `llvm-bolt`, with symbolic links resolved: it finds its runtime relative to
    /// itself.
    pub path: PathBuf,
    /// Its version: `Debian LLVM version 19.1.7`.
    pub version: String,
    /// The output of `--help`: options differ between versions.
    pub(super) options: String,
}

/// Supported versions.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=40;

/// The instrumentation runtime, relative to the parent of the program's directory.
const RUNTIME: &str = "lib/libbolt_rt_instr.a";

impl Bolt {
    /// Finds the newest one with a version in its name, else the one without.
    ///
    /// # Errors
    /// It is not installed, or its instrumentation runtime is not.
    pub fn find() -> Result<Self, BuildError> {
        Self::find_in(&path_folders())
    }

    fn find_in(folders: &[PathBuf]) -> Result<Self, BuildError> {
        let versioned = VERSIONS.rev().map(|version| format!("llvm-bolt-{version}"));
        let mut names = versioned.chain(["llvm-bolt".to_owned()]);
        let path = names.find_map(|name| locate(&name, folders));
        let path = path.ok_or_else(|| missing("llvm-bolt", "bolt-19"))?;
        let path = path.canonicalize().map_err(|error| BuildError::io("finding", &path, error))?;
        let version = output_of(&path, "--version")?;
        let named = version.lines().find(|line| line.contains("version"));
        let version = named.unwrap_or_default().trim().to_owned();
        let above = path.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let runtime = above.join(RUNTIME);
        if !runtime.is_file() {
            let number: String = version
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            return Err(missing(&runtime.to_string_lossy(), &format!("libbolt-{number}-dev")));
        }
        let options = output_of(&path, "--help")?;
        Ok(Self { path, version, options })
    }
}

fn missing(what: &str, package: &str) -> BuildError {
    BuildError::MissingTool {
        tool: what.to_owned(),
        purpose: "variants with BOLT".to_owned(),
        package: package.to_owned(),
    }
}

fn output_of(path: &Path, what: &str) -> Result<String, BuildError> {
    let output = clean_command(path)
        .arg(what)
        .output()
        .map_err(|error| BuildError::io("starting", path, error))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(folder: &Path, name: &str, version: &str) {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\necho 'Debian LLVM version {version}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn newest_version_is_used_and_missing_parts_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let find = || Bolt::find_in(std::slice::from_ref(&bin));
        let none = find().unwrap_err().to_string();
        assert!(none.contains("llvm-bolt") && none.contains("apt-get install bolt-19"), "{none}");
        program(&bin, "llvm-bolt", "15.0.1");
        program(&bin, "llvm-bolt-16", "16.0.6");
        program(&bin, "llvm-bolt-19", "19.1.7");
        let half = find().unwrap_err().to_string();
        assert!(half.contains("apt-get install libbolt-19-dev"), "{half}");
        fs::create_dir(dir.path().join("lib")).unwrap();
        fs::write(dir.path().join(RUNTIME), "").unwrap();
        let bolt = find().unwrap();
        assert!(bolt.path.ends_with("bin/llvm-bolt-19"));
        assert_eq!(bolt.version, "Debian LLVM version 19.1.7");
    }
}
