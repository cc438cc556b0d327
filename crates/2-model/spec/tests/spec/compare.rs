//! Words of a command line that become an experiment.

use std::collections::BTreeSet;

use dbdyno_document::Problems;
use dbdyno_spec::compare::{
    Comparison, Difference, MICROBENCHMARKS, OptionWords, ROWS, ScriptWords, SqlWords, Words,
    experiment, is_of_command_line, option_words,
};
use dbdyno_spec::experiment::{Experiment, PrivateServer, System};
use dbdyno_spec::{parse, parse_with_files};
use dbdyno_types::server::{Durability, ServerSystem, StorageEngine};
use dbdyno_types::{PublishedRelease, ReleaseOrigin};
use dbdyno_units::{Bytes, Nanos, Share};
use dbdyno_workloads::definition::Version;
use insta::assert_snapshot;
use proptest::prelude::*;

/// The command of this line, with options before or after candidates, without a shell's quotes.
fn compare(line: &str) -> Result<Comparison, Problems> {
    let (mut candidates, mut microbenchmarks, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    let (mut time, mut rows, mut target) = (None, None, None);
    let (mut script, mut options, mut sql, mut setup) = (None, Vec::new(), None, None);
    let mut words = line.split(' ');
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap().to_owned();
        match word {
            "-m" => microbenchmarks.push(value()),
            "--clients" => clients.extend(value().split(',').map(str::to_owned)),
            "--for" => time = Some(value()),
            "--rows" => rows = Some(value()),
            "--target" => target = Some(value()),
            "--script" => script = Some(value()),
            "--sql" => sql = Some(value()),
            "--setup" => setup = Some(value()),
            "--option" => options.push(value()),
            _ => candidates.push(word.to_owned()),
        }
    }
    let path = script.as_ref().map(|file| format!("/scripts/{file}"));
    let script = script.as_ref().zip(path.as_ref());
    let words = Words {
        command: "compare",
        directory: "/here",
        candidates: &candidates,
        microbenchmarks: &microbenchmarks,
        script: script.map(|(file, path)| ScriptWords {
            file,
            path,
            options: &options,
            version: Version::V1_0,
        }),
        sql: sql.as_deref().map(|file| SqlWords { file, setup: setup.as_deref() }),
        clients: &clients,
        time: time.as_deref(),
        rows: rows.as_deref(),
        target: target.as_deref(),
        is_screening: false,
        profile: false,
        instructions: false,
        waits: false,
    };
    experiment(&words, &installed, &files, &|_| Nanos::ZERO)
}

fn files(name: &str) -> Result<String, String> {
    if name == "/here/sub/my.cnf" {
        return Ok("[mysqld]\ndatadir=/x\nsort_buffer_size = 1M\n".to_owned());
    }
    if name == "/here/sub/versions.cnf" {
        let of_version = "[mariadb-10.11]\njoin_buffer_size = 3M\nsort_buffer_size = 2M";
        return Ok(format!("[mysqld]\nsort_buffer_size = 1M\n{of_version}\n"));
    }
    if let Some(file) = name.strip_prefix("/here/sub/").filter(|file| file.ends_with(".sql")) {
        return match file {
            "queries.sql" => Ok("-- name: newest\n-- of all\nSELECT 'a;b'\n  FROM t;\n\
                                 UPDATE t SET k = 1; -- the end\n"
                .to_owned()),
            "tables.sql" => Ok("CREATE TABLE t (k INT);".to_owned()),
            "bad.sql" => Ok("USE shop;\nSELECT :id;\n".to_owned()),
            "foreign.sql" => Ok("UPDATE shop.mine SET k = 1;".to_owned()),
            "empty.sql" => Ok("-- nothing\n".to_owned()),
            _ => Err(format!("reading {name}: no such file")),
        };
    }
    let event = match name {
        "/scripts/write-rows.lua" => "DELETE FROM t",
        name if name.starts_with("/scripts/") && name != "/scripts/missing.lua" => "SELECT 1",
        _ => return Err(format!("reading {name}: no such file")),
    };
    Ok(format!(
        "sysbench.cmdline.options = {{ tables = {{'Tables', 1}}, table_size = {{'Rows', 10}}, level = {{'Level', ''}} }}
         function prepare() end
         function thread_init() con = sysbench.sql.driver():connect() end
         function event() con:query('{event}') end"
    ))
}

#[test]
fn option_file_is_named_from_the_current_directory() {
    let Comparison { experiment, text, .. } =
        compare("mariadb mariadb:options=sub/my.cnf").unwrap();
    assert_eq!(names(&experiment), ["mariadb", "mariadb.my.cnf"]);
    assert!(text.contains("options = \"/here/sub/my.cnf\""), "{text}");
    let System::Private(server) = &experiment.candidates[1].system else { panic!() };
    assert_eq!(server.configuration, [("sort_buffer_size".to_owned(), "1M".to_owned())]);
    assert_eq!(server.options[0].left_out[0].setting, "datadir");
    let problems = compare("mariadb mariadb:options=other.cnf").unwrap_err().to_string();
    assert!(problems.contains("`options`: reading /here/other.cnf: no such file"), "{problems}");
}

fn installed(system: ServerSystem) -> Vec<String> {
    let names: &[&str] = match system {
        ServerSystem::PostgreSql => &["15", "18"],
        ServerSystem::MySql => &["8.0.37", "8.4.5-linux-glibc2.28-x86_64", "mysql-8.0.33"],
        ServerSystem::MariaDb => &[],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn valid(line: &str) -> Experiment {
    compare(line).unwrap_or_else(|problems| panic!("{line}\n{problems}")).experiment
}

fn names(experiment: &Experiment) -> Vec<&str> {
    experiment.candidates.iter().map(|one| one.name.as_str()).collect()
}

fn server(experiment: &Experiment, number: usize) -> &PrivateServer {
    match &experiment.candidates[number].system {
        System::Private(server) => server,
        other => panic!("no private server: {other:?}"),
    }
}

#[test]
fn engines_are_compared() {
    let experiment = valid("mariadb mariadb:engine=myrocks -m point-1");
    assert_eq!(experiment.name, "mariadb-vs-myrocks");
    assert_eq!((experiment.baseline.as_str(), experiment.control), ("mariadb", true));
    assert_eq!(names(&experiment), ["mariadb", "myrocks"]);
    assert_eq!(server(&experiment, 0).engine, Some(StorageEngine::InnoDb));
    assert_eq!(server(&experiment, 1).engine, Some(StorageEngine::MyRocks));
    assert_eq!(experiment.workload.rows, ROWS);
    let of_group = &experiment.workload.microbenchmarks;
    assert!(of_group.len() > 5 && of_group.iter().all(|one| one.group.name() == "point-1"));
}

#[test]
fn scripts_are_measured_instead_of_microbenchmarks() {
    let line = "mariadb postgresql --script reads.lua --option tables=4 --option level=on";
    let Comparison { experiment, text, .. } = compare(line).unwrap();
    let [one] = &experiment.workload.microbenchmarks[..] else { panic!("{text}") };
    assert_eq!((one.name.as_str(), one.writes()), ("reads", false));
    assert_eq!(experiment.workload.rows, 40_000);
    assert!(text.contains("script = \"/scripts/reads.lua\""), "{text}");
    assert!(text.contains("[microbenchmark.options]\ntables = 4\nlevel = \"on\"\n"), "{text}");
    let saved = parse_with_files("saved.toml", &text, &files).unwrap();
    assert_eq!(saved, experiment);

    let experiment = valid("mariadb --script write-rows.lua --rows 2500 --clients 1,8 --for 8s");
    let [one] = &experiment.workload.microbenchmarks[..] else { panic!("{experiment:?}") };
    assert_eq!((one.name.as_str(), one.writes()), ("write-rows", true));
    assert_eq!((experiment.workload.rows, experiment.schedule.budget), (2500, Nanos::from_secs(2)));
}

#[test]
fn each_statement_of_a_file_is_measured() {
    let line = "postgresql@15 mariadb --sql sub/queries.sql --setup sub/tables.sql";
    let Comparison { experiment, text, .. } = compare(line).unwrap();
    let [update, newest] = &experiment.workload.microbenchmarks[..] else { panic!("{text}") };
    assert_eq!((newest.name.as_str(), newest.writes()), ("newest", false));
    assert_eq!(newest.statements[0].sql, "SELECT 'a;b'\n  FROM t");
    assert_eq!(newest.group.name(), "query-newest");
    assert_eq!((update.name.as_str(), update.writes()), ("queries-2", true));
    assert_eq!(experiment.workload.setup[0].text, "CREATE TABLE t (k INT);");
    assert_eq!(parse_with_files("saved.toml", &text, &files).unwrap(), experiment);
    // Without own tables, those of dbdyno.
    assert!(valid("sqlite --sql sub/queries.sql").workload.setup.is_empty());

    for (file, message) in [
        ("--sql sub/bad.sql", "sub/bad.sql, line 1: `USE` begins neither a query nor"),
        ("--sql sub/empty.sql", "sub/empty.sql has no statement"),
        ("--sql sub/none.sql", "reading /here/sub/none.sql: no such file"),
        ("--sql sub/queries.sql --setup sub/none.sql", "reading /here/sub/none.sql: no such file"),
        ("--sql sub/queries.sql --setup sub/tables.txt", "`sub/tables.txt` does not end in `.sql`"),
    ] {
        let problems = compare(&format!("mariadb {file}")).unwrap_err().to_string();
        assert!(problems.contains(message), "{problems}");
    }
    assert!(compare("mariadb --sql sub/foreign.sql").is_ok());
    let found = problems("mysql://me@db1/ --sql sub/foreign.sql");
    let [(place, message, _)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(place, "sub/foreign.sql");
    assert!(
        message.starts_with("foreign-1: a change of shop.mine, a table of another"),
        "{message}"
    );
}

#[test]
fn script_with_the_name_of_a_builtin_microbenchmark_keeps_its_suffix() {
    for (file, name) in [
        ("select_random_points.lua", "select_random_points.lua"),
        ("insert.lua", "insert.lua"),
        ("writes.lua", "writes.lua"),
        ("oltp_read_only.lua", "oltp_read_only"),
    ] {
        let experiment = valid(&format!("mariadb --script {file}"));
        let names: Vec<&str> =
            experiment.workload.microbenchmarks.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn problems_of_scripts_are_shown_at_their_words() {
    for (line, place) in [
        ("mariadb --script missing.lua", "missing.lua"),
        ("mariadb --script reads.lua --option tabels=2", "tabels=2"),
        ("mariadb --script reads.lua --option tables", "tables"),
        ("mariadb --script reads.lua --option threads=2", "threads=2"),
        ("mariadb sqlite --script reads.lua", "sqlite"),
    ] {
        let problems = compare(line).unwrap_err();
        let spans: Vec<&str> =
            problems.list.iter().map(|one| &problems.text[one.span.start..one.span.end]).collect();
        assert_eq!(spans, [place], "{problems}");
    }
    let twice = problems("mariadb --script reads.lua --option table-size=1 --option table_size=2");
    let [(place, message, _)] = &twice[..] else { panic!("{twice:?}") };
    assert_eq!((place.as_str(), message.contains("is set twice")), ("table_size=2", true));
    // Their product has more than 64 bits.
    let large = "--option tables=4294967296 --option table_size=4294967296";
    let large = problems(&format!("mariadb --script reads.lua {large}"));
    assert!(large[0].1.contains("`rows` is out of range"), "{large:?}");
    let missing = compare("mariadb --script missing.lua").unwrap_err().to_string();
    assert!(missing.contains("from the current directory"), "{missing}");
    assert!(!missing.contains("experiment"), "{missing}");
}

#[test]
fn releases_are_compared_with_several_clients() {
    let line = "postgresql@15 postgresql@18 mysql@sid -m read-only_range=100 --clients 16";
    let experiment = valid(line);
    assert_eq!(names(&experiment), ["postgresql-15", "postgresql-18", "mysql-sid"]);
    let installed = |name: &str| Some(ReleaseOrigin::Installed { name: name.to_owned() });
    assert_eq!(server(&experiment, 0).release, installed("15"));
    assert_eq!(server(&experiment, 1).release, installed("18"));
    let suite = Some(ReleaseOrigin::Debian { suite: "sid".to_owned() });
    assert_eq!(server(&experiment, 2).release, suite);
    // Directories of archives have longer names.
    assert_eq!(server(&valid("mysql@8.4.5 mysql@8.0"), 0).release, installed("8.4.5"));
    assert_eq!(experiment.workload.clients, [16]);
    let sweep = valid("postgresql -m point-1 -m scan* --clients 1,4");
    assert_eq!(sweep.workload.clients, [1, 4]);
    assert!(sweep.workload.microbenchmarks.iter().any(|one| one.name == "scan_range=100"));
}

#[test]
fn settings_are_compared_in_a_given_time() {
    let experiment = valid(
        "mariadb mariadb{innodb_doublewrite=OFF,max_connections=300} mariadb:durability=strict \
         --for 32s --rows 5000 -m update-index* -m point-query_range=100",
    );
    assert_eq!(
        names(&experiment),
        ["mariadb", "mariadb.doublewrite-OFF.max_connections-300", "mariadb.strict"]
    );
    let settings = [("innodb_doublewrite", "OFF"), ("max_connections", "300")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(server(&experiment, 1).configuration, settings);
    assert_eq!(server(&experiment, 2).durability, Durability::Strict);
    assert_eq!(experiment.workload.rows, 5000);
    // Four instances and two microbenchmarks.
    assert_eq!(experiment.schedule.budget, Nanos::from_secs(4));
    // A write slice for each of 36 blocks.
    assert_eq!(experiment.schedule.write_slice, Nanos::from_millis(111));
}

fn each_option(words: &[&str]) -> Result<OptionWords, Problems> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let experiment = valid(&words.join(" "));
    option_words(&words, &experiment, &installed)
}

#[test]
fn settings_that_differ_are_left_out_one_by_one() {
    let full = "mariadb:name=tuned{sync_binlog=0,sql_mode='A,B',max_connections=300,port_open=1}";
    let baseline = "mariadb{max-connections=300,port_open=0,skip_log=1}";
    let words = each_option(&[baseline, full]).unwrap();
    let texts: Vec<String> = words.differences.iter().map(Difference::text).collect();
    assert_eq!(texts, ["sync_binlog=0", "sql_mode=A,B", "port_open=1", "skip_log not set"]);
    assert_eq!(
        words.word("all", &[]),
        "mariadb:name=all{max_connections=300,sync_binlog=0,sql_mode='A,B',port_open=1}"
    );
    assert_eq!(
        words.word("without", &[1, 2]),
        "mariadb:name=without{max_connections=300,sync_binlog=0,port_open=0}"
    );
    // All of them are those of the baseline.
    let none = valid(&words.word("none", &[0, 1, 2, 3]));
    let mut settings = server(&none, 0).configuration.clone();
    settings.sort();
    let expected = [("max_connections", "300"), ("port_open", "0"), ("skip_log", "1")];
    assert_eq!(settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let sqlite = ["sqlite:rel", "sqlite:rel{page_size=8KiB,synchronous=full}"];
    assert_eq!(each_option(&sqlite).unwrap().differences.len(), 2);
}

#[test]
fn settings_for_one_version_are_left_out_too() {
    let words = each_option(&["mariadb", "mariadb:options=sub/versions.cnf"]).unwrap();
    let texts: Vec<String> = words.differences.iter().map(Difference::text).collect();
    let (all, version) = ("sort_buffer_size=1M", "10.11/sort_buffer_size=2M");
    assert_eq!(texts, [all, "10.11/join_buffer_size=3M", version]);
    assert_eq!(words.differences[2].name(), "sort_buffer_size");
    let without = words.word("without", &[1]);
    assert_eq!(without, format!("mariadb:name=without{{{all},{version}}}"));
    let without = valid(&without);
    let [first, second] = &server(&without, 0).configuration[..] else { panic!() };
    assert_eq!((&*first.0, &*first.1), ("sort_buffer_size", "1M"));
    assert_eq!((&*second.0, &*second.1), ("10.11/sort_buffer_size", "2M"));
    // One in common, which comes before one for all versions.
    let common = each_option(&["mariadb{10.11/a=1}", "mariadb{a=2,10.11/a=1,b=1}"]).unwrap();
    assert_eq!(common.word("all", &[]), "mariadb:name=all{a=2,b=1,10.11/a=1}");
    assert!(compare("mariadb{x/a=1}").is_err());
}

#[test]
fn settings_need_two_candidates_that_differ_in_them_only() {
    for (words, message) in [
        (&["mariadb{a=1,b=2}"][..], "needs two candidates"),
        (&["mariadb", "mariadb{a=1,b=2}", "mysql"], "needs two candidates"),
        (&["mariadb", "mysql{a=1,b=2}"], "differ in more than settings"),
        (&["mariadb", "mariadb:durability=strict{a=1,b=2}"], "differ in more than settings"),
        (&["mariadb{a=1}", "mariadb{a=1,b=2}"], "differ in one setting"),
        (&["mysql://me@h/", "mariadb{a=1,b=2}"], "a server with a URL"),
    ] {
        let problems = each_option(words).unwrap_err();
        assert!(problems.list[0].message.contains(message), "{problems}");
    }
}

#[test]
fn screening_is_short_and_in_one_start() {
    let candidates = ["mariadb".to_owned()];
    let words = Words {
        command: "compare",
        candidates: &candidates,
        is_screening: true,
        profile: false,
        ..Words::default()
    };
    let screening = experiment(&words, &installed, &files, &|_| Nanos::ZERO).unwrap();
    let schedule = screening.experiment.schedule;
    assert_eq!((schedule.restarts, schedule.budget), (1, Nanos::from_secs(2)));
}

#[test]
fn time_in_all_includes_warm_up() {
    let candidates = ["sqlite".to_owned(), "sqlite:rel_o2".to_owned()];
    let microbenchmarks = ["scan_range=100".to_owned()];
    let words = Words {
        command: "compare",
        candidates: &candidates,
        microbenchmarks: &microbenchmarks,
        time: Some("30s"),
        ..Words::default()
    };
    let budget = |measuring: &dyn Fn(&Experiment) -> Nanos| {
        let comparison = experiment(&words, &installed, &files, measuring).unwrap();
        assert_eq!(comparison.asked, Some(Nanos::from_secs(30)));
        comparison.experiment.schedule.budget.as_secs_f64()
    };
    assert!((budget(&|_| Nanos::ZERO) - 10.0).abs() < 0.01);
    // Warm-up takes as long as the slices of three instances, and a second more.
    let doubled = |one: &Experiment| one.schedule.budget.times(6) + Nanos::from_secs(1);
    assert!((budget(&doubled) - 29.0 / 6.0).abs() < 0.1);
    // The least number of blocks takes a minute: less time in slices changes nothing.
    assert!((budget(&|_| Nanos::from_secs(60)) - 10.0).abs() < 0.01);
}

#[test]
fn value_in_quotes_may_contain_commas_braces_and_the_other_quote() {
    let word =
        "mariadb{optimizer_switch='mrr=on,index_merge=off',init_connect=\"SET_@a='}'\",a=b'c}";
    let experiment = valid(word);
    let settings = [
        ("optimizer_switch", "mrr=on,index_merge=off"),
        ("init_connect", "SET_@a='}'"),
        ("a", "b'c"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(server(&experiment, 0).configuration, settings);
}

#[test]
fn counts_may_have_a_unit_and_intervals_a_target() {
    let experiment = valid("mariadb postgresql --rows 100k --clients 1,1k --target 2%");
    assert_eq!(experiment.workload.rows, 100_000);
    assert_eq!(experiment.workload.clients, [1, 1000]);
    assert_eq!(experiment.schedule.target, Share::from_percent(2.0));
    assert_eq!(valid("sqlite --target 2%").schedule.target, Share::from_percent(2.0));
}

#[test]
fn release_is_found_by_the_version_that_a_suite_has() {
    let line = "mariadb@10.5 postgresql@17 mariadb@trixie postgresql@15 mysql@9.7";
    let experiment = valid(line);
    let names_of = ["mariadb-10.5", "postgresql-17", "mariadb-11.8", "postgresql-15", "mysql-9.7"];
    assert_eq!(names(&experiment), names_of);
    let debian = |suite: &str| Some(ReleaseOrigin::Debian { suite: suite.to_owned() });
    assert_eq!(server(&experiment, 0).release, debian("bullseye"));
    assert_eq!(server(&experiment, 1).release, debian("trixie"));
    assert_eq!(server(&experiment, 4).release, debian("sid"));
    // One that is installed comes first.
    let installed = Some(ReleaseOrigin::Installed { name: "15".to_owned() });
    assert_eq!(server(&experiment, 3).release, installed);
}

#[test]
fn release_is_found_by_the_version_that_a_registry_has() {
    let experiment = valid("mysql@8.0.33 mysql@5.6 mariadb@10.11.5 postgresql@12");
    let names_of = ["mysql-8.0.33", "mysql-5.6.14", "mariadb-10.11.5", "postgresql-12.22"];
    assert_eq!(names(&experiment), names_of);
    for (index, system) in [(0, ServerSystem::MySql), (3, ServerSystem::PostgreSql)] {
        let published = PublishedRelease::by_name(system, names_of[index]).unwrap();
        assert_eq!(server(&experiment, index).release, Some(published.origin));
    }
    // An installed one has this name, too: as in experiments, the published one is meant.
    let same_name = valid("mysql@mysql-8.0.33");
    assert_eq!(server(&same_name, 0).release, server(&experiment, 0).release);
}

#[test]
fn value_of_a_setting_may_look_like_a_url() {
    let experiment = valid("mariadb mariadb{wsrep_cluster_address=gcomm://a}");
    let setting = ("wsrep_cluster_address".to_owned(), "gcomm://a".to_owned());
    assert_eq!(server(&experiment, 1).configuration, [setting]);
}

#[test]
fn defaults_are_a_reading_and_a_writing_transaction_with_early_ratios() {
    let experiment = valid("mariadb postgresql");
    let selected = &experiment.workload.microbenchmarks;
    let selected: Vec<&str> = selected.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(selected, MICROBENCHMARKS);
    let schedule = &experiment.schedule;
    assert_eq!(schedule.budget, Nanos::from_secs(5));
    assert_eq!(schedule.write_slice, Nanos::from_millis(200));
    // An interval needs six blocks: the first start has them.
    assert!(schedule.min_blocks >= 6 * schedule.restarts, "{schedule:?}");
}

#[test]
fn existing_servers_are_compared() {
    let experiment = valid("mysql://bench@db1/ mariadb://bench@db2:3307/ postgres://me@h/shop");
    assert_eq!(names(&experiment), ["db1", "db2", "h"]);
    let systems: Vec<&str> = experiment.candidates.iter().map(|one| one.system.name()).collect();
    assert_eq!(systems, ["mysql", "mariadb", "postgresql"]);
    assert_eq!(experiment.schedule.restarts, 1);
}

#[test]
fn variants_are_compared_with_a_profile_of_the_same_work() {
    let line = "sqlite sqlite:rel_o2:compiler=clang sqlite:rel_lto_pgo{page_size=8KiB,cache_size=65536} \
                -m scan_range=100";
    let experiment = valid(line);
    assert_eq!(names(&experiment)[..2], ["sqlite", "rel_o2.clang"]);
    let builds: Vec<_> =
        experiment.candidates.iter().map(|one| one.system.build().unwrap()).collect();
    assert_eq!([&builds[0].variant, &builds[1].variant], ["rel", "rel_o2"]);
    assert_eq!(builds[1].compiler, "clang");
    assert_eq!(builds[2].training.as_ref().unwrap().words, ["scan_range=100"]);
    let System::Sqlite { config, .. } = &experiment.candidates[2].system else { panic!() };
    assert_eq!(config.page_size, Bytes::from_kib(8));
    assert_eq!(config.cache_size, Bytes::from_kib(64));
    // Embedded: the schedule of experiment files.
    assert_eq!(experiment.schedule.budget, Nanos::from_secs(2));
    let compiled = valid("postgresql postgresql:rel_o2:source=/src/pg:flags=-fno-plt");
    assert_eq!(server(&compiled, 1).build.as_ref().unwrap().flags, ["-fno-plt"]);
}

#[test]
fn text_says_where_it_is_from_and_why() {
    let comparison = compare("mariadb@sid mariadb{a.b=x} --for 1min").unwrap();
    assert!(is_of_command_line(&comparison.text));
    assert!(!is_of_command_line("name = \"mine\"\n# Written by this command:\n"));
    assert_snapshot!(comparison.text, @r#"
    # Written by this command:
    # dbdyno compare mariadb@sid 'mariadb{a.b=x}' --for 1min
    # Run it again with `dbdyno run FILE`. All keys: docs/experiments.md

    name = "mariadb-sid-vs-mariadb.a.b-x"
    baseline = "mariadb-sid"

    [workload]
    # Few, so that loading takes seconds. The default of other files is 100_000.
    rows = 20000
    microbenchmarks = ["read-only.pre_range=100", "read-write_range=100"]

    [schedule]
    # 1min in all, with warm-up, for 3 instances, one of them the control, and 2 microbenchmarks.
    budget = "10s"
    # At least six blocks in each of six starts, so that the first one gives a ratio.
    min_blocks = 36
    # Short, for a ratio within seconds. Remove this for narrower intervals: with the
    # default of 1s, flushing and compaction disturb other candidates less.
    write_slice = "200ms"

    [[candidate]]
    name = "mariadb-sid"
    system = "mariadb"
    release = { debian = "sid" }

    [[candidate]]
    name = "mariadb.a.b-x"
    system = "mariadb"
    [candidate.configuration]
    "a.b" = "x"
    "#);
}

/// The problems, each with the part of the line that it points at.
fn problems(line: &str) -> Vec<(String, String, String)> {
    let problems = compare(line).unwrap_err();
    assert_eq!(problems.file, "command line");
    let shown = |one: &dbdyno_document::Problem| {
        let at = problems.text[one.span.start..one.span.end].to_owned();
        (at, one.message.clone(), one.help.clone().unwrap_or_default())
    };
    problems.list.iter().map(shown).collect()
}

#[test]
fn problem_points_at_the_part_of_the_word_and_names_the_nearest_valid_one() {
    let mut wrong = Vec::new();
    for (line, at, message, help) in [
        ("mraiadb", "mraiadb", "unknown system `mraiadb`", "did you mean `mariadb`?"),
        ("oracle", "oracle", "unknown system", "valid are `sqlite`, `mariadb`"),
        ("myrocks", "myrocks", "unknown system", "did you mean `mariadb:engine=myrocks`?"),
        ("mariadb:engin=x", "engin", "unknown key `engin`", "did you mean `engine`?"),
        (
            "mariadb:a_b_c=1",
            "a_b_c",
            "unknown key",
            "for a setting of the database write `{a_b_c=1}`",
        ),
        ("mariadb:host=db1", "host", "unknown key", "`host` needs an experiment file"),
        ("mariadb:tls=off", "tls", "unknown key", "write one with `--save`"),
        ("mariadb:matrix=a", "matrix", "unknown key", "add it there"),
        ("sqlite:rel:packaging=flags", "packaging", "unknown key", "needs an experiment file"),
        ("mariadb:variant=rel", "variant", "unknown key", "write `mariadb:rel`"),
        ("mariadb:release=trixie", "release", "unknown key", "write `mariadb@trixie`"),
        ("mariadb:engine=myrock", "myrock", "myrock", "did you mean `myrocks`?"),
        ("mariadb:myrocks", "myrocks", "unknown variant", "did you mean `engine=myrocks`?"),
        ("postgresql:engine=x", "engine=x", "`engine`", "PostgreSQL has only one"),
        ("sqlite:rel_lto_pog", "rel_lto_pog", "unknown variant", "did you mean `rel_lto_pgo`?"),
        ("sqlite:rel_o3", "rel_o3", "unknown variant", "did you mean `rel`, which is compiled"),
        ("sqlite:xyzzy", "xyzzy", "unknown variant", "dbdyno list variants"),
        ("sqlite:rel:rel_o2", "rel_o2", "second variant", "write two candidates"),
        ("sqlite@15:rel", "15", "SQLite has no releases", "remove it"),
        ("mariadb:rel", "rel", "no source to compile", ":source="),
        ("postgresql@51", "51", "no release `51` of PostgreSQL is installed", "`15`"),
        (
            "postgresql@99.9",
            "99.9",
            "no release",
            "installed: 15, 18; of Debian: 13 (bullseye), 15 (bookworm)",
        ),
        ("mariadb@trixi", "trixi", "no release", "did you mean `trixie`?"),
        (
            "mysql@bookworm",
            "bookworm",
            "Debian's bookworm has no packages of MySQL",
            "of Debian: 9.7 or newer (sid)",
        ),
        ("mysql:/me@host/", "/me@host/", "unknown variant", "write a URL as `mysql://"),
        ("mariadb -m point-qeury*", "point-qeury*", "point-qeury*", "did you mean `point-query*`?"),
        ("mariadb{a=b", "{a=b", "missing `}`", "end the word"),
        ("mariadb{fsync}", "fsync", "setting `fsync` has no value", "SETTING=VALUE"),
        ("mariadb{m=A,B}", "B", "setting `B` has no value", "in quotes: `m='A,B'`"),
        ("mariadb{a='1,b=2}", r"mariadb{a='\''1,b=2}", "missing `'` at the end of", "commas"),
        ("mariadb{a=\"1\"2,b=2}", "2", "text after the closing quote", "quoted as a whole"),
        ("mariadb{a=1,a=2}", "a", "`a` is set twice", "remove one of them"),
        ("sqlite{page_size=8KiB,page_size=4KiB}", "page_size", "set twice", "remove one of them"),
        ("mariadb{a-b=1,a_b=2}", "a_b", "`a_b` is set twice", "`a-b` is the same setting"),
        ("mariadb{1a=b}", "1a", "`1a` cannot be the name of a setting", "names"),
        (
            "sqlite{pgae_size=8KiB}",
            "pgae_size",
            "unknown key `pgae_size`",
            "did you mean `page_size`?",
        ),
        ("sqlite{page_size=7KiB}", "7KiB", "must be a power of two", "4 KiB"),
        ("mariadb --rows 10", "10", "rows", ""),
        ("mariadb --rows many", "many", "`many` is not a count", "`100k`"),
        ("mariadb --rows 2m", "2m", "`m` is not a unit of a count", "did you mean `2M`?"),
        ("mariadb --clients x", "x", "`x` is not a count", ""),
        ("mariadb --target 2", "2", "`2` has no unit", "`0.5%`"),
        ("mariadb --clients 4,4", "4", "duplicate number of clients 4", "once"),
        ("mariadb --for 30", "30", "30", "s"),
        ("mariadb --for 9000h", "9000h", "budget", ""),
        ("mysq://me@h/", "mysq", "unknown scheme `mysq`", "did you mean `mysql`?"),
        ("mysql://h/", "h", "`url` has no user", "mysql://user@host"),
        ("mysql://me@h/?tsl=off", "tsl", "unknown key in `url`", "did you mean `tls`?"),
        ("mariadb:name=a/b mysql", "a/b", "`a/b` cannot be a name", "letters"),
        ("mariadb:name=a mysql:name=a", "a", "duplicate candidate name `a`", "choose another name"),
        ("mariadb:name=control", "control", "reserved name `control`", ""),
        ("mariadb:name=a'b mysql", r"mariadb:name=a'\''b", "`a'b` cannot be a name", "letters"),
        ("mariadb -m a'b", r"a'\''b", "no microbenchmark is called `a'b`", "select by name"),
        ("mariadb:live=yes", "live=yes", "live", ""),
    ] {
        let found = problems(line);
        let is_expected = match &found[..] {
            [(found_at, what, advice)] => {
                found_at == at && what.contains(message) && advice.contains(help)
            }
            _ => false,
        };
        if !is_expected {
            wrong.push(format!("{line}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_unknown_words_are_reported_together() {
    let found = problems("mraiadb sqlite:rel_o22 postgresql{x}");
    let at: Vec<&str> = found.iter().map(|(at, ..)| at.as_str()).collect();
    assert_eq!(at, ["mraiadb", "rel_o22", "x"]);
    assert_snapshot!(compare("mariadb mariadb:engine=rocks").unwrap_err(), @r"
    error: unknown `engine`: `rocks`
     --> command line:1:39
      |
    1 | dbdyno compare mariadb mariadb:engine=rocks
      |                                       ^^^^^ did you mean `myrocks`?
    ");
}

#[test]
fn passwords_are_never_shown() {
    for line in [
        "mysql://me:geheim@h/",
        "mysql://me:ge/heim@h/",
        "mysql://me:ge'heim@h/",
        "mysql://me:ge'heim@h/ mraiadb",
        "mysql://me:ge\\heim@h/",
        "mysql://me:geheim@h/ mraiadb",
        "postgres://me@h/?password=geheim",
        "mysql://me:geheim@h/?tsl=off",
    ] {
        let shown = compare(line).unwrap_err().to_string();
        assert!(!shown.contains("heim"), "{shown}");
    }
}

/// A valid candidate.
fn candidate() -> impl Strategy<Value = String> {
    let settings = || {
        prop::option::of(
            "\\{[a-z][a-z0-9_.-]{0,12}=([ !#-&(-+.-z][ -+.-z]{0,9}|'[ -&(-z]{0,10}')?\\}",
        )
        .prop_map(Option::unwrap_or_default)
    };
    let server =
        ("mariadb|mysql", "(:engine=(myrocks|innodb))?(:statements=text)?(:durability=strict)?")
            .prop_map(|(system, keys)| system + &keys);
    prop_oneof![
        (server, settings()).prop_map(|(server, settings)| server + &settings),
        ("postgresql(@(15|18|sid))?(:program=/[a-z]{1,9})?", settings())
            .prop_filter("exclude each other", |(words, _)| !(words.contains('@')
                && words.contains(':')))
            .prop_map(|(words, settings)| words + &settings),
        "sqlite(:(rel|rel_o2|rel_lto_pgo|rel_withdbg_bolt))?(:compiler=clang)?(\\{synchronous=full\\})?",
        "(mysql|mariadb)://[a-z]{1,5}@[a-z]{1,5}(:330[0-9])?/",
    ]
}

proptest! {
    #[test]
    fn valid_words_give_the_experiment_that_their_saved_text_gives(
        candidates in prop::collection::vec(candidate(), 1..5),
        clients in prop::option::of(1_u32..1025),
        seconds in prop::option::of(1_u32..500),
        rows in prop::option::of(10_001_u32..1_000_000),
    ) {
        let text = |number: u32| number.to_string();
        let clients: Vec<String> = clients.into_iter().map(text).collect();
        let (time, rows) = (seconds.map(|seconds| format!("{seconds}s")), rows.map(text));
        let words = Words {
            candidates: &candidates,
            clients: &clients,
            time: time.as_deref(),
            rows: rows.as_deref(),
            command: "compare",
            ..Words::default()
        };
        let Comparison { experiment, text, .. } = experiment(&words, &installed, &files, &|_| Nanos::ZERO)
            .map_err(|problems| TestCaseError::fail(format!("{candidates:?}\n{problems}")))?;
        prop_assert_eq!(experiment.candidates.len(), candidates.len());
        let names: BTreeSet<&str> = names(&experiment).into_iter().collect();
        prop_assert_eq!(names.len(), candidates.len());
        prop_assert_eq!(&experiment.baseline, &experiment.candidates[0].name);
        for (word, candidate) in candidates.iter().zip(&experiment.candidates) {
            prop_assert!(word.starts_with(candidate.system.name()), "{} {:?}", word, candidate);
            let strict = matches!(&candidate.system,
                System::Private(server) if server.durability == Durability::Strict);
            prop_assert_eq!(word.contains(":durability=strict"), strict);
        }
        let saved = parse("saved.toml", &text);
        prop_assert_eq!(saved.unwrap(), experiment);
    }

    #[test]
    fn arbitrary_words_never_panic(
        words in prop::collection::vec(
            "\\PC{0,12}|(mariadb|sqlite|postgresql)[@:{}=,a-z'\"\n\\\\ ]{0,20}|[a-z]{1,8}://\\PC{0,12}",
            0..4,
        ),
        option in prop::option::of("\\PC{0,8}|[0-9]{1,12}(s|ms|h)?"),
    ) {
        let list: Vec<String> = option.clone().into_iter().collect();
        let words = Words {
            command: "compare",
            directory: "/",
            script: None,
            sql: None,
            candidates: &words,
            microbenchmarks: if words.len() == 1 { &list } else { &[] },
            clients: if words.len() == 2 { &list } else { &[] },
            time: option.as_deref().filter(|_| words.len() == 3),
            rows: option.as_deref().filter(|_| words.is_empty()),
            target: option.as_deref().filter(|_| words.len() == 2),
            is_screening: words.len() == 3,
            profile: false,
            instructions: false,
            waits: false,
        };
        match experiment(&words, &installed, &files, &|_| Nanos::ZERO) {
            Ok(Comparison { experiment, text, .. }) => {
                prop_assert_eq!(parse("saved.toml", &text).unwrap(), experiment);
            }
            Err(problems) => {
                prop_assert!(!problems.list.is_empty());
                let _ = problems.to_string();
            }
        }
    }
}
