//! Optimization of a small server and of SQLite with the installed BOLT.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_builds::{
    Bolt, BoltSamples, Build, BuildError, Builder, Cache, CachedBoltProfile, CollectionLock,
    Compiler, Lookup, Profiles, Request, Source, SourceOrigin, Sources, System, TrainingId,
    Variant,
};
use dbdyno_types::build::Optimization;
use object::{Object, ObjectSection};
use tempfile::TempDir;

use crate::common::{cache_in, open_folder, write_source};

struct Bench {
    dir: TempDir,
    builder: Builder,
    profiles: Profiles,
    /// If it is not installed, the error names the package.
    bolt: Bolt,
}

impl Bench {
    fn new() -> Self {
        let dir = open_folder();
        let source = write_source(dir.path(), &dir.path().join("go"));
        fs::write(dir.path().join("go"), "").unwrap();
        // Never called, because not every CPU supports transactions.
        let transaction = "int b(void) { __asm__ volatile(\"xbegin 1f\\n1:\"); return 2; }\n";
        fs::write(source.join("src/backend/b.c"), transaction).unwrap();
        let cache = cache_in(dir.path(), "cache");
        let (profiles, builder) = (Profiles::new(&cache), Builder::new(cache));
        Self { builder, profiles, dir, bolt: Bolt::find().unwrap() }
    }

    fn request(&self, flags: &[&str], bolt: Option<CachedBoltProfile>) -> Request {
        let sources = Sources::new(&self.builder.cache_dir, Arc::new(AtomicBool::new(false)));
        let origin = SourceOrigin::Path(self.dir.path().join("postgresql-99.1"));
        let source = sources.obtain(System::PostgreSql, &origin, &|_| {}).unwrap();
        let variant = Variant::by_name("rel_bolt").unwrap();
        let request = Request::new(source, variant, Compiler::find("gcc").unwrap());
        let extra_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Request { bolt, extra_flags, ..request }
    }

    fn build(&self, request: &Request) -> Result<Build, BuildError> {
        self.builder.build(std::slice::from_ref(request), &|_| {}).remove(0)
    }

    fn lookup(&self, base: &Build, run: &str) -> Lookup<CachedBoltProfile> {
        let never = AtomicBool::new(false);
        let trained_on = TrainingId { words: run.to_owned(), whole: format!("{run}, exactly") };
        let on_wait = || panic!("locked by another process");
        self.profiles.lookup_bolt(base, &self.bolt, &trained_on, &never, &on_wait).unwrap()
    }

    fn is_cached(&self, base: &Build, run: &str) -> bool {
        matches!(self.lookup(base, run), Lookup::Found(_))
    }

    fn lock(&self, base: &Build, run: &str) -> CollectionLock {
        match self.lookup(base, run) {
            Lookup::Missing(lock) => lock,
            other => panic!("{other:?}"),
        }
    }

    fn train(&self, base: &Build) -> Result<CachedBoltProfile, BuildError> {
        let cancel = AtomicBool::new(false);
        let lock = self.lock(base, "a run");
        let collecting = lock.begin_bolt(base, &self.bolt, None, &cancel)?.unwrap();
        let program = &collecting.instrumented().artifact;
        assert!(Command::new(program).status().unwrap().success());
        collecting.finish()
    }
}

fn sections(file: &Path) -> Vec<String> {
    let content = fs::read(file).unwrap();
    let file = object::File::parse(&*content).unwrap();
    file.sections().map(|section| section.name().unwrap().to_owned()).collect()
}

#[test]
fn server_is_linked_trained_and_optimized() {
    let bench = Bench::new();
    let base = bench.build(&bench.request(&[], None)).unwrap();
    assert!(base.bolt.is_none());
    assert!(sections(&base.artifact).iter().any(|name| name == ".rela.text"));
    fs::write(base.folder.join("server/bin/initdb"), "not touched").unwrap();

    assert!(!bench.is_cached(&base, "a run"));
    let profile = bench.train(&base).unwrap();
    assert!(bench.is_cached(&base, "a run"));
    assert!(!bench.is_cached(&base, "another run"));

    let request = bench.request(&[], Some(profile));
    let laid_out = bench.build(&request).unwrap();
    assert!(Command::new(&laid_out.artifact).status().unwrap().success());
    assert_ne!(laid_out.fingerprint, base.fingerprint);
    assert_ne!(laid_out.artifact_sha256, base.artifact_sha256);
    assert!(sections(&laid_out.artifact).iter().any(|name| name == ".bolt.org.text"));
    let initdb = fs::read_to_string(laid_out.folder.join("server/bin/initdb")).unwrap();
    assert_eq!(initdb, "not touched");
    let used = laid_out.bolt.clone().unwrap();
    assert_eq!((used.base, used.trained_on.as_str()), (base.fingerprint, "a run"));
    assert_eq!(used.left_alone, ["b"]);
    let log = fs::read_to_string(laid_out.folder.join("log.txt")).unwrap();
    assert!(log.contains("dynostats"), "{log}");
    assert_eq!(laid_out.tree, base.tree);
    assert!(laid_out.compile_database().is_file());
    assert_eq!(bench.build(&request).unwrap(), laid_out);

    // Without the base build, it may lack files.
    let cache = Cache::new(&bench.builder.cache_dir);
    assert!(cache.get(&laid_out.fingerprint).is_some());
    fs::remove_dir_all(&base.folder).unwrap();
    assert!(cache.get(&laid_out.fingerprint).is_none());
}

#[test]
fn profile_is_rejected_for_another_build() {
    let bench = Bench::new();
    let base = bench.build(&bench.request(&[], None)).unwrap();
    let profile = bench.train(&base).unwrap();
    let other = bench.request(&["-fno-plt"], Some(profile.clone()));
    let error = bench.build(&other).unwrap_err().to_string();
    assert!(error.contains("it was collected from another build"), "{error}");

    // Nothing was run, so there is no profile.
    let cancel = AtomicBool::new(false);
    let lock = bench.lock(&base, "nothing");
    let nothing = lock.begin_bolt(&base, &bench.bolt, None, &cancel).unwrap();
    let error = nothing.unwrap().finish().unwrap_err().to_string();
    assert!(error.contains("there is no raw data"), "{error}");

    drop((profile, other));
    fs::write(&base.artifact, "#!/bin/sh\n").unwrap();
    assert!(!bench.is_cached(&base, "a run"));
    let error = bench.train(&base).unwrap_err().to_string();
    assert!(error.contains("rel_bolt"), "{error}");
}

#[test]
fn samples_are_stored_for_live_optimizer() {
    let bench = Bench::new();
    let base = bench.build(&bench.request(&[], None)).unwrap();
    let sampled = BoltSamples {
        text: "no_lbr cycles\n1 main 0 700\n".to_owned(),
        samples: 700,
        for_live: "{\"modules\":[]}".to_owned(),
    };
    let cancel = AtomicBool::new(false);
    let lock = bench.lock(&base, "a run");
    let entry = lock.store_bolt_samples(&base, &bench.bolt, &sampled, &cancel);
    let samples = entry.unwrap().unwrap().samples().unwrap();
    assert_eq!(fs::read_to_string(&samples).unwrap(), sampled.for_live);
    let Lookup::Found(found) = bench.lookup(&base, "a run") else {
        panic!("the profile is not cached")
    };
    assert_eq!(found.samples().as_deref(), Some(&*samples));
    let laid_out = bench.build(&bench.request(&[], Some(found))).unwrap();
    assert_eq!(laid_out.bolt.unwrap().collected_by, "700 samples");

    // A profile without them is collected again.
    fs::remove_file(samples).unwrap();
    assert!(!bench.is_cached(&base, "a run"));
    // A profile collected by instrumentation has none.
    assert!(bench.train(&base).unwrap().samples().is_none());
}

#[test]
#[ignore = "full"]
fn library_is_optimized() {
    let bench = Bench::new();
    let gcc = Compiler::find("gcc").unwrap();
    let variant =
        Variant { optimization: Optimization::O0, ..Variant::by_name("rel_bolt").unwrap() };
    let request = Request::new(Source::bundled_sqlite(), variant, gcc);
    let base = bench.build(&request).unwrap();
    let cancel = AtomicBool::new(false);
    let collecting = bench.lock(&base, "a run").begin_bolt(&base, &bench.bolt, None, &cancel);
    let collecting = collecting.unwrap().unwrap();
    let uses = |library: &Path| {
        let program = bench.dir.path().join("uses");
        let source = bench.dir.path().join("uses.c");
        fs::write(&source, USES).unwrap();
        let status = Command::new("gcc").arg(&source).arg(library).arg("-o").arg(&program).status();
        assert!(status.unwrap().success());
        let folder = library.parent().unwrap();
        let output = Command::new(&program).env("LD_LIBRARY_PATH", folder).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let answer = uses(&base.artifact);
    assert_eq!(uses(&collecting.instrumented().artifact), answer);
    let bolt = Some(collecting.finish().unwrap());
    let laid_out = bench.build(&Request { bolt, ..request }).unwrap();
    assert_eq!(uses(&laid_out.artifact), answer);
    assert!(sections(&laid_out.artifact).iter().any(|name| name == ".bolt.org.text"));
}

const USES: &str = "#include <stdio.h>\n\
    struct sqlite3; int sqlite3_open(const char *, struct sqlite3 **);\n\
    int sqlite3_exec(struct sqlite3 *, const char *, int (*)(void *, int, char **, char **), \
    void *, char **);\n\
    static int print(void *p, int n, char **v, char **c) { return puts(v[0]) < 0; }\n\
    int main(void) { struct sqlite3 *db; return sqlite3_open(\":memory:\", &db) || \
    sqlite3_exec(db, \"WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n LIMIT 1000) \
    SELECT group_concat(i) FROM n\", print, 0, 0); }\n";
