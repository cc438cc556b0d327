//! The insert benchmark in experiments: valid sections, and problems in invalid ones.

use dbdyno_spec::experiment::{Experiment, InsertBenchmark};
use dbdyno_spec::parse;
use dbdyno_units::{Nanos, Share};
use dbdyno_workloads::insert::{Inserts, Mix, QueryKind, Task};

fn text(section: &str) -> String {
    format!(
        "name = 'test'\nbaseline = 'a'\n{section}\n[[candidate]]\nname = 'a'\n\
         system = 'sqlite'\nvariant = 'rel'\n"
    )
}

fn parsed(section: &str) -> Experiment {
    let text = text(section);
    parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn benchmark(section: &str) -> InsertBenchmark {
    parsed(section).insert_benchmark.unwrap()
}

fn problems(section: &str) -> String {
    parse("test.toml", &text(section)).unwrap_err().to_string()
}

fn names(benchmark: &InsertBenchmark) -> Vec<&str> {
    benchmark.plan.steps.iter().map(|step| step.name.as_str()).collect()
}

#[test]
fn empty_section_has_the_published_settings() {
    let experiment = parsed("[insert_benchmark]");
    let benchmark = experiment.insert_benchmark.unwrap();
    assert_eq!(names(&benchmark), ["l.i0", "l.x", "l.i1", "settle", "q100", "q500", "q1000"]);
    assert!(!experiment.control, "its noise shows in its repeats");
    assert!(benchmark.copies && !benchmark.plan.delete_per_insert);
    assert_eq!((benchmark.repeats, benchmark.stall), (1, Share::from_percent(50.0)));
    assert_eq!((benchmark.plan.clients, benchmark.plan.tables), (1, 1));
    let commits: Vec<u32> = benchmark
        .plan
        .steps
        .iter()
        .filter_map(|step| match step.task {
            Task::Insert(Inserts { rows_per_commit, .. })
            | Task::Mix(Mix { rows_per_commit, .. }) => Some(rows_per_commit),
            Task::Index | Task::Settle => None,
        })
        .collect();
    assert_eq!(commits, [100, 50, 50, 50, 50]);
}

#[test]
fn all_keys_are_read() {
    let benchmark = benchmark(
        "[insert_benchmark]\nclients = 4\ntables = 2\nrows = { i0 = 2000, i1 = 0, i2 = 70 }\n\
         rows_per_commit = { i2 = 7, q = 10 }\nrates = [30, 20]\nseconds = ['2s', '1min']\n\
         queries = 'both'\ndelete_per_insert = true\ndata_length = 100\nrepeats = 3\n\
         copies = false\nstall = '10%'",
    );
    assert_eq!(
        names(&benchmark),
        ["l.i0", "l.x", "l.i2", "settle", "qr30", "qp30", "qr20", "qp20"]
    );
    let task = benchmark.plan.steps[7].task;
    let mix = Mix {
        rate: 20,
        rows_per_commit: 10,
        time: Nanos::from_secs(60),
        queries: QueryKind::PrimaryKey,
    };
    assert_eq!(task, Task::Mix(mix));
    assert_eq!(benchmark.plan.rows(), 4 * (2000 + 70 + 2 * 60 + 2 * 1200));
    assert!(!benchmark.copies && benchmark.plan.delete_per_insert);
}

#[test]
fn workload_has_the_final_number_of_rows() {
    let section = "[insert_benchmark]\nclients = 4\ntables = 2\nrows = { i0 = 5000, i1 = 0 }\n\
                   rates = []";
    let workload = parsed(section).workload;
    assert_eq!((workload.tables, workload.rows), (2, 10_000));
    assert_eq!(workload.most_clients(), 8, "two connections for each client");
    assert!(workload.microbenchmarks.is_empty());
    // A row with 1,000 more bytes takes the space of four more.
    let long = parsed(&format!("{section}\ndata_length = 1_010")).workload;
    assert_eq!(long.rows, 50_000);
}

#[test]
fn problems_are_shown_at_their_positions() {
    for (section, expected) in [
        ("[insert_benchmark]\nclinets = 2", "did you mean `clients`?"),
        ("[insert_benchmark]\nclients = 1e3", "write `1000`"),
        ("[insert_benchmark]\nrows = { i3 = 2 }", "unknown key `i3` in `insert_benchmark.rows`"),
        ("[insert_benchmark]\nrows = { i0 = 10 }", "it must be from 1000 to"),
        ("[insert_benchmark]\ntables = 2", "2 tables are more than the 1 clients"),
        ("[insert_benchmark]\nrates = [5, 5]", "duplicate rate 5"),
        ("[insert_benchmark]\nrates = 0", "it must be from 1 to"),
        ("[insert_benchmark]\nrates = [1, 0]\nseconds = ['1s', '2s']", "it must be from 1 to"),
        ("[insert_benchmark]\nseconds = ['1s', '2s']", "2 times for 3 rates"),
        ("[insert_benchmark]\nrates = []\nseconds = '5s'", "`seconds` has no effect, as no step"),
        ("[insert_benchmark]\nseconds = 5", "a duration such as"),
        ("[insert_benchmark]\nseconds = '5'", "`5` has no unit"),
        ("[insert_benchmark]\nqueries = 'rnage'", "did you mean `range`?"),
        ("[insert_benchmark]\nstall = '0%'", "it must be from 1%"),
        (
            "[insert_benchmark]\n[schedule]\nbudget = '1s'",
            "`schedule` cannot be combined with [insert_benchmark]",
        ),
        ("[insert_benchmark]\n[workload]", "move it to a separate experiment"),
        ("[insret_benchmark]", "did you mean `insert_benchmark`?"),
    ] {
        let shown = problems(section);
        assert!(shown.contains(expected), "`{expected}` is missing in\n{shown}");
        assert_eq!(shown.matches("error:").count(), 1, "{shown}");
    }
}

#[test]
fn injected_delay_is_rejected_with_inserts() {
    let text = text("[insert_benchmark]") + "injected_delay = '5%'\n";
    let shown = parse("test.toml", &text).unwrap_err().to_string();
    assert!(shown.contains("an insert benchmark has no delays"), "{shown}");
}
