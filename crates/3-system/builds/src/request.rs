//! Requests for builds: their flags and fingerprints, before anything is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use dbdyno_types::build::Pgo;
use dbdyno_units::Nanos;
use sha2::Digest;

use crate::bolt::CachedBoltProfile;
use crate::error::io_error;
use crate::profile::{Profiling, SampleTools, find_profdata};
use crate::recipe::{self, Flags, Inputs, RecipeInput};
use crate::variant::{compile_flags, packaging_flags};
use crate::{
    BuildError, Compiler, CompilerKind, Fingerprint, ProblemKind, RecipeOptions, Sha256, Source,
    Variant,
};

/// A build to be made.
#[derive(Clone, Debug)]
pub struct Request {
    pub source: Source,
    pub variant: Variant,
    pub compiler: Compiler,
    /// Flags added after the variant's own.
    pub extra_flags: Vec<String>,
    pub options: RecipeOptions,
    /// Its role in profile-guided optimization.
    pub profiling: Profiling,
    /// The profile for BOLT. Without one, a variant with BOLT is only linked for it.
    pub bolt: Option<CachedBoltProfile>,
}

impl Request {
    /// Creates a request without extra flags and with the recipe's defaults.
    pub fn new(source: Source, variant: Variant, compiler: Compiler) -> Self {
        let options = RecipeOptions::default();
        let (extra_flags, profiling) = (Vec::new(), Profiling::None);
        Self { source, variant, compiler, extra_flags, options, profiling, bolt: None }
    }

    pub(crate) fn inputs<'a>(&'a self, flags: &'a Flags) -> Inputs<'a> {
        Inputs {
            system: self.source.system(),
            version: self.source.version(),
            variant: &self.variant,
            flags,
            options: &self.options,
            compiler: &self.compiler,
        }
    }
}

/// Prints `sqlite 3.50.4 as rel_o2 with gcc 12.2.0`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, variant, compiler) = (&self.source, &self.variant, &self.compiler);
        let (name, version, engine) = (source.name(), source.version(), self.options.engine());
        write!(f, "{name} {version}{engine} as {variant} with {compiler}")?;
        if !self.extra_flags.is_empty() {
            write!(f, " and {}", self.extra_flags.join(" "))?;
        }
        match &self.bolt {
            Some(bolt) => write!(f, ", laid out by BOLT, trained on {}", bolt.trained_on()),
            None => write!(f, "{}", self.profiling),
        }
    }
}

/// Progress of a build. Equal requests share the events, which have the first request.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Another dbdyno process is making this build; this one waits for it.
    Waiting(&'a Request),
    /// The compiler starts.
    Started(&'a Request),
    /// Preparation before compiling, such as installing build dependencies.
    Preparing(&'a Request, &'a str),
    Progress {
        request: &'a Request,
        /// The step, such as `compiling src/backend`.
        step: &'a str,
        /// Finished commands.
        done: usize,
        /// All commands of this step.
        of: usize,
    },
    Cached(&'a Request),
    Finished(&'a Request, Nanos),
    Failed(&'a Request, &'a BuildError),
}

/// A receiver of events, called from several threads.
pub(crate) type Progress<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// Everything that a build depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingredients<'a> {
    inputs: Inputs<'a>,
    source: &'a Sha256,
    /// The role in profile-guided optimization, with the profile's checksum.
    profiling: &'a str,
    /// BOLT's profile and options; empty without BOLT.
    bolt: &'a str,
    /// The version of the linker that the flags name; `None` if they name none.
    linker: Option<&'a str>,
    /// The CPU, if the build depends on it.
    host: Option<&'a HostCpu>,
    /// The files that the user's flags and arguments name, such as a linker script.
    files: &'a [Sha256],
}

impl Ingredients<'_> {
    /// The checksum of all ingredients and the commands of the recipe.
    fn fingerprint(&self) -> Fingerprint {
        let inputs = &self.inputs;
        let mut hash = Fields(sha2::Sha256::new());
        hash.add("dbdyno build", b"4");
        hash.add("system", inputs.system.name().as_bytes());
        hash.add("commands", self.commands().as_bytes());
        hash.add("source", self.source.as_bytes());
        hash.add("variant", inputs.variant.name.as_bytes());
        // These have effects beyond the flags, since build systems have switches for them.
        hash.add("build type", inputs.variant.build_type.name().as_bytes());
        hash.add("hardening", inputs.variant.hardening.name().as_bytes());
        hash.add("assertions", &[u8::from(inputs.variant.assertions)]);
        hash.add("myrocks", &[u8::from(inputs.options.myrocks)]);
        hash.add("tool", &inputs.options.tool.map_or([0], |tool| [1 + tool as u8]));
        hash.add("profiling", self.profiling.as_bytes());
        if !self.bolt.is_empty() {
            hash.add("bolt", self.bolt.as_bytes());
        }
        for argument in &inputs.options.arguments {
            hash.add("argument", argument.as_bytes());
        }
        for flag in &inputs.flags.compile {
            hash.add("compile flag", flag.as_bytes());
        }
        for flag in &inputs.flags.link {
            hash.add("link flag", flag.as_bytes());
        }
        for part in inputs.compiler.identity() {
            hash.add("compiler", part.as_bytes());
        }
        if let Some(linker) = self.linker {
            hash.add("linker", linker.as_bytes());
        }
        if let Some(host) = self.host {
            hash.add("host", host.as_str().as_bytes());
        }
        for file in self.files {
            hash.add("file", file.as_bytes());
        }
        Fingerprint(Sha256::finish(hash.0))
    }

    /// What the recipe executes and copies, with names in place of the paths and the number of jobs that
    /// differ between machines.
    fn commands(&self) -> String {
        let compiler = Compiler { path: PathBuf::from("compiler"), ..self.inputs.compiler.clone() };
        let plan = recipe::plan(&RecipeInput {
            inputs: Inputs { compiler: &compiler, ..self.inputs },
            source: Path::new("source"),
            tree: Path::new("tree"),
            home: Path::new("home"),
            staging: Path::new("staging"),
            jobs: NonZeroUsize::MIN,
        });
        let steps = plan.steps.iter().chain(&plan.install).map(|step| step.to_shell() + "\n");
        steps.collect::<String>() + &format!("{:?}", plan.pieces)
    }
}

/// Hashes labelled fields with their lengths, so that different lists of fields never hash the same
/// bytes.
struct Fields(sha2::Sha256);

impl Fields {
    fn add(&mut self, label: &str, value: &[u8]) {
        for part in [label.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }
}

pub(crate) struct Prepared<'a> {
    pub(crate) request: &'a Request,
    pub(crate) flags: Flags,
    pub(crate) fingerprint: Fingerprint,
}

/// Determines flags and fingerprints. Link-time optimization is probed once per compiler.
pub(crate) fn prepare_all(requests: &[Request]) -> Vec<Result<Prepared<'_>, BuildError>> {
    let mut lto_linkers: BTreeMap<&Path, Result<Vec<String>, BuildError>> = BTreeMap::new();
    let mut all = Vec::new();
    for request in requests {
        let Request { variant, compiler, extra_flags, .. } = request;
        let mut lto_linker = |flags: &[String]| {
            let requested = flags.iter().chain(extra_flags).map(String::as_str);
            if !recipe::requests_lto(requested) {
                return Ok(Vec::new());
            }
            let flags = lto_linkers.entry(&compiler.path);
            flags.or_insert_with(|| compiler.lto_linker()).clone()
        };
        let mut prepare = || {
            let packaging = packaging_flags(variant.packaging, compiler.kind)?;
            let linker = lto_linker(&requested(&packaging, variant, compiler))?;
            prepare_one(request, &packaging, &linker)
        };
        all.push(prepare());
    }
    all
}

/// The flags of a variant with those of its packaging.
fn requested(packaging: &Flags, variant: &Variant, compiler: &Compiler) -> Vec<String> {
    [&packaging.compile[..], &compile_flags(variant, compiler.kind)].concat()
}

/// Checks that the compiler can do what a build requests: link-time optimization, profiles.
/// Compiles nothing but a trial of three lines.
pub fn check_compiler(
    compiler: &Compiler,
    variant: &Variant,
    extra_flags: &[String],
) -> Result<(), BuildError> {
    check_profile_tools(compiler, variant.pgo)?;
    let packaging = packaging_flags(variant.packaging, compiler.kind)?;
    let flags = requested(&packaging, variant, compiler);
    if recipe::requests_lto(flags.iter().chain(extra_flags).map(String::as_str)) {
        compiler.lto_linker()?;
    }
    Ok(())
}

/// Checks that the tools that make this kind of profile for the compiler are installed.
pub fn check_profile_tools(compiler: &Compiler, pgo: Pgo) -> Result<(), BuildError> {
    match (pgo, compiler.kind) {
        (Pgo::Sample, _) => SampleTools::of(compiler).map(drop),
        (Pgo::Instrument, CompilerKind::Clang) => find_profdata(compiler).map(drop),
        (Pgo::Instrument, CompilerKind::Gcc) | (Pgo::Off, _) => Ok(()),
    }
}

fn prepare_one<'a>(
    request: &'a Request,
    packaging: &Flags,
    lto_linker: &[String],
) -> Result<Prepared<'a>, BuildError> {
    let Request { source, variant, compiler, extra_flags, profiling, bolt, .. } = request;
    let flags = |extra: &[String]| {
        recipe::flags(source.system(), variant, compiler.kind, packaging, lto_linker, extra)
    };
    if let Profiling::Use(profile) = profiling {
        let flags = flags(extra_flags).compile;
        let what = request.to_string();
        profile.check(&what, source.system(), source.sha256(), compiler, &flags)?;
    }
    let flags = flags(&[&profiling.flags(compiler.kind)[..], extra_flags].concat());
    if let Some(linker) = recipe::ignored_linker(source.system(), &flags) {
        return Err(BuildError::new(
            ProblemKind::Other,
            format!(
                "linker {linker} is not supported for {request}: {}'s build system removes \
                 `-fuse-ld={linker}`",
                source.system().title()
            ),
            "use lld, mold or bfd",
        ));
    }
    let (system, version) = (source.system(), source.version());
    let host = if recipe::depends_on_host(system, version, &request.options, &flags) {
        let path = Path::new("/proc/cpuinfo");
        Some(HostCpu::read().map_err(io_error("reading", path))?)
    } else {
        None
    };
    let linker = flags.linker().and_then(|linker| compiler.linker_version(linker));
    let files = named_files(extra_flags, &request.options.arguments)?;
    let ingredients = Ingredients {
        inputs: request.inputs(&flags),
        source: source.sha256(),
        profiling: &profiling.identity(),
        bolt: "",
        linker: linker.as_deref(),
        host: host.as_ref(),
        files: &files,
    };
    let mut fingerprint = ingredients.fingerprint();
    if let Some(bolt) = bolt {
        bolt.check(&request.to_string(), &fingerprint)?;
        fingerprint = Ingredients { bolt: &bolt.identity(), ..ingredients }.fingerprint();
    }
    Ok(Prepared { request, flags, fingerprint })
}

/// Flags that name a file to read; others, such as `-Wl,-Map=FILE`, name one to write.
const READING: [&str; 11] = [
    "-T",
    "-include",
    "-imacros",
    "-specs",
    "-fprofile-use",
    "-fprofile-sample-use",
    "-fauto-profile",
    "--version-script",
    "--dynamic-list",
    "--symbol-ordering-file",
    "--section-ordering-file",
];

/// The checksums of the files that flags and arguments of the configure tool name by their whole path, as
/// `-Wl,--version-script=/a`.
fn named_files(flags: &[String], arguments: &[String]) -> Result<Vec<Sha256>, BuildError> {
    let is_read = |flag: &str| {
        let own = flag[..flag.find('/').unwrap_or(0)].trim_end_matches(['=', ',', ' ']);
        READING.iter().any(|reading| own.ends_with(reading))
    };
    let words = flags.iter().filter(|flag| is_read(flag)).chain(arguments);
    let paths = words.filter_map(|word| word[word.find('/')?..].split(',').next().map(Path::new));
    let read = |path| Sha256::of_file(path).map_err(io_error("reading", path));
    paths.filter(|path| path.is_file()).map(read).collect()
}

/// What `-march=native` depends on: the model and features of this machine's CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCpu(String);

/// The keys of `/proc/cpuinfo` from which compilers derive `native`, on x86 and ARM. Values that
/// change over time (`cpu MHz`) must not be included.
const RELEVANT: [&str; 11] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "cache size",
    "flags",
    "Features",
    "CPU implementer",
    "CPU part",
    "CPU variant",
];

impl HostCpu {
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/cpuinfo")?))
    }

    /// Parses the text of `/proc/cpuinfo`. Equal CPUs count once; a machine with two kinds of cores
    /// has both.
    pub fn parse(cpuinfo: &str) -> Self {
        let mut kinds: Vec<String> = Vec::new();
        for processor in cpuinfo.split("\n\n") {
            let lines: Vec<String> = processor
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, _)| RELEVANT.contains(key))
                .map(|(key, value)| format!("{key}: {value}"))
                .collect();
            let kind = lines.join("\n");
            if !kind.is_empty() && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.sort_unstable();
        Self(kinds.join("\n\n"))
    }

    /// The features of this CPU that another one does not have: code for this CPU may need them. On a machine
    /// with several kinds of cores, each of them counts.
    pub fn features_missing_on(&self, other: &Self) -> Vec<String> {
        let own: BTreeSet<&str> = self.kinds().flat_map(features).collect();
        let is_everywhere =
            |feature: &&str| other.kinds().all(|kind| features(kind).any(|one| one == *feature));
        own.into_iter().filter(|one| !is_everywhere(one)).map(str::to_owned).collect()
    }

    /// The name of its model, such as `AMD EPYC 7763`; ARM has numbers only.
    pub fn model(&self) -> String {
        let value = |key: &str| self.0.lines().find_map(|line| line.strip_prefix(key));
        if let Some(name) = value("model name: ") {
            return name.to_owned();
        }
        let numbers = (value("CPU implementer: "), value("CPU part: "));
        match numbers {
            (Some(implementer), Some(part)) => format!("implementer {implementer}, part {part}"),
            _ => "unknown".to_owned(),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.split("\n\n")
    }

    /// A short name of this type of CPU, in hexadecimal digits.
    pub fn id(&self) -> String {
        Sha256::of(self.0.as_bytes()).to_string()[..16].to_owned()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The features in the lines of one kind of CPU.
fn features(kind: &str) -> impl Iterator<Item = &str> {
    let lists = kind.lines().filter_map(|line| {
        line.strip_prefix("flags: ").or_else(|| line.strip_prefix("Features: "))
    });
    lists.flat_map(str::split_whitespace)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use dbdyno_types::build::Hardening;

    use super::*;
    use crate::CompilerKind;
    use crate::recipe::testing::compiler;
    use crate::{RecipeOptions, System};

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn fingerprint_depends_on_each_ingredient() {
        let compiler = Compiler {
            path: PathBuf::from("/usr/bin/gcc"),
            resolved: PathBuf::from("/usr/bin/gcc-12"),
            kind: CompilerKind::Gcc,
            version: "12.2.0".to_owned(),
            version_line: "gcc (Debian 12.2.0-14) 12.2.0".to_owned(),
            target: "x86_64-linux-gnu".to_owned(),
            linker: Some("GNU ld 2.40".to_owned()),
        };
        let source = Sha256::of(b"source");
        let flags = Flags { compile: words("-O2 -g"), link: words("-shared") };
        let host = HostCpu::parse("model name: one\n");
        let variants = Variant::all();
        let options = RecipeOptions::default();
        let inputs = Inputs {
            system: System::Sqlite,
            version: "3.50.4",
            variant: &variants[0],
            flags: &flags,
            options: &options,
            compiler: &compiler,
        };
        let base = Ingredients {
            inputs,
            source: &source,
            profiling: "none",
            bolt: "",
            linker: None,
            host: None,
            files: &[],
        };

        let with = |inputs| Ingredients { inputs, ..base };
        let hardened = Variant { hardening: Hardening::On, ..variants[0].clone() };
        let myrocks = RecipeOptions { myrocks: true, ..options.clone() };
        let argument = RecipeOptions { arguments: words("-DX=1"), ..options.clone() };
        let other_source = Sha256::of(b"other");
        let moved = Flags { compile: words("-O2"), link: words("-g -shared") };
        let joined = Flags { compile: vec!["-O2-g".to_owned()], link: words("-shared") };
        let distribution = Compiler {
            version_line: "gcc (Debian 12.2.0-15) 12.2.0".to_owned(),
            ..compiler.clone()
        };
        let target = Compiler { target: "aarch64-linux-gnu".to_owned(), ..compiler.clone() };
        let elsewhere = Compiler { resolved: PathBuf::from("/opt/gcc"), ..compiler.clone() };
        let linker = Compiler { linker: Some("GNU ld 2.41".to_owned()), ..compiler.clone() };
        let other_host = HostCpu::parse("model name: two\n");
        let all = [
            base,
            Ingredients { source: &other_source, ..base },
            with(Inputs { variant: &variants[1], ..inputs }),
            with(Inputs { variant: &hardened, ..inputs }),
            with(Inputs { options: &myrocks, ..inputs }),
            Ingredients { profiling: "collect", ..base },
            Ingredients { profiling: "another", ..base },
            Ingredients { bolt: "with a profile", ..base },
            with(Inputs { options: &argument, ..inputs }),
            with(Inputs { system: System::MariaDb, ..inputs }),
            // The commands depend on the version.
            with(Inputs { system: System::PostgreSql, version: "10.23", ..inputs }),
            with(Inputs { system: System::PostgreSql, version: "15.18", ..inputs }),
            with(Inputs { flags: &moved, ..inputs }),
            with(Inputs { flags: &joined, ..inputs }),
            with(Inputs { compiler: &distribution, ..inputs }),
            with(Inputs { compiler: &target, ..inputs }),
            with(Inputs { compiler: &elsewhere, ..inputs }),
            with(Inputs { compiler: &linker, ..inputs }),
            Ingredients { linker: Some("LLD 14.0.6"), ..base },
            Ingredients { linker: Some("LLD 15.0.6"), ..base },
            Ingredients { host: Some(&host), ..base },
            Ingredients { host: Some(&other_host), ..base },
            Ingredients { files: &[other_source], ..base },
        ];
        let distinct: BTreeSet<_> = all.iter().map(Ingredients::fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(base.fingerprint(), Ingredients { ..base }.fingerprint());
    }

    #[test]
    fn files_that_flags_name_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("order.txt");
        fs::write(&file, "first").unwrap();
        let found = |form: &str| {
            let words = words(&form.replace("FILE", file.to_str().unwrap()));
            named_files(&words, &[]).unwrap()
        };
        for form in ["-Wl,--version-script=FILE,-z", "-includeFILE", "-T/x -Wl,-T,FILE"] {
            assert_eq!(found(form), [Sha256::of(b"first")], "{form}");
        }
        let in_one = format!("-include {}", file.display());
        assert_eq!(named_files(&[in_one], &[]).unwrap(), [Sha256::of(b"first")]);
        // What is written changes with each build.
        assert_eq!(found("-I/usr/include -Da/b -include/none -Wl,-Map=FILE -DX=FILE"), []);
    }

    #[test]
    fn fingerprint_is_independent_of_compiler_name() {
        let called = |name: &str| Compiler {
            path: PathBuf::from("/usr/bin").join(name),
            resolved: PathBuf::from("/usr/bin/gcc-12"),
            kind: CompilerKind::Gcc,
            version: "12.2.0".to_owned(),
            version_line: format!("{name} (Debian) 12.2.0"),
            target: String::new(),
            linker: None,
        };
        let print = |compiler: &Compiler| {
            let flags = Flags { compile: Vec::new(), link: Vec::new() };
            Ingredients {
                inputs: Inputs {
                    system: System::Sqlite,
                    version: "3.50.4",
                    variant: &Variant::all()[0],
                    flags: &flags,
                    options: &RecipeOptions::default(),
                    compiler,
                },
                source: &Sha256::of(b""),
                profiling: "none",
                bolt: "",
                linker: None,
                host: None,
                files: &[],
            }
            .fingerprint()
        };
        assert_eq!(print(&called("cc")), print(&called("gcc")));
    }

    #[test]
    fn missing_tool_for_instrumented_profiles_is_reported_before_compiling() {
        let clang = Compiler {
            path: PathBuf::from("/nowhere/clang-99"),
            resolved: PathBuf::from("/nowhere/bin/clang"),
            version: "99.1.0".to_owned(),
            ..compiler(CompilerKind::Clang)
        };
        let variant = Variant::by_name("rel_pgo").unwrap();
        let error = check_compiler(&clang, &variant, &[]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/llvm-profdata-99"), "{error}");
        assert!(error.ends_with("apt-get install llvm-99"), "{error}");
        check_profile_tools(&compiler(CompilerKind::Gcc), variant.pgo).unwrap();
    }

    const TWO_ALIKE: &str = "processor\t: 0\nmodel name\t: EPYC\ncpu MHz\t\t: 2500.1\nflags\t\t: \
                             sse avx2\n\nprocessor\t: 1\nmodel name\t: EPYC\ncpu MHz\t\t: \
                             3100.9\nflags\t\t: sse avx2\n\n";

    #[test]
    fn only_lines_that_affect_code_generation_are_kept() {
        assert_eq!(HostCpu::parse(TWO_ALIKE).as_str(), "model name: EPYC\nflags: sse avx2");
    }

    #[test]
    fn host_is_independent_of_clock_and_core_count() {
        let one = TWO_ALIKE.split_once("\n\n").unwrap().0.replace("2500.1", "800.0");
        assert_eq!(HostCpu::parse(&one), HostCpu::parse(TWO_ALIKE));
    }

    #[test]
    fn missing_features_are_those_of_any_core() {
        let both = HostCpu::parse(TWO_ALIKE);
        let newer = HostCpu::parse(&TWO_ALIKE.replace("avx2", "avx2 avx512f"));
        assert!(both.features_missing_on(&newer).is_empty());
        assert_eq!(newer.features_missing_on(&both), ["avx512f"]);
        let (one, other) = TWO_ALIKE.split_once("\n\n").unwrap();
        let mixed = HostCpu::parse(&format!("{}\n\n{other}", one.replace("avx2", "")));
        assert_eq!(both.features_missing_on(&mixed), ["avx2"]);
        assert_eq!(both.features_missing_on(&HostCpu::parse("")), ["avx2", "sse"]);
        assert_eq!(both.model(), "EPYC");
        let arm = "processor: 0\nFeatures: fp asimd\nCPU implementer: 0x41\nCPU part: 0xd0c\n";
        assert_eq!(HostCpu::parse(arm).model(), "implementer 0x41, part 0xd0c");
    }

    #[test]
    fn cpus_with_different_features_are_distinguished() {
        let newer = TWO_ALIKE.replace("avx2", "avx2 avx512f");
        assert_ne!(HostCpu::parse(&newer), HostCpu::parse(TWO_ALIKE));
    }
}
