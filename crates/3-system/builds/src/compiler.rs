//! C compilers: search, identification, companion tools.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BuildError, CompilerKind};
use crate::command::clean_command;
use crate::{CompilerUsed, ProblemKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// The absolute path of the program.
    pub path: PathBuf,
    /// The path with symbolic links resolved: `cc`, `gcc` and `gcc-12` are often one program.
    pub resolved: PathBuf,
    pub kind: CompilerKind,
    /// The version number: `12.2.0`.
    pub version: String,
    /// The first line of the output for `--version`, which includes the distribution's version.
    pub version_line: String,
    pub target: String,
    /// The first line of the linker's output for `--version`; `None` if unknown.
    pub linker: Option<String>,
}

impl Compiler {
    /// Finds the compiler `name` on the PATH, or at that path if it contains a slash.
    pub fn find(name: &str) -> Result<Self, BuildError> {
        Self::find_in(name, &path_folders())
    }

    fn find_in(name: &str, folders: &[PathBuf]) -> Result<Self, BuildError> {
        let path = locate(name, folders).ok_or_else(|| not_found(name, folders))?;
        Self::examine(path)
    }

    fn examine(path: PathBuf) -> Result<Self, BuildError> {
        let about = output_of(&path, &["--version"])?;
        let version_line = about.lines().next().unwrap_or_default().trim().to_owned();
        // A program that rejects these arguments is not a compiler.
        let macros = output_of(&path, &PRINT_MACROS).unwrap_or_default();
        let Some((kind, version)) = parse_macros(&macros) else {
            return Err(unknown_compiler(&path, &version_line));
        };
        Ok(Self {
            resolved: fs::canonicalize(&path).unwrap_or_else(|_| path.clone()),
            kind,
            version,
            version_line,
            target: output_of(&path, &["-dumpmachine"])?.trim().to_owned(),
            linker: linker_version(&path, &[]),
            path,
        })
    }

    /// The matching C++ compiler: `g++-12` for `gcc-12`.
    pub fn cxx(&self) -> PathBuf {
        self.companion(&|path| cxx_beside(self.kind, path))
    }

    /// Checks that the matching C++ compiler is of the same version: alternatives of a distribution can differ.
    pub(crate) fn check_cxx(&self) -> Result<(), BuildError> {
        let cxx = self.cxx();
        let macros = output_of(&cxx, &["-dM", "-E", "-x", "c++", "/dev/null"]).unwrap_or_default();
        match parse_macros(&macros) {
            Some((kind, version)) if (kind, &version) != (self.kind, &self.version) => {
                Err(BuildError::new(
                    ProblemKind::Machine,
                    format!(
                        "{} is {} {version}, but {} is {} {}",
                        cxx.display(),
                        kind.name(),
                        self.path.display(),
                        self.kind.name(),
                        self.version
                    ),
                    "name a compiler with its version, such as `compiler = \"gcc-12\"`, or correct the \
                     alternatives of the system",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The matching tool for its objects, such as `ar`: `gcc-ar-12` for `gcc-12`.
    pub fn tool(&self, name: &str) -> PathBuf {
        let tool = self.companion(&|path| tool_beside(self.kind, path, name));
        if !tool.is_absolute() || tool.is_file() {
            return tool;
        }
        let name = tool.file_name().and_then(OsStr::to_str).unwrap_or_default();
        locate(name, &path_folders()).unwrap_or(tool)
    }

    /// The tool `name` of LLVM that belongs to this clang; an error with its `purpose` if there is none.
    pub(crate) fn llvm_tool(&self, name: &str, purpose: &str) -> Result<PathBuf, BuildError> {
        // Not one on the PATH: profiles of other versions are rejected.
        let own = self.companion(&|path| tool_beside(self.kind, path, name));
        // `clang-19` has a version in its name, but the tools in the directory that its link resolves to
        // need not.
        let unversioned = self.resolved.with_file_name(format!("llvm-{name}"));
        let found = [&own, &unversioned].into_iter().find(|path| path.is_file()).cloned();
        found.ok_or_else(|| {
            let package = format!("llvm-{}", self.version.split('.').next().unwrap_or(""));
            BuildError::missing_tool(own.display(), purpose, &package)
        })
    }

    /// The program that `beside` names for a compiler at a path: beside this compiler; else beside the
    /// one that its link resolves to, because a directory of links, such as ccache's, need not have all
    /// programs. If there is none, that beside this compiler.
    fn companion(&self, beside: &dyn Fn(&Path) -> PathBuf) -> PathBuf {
        let own = beside(&self.path);
        // A name in place of the path is not searched for: it is part of the fingerprint.
        if !own.is_absolute() || own.is_file() {
            return own;
        }
        let resolved = self.resolved.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // ccache's own name does not show the compiler's.
        let is_compiler = self.kind.split_name(resolved).is_some();
        let name = own.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let others = is_compiler.then(|| beside(&self.resolved)).into_iter();
        let mut others = others.chain([self.resolved.with_file_name(name)]);
        others.find(|path| path.is_file()).unwrap_or(own)
    }

    /// The first line of the version of the linker `name`, as in `-fuse-ld=name`; `None` if it does not
    /// tell.
    pub(crate) fn linker_version(&self, name: &str) -> Option<String> {
        linker_version(&self.path, &[&format!("-fuse-ld={name}")])
    }

    /// What the compiler's output depends on, for the fingerprint.
    pub(crate) fn identity(&self) -> [&str; 4] {
        let line = without_name(self.kind, &self.version_line);
        let path = self.resolved.to_str().unwrap_or_default();
        [path, line, &self.target, self.linker.as_deref().unwrap_or_default()]
    }
}

/// A version line without the name by which the compiler was called: the first word of gcc's.
pub(crate) fn without_name(kind: CompilerKind, version_line: &str) -> &str {
    match kind {
        CompilerKind::Gcc => version_line.split_once(' ').map_or("", |(_, rest)| rest),
        CompilerKind::Clang => version_line,
    }
}

/// The C++ compiler that belongs to the compiler at `path`, in the same directory.
fn cxx_beside(kind: CompilerKind, path: &Path) -> PathBuf {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    // `cc` is a link to the distribution's default compiler, so its name does not show the family.
    if name == "cc" {
        return path.with_file_name("c++");
    }
    let (before, after) = kind.split_name(name).unwrap_or(("", ""));
    let family = match kind {
        CompilerKind::Gcc => "g++",
        CompilerKind::Clang => "clang++",
    };
    path.with_file_name(format!("{before}{family}{after}"))
}

/// The tool `name` that belongs to the compiler at `path`, in the same directory.
fn tool_beside(kind: CompilerKind, path: &Path, name: &str) -> PathBuf {
    let own = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let (before, after) = kind.split_name(own).unwrap_or(("", ""));
    let family = match kind {
        CompilerKind::Gcc => "gcc",
        CompilerKind::Clang => "llvm",
    };
    path.with_file_name(format!("{before}{family}-{name}{after}"))
}

impl CompilerKind {
    /// The parts of a program's name before and after the family's name, such as target and
    /// version.
    fn split_name(self, name: &str) -> Option<(&str, &str)> {
        name.split_once(self.name())
    }
}

impl CompilerUsed {
    /// The instruction set that it compiles for by default, by its name for `-march`; `None` if it does not tell, or
    /// is not installed any more. Distributions configure it: Red Hat's is `x86-64-v2`.
    pub fn default_march(&self) -> Option<String> {
        let text = match self.name {
            CompilerKind::Gcc => output_of(&self.path, &["-Q", "--help=target"]).ok()?,
            CompilerKind::Clang => return None,
        };
        parse_march(&text)
    }

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

/// Prints `gcc 12.2.0`.
impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.kind, self.version))
    }
}

/// The names of the compilers on the PATH: `gcc`, `clang`, and versioned ones such as `gcc-12`.
pub fn installed_compilers() -> Vec<String> {
    installed_in(&path_folders())
}

fn installed_in(folders: &[PathBuf]) -> Vec<String> {
    let is_version = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_compiler = |name: &str| match name.split_once('-') {
        Some((family, version)) => ["gcc", "clang"].contains(&family) && is_version(version),
        None => ["gcc", "clang"].contains(&name),
    };
    let names: BTreeSet<String> = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_compiler(name) && locate(name, folders).is_some())
        .collect();
    names.into_iter().collect()
}

fn not_found(name: &str, folders: &[PathBuf]) -> BuildError {
    let installed = match installed_in(folders) {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    };
    BuildError::new(
        ProblemKind::Machine,
        format!("no C compiler `{name}`; on the PATH: {installed}"),
        "try one of these, the full path of another, or `apt-get install clang`",
    )
}

/// Whether a program of this name is on the PATH.
pub(crate) fn is_installed(name: &str) -> bool {
    locate(name, &path_folders()).is_some()
}

pub(crate) fn path_folders() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

pub(crate) fn locate(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    if name.contains('/') {
        let path = std::path::absolute(name).ok()?;
        return is_program(&path).then_some(path);
    }
    folders
        .iter()
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The first line of the version of a compiler's linker.
fn linker_version(compiler: &Path, which: &[&str]) -> Option<String> {
    let text = output_of(compiler, &[which, &["-Wl,--version"]].concat()).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

fn output_of(path: &Path, args: &[&str]) -> Result<String, BuildError> {
    let output =
        clean_command(path).args(args).output().map_err(|error| cannot_run(path, &error))?;
    if !output.status.success() {
        let args = args.join(" ");
        return Err(unknown_compiler(path, &format!("{} for {args}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Compiler {
    /// The linker flags required to link objects compiled with `-flto`.
    ///
    /// Determined by linking a small library, not by searching for files: clang needs its own
    /// linker (`ld.lld`, of a version that reads its bitcode) or, for the system's linker, a plugin
    /// that distributions install in different packages and directories.
    pub fn lto_linker(&self) -> Result<Vec<String>, BuildError> {
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
        let (path, kind, version) = (self.path.display(), self.kind, &self.version);
        Err(BuildError::new(
            ProblemKind::Machine,
            format!(
                "{path} ({kind} {version}) cannot link with -flto on this machine: {}",
                output.trim()
            ),
            format!(
                "try {}, another compiler, or a variant without `lto` in its name",
                lto_advice(kind, version)
            ),
        ))
    }

    /// Tries to link with the flags `way`; returns the compiler's message if that fails.
    fn try_lto(&self, folder: &Path, way: &[&str]) -> Result<Option<String>, BuildError> {
        let source = folder.join("trial.c");
        fs::write(&source, "int dbdyno_trial(int x) { return x + 1; }\n")
            .map_err(no_trial(&source))?;
        let output = clean_command(&self.path)
            .current_dir(folder)
            .args(["-flto", "-O2", "-fPIC", "-shared", "trial.c", "-o", "trial.so"])
            .args(way)
            .output()
            .map_err(|error| cannot_run(&self.path, &error))?;
        let failed = !output.status.success();
        Ok(failed.then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// A private directory for the trial link, removed on drop.
struct TrialFolder(PathBuf);

impl TrialFolder {
    fn create() -> Result<Self, BuildError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("dbdyno-lto-{}-{number}", process::id()));
        // Left by an earlier process with the same id.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).map_err(no_trial(&path))?;
        Ok(Self(path))
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parse_march(help: &str) -> Option<String> {
    let value = help.lines().find_map(|line| line.trim_start().strip_prefix("-march="))?;
    // Without a value, some versions show `-march=ARCH`.
    let is_shown = value.starts_with(char::is_whitespace) && value.split_whitespace().count() == 1;
    is_shown.then(|| value.trim().to_owned())
}

/// Arguments to print the predefined macros. They contain family and version in a fixed format,
/// whereas the output of `--version` differs between distributions and is similar to that of other
/// programs.
const PRINT_MACROS: [&str; 5] = ["-dM", "-E", "-x", "c", "/dev/null"];

/// Parses family and version from those macros; `None` if they are not those of a C compiler.
fn parse_macros(macros: &str) -> Option<(CompilerKind, String)> {
    let value = |name: &str| {
        macros.lines().find_map(|line| {
            let (found, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            (found == name).then(|| value.trim().to_owned())
        })
    };
    let number = |names: [&str; 3]| {
        let [major, minor, patch] = names.map(value);
        Some(format!("{}.{}.{}", major?, minor?, patch?))
    };
    // clang also defines gcc's macros, with the version that it is compatible with.
    let clang = number(["__clang_major__", "__clang_minor__", "__clang_patchlevel__"]);
    let gcc = || number(["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"]);
    clang
        .map(|version| (CompilerKind::Clang, version))
        .or_else(|| gcc().map(|version| (CompilerKind::Gcc, version)))
}

fn cannot_run(path: &Path, error: &io::Error) -> BuildError {
    let what = format!("cannot run the compiler {}: {error}", path.display());
    BuildError::new(ProblemKind::Machine, what, "")
}

fn unknown_compiler(path: &Path, output: &str) -> BuildError {
    let path = path.display();
    BuildError::new(
        ProblemKind::Machine,
        format!("{path} is neither gcc nor clang; its version output is `{output}`"),
        "use one of those two",
    )
}

fn no_trial(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    move |error| {
        BuildError::new(
            ProblemKind::Machine,
            format!("cannot write {} to try the compiler: {error}", path.display()),
            "check that TMPDIR exists and has free space",
        )
    }
}

fn lto_advice(kind: CompilerKind, version: &str) -> String {
    let major = version.split('.').next().unwrap_or(version);
    match kind {
        CompilerKind::Clang => format!("`apt-get install lld-{major}`"),
        // gcc contains its LTO plugin, unless configured without it.
        CompilerKind::Gcc => "a gcc configured with --enable-lto".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn program(folder: &Path, name: &str) {
        let path = folder.join(name);
        fs::write(&path, "never run").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn unexamined(path: &Path, resolved: &Path, kind: CompilerKind) -> Compiler {
        Compiler {
            path: path.to_owned(),
            resolved: resolved.to_owned(),
            kind,
            version: String::new(),
            version_line: String::new(),
            target: String::new(),
            linker: None,
        }
    }

    #[test]
    fn missing_compiler_error_lists_installed_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["gcc-12", "clang", "gcc-ar", "clang-format-14", "clang++"] {
            program(folder.path(), name);
        }
        fs::write(folder.path().join("gcc-99"), "not executable").unwrap();
        let error = Compiler::find_in("gcc-13", &[folder.path().to_owned()]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("no C compiler `gcc-13`"), "{message}");
        assert!(message.contains("on the PATH: clang, gcc-12;"), "{message}");
        assert!(message.contains("apt-get install clang"), "{message}");
    }

    #[test]
    fn program_that_is_not_a_compiler_is_rejected() {
        let error = Compiler::find("/bin/echo").unwrap_err();
        assert!(error.to_string().contains("/bin/echo is neither gcc nor clang"), "{error}");
    }

    #[test]
    fn companion_tools_have_the_compilers_prefix_and_version() {
        let compiler = |path: &str, kind| unexamined(Path::new(path), Path::new(path), kind);
        let gcc = compiler("/usr/bin/x86_64-linux-gnu-gcc-12", CompilerKind::Gcc);
        assert_eq!(gcc.cxx(), Path::new("/usr/bin/x86_64-linux-gnu-g++-12"));
        assert_eq!(gcc.tool("ar"), Path::new("/usr/bin/x86_64-linux-gnu-gcc-ar-12"));
        let clang = compiler("/usr/bin/clang-19", CompilerKind::Clang);
        assert_eq!(clang.cxx(), Path::new("/usr/bin/clang++-19"));
        assert_eq!(clang.tool("ranlib"), Path::new("/usr/bin/llvm-ranlib-19"));
        let cc = compiler("/usr/bin/cc", CompilerKind::Gcc);
        assert_eq!(cc.cxx(), Path::new("/usr/bin/c++"));
        assert_eq!(cc.tool("ar"), Path::new("/usr/bin/gcc-ar"));
    }

    #[test]
    fn companion_tools_of_a_link_are_beside_the_compiler() {
        let folder = tempfile::tempdir().unwrap();
        let (links, programs) = (folder.path().join("links"), folder.path().join("programs"));
        for folder in [&links, &programs] {
            fs::create_dir(folder).unwrap();
        }
        let real = "x86_64-linux-gnu-gcc-99";
        for name in ["gcc-ar-99", "x86_64-linux-gnu-gcc-ar-99", "x86_64-linux-gnu-g++-99"] {
            program(&programs, name);
        }
        let gcc = |name: &str, resolved: &str| {
            unexamined(&links.join(name), &programs.join(resolved), CompilerKind::Gcc)
        };
        let link = gcc("gcc", real);
        assert_eq!(link.tool("ar"), programs.join("x86_64-linux-gnu-gcc-ar-99"));
        assert_eq!(link.cxx(), programs.join("x86_64-linux-gnu-g++-99"));
        assert_eq!(gcc("gcc-99", "ccache").tool("ar"), programs.join("gcc-ar-99"));
        // What is missing is reported beside the link.
        assert_eq!(gcc("gcc-99", "ccache").tool("ranlib"), links.join("gcc-ranlib-99"));
        program(&links, "gcc-ar");
        assert_eq!(link.tool("ar"), links.join("gcc-ar"));
        let named = unexamined(Path::new("compiler"), &link.resolved, CompilerKind::Gcc);
        assert_eq!(named.tool("ar"), Path::new("gcc-ar"));
        assert_eq!(named.cxx(), Path::new("g++"));
    }

    #[test]
    fn cxx_of_another_version_is_refused() {
        let found = Compiler::find("gcc").unwrap();
        found.check_cxx().unwrap();
        let other = Compiler { version: "1.0.0".to_owned(), ..found };
        let error = other.check_cxx().unwrap_err().to_string();
        assert!(
            error.contains("g++") && error.contains("but") && error.contains("1.0.0"),
            "{error}"
        );
    }

    #[test]
    fn identity_is_independent_of_gccs_name() {
        let compiler = |name: &str| Compiler {
            path: PathBuf::from("/usr/bin").join(name),
            resolved: PathBuf::from("/usr/bin/x86_64-linux-gnu-gcc-12"),
            kind: CompilerKind::Gcc,
            version: "12.2.0".to_owned(),
            version_line: format!("{name} (Debian 12.2.0-14) 12.2.0"),
            target: "x86_64-linux-gnu".to_owned(),
            linker: None,
        };
        assert_eq!(compiler("cc").identity(), compiler("gcc-12").identity());
    }

    #[test]
    fn default_is_the_value_of_the_option() {
        let help = "The following options are target specific:\n  -m128bit-long-double        \t[enabled]\n  \
                    -march=                     \t\tx86-64-v2\n  -mtune=  \t\tgeneric\n";
        assert_eq!(parse_march(help).as_deref(), Some("x86-64-v2"));
        assert_eq!(parse_march("  -march=ARCH  \t\t\n"), None);
        assert_eq!(parse_march("  -march=  \t\t\n"), None);
        assert_eq!(parse_march(""), None);
    }

    #[test]
    fn default_of_gcc_is_known() {
        let gcc = CompilerUsed::from(&Compiler::find("gcc").unwrap());
        assert!(gcc.default_march().is_some());
    }

    const GCC: &str = "#define __SSP_STRONG__ 3\n#define __GNUC_MINOR__ 2\n#define __GNUC__ 12\n\
                       #define __GNUC_PATCHLEVEL__ 0\n";

    #[test]
    fn gcc_version_is_parsed() {
        assert_eq!(parse_macros(GCC), Some((CompilerKind::Gcc, "12.2.0".to_owned())));
    }

    #[test]
    fn damaged_macros_are_read_or_refused() {
        Fuzz::new(vec![GCC.into()]).words(&["#define __GNUC__ ", "__clang_major__", "\n"]).run(
            |macros| {
                let _ = parse_macros(&String::from_utf8_lossy(macros));
            },
        );
    }

    #[test]
    fn clang_is_distinguished_from_gcc() {
        let clang = "#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 1\n#define __GNUC__ 4\n\
                     #define __clang_major__ 14\n#define __clang_minor__ 0\n\
                     #define __clang_patchlevel__ 6\n";
        assert_eq!(parse_macros(clang), Some((CompilerKind::Clang, "14.0.6".to_owned())));
    }

    #[test]
    fn other_output_is_rejected() {
        assert_eq!(parse_march(""), None);
        assert_eq!(parse_macros("-dM -E -x c /dev/null"), None);
        assert_eq!(parse_macros("#define __GNUC__ 12\n"), None);
    }
}
