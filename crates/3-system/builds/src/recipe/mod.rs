//! Recipes: how each system is compiled, as data.
//!
//! A recipe is a set of pure functions that return, for a variant, its [`Flags`]; for flags, the
//! [`BuildPlan`] with the commands to run; and the build dependencies ([`Prerequisite`]). One
//! module per system.

mod mariadb;
mod mysql;
mod postgresql;
mod prerequisites;
mod sqlite;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use dbdyno_types::server::ServerSystem;

use crate::build_record::depend_on_host;
use crate::command::{Counts, Step};
use crate::variant::{compile_flags, is_link_flag, link_flags};
use crate::{Compiler, CompilerKind, RecipeOptions, System, Variant};

pub use dbdyno_types::build::ConfigureTool;
pub use prerequisites::{Prerequisite, Probe};

pub(crate) use prerequisites::provide;

/// The step that copies the source of a system that is not compiled from the original.
pub(crate) const COPYING: &str = "copying the source";

/// Flags for compiling and linking, without file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub compile: Vec<String>,
    pub link: Vec<String>,
}

/// The start of the flag that names the linker.
const LINKER: &str = "-fuse-ld=";

impl Flags {
    /// Whether they select the CPU of the machine that compiles.
    fn depend_on_host(&self) -> bool {
        depend_on_host(self.compile.iter().chain(&self.link))
    }

    /// The instruction set; `None` for the compiler's default. The last flag wins.
    fn march(&self) -> Option<&str> {
        self.compile.iter().rev().find_map(|flag| flag.strip_prefix("-march="))
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildPlan {
    /// Steps in order; completed ones are skipped when a build is resumed.
    pub steps: Vec<Step>,
    /// Installation steps, always run after them.
    pub install: Vec<Step>,
    /// Files to copy after that.
    pub pieces: Vec<ExtraFiles>,
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

/// What a build is made from, apart from the places on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub system: System,
    /// The version, on which the recipe depends.
    pub version: &'a str,
    /// Variants with the same flags are different builds, because reports show the variant.
    pub variant: &'a Variant,
    /// The recipe's flags for the variant, with the extra ones.
    pub flags: &'a Flags,
    pub options: &'a RecipeOptions,
    pub compiler: &'a Compiler,
}

#[derive(Clone, Copy, Debug)]
pub struct RecipeInput<'a> {
    pub inputs: Inputs<'a>,
    pub source: &'a Path,
    /// The directory that the steps run in.
    pub tree: &'a Path,
    /// The directory of the finished build.
    pub home: &'a Path,
    /// The staging directory, `DESTDIR` of installations.
    pub staging: &'a Path,
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
        let lto = requests_lto(self.inputs.flags.compile.iter().map(String::as_str));
        lto.then(|| (self.inputs.compiler.tool("ar"), self.inputs.compiler.tool("ranlib")))
    }

    fn number(&self) -> (u32, u32) {
        number_of(self.inputs.version)
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

pub(crate) struct Recipe {
    title: &'static str,
    /// `None` for a library.
    pub(crate) server: Option<ServerSystem>,
    /// The file that the engine loads or starts, relative to the build's directory.
    artifact: &'static str,
    /// The version stated in a source; the error says why it is not a source of this system.
    pub(crate) version: fn(&Path) -> Result<String, String>,
    /// Compiler flags of variants that choose an instruction set.
    march_flags: &'static [&'static str],
    /// The linker for which the system's build system removes the flag.
    ignored_linker: Option<&'static str>,
    /// Whether the system's build system adds a flag for the CPU of the machine that compiles.
    adds_native: fn(&str, &RecipeOptions, &Flags) -> bool,
    /// Completes flags for compiling and linking.
    flags: fn(Vec<String>, Vec<String>) -> Flags,
    plan: fn(&RecipeInput<'_>) -> BuildPlan,
    needs: fn(&Inputs<'_>) -> Vec<Prerequisite>,
    /// Debian's packages: of each list of alternatives the first that exists is used. The first list
    /// is that of the server; packages of the others may be missing.
    pub(crate) packages: &'static [&'static [&'static str]],
    /// Names of the server program in releases, the preferred one first.
    pub(crate) programs: &'static [&'static str],
    /// The programs in `usr/bin` or beside the server that create its data.
    pub(crate) helpers: &'static [&'static str],
}

impl System {
    pub(crate) const fn recipe(self) -> &'static Recipe {
        match self {
            Self::Sqlite => &sqlite::RECIPE,
            Self::PostgreSql => &postgresql::RECIPE,
            Self::MariaDb => &mariadb::RECIPE,
            Self::MySql => &mysql::RECIPE,
        }
    }

    pub const fn title(self) -> &'static str {
        self.recipe().title
    }

    /// Whether it is a server, installed into a directory, rather than a library.
    pub const fn is_server(self) -> bool {
        self.recipe().server.is_some()
    }

    pub(crate) fn artifact(self) -> &'static Path {
        Path::new(self.recipe().artifact)
    }
}

/// The flags of a variant for a system: `packaging`, then the variant's own, then `extra`, so that
/// later ones override earlier ones. `lto_linker` are the flags for linking with link-time
/// optimization ([`Compiler::lto_linker`]).
pub fn flags(
    system: System,
    variant: &Variant,
    compiler: CompilerKind,
    packaging: &Flags,
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
    if variant.march.is_some() {
        compile.extend(words(system.recipe().march_flags));
    }
    compile.extend(extra_compile);
    let mut link = packaging.link.clone();
    link.extend(link_flags(variant));
    if !link.iter().chain(&extra_link).any(|flag| flag.starts_with(LINKER)) {
        link.extend(lto_linker.iter().cloned());
    }
    link.extend(extra_link);
    (system.recipe().flags)(compile, link)
}

/// Whether a build depends on the CPU of the machine that compiles: because of its flags, or because
/// the system's build system adds one.
pub(crate) fn depends_on_host(
    system: System,
    version: &str,
    options: &RecipeOptions,
    flags: &Flags,
) -> bool {
    (system.recipe().adds_native)(version, options, flags)
        || flags.depend_on_host()
        || options.arguments.iter().any(|argument| argument.contains("=native"))
}

/// The linker that the flags request but the system's build system does not use.
pub(crate) fn ignored_linker(system: System, flags: &Flags) -> Option<&str> {
    flags.linker().filter(|linker| system.recipe().ignored_linker == Some(linker))
}

pub fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    (order.inputs.system.recipe().plan)(order)
}

pub(crate) fn needs(inputs: &Inputs<'_>) -> Vec<Prerequisite> {
    let mut needs = (inputs.system.recipe().needs)(inputs);
    if inputs.system.is_server() {
        needs.extend(prerequisites::of_flags(inputs.compiler, inputs.flags));
    }
    needs
}

/// Whether these flags request link-time optimization; the last flag wins.
pub fn requests_lto<'a>(flags: impl IntoIterator<Item = &'a str>) -> bool {
    flags.into_iter().fold(false, |lto, flag| match flag {
        "-fno-lto" => false,
        _ => lto || flag == "-flto" || flag.starts_with("-flto="),
    })
}

/// The configure command; the arguments `own` follow the common ones.
fn configure_with_cmake(order: &RecipeInput<'_>, own: Vec<String>) -> Step {
    let compiler = order.inputs.compiler;
    let kind = order.inputs.variant.build_type;
    let mut args = words(&["-G", "Ninja", "-S", &order.source.to_string_lossy(), "-B", "."]);
    let mut define = |name: &str, value: &str| args.push(format!("-D{name}={value}"));
    define("CMAKE_BUILD_TYPE", kind.name());
    define("CMAKE_INSTALL_PREFIX", &order.prefix().to_string_lossy());
    define("CMAKE_EXPORT_COMPILE_COMMANDS", "ON");
    define("CMAKE_C_COMPILER", &compiler.path.to_string_lossy());
    define("CMAKE_CXX_COMPILER", &compiler.cxx().to_string_lossy());
    if let Some((ar, ranlib)) = order.archiver() {
        define("CMAKE_AR", &ar.to_string_lossy());
        define("CMAKE_RANLIB", &ranlib.to_string_lossy());
    }
    let flags = order.inputs.flags.compile.join(" ");
    let of_type = kind.name().to_uppercase();
    define(&format!("CMAKE_C_FLAGS_{of_type}"), &flags);
    define(&format!("CMAKE_CXX_FLAGS_{of_type}"), &flags);
    let link = order.inputs.flags.link.join(" ");
    for what in ["EXE", "MODULE", "SHARED"] {
        if !link.is_empty() {
            define(&format!("CMAKE_{what}_LINKER_FLAGS"), &link);
        }
    }
    args.extend(own);
    args.extend(order.inputs.options.arguments.iter().cloned());
    Step::new(format!("configuring {}", order.inputs.system.title()), "cmake", args)
}

/// The command that compiles these targets; all targets if empty.
fn compile_with_ninja(order: &RecipeInput<'_>, targets: &[&str]) -> Step {
    let mut args = vec![format!("-j{}", order.jobs)];
    args.extend(words(targets));
    Step {
        counts: Counts::Ninja,
        ..Step::new(format!("compiling {}", order.inputs.system.title()), "ninja", args)
    }
}

/// The command that installs into the staging directory.
fn install_with(order: &RecipeInput<'_>, program: &str, args: &[&str]) -> Step {
    Step {
        env: vec![("DESTDIR".to_owned(), order.staging.to_string_lossy().into_owned())],
        ..Step::new(format!("installing {}", order.inputs.system.title()), program, words(args))
    }
}

/// The quoted string after `start` in the line of a file that starts with it.
fn quoted(file: &Path, start: &str) -> Option<String> {
    quoted_in(&fs::read_to_string(file).ok()?, start).map(str::to_owned)
}

fn quoted_in<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(start))?.trim();
    let quote = rest.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    rest[1..].split(quote).next().filter(|word| !word.is_empty())
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
        let flags = flags(system, variant, kind, &Flags::default(), &[], extra);
        let plan = plan(&RecipeInput {
            inputs: Inputs {
                system,
                version,
                variant,
                flags: &flags,
                options,
                compiler: &compiler,
            },
            source: Path::new("/src"),
            tree: Path::new("/tree"),
            home: Path::new("/cache/builds/1f"),
            staging: Path::new("/cache/builds/1f.part/root"),
            jobs: NonZeroUsize::new(4).unwrap(),
        });
        plan.steps.iter().chain(&plan.install).map(|step| step.to_shell() + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

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
        assert!(flags("-march=native").depend_on_host());
        assert!(flags("-mcpu=native").depend_on_host());
        assert!(!flags("-march=x86-64-v3").depend_on_host());
    }

    #[test]
    fn distribution_flags_come_first() {
        let packaging = Flags { compile: words(&["-g", "-O2"]), link: words(&["-Wl,-z,relro"]) };
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
            let packaging = Flags::default();
            let kind = CompilerKind::Clang;
            let all = flags(System::MariaDb, variant, kind, &packaging, &lld, &words(extra));
            all.linker().map(str::to_owned)
        };
        let mold = "-fuse-ld=mold";
        assert_eq!(linker(&variant(&[]), &[]).as_deref(), Some("lld"));
        assert_eq!(linker(&variant(&[mold]), &[]).as_deref(), Some("mold"));
        assert_eq!(linker(&variant(&[]), &[mold]).as_deref(), Some("mold"));
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn version_is_read_from_source() {
        let of = |system: System, files: &[(&str, &str)]| {
            (system.recipe().version)(folder(files).path())
        };
        let postgres = [("configure", "x\nPACKAGE_VERSION='15.18'\n")];
        assert_eq!(of(System::PostgreSql, &postgres), Ok("15.18".to_owned()));
        let numbers = "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=32\n\
                       MYSQL_VERSION_EXTRA=-24\n";
        assert_eq!(of(System::MySql, &[("MYSQL_VERSION", numbers)]), Ok("8.0.32-24".to_owned()));
        let mariadb = [("VERSION", numbers), ("storage/maria/x", "")];
        assert_eq!(of(System::MariaDb, &mariadb), Ok("8.0.32-24".to_owned()));
    }

    #[test]
    fn damaged_sources_have_a_version_or_none() {
        let samples: [&str; 3] = [
            "#define SQLITE_VERSION        \"3.50.4\"\n",
            "PACKAGE_VERSION='15.18'\n",
            "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=32\n",
        ];
        let words = ["PACKAGE_VERSION=", "#define SQLITE_VERSION ", "'", "\"", "é", "\n", "="];
        Fuzz::new(samples.map(Vec::from).to_vec()).words(&words).run(|text| {
            let text = String::from_utf8_lossy(text);
            for start in ["PACKAGE_VERSION=", "#define SQLITE_VERSION "] {
                assert!(quoted_in(&text, start).is_none_or(|version| !version.contains('\n')));
            }
            let _ = mysql::parse_version(&text);
        });
    }

    #[test]
    fn source_of_another_system_is_rejected() {
        let mariadb = [
            ("VERSION", "MYSQL_VERSION_MAJOR=10\nMYSQL_VERSION_MINOR=6\nMYSQL_VERSION_PATCH=1"),
            ("storage/maria/x", ""),
        ];
        let mariadb = folder(&mariadb);
        assert_eq!(
            (System::MySql.recipe().version)(mariadb.path()),
            Err("it is MariaDB's".to_owned())
        );
        let error = (System::PostgreSql.recipe().version)(mariadb.path()).unwrap_err();
        assert_eq!(error, "it has no usable configure with PACKAGE_VERSION");
    }
}
