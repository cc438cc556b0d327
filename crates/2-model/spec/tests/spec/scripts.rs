//! Scripts: `script` of a microbenchmark (sysbench), and `setup`, which creates own tables.

use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse_with_files;
use dbdyno_workloads::answers::Answers;
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
        "random.lua" => Ok("function prepare() end\n\
            function event() sysbench.sql.driver():connect():query('SELECT RAND()') end"
            .to_owned()),
        "limit.lua" => Ok("function prepare() end\n\
            function thread_init() con = sysbench.sql.driver():connect() end\n\
            function event() con:query('SELECT a FROM t ' .. 'LIMIT 1') end"
            .to_owned()),
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
    let with_own = experiment(&format!("{lines}\nrun_options = {{ tables = 1 }}"), SERVER).unwrap();
    let own = with_own.workload.scripts().next().unwrap();
    assert_eq!(
        (own.options.len(), own.options_of_events()["tables"].to_text()),
        (2, "1".to_owned())
    );
    let unknown = problems("script = 'good.lua'\nrun_options = { tabels = 1 }", SERVER);
    assert!(unknown.contains("did you mean `tables`?"), "{unknown}");
    assert_eq!(workload.loaded_tables(), 0);
    assert!(workload.has_own_tables());
    let json = serde_json::to_string(&workload).unwrap();
    assert_eq!(serde_json::from_str::<dbdyno_spec::experiment::Workload>(&json).unwrap(), workload);
    let reads = format!("{lines}\nstages = ['pre', 'post']");
    let workload = experiment(&reads, SERVER).unwrap().workload;
    assert!(workload.microbenchmarks.iter().all(|one| !one.writes()));
}

#[test]
fn answers_that_are_not_determined_are_recognised_and_can_be_declared() {
    let of = |lines: &str| {
        experiment(lines, SERVER).unwrap().workload.microbenchmarks[0].compared_answers()
    };
    let because = |reason: &str| Some(reason.to_owned());
    assert_eq!(of("script = 'good.lua'"), (Answers::Values, None));
    assert_eq!(of("script = 'random.lua'"), (Answers::Rows, because("its SQL has RAND()")));
    let limit = because("its SQL has LIMIT without ORDER BY");
    assert_eq!(of("script = 'limit.lua'"), (Answers::Rows, limit));
    assert_eq!(of("script = 'random.lua'\nanswers = 'values'"), (Answers::Values, None));
    let declared = because("the experiment sets `answers`");
    assert_eq!(of("script = 'good.lua'\nanswers = 'none'"), (Answers::None, declared));
    assert!(
        problems("script = 'good.lua'\nanswers = 'row'", SERVER).contains("did you mean `rows`?")
    );
}

#[test]
fn schemas_are_those_of_sysbench_unless_they_are_named() {
    let with = |lines: &str| experiment(&format!("script = 'good.lua'\n{lines}"), SERVER);
    let mut workload = with("").unwrap().workload;
    assert_eq!(workload.private_schemas(), ["sbtest"]);
    assert_eq!(with("schema = 'shop'").unwrap().workload.private_schemas(), ["shop"]);
    let another = |data, schema: Option<&str>| {
        let mut one = workload.microbenchmarks[0].clone();
        let script = one.script.as_mut().unwrap();
        (script.data, script.schema) = (data, schema.map(str::to_owned));
        one
    };
    let others = [another(1, None), another(2, Some("shop")), another(2, Some("shop"))];
    workload.microbenchmarks.extend(others);
    assert_eq!(workload.private_schemas(), ["sbtest", "sbtest_data2", "shop"]);
    assert_eq!(workload.existing_schemas("a"), ["a", "a_data2", "a_data3"]);
    for wrong in ["Shop", "1shop", "mysql", "pg_shop", ""] {
        let problems = problems(&format!("script = 'good.lua'\nschema = '{wrong}'"), SERVER);
        assert!(problems.contains("cannot be the name of a schema"), "{problems}");
    }
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

const SQLITE: &str = "system = 'sqlite'\nvariant = 'rel'";
const PG: &str = "system = 'postgresql'\nurl = 'postgres://me@host/db'";

/// The experiment with this `setup`, reading `shop.sql`, or its problems.
fn with_setup(setup: &str, sql: &str, candidate: &str) -> Result<Experiment, String> {
    let text = format!(
        "name = 'test'\nbaseline = 'a'\n[workload]\nsetup = {setup}\nmicrobenchmarks = ['own']\n\
         [[microbenchmark]]\nname = 'own'\ngroup = 'point-1'\n\
         statements = [{{ sql = \"{sql}\", rows = 'any' }}]\n\
         [[candidate]]\nname = 'a'\n{candidate}\n"
    );
    let files = |name: &str| match name {
        "shop.sql" => Ok("CREATE TABLE shop (id INT);".to_owned()),
        "empty.sql" => Ok("-- later\n".to_owned()),
        "view.sql" => Ok("CREATE TABLE a (id INT);\n\nCREATE VIEW v AS\nSELECT 1;".to_owned()),
        _ => Err(format!("reading {name}: no such file")),
    };
    parse_with_files("test.toml", &text, &files).map_err(|problems| problems.to_string())
}

fn problems_of_setup(setup: &str, candidate: &str) -> String {
    with_setup(setup, "SELECT 1", candidate).unwrap_err()
}

#[test]
fn scripts_are_files_or_texts() {
    let setup = "['shop.sql', 'INSERT INTO shop VALUES (1)']";
    let workload = with_setup(setup, "SELECT * FROM shop", SQLITE).unwrap().workload;
    let scripts: Vec<_> =
        workload.setup.iter().map(|one| (one.origin.as_str(), one.text.as_str())).collect();
    assert_eq!(
        scripts,
        [
            ("shop.sql", "CREATE TABLE shop (id INT);"),
            ("`setup` of line 4", "INSERT INTO shop VALUES (1)")
        ]
    );
}

#[test]
#[ignore = "full"]
fn scripts_have_a_size_limit_together() {
    let text = |bytes: usize| format!("'SELECT 1;{}'", " ".repeat(bytes));
    let (one, half) = (24 << 20, 12 << 20);
    assert!(with_setup(&text(one - 9), "SELECT 1", SQLITE).is_ok());
    let two = format!("[{}, {}]", text(half), text(half));
    for setup in [text(one), two] {
        let problems = problems_of_setup(&setup, SQLITE);
        let help = "the scripts have at most 24 MiB in all";
        assert!(problems.contains(help), "{}", &problems[problems.len() - 200..]);
    }
}

#[test]
fn tables_of_dbdyno_are_loaded_only_if_used() {
    let loaded = |setup: &str, sql: &str| {
        let workload = with_setup(setup, sql, SQLITE).unwrap().workload;
        workload.loaded_tables()
    };
    assert_eq!(loaded("'shop.sql'", "SELECT * FROM shop a JOIN shop b ON a.id = b.id"), 0);
    assert_eq!(loaded("'shop.sql'", "SELECT * FROM shop JOIN {table} USING (id)"), 1);
    assert_eq!(loaded("'shop.sql'", "SELECT * FROM sbtest1"), 1);
    assert_eq!(loaded("'CREATE TABLE a AS SELECT * FROM sbtest1'", "SELECT * FROM a"), 1);
}

#[test]
fn invalid_scripts_are_reported() {
    assert_problems!(problems_of_setup("['shpo.sql', 'empty.sql']", SQLITE), @r"
    4:10 `setup`: reading shpo.sql: no such file
    setup = ['shpo.sql', 'empty.sql']
             ^^^^^^^^^^ it is relative to the directory of the experiment file
    4:22 empty.sql has no statement
    setup = ['shpo.sql', 'empty.sql']
                         ^^^^^^^^^^^ write SQL statements, or the name of a file that ends in .sql
    ");
    assert_problems!(problems_of_setup("[]", SQLITE), @r"
    4:9 `setup` is empty
    setup = []
            ^^ remove `setup` if there are no own tables
    ");
}

#[test]
fn running_servers_get_tables_only() {
    assert!(with_setup("'view.sql'", "SELECT 1", SQLITE).is_ok());
    assert!(with_setup("'shop.sql'", "SELECT 1", PG).is_ok());
    assert_problems!(problems_of_setup("'view.sql'", PG), @r"
    4:1 view.sql, line 3: CREATE VIEW is not possible on the existing server of a
    setup = 'view.sql'
    ^^^^^ there, statements may create tables and indexes, and change their rows and session settings: dbdyno would not remove anything else
    ");
}

#[test]
fn microbenchmarks_change_no_other_schema_of_running_servers() {
    let of = |sql: &str, count: &str, candidate: &str| {
        experiment(&format!("statements = [{{ sql = '{sql}', {count} = 'any' }}]"), candidate)
    };
    for (sql, count) in [
        ("UPDATE own SET id = id + 1", "affects"),
        ("UPDATE {table} SET k = k + 1 WHERE id = 5", "affects"),
        ("INSERT INTO own SELECT id FROM shop.orders", "affects"),
        ("SELECT id FROM shop.orders", "rows"),
        ("WITH a AS (SELECT id FROM shop.orders) SELECT id FROM a", "rows"),
    ] {
        assert!(of(sql, count, PG).is_ok(), "{sql}");
    }
    let other = |table: &str| format!("a change of {table}, a table of another schema,");
    for (sql, what) in [
        ("UPDATE shop.mine SET k = k + 1 WHERE id = 5", other("shop.mine")),
        ("DELETE FROM shop.{table}", other("shop.sbtest1")),
        ("TRUNCATE shop.mine", other("shop.mine")),
        ("CALL change()", "CALL CHANGE".to_owned()),
    ] {
        assert!(of(sql, "affects", SQLITE).is_ok(), "{sql}");
        let shown = of(sql, "affects", PG).unwrap_err();
        let message = format!("mine: {what} is not possible on the existing server of a");
        assert!(shown.contains(&message), "{shown}");
    }
}

/// MySQL executes a comment that PostgreSQL ignores.
#[test]
fn scripts_are_checked_for_each_kind_of_existing_server() {
    let second = "[[candidate]]\nname = 'b'\nsystem = 'mysql'\nurl = 'mysql://me@host/'\n";
    let setup = "'CREATE TABLE a (id INT); /*! CREATE VIEW v AS SELECT 1 */'";
    assert!(with_setup(setup, "SELECT 1", PG).is_ok());
    let shown = problems_of_setup(setup, &format!("{PG}\n{second}"));
    assert!(shown.contains("not possible on the existing server of b"), "{shown}");
}
