//! Recipes: how each system is compiled, as data.
//!
//! A recipe is a set of pure functions that return, for a variant, its [`Flags`]; for flags, the
//! [`BuildPlan`] with the commands to run; and the build dependencies ([`Prerequisite`]). One
//! module per system.

mod cmake;
mod mariadb;
mod mysql;
mod postgresql;
mod prerequisites;
mod sqlite;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::packaging::PackagingFlags;
use crate::shell::quote_command;
use crate::variant::{compile_flags, is_link_flag, link_flags};
use crate::{Compiler, CompilerKind, System, Variant};

pub use dbdyno_types::build::ConfigureTool;
pub use prerequisites::{Prerequisite, Probe};

/// The flags of a recipe, without file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    pub compile: Vec<String>,
    pub link: Vec<String>,
}

/// The start of the flag that names the linker.
const LINKER: &str = "-fuse-ld=";

impl Flags {
    /// Whether the result depends on the CPU of the machine that compiles.
    #[must_use]
    pub fn depends_on_host(&self) -> bool {
        depend_on_host(self.compile.iter().chain(&self.link))
    }

    /// The linker; `None` for the compiler's default. The last flag wins.
    pub(crate) fn linker(&self) -> Option<&str> {
        self.link.iter().rev().find_map(|flag| flag.strip_prefix(LINKER))
    }

    /// Whether the code is instrumented for a profile.
    fn is_instrumented(&self) -> bool {
        self.compile.iter().any(|flag| flag.starts_with("-fprofile-generate"))
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

/// One command of a plan. Relative paths are relative to the directory that the plan runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// A description for messages: `compiling sqlite3.c`.
    pub name: String,
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// How its progress is measured.
    pub counts: Counts,
}

/// How the progress of a command is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Not at all.
    Nothing,
    /// ninja prints `[12/345] `.
    Ninja,
    /// make prints each command; the total is counted before with `--dry-run`.
    Make,
}

impl Step {
    /// A command without additional environment variables and without progress.
    fn new(name: impl Into<String>, program: impl Into<PathBuf>, args: Vec<String>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args,
            env: Vec::new(),
            counts: Counts::Nothing,
        }
    }

    /// The command, quoted for a shell.
    #[must_use]
    pub fn to_shell(&self) -> String {
        let set: String = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={} ", dbdyno_units::shell_quoted(value)))
            .collect();
        set + &quote_command(&self.program, &self.args)
    }
}

/// The commands of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildPlan {
    /// Steps in order; completed ones are skipped when a build is resumed.
    pub steps: Vec<Step>,
    /// Installation steps, always run after them.
    pub install: Vec<Step>,
    /// Files to copy after that.
    pub pieces: Vec<ExtraFiles>,
    /// The file that the engine loads or starts, relative to the build's directory.
    pub artifact: PathBuf,
    /// Whether the build tool writes the compile database into the directory itself.
    pub has_compile_database: bool,
}

/// Files to copy into the directory of a finished server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraFiles {
    /// A file, or a directory whose files are copied.
    pub from: PathBuf,
    /// The target directory, relative to the server's.
    pub to: &'static str,
    /// The suffix of the files to copy.
    pub ending: &'static str,
}

/// The input of [`plan`].
#[derive(Clone, Copy, Debug)]
pub struct RecipeInput<'a> {
    pub system: System,
    pub version: &'a str,
    /// The directory of its source.
    pub source: &'a Path,
    /// The directory that the steps run in.
    pub tree: &'a Path,
    /// The directory of the finished build.
    pub home: &'a Path,
    /// The staging directory, `DESTDIR` of installations.
    pub staging: &'a Path,
    pub variant: &'a Variant,
    /// The flags of the variant.
    pub flags: &'a Flags,
    pub compiler: &'a Compiler,
    pub options: &'a RecipeOptions,
    /// Maximum number of concurrent compilers.
    pub jobs: NonZeroUsize,
}

impl RecipeInput<'_> {
    /// The directory that a server is installed into.
    fn prefix(&self) -> PathBuf {
        self.home.join(SERVER)
    }

    /// The archiver and `ranlib` for objects with link-time optimization, which the system's cannot
    /// read.
    fn archiver(&self) -> Option<(PathBuf, PathBuf)> {
        let lto = requests_lto(self.flags.compile.iter().map(String::as_str));
        lto.then(|| (self.compiler.tool("ar"), self.compiler.tool("ranlib")))
    }

    fn number(&self) -> (u32, u32) {
        number_of(self.version)
    }
}

/// The first two numbers of a version.
fn number_of(version: &str) -> (u32, u32) {
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The directory of a build that a server is installed into.
pub(crate) const SERVER: &str = "server";

/// The artifact of a system's recipe, relative to the build's directory.
#[must_use]
pub fn artifact(system: System) -> PathBuf {
    PathBuf::from(match system {
        System::Sqlite => sqlite::LIBRARY,
        System::PostgreSql => postgresql::PROGRAM,
        System::MariaDb => mariadb::PROGRAM,
        System::MySql => mysql::PROGRAM,
    })
}

/// The flags of a variant for a system: `packaging`, then the variant's own, then `extra`, so that
/// later ones override earlier ones. `lto_linker` are the flags for linking with link-time
/// optimization ([`Compiler::lto_linker`]).
#[must_use]
pub fn flags(
    system: System,
    variant: &Variant,
    compiler: CompilerKind,
    packaging: &PackagingFlags,
    lto_linker: &[String],
    extra: &[String],
) -> Flags {
    // Records the command line in a section that is not loaded at run time, for the flag audit.
    let record = match compiler {
        CompilerKind::Gcc => "-frecord-gcc-switches",
        CompilerKind::Clang => "-frecord-command-line",
    };
    let (extra_link, extra_compile): (Vec<String>, Vec<String>) =
        extra.iter().cloned().partition(|flag| is_link_flag(flag));
    let mut compile = packaging.compile.clone();
    compile.push(record.to_owned());
    compile.extend(compile_flags(variant, compiler));
    if system == System::MySql && variant.march.is_some() {
        compile.push(mysql::NO_FUSED_OPERATIONS.to_owned());
    }
    compile.extend(extra_compile);
    let mut link = packaging.link.clone();
    link.extend(link_flags(variant));
    if !link.iter().chain(&extra_link).any(|flag| flag.starts_with(LINKER)) {
        link.extend(lto_linker.iter().cloned());
    }
    link.extend(extra_link);
    match system {
        System::Sqlite => sqlite::flags(compile, link),
        // Their build systems also pass the compiler flags to the linker.
        System::PostgreSql | System::MariaDb | System::MySql => Flags { compile, link },
    }
}

/// The linker that the flags request but the system's build system does not use.
pub(crate) fn ignored_linker(system: System, flags: &Flags) -> Option<&str> {
    match system {
        System::MySql => flags.linker().filter(|linker| *linker == mysql::IGNORED_LINKER),
        System::Sqlite | System::PostgreSql | System::MariaDb => None,
    }
}

/// The build plan for an input.
#[must_use]
pub fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    match order.system {
        System::Sqlite => sqlite::plan(order),
        System::PostgreSql => postgresql::plan(order),
        System::MariaDb => mariadb::plan(order),
        System::MySql => mysql::plan(order),
    }
}

/// The prerequisites of building a system.
#[must_use]
pub fn needs(
    system: System,
    version: &str,
    options: &RecipeOptions,
    compiler: &Compiler,
    flags: &Flags,
) -> Vec<Prerequisite> {
    let mut needs = match system {
        System::Sqlite => return Vec::new(),
        System::PostgreSql => postgresql::needs(options),
        System::MariaDb => mariadb::needs(options, compiler),
        System::MySql => mysql::needs(version, options, compiler),
    };
    needs.extend(prerequisites::of_flags(compiler, flags));
    needs
}

/// Whether these flags request link-time optimization; the last flag wins.
#[must_use]
pub fn requests_lto<'a>(flags: impl IntoIterator<Item = &'a str>) -> bool {
    flags.into_iter().fold(false, |lto, flag| match flag {
        "-fno-lto" => false,
        _ => lto || flag == "-flto" || flag.starts_with("-flto="),
    })
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) fn compiler(kind: CompilerKind) -> Compiler {
        let name = match kind {
            CompilerKind::Gcc => "gcc-12",
            CompilerKind::Clang => "clang-19",
        };
        Compiler {
            path: PathBuf::from("/usr/bin").join(name),
            resolved: PathBuf::from("/usr/bin").join(name),
            kind,
            version: "12.2.0".to_owned(),
            version_line: format!("{name} (Debian 12.2.0-14) 12.2.0"),
            target: "x86_64-linux-gnu".to_owned(),
            linker: None,
        }
    }

    /// The commands of a plan, quoted for a shell, one per line.
    pub(crate) fn commands(
        system: System,
        version: &str,
        variant: &Variant,
        kind: CompilerKind,
        options: &RecipeOptions,
    ) -> String {
        commands_with(system, version, variant, kind, options, &[])
    }

    /// Like [`commands`], with extra flags.
    pub(crate) fn commands_with(
        system: System,
        version: &str,
        variant: &Variant,
        kind: CompilerKind,
        options: &RecipeOptions,
        extra: &[String],
    ) -> String {
        let compiler = compiler(kind);
        let flags = flags(system, variant, kind, &PackagingFlags::default(), &[], extra);
        let plan = plan(&RecipeInput {
            system,
            version,
            source: Path::new("/src"),
            tree: Path::new("/tree"),
            home: Path::new("/cache/builds/1f"),
            staging: Path::new("/cache/builds/1f.part/root"),
            variant,
            flags: &flags,
            compiler: &compiler,
            options,
            jobs: NonZeroUsize::new(4).unwrap(),
        });
        plan.steps.iter().chain(&plan.install).map(|step| step.to_shell() + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lto_flag_wins() {
        assert!(!requests_lto(["-O2"]));
        assert!(requests_lto(["-flto"]));
        assert!(requests_lto(["-fno-lto", "-flto=thin"]));
        assert!(!requests_lto(["-flto", "-fno-lto"]));
    }

    #[test]
    fn native_flags_make_build_depend_on_host() {
        let flags = |flag: &str| Flags { compile: vec![flag.to_owned()], link: Vec::new() };
        assert!(flags("-march=native").depends_on_host());
        assert!(flags("-mcpu=native").depends_on_host());
        assert!(!flags("-march=x86-64-v3").depends_on_host());
    }

    #[test]
    fn distribution_flags_come_first() {
        let packaging =
            PackagingFlags { compile: words(&["-g", "-O2"]), link: words(&["-Wl,-z,relro"]) };
        let variant = Variant::by_name("rel").unwrap();
        let extra = words(&["-fno-plt", "-Wl,-z,now"]);
        let kind = CompilerKind::Gcc;
        let flags = flags(System::PostgreSql, &variant, kind, &packaging, &[], &extra);
        assert_eq!(flags.compile.join(" "), "-g -O2 -frecord-gcc-switches -O3 -DNDEBUG -fno-plt");
        assert_eq!(flags.link.join(" "), "-Wl,-z,relro -Wl,-z,now");
    }

    #[test]
    fn requested_linker_also_links_with_link_time_optimization() {
        let lld = words(&["-fuse-ld=lld"]);
        let variant = |extra: &[&str]| Variant {
            extra_flags: words(extra),
            ..Variant::by_name("rel_lto").unwrap()
        };
        let linker = |variant: &Variant, extra: &[&str]| {
            let packaging = PackagingFlags::default();
            let kind = CompilerKind::Clang;
            let all = flags(System::MariaDb, variant, kind, &packaging, &lld, &words(extra));
            all.linker().map(str::to_owned)
        };
        let mold = "-fuse-ld=mold";
        assert_eq!(linker(&variant(&[]), &[]).as_deref(), Some("lld"));
        assert_eq!(linker(&variant(&[mold]), &[]).as_deref(), Some("mold"));
        assert_eq!(linker(&variant(&[]), &[mold]).as_deref(), Some("mold"));
    }
}
