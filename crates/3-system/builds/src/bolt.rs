//! Post-link optimization with LLVM's BOLT.
//!
//! A build of a variant with `bolt` is linked so that functions can be moved: the base build. BOLT
//! instruments a copy of its artifact, and the training runs that copy. With the profile, BOLT
//! writes the artifact of another build, which shares all other files with the base.
//!
//! A profile is collected by instrumentation, which counts every branch, or by sampling the base.
//! Neither needs hardware counters, which virtual machines hide.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use dbdyno_audit::Expected;
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::command::{Running, clean_command, wait};
use crate::compiler::{locate, path_folders};
use crate::error::{io_error, last_lines};
use crate::profile::{CollectionLock, Lookup, ProfileWriter, Raw, TrainingId};
use crate::store::Held;
use crate::trusted_tree::{open_folder, open_to_all};
use crate::{BoltUsed, Build, BuildError, Fingerprint, Profiles, Sha256, recipe};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bolt {
    /// The program `llvm-bolt`, with symbolic links resolved: it finds its runtime relative to
    /// itself.
    pub path: PathBuf,
    /// Its version: `Debian LLVM version 19.1.7`.
    pub version: String,
    /// The output of `--help`: options differ between versions.
    options: String,
}

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
    fn instrument(&self, program: &Path, to: &Path, counts: &Path, alone: &Path) -> Vec<String> {
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
    fn lay_out(
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

    fn strategy(&self) -> Vec<&'static str> {
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
fn transactional(base: &Build) -> Result<Vec<String>, BuildError> {
    let audit = dbdyno_audit::binary(&base.artifact, None, &Expected::default())
        .map_err(|error| BuildError::unusable(base, &base.artifact, error))?;
    let names = audit.transactional().filter_map(|(_, function)| function.name.clone());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Parses the function whose jumps BOLT could not follow from its error message. An interpreter
/// with computed jumps, such as PostgreSQL's expression interpreter, contains a table of code
/// addresses.
fn not_followed(log: &str) -> Option<String> {
    let (before, _) = log.rsplit_once(". Consider adding this function to --skip-funcs")?;
    let (_, name) = before.rsplit_once(" in function ")?;
    // Followed by the number of aliases, and its index among functions of the same name.
    let name = name.split_once("(*").map_or(name, |(name, _)| name);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
}

/// One pattern per line, as BOLT expects them. BOLT names local functions with a slash and a
/// number.
fn as_patterns(names: &[String]) -> String {
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

/// A profile for BOLT, with the build that it was collected from and can be used for.
#[derive(Clone, Debug)]
pub struct CachedBoltProfile {
    pub(crate) base: Build,
    pub(crate) bolt: Bolt,
    held: Held<About>,
}

/// What a profile was collected from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    base: Fingerprint,
    artifact_sha256: Sha256,
    bolt: String,
    /// The training, as a description.
    trained_on: String,
    /// Functions that BOLT must not change.
    left_alone: Vec<String>,
    /// Number of samples; `None` for an instrumented profile.
    samples: Option<u64>,
    sha256: Sha256,
}

#[derive(Clone, Debug)]
pub struct BoltSamples {
    pub text: String,
    pub samples: u64,
    /// The same samples in the live optimizer's format.
    pub for_live: String,
}

const PROFILE: &str = "bolt.fdata";

/// The largest profile that an instrumented program may write.
const LARGEST: Bytes = Bytes::from_mib(1 << 10);

/// The file with the samples in the live optimizer's format.
const SAMPLES: &str = "samples.json";

/// The file with the functions to skip.
const ALONE: &str = "left-alone";

impl CachedBoltProfile {
    /// Checks that the profile was collected from this build.
    pub(crate) fn check(&self, what: &str, base: &Fingerprint) -> Result<(), BuildError> {
        let folder = &self.held.folder;
        let checked = self.held.about.check(folder, base, &self.base.artifact);
        checked.map_err(|reason| BuildError::profile(what, folder, reason))
    }

    fn data(&self) -> PathBuf {
        self.held.folder.join(PROFILE)
    }

    /// The file with the samples in the live optimizer's format; `None` for an instrumented
    /// profile.
    pub fn samples(&self) -> Option<PathBuf> {
        self.held.about.samples.map(|_| self.held.folder.join(SAMPLES))
    }

    pub(crate) fn identity(&self) -> String {
        let About { base, sha256, bolt, .. } = &self.held.about;
        let strategy = self.bolt.strategy().join(" ");
        format!("{base} {sha256} {bolt} {strategy}")
    }

    pub(crate) fn trained_on(&self) -> &str {
        &self.held.about.trained_on
    }

    pub(crate) fn used(&self) -> BoltUsed {
        BoltUsed {
            base: self.held.about.base,
            version: self.held.about.bolt.clone(),
            collected_by: match self.held.about.samples {
                None => "instrumentation".to_owned(),
                Some(samples) => format!("{samples} samples"),
            },
            profile_sha256: self.held.about.sha256,
            trained_on: self.held.about.trained_on.clone(),
            left_alone: self.held.about.left_alone.clone(),
        }
    }

    /// BOLT's arguments for writing `to`.
    pub(crate) fn arguments(&self, to: &Path) -> Vec<String> {
        let alone = self.held.folder.join(ALONE);
        let debug = self.base.flags.iter().any(|flag| flag == "-g");
        self.bolt.lay_out(&self.base.artifact, to, &self.data(), &alone, debug)
    }

    fn new(held: Held<About>, base: &Build, bolt: &Bolt) -> Self {
        Self { base: base.clone(), bolt: bolt.clone(), held }
    }
}

impl About {
    /// Checks that a profile in a directory was collected from this build.
    fn check(&self, folder: &Path, base: &Fingerprint, artifact: &Path) -> Result<(), String> {
        let is = |path: &Path, expected| Sha256::of_file(path).ok() == Some(expected);
        let reason = if self.base != *base {
            "it was collected from another build"
        } else if !is(&folder.join(PROFILE), self.sha256)
            || self.samples.is_some() && !folder.join(SAMPLES).is_file()
        {
            "its file was changed"
        } else if !is(artifact, self.artifact_sha256) {
            "the build that it was collected from was changed"
        } else {
            return Ok(());
        };
        Err(reason.to_owned())
    }
}

impl Profiles {
    /// Looks up BOLT's profile of a build and a training. While another process collects it, waits
    /// and calls `on_wait` once.
    pub fn lookup_bolt(
        &self,
        base: &Build,
        bolt: &Bolt,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
    ) -> Result<Lookup<CachedBoltProfile>, BuildError> {
        let key = format!("{} {} {}", base.fingerprint, bolt.version, trained_on.whole);
        let check = |about: &mut About, folder: &Path| {
            about.check(folder, &base.fingerprint, &base.artifact)
        };
        let found = self.lookup_with(&key, trained_on, cancel, on_wait, &check)?;
        Ok(found.map(|held| CachedBoltProfile::new(held, base, bolt)))
    }
}

impl CollectionLock {
    /// Makes an instrumented copy of a build that was linked for BOLT. `None` if `cancel` is set
    /// meanwhile.
    pub fn begin_bolt(
        self,
        base: &Build,
        bolt: &Bolt,
        writer: Option<ProfileWriter>,
        cancel: &AtomicBool,
    ) -> Result<Option<BoltCollection>, BuildError> {
        let raw = self.empty_raw()?;
        let counts = Raw { path: raw.join("counts"), writer };
        let instrumented = Build {
            instrumented: true,
            artifact: raw.join(base.system.artifact()),
            ..base.clone()
        };
        let left_alone = transactional(base)?;
        let (base, bolt) = (base.clone(), bolt.clone());
        let mut collecting =
            BoltCollection { lock: self, raw, counts, base, bolt, instrumented, left_alone };
        Ok(collecting.instrument(cancel)?.then_some(collecting))
    }

    /// Stores the profile of a sampled build that was linked for BOLT. Runs BOLT once to find the
    /// functions that it must skip. `None` if `cancel` is set meanwhile.
    pub fn store_bolt_samples(
        self,
        base: &Build,
        bolt: &Bolt,
        sampled: &BoltSamples,
        cancel: &AtomicBool,
    ) -> Result<Option<CachedBoltProfile>, BuildError> {
        let raw = self.empty_raw()?;
        let data = raw.join(PROFILE);
        fs::write(&data, &sampled.text).map_err(io_error("making", &data))?;
        let (alone, made) = (raw.join(ALONE), raw.join("laid-out"));
        let arguments = bolt.lay_out(&base.artifact, &made, &data, &alone, false);
        let trial = Trial { bolt, base, arguments: &arguments, folder: &raw, made: &made };
        let Some(left_alone) = trial.run(transactional(base)?, cancel)? else {
            return Ok(None);
        };
        let samples = Some((sampled.samples, sampled.for_live.as_str()));
        self.store_bolt(base, bolt, &data, left_alone, samples).map(Some)
    }

    fn empty_raw(&self) -> Result<PathBuf, BuildError> {
        let raw = self.making.raw();
        let _ = fs::remove_dir_all(&raw);
        open_folder(&raw).map_err(io_error("making", &raw))?;
        Ok(raw)
    }

    fn store_bolt(
        self,
        base: &Build,
        bolt: &Bolt,
        data: &Path,
        left_alone: Vec<String>,
        samples: Option<(u64, &str)>,
    ) -> Result<CachedBoltProfile, BuildError> {
        let sha256 = Sha256::of_file(data).map_err(io_error("reading", data))?;
        let about = About {
            base: base.fingerprint,
            artifact_sha256: base.artifact_sha256,
            bolt: bolt.version.clone(),
            trained_on: self.trained_on.words.clone(),
            left_alone,
            samples: samples.map(|(count, _)| count),
            sha256,
        };
        let part = self.making.begin()?;
        let write = || {
            fs::copy(data, part.join(PROFILE))?;
            fs::write(part.join(ALONE), as_patterns(&about.left_alone))?;
            samples.map_or(Ok(()), |(_, for_live)| fs::write(part.join(SAMPLES), for_live))
        };
        write().map_err(io_error("writing the profile to", &part))?;
        Ok(CachedBoltProfile::new(self.making.publish(&part, about)?, base, bolt))
    }
}

/// A profile for BOLT that is being collected. Dropping it removes the instrumented copy.
#[derive(Debug)]
pub struct BoltCollection {
    lock: CollectionLock,
    raw: PathBuf,
    counts: Raw,
    base: Build,
    bolt: Bolt,
    instrumented: Build,
    left_alone: Vec<String>,
}

impl BoltCollection {
    /// The build to train with: with an instrumented artifact.
    pub const fn instrumented(&self) -> &Build {
        &self.instrumented
    }

    /// Discards what was collected so far. No instrumented program may be running.
    pub fn discard(&self) -> Result<(), BuildError> {
        self.counts.empty()
    }

    /// Stores the profile that the program wrote at exit.
    ///
    /// All processes of the program count in shared memory; the last one to exit, a server's main
    /// process, writes the total.
    pub fn finish(self) -> Result<CachedBoltProfile, BuildError> {
        let (counts, data) = (&self.counts.path, self.raw.join(PROFILE));
        // The directory belongs to the user that the program ran as.
        let copied = SafeDir::open(counts)
            .and_then(|counts| counts.copy(Path::new(PROFILE), &data, 0o644, LARGEST));
        let size = match copied {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Bytes::default(),
            copied => copied.map_err(io_error("taking the profile in", counts))?,
        };
        if size == Bytes::default() {
            let reason = "there is no raw data: the instrumented program did not exit normally";
            return Err(BuildError::profile(&self.base, &self.raw, reason));
        }
        self.lock.store_bolt(&self.base, &self.bolt, &data, self.left_alone, None)
    }

    /// Makes the instrumented copy; false if `cancel` was set meanwhile.
    fn instrument(&mut self, cancel: &AtomicBool) -> Result<bool, BuildError> {
        let program = &self.instrumented.artifact;
        let making = |error| BuildError::io("making", program, &error);
        if self.base.system.is_server() {
            let (from, to) = (self.base.folder.join(recipe::SERVER), self.raw.join(recipe::SERVER));
            link_all(&from, &to, &self.base.artifact).map_err(making)?;
        }
        let (alone, counts) = (self.raw.join(ALONE), self.counts.path.join(PROFILE));
        let arguments = self.bolt.instrument(&self.base.artifact, program, &counts, &alone);
        let (bolt, base) = (&self.bolt, &self.base);
        let trial = Trial { bolt, base, arguments: &arguments, folder: &self.raw, made: program };
        let Some(left_alone) = trial.run(self.left_alone.clone(), cancel)? else {
            return Ok(false);
        };
        self.left_alone = left_alone;
        open_to_all(&self.raw).map_err(making)?;
        // From here on, another user can write to it.
        self.counts.empty()?;
        Ok(true)
    }
}

/// A run of BOLT, repeated with more skipped functions if necessary.
struct Trial<'a> {
    bolt: &'a Bolt,
    base: &'a Build,
    arguments: &'a [String],
    /// The directory of the function list and the log.
    folder: &'a Path,
    made: &'a Path,
}

impl Trial<'_> {
    /// Runs BOLT until it succeeds, each time skipping one more function whose jumps it cannot
    /// follow. Returns all skipped functions; `None` if `cancel` was set meanwhile.
    fn run(
        &self,
        mut left_alone: Vec<String>,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<String>>, BuildError> {
        let Self { bolt, base, arguments, folder, made } = *self;
        let making = |error| BuildError::io("making", made, &error);
        let log_file = folder.join("log.txt");
        loop {
            fs::write(folder.join(ALONE), as_patterns(&left_alone)).map_err(making)?;
            let log = File::create(&log_file).map_err(making)?;
            let mut command = clean_command(&bolt.path);
            command.args(arguments).stdout(log.try_clone().map_err(making)?).stderr(log);
            let running = Running::start(command).map_err(making)?;
            let Some(status) =
                wait(running, cancel, || ControlFlow::Continue(())).map_err(making)?
            else {
                return Ok(None);
            };
            if status.success() && made.is_file() {
                return Ok(Some(left_alone));
            }
            let log_text = fs::read_to_string(&log_file).unwrap_or_default();
            match not_followed(&log_text) {
                Some(name) if !left_alone.contains(&name) => left_alone.push(name),
                _ => {
                    let (path, log) = (bolt.path.display(), last_lines(&log_text));
                    let reason = format!("{path} refused it ({status}):\n{log}");
                    return Err(BuildError::unusable(base, &base.artifact, reason));
                }
            }
        }
    }
}

/// Creates the directory `to` with the files of `from`, without the file `except`, which BOLT
/// writes. Files are hard links where the file system supports it, otherwise copies.
pub(crate) fn link_all(from: &Path, to: &Path, except: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        let meta = fs::symlink_metadata(&path)?;
        if path == except {
            continue;
        } else if meta.is_dir() {
            link_all(&path, &target, except)?;
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path)?, &target)?;
        } else {
            fs::hard_link(&path, &target).or_else(|_| fs::copy(&path, &target).map(drop))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn program(folder: &Path, name: &str, version: &str) {
        // By another process: a child that another test starts meanwhile would have it open for writing, and it
        // could not be executed.
        let text = format!("#!/bin/sh\necho 'Debian LLVM version {version}'\n");
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let status =
            Command::new("sh").args(["-c", write]).arg(folder.join(name)).arg(text).status();
        assert!(status.unwrap().success());
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

    #[test]
    fn all_files_but_the_excepted_one_are_linked() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("bin")).unwrap();
        for name in ["bin/postgres", "bin/initdb", "version"] {
            fs::write(from.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("initdb", from.join("bin/link")).unwrap();
        link_all(&from, &to, &from.join("bin/postgres")).unwrap();
        assert!(!to.join("bin/postgres").exists());
        assert_eq!(fs::read_to_string(to.join("bin/link")).unwrap(), "bin/initdb");
        assert_eq!(fs::read_to_string(to.join("version")).unwrap(), "version");
    }
}
