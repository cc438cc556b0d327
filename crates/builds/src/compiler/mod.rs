//! Finding a C compiler and learning what it is.

mod error;
mod lto;
mod version;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

pub use error::CompilerError;

/// The family of a compiler: which spellings of flags it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompilerKind {
    /// GNU.
    Gcc,
    /// LLVM.
    Clang,
}

impl CompilerKind {
    /// What a program's name has before and after the family's, such as the target and the
    /// version.
    fn split_name(self, name: &str) -> Option<(&str, &str)> {
        name.split_once(match self {
            Self::Gcc => "gcc",
            Self::Clang => "clang",
        })
    }
}

impl fmt::Display for CompilerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gcc => "gcc",
            Self::Clang => "clang",
        })
    }
}

/// A C compiler on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// The program as it is called; absolute.
    pub path: PathBuf,
    /// The same with symbolic links followed: `cc`, `gcc` and `gcc-12` are often one program.
    pub resolved: PathBuf,
    /// Its family.
    pub kind: CompilerKind,
    /// The number alone: `12.2.0`.
    pub version: String,
    /// The first line of what `--version` prints, which names the distribution's build of it.
    pub version_line: String,
    /// What it compiles for: `x86_64-pc-linux-gnu`.
    pub target: String,
    /// The first line of what its linker prints for `--version`; `None` where it would not say.
    pub linker: Option<String>,
}

impl Compiler {
    /// The compiler called `name` on the PATH, or at that path if there is a slash in it.
    ///
    /// # Errors
    /// When there is no such program, or it is no compiler of a known kind.
    pub fn find(name: &str) -> Result<Self, CompilerError> {
        Self::find_in(name, &path_folders())
    }

    /// The first that is there of `cc`, `gcc`, `clang`.
    ///
    /// # Errors
    /// When none of them is there, or the first one found is no compiler of a known kind.
    pub fn find_default() -> Result<Self, CompilerError> {
        let names = ["cc", "gcc", "clang"];
        let folders = path_folders();
        match names.iter().find(|name| locate(name, &folders).is_some()) {
            Some(name) => Self::find_in(name, &folders),
            None => Err(not_found(&names, &folders)),
        }
    }

    fn find_in(name: &str, folders: &[PathBuf]) -> Result<Self, CompilerError> {
        let path = locate(name, folders).ok_or_else(|| not_found(&[name], folders))?;
        Self::examine(path)
    }

    fn examine(path: PathBuf) -> Result<Self, CompilerError> {
        let about = ask(&path, &["--version"])?;
        let version_line = about.lines().next().unwrap_or_default().trim().to_owned();
        // A program that does not know these arguments is no compiler either.
        let macros = ask(&path, &version::PRINT_MACROS).unwrap_or_default();
        let Some((kind, version)) = version::parse(&macros) else {
            return Err(CompilerError::Unknown { path, answer: version_line });
        };
        Ok(Self {
            resolved: fs::canonicalize(&path).unwrap_or_else(|_| path.clone()),
            kind,
            version,
            version_line,
            target: ask(&path, &["-dumpmachine"])?.trim().to_owned(),
            linker: ask(&path, &["-Wl,--version"]).ok().and_then(|text| {
                text.lines().next().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty())
            }),
            path,
        })
    }

    /// The C++ compiler that belongs to it: `g++-12` for `gcc-12`.
    #[must_use]
    pub fn cxx(&self) -> PathBuf {
        let name = self.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // `cc` is a link of the distribution's to whatever it is.
        let known = if name == "cc" { None } else { self.kind.split_name(name) };
        let (before, after) = known.unwrap_or(("", ""));
        let family = match self.kind {
            CompilerKind::Gcc => "g++",
            CompilerKind::Clang => "clang++",
        };
        self.path.with_file_name(if name == "cc" {
            "c++".to_owned()
        } else {
            format!("{before}{family}{after}")
        })
    }

    /// One of the tools that see into its objects, such as `ar`: `gcc-ar-12` for `gcc-12`.
    #[must_use]
    pub fn tool(&self, name: &str) -> PathBuf {
        companion(self.kind, &self.path, name)
    }

    /// What tells this compiler's output from another's, for the fingerprint. The first word of
    /// gcc's version line is the name it was called by, which is not part of it.
    pub(crate) fn identity(&self) -> [&str; 4] {
        let line = match self.kind {
            CompilerKind::Gcc => self.version_line.split_once(' ').map_or("", |(_, rest)| rest),
            CompilerKind::Clang => &self.version_line,
        };
        let path = self.resolved.to_str().unwrap_or_default();
        [path, line, &self.target, self.linker.as_deref().unwrap_or_default()]
    }
}

/// A tool that belongs to the compiler at `path`.
pub(crate) fn companion(kind: CompilerKind, path: &Path, name: &str) -> PathBuf {
    let own = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let (before, after) = kind.split_name(own).unwrap_or(("", ""));
    let family = match kind {
        CompilerKind::Gcc => "gcc",
        CompilerKind::Clang => "llvm",
    };
    path.with_file_name(format!("{before}{family}-{name}{after}"))
}

/// Prints what a report should say: `gcc 12.2.0`.
impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.kind, self.version))
    }
}

/// The names of the compilers on the PATH: `gcc`, `clang` and those with a version behind, such
/// as `gcc-12`.
#[must_use]
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

fn not_found(looked_for: &[&str], folders: &[PathBuf]) -> CompilerError {
    CompilerError::NotFound {
        looked_for: looked_for.iter().map(|name| (*name).to_owned()).collect(),
        installed: installed_in(folders),
    }
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

/// Variables that change what compilers and build tools make.
const HIDDEN: [&str; 18] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MFLAGS",
    "CC",
    "CXX",
    "CPPFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "COPT",
    "PROFILE",
    "DESTDIR",
    "NINJA_STATUS",
];

/// A compiler's command without what the caller's environment would add to it unseen: the
/// fingerprint does not know these variables.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    for variable in HIDDEN {
        command.env_remove(variable);
    }
    command
}

/// What the program prints when it is called with `args`.
fn ask(path: &Path, args: &[&str]) -> Result<String, CompilerError> {
    let output = clean_command(path).args(args).output().map_err(|source| {
        CompilerError::CannotRun { path: path.to_owned(), source: source.into() }
    })?;
    if !output.status.success() {
        return Err(CompilerError::Unknown {
            path: path.to_owned(),
            answer: format!("{} for {}", output.status, args.join(" ")),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(folder: &Path, name: &str) {
        let path = folder.join(name);
        fs::write(&path, "never run").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_missing_compiler_names_those_that_are_there() {
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
    fn a_program_that_is_no_compiler_is_refused() {
        let error = Compiler::find("/bin/echo").unwrap_err();
        assert!(error.to_string().contains("/bin/echo is neither gcc nor clang"), "{error}");
    }

    #[test]
    fn the_tools_of_a_compiler_have_its_version_in_their_names() {
        let compiler = |path: &str, kind| Compiler {
            path: PathBuf::from(path),
            resolved: PathBuf::from(path),
            kind,
            version: String::new(),
            version_line: String::new(),
            target: String::new(),
            linker: None,
        };
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
    fn the_name_gcc_was_called_by_does_not_tell_compilers_apart() {
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
}
