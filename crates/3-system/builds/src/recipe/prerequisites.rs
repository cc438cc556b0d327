use std::path::PathBuf;

use super::{Flags, requests_lto};
use crate::{Compiler, CompilerKind};

/// A prerequisite of building a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prerequisite {
    /// How its presence is detected.
    pub probe: Probe,
    /// The Debian package that contains it.
    pub package: String,
}

/// How the presence of a prerequisite is detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A program on the PATH.
    Program(String),
    /// A header that the C compiler finds.
    Header(String),
    File(PathBuf),
    /// Modules of Perl, which Debian packages separately.
    PerlModules(&'static [&'static str]),
}

impl Prerequisite {
    pub(super) fn program(name: &str, package: &str) -> Self {
        Self { probe: Probe::Program(name.to_owned()), package: package.to_owned() }
    }

    pub(super) fn header(name: &str, package: &str) -> Self {
        Self { probe: Probe::Header(name.to_owned()), package: package.to_owned() }
    }

    pub(super) fn cxx(compiler: &Compiler) -> Self {
        let package = match compiler.kind {
            CompilerKind::Gcc => compiler.cxx(),
            CompilerKind::Clang => compiler.path.clone(),
        };
        let package = package.file_name().map(|name| name.to_string_lossy().into_owned());
        let package = package.filter(|name| name != "c++").unwrap_or_else(|| "g++".to_owned());
        Self { probe: Probe::File(compiler.cxx()), package }
    }
}

/// The compiler tools that the flags need.
pub(super) fn of_flags(compiler: &Compiler, flags: &Flags) -> Vec<Prerequisite> {
    let mut needs = Vec::new();
    if requests_lto(flags.compile.iter().map(String::as_str)) {
        let archiver = compiler.tool("ar");
        let name = archiver.file_name().unwrap_or_default().to_string_lossy();
        let package = match compiler.kind {
            CompilerKind::Gcc => "gcc".to_owned(),
            CompilerKind::Clang => name.replace("-ar", ""),
        };
        needs.push(Prerequisite { probe: Probe::File(archiver), package });
    }
    // clang searches its own directory first, so a linker need not be on the PATH.
    if let Some(linker) = flags.linker().filter(|_| compiler.kind == CompilerKind::Gcc) {
        let package = match linker {
            "bfd" | "gold" => "binutils",
            other => other,
        };
        needs.push(Prerequisite::program(&format!("ld.{linker}"), package));
    }
    needs
}
