//! Arbitrary text never makes the parser panic, and invalid text is reported.

use dbdyno_spec::parse;
use proptest::prelude::*;

/// One experiment of each kind: compiled, private server, existing server.
const VALID: [&str; 3] = [
    include_str!("../../../../../experiments/quickstart.toml"),
    include_str!("../../../../../experiments/postgresql.toml"),
    include_str!("../../../../../experiments/existing-server.toml"),
];

/// Parses the text; displaying its problems must not panic either.
fn check(text: &str) {
    if let Err(problems) = parse("test.toml", text) {
        assert!(!problems.list.is_empty());
        let _ = problems.to_string();
    }
}

/// A key that is valid in some table, or in none.
fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "name",
        "baseline",
        "control",
        "seed",
        "tables",
        "rows",
        "clients",
        "microbenchmarks",
        "slice",
        "pace",
        "warmup_blocks",
        "counters",
        "target",
        "budget",
        "system",
        "dbdyno",
        "page_size",
        "cache_size",
        "journal_mode",
        "variant",
        "compiler",
        "flags",
        "injected_delay",
        "live",
        "samples_of",
        "bolt",
        "profile",
        "engine",
        "program",
        "durability",
        "statements",
        "restarts_after_death",
        "configuration",
        "url",
        "schema",
        "pid",
        "mariadb",
        "postgresql",
        "sqlite",
        "group",
        "ranges",
        "stages",
        "transaction",
        "throughput",
        "sql",
        "draw",
        "affects",
        "repeat",
        "table",
        "workload",
        "candidate",
        "microbenchmark",
        "id",
        "a.b",
    ])
}

/// A value of any type, mostly one that is valid for some key.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "true",
            "0",
            "1",
            "-1",
            "100_000",
            "9223372036854775807",
            "1.5",
            "nan",
            "1979-05-27",
            "'rel'",
            "'50ms'",
            "'0.5%'",
            "'4KiB'",
            "'all'",
            "'time'",
            "'sqlite'",
            "'writes'",
            "'point-1'",
            "'0-3'",
            "'keys'",
            "'0..range'",
            "'{R}'",
            "'list({R}, uniform)'",
            "'id + {R} - 1'",
            "'SELECT :id FROM {table} WHERE id IN (:ids)'",
            "[]",
            "[1, 2]",
            "'mariadb'",
            "'postgresql'",
            "'myrocks'",
            "'/usr/sbin/mariadbd'",
            "'strict'",
            "'text'",
            "{ jit = false, 'x.y' = 1.5, max_connections = -1 }",
            "'mysql://me@localhost/?socket=/x'",
            "'postgres://me@[::1]:1/db?tls=verified'",
            "['all', 'scan*']",
            "['pre', 'post']",
            "{}",
            "{ id = 'uniform' }",
            "{ ids = 'list(3, zipf(1))', id = 'fixed(1)' }",
            "[{}]",
            "[{ sql = 'SELECT 1 FROM {table}', rows = 1 }]",
            "[{ sql = 'SELECT {R} FROM {table} WHERE k = :é', draw = { é = 'c' }, rows = 'any' }]",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9 +(){}:.%*µ-]{0,12}".prop_map(|text| format!("'{text}'")),
    ]
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (key(), value()).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => prop::sample::select(vec![
            "[workload]", "[schedule]", "[cpus]", "[checks]", "[sqlite]", "[[candidate]]",
            "[mariadb]", "[postgresql]", "[candidate.configuration]",
            "[[microbenchmark]]", "[[microbenchmark.statements]]",
            "[microbenchmark.statements.draw]", "[candidate.sqlite]",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_does_not_panic(text in "[\\s\\S]*") {
        check(&text);
    }

    #[test]
    fn any_lines_do_not_panic(lines in prop::collection::vec(line(), 0..12)) {
        check(&lines.join("\n"));
    }

    /// Adds keys that a valid experiment does not have, so that there is no TOML syntax error.
    #[test]
    fn any_line_in_a_valid_experiment_does_not_panic(
        valid in prop::sample::select(&VALID[..]), at in 0..60_usize, added in line()
    ) {
        let mut lines: Vec<&str> = valid.lines().collect();
        lines.insert(at.min(lines.len()), &added);
        check(&lines.join("\n"));
    }

    #[test]
    fn any_value_in_a_valid_experiment_does_not_panic(
        valid in prop::sample::select(&VALID[..]), at: prop::sample::Index, new in value()
    ) {
        let with_values: Vec<usize> = valid
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(" = ") && !line.starts_with('#'))
            .map(|(i, _)| i)
            .collect();
        let at = with_values[at.index(with_values.len())];
        let changed = valid.lines().enumerate().map(|(i, line)| match line.split_once(" = ") {
            Some((key, _)) if i == at => format!("{key} = {new}"),
            _ => line.to_owned(),
        });
        check(&changed.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn any_text_in_a_statement_does_not_panic(
        sql in "[a-zA-Z {}:()é,=]{0,30}", how in "[a-z0-9{}R+()., -]{0,15}", rows in "[a-z0-9.{}R]{0,8}"
    ) {
        check(&format!(
            "name = 'x'\nbaseline = 'a'\n\
             [[candidate]]\nname = 'a'\nsystem = 'sqlite'\nvariant = 'rel'\n\
             [[microbenchmark]]\nname = 'mine'\ngroup = 'point-1'\nranges = [7]\n\
             [[microbenchmark.statements]]\nsql = '{sql} {{table}} (:id)'\n\
             draw = {{ id = '{how}' }}\nrows = '{rows}'\n"
        ));
    }

    /// Passwords are not shown, whatever the URL.
    #[test]
    fn any_url_does_not_panic_or_show_a_password(
        system in prop::sample::select(vec!["mariadb", "postgresql"]),
        start in "(mysql|postgres)://[a-z%@/:?&=+.\\[\\]0-9 #µ-]{0,20}",
        end in "[a-z%@/:?&=+.\\[\\]0-9 #µ-]{0,20}",
    ) {
        for url in [format!("{start}{end}"), format!("{start}:GEHEIM@{end}")] {
            let text = format!(
                "name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\n\
                 system = '{system}'\nurl = \"{url}\"\n"
            );
            check(&text);
            if let Err(problems) = parse("test.toml", &text) {
                prop_assert!(!problems.to_string().contains("GEHEIM"), "{problems}");
            } else {
                // In the query, the text is part of a path.
                let before_query = url.split('?').next().unwrap_or_default();
                prop_assert!(!before_query.contains("GEHEIM"), "{url}");
            }
        }
    }
}
