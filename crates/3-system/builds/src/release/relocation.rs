//! A release at another path, such as on another host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::loader::{PATCHELF, interpreter};
use super::{Release, program};
use crate::command::network_command;
use crate::{BuildError, Sha256};

impl Release {
    /// A name for copies of this release, which depends on its files.
    #[must_use]
    pub fn copy_name(&self) -> String {
        let identity = (&self.origin, &self.files, self.inner_program());
        let key = Sha256::of(&serde_json::to_vec(&identity).unwrap_or_default()).to_string();
        format!("{}-{}", self.system, &key[..24])
    }

    /// The directory that it was unpacked into.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server program, relative to [`Self::folder`].
    #[must_use]
    pub fn inner_program(&self) -> &Path {
        self.program.strip_prefix(&self.folder).unwrap_or(&self.program)
    }

    /// Whether it runs with a loader and libraries of its own.
    #[must_use]
    pub fn has_own_loader(&self) -> bool {
        self.own_loader(&self.program).is_some()
    }

    /// The programs that a copy in `folder` needs instead of this release's, because they contain its path:
    /// written to the empty directory `staging`, by the path in the release.
    ///
    /// # Errors
    /// A file cannot be read or written, or patchelf is missing.
    pub fn relocate(
        &self,
        folder: &Path,
        staging: &Path,
    ) -> Result<BTreeMap<PathBuf, PathBuf>, BuildError> {
        let mut replaced = BTreeMap::new();
        for file in program::linked(self.system, &self.folder, self.inner_program()) {
            let Some(loader) = self.own_loader(&file) else { continue };
            let inner = file.strip_prefix(&self.folder).unwrap_or(&file).to_owned();
            let copy = staging.join(format!("{}", replaced.len()));
            fs::copy(&file, &copy).map_err(|error| BuildError::io("copying", &file, error))?;
            let paths = patchelf(&["--print-rpath"], &file)?;
            let moved = |path: &str| match Path::new(path).strip_prefix(&self.folder) {
                Ok(inner) => folder.join(inner).to_string_lossy().into_owned(),
                Err(_) => path.to_owned(),
            };
            let paths: Vec<String> = paths.trim().split(':').map(moved).collect();
            let (loader, paths) = (moved(&loader), paths.join(":"));
            let args = ["--set-interpreter", &loader, "--force-rpath", "--set-rpath", &paths];
            patchelf(&args, &copy)?;
            replaced.insert(inner, copy);
        }
        Ok(replaced)
    }

    /// The loader of a program, if it is one of the release.
    fn own_loader(&self, program: &Path) -> Option<String> {
        let loader = interpreter(&fs::read(program).ok()?)?;
        Path::new(&loader).starts_with(&self.folder).then_some(loader)
    }
}

fn patchelf(args: &[&str], file: &Path) -> Result<String, BuildError> {
    let output = network_command(PATCHELF.program).args(args).arg(file).output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BuildError::MissingTool {
            tool: PATCHELF.program.to_owned(),
            purpose: "copying a release to another host".to_owned(),
            package: PATCHELF.package.to_owned(),
        },
        _ => BuildError::io("starting", Path::new(PATCHELF.program), error),
    })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let error = std::io::Error::other(message);
        return Err(BuildError::io("setting the loader of", file, error));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
