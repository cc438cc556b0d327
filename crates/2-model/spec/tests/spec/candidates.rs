//! `live` and `matrix` of a candidate: valid values, and problems in invalid ones.

use dbdyno_spec::experiment::{Counts, Experiment, Live, System, Train};
use dbdyno_spec::parse;
use dbdyno_units::Nanos;
use insta::assert_snapshot;

/// An experiment whose candidate `a` has these lines, which start in line 5.
fn text(lines: &str) -> String {
    format!("name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\n{lines}")
}

fn live(lines: &str) -> Option<Live> {
    let text = text(&format!("system = 'mariadb'\n{lines}"));
    let parsed = parse("test.toml", &text);
    parsed.unwrap_or_else(|problems| panic!("{problems}")).candidates[0].live.clone()
}

fn shown(lines: &str) -> String {
    let parsed = parse("test.toml", &text(lines));
    parsed.map_or_else(|problems| problems.to_string(), |_| "none".into())
}

#[test]
fn live_changes_the_default_of_restarts_only_if_it_is_on() {
    let restarts = |lines: &str| {
        let text = text(&format!("system = 'mariadb'\n{lines}"));
        parse("test.toml", &text).unwrap().schedule.restarts
    };
    assert_eq!(["live = true", "live = false", ""].map(restarts), [1, 6, 6]);
}

#[test]
fn live_true_has_the_defaults() {
    let expected = Live {
        profile: Nanos::from_secs(15),
        frequency: 7_999,
        samples_of: None,
        train: Train::Each,
        counts: Counts::Exact,
        clients: None,
        max_pause: Nanos::from_millis(20),
        keep_order: false,
        force: false,
    };
    assert_eq!(live("live = true"), Some(expected.clone()));
    assert_eq!(live("live = {}"), Some(expected));
    assert_eq!(live("live = false"), None);
    assert_eq!(live(""), None);
}

#[test]
fn all_live_options_are_read() {
    let lines = "[candidate.live]\nprofile = '30s'\nfrequency = 997\ntrain = 'once'\n\
                 counts = 'sampled'\nclients = 1\nmax_pause = '20ms'\nkeep_order = true\nforce = true";
    let expected = Live {
        profile: Nanos::from_secs(30),
        frequency: 997,
        samples_of: None,
        train: Train::Once,
        counts: Counts::Sampled,
        clients: Some(1),
        max_pause: Nanos::from_millis(20),
        keep_order: true,
        force: true,
    };
    assert_eq!(live(lines), Some(expected));
}

#[test]
fn stored_experiment_without_live_is_read() {
    let text = text("system = 'mariadb'");
    let experiment = parse("test.toml", &text).unwrap();
    let mut value = serde_json::to_value(&experiment).unwrap();
    value["candidates"][0].as_object_mut().unwrap().remove("live");
    let read: Experiment = serde_json::from_value(value).unwrap();
    assert_eq!(read, experiment);
}

#[test]
fn live_is_rejected_unless_the_server_is_private() {
    assert_problems!(shown("system = 'sqlite'\nvariant = 'rel'\nlive = true"), @r"
    7:1 `live` applies to servers only
    live = true
    ^^^^ SQLite is a library in dbdyno's worker: remove `live`
    ");
    assert_problems!(
        shown("system = 'mariadb'\nurl = 'mysql://me@host/'\nlive = { profile = '1s' }"),
        @r"
    7:1 `live` applies to servers that dbdyno starts only
    live = { profile = '1s' }
    ^^^^ use `dbdyno live optimize --pid PID` for a running server
    "
    );
}

#[test]
fn invalid_live_options_are_reported() {
    assert_problems!(
        shown("system = 'mariadb'\nlive = { profil = '1s', train = 'twice', clients = 7 }"),
        @r"
    6:10 unknown key `profil` in `candidate.live`
    live = { profil = '1s', train = 'twice', clients = 7 }
             ^^^^^^ did you mean `profile`?
    6:33 unknown `train`: `twice`
    live = { profil = '1s', train = 'twice', clients = 7 }
                                    ^^^^^^^ valid are `each`, `once`
    6:52 7 clients are not measured
    live = { profil = '1s', train = 'twice', clients = 7 }
                                                       ^ `clients` of [workload] has 1
    "
    );
    assert!(shown("system = 'mariadb'\nlive = 'yes'").contains("live = 'yes'"));
    assert_problems!(shown("system = 'mariadb'\nlive = { max_pause = '1ms' }"), @r"
    6:22 `max_pause` is out of range
    live = { max_pause = '1ms' }
                         ^^^^^ it must be from 5 ms to 10 s
    ");
}

#[test]
fn different_warmups_are_rejected() {
    let other = "[[candidate]]\nname = 'b'\nsystem = 'mariadb'\n";
    assert_problems!(
        shown(&format!("system = 'mariadb'\nlive = true\n{other}live = {{ profile = '1s' }}")),
        @r"
    10:1 candidates with `live` have different warm-ups
    live = { profile = '1s' }
    ^^^^ set the same `train`, `clients` and `profile` in each `live`
    "
    );
    let agree = format!("system = 'mariadb'\nlive = true\n{other}live = {{ keep_order = true }}");
    assert_eq!(shown(&agree), "none");
}

#[test]
fn live_is_rejected_in_an_insert_benchmark() {
    assert_problems!(shown("system = 'mariadb'\nlive = true\n[insert_benchmark]"), @r"
    6:1 `live` cannot be used in an insert benchmark
    live = true
    ^^^^ remove `live`
    ");
}

/// An experiment with a server that BOLT optimizes with samples, and a second server with these
/// lines.
fn beside_bolt(lines: &str) -> String {
    let compiled = "system = 'mariadb'\nsource = { path = '/s' }\nvariant = 'rel_bolt'";
    format!(
        "name = 'x'\nbaseline = 'bolted'\n[[candidate]]\nname = 'bolted'\n{compiled}\n\
         training = ['point-1']\nbolt_profile = 'samples'\n[[candidate]]\nname = 'live'\n\
         {compiled}\n{lines}"
    )
}

#[test]
fn samples_of_a_bolt_build_are_accepted() {
    let text = beside_bolt("bolt = false\nlive = { samples_of = 'bolted' }");
    let parsed = parse("test.toml", &text);
    let experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
    let builds: Vec<_> =
        experiment.candidates.iter().map(|one| one.system.build().unwrap().clone()).collect();
    assert_eq!([builds[0].bolt, builds[1].bolt], [true, false]);
    assert!(builds[1].training.is_none());
    let live = experiment.candidates[1].live.clone().unwrap();
    assert_eq!(live.samples_of.as_deref(), Some("bolted"));
    assert_eq!(live.train, Train::Once);
}

#[test]
fn samples_of_another_build_are_rejected() {
    let shown = |lines: &str| {
        let parsed = parse("test.toml", &beside_bolt(lines));
        parsed.map_or_else(|problems| problems.to_string(), |_| "none".into())
    };
    assert_problems!(shown("bolt = false\nlive = { samples_of = 'bolt', train = 'each' }"),
        @r"
    16:23 unknown candidate `bolt`
    live = { samples_of = 'bolt', train = 'each' }
                          ^^^^^^ did you mean `bolted`?
    16:31 `train` cannot be combined with `samples_of`
    live = { samples_of = 'bolt', train = 'each' }
                                  ^^^^^ leave it out
    ");
    assert_problems!(
        shown("training = ['point-1']\nlive = { samples_of = 'bolted' }"),
        @r"
        16:23 `live` is not the build that BOLT optimizes for `bolted`
        live = { samples_of = 'bolted' }
                              ^^^^^^^^ use the settings of `bolted`, with `bolt = false`
        "
    );
    assert_problems!(
        shown("bolt = false\nflags = ['-g']\nlive = { samples_of = 'bolted' }"),
        @r"
        17:23 `live` is not the build that BOLT optimizes for `bolted`
        live = { samples_of = 'bolted' }
                              ^^^^^^^^ use the settings of `bolted`, with `bolt = false`
        "
    );
    assert_problems!(
        shown("training = ['point-1']\nlive = { samples_of = 'live' }"),
        @r#"
        16:23 `live` is not sampled for BOLT
        live = { samples_of = 'live' }
                              ^^^^^^ it needs `bolt = true` and `bolt_profile = "samples"`
        "#
    );
}

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
    assert_problems!(problems("{ a = [1, 1], 'b c' = [1, 2], d = [1] }"), @r"
    6:20 `1` twice
    matrix = { a = [1, 1], 'b c' = [1, 2], d = [1] }
                       ^ each value gives candidates with a name of their own
    6:24 `b c` cannot be the name of a setting
    matrix = { a = [1, 1], 'b c' = [1, 2], d = [1] }
                           ^^^^^ names consist of letters, digits and _ - .
    6:44 `d` needs two values
    matrix = { a = [1, 1], 'b c' = [1, 2], d = [1] }
                                               ^^^ write a setting with one value in `configuration`
    ");
    assert_problems!(problems("{ a = [1, 2, 3, 4, 5], b = [1, 2, 3, 4] }"), @r"
    6:1 `matrix` has 20 combinations
    matrix = { a = [1, 2, 3, 4, 5], b = [1, 2, 3, 4] }
    ^^^^^^ at most 16: each has a server and a copy of the data
    ");
    assert_problems!(problems("{ a = [1, 2] }\nconfiguration = { a = 3 }"), @r"
    6:12 `a` is also in `configuration`
    matrix = { a = [1, 2] }
               ^ remove it from one of them
    ");
    assert_problems!(problems("{}"), @r"
    6:1 `matrix` is empty
    matrix = {}
    ^^^^^^ as in { innodb_flush_neighbors = [0, 1] }
    ");
}

#[test]
fn matrix_is_for_servers_that_dbdyno_starts() {
    let with = |lines: &str| {
        let candidate = format!("[[candidate]]\nname = 'm'\nmatrix = {{ a = [1, 2] }}\n{lines}\n");
        experiment("m", &candidate).unwrap_err()
    };
    assert!(
        with("system = 'sqlite'\nvariant = 'rel'").contains("`matrix` applies to servers only")
    );
    let url = with("system = 'mariadb'\nurl = 'mysql://me@host/'");
    assert!(url.contains("`matrix` applies to servers that dbdyno starts only"), "{url}");
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
