//! Fetching of sources without a network: from local directories, archives and repositories.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_builds::{
    BuildError, Cache, CacheEntryKind, CommitRange, HistoryError, RangeRequest, Sha256, Source,
    SourceOrigin, Sources, System,
};
use rustix::fs::inotify;
use tempfile::TempDir;

use crate::common::{cache_in, write_source};
use crate::outside::free_port;

struct Bench {
    dir: TempDir,
    sources: Sources,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_source(dir.path(), &dir.path().join("go"));
        let cache = cache_in(dir.path(), "cache");
        let sources = Sources::new(&cache, Arc::new(AtomicBool::new(false)));
        Self { dir, sources }
    }

    fn obtain(&self, origin: &SourceOrigin) -> Result<Source, BuildError> {
        self.sources.obtain(System::PostgreSql, origin, &|_| {})
    }

    fn cache(&self) -> Cache {
        Cache::new(&cache_in(self.dir.path(), "cache"))
    }

    fn text(&self, source: &Source) -> String {
        let folder = source.unpack(&self.cache()).unwrap();
        fs::read_to_string(folder.join("src/backend/a.c")).unwrap()
    }

    /// Runs a program in the directory that contains the source.
    fn run(&self, program: &str, args: &[&str]) {
        self.run_in(self.dir.path(), program, args);
    }

    fn run_in(&self, folder: &Path, program: &str, args: &[&str]) {
        let output = Command::new(program)
            .args(args)
            .current_dir(folder)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    }

    /// Makes a repository of the source with commits `first`, `second` and `third`; returns its URL.
    fn repository(&self) -> (PathBuf, String) {
        let folder = self.dir.path().join("postgresql-99.1");
        self.run_in(&folder, "git", &["init", "--quiet", "--initial-branch=main"]);
        for subject in ["first", "second", "third"] {
            self.commit(&folder, subject);
        }
        let url = format!("file://{}", folder.display());
        (folder, url)
    }

    fn commit(&self, folder: &Path, subject: &str) {
        fs::write(folder.join("src/backend/a.c"), format!("/* {subject} */ int a(void);")).unwrap();
        self.run_in(folder, "git", &["add", "--all"]);
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        self.run_in(folder, "git", &[&who[..], &["commit", "--quiet", "-m", subject]].concat());
    }

    fn range(&self, url: &str, good: &str, bad: &str) -> Result<CommitRange, HistoryError> {
        let wanted = RangeRequest { url, good, bad, first_parent: false };
        self.sources.commit_range(&wanted, &|_| {})
    }

    fn tarball(&self) -> (String, Sha256) {
        self.run("tar", &["-czf", "source.tar.gz", "postgresql-99.1"]);
        let path = self.dir.path().join("source.tar.gz");
        (path.to_string_lossy().into_owned(), Sha256::of_file(&path).unwrap())
    }
}

#[test]
fn directory_is_used_in_place() {
    let bench = Bench::new();
    let origin = SourceOrigin::Path(bench.dir.path().join("postgresql-99.1"));
    let first = bench.obtain(&origin).unwrap();
    assert_eq!(first.version(), "99.1");
    fs::write(bench.dir.path().join("postgresql-99.1/src/backend/a.c"), "int x;").unwrap();
    let second = bench.obtain(&origin).unwrap();
    assert_ne!(first.sha256(), second.sha256());
}

#[test]
fn archive_is_verified_unpacked_and_cached() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let origin =
        SourceOrigin::Tarball { location: format!("file://{location}"), sha256: Some(sha256) };
    let source = bench.obtain(&origin).unwrap();
    assert_eq!((source.version(), *source.sha256()), ("99.1", sha256));
    assert!(bench.text(&source).contains("int a(void)"));
    // Once fetched, the archive is no longer needed.
    fs::remove_file(&location).unwrap();
    bench.obtain(&origin).unwrap();
}

#[test]
fn changed_archive_without_checksum_is_unpacked_again() {
    let bench = Bench::new();
    let (location, _) = bench.tarball();
    let origin = SourceOrigin::Tarball { location: location.clone(), sha256: None };
    let first = *bench.obtain(&origin).unwrap().sha256();
    fs::write(bench.dir.path().join("postgresql-99.1/src/backend/a.c"), "int changed;").unwrap();
    let (_, sha256) = bench.tarball();
    assert_ne!(first, sha256);
    let changed = bench.obtain(&origin).unwrap();
    assert_eq!((bench.text(&changed).as_str(), *changed.sha256()), ("int changed;", sha256));
    // What was unpacked is used without the archive.
    fs::remove_file(&location).unwrap();
    assert_eq!(*bench.obtain(&origin).unwrap().sha256(), sha256);
}

#[test]
fn source_without_its_description_is_unpacked_again() {
    let bench = Bench::new();
    let (location, _) = bench.tarball();
    let origin = SourceOrigin::Tarball { location: location.clone(), sha256: None };
    let folder = bench.obtain(&origin).unwrap().unpack(&bench.cache()).unwrap();
    let archive = fs::read(&location).unwrap();
    fs::write(&location, "no archive").unwrap();
    bench.obtain(&origin).unwrap_err();
    fs::write(&location, archive).unwrap();
    // A directory without its description is incomplete.
    fs::remove_file(folder.with_file_name("source.json")).unwrap();
    fs::write(folder.join("src/backend/a.c"), "incomplete").unwrap();
    let again = bench.obtain(&origin).unwrap();
    assert!(bench.text(&again).contains("int a(void)"));
}

#[test]
fn source_in_use_is_kept_and_removed_one_is_fetched_again() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let origin =
        SourceOrigin::Tarball { location: format!("file://{location}"), sha256: Some(sha256) };
    let (first, second) = (bench.obtain(&origin).unwrap(), bench.obtain(&origin).unwrap());
    let folder = first.unpack(&bench.cache()).unwrap();
    let cache = bench.cache();
    let remove = || {
        let all = cache.inventory();
        let source = all.iter().find(|entry| matches!(entry.kind, CacheEntryKind::Source)).unwrap();
        cache.remove(source).unwrap()
    };
    assert!(!remove());
    drop(first);
    assert!(!remove());
    drop(second);
    assert!(remove());
    assert!(!folder.parent().unwrap().exists());
    let again = bench.obtain(&origin).unwrap();
    assert!(bench.text(&again).contains("int a(void)"));
}

#[test]
fn archive_with_wrong_checksum_is_rejected() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let expected = Sha256::of(b"another");
    for location in [location.clone(), format!("file://{location}")] {
        let origin = SourceOrigin::Tarball { location, sha256: Some(expected) };
        let error = bench.obtain(&origin).unwrap_err().to_string();
        assert!(error.contains(&format!("its checksum is {sha256}, and {expected} was expected")));
    }
    let origin = SourceOrigin::Tarball { location: format!("file://{location}"), sha256: None };
    let error = bench.obtain(&origin).unwrap_err().to_string();
    assert!(error.contains("add its `sha256`"), "{error}");
}

#[test]
fn archive_that_is_exchanged_after_its_check_is_not_unpacked() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let evil = format!("{location}.evil");
    let good = fs::read(&location).unwrap();
    fs::write(bench.dir.path().join("postgresql-99.1/src/backend/a.c"), "int evil;").unwrap();
    bench.tarball();
    fs::rename(&location, &evil).unwrap();
    fs::write(&location, good).unwrap();
    let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&events, &location, inotify::WatchFlags::CLOSE_NOWRITE).unwrap();
    let target = location.clone();
    let attacker = thread::spawn(move || {
        rustix::io::read(&events, &mut [0_u8; 4096]).unwrap();
        fs::rename(&evil, target).unwrap();
    });
    let origin = SourceOrigin::Tarball { location, sha256: Some(sha256) };
    let source = bench.obtain(&origin).unwrap();
    attacker.join().unwrap();
    assert!(bench.text(&source).contains("int a(void)"));
}

#[test]
fn unreachable_server_error_has_advice() {
    let bench = Bench::new();
    // No server listens on this port.
    let location = "http://127.0.0.1:1/source.tar.gz".to_owned();
    let origin = SourceOrigin::Tarball { location, sha256: Some(Sha256::of(b"x")) };
    let error = bench.obtain(&origin).unwrap_err().to_string();
    assert!(error.contains("downloading it failed for the source of PostgreSQL"), "{error}");
    assert!(error.contains("no network connection?"), "{error}");
    let url = "http://127.0.0.1:1/source.git".to_owned();
    let origin = SourceOrigin::Git { url, revision: "v1".to_owned() };
    let error = bench.obtain(&origin).unwrap_err().to_string();
    assert!(error.contains("no network connection?"), "{error}");
}

#[test]
fn interrupted_download_from_server_without_ranges_is_repeated() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let content = fs::read(&location).unwrap();
    let downloads = bench.dir.path().join("cache/downloads");
    fs::create_dir_all(&downloads).unwrap();
    fs::write(downloads.join(format!("{sha256}.part")), &content[..100]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/source.tar.gz", listener.local_addr().unwrap());
    // Sends the whole file to each client.
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = BufReader::new(client.try_clone().unwrap()).lines();
            while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                content.len()
            );
            // curl closes the connection if it wanted another part.
            let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&content));
        }
    });
    let origin = SourceOrigin::Tarball { location: url, sha256: Some(sha256) };
    assert!(bench.text(&bench.obtain(&origin).unwrap()).contains("int a(void)"));
    assert!(!downloads.join(format!("{sha256}.part")).exists());
}

#[test]
fn git_revision_is_fetched_once() {
    let bench = Bench::new();
    let folder = bench.dir.path().join("postgresql-99.1");
    bench.run_in(&folder, "git", &["init", "--quiet"]);
    bench.run_in(&folder, "git", &["add", "--all"]);
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    bench.run_in(&folder, "git", &[&who[..], &["commit", "--quiet", "-m", "first"]].concat());
    bench.run_in(&folder, "git", &["tag", "v1"]);
    let url = format!("file://{}", folder.display());
    let origin = SourceOrigin::Git { url: url.clone(), revision: "v1".to_owned() };
    let source = bench.obtain(&origin).unwrap();
    assert_eq!(source.revision().map(str::len), Some(40));
    assert!(bench.text(&source).contains("int a(void)"));
    fs::rename(&folder, bench.dir.path().join("gone")).unwrap();
    assert_eq!(bench.obtain(&origin).unwrap().revision(), source.revision());
    let other = SourceOrigin::Git { url, revision: "v2".to_owned() };
    let error = bench.obtain(&other).unwrap_err().to_string();
    assert!(error.contains("fetching it failed"), "{error}");
}

/// A server of the repositories in a directory, stopped on drop.
struct GitServer(Child, String);

impl GitServer {
    fn start(folder: &Path) -> Self {
        let programs = Command::new("git").arg("--exec-path").output().unwrap().stdout;
        let programs = PathBuf::from(String::from_utf8(programs).unwrap().trim());
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = Command::new(programs.join("git-daemon"))
            .args(["--reuseaddr", "--export-all", "--listen=127.0.0.1"])
            .arg(format!("--port={}", address.port()))
            .arg(format!("--base-path={}", folder.display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self(server, format!("git://{address}"));
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "git-daemon does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn submodule_with_relative_url_is_fetched_from_the_server_of_the_source() {
    let bench = Bench::new();
    let (folder, _) = bench.repository();
    let inner = bench.dir.path().join("inner");
    fs::create_dir_all(inner.join("src/backend")).unwrap();
    bench.run_in(&inner, "git", &["init", "--quiet"]);
    bench.commit(&inner, "inner");
    let commit = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&inner).output();
    let commit = String::from_utf8(commit.unwrap().stdout).unwrap();
    fs::create_dir(folder.join("inner")).unwrap();
    let modules = "[submodule \"inner\"]\npath = inner\nurl = ../inner\n";
    fs::write(folder.join(".gitmodules"), modules).unwrap();
    let link = format!("160000,{},inner", commit.trim());
    bench.run_in(&folder, "git", &["update-index", "--add", "--cacheinfo", &link]);
    bench.commit(&folder, "outer");
    // The recorded commit counts, not the newest.
    bench.commit(&inner, "newer");
    let server = GitServer::start(bench.dir.path());
    let url = format!("{}/postgresql-99.1", server.1);
    let source = bench.obtain(&SourceOrigin::Git { url, revision: "main".to_owned() }).unwrap();
    let file = source.unpack(&bench.cache()).unwrap().join("inner/src/backend/a.c");
    assert!(fs::read_to_string(file).unwrap().contains("inner"));
}

#[test]
fn history_is_fetched_once_and_its_commits_need_no_repository() {
    let bench = Bench::new();
    let (folder, url) = bench.repository();
    bench.run_in(&folder, "git", &["tag", "v1", "main~2"]);
    let range = bench.range(&url, "v1", "main").unwrap();
    let subjects: Vec<&str> = range.commits.iter().map(|one| one.subject.as_str()).collect();
    assert_eq!((range.good.subject.as_str(), subjects), ("first", vec!["second", "third"]));
    let [second, third] = &range.commits[..] else { panic!("{range:?}") };
    assert_eq!(
        (&second.parents, &third.parents),
        (&vec![range.good.id.clone()], &vec![second.id.clone()])
    );
    assert!(third.author_date.contains('T'), "{}", third.author_date);

    // A branch is fetched again.
    bench.commit(&folder, "fourth");
    assert_eq!(bench.range(&url, "v1", "main").unwrap().commits.len(), 3);
    let moved = bench.dir.path().join("gone");
    fs::rename(&folder, &moved).unwrap();
    let error = bench.range(&url, "v1", "main").unwrap_err().to_string();
    assert!(error.contains("fetching it failed for the history of file://"), "{error}");
    // Commits and tags do not change.
    assert_eq!(bench.range(&url, "v1", &third.id[..10]).unwrap(), range);
    let origin = SourceOrigin::Git { url: url.clone(), revision: second.id.clone() };
    let source = bench.obtain(&origin).unwrap();
    assert_eq!(source.revision(), Some(second.id.as_str()));
    let text = source.unpack(&bench.cache()).unwrap().join("src/backend/a.c");
    assert!(fs::read_to_string(text).unwrap().contains("second"));
    drop(source);

    // A clone that others could have written to is not used.
    fs::rename(&moved, &folder).unwrap();
    let clones = fs::read_dir(bench.dir.path().join("cache/sources")).unwrap();
    let mut clones = clones.map(|entry| entry.unwrap().path());
    let is_clone = |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains("history-");
    let clone = clones.find(is_clone).unwrap();
    let config = clone.join("config");
    fs::write(&config, "[core]\nbare = true\nhooksPath = /tmp\n").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(bench.range(&url, "v1", &third.id).unwrap(), range);
    assert!(!fs::read_to_string(&config).unwrap().contains("/tmp"));
}

#[test]
fn branch_named_like_a_hash_is_fetched_again() {
    let bench = Bench::new();
    let (folder, url) = bench.repository();
    bench.run_in(&folder, "git", &["tag", "v1", "main~2"]);
    bench.run_in(&folder, "git", &["checkout", "--quiet", "-b", "20240101"]);
    assert_eq!(bench.range(&url, "v1", "20240101").unwrap().commits.len(), 2);
    bench.commit(&folder, "fourth");
    assert_eq!(bench.range(&url, "v1", "20240101").unwrap().commits.len(), 3);
}

#[test]
fn merged_branches_are_listed_unless_only_first_parents_are() {
    let bench = Bench::new();
    let (folder, url) = bench.repository();
    bench.run_in(&folder, "git", &["checkout", "--quiet", "-b", "side", "main~1"]);
    bench.commit(&folder, "beside");
    bench.run_in(&folder, "git", &["checkout", "--quiet", "main"]);
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let merge = ["merge", "--quiet", "--strategy=ours", "-m", "merge", "side"];
    bench.run_in(&folder, "git", &[&who[..], &merge].concat());
    let all = bench.range(&url, "main~3", "HEAD").unwrap().commits;
    assert_eq!((all.len(), all.last().unwrap().parents.len()), (4, 2));
    let wanted = RangeRequest { url: &url, good: "main~3", bad: "HEAD", first_parent: true };
    let first = bench.sources.commit_range(&wanted, &|_| {}).unwrap().commits;
    let subjects: Vec<&str> = first.iter().map(|one| one.subject.as_str()).collect();
    assert_eq!(subjects, ["second", "third", "merge"]);
    assert!(first.iter().all(|one| one.parents.len() == 1));
    let error = bench.range(&url, "side", "main~1").unwrap_err().to_string();
    assert!(error.contains("not an ancestor"), "{error}");
}

#[test]
fn source_of_another_system_is_rejected() {
    let bench = Bench::new();
    let origin = SourceOrigin::Path(bench.dir.path().join("postgresql-99.1"));
    let outcome = bench.sources.obtain(System::MariaDb, &origin, &|_| {});
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("detecting the version of MariaDB failed"), "{error}");
    let outcome = bench.sources.obtain(System::MySql, &SourceOrigin::Bundled, &|_| {});
    assert!(outcome.unwrap_err().to_string().contains("only the source of SQLite is bundled"));
}
