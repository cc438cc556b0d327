//! The experiment files of the repository are valid and match their descriptions.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_document::Problems;
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_spec::parse_with_files;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments")
}

/// All files, with name and text.
fn files() -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(directory())
        .expect("the repository has experiments")
        .map(|entry| entry.expect("a directory can be read to its end").path())
        .filter(|path| path.is_file())
        .map(|path| {
            let text = fs::read_to_string(&path).expect("experiments are text");
            (path.file_name().unwrap().to_string_lossy().into_owned(), text)
        })
        .collect();
    files.sort();
    files
}

/// Parses a file. Scripts of sysbench, which may not be installed, are replaced by one that does nothing.
fn parse(name: &str, text: &str) -> Result<Experiment, Problems> {
    let read = |name: &str| match name.ends_with(".lua") {
        true => Ok("function prepare() end\nfunction event() end".to_owned()),
        false => Err(format!("{name} is another file")),
    };
    parse_with_files(name, text, &read)
}

fn experiment(name: &str) -> Experiment {
    let found = files().into_iter().find(|(file, _)| file == name);
    let (_, text) = found.unwrap_or_else(|| panic!("there is no {name}"));
    parse(name, &text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn names(experiment: &Experiment) -> Vec<&str> {
    experiment.workload.microbenchmarks.iter().map(|one| one.name.as_str()).collect()
}

#[test]
fn all_files_are_valid_and_match_their_names() {
    let files = files();
    assert!(files.len() >= 11, "{}", files.len());
    for (file, text) in files {
        let experiment = parse(&file, &text).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(format!("{}.toml", experiment.name), file);
        assert!(text.starts_with("# "), "{file} does not start by saying what it is for");
    }
}

/// Examples with a `baseline` are whole files, others are parts of one.
#[test]
fn whole_examples_in_documents_are_valid() {
    let root = directory().join("..");
    let documents = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut examples = 0;
    for document in documents.chain([root.join("README.md")]).filter(|path| path.is_file()) {
        let name = document.display().to_string();
        let text = fs::read_to_string(&document).unwrap();
        let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        for block in blocks.filter(|block| block.contains("baseline =")) {
            parse(&name, block).unwrap_or_else(|problems| panic!("{problems}"));
            examples += 1;
        }
    }
    assert!(examples > 3, "{examples}");
}

#[test]
fn experiments_with_servers_state_their_duration() {
    for (file, text) in files() {
        let experiment = parse(&file, &text).unwrap();
        let embedded = experiment.candidates.iter().all(|one| one.system.is_embedded());
        let comment = text.lines().take_while(|line| line.starts_with('#'));
        let states_time =
            comment.into_iter().any(|line| line.contains("minute") || line.contains("hour"));
        assert!(embedded || states_time, "{file}");
    }
}

#[test]
fn experiment_with_data_of_its_own_is_valid() {
    let text = fs::read_to_string(directory().join("flights/flights.toml")).unwrap();
    // Its data is made by a script.
    let read = |name: &str| match name {
        "flights.sql" => Ok("CREATE TABLE flights (id INTEGER PRIMARY KEY);".to_owned()),
        other => Err(format!("{other} is another file")),
    };
    let flights = parse_with_files("flights.toml", &text, &read).unwrap();
    assert!(!flights.workload.uses_sbtest_tables());
    assert_eq!((flights.candidates.len(), names(&flights).len()), (3, 5));
}

#[test]
fn quickstart_has_its_documented_settings() {
    let experiment = experiment("quickstart.toml");
    let candidates: Vec<_> = experiment.candidates.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(candidates, ["rel_o2", "rel", "rel_native", "o1"]);
    assert_eq!(experiment.baseline, "rel_o2");
    assert_eq!(names(&experiment).len(), 42);
}

#[test]
fn insert_benchmarks_have_their_documented_settings() {
    let steps = |file: &str| {
        let benchmark = experiment(file).insert_benchmark.unwrap();
        benchmark.plan.steps.into_iter().map(|step| step.name).collect::<Vec<_>>()
    };
    assert_eq!(
        steps("insert-benchmark.toml"),
        ["l.i0", "l.x", "l.i1", "settle", "q100", "q500", "q1000"]
    );
    assert_eq!(
        steps("insert-benchmark-small.toml"),
        ["l.i0", "l.x", "l.i1", "l.i2", "settle", "q100", "q500", "q1000"]
    );
}

#[test]
fn myrocks_vs_innodb_has_its_documented_settings() {
    for file in ["myrocks-vs-innodb.toml", "myrocks-vs-innodb-small.toml"] {
        let experiment = experiment(file);
        assert_eq!(names(&experiment).len(), 42);
        assert_eq!(experiment.workload.clients, [1]);
        let engines = experiment.candidates.iter().map(|one| match &one.system {
            System::Private(server) => server.engine.map(|engine| engine.name()),
            other => panic!("{file}: {other:?}"),
        });
        assert_eq!(engines.collect::<Vec<_>>(), [Some("innodb"), Some("myrocks")]);
        assert_eq!(experiment.baseline, "innodb");
    }
}

#[test]
fn sweeps_have_the_five_read_only_tests() {
    for file in ["read-only-sweep.toml", "read-only-sweep-small.toml"] {
        let experiment = experiment(file);
        assert_eq!(
            names(&experiment),
            ["oltp", "oltp_simple", "select", "select_random_points", "select_random_ranges"]
        );
        assert!(experiment.workload.clients.len() > 2, "{file}");
    }
    let full = experiment("read-only-sweep.toml").workload;
    assert_eq!((full.tables, full.rows), (10, 1_000_000));
    assert_eq!(full.clients, [1, 2, 4, 8, 16, 32, 64, 128]);
}

#[test]
fn live_optimizer_experiments_have_a_stock_baseline() {
    let files = [
        ("live-optimizer.toml", 42, None),
        ("live-optimizer-small.toml", 3, None),
        ("live-optimizer-sweep.toml", 5, Some(32)),
        ("live-optimizer-sweep-small.toml", 5, Some(4)),
    ];
    for (file, count, clients) in files {
        let experiment = experiment(file);
        assert_eq!(names(&experiment).len(), count, "{file}");
        let lives = experiment.candidates.iter().map(|candidate| candidate.live.as_ref());
        let lives: Vec<_> = lives.map(|live| live.map(|live| live.clients)).collect();
        assert_eq!(lives, [None, Some(clients)], "{file}");
    }
    let full = experiment("live-optimizer-sweep.toml").workload;
    assert_eq!(full.clients, [1, 2, 4, 8, 16, 32, 64, 128]);
}

#[test]
fn live_against_bolt_uses_the_same_samples() {
    let experiment = experiment("live-against-bolt.toml");
    let builds = experiment.candidates.iter().map(|one| one.system.build().unwrap().bolt);
    assert_eq!(builds.collect::<Vec<_>>(), [false, true, false]);
    let live = experiment.candidates[2].live.as_ref().unwrap();
    assert_eq!(live.samples_of.as_deref(), Some("bolt"));
}

/// Adds what the documentation's examples lack; they must then be valid.
#[test]
fn examples_in_the_documentation_are_valid() {
    let documentation = include_str!("../../../../../docs/experiments.md");
    let blocks = documentation.split("```toml\n").skip(1);
    let examples: Vec<_> = blocks.filter_map(|block| block.split("```").next()).collect();
    assert_eq!(examples.len(), 12);
    let script = documentation.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let files = |name: &str| {
        assert_eq!(name, "shop.sql");
        Ok(script.to_owned())
    };
    for example in examples {
        let is_of = |system: &&str| example.contains(&format!("[{system}]"));
        let system = ["mysql", "postgresql", "sqlite"].into_iter().find(is_of).unwrap_or("mariadb");
        let candidate = format!("[[candidate]]\nname = 'x'\nsystem = '{system}'\n");
        let text = format!("name = 'x'\nbaseline = 'x'\n{example}\n{candidate}");
        parse_with_files("example.toml", &text, &files)
            .unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn each_published_microbenchmark_is_explained_in_one_line() {
    let page = include_str!("../../../../../docs/microbenchmarks.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let text = "name = 'x'\nbaseline = 'x'\n[[candidate]]\nname = 'x'\nsystem = 'mariadb'\n";
    let experiment = parse_with_files("all.toml", text, &|_| Err(String::new())).unwrap();
    let all = &experiment.workload.microbenchmarks;
    assert_eq!(all.len(), 42);
    for one in all {
        let (name, group) = (one.name.replace(".pre_", "_"), one.group.name());
        let line = lines.iter().find(|line| line.starts_with(&format!("| `{name}`"))).unwrap();
        assert!(line.contains(&format!("| {group} |")), "{line}");
        let is_pre = all.iter().any(|other| other.name == name.replace('_', ".pre_"));
        assert_eq!(line.contains("| yes |"), is_pre, "{line}");
    }
    assert_eq!(lines.len(), 27);
}
