//! Fleet runs in a real Slurm with three nodes on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{
    Background, Experiment, Finished, Slurm, SmallDisk, Stored, TestDir, cache, call, dbdyno,
    find_first_in, finish, is_gone, send, wait_until,
};
use crate::outside::write_program;

/// Of about three seconds.
const SHORT: Experiment<'_> =
    Experiment { control: true, budget: "500ms", min_blocks: 20, ..experiment() };

/// Long enough to be interrupted.
const LONG: Experiment<'_> = Experiment { budget: "2s", min_blocks: 20, ..experiment() };

/// Still measures when Slurm gives up a node that is cut off.
const LONGEST: Experiment<'_> = Experiment { budget: "7s", min_blocks: 20, ..experiment() };

const fn experiment() -> Experiment<'static> {
    Experiment {
        control: false,
        rows: 2_000,
        clients: &[1],
        microbenchmarks: "\"hot-points*\", \"point-query_range=100\"",
        budget: "",
        restarts: 1,
        min_blocks: 6,
        schedule: "",
        candidates: &[("base", ""), ("other", "")],
        more: "",
    }
}

/// A fleet run of a test.
struct Fleet {
    slurm: Slurm,
    test: TestDir,
}

impl Fleet {
    /// `None`, with a note, where there can be no Slurm.
    fn start() -> Option<Self> {
        Some(Self { slurm: Slurm::start()?, test: TestDir::new() })
    }

    /// A run of its own in the background.
    fn begin(&self, command: Command) -> Background {
        Background::start(command, self.test.path())
    }

    fn out(&self) -> PathBuf {
        self.test.out()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.slurm.client(dbdyno());
        command.arg("fleet").args(args);
        // A user's defaults hide no jobs.
        command.env("SQUEUE_NAMES", "mine").env("SINFO_PARTITION", "other");
        command
    }

    /// The command that starts it, with short waits.
    fn run(&self, experiment: &Experiment<'_>, args: &[&str]) -> Command {
        self.run_with_cache(&experiment.text(), &cache(), args)
    }

    fn run_with_cache(&self, experiment: &str, cache: &Path, args: &[&str]) -> Command {
        let scratch = self.test.path().join("scratch");
        fs::create_dir_all(&scratch).unwrap();
        let mut command = self.command(&["run", "--retry-wait", "1s", "--result-wait", "2s"]);
        command.arg(self.test.file(experiment)).arg("--out").arg(self.out());
        command.arg("--cache").arg(cache).arg("--scratch").arg(scratch).args(args);
        command
    }

    fn call(&self, action: &str) -> Finished {
        let mut command = self.command(&[action]);
        command.arg(self.out());
        finish(command)
    }

    fn resume(&self) -> Finished {
        let mut command = self.command(&["run", "--resume"]);
        command.arg(self.out());
        finish(command)
    }

    /// A task that measures.
    fn task(&self, index: usize) -> Value {
        self.tasks(false)[index].clone()
    }

    /// The tasks that build, or those that measure.
    fn tasks(&self, build: bool) -> Vec<Value> {
        let record = json(&self.out().join("fleet.json"));
        let tasks = record["tasks"].as_array().unwrap().iter();
        tasks.filter(|task| task["builds"].as_bool().unwrap_or(false) == build).cloned().collect()
    }

    /// What the job of an attempt printed.
    fn log(&self, task: &str, attempt: u32) -> String {
        fs::read_to_string(self.out().join(format!("{task}/attempts/{attempt}/job.log"))).unwrap()
    }

    fn outcome(&self, index: usize) -> String {
        self.task(index)["outcome"]["outcome"].as_str().unwrap_or("none").to_owned()
    }

    fn attempts(&self, index: usize) -> usize {
        self.task(index)["attempts"].as_array().unwrap().len()
    }

    /// Waits until a job of each node measures.
    fn wait_until_measuring(&self, controller: &mut Background, nodes: &[&str], attempt: u32) {
        for node in nodes {
            let progress = self.out().join(format!("{node}/attempts/{attempt}/progress.json"));
            controller.wait_until(node, || {
                fs::read_to_string(&progress).is_ok_and(|text| text.contains("block"))
            });
        }
    }

    /// The process of a node's job.
    fn process(&self, node: &str) -> u32 {
        let is_task = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.first().is_some_and(|program| Path::new(&lossy(program)).starts_with(self.out()))
                && words.contains(&node.as_bytes())
        };
        let pids = fs::read_dir("/proc").unwrap();
        let mut pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.find(is_task).unwrap()
    }

    /// The runs that are left on local disks.
    fn left_on_scratch(&self) -> Vec<PathBuf> {
        let list = |path: PathBuf| -> Vec<PathBuf> {
            let entries = fs::read_dir(path).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
        };
        let scratch = self.test.path().join("scratch");
        list(scratch).into_iter().flat_map(list).flat_map(list).collect()
    }

    #[track_caller]
    fn assert_no_jobs(&self) {
        wait_until("the jobs end", || self.slurm.call("squeue", &["-h"]).trim().is_empty());
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn fleet_measures_on_three_nodes_while_its_controller_is_killed() {
    let Some(fleet) = Fleet::start() else { return };
    let mut command = fleet.run(&SHORT, &["--partition", "main", "--nodes", "3"]);
    command.env("DBDYNO_PASSWORD", "secret-of-the-user");
    let mut controller = fleet.begin(command);
    fleet.wait_until_measuring(&mut controller, &["node1"], 1);
    let pid = controller.pid();
    controller.signal(libc::SIGKILL);
    wait_until("it is killed", || is_gone(pid));
    drop(controller);
    fleet.call("status").assert_code(0).assert_prints("no dbdyno follows the jobs");
    let end = fleet.resume();
    end.assert_code(0).assert_prints("3 runs side by side").assert_prints("3 complete");
    end.assert_prints("comparison.html");
    assert!(fleet.out().join("comparison.html").exists() && !end.out.contains("Use --out"));
    for (index, node) in ["node1", "node2", "node3"].into_iter().enumerate() {
        assert_eq!((fleet.outcome(index), fleet.attempts(index)), ("complete".to_owned(), 1));
        let run = fleet.out().join(node);
        let mut report = dbdyno();
        report.arg("report").arg(&run);
        finish(report).assert_code(0);
    }
    assert_eq!(fleet.left_on_scratch(), Vec::<PathBuf>::new());
    fleet.assert_no_jobs();
    fleet.call("collect").assert_code(0).assert_prints("3 runs side by side");
    fleet.call("status").assert_code(0).assert_prints("3 complete");
    let jobs = fleet.slurm.call("scontrol", &["show", "job", "--details"]);
    let found = Command::new("grep").arg("-rl").arg("secret-of-the-user").arg(fleet.out()).output();
    assert!(!jobs.contains("secret") && found.unwrap().stdout.is_empty(), "{jobs}");
}

#[test]
#[ignore = "full"]
fn killed_job_is_continued_and_a_cancelled_one_when_the_user_says_so() {
    let Some(fleet) = Fleet::start() else { return };
    let command = fleet.run(&LONG, &["--nodelist", "node[1-2]"]);
    let mut controller = fleet.begin(command);
    fleet.wait_until_measuring(&mut controller, &["node1", "node2"], 1);
    send(fleet.process("node1"), libc::SIGKILL);
    let job = fleet.task(1)["attempts"][0]["job"].to_string();
    fleet.slurm.call("scancel", &[&job]);
    let end = controller.end();
    end.assert_code(1);
    assert_eq!((fleet.outcome(0), fleet.attempts(0)), ("complete".to_owned(), 2));
    // Of an interrupted job, everything is kept.
    let first = fleet.out().join("node2/attempts/1/run.sqlite");
    let result = json(&fleet.out().join("node2/attempts/1/result.json"));
    assert!(result["measured"].as_u64().unwrap() > 0 && first.exists(), "{result}");
    assert_eq!((fleet.outcome(1), fleet.attempts(1)), ("cancelled".to_owned(), 1));
    fleet.resume().assert_code(0).assert_prints("1 task is tried again");
    assert_eq!((fleet.outcome(1), fleet.attempts(1)), ("complete".to_owned(), 2));
}

#[test]
#[ignore = "full"]
fn cancelled_shards_continue_and_together_measure_everything() {
    let Some(fleet) = Fleet::start() else { return };
    let section = "[fleet]\npartition = \"main\"\nnodes = 2\nshard = true\n";
    let experiment = Experiment { more: section, ..LONG };
    let mut controller = fleet.begin(fleet.run(&experiment, &[]));
    fleet.wait_until_measuring(&mut controller, &["shard-1", "shard-2"], 1);
    fleet.call("cancel").assert_code(0).assert_prints("2 cancelled");
    controller.end().assert_code(1);
    fleet.assert_no_jobs();
    // Which node measured what.
    fleet.resume().assert_code(0).assert_prints("shard-1 on node").assert_prints("shard-2 on node");
    let of = |index| fleet.task(index)["microbenchmarks"].as_array().unwrap().clone();
    assert_eq!((of(0).len(), of(1).len()), (1, 1));
    assert_ne!(of(0), of(1));
    for index in 0..2 {
        assert_eq!((fleet.outcome(index), fleet.attempts(index)), ("complete".to_owned(), 2));
    }
}

#[test]
#[ignore = "full"]
fn full_disk_of_a_node_is_reported_and_the_run_continues_when_there_is_space() {
    let test = TestDir::new();
    fs::create_dir(test.path().join("scratch")).unwrap();
    let Some(disk) = SmallDisk::mount(&test.path().join("scratch"), 64) else { return };
    // Hosts see only what is mounted before they start.
    let Some(slurm) = Slurm::start() else { return };
    let fleet = Fleet { slurm, test };
    disk.fill();
    let scratch = disk.path().to_str().unwrap();
    let mut command = fleet.command(&["run", "--retries", "0", "--result-wait", "2s"]);
    command.arg(fleet.test.file(&SHORT.text())).arg("--out").arg(fleet.out());
    command.args(["--scratch", scratch, "--nodes", "1"]).arg("--cache").arg(cache());
    finish(command).assert_code(1).assert_prints("failed").assert_prints("space");
    disk.free();
    fleet.resume().assert_code(0).assert_prints("1 complete");
    // Its hosts use the disk, which is in the directory of the test.
    drop((fleet.slurm, disk));
}

#[test]
#[ignore = "full"]
fn dead_node_is_waited_for_and_its_run_continued() {
    let Some(fleet) = Fleet::start() else { return };
    let command = fleet.run(&LONG, &["--nodelist", "node1"]);
    let mut controller = fleet.begin(command);
    fleet.wait_until_measuring(&mut controller, &["node1"], 1);
    fleet.slurm.kill("node1");
    controller.wait_until("the next job waits", || fleet.attempts(0) == 2);
    fleet.slurm.restart("node1");
    controller.end().assert_code(0).assert_prints("1 complete");
    let first = fleet.task(0)["attempts"][0]["end"]["reason"].to_string();
    assert!(first.contains("lost its node"), "{first}");
}

/// Slurm gives up the node and its job, which goes on measuring until it sees that another attempt
/// takes over.
#[test]
#[ignore = "full"]
fn cut_off_node_stops_when_it_is_replaced_and_its_run_is_continued() {
    let Some(fleet) = Fleet::start() else { return };
    let command = fleet.run(&LONGEST, &["--nodelist", "node1"]);
    let mut controller = fleet.begin(command);
    fleet.wait_until_measuring(&mut controller, &["node1"], 1);
    let process = fleet.process("node1");
    fleet.slurm.cut("node1");
    controller.wait_until("Slurm gives it up", || {
        assert!(!is_gone(process) || fleet.attempts(0) == 2, "it stopped before it was replaced");
        fleet.attempts(0) == 2
    });
    wait_until("it stops", || is_gone(process));
    assert!(fleet.log("node1", 1).contains("another attempt took over"));
    let run = fleet.left_on_scratch().pop().unwrap();
    let before = Stored::open(&run).slices();
    assert!(!before.is_empty());
    fleet.slurm.mend("node1");
    controller.end().assert_code(0).assert_prints("1 complete");
    let first = fleet.task(0)["attempts"][0]["end"]["reason"].to_string();
    assert!(first.contains("lost its node"), "{first}");
    assert_eq!((fleet.outcome(0), fleet.attempts(0)), ("complete".to_owned(), 2));
    let after = Stored::open(&fleet.out().join("node1")).slices();
    assert_eq!(after[..before.len()], before, "slices of the first attempt are lost");
    fleet.assert_no_jobs();
}

/// Other work on this machine slows down the nodes by different amounts and can hide the slow one, so
/// that several fleet runs are made.
#[test]
#[ignore = "full"]
fn slower_node_is_named_as_an_outlier() {
    let Some(mut fleet) = Fleet::start() else { return };
    // Percent of a CPU, so little that other work hardly changes it.
    for (node, percent) in [("node1", 30), ("node2", 30), ("node3", 3)] {
        if !fleet.slurm.limit(node, percent) {
            return;
        }
    }
    // A CPU that is limited runs for a few milliseconds at a time.
    let experiment = SHORT.text().replace("slice = \"2ms\"", "slice = \"20ms\"");
    let mut is_named = || {
        fleet.test = TestDir::new();
        let finished =
            finish(fleet.run_with_cache(&experiment, &cache(), &["--nodelist", "node[1-3]"]));
        finished.assert_code(0);
        println!("{}", finished.out);
        let text = finished.all();
        text.contains("node3) is an outlier, slower than its equals")
            && text.matches("is an outlier").count() == 1
    };
    assert!((0..4).any(|_| is_named()), "no fleet run names it");
}

#[test]
fn builds_for_a_type_of_cpu_are_made_once_by_a_job_of_their_own() {
    let Some(fleet) = Fleet::start() else { return };
    let experiment = Experiment {
        budget: "100ms",
        candidates: &[("base", ""), ("native", "flags = [\"-march=native\"]")],
        ..experiment()
    };
    let cache = fleet.test.path().join("cache");
    let args = ["--nodelist", "node[1-2]"];
    let mut controller = fleet.begin(fleet.run_with_cache(&experiment.text(), &cache, &args));
    controller.wait_until("the measuring jobs wait", || {
        let is_submitted = |index| fleet.task(index)["attempts"][0]["job"].is_u64();
        fleet.out().join("fleet.json").exists() && is_submitted(0) && is_submitted(1)
    });
    let jobs = fleet.slurm.call("scontrol", &["show", "job"]);
    assert!(jobs.contains("Dependency=afterok:"), "{jobs}");
    let finished = controller.end();
    finished.assert_code(0).assert_prints("2 complete").assert_prints("build-node1");
    let logs = ["build-node1", "build-node2"].map(|task| fleet.log(task, 1));
    let compiling = |log: &&String| log.contains("compiled ");
    assert_eq!(logs.iter().filter(compiling).count(), 1, "{logs:?}");
    assert!(logs.iter().any(|log| log.contains("builds for this type of CPU")), "{logs:?}");
    for (index, node) in ["node1", "node2"].into_iter().enumerate() {
        let log = fleet.log(node, 1);
        assert!(log.contains("cached ") && !log.contains("compil"), "{log}");
        assert_eq!((fleet.outcome(index), fleet.attempts(index)), ("complete".to_owned(), 1));
    }
    let entries = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!entries.into_iter().any(|name| name.to_str().unwrap().starts_with("fleet-")));
}

#[test]
#[ignore = "full"]
fn failed_build_ends_the_fleet_run_with_the_message_of_the_compiler() {
    let Some(fleet) = Fleet::start() else { return };
    let wrong = ("wrong", "flags = [\"-DSQLITE_MAX_COLUMN=40000\"]");
    let experiment = Experiment { candidates: &[("base", ""), wrong], ..SHORT };
    let finished = finish(fleet.run(&experiment, &["--nodes", "2", "--retries", "1"]));
    finished.assert_code(1).assert_prints("build on node").assert_prints("may not exceed 32767");
    let [build] = &fleet.tasks(true)[..] else { panic!("one task builds") };
    assert_eq!(build["attempts"].as_array().unwrap().len(), 2);
    for index in 0..2 {
        assert_eq!(fleet.outcome(index), "failed");
        let node = fleet.task(index)["name"].as_str().unwrap().to_owned();
        assert!(!fleet.out().join(node).join("attempts/1/claim.json").exists(), "it measured");
    }
    fleet.assert_no_jobs();
}

#[test]
#[ignore = "full"]
fn nodes_whose_cache_is_not_shared_compile_for_themselves() {
    let Some(fleet) = Fleet::start() else { return };
    let experiment = Experiment { budget: "100ms", ..experiment() };
    let cache = fleet.slurm.local().join("cache");
    let finished =
        finish(fleet.run_with_cache(&experiment.text(), &cache, &["--nodelist", "node[1-2]"]));
    finished.assert_code(0).assert_prints("is not shared with node1").assert_prints("2 complete");
    assert_eq!(fleet.tasks(true)[0]["outcome"]["outcome"], "skipped");
    for node in ["node1", "node2"] {
        assert!(fleet.log(node, 1).contains("compiled "), "{}", fleet.log(node, 1));
    }
    assert!(!cache.join("builds").exists(), "the cache of this machine was used");
}

/// Starts a fleet run in a Slurm that accepts jobs and does not say so.
fn run_detached(test: &TestDir) -> Finished {
    let bin = test.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let jobs = bin.join("jobs");
    let jobs = jobs.display();
    let sbatch = format!(
        "for arg; do case $arg in --job-name=*) name=${{arg#*=}};; esac; done\n\
         echo \"$(($(wc -l < {jobs}) + 1))|$name|PENDING|Priority\" >> {jobs}\n\
         echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2\nexit 1"
    );
    fs::write(bin.join("jobs"), "").unwrap();
    for (program, script) in [
        ("scontrol", "exit 0"),
        ("sinfo", "echo 'node1|idle|2|(null)|main*'"),
        ("squeue", &format!("cat {jobs}")),
        ("sbatch", &sbatch),
        ("scancel", &format!("echo \"$@\" >> {jobs}.cancelled")),
        ("sacct", "exit 1"),
    ] {
        write_program(&bin.join(program), &format!("#!/bin/sh\n{script}\n"));
    }
    let mut command = dbdyno();
    command.args(["fleet", "run", "--nodes", "1", "--detach"]).arg(test.file(&SHORT.text()));
    command.arg("--out").arg(test.out()).arg("--cache").arg(test.path().join("cache"));
    command.args(["--result-wait", "1s"]);
    find_first_in(&mut command, &bin);
    finish(command)
}

/// Calls an action of `dbdyno fleet` on a directory, in that Slurm.
fn control(test: &TestDir, directory: &Path, args: &[&str]) -> Finished {
    let mut command = dbdyno();
    command.arg("fleet").args(args).arg(directory);
    find_first_in(&mut command, &test.path().join("bin"));
    finish(command)
}

/// Changes the attempts in the record of a fleet run.
fn modify_attempts(directory: &Path, change: impl Fn(&mut Value)) {
    let path = directory.join("fleet.json");
    let mut record = json(&path);
    for task in record["tasks"].as_array_mut().unwrap() {
        change(&mut task["attempts"]);
    }
    fs::write(path, record.to_string()).unwrap();
}

#[test]
fn fleet_run_of_somebody_else_is_data_unless_it_is_trusted() {
    let test = TestDir::new();
    run_detached(&test).assert_code(0);
    let (copy, mark) = (test.path().join("copy"), test.path().join("mark"));
    let copied = Command::new("cp").arg("-a").arg(test.out()).arg(&copy).status();
    assert!(copied.unwrap().success());
    write_program(&copy.join("dbdyno"), &format!("#!/bin/sh\n: >'{}'\n", mark.display()));
    modify_attempts(&copy, |attempts| *attempts = serde_json::json!([]));
    let jobs = || fs::read_to_string(test.path().join("bin/jobs")).unwrap();
    let before = jobs();
    let files = || {
        let names = fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let found = files();

    let refused = control(&test, &copy, &["run", "--resume"]);
    refused.assert_code(2).assert_prints("--trust").assert_prints("submit and cancel jobs");
    refused.assert_prints("compile ");
    control(&test, &copy, &["cancel"]).assert_code(2).assert_prints("--trust");
    control(&test, &copy, &["status"]).assert_code(0);
    control(&test, &copy, &["collect"]).assert_code(1).assert_prints("no node is done yet");
    assert_eq!((jobs(), files()), (before, found));

    for args in [&["run", "--detach", "--trust", "--resume"][..], &["run", "--detach", "--resume"]]
    {
        control(&test, &copy, args).assert_code(0);
        // What the jobs run is this program.
        let [ours, theirs] = [&test.out(), &copy].map(|one| fs::read(one.join("dbdyno")).unwrap());
        assert!(ours == theirs && !mark.exists());
    }
}

#[test]
fn jobs_of_other_names_are_not_cancelled() {
    let test = TestDir::new();
    run_detached(&test).assert_code(0);
    modify_attempts(&test.out(), |attempts| attempts[0]["job"] = 4242.into());
    let jobs = test.path().join("bin/jobs");
    let own = fs::read_to_string(&jobs).unwrap();
    fs::write(&jobs, format!("{own}4242|job-of-the-victim|RUNNING|None\n")).unwrap();
    control(&test, &test.out(), &["cancel"]).assert_code(0).assert_prints("1 cancelled");
    assert!(!test.path().join("bin/jobs.cancelled").exists());
}

/// What another user wrote is shown in one line per task, and nothing that never ends is read.
#[test]
fn status_of_a_hostile_fleet_run_is_harmless() {
    let test = TestDir::new();
    run_detached(&test).assert_code(0);
    let out = test.out();
    modify_attempts(&out, |attempts| {
        attempts[0]["state"] = "RUNNING\u{1b}]0;X\u{7}\nFAKE".into();
        attempts[0]["job"] = 4242.into();
    });
    let attempt = out.join("node1/attempts/1");
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    pipe(&attempt.join("claim.json"));
    pipe(&out.join("fleet.lock"));
    fs::File::create(attempt.join("progress.json")).unwrap().set_len(1 << 40).unwrap();
    // Only root can give it to another user; the rest is the same for a copy.
    let _ = std::os::unix::fs::chown(&out, Some(65_534), None);
    let status = control(&test, &out, &["status"]);
    status.assert_code(0).assert_prints("RUNNING␛]0;X␇ FAKE");
    assert_eq!(status.out.lines().count(), 3, "two tasks and the sum: {}", status.out);
    control(&test, &out, &["collect"]).assert_code(1);
}

#[test]
fn detached_fleet_run_ends_when_all_jobs_are_known() {
    let test = TestDir::new();
    run_detached(&test).assert_code(0).assert_prints("the jobs are submitted");
    let record = json(&test.out().join("fleet.json"));
    let tasks = record["tasks"].as_array().unwrap().iter();
    let jobs: Vec<&Value> = tasks.map(|task| &task["attempts"][0]["job"]).collect();
    assert_eq!(jobs, [1, 2], "the builds, and the measuring job");
}

#[test]
fn collect_without_a_controller_exits_by_the_results_of_the_jobs() {
    let test = TestDir::new();
    run_detached(&test).assert_code(0);
    let table = test.path().join("table.tsv");
    fs::write(&table, "old\tnew\n10\t12\tscan_range=100\n").unwrap();
    let run = test.path().join("run");
    call([Path::new("import"), &table, Path::new("--out"), &run]).assert_code(0);
    let collect = || call([Path::new("fleet"), Path::new("collect"), &test.out()]);
    collect().assert_code(1).assert_prints("no node is done yet");
    let record = json(&test.out().join("fleet.json"));
    let finish_tasks = |failures: usize| {
        for task in record["tasks"].as_array().unwrap() {
            let attempt = test.out().join(task["name"].as_str().unwrap()).join("attempts/1");
            fs::create_dir_all(&attempt).unwrap();
            fs::copy(run.join("run.sqlite"), attempt.join("run.sqlite")).unwrap();
            let result = serde_json::json!({
                "fleet": record["id"], "task": task["name"], "attempt": 1, "node": task["node"],
                "measured": 1, "end": { "end": "complete", "failures": failures }
            });
            fs::write(attempt.join("result.json"), result.to_string()).unwrap();
        }
    };
    finish_tasks(0);
    collect().assert_code(0).assert_prints("1 complete");
    finish_tasks(1);
    collect().assert_code(1);
}

#[test]
fn without_slurm_there_is_a_clear_error() {
    let test = TestDir::new();
    let mut command = dbdyno();
    command.arg("fleet").arg("run").arg(test.file(&SHORT.text())).args(["--nodes", "3"]);
    command.env("PATH", test.path());
    finish(command).assert_code(1).assert_prints("fleet runs need Slurm");
}

#[test]
fn wrong_options_have_errors_with_advice() {
    let Some(fleet) = Fleet::start() else { return };
    for (args, code, words) in [
        (&[][..], 2, "on which nodes?"),
        (&["--nodes", "4"], 1, "partition has 3 that can be used"),
        (&["--nodes", "1", "--partition", "x"], 2, "the partitions are: main"),
        (&["--nodelist", "node[2-4]"], 2, "unknown node node4"),
        (&["--nodelist", "node1,node1"], 2, "node node1 is named twice"),
        (&["--nodelist", ""], 2, "names no node"),
        (&["--nodes", "1", "--constraint", "epyc"], 2, "lists the features"),
        (&["--nodes", "1", "--constraint", "a|b"], 2, "name the nodes with --nodelist"),
        (&["--nodes", "3", "--shard"], 2, "cannot share 2 microbenchmarks"),
    ] {
        finish(fleet.run(&SHORT, args)).assert_code(code).assert_prints(words);
        assert!(!fleet.out().join("fleet.json").exists(), "{args:?}");
    }
    fleet.call("status").assert_code(2).assert_prints("has no fleet run");
}
