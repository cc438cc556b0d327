//! `live` of a candidate: what it means, and how mistakes are shown.

use dbdyno_spec::experiment::{Live, Train};
use dbdyno_spec::{Known, parse};
use dbdyno_units::Nanos;
use insta::assert_snapshot;

const KNOWN: Known<'static> = Known { variants: &["rel"], checks: &[] };

/// An experiment whose candidate `a` has these lines, which start in line 5.
fn text(lines: &str) -> String {
    format!("name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\n{lines}")
}

fn live(lines: &str) -> Option<Live> {
    let text = text(&format!("system = 'mariadb'\n{lines}"));
    let parsed = parse("test.toml", &text, &KNOWN);
    parsed.unwrap_or_else(|problems| panic!("{problems}")).candidates[0].live
}

fn shown(lines: &str) -> String {
    let parsed = parse("test.toml", &text(lines), &KNOWN);
    parsed.map_or_else(|problems| problems.to_string(), |_| "none".into())
}

#[test]
fn a_word_is_enough() {
    let expected = Live {
        profile: Nanos::from_secs(15),
        frequency: 7_999,
        train: Train::Each,
        clients: None,
        stop: Nanos::from_millis(50),
        keep_order: false,
    };
    assert_eq!(live("live = true"), Some(expected));
    assert_eq!(live("live = {}"), Some(expected));
    assert_eq!(live("live = false"), None);
    assert_eq!(live(""), None);
}

#[test]
fn everything_can_be_said() {
    let lines = "[candidate.live]\nprofile = '30s'\nfrequency = 997\ntrain = 'once'\n\
                 clients = 1\nstop = '20ms'\nkeep_order = true";
    let expected = Live {
        profile: Nanos::from_secs(30),
        frequency: 997,
        train: Train::Once,
        clients: Some(1),
        stop: Nanos::from_millis(20),
        keep_order: true,
    };
    assert_eq!(live(lines), Some(expected));
}

#[test]
fn an_old_experiment_has_none() {
    let text = text("system = 'mariadb'");
    let experiment = parse("test.toml", &text, &KNOWN).unwrap();
    let mut value = serde_json::to_value(&experiment).unwrap();
    value["candidates"][0].as_object_mut().unwrap().remove("live");
    let read: dbdyno_spec::experiment::Experiment = serde_json::from_value(value).unwrap();
    assert_eq!(read, experiment);
}

#[test]
fn only_for_servers_that_are_started() {
    assert_snapshot!(shown("system = 'sqlite'\nvariant = 'rel'\nlive = true"), @r"
    error: `live` is for servers
     --> test.toml:7:1
      |
    7 | live = true
      | ^^^^ SQLite is a library inside dbdyno's worker: leave it out
    ");
    assert_snapshot!(
        shown("system = 'mariadb'\nurl = 'mysql://me@host/'\nlive = { profile = '1s' }"),
        @r"
    error: `live` is for a server that dbdyno starts
     --> test.toml:7:1
      |
    7 | live = { profile = '1s' }
      | ^^^^ optimize that one with `dbdyno live optimize --pid PID`
    "
    );
}

#[test]
fn mistakes_in_the_table() {
    assert_snapshot!(
        shown("system = 'mariadb'\nlive = { profil = '1s', train = 'twice', clients = 7 }"),
        @r"
    error: unknown key `profil` in `candidate.live`
     --> test.toml:6:10
      |
    6 | live = { profil = '1s', train = 'twice', clients = 7 }
      |          ^^^^^^ did you mean `profile`?

    error: unknown `train`: `twice`
     --> test.toml:6:33
      |
    6 | live = { profil = '1s', train = 'twice', clients = 7 }
      |                                 ^^^^^^^ valid are `each`, `once`

    error: 7 clients are not among those that are measured
     --> test.toml:6:52
      |
    6 | live = { profil = '1s', train = 'twice', clients = 7 }
      |                                                    ^ `clients` of [workload] has 1
    "
    );
    assert!(shown("system = 'mariadb'\nlive = 'yes'").contains("live = 'yes'"));
}

#[test]
fn all_are_warmed_up_alike() {
    let other = "[[candidate]]\nname = 'b'\nsystem = 'mariadb'\n";
    assert_snapshot!(
        shown(&format!("system = 'mariadb'\nlive = true\n{other}live = {{ profile = '1s' }}")),
        @r"
    error: candidates are to be optimized after different warm-ups
      --> test.toml:10:1
       |
    10 | live = { profile = '1s' }
       | ^^^^ have the same `train`, `clients` and `profile` in each `live`
    "
    );
    let agree = format!("system = 'mariadb'\nlive = true\n{other}live = {{ keep_order = true }}");
    assert_eq!(shown(&agree), "none");
}

#[test]
fn not_beside_an_insert_benchmark() {
    assert_snapshot!(shown("system = 'mariadb'\nlive = true\n[insert_benchmark]"), @r"
    error: a server is optimized in the warm-up of microbenchmarks only
     --> test.toml:6:1
      |
    6 | live = true
      | ^^^^ leave out `live` in an insert benchmark
    ");
}
