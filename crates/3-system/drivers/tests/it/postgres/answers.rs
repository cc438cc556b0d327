//! Answers, in both modes.

use dbdyno_drivers::{Answer, Connection, ErrorKind};
use dbdyno_types::server::StatementMode;

use super::server::Value::{Int, Text};
use super::server::{Database, Value, execute, params, value};

const BOTH: [StatementMode; 2] = [StatementMode::Prepared, StatementMode::Text];

/// The rule of [`Answer::digest`] for a text, in its plainest form.
fn digest(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let head = if bytes.len() >= 8 {
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    } else {
        bytes.iter().fold(0, |sum, byte| sum * 256 + u64::from(*byte))
    };
    head.wrapping_add(bytes.len() as u64)
}

#[test]
fn both_modes_give_the_same_answers() {
    let database = Database::create();
    let all = "SELECT id, small, big, c, v, t FROM t WHERE id BETWEEN $1 AND $2";
    let steps: &[(&str, &[Value<'_>], Answer)] = &[
        (
            "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[Int(1), Int(-2), Int(i64::MIN), Text("c"), Text("it's \\ $1"), Text(""), Int(-15)],
            Answer { affected: 1, ..Answer::default() },
        ),
        (
            "INSERT INTO t (id, t) VALUES ($1, $2), ($3, $2)",
            &[Int(2), Text("héllo wörld"), Int(-3)],
            Answer { affected: 2, ..Answer::default() },
        ),
        (
            all,
            &[Int(-5), Int(5)],
            Answer {
                rows: 3,
                affected: 0,
                digest: [
                    (1_i64 + 2 - 3 - 2).wrapping_add(i64::MIN) as u64,
                    digest("c"),
                    digest("it's \\ $1"),
                    digest(""),
                    digest("héllo wörld"),
                    digest("héllo wörld"),
                ]
                .into_iter()
                .fold(0, u64::wrapping_add),
            },
        ),
        (all, &[Int(100), Int(200)], Answer::default()),
        (
            "SELECT SUM(id + 10) FROM t",
            &[],
            // A bigint, and not a numeric: the column is an integer.
            Answer { rows: 1, affected: 0, digest: 30 },
        ),
        (
            "SELECT n FROM t WHERE n = $1",
            &[Int(-15)],
            Answer { rows: 1, affected: 0, digest: digest("-15") },
        ),
        ("SELECT NULL, NULL::int, NULL::text", &[], Answer { rows: 1, ..Answer::default() }),
        ("BEGIN", &[], Answer::default()),
        (
            "UPDATE t SET small = small - $1",
            &[Int(-1)],
            Answer { affected: 3, ..Answer::default() },
        ),
        (
            "SELECT small FROM t WHERE id = 1",
            &[],
            Answer { rows: 1, affected: 0, digest: -1_i64 as u64 },
        ),
        ("ROLLBACK", &[], Answer::default()),
        (
            "SELECT small FROM t WHERE id IN ($1, $2)",
            &[Int(1), Int(9)],
            Answer { rows: 1, affected: 0, digest: -2_i64 as u64 },
        ),
        ("UPDATE t SET c = $1 WHERE id = $2", &[Text("x"), Int(9)], Answer::default()),
        (
            "DELETE FROM t WHERE id = $1 OR t = $2",
            &[Int(-3), Text("no")],
            Answer { affected: 1, ..Answer::default() },
        ),
    ];
    for mode in BOTH {
        let mut connection = database.connect_by(mode);
        connection
            .run(
                "CREATE TEMP TABLE t (id int PRIMARY KEY, small smallint, big bigint, \
                 c char(20), v varchar(20), t text, n numeric)",
            )
            .unwrap();
        for (sql, values, expected) in steps {
            let answer = execute(&mut connection, sql, values).unwrap();
            assert_eq!(answer, *expected, "{sql} {values:?} {mode:?}");
        }
    }
}

#[test]
fn ten_thousand_rows_are_read() {
    let database = Database::create();
    let sql = "SELECT n, lpad(n::text, 119, '0') FROM generate_series($1::int, $2::int) n";
    let expected = (1..=10_000_u64)
        .map(|n| n.wrapping_add(digest(&format!("{n:0119}"))))
        .fold(0, u64::wrapping_add);
    for mode in BOTH {
        let mut connection = database.connect_by(mode);
        let statement = connection.prepare(sql).unwrap();
        for _ in 0..3 {
            let answer = connection.execute(statement, &params(&[Int(1), Int(10_000)])).unwrap();
            assert_eq!(answer, Answer { rows: 10_000, affected: 0, digest: expected });
        }
    }
}

#[test]
fn values_of_twenty_megabytes_are_sent_and_received() {
    let database = Database::create();
    let long = "0123456789".repeat(2_000_000);
    for mode in BOTH {
        let mut connection = database.connect_by(mode);
        connection.run("CREATE TEMP TABLE t (id int, c text)").unwrap();
        let sql = "INSERT INTO t VALUES ($1, $2)";
        assert_eq!(execute(&mut connection, sql, &[Int(1), Text(&long)]).unwrap().affected, 1);
        let read = connection.prepare("SELECT c, id FROM t").unwrap();
        for _ in 0..2 {
            let answer = connection.execute(read, &params(&[])).unwrap();
            let expected = digest(&long).wrapping_add(1);
            assert_eq!(answer, Answer { rows: 1, affected: 0, digest: expected });
        }
        assert_eq!(value(&mut connection, "SELECT c FROM t"), long);
    }
}

#[test]
fn thousand_parameters_are_bound() {
    let database = Database::create();
    let places: Vec<String> = (1..=1000).map(|n| format!("${n}")).collect();
    let sql = format!("SELECT n FROM generate_series(1, 2000) n WHERE n IN ({})", places.join(","));
    let keys: Vec<_> = (501..=1500).map(Int).collect();
    for mode in BOTH {
        let answer = execute(&mut database.connect_by(mode), &sql, &keys).unwrap();
        assert_eq!(answer, Answer { rows: 1000, affected: 0, digest: (501..=1500).sum() });
    }
}

#[test]
fn values_out_of_range_are_rejected_before_sending() {
    let database = Database::create();
    let mut connection = database.connect();
    let statement = connection.prepare("SELECT $1::int").unwrap();
    for values in [&[Int(1 << 31)][..], &[Text("1")], &[], &[Int(1), Int(2)]] {
        let error = connection.execute(statement, &params(values)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Statement, "{error}");
        assert!(error.to_string().starts_with("executing SELECT $1::int: "), "{error}");
    }
    assert_eq!(connection.execute(statement, &params(&[Int(7)])).unwrap().digest, 7);
}

#[test]
fn queries_return_rows_as_text() {
    let database = Database::create();
    let rows = database.connect().query("SELECT 1, NULL, 'x', true, 1.50, ''").unwrap();
    let expected = [Some("1"), None, Some("x"), Some("t"), Some("1.50"), Some("")];
    assert_eq!(rows, [expected.map(|value| value.map(str::to_owned))]);
}

#[test]
fn first_error_ends_a_list_of_statements() {
    let database = Database::create();
    let mut connection = database.connect();
    connection
        .run(
            "CREATE TABLE t (c text); -- a comment; not a statement
             INSERT INTO t VALUES ('a;b'), ($$c;d$$); ;
             VACUUM t; /* this cannot run in a transaction; */
             DO $body$ BEGIN PERFORM 1; END; $body$;
             CREATE FUNCTION two() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END;
             SELECT * FROM t;
             COPY t TO STDOUT",
        )
        .unwrap();
    assert_eq!(value(&mut connection, "SELECT string_agg(c, ',') FROM t"), "a;b,c;d");
    assert_eq!(value(&mut connection, "SELECT two()"), "2");
    let sql = "DELETE FROM t WHERE c = 'a;b'; DELETE FROM u; DELETE FROM t";
    let error = connection.run(sql).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Statement, "{error}");
    assert!(error.to_string().starts_with("executing DELETE FROM u: "), "{error}");
    assert!(error.has_sqlstate("42P01"), "{error}");
    assert_eq!(value(&mut connection, "SELECT string_agg(c, ',') FROM t"), "c;d");
    connection.run(" ; ").unwrap();
    connection.run("SELECT '\0'").unwrap_err();
}

#[test]
fn server_version_is_known() {
    let database = Database::create();
    let mut connection = database.connect();
    let version = value(&mut connection, "SHOW server_version");
    assert_eq!(connection.server_version(), version);
    assert_eq!(value(&mut connection, "SHOW application_name"), "dbdyno");
    assert_eq!(connection.busy_retries(), 0);
}

#[test]
fn closed_statements_are_freed_on_the_server() {
    let database = Database::create();
    let count = "SELECT count(*) FROM pg_prepared_statements";
    for (mode, expected) in BOTH.into_iter().zip(["2", "0"]) {
        let mut connection = database.connect_by(mode);
        for sql in ["SELECT 1", "BEGIN"] {
            connection.prepare(sql).unwrap();
        }
        assert_eq!(value(&mut connection, count), expected);
        connection.close_statements();
        assert_eq!(value(&mut connection, count), "0");
        assert_eq!(execute(&mut connection, "SELECT 2", &[]).unwrap().digest, 2);
        connection.close_statements();
        connection.close_statements();
    }
}

#[test]
fn notices_and_notifications_are_ignored() {
    let database = Database::create();
    for mode in BOTH {
        let mut connection = database.connect_by(mode);
        connection
            .run(
                "CREATE OR REPLACE FUNCTION loud(n int) RETURNS int LANGUAGE plpgsql AS $$
                 BEGIN RAISE NOTICE 'row %', n; RETURN n; END $$;
                 LISTEN news",
            )
            .unwrap();
        let sql = "SELECT loud(n) FROM generate_series(1, 100) n";
        assert_eq!(execute(&mut connection, sql, &[]).unwrap().digest, 5050);
        let sql = "SELECT pg_notify('news', 'x'), set_config('TimeZone', 'UTC', false)";
        assert_eq!(execute(&mut connection, sql, &[]).unwrap().rows, 1);
        database.connect().run("NOTIFY news; NOTIFY news").unwrap();
        assert_eq!(execute(&mut connection, "SELECT 3", &[]).unwrap().digest, 3);
        assert_eq!(value(&mut connection, "SELECT 4"), "4");
    }
}

#[test]
fn copy_from_stdin_is_an_error_outside_copy_in() {
    let database = Database::create();
    for mode in BOTH {
        let mut connection = database.connect_by(mode);
        connection.run("CREATE TEMP TABLE t (c text)").unwrap();
        let text = connection.text_statement("COPY t FROM STDIN").unwrap();
        for error in [
            connection.run("COPY t FROM STDIN").unwrap_err(),
            execute(&mut connection, "COPY t FROM STDIN", &[]).unwrap_err(),
            connection.execute(text, &params(&[])).unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::Statement, "{error}");
            assert!(error.message.contains("copies no data"), "{error}");
        }
        assert_eq!(execute(&mut connection, "SELECT 3", &[]).unwrap().digest, 3);
    }
}

#[test]
fn rows_of_text_statements_are_kept_until_the_next_one() {
    let database = Database::create();
    for mode in BOTH {
        let mut connection = database.connect_by(mode);
        let none = params(&[]);
        let sql = "SELECT 5, NULL, 'a?b' UNION ALL SELECT 6, 'seven', ''";
        let one = connection.text_statement(sql).unwrap();
        let prepared = connection.prepare("SELECT 5 UNION ALL SELECT 6").unwrap();
        let answer = connection.execute(one, &none).unwrap();
        assert_eq!(answer.rows, 2);
        let value = |text: &str| Some(text.to_owned());
        let expected = [[value("5"), None, value("a?b")], [value("6"), value("seven"), value("")]];
        assert_eq!(connection.take_rows(), expected);
        assert!(connection.take_rows().is_empty());
        connection.execute(prepared, &none).unwrap();
        assert_eq!(connection.execute(one, &none).unwrap(), answer);
        let other = connection.text_statement("SELECT 9").unwrap();
        assert_eq!(connection.execute(other, &none).unwrap().rows, 1);
        assert_eq!(connection.take_rows(), [[value("9")]]);
        let failing = connection.text_statement("SELEC 9").unwrap();
        assert!(connection.execute(failing, &none).unwrap_err().has_sqlstate("42601"));
        connection.close_statements();
        let again = connection.text_statement("SELECT 8").unwrap();
        assert_eq!(connection.execute(again, &none).unwrap().digest, 8);
    }
}

#[test]
fn rows_of_a_text_statement_are_counted_even_if_they_are_too_many_to_keep() {
    let database = Database::create();
    let mut connection = database.connect();
    let sql = "SELECT repeat('x', 10000) FROM generate_series(1, 7000)";
    let many = connection.text_statement(sql).unwrap();
    assert_eq!(connection.execute(many, &params(&[])).unwrap().rows, 7000);
    assert!(connection.take_rows().is_empty());
    let few = connection.text_statement("SELECT 1").unwrap();
    assert_eq!(connection.execute(few, &params(&[])).unwrap().rows, 1);
    assert_eq!(connection.take_rows().len(), 1);
}
