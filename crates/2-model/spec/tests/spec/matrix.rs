//! `matrix`: a candidate for each combination of settings.

use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_spec::parse;
use insta::assert_snapshot;

fn experiment(baseline: &str, candidates: &str) -> Result<Experiment, String> {
    let text = format!("name = 'test'\nbaseline = '{baseline}'\n{candidates}");
    parse("test.toml", &text).map_err(|problems| problems.to_string())
}

fn maria(matrix: &str) -> String {
    format!("[[candidate]]\nname = 'm'\nsystem = 'mariadb'\nmatrix = {matrix}\n")
}

fn problems(matrix: &str) -> String {
    experiment("m", &maria(matrix)).unwrap_err()
}

const TWO: &str = "{ innodb-doublewrite = ['ON', false], innodb_flush_neighbors = [0, 1] }";

#[test]
fn every_combination_is_a_candidate() {
    let experiment = experiment("m", &maria(TWO)).unwrap();
    let shown: Vec<String> = experiment
        .candidates
        .iter()
        .map(|candidate| {
            let System::Private(server) = &candidate.system else { panic!() };
            let levels = &candidate.matrix.as_ref().unwrap().levels;
            let levels = levels.iter().map(|one| (one.setting.clone(), one.value.clone()));
            assert_eq!(levels.collect::<Vec<_>>(), server.configuration);
            let settings: Vec<_> = server
                .configuration
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("{}: {}", candidate.name, settings.join(" "))
        })
        .collect();
    assert_snapshot!(shown.join("\n"), @r"
    m.doublewrite-ON.flush_neighbors-0: innodb_doublewrite=ON innodb_flush_neighbors=0
    m.doublewrite-ON.flush_neighbors-1: innodb_doublewrite=ON innodb_flush_neighbors=1
    m.doublewrite-OFF.flush_neighbors-0: innodb_doublewrite=OFF innodb_flush_neighbors=0
    m.doublewrite-OFF.flush_neighbors-1: innodb_doublewrite=OFF innodb_flush_neighbors=1
    ");
}

#[test]
fn baseline_is_the_first_combination_or_a_named_one() {
    let baseline = |name: &str| experiment(name, &maria(TWO)).map(|one| one.baseline);
    assert_eq!(baseline("m").unwrap(), "m.doublewrite-ON.flush_neighbors-0");
    let other = "m.doublewrite-OFF.flush_neighbors-1";
    assert_eq!(baseline(other).unwrap(), other);
    let problem = baseline("m.doublewrite-OFF.flush_neighbors-2").unwrap_err();
    assert!(problem.contains("did you mean `m.doublewrite-OFF.flush_neighbors-"), "{problem}");
}

#[test]
fn invalid_matrices_are_reported() {
    assert_snapshot!(problems("{ a = [1, 1], 'b c' = [1, 2], d = [1] }"), @r"
    error: `1` twice
     --> test.toml:6:20
      |
    6 | matrix = { a = [1, 1], 'b c' = [1, 2], d = [1] }
      |                    ^ each value gives candidates with a name of their own

    error: `b c` cannot be the name of a setting
     --> test.toml:6:24
      |
    6 | matrix = { a = [1, 1], 'b c' = [1, 2], d = [1] }
      |                        ^^^^^ names consist of letters, digits and _ - .

    error: `d` needs two values
     --> test.toml:6:44
      |
    6 | matrix = { a = [1, 1], 'b c' = [1, 2], d = [1] }
      |                                            ^^^ write a setting with one value in `configuration`
    ");
    assert_snapshot!(problems("{ a = [1, 2, 3, 4, 5], b = [1, 2, 3, 4] }"), @r"
    error: `matrix` has 20 combinations
     --> test.toml:6:1
      |
    6 | matrix = { a = [1, 2, 3, 4, 5], b = [1, 2, 3, 4] }
      | ^^^^^^ at most 16: each has a server and a copy of the data
    ");
    assert_snapshot!(problems("{ a = [1, 2] }\nconfiguration = { a = 3 }"), @r"
    error: `a` is also in `configuration`
     --> test.toml:6:12
      |
    6 | matrix = { a = [1, 2] }
      |            ^ remove it from one of them
    ");
    assert_snapshot!(problems("{}"), @r"
    error: `matrix` is empty
     --> test.toml:6:1
      |
    6 | matrix = {}
      | ^^^^^^ as in { innodb_flush_neighbors = [0, 1] }
    ");
}

#[test]
fn matrix_is_for_servers_that_dbdyno_starts() {
    let with = |lines: &str| {
        let candidate = format!("[[candidate]]\nname = 'm'\nmatrix = {{ a = [1, 2] }}\n{lines}\n");
        experiment("m", &candidate).unwrap_err()
    };
    assert!(with("system = 'sqlite'\nvariant = 'rel'").contains("`matrix` is for servers"));
    let url = with("system = 'mariadb'\nurl = 'mysql://me@host/'");
    assert!(url.contains("`matrix` is for a server that dbdyno starts"), "{url}");
}

#[test]
fn names_of_a_matrix_are_unique() {
    let other = "[[candidate]]\nname = 'm.a-1'\nsystem = 'mariadb'\n";
    let matrix = maria("{ a = [1, 2] }");
    for text in [format!("{other}{matrix}"), format!("{matrix}{other}")] {
        let problem = experiment("m", &text).unwrap_err();
        assert!(problem.contains("duplicate candidate name `m.a-1`, of a `matrix`"), "{problem}");
    }
}
