//! Attacks: what the user of an instrumented program plants among its counters, and what an archive
//! contains, is neither executed nor published; programs of a source see no passwords.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_builds::{
    Build, BuildError, Builder, Cache, Collection, Compiler, Lookup, Profile, ProfileWriter,
    Profiles, Profiling, Request, SourceOrigin, Sources, System, TrainingId, Variant,
};
use tempfile::TempDir;

use crate::common::{cache_in, open_folder, write_source};
use crate::outside::write_program;

/// The user of the instrumented program: `nobody` if the tests run as root.
const NOBODY: u32 = 65534;

struct Bench {
    dir: TempDir,
    builder: Builder,
    profiles: Profiles,
    instrumented: Build,
    writer: Option<ProfileWriter>,
}

impl Bench {
    fn new() -> Self {
        let dir = open_folder();
        write_source(dir.path(), &dir.path().join("go"));
        fs::write(dir.path().join("go"), "").unwrap();
        let cache = cache_in(dir.path(), "cache");
        let (profiles, builder) = (Profiles::new(&cache), Builder::new(cache));
        let instrumented = build(&builder, &request(&builder, dir.path(), Profiling::Collect));
        let is_root = rustix::process::geteuid().is_root();
        let writer = is_root.then_some(ProfileWriter { uid: NOBODY, gid: NOBODY });
        Self { dir, builder, profiles, instrumented: instrumented.unwrap(), writer }
    }

    fn lookup(&self) -> Lookup<Profile> {
        let trained_on = TrainingId { words: "a run".to_owned(), whole: "a run".to_owned() };
        let never = AtomicBool::new(false);
        self.profiles.lookup(&self.instrumented, &trained_on, &never, &|| {}).unwrap()
    }

    /// Trains the program.
    fn train(&self) -> Collection<'_> {
        let Lookup::Missing(lock) = self.lookup() else { panic!("there is a profile") };
        let collection = lock.begin(&self.instrumented, self.writer).unwrap();
        let mut program = Command::new(&self.instrumented.artifact);
        assert!(self.as_writer(program.envs(collection.environment())));
        collection
    }

    /// Runs a program as the user of the instrumented program.
    fn as_writer(&self, command: &mut Command) -> bool {
        if let Some(ProfileWriter { uid, gid }) = self.writer {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/").status().unwrap().success()
    }

    /// Runs commands of a shell as that user, in the directory with the counters of an object.
    fn plant(&self, collection: &Collection<'_>, commands: &str) {
        let raw = &collection.environment()[0].1;
        let tree = &self.instrumented.tree;
        let folder = format!("{raw}{}/src/backend", tree.display());
        let script = format!("set -e; cd {folder}; {commands}");
        assert!(self.as_writer(Command::new("sh").args(["-c", &script])), "{script}");
    }

    /// A directory that only its owner can read, with a file.
    fn secret(&self) -> PathBuf {
        let secret = self.dir.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("key.gcda"), "private").unwrap();
        fs::set_permissions(secret.join("key.gcda"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
        secret
    }

    /// The files in the cache that contain the text.
    fn files_with(&self, text: &str) -> Vec<PathBuf> {
        let cache = self.builder.cache_dir.path();
        all_files(cache)
            .into_iter()
            .filter(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).contains(text))
            .collect()
    }
}

fn request(builder: &Builder, dir: &Path, profiling: Profiling) -> Request {
    let sources = Sources::new(&builder.cache_dir, Arc::new(AtomicBool::new(false)));
    let origin = SourceOrigin::Path(dir.join("postgresql-99.1"));
    let source = sources.obtain(System::PostgreSql, &origin, &|_| {}).unwrap();
    let variant = Variant::by_name("rel_pgo").unwrap();
    Request { profiling, ..Request::new(source, variant, Compiler::find("gcc").unwrap()) }
}

fn build(builder: &Builder, request: &Request) -> Result<Build, BuildError> {
    builder.build(std::slice::from_ref(request), &|_| {}).remove(0)
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap();
        match kind.is_dir() {
            true => found.extend(all_files(&path)),
            false if kind.is_file() => found.push(path),
            false => {}
        }
    }
    found
}

#[test]
fn makefile_planted_among_counters_is_not_executed() {
    let bench = Bench::new();
    let made = bench.dir.path().join("made_by_make");
    let collection = bench.train();
    bench.plant(
        &collection,
        &format!(
            "printf 'all install generated-headers:\\n\\t@id > {made}; exec $(MAKE) -f Makefile $@\\n' \
             > GNUmakefile; echo planted > unknown.gcda; mkdir -p ../../planted; \
             echo planted > ../../planted/a.gcda",
            made = made.display()
        ),
    );
    let profile = collection.finish().unwrap();
    let names: Vec<String> = all_files(bench.builder.cache_dir.path().join("profiles").as_path())
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names.contains(&"a.gcda".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name == "GNUmakefile" || name == "unknown.gcda"), "{names:?}");
    assert_eq!(bench.files_with("planted"), Vec::<PathBuf>::new());

    let with_profile = Profiling::Use(Box::new(profile));
    build(&bench.builder, &request(&bench.builder, bench.dir.path(), with_profile)).unwrap();
    assert!(!made.exists(), "make ran the planted file: {}", fs::read_to_string(&made).unwrap());
}

#[test]
fn link_planted_among_counters_publishes_nothing() {
    let bench = Bench::new();
    let secret = bench.secret();
    let collection = bench.train();
    // A directory of counters is replaced by a link, and other ones are added.
    let plant = format!("ln -s {0} more; ln -s {0}/key.gcda b2.gcda", secret.display());
    bench.plant(&collection, &plant);
    collection.finish().unwrap();
    assert!(matches!(bench.lookup(), Lookup::Found(_)));
    assert_eq!(bench.files_with("private"), Vec::<PathBuf>::new());
}

#[test]
fn link_in_place_of_a_counter_fails_the_training() {
    let secret_file = |bench: &Bench| bench.secret().join("key.gcda");
    for plant in ["rm a.gcda; ln -s @ a.gcda", "cd ..; mv backend x; ln -s @ backend"] {
        let bench = Bench::new();
        let key = secret_file(&bench);
        let collection = bench.train();
        let target = if plant.contains("mv") { key.parent().unwrap() } else { &key };
        bench.plant(&collection, &plant.replace('@', &target.to_string_lossy()));
        let error = collection.finish().unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert!(error.contains("/src/backend/a.gcda"), "{error}");
        // No profile remains.
        assert!(matches!(bench.lookup(), Lookup::Missing(_)));
        assert_eq!(bench.files_with("private"), Vec::<PathBuf>::new());
    }
}

#[test]
fn profile_that_others_could_have_changed_is_collected_again() {
    let bench = Bench::new();
    drop(bench.train().finish().unwrap());
    assert!(matches!(bench.lookup(), Lookup::Found(_)));
    let files = all_files(&bench.builder.cache_dir.path().join("profiles"));
    let counters = files.iter().find(|path| path.ends_with("src/backend/a.gcda")).unwrap();
    fs::set_permissions(counters, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(bench.lookup(), Lookup::Missing(_)));
}

#[test]
fn archive_gives_no_permissions() {
    let dir = open_folder();
    let source = write_source(dir.path(), &dir.path().join("go"));
    let open = source.join("src/backend/a.c");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(source.join("configure"), fs::Permissions::from_mode(0o4777)).unwrap();
    fs::set_permissions(source.join("src"), fs::Permissions::from_mode(0o777)).unwrap();
    symlink("/etc/passwd", source.join("absolute")).unwrap();
    symlink("../../../outside", source.join("src/out")).unwrap();
    let archived = Command::new("tar")
        .args(["-czf", "source.tar.gz", "postgresql-99.1"])
        .current_dir(dir.path())
        .status();
    assert!(archived.unwrap().success());

    let sources = Sources::new(&cache_in(dir.path(), "cache"), Arc::new(AtomicBool::new(false)));
    let location = dir.path().join("source.tar.gz").to_string_lossy().into_owned();
    let origin = SourceOrigin::Tarball { location, sha256: None };
    let obtain = || {
        let said = std::sync::Mutex::new(String::new());
        let report = |line: String| said.lock().unwrap().push_str(&(line + "\n"));
        let source = sources.obtain(System::PostgreSql, &origin, &report).unwrap();
        (
            source.unpack(&Cache::new(&cache_in(dir.path(), "cache"))).unwrap(),
            said.into_inner().unwrap(),
        )
    };
    let (folder, said) = obtain();
    assert!(said.contains("left out absolute") && said.contains("left out src/out"), "{said}");
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("src/backend/a.c"), 0o755);
    assert_eq!(mode("configure"), 0o755);
    assert_eq!(mode("src/backend/b.c"), 0o644);
    assert_eq!(mode("src"), 0o755);
    assert!(fs::symlink_metadata(folder.join("absolute")).is_err());

    // A source that others could have changed since is fetched again.
    let file = folder.join("src/backend/a.c");
    fs::write(&file, "changed").unwrap();
    assert!(obtain().1.is_empty());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (folder, said) = obtain();
    assert!(said.contains("again, because") && said.contains("has mode 0666"), "{said}");
    assert_eq!(
        fs::read_to_string(folder.join("src/backend/a.c")).unwrap(),
        "int a(void) { return 1; }\n"
    );
}

/// Not a test: the process that the next test starts with passwords in its environment.
#[test]
#[ignore = "started by programs_of_a_build_see_no_passwords"]
fn builds_with_passwords_in_the_environment() {
    let Some(dir) = std::env::var_os("DBDYNO_TEST_DIR_OF_BUILD").map(PathBuf::from) else { return };
    let sources = Sources::new(&cache_in(&dir, "cache"), Arc::new(AtomicBool::new(false)));
    let origin = SourceOrigin::Path(dir.join("postgresql-99.1"));
    let source = sources.obtain(System::PostgreSql, &origin, &|_| {}).unwrap();
    let compiler = Compiler::find(dir.join("gcc").to_str().unwrap()).unwrap();
    let request = Request::new(source, Variant::by_name("rel_o2").unwrap(), compiler);
    build(&Builder::new(cache_in(&dir, "cache")), &request).unwrap();
}

#[test]
fn programs_of_a_build_see_no_passwords() {
    let dir = open_folder();
    let source = write_source(dir.path(), &dir.path().join("go"));
    fs::write(dir.path().join("go"), "").unwrap();
    let seen = |name: &str| dir.path().join(format!("seen-by-{name}"));
    let configure = fs::read_to_string(source.join("configure")).unwrap();
    let dump = format!("set -e\nenv >> {}", seen("configure").display());
    write_program(&source.join("configure"), &configure.replacen("set -e", &dump, 1));
    let compiler = format!("#!/bin/sh\nenv >> {}\nexec gcc \"$@\"\n", seen("gcc").display());
    write_program(&dir.path().join("gcc"), &compiler);

    let mut builds = Command::new(std::env::current_exe().unwrap());
    builds.args(["--exact", "planted::builds_with_passwords_in_the_environment", "--ignored"]);
    builds.env("DBDYNO_TEST_DIR_OF_BUILD", dir.path()).env("VISIBLE", "to everybody");
    for name in ["DBDYNO_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "GITHUB_TOKEN"] {
        builds.env(name, "kept from compilers");
    }
    let output = builds.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for program in ["configure", "gcc"] {
        let environment = fs::read_to_string(seen(program)).unwrap();
        assert!(environment.contains("VISIBLE=to everybody"), "{environment}");
        assert!(!environment.contains("kept from compilers"), "{environment}");
    }
}
