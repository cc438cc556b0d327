//! Server builds: out of tree, with progress, resumed after interruptions, within the cache's
//! maximum size. The source is a small one with PostgreSQL's structure.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use dbdyno_builds::{
    Build, BuildError, Builder, Cache, CacheEntryKind, Compiler, Event, Lookup, Profiles,
    Profiling, RecipeOptions, Request, Source, SourceOrigin, Sources, System, TrainingId, Variant,
};
use dbdyno_units::Bytes;
use tempfile::TempDir;

use crate::common::{cache_in, open_folder, write_source};

struct Bench {
    dir: TempDir,
    builder: Builder,
    source: PathBuf,
}

impl Bench {
    /// Creates a source that compiles without delay.
    fn new() -> Self {
        let bench = Self::waiting();
        fs::write(bench.go(), "").unwrap();
        bench
    }

    /// Creates a source whose compilation waits for the file [`Self::go`].
    fn waiting() -> Self {
        let dir = open_folder();
        let source = write_source(dir.path(), &dir.path().join("go"));
        let builder = Builder::new(cache_in(dir.path(), "cache"));
        Self { dir, builder, source }
    }

    fn go(&self) -> PathBuf {
        self.dir.path().join("go")
    }

    fn request(&self, variant: &str) -> Request {
        let sources = Sources::new(&self.builder.cache_dir, Arc::new(AtomicBool::new(false)));
        let origin = SourceOrigin::Path(self.source.clone());
        let source = sources.obtain(System::PostgreSql, &origin, &|_| {}).unwrap();
        let variant = Variant::by_name(variant).unwrap();
        Request::new(source, variant, Compiler::find("gcc").unwrap())
    }

    fn build(&self, request: &Request) -> (Result<Build, BuildError>, Vec<String>) {
        let events = Mutex::new(Vec::new());
        let outcome = self.builder.build(std::slice::from_ref(request), &|event| {
            let text = match event {
                Event::Preparing(_, what) => what.to_owned(),
                Event::Started { .. } => "started".to_owned(),
                Event::Progress { step, done, of, .. } => format!("{step} {done}/{of}"),
                Event::Cached { .. } => "cached".to_owned(),
                Event::Finished { .. } => "finished".to_owned(),
                Event::Failed { .. } => "failed".to_owned(),
                Event::Waiting { .. } => "waiting".to_owned(),
            };
            events.lock().unwrap().push(text);
        });
        (outcome.into_iter().next().unwrap(), events.into_inner().unwrap())
    }
}

fn wait_until(what: &str, there: impl Fn() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} never came");
        thread::sleep(Duration::from_millis(20));
    }
}

fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn installed_server_has_all_files_for_audit() {
    let bench = Bench::new();
    let (build, events) = bench.build(&bench.request("rel_withdbg"));
    let build = build.unwrap();
    assert!(events.contains(&"started".to_owned()), "{events:?}");
    assert_eq!(build.source_version, "99.1");
    assert_eq!(build.artifact, build.folder.join("server/bin/postgres"));
    assert!(Command::new(&build.artifact).status().unwrap().success());
    assert!(build.tree.join("src/backend/a.o").is_file());
    assert!(build.settings.debug && !build.settings.assertions);
    let database = fs::read_to_string(build.compile_database()).unwrap();
    let database: serde_json::Value = serde_json::from_str(&database).unwrap();
    let entries = database.as_array().unwrap();
    assert_eq!(entries.len(), 5, "{database}");
    for entry in entries {
        assert_eq!(entry["directory"], build.tree.join("src/backend").to_str().unwrap());
        assert!(entry["command"].as_str().unwrap().contains(" -O2 -g -DNDEBUG "), "{entry}");
    }
    let (again, events) = bench.build(&bench.request("rel_withdbg"));
    assert_eq!(again.unwrap(), build);
    assert_eq!(events, ["cached"]);
}

#[test]
fn each_ingredient_gives_another_build() {
    let bench = Bench::new();
    let base = bench.build(&bench.request("rel")).0.unwrap();
    let other = |request: &Request| {
        let build = bench.build(request).0.unwrap();
        assert_ne!(build.fingerprint, base.fingerprint);
    };
    other(&bench.request("rel_o2"));
    other(&Request { extra_flags: vec!["-fno-plt".to_owned()], ..bench.request("rel") });
    let arguments = vec!["--without-anything".to_owned()];
    let options = RecipeOptions { arguments, ..RecipeOptions::default() };
    other(&Request { options, ..bench.request("rel") });
    fs::write(bench.source.join("src/backend/b.c"), "int b(void) { return 4; }\n").unwrap();
    other(&bench.request("rel"));
}

#[test]
fn libraries_are_checked_before_a_server_starts() {
    let bench = Bench::new();
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-cc.sh");
    let (library, variant) = (Source::bundled_sqlite(), Variant::by_name("rel").unwrap());
    let library = Request::new(library, variant, Compiler::find(fake).unwrap());
    let events = Mutex::new(Vec::new());
    let started = |event: Event<'_>| {
        if let Event::Started(request) = event {
            events.lock().unwrap().push(format!("{} started", request.source.name()));
        }
    };
    bench.builder.build_while(&[bench.request("rel"), library], &started, &mut |_, build| {
        events.lock().unwrap().push(format!("{} checked", build.system));
        ControlFlow::Continue(())
    });
    assert_eq!(
        events.into_inner().unwrap(),
        ["sqlite started", "sqlite checked", "postgresql started", "postgresql checked"]
    );
}

#[test]
fn builds_stop_after_a_rejected_server() {
    let bench = Bench::new();
    let requests: Vec<Request> =
        ["rel", "rel_o2", "rel", "rel_withdbg"].map(|variant| bench.request(variant)).into();
    let mut looked = Vec::new();
    let outcomes = bench.builder.build_while(&requests, &|_| {}, &mut |number, build| {
        looked.push((number, build.variant.clone()));
        if number == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(looked, [(0, "rel".to_owned()), (1, "rel_o2".to_owned())]);
    let variants = outcomes[..3].iter().map(|outcome| outcome.as_ref().unwrap().variant.as_str());
    assert_eq!(variants.collect::<Vec<_>>(), ["rel", "rel_o2", "rel"]);
    assert!(matches!(outcomes[3], Err(BuildError::Cancelled { .. })), "{:?}", outcomes[3]);
}

#[test]
fn broken_source_shows_compiler_message_and_can_be_fixed() {
    let bench = Bench::new();
    let file = bench.source.join("src/backend/b.c");
    fs::write(&file, "int b(void) { return broken_on_purpose; }\n").unwrap();
    let (outcome, events) = bench.build(&bench.request("rel"));
    let error = outcome.unwrap_err();
    assert_eq!(events.last().unwrap(), "failed");
    let BuildError::Failed(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.step, "compiling src/backend");
    assert!(failure.message.contains("broken_on_purpose"), "{error}");
    assert!(failure.command.contains("-C src/backend all"), "{error}");
    assert!(failure.log.is_file());
    fs::write(&file, "int b(void) { return 2; }\n").unwrap();
    bench.build(&bench.request("rel")).0.unwrap();
}

/// The directory of objects of the only build directory; `None` before there is one.
fn tree_of(bench: &Bench) -> Option<PathBuf> {
    let work = fs::read_dir(bench.builder.cache_dir.path().join("work")).ok()?.next()?.ok()?;
    Some(work.path().join("tree/src/backend"))
}

#[test]
fn interrupted_build_is_resumed() {
    let bench = Bench::waiting();
    for name in ["a", "b", "slow", "main"] {
        age(&bench.source.join(format!("src/backend/{name}.c")), 3600);
    }
    let request = bench.request("rel");
    let tree = || tree_of(&bench);
    let has = |name: &str| tree().is_some_and(|tree| tree.join(name).is_file());
    thread::scope(|scope| {
        let building = scope.spawn(|| bench.build(&request).0);
        wait_until("a.o", || has("a.o") && has("b.o"));
        // make prints a command's output when it is complete.
        let log = || fs::read_to_string(tree()?.join("../../../log.txt")).ok();
        let both = |log: String| log.contains(" -o a.o ") && log.contains(" -o b.o ");
        wait_until("the log", || log().is_some_and(both));
        bench.builder.cancel.store(true, Ordering::Relaxed);
        let outcome = building.join().unwrap();
        assert!(matches!(outcome, Err(BuildError::Cancelled { .. })), "{outcome:?}");
    });
    // One object is old enough to be complete, the other may be incomplete.
    age(&tree().unwrap().join("a.o"), 60);
    fs::write(bench.go(), "").unwrap();
    bench.builder.cancel.store(false, Ordering::Relaxed);
    let hour = 3600 * 1_000_000_000_u64;
    fs::write(tree().unwrap().join("../../../time"), hour.to_string()).unwrap();
    let build = bench.build(&request).0.unwrap();
    assert!(build.compile_time.as_nanos() >= hour, "{}", build.compile_time);
    let log = fs::read_to_string(build.folder.join("log.txt")).unwrap();
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("/configure --prefix="), 1, "{log}");
    assert_eq!(count(" -c -o a.o "), 1, "{log}");
    assert_eq!(count(" -c -o b.o "), 2, "{log}");
    assert!(Command::new(&build.artifact).status().unwrap().success());
}

#[test]
fn source_edited_during_a_build_is_refused() {
    let bench = Bench::waiting();
    let request = bench.request("rel");
    let tree = || tree_of(&bench);
    let file = bench.source.join("src/backend/b.c");
    let before = fs::read_to_string(&file).unwrap();
    thread::scope(|scope| {
        let building = scope.spawn(|| bench.build(&request).0);
        wait_until("b.o", || tree().is_some_and(|tree| tree.join("b.o").is_file()));
        fs::write(&file, "int b(void) { return 4; }\n").unwrap();
        fs::write(bench.go(), "").unwrap();
        let error = building.join().unwrap().unwrap_err();
        let source = bench.source.canonicalize().unwrap();
        let expected = format!("its source in {} was edited", source.display());
        assert!(error.to_string().contains(&expected), "{error}");
    });
    assert!(!tree().unwrap().exists());
    fs::write(&file, before).unwrap();
    let (build, events) = bench.build(&request);
    build.unwrap();
    assert!(events.contains(&"started".to_owned()), "{events:?}");
}

#[test]
fn build_from_edited_and_restored_source_is_not_resumed() {
    let bench = Bench::waiting();
    let request = bench.request("rel");
    let tree = || tree_of(&bench);
    let file = bench.source.join("src/backend/b.c");
    let before = fs::read_to_string(&file).unwrap();
    thread::scope(|scope| {
        let building = scope.spawn(|| bench.build(&request).0);
        wait_until("a.o", || tree().is_some_and(|tree| tree.join("a.o").is_file()));
        fs::write(&file, "int b(void) { return 4; }\n").unwrap();
        bench.builder.cancel.store(true, Ordering::Relaxed);
        assert!(building.join().unwrap().is_err());
    });
    fs::write(&file, before).unwrap();
    age(&file, 3600);
    fs::write(bench.go(), "").unwrap();
    bench.builder.cancel.store(false, Ordering::Relaxed);
    let build = bench.build(&request).0.unwrap();
    let log = fs::read_to_string(build.folder.join("log.txt")).unwrap();
    let configured = log.lines().filter(|line| line.contains("/configure --prefix=")).count();
    assert_eq!(configured, 2, "{log}");
}

#[test]
fn copied_profile_does_not_hide_incomplete_objects() {
    let bench = Bench::new();
    let trained = Request { profiling: Profiling::Collect, ..bench.request("rel_pgo") };
    let instrumented = bench.build(&trained).0.unwrap();
    let never = AtomicBool::new(false);
    let a_run = TrainingId { words: "a run".to_owned(), whole: "a run".to_owned() };
    let profiles = Profiles::new(&bench.builder.cache_dir);
    let Lookup::Missing(lock) = profiles.lookup(&instrumented, &a_run, &never, &|| {}).unwrap()
    else {
        panic!("the profile is already cached")
    };
    let collecting = lock.begin(&instrumented, None).unwrap();
    let status = Command::new(&instrumented.artifact).envs(collecting.environment()).status();
    assert!(status.unwrap().success());
    let profiling = Profiling::Use(Box::new(collecting.finish().unwrap()));

    fs::remove_file(bench.go()).unwrap();
    let request = Request { profiling, ..bench.request("rel_pgo") };
    let instrumented = instrumented.tree.parent().unwrap().to_owned();
    let work = || {
        let works = fs::read_dir(bench.builder.cache_dir.path().join("work")).unwrap().flatten();
        works.map(|work| work.path()).find(|work| *work != instrumented)
    };
    let tree = || Some(work()?.join("tree/src/backend"));
    thread::scope(|scope| {
        let building = scope.spawn(|| bench.build(&request).0);
        wait_until("b.o", || tree().is_some_and(|tree| tree.join("b.o").is_file()));
        let log = || fs::read_to_string(work()?.join("log.txt")).ok();
        wait_until("the log", || log().is_some_and(|log| log.contains(" -o b.o ")));
        bench.builder.cancel.store(true, Ordering::Relaxed);
        assert!(building.join().unwrap().is_err());
    });
    // All files in the tree are ten minutes old.
    let mut waiting = vec![work().unwrap().join("tree")];
    while let Some(folder) = waiting.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { waiting.push(path) } else { age(&path, 600) }
        }
    }
    fs::write(bench.go(), "").unwrap();
    bench.builder.cancel.store(false, Ordering::Relaxed);
    let build = bench.build(&request).0.unwrap();
    let log = fs::read_to_string(build.folder.join("log.txt")).unwrap();
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!((count("/configure --prefix="), count(" -c -o b.o ")), (1, 2), "{log}");
}

#[test]
fn cache_is_shrunk_to_its_limit() {
    let bench = Bench::new();
    let first = bench.build(&bench.request("rel")).0.unwrap();
    let second = bench.build(&bench.request("rel_o2")).0.unwrap();
    let cache = Cache::new(&bench.builder.cache_dir);
    let kinds = || {
        let inventory = cache.inventory();
        let trees = inventory.iter().filter(|k| matches!(k.kind, CacheEntryKind::Tree)).count();
        let builds =
            inventory.iter().filter(|k| matches!(k.kind, CacheEntryKind::Build(_))).count();
        (trees, builds)
    };
    assert_eq!(kinds(), (2, 2));
    cache.shrink(Bytes::from_mib(1 << 20), &[]);
    assert_eq!(kinds(), (2, 2));
    // Builds to keep are not removed, however small the limit.
    cache.shrink(Bytes::from_bytes(1), &[second.fingerprint]);
    assert_eq!(kinds(), (1, 1));
    assert!(!first.folder.exists() && second.artifact.exists() && second.tree.exists());
}

#[test]
fn moved_server_is_not_reused() {
    let bench = Bench::new();
    bench.build(&bench.request("rel")).0.unwrap();
    let moved = Cache::new(&cache_in(bench.dir.path(), "moved"));
    fs::rename(bench.builder.cache_dir.path(), bench.dir.path().join("moved")).unwrap();
    let inventory = moved.inventory();
    let build = inventory.iter().find_map(|entry| match &entry.kind {
        CacheEntryKind::Build(build) => Some(build.fingerprint),
        _ => None,
    });
    assert!(moved.get(&build.unwrap()).is_none());
}
