//! The commit that slowed down SQLite, in repositories made of the bundled source.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_builds::{Cache, CacheDir, Source};
use serde_json::Value;

use crate::common::{Background, Finished, TestDir, call, dbdyno, finish, has_compiler, read_json};
use crate::servers::count;

/// The function that a slow version does more work in, once for each row.
const STEP: &str = "SQLITE_API int sqlite3_step(sqlite3_stmt *pStmt){";

/// A git repository with versions of SQLite.
struct Repository {
    path: PathBuf,
    source: String,
}

/// A version of the source.
#[derive(Clone, Copy, Debug, Default)]
struct Version {
    /// Iterations of a loop for each row.
    work: u32,
    /// Number of functions that nothing calls, at the end, so that no other code is moved.
    functions: usize,
    broken: bool,
}

impl Repository {
    fn new(test: &TestDir) -> Self {
        let path = test.path().join("sqlite");
        fs::create_dir(&path).unwrap();
        let cache = CacheDir::open(&test.path().join("bundled")).unwrap();
        let source = Source::bundled_sqlite().unpack(&Cache::new(&cache)).unwrap();
        let source = fs::read_to_string(source.join("sqlite3.c")).unwrap();
        assert_eq!(source.matches(STEP).count(), 1);
        let repository = Self { path, source };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        // Compressing and comparing versions of 9 MB takes longer than compiling them.
        repository.git(&["config", "core.compression", "0"]);
        repository.git(&["config", "pack.window", "0"]);
        repository
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(args);
        command.current_dir(&self.path).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commits a version; returns the commit.
    fn commit(&self, version: Version, subject: &str) -> String {
        let Version { work, functions, broken } = version;
        let function =
            |number| format!("int sqlite3Unused{number}(int x){{ return x*{number}; }}\n");
        let busy = format!("{STEP} for(volatile int i=0; i<{work}; i++);");
        let mut text = self.source.replace(STEP, if work > 0 { &busy } else { STEP });
        text.extend((0..functions).map(function));
        if broken {
            // Ends the compiler at once.
            text.insert_str(0, "#include \"does-not-exist.h\"\n");
        }
        fs::write(self.path.join("sqlite3.c"), text).unwrap();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// An experiment with the repository as a candidate's source.
    fn experiment(&self, test: &TestDir, variant: &str, schedule: &str) -> PathBuf {
        test.file(&format!(
            "name = \"test\"\nbaseline = \"subject\"\n\n[workload]\nrows = 2_000\n\
             microbenchmarks = [\"hot-points*\"]\n\n[schedule]\n{schedule}\n\n\
             [[candidate]]\nname = \"subject\"\nsystem = \"sqlite\"\nvariant = \"{variant}\"\n\
             source = {{ git = \"file://{}\", revision = \"main\" }}\n",
            self.path.display()
        ))
    }

    /// What a bisect could have changed: the checked out files, all references and objects.
    fn state(&self) -> [String; 3] {
        let objects = self.git(&["count-objects", "-v"]);
        [self.git(&["status", "--porcelain"]), self.git(&["show-ref"]), objects]
    }
}

fn bisect_command(test: &TestDir, file: &Path, range: [&str; 2], out: &Path) -> Command {
    let mut command = dbdyno();
    command.arg("bisect").arg(file).args(["--good", range[0], "--bad", range[1]]);
    command.arg("--out").arg(out).arg("--cache").arg(test.path().join("cache"));
    command
}

fn bisect(test: &TestDir, file: &Path, range: [&str; 2], out: &Path) -> Finished {
    finish(bisect_command(test, file, range, out))
}

fn record(out: &Path) -> Value {
    read_json(&fs::read_to_string(out.join("bisect.json")).unwrap_or_else(|_| "null".to_owned()))
}

fn steps(record: &Value) -> usize {
    record["steps"].as_array().map_or(0, Vec::len)
}

const SHORT: &str = "slice = \"2ms\"\nmin_blocks = 20\nrestarts = 1\ntarget = \"2%\"\n\
                     budget = \"150ms\"\n\n[profile]\ntime = \"300ms\"";

/// Slows down the microbenchmark more than tenfold without optimization: on a machine with twenty runnable
/// threads, half of this on a logarithmic scale must still exceed noise.
const CLEAR_WORK: u32 = 20_000;

#[test]
fn killed_bisect_continues_and_names_the_commit() {
    if !has_compiler("gcc") {
        return;
    }
    const SLOW: usize = 7;
    const BROKEN: usize = 4;
    let test = TestDir::new();
    let repository = Repository::new(&test);
    let good = repository.commit(Version::default(), "Start");
    // Some commits have the build of their parent.
    let commits: Vec<String> = (1..=8)
        .map(|number| {
            let work = if number >= SLOW { CLEAR_WORK } else { 0 };
            let version = Version { work, broken: number == BROKEN, functions: number / 3 };
            repository.commit(version, &format!("Change {number}"))
        })
        .collect();
    repository.git(&["tag", "v2"]);
    repository.git(&["checkout", "--quiet", "-b", "side", &good]);
    let slow = Version { work: CLEAR_WORK, ..Version::default() };
    let broken = repository.commit(Version { broken: true, ..slow }, "Slow and broken");
    let fixed = repository.commit(slow, "Slow");
    let state = repository.state();
    let file = repository.experiment(&test, "o0", SHORT);
    let out = test.out();

    let command = bisect_command(&test, &file, [&good, "v2"], &out);
    let mut running = Background::start(command, test.path());
    running.wait_until("a midpoint", || steps(&record(&out)) >= 2);
    running.signal(libc::SIGKILL);
    running.end();
    let before = record(&out);
    // The repository is not needed any more.
    let moved = test.path().join("moved");
    fs::rename(&repository.path, &moved).unwrap();
    let export = test.path().join("all.json");
    let mut command = bisect_command(&test, &file, [&good, "v2"], &out);
    command.arg("--export-json").arg(&export);
    let finished = finish(command);
    let found = &commits[SLOW - 1];
    finished.assert_code(0).assert_prints(&format!("{found} is the first commit"));
    finished.assert_prints("Change 7").assert_prints("slower: relative QPS");
    finished.assert_prints("relative to its parent").assert_prints(
        "2 midpoints of 8 commits measured, 2 with the build of another commit, 1 skipped",
    );
    assert!(!finished.err.contains("'Start'"), "good was measured again: {}", finished.err);
    let after = record(&out);
    let mut exported = read_json(&fs::read_to_string(&export).unwrap());
    let profile = exported.as_object_mut().unwrap().remove("profile");
    assert_eq!(after, exported);
    let is_profiled = !finished.err.contains("no profile: ");
    if is_profiled {
        finished.assert_prints("functions sqlite3_step +").assert_prints("dbdyno why ");
        let profile = profile.expect("the profile is exported");
        assert_eq!(profile["functions"][0]["name"], "sqlite3_step");
        let run = out.join(after["result"]["profiled_in"].as_str().unwrap());
        assert!(count(&run, "SELECT COUNT(*) FROM profile") >= 2);
    } else {
        dbdyno_fuzz::skip("sampling of stacks is not permitted");
        assert!(profile.is_none() && after["result"]["profiled_in"].is_null(), "{after}");
    }
    assert_eq!(after["figure"], before["figure"]);
    let (tried, first) = (after["steps"].as_array().unwrap(), before["steps"].as_array().unwrap());
    assert_eq!(tried[..first.len()], first[..], "steps were measured again");
    assert_eq!(tried[0]["commit"]["commit"], commits[BROKEN - 1].as_str());
    assert_eq!(tried[0]["verdict"], "skipped");
    let same = tried.iter().find(|step| step["directory"].is_null() && !step["build"].is_null());
    let same = same.expect("a step has the build of another one");
    assert_eq!((same["verdict"].as_str(), same["relative"].is_null()), (Some("like-good"), true));
    // Clients are pinned while they measure, not for the rest of the bisect.
    let usable = "SELECT MIN(json ->> '$.facts.processor.usable') FROM session";
    let runs = tried.iter().filter_map(|step| step["directory"].as_str());
    let cpus: BTreeSet<i64> = runs.map(|run| count(&out.join(run), usable)).collect();
    assert_eq!(cpus.len(), 1, "{cpus:?} usable CPUs");
    assert_eq!(after["result"]["commit"]["commit"], found.as_str());
    assert_eq!(after["result"]["reference"]["commit"], commits[SLOW - 2].as_str());
    // Good, bad, two midpoints: equal trees are one build.
    assert_eq!(fs::read_dir(test.path().join("cache/builds")).unwrap().count(), 4);
    fs::rename(&moved, &repository.path).unwrap();

    // It has ended: nothing is measured again.
    let again = bisect(&test, &file, [&good, "v2"], &out);
    again.assert_code(0).assert_prints(found);
    assert!(!is_profiled || !again.err.contains("measuring"), "{}", again.err);
    bisect(&test, &file, [&good, &fixed], &out).assert_code(2).assert_prints("another bisect");

    // Only a commit that does not compile is left.
    let side = test.path().join("side");
    let finished = bisect(&test, &file, [&good, "side"], &side);
    finished.assert_code(1).assert_prints("One of these 2 commits changed the figure");
    finished.assert_prints(&broken[..10]).assert_prints(&fixed[..10]);

    let equal = test.path().join("equal");
    let finished = bisect(&test, &file, [&good, &commits[1]], &equal);
    finished.assert_code(1).assert_prints("are the same build");
    assert_eq!(repository.state(), state, "the repository was changed");
}

#[test]
fn unusable_requests_are_refused_and_leave_nothing_behind() {
    let test = TestDir::new();
    let repository = Repository::new(&test);
    let first = repository.commit(Version::default(), "First");
    let second = repository.commit(Version::default(), "Second");
    repository.git(&["checkout", "--quiet", "-b", "side", &first]);
    repository.commit(Version::default(), "Beside");
    let file = repository.experiment(&test, "o0", SHORT);
    let out = test.out();
    let refused = |good: &str, bad: &str, words: &str| {
        let finished = bisect(&test, &file, [good, bad], &out);
        finished.assert_code(2).assert_prints(words);
        assert!(!out.exists(), "{good} to {bad}");
    };
    refused("v1", "main", "unknown revision `v1`");
    refused(&first, "0123456789", "git ls-remote");
    refused(&second, &first, "exchange --good and --bad");
    refused("side", "main", "not an ancestor");
    refused("main", &second, "same commit");
    refused("main..side", "main", "invalid revision");
    let mut option = dbdyno();
    option.arg("bisect").arg(&file).args(["--good=--output=x", "--bad", "main"]);
    finish(option).assert_code(2).assert_prints("invalid revision");

    let call_with = |more: &[&str]| {
        let file = file.to_str().unwrap();
        let words = ["bisect", file, "--good", &first, "--bad", "main", "--out"];
        call([&words[..], &[out.to_str().unwrap()], more].concat())
    };
    call_with(&["-m", "scan"])
        .assert_code(2)
        .assert_prints("does not select microbenchmark `scan`");
    call_with(&["--candidate", "other"]).assert_code(2).assert_prints("these have: subject");
    call_with(&["--export-json", "/no/such/file"]).assert_code(2).assert_prints("does not exist");
    let bundled = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = bundled.lines().filter(|line| !line.starts_with("source")).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    refused(&first, "main", "no candidate has a git source");
}

const LONG: &str = "slice = \"5ms\"\nmin_blocks = 20\nrestarts = 6\ntarget = \"0.5%\"\n\
                    budget = \"2s\"";

/// A number from the environment, for the measurement in docs/performance.md.
fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap())
}

#[test]
#[ignore = "full"]
fn slower_commit_is_found_among_64() {
    let added = number("DBDYNO_BISECT_WORK", CLEAR_WORK);
    let repetitions = usize::try_from(number("DBDYNO_BISECT_REPETITIONS", 1)).unwrap();
    let test = TestDir::new();
    let repository = Repository::new(&test);
    let file = repository.experiment(&test, "o1", LONG);
    let good = repository.commit(Version::default(), "Start");
    for repetition in 0..repetitions {
        let slow = 1 + (repetition * 37 + 5) % 64;
        let broken =
            [32, 17].map(|one| if [slow, slow - 1].contains(&one) { one + 2 } else { one });
        repository.git(&["checkout", "--quiet", "--detach", &good]);
        let commits: Vec<String> = (1..=64)
            .map(|number| {
                let work = if number >= slow { added } else { 0 };
                let broken = broken.contains(&number);
                let version = Version { work, functions: number, broken };
                repository.commit(version, &format!("Change {number}"))
            })
            .collect();
        repository.git(&["tag", &format!("bad-{repetition}")]);
        let out = test.path().join(format!("out-{repetition}"));
        let finished = bisect(&test, &file, [&good, &commits[63]], &out);
        println!("change {slow}: {}{}", finished.err, finished.out);
        finished.assert_code(0).assert_prints(&format!("{} is the first", commits[slow - 1]));
        let record = record(&out);
        let is_measured = |step: &&Value| step["verdict"] != "skipped";
        let measured = record["steps"].as_array().unwrap().iter().filter(is_measured).count();
        assert!(measured <= 7, "{measured} midpoints");
    }
}
