//! Post-link optimization with LLVM's BOLT.
//!
//! A build of a variant with `bolt` is linked so that functions can be moved: the base build. BOLT
//! instruments a copy of its artifact, and the training runs that copy. With the profile, BOLT
//! writes the artifact of another build, which shares all other files with the base.
//!
//! A profile is collected by instrumentation, which counts every branch, or by sampling the base.
//! Neither needs hardware counters, which virtual machines hide.

mod profile;

use std::path::{Path, PathBuf};

use dbdyno_audit::{AuditError, Expected};

use crate::BuildError;
use crate::command::clean_command;
use crate::compiler::{locate, path_folders};
use crate::error::io_error;

pub use profile::{BoltCollection, BoltSamples, CachedBoltProfile};

pub(crate) use profile::link_all;

/// The installed BOLT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bolt {
    /// The program `llvm-bolt`, with symbolic links resolved: it finds its runtime relative to
    /// itself.
    pub path: PathBuf,
    /// Its version: `Debian LLVM version 19.1.7`.
    pub version: String,
    /// The output of `--help`: options differ between versions.
    pub(super) options: String,
}

/// Supported versions.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=40;

/// The instrumentation runtime, relative to the parent of the program's directory.
const RUNTIME: &str = "lib/libbolt_rt_instr.a";

impl Bolt {
    /// Finds the newest one with a version in its name, else the one without.
    pub fn find() -> Result<Self, BuildError> {
        Self::find_in(&path_folders())
    }

    fn find_in(folders: &[PathBuf]) -> Result<Self, BuildError> {
        let versioned = VERSIONS.rev().map(|version| format!("llvm-bolt-{version}"));
        let mut names = versioned.chain(["llvm-bolt".to_owned()]);
        let path = names.find_map(|name| locate(&name, folders));
        let path = path.ok_or_else(|| missing("llvm-bolt", "bolt-19"))?;
        let path = path.canonicalize().map_err(io_error("finding", &path))?;
        let version = output_of(&path, "--version")?;
        let named = version.lines().find(|line| line.contains("version"));
        let version = named.unwrap_or_default().trim().to_owned();
        let above = path.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let runtime = above.join(RUNTIME);
        if !runtime.is_file() {
            let number: String = version
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            return Err(missing(&runtime.to_string_lossy(), &format!("libbolt-{number}-dev")));
        }
        let options = output_of(&path, "--help")?;
        Ok(Self { path, version, options })
    }
}

fn missing(what: &str, package: &str) -> BuildError {
    BuildError::missing_tool(what, "variants with BOLT", package)
}

fn output_of(path: &Path, what: &str) -> Result<String, BuildError> {
    let output = clean_command(path).arg(what).output().map_err(io_error("starting", path))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Bolt {
    /// The arguments for an instrumented copy, which writes to `counts` at exit.
    pub(super) fn instrument(
        &self,
        program: &Path,
        to: &Path,
        counts: &Path,
        alone: &Path,
    ) -> Vec<String> {
        vec![
            program.display().to_string(),
            "-instrument".to_owned(),
            format!("-instrumentation-file={}", counts.display()),
            // The program reads its own file at exit, and a server may not be able to read
            // /proc/self/exe.
            format!("-instrumentation-binpath={}", to.display()),
            format!("-skip-funcs-file={}", alone.display()),
            "-o".to_owned(),
            to.display().to_string(),
        ]
    }

    /// The arguments for optimizing a program, depending on the options that this version supports.
    pub(super) fn lay_out(
        &self,
        program: &Path,
        to: &Path,
        profile: &Path,
        alone: &Path,
        debug: bool,
    ) -> Vec<String> {
        let mut arguments = vec![
            program.display().to_string(),
            format!("-data={}", profile.display()),
            format!("-skip-funcs-file={}", alone.display()),
        ];
        arguments.extend(self.strategy().iter().map(|word| (*word).to_owned()));
        if debug {
            arguments.push("-update-debug-sections".to_owned());
        }
        arguments.extend(["-o".to_owned(), to.display().to_string()]);
        arguments
    }

    /// The optimization options.
    pub(super) fn strategy(&self) -> Vec<&'static str> {
        let order = match self.knows("=cdsort") {
            true => "-reorder-functions=cdsort",
            false => "-reorder-functions=hfsort+",
        };
        // Newer versions take a mode; older ones only a switch.
        let fold = if self.knows("--icf=<") { "-icf=all" } else { "-icf" };
        let mut words = vec!["-reorder-blocks=ext-tsp", order, "-split-functions"];
        words.extend(["-split-all-cold", "-split-eh", fold, "-dyno-stats"]);
        words
    }

    fn knows(&self, option: &str) -> bool {
        self.options.contains(option)
    }
}

/// The symbols of functions that start a hardware transaction. Splitting such a function made
/// MariaDB use nearly twice the CPU time for the same queries: transactions became long enough to
/// be interrupted.
pub(super) fn transactional(program: &Path) -> Result<Vec<String>, AuditError> {
    let audit = dbdyno_audit::binary(program, None, &Expected::default())?;
    let names = audit.transactional().filter_map(|(_, function)| function.name.clone());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Parses the function whose jumps BOLT could not follow from its error message. An interpreter
/// with computed jumps, such as PostgreSQL's expression interpreter, contains a table of code
/// addresses.
pub(super) fn not_followed(log: &str) -> Option<String> {
    let (before, _) = log.rsplit_once(". Consider adding this function to --skip-funcs")?;
    let (_, name) = before.rsplit_once(" in function ")?;
    // Followed by the number of aliases, and its index among functions of the same name.
    let name = name.split_once("(*").map_or(name, |(name, _)| name);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
}

/// One pattern per line, as BOLT expects them. BOLT names local functions with a slash and a
/// number.
pub(super) fn as_patterns(names: &[String]) -> String {
    let escaped = |name: &String| {
        let mut text = String::new();
        for c in name.chars() {
            if !c.is_ascii_alphanumeric() && c != '_' {
                text.push('\\');
            }
            text.push(c);
        }
        text + "(/.*)?\n"
    };
    names.iter().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn program(folder: &Path, name: &str, version: &str) {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\necho 'Debian LLVM version {version}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn newest_version_is_used_and_missing_parts_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let find = || Bolt::find_in(std::slice::from_ref(&bin));
        let none = find().unwrap_err().to_string();
        assert!(none.contains("llvm-bolt") && none.contains("apt-get install bolt-19"), "{none}");
        program(&bin, "llvm-bolt", "15.0.1");
        program(&bin, "llvm-bolt-16", "16.0.6");
        program(&bin, "llvm-bolt-19", "19.1.7");
        let half = find().unwrap_err().to_string();
        assert!(half.contains("apt-get install libbolt-19-dev"), "{half}");
        fs::create_dir(dir.path().join("lib")).unwrap();
        fs::write(dir.path().join(RUNTIME), "").unwrap();
        let bolt = find().unwrap();
        assert!(bolt.path.ends_with("bin/llvm-bolt-19"));
        assert_eq!(bolt.version, "Debian LLVM version 19.1.7");
    }

    fn bolt(options: &str) -> Bolt {
        let path = PathBuf::from("/usr/lib/llvm-19/bin/llvm-bolt");
        Bolt { path, version: String::new(), options: options.to_owned() }
    }

    #[test]
    fn options_depend_on_the_version() {
        let old = "  --icf      - fold\n    =hfsort+   - use\n";
        let words = bolt(old).strategy().join(" ");
        assert!(words.contains("-reorder-functions=hfsort+"), "{words}");
        assert!(words.contains(" -icf "), "{words}");
        let new = "  --icf=<value>  - fold\n    =cdsort   - use\n";
        let words = bolt(new).strategy().join(" ");
        assert!(words.contains("-reorder-functions=cdsort"), "{words}");
        assert!(words.contains(" -icf=all "), "{words}");
    }

    #[test]
    fn debug_information_is_updated() {
        let path = Path::new;
        let arguments =
            |debug| bolt("").lay_out(path("/b"), path("/t"), path("/p"), path("/s"), debug);
        let words = arguments(true).join(" ");
        assert!(words.starts_with("/b -data=/p -skip-funcs-file=/s -reorder-blocks="), "{words}");
        assert!(words.ends_with("-dyno-stats -update-debug-sections -o /t"), "{words}");
        assert!(!arguments(false).join(" ").contains("debug"));
    }

    #[test]
    fn function_is_parsed_from_the_error() {
        let log = "BOLT-INFO: setting __hot_end to 0x156b734\nBOLT-ERROR: unable to get new address \
                    corresponding to input address 0x425810 in function ExecInterpExpr.lto_priv.0/1(*2). \
                    Consider adding this function to --skip-funcs=...\n";
        assert_eq!(not_followed(log).as_deref(), Some("ExecInterpExpr.lto_priv.0"));
        assert_eq!(not_followed("BOLT-ERROR: no space left in function f"), None);
        assert_eq!(not_followed(""), None);
    }

    #[test]
    fn damaged_errors_name_no_function_or_a_whole_one() {
        let log = "BOLT-ERROR: unable to get new address in function f.lto_priv.0/1(*2). \
                   Consider adding this function to --skip-funcs=...\n";
        let words =
            [" in function ", ". Consider adding this function to --skip-funcs", "(*", "/", "\n"];
        Fuzz::new(vec![log.into()]).words(&words).run(|log| {
            let Some(name) = not_followed(&String::from_utf8_lossy(log)) else { return };
            // One line of the file that BOLT reads.
            assert_eq!(as_patterns(&[name]).lines().count(), 1);
        });
    }

    #[test]
    fn patterns_match_only_the_name() {
        let names = ["_ZN10buf_pool_t3getEv".to_owned(), "lock.constprop.0".to_owned()];
        assert_eq!(
            as_patterns(&names),
            "_ZN10buf_pool_t3getEv(/.*)?\nlock\\.constprop\\.0(/.*)?\n"
        );
        assert_eq!(as_patterns(&[]), "");
    }
}
