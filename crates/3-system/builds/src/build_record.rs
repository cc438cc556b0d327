//! What is known about a finished build: plain data, as stored in `build.json`.

use std::fmt;
use std::path::PathBuf;

use dbdyno_types::build::ConfigureTool;
use dbdyno_types::server::ServerSystem;
use dbdyno_types::words;
use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::recipe::{Flags, depends_on_host};
use crate::{Sha256, SourceOrigin, Variant};

/// The file name of the compile database in the directory of a build.
pub(crate) const DATABASE: &str = "compile_commands.json";

/// Identifies a build: two builds with the same fingerprint are interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub(crate) Sha256);

impl Fingerprint {
    /// The first twelve digits, for reports.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

words! {
    /// A database program that dbdyno can compile, with its name in experiment files and reports.
    System {
        Sqlite = "sqlite",
        PostgreSql = "postgresql",
        MariaDb = "mariadb",
        /// The servers of MySQL and of its forks with the same build system.
        MySql = "mysql",
    }
}

impl From<ServerSystem> for System {
    fn from(system: ServerSystem) -> Self {
        match system {
            ServerSystem::MariaDb => Self::MariaDb,
            ServerSystem::MySql => Self::MySql,
            ServerSystem::PostgreSql => Self::PostgreSql,
        }
    }
}

words! {
    /// A compiler family; it determines the spelling of flags.
    CompilerKind {
        Gcc = "gcc",
        Clang = "clang",
    }
}

/// Whether flags select the CPU of the machine that compiles.
pub(crate) fn depend_on_host<'a>(mut flags: impl Iterator<Item = &'a String>) -> bool {
    let native = ["-march=native", "-mtune=native", "-mcpu=native"];
    flags.any(|flag| native.contains(&flag.as_str()))
}

/// Options of a recipe, in addition to the variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipeOptions {
    /// With the storage engine MyRocks, if the source has it.
    pub myrocks: bool,
    /// The configure tool, if the source supports several.
    pub tool: Option<ConfigureTool>,
    /// Additional arguments for that tool.
    pub arguments: Vec<String>,
}

impl RecipeOptions {
    /// A suffix for the system's version in messages.
    pub(crate) const fn engine(&self) -> &'static str {
        if self.myrocks { " with MyRocks" } else { "" }
    }
}

/// The result of compiling one source with one variant, as stored in `build.json` in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub fingerprint: Fingerprint,
    pub system: System,
    pub source_version: String,
    pub source_origin: SourceOrigin,
    /// The revision, such as a commit.
    pub source_revision: Option<String>,
    pub source_sha256: Sha256,
    pub variant: String,
    /// The settings of the variant, which the flag audit checks.
    pub settings: Variant,
    pub options: RecipeOptions,
    /// Whether it is instrumented, to collect a profile.
    pub instrumented: bool,
    pub profile: Option<ProfileUsed>,
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
    pub artifact_sha256: Sha256,
    /// The build tree, with its objects. Old ones are removed when the cache is too large.
    pub tree: PathBuf,
    /// The artifact's code, without stubs; of BOLT, with the code that it moved, which stays in the file.
    pub text_size: Bytes,
    /// The artifact's executable sections.
    pub executable_size: Bytes,
    /// The part of the artifact covered by segments: approximately its size after `strip`.
    pub stripped_size: Bytes,
    pub file_size: Bytes,
    /// Time for compiling, linking and BOLT, without interrupted attempts.
    pub compile_time: Nanos,
}

impl Build {
    /// A name for copies of a server, which depends on its files.
    pub fn copy_name(&self) -> String {
        let program = self.artifact_sha256.to_string();
        format!("{}-{}-{}", self.system, self.fingerprint, &program[..12])
    }

    /// Whether its code is for the CPU of the machine that compiled it.
    pub fn is_native(&self) -> bool {
        let flags = Flags { compile: self.flags.clone(), link: self.link_flags.clone() };
        depends_on_host(self.system, &self.source_version, &self.options, &flags)
    }

    /// The compile database: a JSON file with the command for each source file.
    pub fn compile_database(&self) -> PathBuf {
        self.folder.join(DATABASE)
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerUsed {
    pub name: CompilerKind,
    pub path: PathBuf,
    /// The version number: `12.2.0`.
    pub version: String,
    /// The first line that it prints for `--version`.
    pub version_line: String,
    pub target: String,
    /// The first line that its linker prints for `--version`; `None` if unknown.
    pub linker: Option<String>,
}

/// The profile of a build, as stored in `build.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileUsed {
    pub sha256: Sha256,
    /// The training, as a description.
    pub trained_on: String,
    /// Number of samples; `None` for an instrumented profile.
    pub samples: Option<u64>,
}

/// How BOLT optimized a build, as stored in `build.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoltUsed {
    /// The base build: all files but the artifact are the same.
    pub base: Fingerprint,
    pub version: String,
    /// How the profile was collected.
    pub collected_by: String,
    pub profile_sha256: Sha256,
    /// The training, as a description.
    pub trained_on: String,
    /// Functions that BOLT did not change: those with hardware transactions, and those whose jumps
    /// it could not follow.
    pub left_alone: Vec<String>,
}
