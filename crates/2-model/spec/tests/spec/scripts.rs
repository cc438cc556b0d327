//! `script`: sysbench scripts as microbenchmarks.

use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse_with_files;
use dbdyno_workloads::definition::Stage;

const SERVER: &str = "system = 'mariadb'";

/// The experiment with a microbenchmark of these lines, which start in line 7, or its problems.
fn experiment(lines: &str, candidate: &str) -> Result<Experiment, String> {
    let text = format!(
        "name = 'test'\nbaseline = 'a'\n[workload]\nmicrobenchmarks = ['mine*']\n\
         [[microbenchmark]]\nname = 'mine'\n{lines}\n[[candidate]]\nname = 'a'\n{candidate}\n"
    );
    let files = |name: &str| match name {
        "good.lua" => Ok("sysbench.cmdline.options = { tables = {'Tables', 1} }\n\
                          function prepare() end\nfunction event() end"
            .to_owned()),
        "no-event.lua" => Ok("function prepare() end\nfunction evnt() end".to_owned()),
        "requires.lua" => Ok("\nrequire('missing')\nfunction event() end".to_owned()),
        "broken.lua" => Ok("\n\nsysbench.no_such.thing = 1".to_owned()),
        _ => Err(format!("reading {name}: no such file")),
    };
    parse_with_files("test.toml", &text, &files).map_err(|problems| problems.to_string())
}

fn problems(lines: &str, candidate: &str) -> String {
    experiment(lines, candidate).unwrap_err()
}

#[test]
fn script_is_part_of_the_experiment() {
    let lines =
        "script = 'good.lua'\nsysbench = '1.0'\noptions = { tables = 3, rand-type = 'pareto' }";
    let workload = experiment(lines, SERVER).unwrap().workload;
    let [microbenchmark] = &workload.microbenchmarks[..] else { panic!("{workload:?}") };
    assert_eq!((microbenchmark.stage, microbenchmark.writes()), (Stage::Write, true));
    let script = microbenchmark.script.as_ref().unwrap();
    assert!(script.source.text.contains("function event()"));
    assert_eq!(script.options.len(), 2);
    assert_eq!(workload.loaded_tables(), 0);
    assert!(workload.has_own_tables());
    let json = serde_json::to_string(&workload).unwrap();
    assert_eq!(serde_json::from_str::<dbdyno_spec::experiment::Workload>(&json).unwrap(), workload);
    let reads = format!("{lines}\nstages = ['pre', 'post']");
    let workload = experiment(&reads, SERVER).unwrap().workload;
    assert!(workload.microbenchmarks.iter().all(|one| !one.writes()));
}

#[test]
fn versions_have_different_options() {
    let zipfian =
        "script = 'good.lua'\noptions = { rand-type = 'zipfian', rand-zipfian-exp = 1.1 }";
    assert!(problems(zipfian, SERVER).contains("good.lua has no option `rand-zipfian-exp`"));
    experiment(&format!("{zipfian}\nsysbench = '1.1'"), SERVER).unwrap();
    let special = "script = 'good.lua'\nsysbench = '1.1'\noptions = { rand-type = 'special' }";
    assert!(problems(special, SERVER).contains("uniform, gaussian, pareto, zipfian"));
}

#[test]
fn invalid_scripts_and_options_are_reported_with_their_lines() {
    let good = "script = 'good.lua'";
    for (lines, candidate, line, expected) in [
        (
            format!("{good}\noptions = {{ tabels = 3 }}"),
            SERVER,
            8,
            vec!["good.lua has no option `tabels`", "did you mean `tables`?"],
        ),
        (
            format!("{good}\noptions = {{ threads = 3 }}"),
            SERVER,
            8,
            vec!["option `threads` of sysbench has no effect here", "set `clients` in [workload]"],
        ),
        (
            format!("{good}\noptions = {{ tables = 'many' }}"),
            SERVER,
            7,
            vec!["option tables: `many` is not a number"],
        ),
        (
            format!("{good}\noptions = {{ rand-type = 'normal' }}"),
            SERVER,
            7,
            vec!["option rand_type: `normal` is not one of uniform, gaussian, special, pareto"],
        ),
        (format!("{good}\nsysbench = '1.2'"), SERVER, 8, vec!["`1.2`", "1.0"]),
        (
            format!("{good}\ntransaction = true"),
            SERVER,
            8,
            vec!["`transaction` has no effect with `script`"],
        ),
        (
            "script = 'no-event.lua'".to_owned(),
            SERVER,
            7,
            vec!["no-event.lua has no function event()"],
        ),
        (
            "script = 'requires.lua'".to_owned(),
            SERVER,
            7,
            vec!["requires.lua:2: module `missing` was not found", "put the module next to"],
        ),
        (
            "script = 'broken.lua'".to_owned(),
            SERVER,
            7,
            vec!["broken.lua:3: attempt to index field 'no_such' (a nil value)"],
        ),
        ("script = './other.lua'".to_owned(), SERVER, 7, vec!["reading ./other.lua: no such file"]),
        (
            good.to_owned(),
            "system = 'sqlite'\nvariant = 'rel'",
            5,
            vec!["good.lua cannot run on SQLite (a)", "MariaDB, MySQL and PostgreSQL"],
        ),
    ] {
        let problems = problems(&lines, candidate);
        for expected in expected.into_iter().chain([&*format!("test.toml:{line}:")]) {
            assert!(problems.contains(expected), "{expected} is missing in\n{problems}");
        }
    }
}

#[test]
fn tables_of_dbdyno_cannot_be_beside_those_of_scripts() {
    let text = "script = 'good.lua'\n[[microbenchmark]]\nname = 'mine-too'\n\
                statements = [{ sql = 'SELECT 1 FROM {table}', rows = 'any' }]";
    let problems = problems(text, SERVER);
    assert!(
        problems.contains("good.lua makes its own data, beside tables of dbdyno"),
        "{problems}"
    );
}
