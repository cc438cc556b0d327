use std::fmt;
use std::fs;
use std::path::PathBuf;

use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::bolt::BoltUsed;
use crate::compiler::{default_march, without_name};
use crate::profile::ProfileUsed;
use crate::recipe::RecipeOptions;
use crate::{Compiler, CompilerKind, Fingerprint, Sha256, SourceOrigin, System, Variant};

/// The result of compiling one source with one variant, as stored in `build.json` in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub fingerprint: Fingerprint,
    pub system: System,
    /// The version of the system.
    pub source_version: String,
    pub source_origin: SourceOrigin,
    /// The revision, such as a commit.
    pub source_revision: Option<String>,
    /// The checksum of the source.
    pub source_sha256: Sha256,
    /// The name of the variant.
    pub variant: String,
    /// The settings of the variant, which the flag audit checks.
    #[serde(rename = "intent")]
    pub settings: Variant,
    pub options: RecipeOptions,
    /// Whether it is instrumented, to collect a profile.
    pub instrumented: bool,
    /// The profile that it was optimized with.
    pub profile: Option<ProfileUsed>,
    /// How BOLT optimized it.
    #[serde(default)]
    pub bolt: Option<BoltUsed>,
    pub compiler: CompilerUsed,
    /// The compiler flags: the recipe's, the variant's, the extra ones.
    pub flags: Vec<String>,
    pub link_flags: Vec<String>,
    /// The commands, quoted for a shell.
    pub commands: Vec<String>,
    /// The directory of the build, with `build.json`, `log.txt` and `compile_commands.json`;
    /// absolute.
    pub folder: PathBuf,
    /// The shared library, or the server's program; absolute.
    pub artifact: PathBuf,
    /// The artifact's checksum.
    pub artifact_sha256: Sha256,
    /// The build tree, with its objects. Old ones are removed when the cache is too large.
    pub tree: PathBuf,
    /// The artifact's section `.text`.
    pub text_size: Bytes,
    /// The artifact's executable sections.
    pub executable_size: Bytes,
    /// The part of the artifact covered by segments: approximately its size after `strip`.
    pub stripped_size: Bytes,
    /// The artifact's file.
    pub file_size: Bytes,
    /// Time for compiling, linking and BOLT, without interrupted attempts.
    pub compile_time: Nanos,
}

impl Build {
    /// A name for copies of a server, which depends on its files.
    #[must_use]
    pub fn copy_name(&self) -> String {
        let program = self.artifact_sha256.to_string();
        format!("{}-{}-{}", self.system, self.fingerprint, &program[..12])
    }

    /// Whether its code is for the CPU of the machine that compiled it.
    #[must_use]
    pub fn is_native(&self) -> bool {
        crate::recipe::depend_on_host(self.flags.iter().chain(&self.link_flags))
    }

    /// The compile database: a JSON file with the command for each source file.
    #[must_use]
    pub fn compile_database(&self) -> PathBuf {
        self.folder.join(crate::cache::DATABASE)
    }
}

/// Prints `sqlite 3.50.4 as rel_o2 with gcc 12.2.0`.
impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, source_version, options, variant, compiler, .. } = self;
        let (engine, name, version) = (options.engine(), compiler.name, &compiler.version);
        write!(f, "{system} {source_version}{engine} as {variant} with {name} {version}")
    }
}

/// The compiler of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerUsed {
    /// The compiler family.
    pub name: CompilerKind,
    /// The program.
    pub path: PathBuf,
    /// The version number: `12.2.0`.
    pub version: String,
    /// The first line that it prints for `--version`.
    pub version_line: String,
    /// The target triple.
    pub target: String,
    /// The first line that its linker prints for `--version`; `None` if unknown.
    pub linker: Option<String>,
}

impl CompilerUsed {
    /// The instruction set that it compiles for by default, by its name for `-march`; `None` if it does not tell, or
    /// is not installed any more.
    #[must_use]
    pub fn default_march(&self) -> Option<String> {
        default_march(self.name, &self.path)
    }

    /// The compiler on this machine.
    pub(crate) fn locate(&self) -> Compiler {
        Compiler {
            path: self.path.clone(),
            resolved: fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone()),
            kind: self.name,
            version: self.version.clone(),
            version_line: self.version_line.clone(),
            target: self.target.clone(),
            linker: self.linker.clone(),
        }
    }

    /// Whether it is the same version for the same target with the same linker, by whatever name it
    /// was called.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        fn identity(of: &CompilerUsed) -> (CompilerKind, [&str; 3], Option<&str>) {
            let line = without_name(of.name, &of.version_line);
            (of.name, [&of.version, line, &of.target], of.linker.as_deref())
        }
        identity(self) == identity(other)
    }
}

impl From<&Compiler> for CompilerUsed {
    fn from(compiler: &Compiler) -> Self {
        Self {
            name: compiler.kind,
            path: compiler.path.clone(),
            version: compiler.version.clone(),
            version_line: compiler.version_line.clone(),
            target: compiler.target.clone(),
            linker: compiler.linker.clone(),
        }
    }
}
