//! Collection of a compiler's profile with an instrumented build.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::Raw;
use super::{CLANGS, CollectionLock, Profile, counters};
use crate::command::clean_command;
use crate::failure::last_lines;
use crate::{Build, BuildError, Compiler, CompilerKind};

/// The tool that merges the counters of instrumented programs of this clang.
pub(crate) fn find_profdata(compiler: &Compiler) -> Result<PathBuf, BuildError> {
    compiler.llvm_tool("profdata", "merging clang's profile")
}

/// A profile that is being collected. Dropping it removes the raw files.
#[derive(Debug)]
pub struct Collection<'b> {
    pub(super) lock: CollectionLock,
    pub(super) raw: Raw,
    pub(super) instrumented: &'b Build,
}

impl Collection<'_> {
    /// Environment variables for the instrumented program.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let raw = self.raw.path.to_string_lossy().into_owned();
        let (name, value) = match self.instrumented.compiler.name {
            CompilerKind::Gcc => ("GCOV_PREFIX", raw),
            // A pool of four files: processes of the same program merge their counts into them.
            CompilerKind::Clang => ("LLVM_PROFILE_FILE", format!("{raw}/%4m.profraw")),
        };
        vec![(name.to_owned(), value)]
    }

    /// Discards what was collected so far. No instrumented program may be running.
    ///
    /// # Errors
    /// The directory cannot be emptied.
    pub fn discard(&self) -> Result<(), BuildError> {
        self.raw.empty()
    }

    /// Stores the profile, after all instrumented programs have exited.
    ///
    /// # Errors
    /// There is no raw data, or it cannot be merged.
    pub fn finish(self) -> Result<Profile, BuildError> {
        let data = self.lock.begin_part()?;
        let build = self.instrumented;
        match build.compiler.name {
            CompilerKind::Gcc => self.take_gcc_counters(&data)?,
            CompilerKind::Clang => self.merge_clang_counters(&data)?,
        }
        self.lock.store(build, None)
    }

    fn take_gcc_counters(&self, data: &Path) -> Result<(), BuildError> {
        let raw = &self.raw.path;
        let taken = counters::take_gcc(self.instrumented, raw, data);
        match taken.map_err(|error| BuildError::io("taking the counters in", raw, error))? {
            0 => Err(self.nothing()),
            _ => Ok(()),
        }
    }

    fn merge_clang_counters(&self, data: &Path) -> Result<(), BuildError> {
        let (raw, copies) = (&self.raw.path, self.lock.part().join("counters"));
        let taken = fs::create_dir(&copies).and_then(|()| counters::take_clang(raw, &copies));
        let taken = taken.map_err(|error| BuildError::io("taking the counters in", raw, error))?;
        if taken.is_empty() {
            return Err(self.nothing());
        }
        self.merge(&taken, data)?;
        fs::remove_dir_all(&copies).map_err(|error| BuildError::io("removing", &copies, error))
    }

    fn merge(&self, counters: &[PathBuf], data: &Path) -> Result<(), BuildError> {
        let tool = find_profdata(&self.instrumented.compiler.locate())?;
        let output = clean_command(&tool)
            .arg("merge")
            .arg("-o")
            .arg(data.join(CLANGS))
            .args(counters)
            .output()
            .map_err(|error| BuildError::io("starting", &tool, error))?;
        if output.status.success() {
            return Ok(());
        }
        let log = last_lines(&String::from_utf8_lossy(&output.stderr));
        Err(BuildError::Profile {
            what: self.what(),
            profile: self.raw.path.clone(),
            reason: format!("{} cannot merge the raw data:\n{log}", tool.display()),
        })
    }

    fn nothing(&self) -> BuildError {
        BuildError::Profile {
            what: self.what(),
            profile: self.raw.path.clone(),
            reason: "there is no raw data: the instrumented program did not exit normally"
                .to_owned(),
        }
    }

    fn what(&self) -> String {
        let Build { system, source_version, variant, .. } = self.instrumented;
        format!("{system} {source_version} as {variant}")
    }
}
