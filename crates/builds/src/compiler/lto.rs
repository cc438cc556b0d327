use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Compiler, CompilerError, CompilerKind, clean_command};

impl Compiler {
    /// What must be added to the link so that it accepts objects made with `-flto`.
    ///
    /// Found out by linking a small library rather than by looking for files: clang needs its own
    /// linker (`ld.lld`, of a version that reads its bitcode) or, for the system's linker, a
    /// plugin that distributions put into different packages and folders.
    ///
    /// # Errors
    /// When no way of linking works, with what to install; or when the files for the attempt
    /// cannot be written.
    pub fn lto_linker(&self) -> Result<Vec<String>, CompilerError> {
        let ways: &[&[&str]] = match self.kind {
            CompilerKind::Gcc => &[&[]],
            CompilerKind::Clang => &[&["-fuse-ld=lld"], &[]],
        };
        let folder = TrialFolder::create()?;
        let mut answer = String::new();
        for way in ways {
            match self.try_lto(&folder.0, way)? {
                None => return Ok(way.iter().map(|flag| (*flag).to_owned()).collect()),
                Some(message) => answer = message,
            }
        }
        Err(CompilerError::NoLto {
            path: self.path.clone(),
            kind: self.kind,
            version: self.version.clone(),
            answer: answer.trim().to_owned(),
        })
    }

    /// The compiler's message if this way does not work.
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

/// A private folder for the attempt, removed on drop.
struct TrialFolder(PathBuf);

impl TrialFolder {
    fn create() -> Result<Self, CompilerError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dbdyno-lto-{}-{number}", process::id()));
        // Left over from a process that had this id before.
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
