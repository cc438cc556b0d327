//! C compilers: search, identification, companion tools.

mod error;
mod lto;
mod march;
mod version;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::BuildError;
use crate::command::clean_command;

pub use error::CompilerError;
pub(crate) use march::default_march;

/// A compiler family; it determines the spelling of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompilerKind {
    /// GNU.
    Gcc,
    /// LLVM.
    Clang,
}

impl CompilerKind {
    /// The parts of a program's name before and after the family's name, such as target and
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
    /// The absolute path of the program.
    pub path: PathBuf,
    /// The path with symbolic links resolved: `cc`, `gcc` and `gcc-12` are often one program.
    pub resolved: PathBuf,
    /// Its family.
    pub kind: CompilerKind,
    /// The version number: `12.2.0`.
    pub version: String,
    /// The first line of the output for `--version`, which includes the distribution's version.
    pub version_line: String,
    /// The target triple: `x86_64-pc-linux-gnu`.
    pub target: String,
    /// The first line of the linker's output for `--version`; `None` if unknown.
    pub linker: Option<String>,
}

impl Compiler {
    /// Finds the compiler `name` on the PATH, or at that path if it contains a slash.
    ///
    /// # Errors
    /// When there is no such program, or it is neither gcc nor clang.
    pub fn find(name: &str) -> Result<Self, CompilerError> {
        Self::find_in(name, &path_folders())
    }

    /// Finds the first of `cc`, `gcc`, `clang`.
    ///
    /// # Errors
    /// When none of them is installed, or the first one found is neither gcc nor clang.
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
        let about = output_of(&path, &["--version"])?;
        let version_line = about.lines().next().unwrap_or_default().trim().to_owned();
        // A program that rejects these arguments is not a compiler.
        let macros = output_of(&path, &version::PRINT_MACROS).unwrap_or_default();
        let Some((kind, version)) = version::parse(&macros) else {
            return Err(CompilerError::Unknown { path, output: version_line });
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
    #[must_use]
    pub fn cxx(&self) -> PathBuf {
        self.companion(&|path| cxx_beside(self.kind, path))
    }

    /// The matching tool for its objects, such as `ar`: `gcc-ar-12` for `gcc-12`.
    #[must_use]
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
        found.ok_or_else(|| BuildError::MissingTool {
            tool: own.display().to_string(),
            purpose: purpose.to_owned(),
            package: format!("llvm-{}", self.version.split('.').next().unwrap_or("")),
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

/// Prints `gcc 12.2.0`.
impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.kind, self.version))
    }
}

/// The names of the compilers on the PATH: `gcc`, `clang`, and versioned ones such as `gcc-12`.
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

/// The first line of the version of a compiler's linker.
fn linker_version(compiler: &Path, which: &[&str]) -> Option<String> {
    let text = output_of(compiler, &[which, &["-Wl,--version"]].concat()).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The output of the program for `args`.
fn output_of(path: &Path, args: &[&str]) -> Result<String, CompilerError> {
    let output = clean_command(path).args(args).output().map_err(|source| {
        CompilerError::CannotRun { path: path.to_owned(), source: source.into() }
    })?;
    if !output.status.success() {
        return Err(CompilerError::Unknown {
            path: path.to_owned(),
            output: format!("{} for {}", output.status, args.join(" ")),
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
}
