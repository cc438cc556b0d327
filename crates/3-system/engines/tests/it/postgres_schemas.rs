//! Schemas on existing PostgreSQL servers: whose they are, and what is dropped.

use dbdyno_drivers::Connection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_engines::{Engine, SchemaRemoval, TableCreation};
use dbdyno_types::server::Target;

use crate::helpers::{check_left_statement_ends, reason, run};
use crate::postgres::{Lab, engine, engine_of, load, names, plan, start, value};

/// Objects of others that depend on the run's tables: how each is created, a part of its description,
/// and how it is dropped.
const DEPENDENTS: [(&str, &str, &str); 5] = [
    ("CREATE VIEW theirs.v AS SELECT k FROM ours.sbtest1", "view theirs.v", "DROP VIEW theirs.v"),
    (
        "CREATE TABLE theirs.typed (id int, one ours.sbtest2)",
        "column one of table theirs.typed",
        "DROP TABLE theirs.typed",
    ),
    (
        "CREATE TABLE theirs.numbered (id int DEFAULT nextval('ours.sbtest1_id_seq'))",
        "theirs.numbered",
        "DROP TABLE theirs.numbered",
    ),
    (
        "CREATE TABLE theirs.child (id int CONSTRAINT parent REFERENCES ours.sbtest1)",
        "constraint parent on table theirs.child",
        "DROP TABLE theirs.child",
    ),
    (
        "CREATE FOREIGN TABLE theirs.remote () INHERITS (ours.sbtest1) SERVER far",
        "foreign table theirs.remote",
        "DROP FOREIGN TABLE theirs.remote",
    ),
];

#[test]
fn objects_of_others_that_depend_on_our_tables_survive() {
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("dependents", &plan()));
    let server = start(&plan, &server_dir);
    let mut owner = engine(server.target(), "postgres", true).connect().unwrap();
    owner
        .run(
            "CREATE SCHEMA theirs; CREATE ROLE guest LOGIN; \
             GRANT CREATE ON DATABASE postgres TO guest; \
             CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing",
        )
        .unwrap();
    let guest = Target { user: "guest".to_owned(), ..server.target() };
    let ours = engine(guest, "ours", false);
    ours.create_schema().unwrap();
    load(&ours, &mut ours.connect().unwrap());
    for (create, name, drop) in DEPENDENTS {
        owner.run(create).unwrap();
        for error in [ours.drop_schema().unwrap_err(), ours.create_schema().unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains(name) && error.contains("Drop or move them"), "{error}");
            assert!(!error.contains("CASCADE"), "{error}");
        }
        owner.run(drop).unwrap();
    }
    // The tables are as they were.
    let rows = ours.state_snapshot(&mut ours.connect().unwrap(), &names()).unwrap().rows;
    assert_eq!(rows, 4_000);

    owner.run("CREATE TABLE ours.stranger AS SELECT 1 AS n").unwrap();
    let error = ours.drop_schema().unwrap_err().to_string();
    assert!(error.contains("ours.stranger"), "{error}");
    assert_eq!(value(&mut owner, "SELECT n FROM ours.stranger"), "1");
    // The run's tables are gone, and it may load them again.
    ours.create_schema().unwrap();
    load(&ours, &mut ours.connect().unwrap());
    owner.run("DROP TABLE ours.stranger").unwrap();
    assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
    assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Absent);
    drop(owner);
    server.stop().unwrap();
}

#[test]
fn statement_that_a_worker_left_ends_with_the_tables_of_its_run() {
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("left", &plan()));
    let server = start(&plan, &server_dir);
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000)";
    check_left_statement_ends(&engine(server.target(), "ours", false), endless);
    server.stop().unwrap();
}

#[test]
fn settings_of_the_server_do_not_stop_loading_settling_and_removing() {
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("settings", &plan()));
    let server = start(&plan, &server_dir);
    let mut owner = engine(server.target(), "postgres", true).connect().unwrap();
    for (name, value) in [
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "serializable"),
        ("statement_timeout", "3000"),
        ("lock_timeout", "1"),
        ("idle_in_transaction_session_timeout", "1"),
        ("search_path", "nowhere"),
    ] {
        owner.run(&format!("ALTER DATABASE postgres SET {name} = {value}")).unwrap();
    }
    let ours = engine(server.target(), "ours", false);
    ours.create_schema().unwrap();
    let mut admin = ours.connect_to_administer().unwrap();
    load(&ours, &mut admin);
    ours.settle(&mut admin).unwrap();
    assert!(ours.state_snapshot(&mut admin, &names()).unwrap().rows > 0);
    let mut setup = ours.connect_for_setup().unwrap();
    // What is measured keeps the limits, and can write.
    let mut measured = ours.connect().unwrap();
    let shown = |name: &str, connection: &mut PostgresConnection| {
        connection.query(&format!("SHOW {name}")).unwrap()[0][0].clone().unwrap()
    };
    assert_eq!(shown("statement_timeout", &mut measured), "3s");
    assert_eq!(shown("default_transaction_isolation", &mut measured), "serializable");
    assert_eq!(shown("default_transaction_read_only", &mut measured), "off");
    assert_eq!(shown("statement_timeout", &mut setup), "0");
    // Reports have the server's own values.
    let options = ours.options();
    assert!(options.contains(&("statement_timeout".to_owned(), "3s".to_owned())), "{options:?}");
    assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
    drop((owner, admin, setup, measured));
    server.stop().unwrap();
}

#[test]
fn marker_of_others_does_not_make_a_schema_ours() {
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("markers", &plan()));
    let server = start(&plan, &server_dir);
    let mut owner = engine(server.target(), "postgres", true).connect().unwrap();
    let rows = format!("('run', '{}'), ('host', 'h'), ('directory', 'd')", run(1).id.as_str());
    owner
        .run(
            "CREATE ROLE guest LOGIN; GRANT CREATE ON DATABASE postgres TO guest; \
             CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing; \
             GRANT USAGE ON FOREIGN SERVER far TO guest",
        )
        .unwrap();
    let guest = Target { user: "guest".to_owned(), ..server.target() };
    let ours = engine(guest, "ours", false);
    for marker in [
        // Of an earlier version.
        "CREATE TABLE ours.dbdyno_marker (made_at timestamptz NOT NULL)".to_owned(),
        "CREATE FOREIGN TABLE ours.dbdyno_marker (kind text, value text) SERVER far".to_owned(),
        format!("CREATE VIEW ours.dbdyno_marker (kind, value) AS VALUES {rows}"),
        "CREATE TABLE ours.dbdyno_marker (kind text, value text)".to_owned(),
        // With the right id, but of another role.
        format!(
            "CREATE TABLE ours.dbdyno_marker (kind text, value text); \
             INSERT INTO ours.dbdyno_marker VALUES {rows}; \
             ALTER TABLE ours.dbdyno_marker OWNER TO CURRENT_USER"
        ),
    ] {
        for schema_owner in ["guest", "CURRENT_USER"] {
            let keeps_owner = schema_owner == "guest" && marker.contains("OWNER TO");
            let create = "CREATE SCHEMA ours; CREATE TABLE ours.sbtest1 (mine int)";
            owner.run(&format!("{create}; {marker}")).unwrap();
            let kind = if marker.contains("FOREIGN") { "FOREIGN TABLE" } else { "TABLE" };
            if !keeps_owner {
                owner
                    .run(&format!("ALTER {kind} ours.dbdyno_marker OWNER TO {schema_owner}"))
                    .unwrap();
            }
            owner.run(&format!("ALTER SCHEMA ours OWNER TO {schema_owner}")).unwrap();
            let error = ours.create_schema().unwrap_err().to_string();
            assert!(error.contains("dbdyno did not create"), "{marker}: {error}");
            reason(ours.drop_schema().unwrap());
            assert_eq!(value(&mut owner, "SELECT to_regclass('ours.sbtest1')"), "ours.sbtest1");
            owner.run("DROP SCHEMA ours CASCADE").unwrap();
        }
    }
    drop(owner);
    server.stop().unwrap();
}

#[test]
fn schema_of_another_run_is_left_alone() {
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("runs", &plan()));
    let server = start(&plan, &server_dir);
    let of_run = |id| engine_of(server.target(), "shared", Some(run(id)));
    let (first, second) = (of_run(1), of_run(2));
    first.create_schema().unwrap();
    let mut connection = first.connect().unwrap();
    load(&first, &mut connection);
    let error = second.create_schema().unwrap_err().to_string();
    assert!(error.contains("`dbdyno clean /runs/1`"), "{error}");
    assert!(reason(second.drop_schema().unwrap()).contains("/runs/1 on host host"));
    assert_eq!(first.state_snapshot(&mut connection, &names()).unwrap().rows, 4_000);
    drop(connection);
    // The first run may load again.
    first.create_schema().unwrap();
    load(&first, &mut first.connect().unwrap());
    assert_eq!(first.drop_schema().unwrap(), SchemaRemoval::Dropped);
    second.create_schema().unwrap();
    assert_eq!(second.drop_schema().unwrap(), SchemaRemoval::Dropped);
    server.stop().unwrap();
}

#[test]
fn tables_of_a_setup_script_belong_to_the_run() {
    let lab = Lab::new();
    let (plan, server_dir) = (plan(), lab.create_data("setup", &plan()));
    let server = start(&plan, &server_dir);
    let mut owner = engine(server.target(), "postgres", true).connect().unwrap();
    owner.run("CREATE ROLE guest LOGIN; GRANT CREATE ON DATABASE postgres TO guest").unwrap();
    let guest = Target { user: "guest".to_owned(), ..server.target() };
    let ours = engine(guest, "ours", false);
    ours.create_schema().unwrap();
    owner.run("CREATE TABLE ours.stranger (id int)").unwrap();
    let mut connection = ours.connect_for_setup().unwrap();
    for (sql, creates) in [
        ("CREATE TABLE parent (id int PRIMARY KEY) -- of child", TableCreation::Named("parent")),
        (
            "CREATE TABLE child (id serial REFERENCES parent) PARTITION BY RANGE (id)",
            TableCreation::Named("child"),
        ),
        (
            "CREATE TABLE \"First half\" PARTITION OF child FOR VALUES FROM (1) TO (10)",
            TableCreation::Named("First half"),
        ),
        ("INSERT INTO parent VALUES (1), (2)", TableCreation::None),
        ("INSERT INTO child VALUES (1), (2)", TableCreation::None),
        ("SELECT 1 AS id INTO copied", TableCreation::Possible),
        ("CREATE TABLE IF NOT EXISTS stranger (id int)", TableCreation::Named("stranger")),
        ("VACUUM parent", TableCreation::None),
    ] {
        ours.run_setup(&mut connection, sql, creates).unwrap();
    }
    let error = ours.run_setup(&mut connection, "CREATE TABLE (", TableCreation::Possible);
    assert!(error.unwrap_err().message.contains("syntax error"));
    let listed = ours.table_names(&mut connection).unwrap();
    assert_eq!(listed, ["First half", "copied", "parent"]);
    ours.warm_own(&mut connection, &listed).unwrap();
    assert_eq!(ours.state_snapshot(&mut connection, &listed).unwrap().rows, 5);
    let error = ours.drop_schema().unwrap_err().to_string();
    assert!(error.contains("ours.stranger"), "{error}");
    owner.run("DROP TABLE ours.stranger").unwrap();
    assert_eq!(ours.drop_schema().unwrap(), SchemaRemoval::Dropped);
    drop((owner, connection));
    server.stop().unwrap();
}
