//! Schemas on existing MariaDB servers: whose they are, and what is dropped.

use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_engines::mysql::MySql;
use dbdyno_engines::server::{Server, initialise};
use dbdyno_engines::{Engine, SchemaRemoval, TableCreation};
use dbdyno_types::server::{StatementMode, StorageEngine};

use crate::helpers::{check_left_statement_ends, reason, run};
use crate::mariadb::{Run, create_data, engine_of, load, names, plan, tables};

const ROWS: u64 = 1_000;

/// The engine of a run on an existing server, in the schema `dbdyno`.
fn of_run(server: &Server, id: u8) -> MySql {
    engine_of(server, StorageEngine::InnoDb, Some(run(id)))
}

fn load_all(engine: &MySql) {
    let mut connection = engine.connect().unwrap();
    for table in tables() {
        load(engine, &mut connection, &table, ROWS);
    }
}

/// Runs a test on a server, with a connection of its owner.
fn on_server(test: impl FnOnce(&Server, &mut MySqlConnection)) {
    let run = Run::new();
    let plan = plan(StorageEngine::InnoDb, &[]);
    create_data(&plan, &run.server_dir("a"));
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let mut owner = MySqlConnection::connect(&server.target(), StatementMode::Text).unwrap();
    test(&server, &mut owner);
    drop(owner);
    server.stop().unwrap();
    run.end();
}

#[test]
fn objects_of_others_survive() {
    on_server(|server, owner| {
        let ours = of_run(server, 1);
        ours.create_schema().unwrap();
        load_all(&ours);
        owner.run("CREATE DATABASE theirs").unwrap();
        owner
            .run(
                "CREATE TABLE theirs.child (id INT PRIMARY KEY, \
                 CONSTRAINT parent FOREIGN KEY (id) REFERENCES dbdyno.sbtest1 (id))",
            )
            .unwrap();
        for error in [ours.drop_schema().unwrap_err(), ours.create_schema().unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("foreign key parent of table theirs.child"), "{error}");
        }
        let rows = ours.state_snapshot(&mut ours.connect().unwrap(), &names()).unwrap().rows;
        assert_eq!(rows, 2 * ROWS);
        owner.run("DROP TABLE theirs.child").unwrap();

        owner.run("CREATE VIEW theirs.v AS SELECT id FROM dbdyno.sbtest1").unwrap();
        for (create, name, drop) in [
            ("CREATE TABLE dbdyno.stranger (id INT)", "base table stranger", "TABLE stranger"),
            ("CREATE VIEW dbdyno.v AS SELECT 1", "view v", "VIEW v"),
            ("CREATE SEQUENCE dbdyno.s", "sequence s", "SEQUENCE s"),
            ("CREATE PROCEDURE dbdyno.p() SELECT 1", "procedure p", "PROCEDURE p"),
            ("CREATE EVENT dbdyno.e ON SCHEDULE EVERY 1 YEAR DO SELECT 1", "event e", "EVENT e"),
        ] {
            owner.run(create).unwrap();
            let error = ours.drop_schema().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("Drop or move them"), "{error}");
            owner.run(&format!("DROP {}", drop.replace(' ', " dbdyno."))).unwrap();
        }
        // The run's tables are gone, and it may load them again.
        ours.create_schema().unwrap();
        load_all(&ours);
        assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
        assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Absent);
        assert_eq!(owner.query("SHOW CREATE VIEW theirs.v").unwrap().len(), 1);
    });
}

#[test]
fn global_settings_do_not_stop_loading_settling_and_removing() {
    on_server(|server, owner| {
        for (name, value) in [
            ("autocommit", "0"),
            ("sql_safe_updates", "1"),
            ("sql_select_limit", "1"),
            ("max_join_size", "1"),
            ("completion_type", "'RELEASE'"),
            ("tx_read_only", "1"),
            ("max_statement_time", "5"),
            ("lock_wait_timeout", "0"),
            ("idle_transaction_timeout", "1"),
            ("alter_algorithm", "'INSTANT'"),
            ("sql_mode", "'ORACLE,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'"),
            ("auto_increment_increment", "7"),
        ] {
            owner.run(&format!("SET GLOBAL {name} = {value}")).unwrap();
        }
        let ours = of_run(server, 1);
        ours.create_schema().unwrap();
        let mut admin = ours.connect_to_administer().unwrap();
        for table in tables() {
            load(&ours, &mut admin, &table, ROWS);
        }
        ours.settle(&mut admin).unwrap();
        ours.warm(&mut admin, &tables()).unwrap();
        assert_eq!(ours.state_snapshot(&mut admin, &names()).unwrap().rows, 2 * ROWS);
        // A script has no limit of time.
        let mut setup = ours.connect_for_setup().unwrap();
        let creates = TableCreation::Named("own");
        ours.run_setup(&mut setup, "CREATE TABLE own (id INT PRIMARY KEY)", creates).unwrap();
        setup.run("INSERT INTO own VALUES (1), (2)").unwrap();
        let limit = "SELECT @@max_statement_time";
        assert_eq!(setup.query(limit).unwrap()[0][0].as_deref(), Some("0.000000"));
        // What is measured keeps it, but others see what it writes.
        let mut measured = ours.connect().unwrap();
        assert_eq!(measured.query(limit).unwrap()[0][0].as_deref(), Some("5.000000"));
        measured.run("UPDATE own SET id = id + 10").unwrap();
        let seen = owner.query("SELECT id FROM dbdyno.own").unwrap();
        assert_eq!(seen[0][0].as_deref(), Some("11"));
        assert_eq!(measured.query("SELECT id FROM own").unwrap().len(), 2);
        assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
    });
}

#[test]
fn configured_session_settings_do_not_stop_creating_and_loading() {
    let run = Run::new();
    let modes = "ORACLE,ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,TRADITIONAL";
    let settings = [
        ("sql_mode", modes),
        ("sql_safe_updates", "ON"),
        ("max_join_size", "1"),
        ("transaction_read_only", "ON"),
        ("autocommit", "OFF"),
        ("completion_type", "RELEASE"),
    ];
    let plan = plan(StorageEngine::InnoDb, &settings);
    initialise(&plan, &run.server_dir("a")).unwrap();
    let server = Server::start(&plan, &run.server_dir("a"), None).unwrap();
    let ours = of_run(&server, 1);
    ours.create_schema().unwrap();
    let mut admin = ours.connect_to_administer().unwrap();
    for table in tables() {
        load(&ours, &mut admin, &table, ROWS);
    }
    ours.settle(&mut admin).unwrap();
    ours.warm(&mut admin, &tables()).unwrap();
    assert_eq!(ours.state_snapshot(&mut admin, &names()).unwrap().rows, 2 * ROWS);
    // What is measured has the candidate's mode.
    let mut measured = ours.connect().unwrap();
    measured.run(MySqlConnection::begin_sql(true)).unwrap();
    measured.run("UPDATE sbtest1 SET k = k + 1 WHERE id = 1").unwrap();
    measured.run("COMMIT").unwrap();
    assert_eq!(measured.query("SELECT 'a' || 'b'").unwrap()[0][0].as_deref(), Some("ab"));
    drop((admin, measured));
    server.stop().unwrap();
    run.end();
}

#[test]
fn marker_of_others_does_not_make_a_schema_ours() {
    on_server(|server, owner| {
        let ours = of_run(server, 1);
        let rows = format!("SELECT 'run' AS kind, '{}' AS value", run(1).id.as_str());
        for marker in [
            // Of an earlier version.
            "CREATE TABLE dbdyno.dbdyno_marker (id INT PRIMARY KEY, note TEXT)".to_owned(),
            "CREATE TABLE dbdyno.dbdyno_marker (kind TEXT, value TEXT)".to_owned(),
            format!("CREATE VIEW dbdyno.dbdyno_marker AS {rows}"),
        ] {
            let create = "CREATE DATABASE dbdyno; CREATE TABLE dbdyno.sbtest1 (mine INT)";
            for sql in create.split(';').chain([marker.as_str()]) {
                owner.run(sql).unwrap();
            }
            let error = ours.create_schema().unwrap_err().to_string();
            assert!(error.contains("dbdyno did not create"), "{marker}: {error}");
            reason(ours.drop_schema().unwrap());
            assert!(owner.query("SELECT mine FROM dbdyno.sbtest1").unwrap().is_empty());
            owner.run("DROP DATABASE dbdyno").unwrap();
        }
    });
}

#[test]
fn schema_of_another_run_is_left_alone() {
    on_server(|server, owner| {
        let (first, second) = (of_run(server, 1), of_run(server, 2));
        first.create_schema().unwrap();
        load_all(&first);
        let error = second.create_schema().unwrap_err().to_string();
        assert!(error.contains("`dbdyno clean /runs/1`"), "{error}");
        assert!(reason(second.drop_schema().unwrap()).contains("/runs/1 on host host"));
        let rows = owner.query("SELECT COUNT(*) FROM dbdyno.sbtest1").unwrap();
        assert_eq!(rows[0][0].as_deref(), Some("1000"));
        // The first run may load again.
        first.create_schema().unwrap();
        load_all(&first);
        assert_eq!(first.drop_schema().unwrap(), SchemaRemoval::Dropped);
        second.create_schema().unwrap();
        assert_eq!(second.drop_schema().unwrap(), SchemaRemoval::Dropped);
    });
}

#[test]
fn tables_of_a_setup_script_belong_to_the_run() {
    on_server(|server, owner| {
        let ours = of_run(server, 1);
        ours.create_schema().unwrap();
        owner.run("CREATE TABLE dbdyno.stranger (id INT)").unwrap();
        owner.run("CREATE TABLE dbdyno.versioned (id INT) WITH SYSTEM VERSIONING").unwrap();
        let mut connection = ours.connect_for_setup().unwrap();
        for (sql, creates) in [
            ("CREATE TABLE parent (id INT PRIMARY KEY)", TableCreation::Named("parent")),
            (
                "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id))",
                TableCreation::Named("child"),
            ),
            ("INSERT INTO parent VALUES (1), (2)", TableCreation::None),
            ("CREATE INDEX unused ON parent (id) IGNORED", TableCreation::None),
            // Others' tables stay others'.
            ("CREATE TABLE IF NOT EXISTS stranger (id INT)", TableCreation::Named("stranger")),
            ("CREATE TABLE IF NOT EXISTS versioned (id INT)", TableCreation::Named("versioned")),
            (
                "CREATE TABLE history (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
                TableCreation::Named("history"),
            ),
            ("ALTER TABLE child RENAME TO youngest", TableCreation::Possible),
        ] {
            ours.run_setup(&mut connection, sql, creates).unwrap();
        }
        let listed = ours.table_names(&mut connection).unwrap();
        assert_eq!(listed, ["history", "parent", "youngest"]);
        ours.warm_own(&mut connection, &listed).unwrap();
        assert_eq!(ours.state_snapshot(&mut connection, &listed).unwrap().rows, 2);
        let error = ours.drop_schema().unwrap_err().to_string();
        assert!(error.contains("base table stranger"), "{error}");
        assert!(error.contains("system versioned versioned"), "{error}");
        owner.run("DROP TABLE dbdyno.stranger, dbdyno.versioned").unwrap();
        assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
    });
}

#[test]
fn statement_that_a_worker_left_ends_with_the_tables_of_its_run() {
    on_server(|server, _| {
        check_left_statement_ends(&of_run(server, 1), "SELECT BENCHMARK(1000000000000, MD5('a'))");
    });
}

#[test]
fn names_of_tables_may_be_outside_of_the_tables_character_set() {
    on_server(|server, owner| {
        let ours = of_run(server, 1);
        ours.create_schema().unwrap();
        owner.run("ALTER DATABASE dbdyno CHARACTER SET latin1").unwrap();
        let mut setup = ours.connect_for_setup().unwrap();
        setup.run("SET NAMES utf8mb4").unwrap();
        let sql = "CREATE TABLE `größe_表` (id INT PRIMARY KEY)";
        ours.run_setup(&mut setup, sql, TableCreation::Named("größe_表")).unwrap();
        let mut admin = ours.connect_to_administer().unwrap();
        let listed = ours.table_names(&mut admin).unwrap();
        assert_eq!(listed, ["größe_表"]);
        ours.settle(&mut admin).unwrap();
        ours.warm_own(&mut admin, &listed).unwrap();
        // What is measured is not converted.
        let charset = ours.connect().unwrap().query("SELECT @@character_set_client").unwrap();
        assert_eq!(charset[0][0].as_deref(), Some("latin1"));
        assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
    });
}
