//! `setup`: scripts that create own tables.

use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse_with_files;
use insta::assert_snapshot;

const SQLITE: &str = "system = 'sqlite'\nvariant = 'rel'";
const PG: &str = "system = 'postgresql'\nurl = 'postgres://me@host/db'";

/// The experiment with this `setup`, reading `shop.sql`, or its problems.
fn experiment(setup: &str, sql: &str, candidate: &str) -> Result<Experiment, String> {
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

fn problems(setup: &str, candidate: &str) -> String {
    experiment(setup, "SELECT 1", candidate).unwrap_err()
}

#[test]
fn scripts_are_files_or_texts() {
    let setup = "['shop.sql', 'INSERT INTO shop VALUES (1)']";
    let workload = experiment(setup, "SELECT * FROM shop", SQLITE).unwrap().workload;
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
    assert!(experiment(&text(one - 9), "SELECT 1", SQLITE).is_ok());
    let two = format!("[{}, {}]", text(half), text(half));
    for setup in [text(one), two] {
        let problems = problems(&setup, SQLITE);
        let help = "the scripts have at most 24 MiB in all";
        assert!(problems.contains(help), "{}", &problems[problems.len() - 200..]);
    }
}

#[test]
fn tables_of_dbdyno_are_loaded_only_if_used() {
    let loaded = |setup: &str, sql: &str| {
        let workload = experiment(setup, sql, SQLITE).unwrap().workload;
        workload.loaded_tables()
    };
    assert_eq!(loaded("'shop.sql'", "SELECT * FROM shop a JOIN shop b ON a.id = b.id"), 0);
    assert_eq!(loaded("'shop.sql'", "SELECT * FROM shop JOIN {table} USING (id)"), 1);
    assert_eq!(loaded("'shop.sql'", "SELECT * FROM sbtest1"), 1);
    assert_eq!(loaded("'CREATE TABLE a AS SELECT * FROM sbtest1'", "SELECT * FROM a"), 1);
}

#[test]
fn invalid_scripts_are_reported() {
    assert_snapshot!(problems("['shpo.sql', 'empty.sql']", SQLITE), @r"
    error: `setup`: reading shpo.sql: no such file
     --> test.toml:4:10
      |
    4 | setup = ['shpo.sql', 'empty.sql']
      |          ^^^^^^^^^^ it is relative to the directory of the experiment file

    error: empty.sql has no statement
     --> test.toml:4:22
      |
    4 | setup = ['shpo.sql', 'empty.sql']
      |                      ^^^^^^^^^^^ write SQL statements, or the name of a file that ends in .sql
    ");
    assert_snapshot!(problems("[]", SQLITE), @r"
    error: `setup` is empty
     --> test.toml:4:9
      |
    4 | setup = []
      |         ^^ remove `setup` if there are no own tables
    ");
}

#[test]
fn running_servers_get_tables_only() {
    assert!(experiment("'view.sql'", "SELECT 1", SQLITE).is_ok());
    assert!(experiment("'shop.sql'", "SELECT 1", PG).is_ok());
    assert_snapshot!(problems("'view.sql'", PG), @r"
    error: view.sql, line 3: CREATE VIEW is not possible on the existing server of a
     --> test.toml:4:1
      |
    4 | setup = 'view.sql'
      | ^^^^^ there, `setup` may create tables and indexes, and change rows and session settings: dbdyno would not remove anything else
    ");
}

/// MySQL executes a comment that PostgreSQL ignores.
#[test]
fn scripts_are_checked_for_each_kind_of_existing_server() {
    let second = "[[candidate]]\nname = 'b'\nsystem = 'mysql'\nurl = 'mysql://me@host/'\n";
    let setup = "'CREATE TABLE a (id INT); /*! CREATE VIEW v AS SELECT 1 */'";
    assert!(experiment(setup, "SELECT 1", PG).is_ok());
    let shown = problems(setup, &format!("{PG}\n{second}"));
    assert!(shown.contains("not possible on the existing server of b"), "{shown}");
}
