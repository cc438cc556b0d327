//! Profile-guided optimization of a small server, with the installed compilers.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_builds::{
    Build, BuildError, Builder, Cache, CacheEntryKind, CollectionLock, Compiler, CompilerKind,
    Lookup, Profile, Profiles, Profiling, Request, SampleTools, SampledCode, SourceOrigin, Sources,
    System, TrainingId, Variant,
};
use object::{Object, ObjectSymbol};
use tempfile::TempDir;

use crate::common::{cache_in, open_folder, write_source};

struct Bench {
    dir: TempDir,
    builder: Builder,
    profiles: Profiles,
}

impl Bench {
    fn new() -> Self {
        let dir = open_folder();
        write_source(dir.path(), &dir.path().join("go"));
        fs::write(dir.path().join("go"), "").unwrap();
        let cache = cache_in(dir.path(), "cache");
        Self { profiles: Profiles::new(&cache), builder: Builder::new(cache), dir }
    }

    fn request(&self, compiler: &Compiler, profiling: Profiling) -> Request {
        let sources = Sources::new(&self.builder.cache_dir, Arc::new(AtomicBool::new(false)));
        let origin = SourceOrigin::Path(self.dir.path().join("postgresql-99.1"));
        let source = sources.obtain(System::PostgreSql, &origin, &|_| {}).unwrap();
        let variant = Variant::by_name("rel_pgo").unwrap();
        let mut request = Request::new(source, variant, compiler.clone());
        if compiler.kind == CompilerKind::Gcc {
            // Warns about objects without a profile.
            request.extra_flags.push("-Wmissing-profile".to_owned());
        }
        Request { profiling, ..request }
    }

    fn build(&self, request: &Request) -> Result<Build, BuildError> {
        self.builder.build(std::slice::from_ref(request), &|_| {}).remove(0)
    }

    fn lookup(&self, build: &Build) -> Lookup<Profile> {
        let never = AtomicBool::new(false);
        self.profiles
            .lookup(build, &a_run(), &never, &|| panic!("locked by another process"))
            .unwrap()
    }

    fn is_cached(&self, build: &Build) -> bool {
        matches!(self.lookup(build), Lookup::Found(_))
    }

    fn lock(&self, build: &Build) -> CollectionLock {
        match self.lookup(build) {
            Lookup::Missing(lock) => lock,
            other => panic!("{other:?}"),
        }
    }

    fn train(&self, instrumented: &Build) -> Result<Profile, BuildError> {
        let collecting = self.lock(instrumented).begin(instrumented, None).unwrap();
        let status = Command::new(&instrumented.artifact).envs(collecting.environment()).status();
        assert!(status.unwrap().success());
        collecting.finish()
    }
}

fn a_run() -> TrainingId {
    TrainingId { words: "a run".to_owned(), whole: "a run, exactly".to_owned() }
}

fn collects_and_uses(compiler: &Compiler) {
    let bench = Bench::new();
    let instrumented = bench.build(&bench.request(compiler, Profiling::Collect)).unwrap();
    assert!(instrumented.instrumented);
    assert!(!bench.is_cached(&instrumented));
    let profile = bench.train(&instrumented).unwrap();
    assert!(bench.is_cached(&instrumented));

    let plain = bench.build(&bench.request(compiler, Profiling::None)).unwrap();
    let with_profile = bench.request(compiler, Profiling::Use(Box::new(profile.clone())));
    let optimized = bench.build(&with_profile).unwrap();
    assert_eq!(optimized.profile.as_ref().unwrap().trained_on, "a run");
    assert_ne!(optimized.fingerprint, plain.fingerprint);
    assert_ne!(optimized.fingerprint, instrumented.fingerprint);
    assert!(Command::new(&optimized.artifact).status().unwrap().success());
    let log = fs::read_to_string(optimized.folder.join("log.txt")).unwrap();
    // Functions of files generated in another directory cause warnings, but their profile is used.
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("warning:")).collect();
    let is_gcc = compiler.kind == CompilerKind::Gcc;
    assert_eq!(!warnings.is_empty(), is_gcc, "{log}");
    assert!(warnings.iter().all(|line| line.contains("/made.y:1:")), "{log}");

    // A changed source needs another profile.
    fs::write(bench.dir.path().join("postgresql-99.1/src/backend/b.c"), "int b;").unwrap();
    let error =
        bench.build(&bench.request(compiler, Profiling::Use(Box::new(profile)))).unwrap_err();
    assert!(error.to_string().contains("it was collected from another source"), "{error}");
}

#[test]
fn gcc_profile_is_collected_and_used() {
    collects_and_uses(&Compiler::find("gcc").unwrap());
}

#[test]
fn clang_profile_is_collected_and_used() {
    match Compiler::find("clang") {
        Ok(clang) if clang.tool("profdata").is_file() => collects_and_uses(&clang),
        _ => dbdyno_fuzz::skip("no clang with llvm-profdata here"),
    }
}

#[test]
fn profile_of_different_generated_code_is_rejected() {
    let bench = Bench::new();
    let gcc = Compiler::find("gcc").unwrap();
    let instrumented = bench.build(&bench.request(&gcc, Profiling::Collect)).unwrap();
    let profile = bench.train(&instrumented).unwrap();
    fs::write(bench.dir.path().join("go.more"), "while (x > 9) x /= 2;").unwrap();
    let error = bench.build(&bench.request(&gcc, Profiling::Use(Box::new(profile)))).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("it was collected from other code"), "{error}");
    assert!(error.contains("made"), "{error}");
    // The profile is collected again next time.
    assert!(!bench.is_cached(&instrumented));
}

/// Removes all profiles, as a user would to free space.
fn remove_profiles(bench: &Bench) {
    let cache = Cache::new(&bench.builder.cache_dir);
    for entry in cache.inventory() {
        if let CacheEntryKind::Profile(trained_on) = &entry.kind {
            assert_eq!(trained_on, "a run");
            assert!(cache.remove(&entry).unwrap());
        }
    }
}

#[test]
fn profile_is_collected_once_and_kept_while_in_use() {
    let bench = Bench::new();
    let gcc = Compiler::find("gcc").unwrap();
    let instrumented = bench.build(&bench.request(&gcc, Profiling::Collect)).unwrap();
    let lock = bench.lock(&instrumented);
    // Another process waits, and may be cancelled.
    let cancel = AtomicBool::new(false);
    let waiting = || cancel.store(true, Ordering::Relaxed);
    let other = bench.profiles.lookup(&instrumented, &a_run(), &cancel, &waiting).unwrap();
    assert!(matches!(other, Lookup::Cancelled));
    // A different training has its own profile, even with the same description.
    let otherwise = TrainingId { whole: "another run".to_owned(), ..a_run() };
    let never = AtomicBool::new(false);
    let other = bench.profiles.lookup(&instrumented, &otherwise, &never, &|| {}).unwrap();
    assert!(matches!(other, Lookup::Missing(_)));
    drop((lock, other));

    let profile = bench.train(&instrumented).unwrap();
    let Lookup::Found(second) = bench.lookup(&instrumented) else { panic!("it is not shared") };
    drop(profile);
    let cache = Cache::new(&bench.builder.cache_dir);
    let all = cache.inventory();
    let entry = all.iter().find(|entry| matches!(entry.kind, CacheEntryKind::Profile(_))).unwrap();
    assert!(!cache.remove(entry).unwrap());
    drop(second);
    assert!(cache.remove(entry).unwrap());
    assert!(!bench.is_cached(&instrumented));
}

#[test]
fn profile_is_rejected_for_other_flags_or_compiler() {
    let bench = Bench::new();
    let gcc = Compiler::find("gcc").unwrap();
    let instrumented = bench.build(&bench.request(&gcc, Profiling::Collect)).unwrap();
    let profile = bench.train(&instrumented).unwrap();
    let used = |change: &dyn Fn(&mut Request)| {
        let mut request = bench.request(&gcc, Profiling::Use(Box::new(profile.clone())));
        change(&mut request);
        bench.build(&request).map_err(|error| error.to_string())
    };
    let flags = used(&|request| request.extra_flags.push("-fno-plt".to_owned())).unwrap_err();
    assert!(flags.contains("it was collected from other flags"), "{flags}");
    let compiler = used(&|request| request.compiler.version.push('x')).unwrap_err();
    assert!(compiler.contains("it was collected from another compiler"), "{compiler}");
    used(&|_| {}).unwrap();
    // Nothing was run, so there is no profile.
    drop(profile);
    remove_profiles(&bench);
    let nothing = bench.lock(&instrumented).begin(&instrumented, None).unwrap();
    let error = nothing.finish().unwrap_err();
    assert!(error.to_string().contains("there is no raw data"), "{error}");
}

#[test]
fn profile_is_used_by_the_same_compiler_under_another_name() {
    let bench = Bench::new();
    let gcc = Compiler::find("gcc").unwrap();
    let instrumented = bench.build(&bench.request(&gcc, Profiling::Collect)).unwrap();
    let profile = bench.train(&instrumented).unwrap();
    let (_, version) = gcc.version_line.split_once(' ').unwrap();
    let version_line = format!("another-name {version}");
    let renamed = Compiler { path: gcc.resolved.clone(), version_line, ..gcc };
    let used = Profiling::Use(Box::new(profile));
    assert!(bench.build(&bench.request(&renamed, used)).unwrap().profile.is_some());
}

/// Samples of the first instructions of these functions.
fn sampled(build: &Build, functions: &[(&str, u64)]) -> SampledCode {
    let bytes = fs::read(&build.artifact).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut code = SampledCode { file: build.artifact.clone(), ..SampledCode::default() };
    for (name, count) in functions {
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        code.samples += count;
        code.ranges.push((symbol.address(), symbol.address(), *count));
    }
    code.ranges.sort_unstable();
    code
}

#[test]
fn clang_uses_sampled_profile() {
    let bench = Bench::new();
    let clang = Compiler::find("clang").unwrap();
    let tools = SampleTools::of(&clang).unwrap();
    let base = bench.build(&bench.request(&clang, Profiling::Sample)).unwrap();
    assert!(!base.instrumented && base.profile.is_none());
    assert!(!bench.is_cached(&base));
    let code = [sampled(&base, &[("main", 600), ("a", 5_000)])];
    let profile = bench.lock(&base).store_samples(&base, &code, &tools).unwrap();
    assert!(bench.is_cached(&base));

    let used = Profiling::Use(Box::new(profile.clone()));
    let optimized = bench.build(&bench.request(&clang, used)).unwrap();
    assert_eq!(optimized.profile.as_ref().unwrap().samples, Some(5_600));
    let file = optimized.flags.iter().find_map(|flag| flag.strip_prefix("-fprofile-sample-use="));
    let text = fs::read_to_string(file.unwrap()).unwrap();
    assert!(text.contains("\n 0: 5000\nmain:600:0\n 0: 600\n"), "{text}");
    let log = fs::read_to_string(optimized.folder.join("log.txt")).unwrap();
    assert!(!log.contains("warning:"), "{log}");
    assert!(!optimized.flags.iter().any(|flag| flag.starts_with("-g")), "{:?}", optimized.flags);

    // The profile can only be used for the sampled build.
    let mut other = bench.request(&clang, Profiling::Use(Box::new(profile)));
    other.extra_flags.push("-fno-plt".to_owned());
    let error = bench.build(&other).unwrap_err().to_string();
    assert!(error.contains("it was collected from other flags"), "{error}");
}
