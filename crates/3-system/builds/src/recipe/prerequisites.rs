//! What must be installed to build a system: check and installation.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Flags, requests_lto};
use crate::command::{clean_command, network_command};
use crate::compiler::is_installed;
use crate::error::last_lines;
use crate::trusted_tree::we_are_root;
use crate::{BuildError, Compiler, CompilerKind, ProblemKind, System};

/// A prerequisite of building a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prerequisite {
    pub probe: Probe,
    /// The Debian package that contains it.
    pub package: String,
}

/// How the presence of a prerequisite is detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
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

/// Checks the prerequisites; as root on Debian, installs missing ones.
pub(crate) fn provide(
    system: System,
    needs: &[Prerequisite],
    compiler: &Compiler,
    report: &dyn Fn(String),
) -> Result<(), BuildError> {
    let missing = missing(needs, compiler);
    if missing.is_empty() {
        return Ok(());
    }
    let mut install_output = String::new();
    if can_install() {
        let packages = packages(&missing);
        report(format!("installing build dependencies: {}", packages.join(" ")));
        if let Err(message) = install(&packages) {
            install_output = message;
        }
    }
    let missing = self::missing(needs, compiler);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(|need| name(need)).collect();
    let mut advice = format!(
        "install these Debian packages or their equivalents: apt-get install {}",
        packages(&missing).join(" ")
    );
    if !install_output.is_empty() {
        advice.push_str(&format!("\ninstallation failed:\n{install_output}"));
    }
    let what = format!("missing build dependencies of {}: {}", system.title(), names.join(", "));
    Err(BuildError::new(ProblemKind::Machine, what, advice))
}

fn missing<'n>(needs: &'n [Prerequisite], compiler: &Compiler) -> Vec<&'n Prerequisite> {
    needs.iter().filter(|need| !is_present(&need.probe, compiler)).collect()
}

fn is_present(probe: &Probe, compiler: &Compiler) -> bool {
    match probe {
        Probe::Program(name) => is_installed(name),
        Probe::Header(name) => has_header(name, compiler),
        Probe::File(path) => path.is_file(),
        Probe::PerlModules(names) => has_perl_modules(names),
    }
}

fn has_perl_modules(names: &[&str]) -> bool {
    let mut perl = clean_command("perl");
    perl.args(names.iter().map(|name| format!("-M{name}"))).args(["-e", "1"]);
    perl.stdout(Stdio::null()).stderr(Stdio::null());
    perl.status().is_ok_and(|status| status.success())
}

fn has_header(name: &str, compiler: &Compiler) -> bool {
    let mut text = String::new();
    let _ = writeln!(text, "#if !__has_include(<{name}>)\n#error missing\n#endif");
    let mut command = clean_command(&compiler.path);
    command.args(["-E", "-x", "c", "-", "-o", "/dev/null"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // If the compiler does not read it, its exit status shows that.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok_and(|status| status.success())
}

fn name(need: &Prerequisite) -> String {
    match &need.probe {
        Probe::Program(name) => format!("the program {name}"),
        Probe::Header(name) => format!("the header {name}"),
        Probe::File(path) => path.display().to_string(),
        Probe::PerlModules(names) => format!("Perl with {}", names.join(" and ")),
    }
}

fn packages(needs: &[&Prerequisite]) -> Vec<String> {
    needs.iter().map(|need| need.package.clone()).collect()
}

fn can_install() -> bool {
    Path::new("/etc/debian_version").is_file() && is_installed("apt-get") && we_are_root()
}

/// Installs packages; the error is apt's output.
fn install(packages: &[String]) -> Result<(), String> {
    let apt = |args: &[&str]| {
        let mut command = network_command("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(args);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(last_lines(&String::from_utf8_lossy(&output.stderr)))
    };
    // Another process may hold apt's lock.
    let mut args = vec!["-o", "DPkg::Lock::Timeout=300"];
    args.extend(["install", "--yes", "--quiet", "--no-install-recommends"]);
    args.extend(packages.iter().map(String::as_str));
    // The package list may be old or missing.
    apt(&args).or_else(|_| apt(&["update", "--quiet"]).and_then(|()| apt(&args)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(probe: Probe, package: &str) -> Prerequisite {
        Prerequisite { probe, package: package.to_owned() }
    }

    #[test]
    fn missing_prerequisites_are_named() {
        let compiler = Compiler::find("gcc").unwrap();
        let there = [
            need(Probe::Program("sh".to_owned()), "dash"),
            need(Probe::Header("stdio.h".to_owned()), "libc6-dev"),
            need(Probe::PerlModules(&["strict"]), "perl-base"),
        ];
        assert!(missing(&there, &compiler).is_empty());
        let not = [
            need(Probe::Program("dbdyno-no-such-program".to_owned()), "none"),
            need(Probe::Header("dbdyno/no-such.h".to_owned()), "none-dev"),
            need(Probe::PerlModules(&["strict", "NoSuchModule"]), "none-perl"),
        ];
        let names: Vec<String> = missing(&not, &compiler).iter().map(|need| name(need)).collect();
        assert_eq!(
            names,
            [
                "the program dbdyno-no-such-program",
                "the header dbdyno/no-such.h",
                "Perl with strict and NoSuchModule"
            ]
        );
        assert_eq!(packages(&missing(&not, &compiler)), ["none", "none-dev", "none-perl"]);
    }
}
