use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Compiler, CompilerError, CompilerKind};
use crate::command::clean_command;

impl Compiler {
    /// The linker flags required to link objects compiled with `-flto`.
    ///
    /// Determined by linking a small library, not by searching for files: clang needs its own
    /// linker (`ld.lld`, of a version that reads its bitcode) or, for the system's linker, a plugin
    /// that distributions install in different packages and directories.
    ///
    /// # Errors
    /// When linking fails with all flags; the error names what to install. When the files for the
    /// trial cannot be written.
    pub fn lto_linker(&self) -> Result<Vec<String>, CompilerError> {
        let ways: &[&[&str]] = match self.kind {
            CompilerKind::Gcc => &[&[]],
            CompilerKind::Clang => &[&["-fuse-ld=lld"], &[]],
        };
        let folder = TrialFolder::create()?;
        let mut output = String::new();
        for way in ways {
            match self.try_lto(&folder.0, way)? {
                None => return Ok(way.iter().map(|flag| (*flag).to_owned()).collect()),
                Some(message) => output = message,
            }
        }
        Err(CompilerError::NoLto {
            path: self.path.clone(),
            kind: self.kind,
            version: self.version.clone(),
            output: output.trim().to_owned(),
        })
    }

    /// Tries to link with the flags `way`; returns the compiler's message if that fails.
    fn try_lto(&self, folder: &Path, way: &[&str]) -> Result<Option<String>, CompilerError> {
        let source = folder.join("trial.c");
        fs::write(&source, "int dbdyno_trial(int x) { return x + 1; }\n").map_err(|error| {
            CompilerError::NoTrial { path: source.clone(), source: error.into() }
        })?;
        let output = clean_command(&self.path)
            .current_dir(folder)
            .args(["-flto", "-O2", "-fPIC", "-shared", "trial.c", "-o", "trial.so"])
            .args(way)
            .output()
            .map_err(|error| CompilerError::CannotRun {
                path: self.path.clone(),
                source: error.into(),
            })?;
        let failed = !output.status.success();
        Ok(failed.then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// A private directory for the trial link, removed on drop.
struct TrialFolder(PathBuf);

impl TrialFolder {
    fn create() -> Result<Self, CompilerError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dbdyno-lto-{}-{number}", process::id()));
        // Left by an earlier process with the same id.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| CompilerError::NoTrial { path: path.clone(), source: error.into() })?;
        Ok(Self(path))
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
