//! Statements and their answers, waited for or not, and COPY.

use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Answer, Connection as _, ErrorKind, NonBlockingConnection, Params};
use dbdyno_types::server::StatementMode;
use rustix::event::{PollFd, PollFlags, poll};

use super::Value::{Int, Text};
use super::{Database, Value, backend_pid, execute, params, value};
use crate::support::{
    check_kept_rows, check_text_as_it_is, check_too_many_rows, digest, try_receive,
};

const BOTH: [StatementMode; 2] = [StatementMode::Prepared, StatementMode::Text];

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
        let text = connection.text_statement(b"COPY t FROM STDIN").unwrap();
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
        check_kept_rows(&mut database.connect_by(mode), false, |error| error.has_sqlstate("42601"));
    }
    let mut connection = database.connect();
    connection.run("SET client_encoding = 'LATIN1'").unwrap();
    check_text_as_it_is(&mut connection, b"SELECT '\xe9'", b"\xe9");
    let run = |connection: &mut PostgresConnection, sql: &[u8]| {
        let statement = connection.text_statement(sql).unwrap();
        connection.execute(statement, &Params::default()).unwrap();
        (connection.result().columns, connection.take_rows())
    };
    run(&mut connection, b"PREPARE twice (int) AS SELECT 2 * $1");
    assert_eq!(run(&mut connection, b"EXECUTE twice(4)"), (1, vec![vec![Some(b"8".to_vec())]]));
    // Of several results, the last one is returned.
    let last = (2, vec![vec![Some(b"5".to_vec()), None]]);
    assert_eq!(run(&mut connection, b"SELECT 1; SELECT 5, NULL"), last);
    assert_eq!(run(&mut connection, b"SELECT 1; BEGIN"), (0, Vec::new()));
    assert_eq!(connection.next_result(), None);
    let sql = "SELECT repeat('x', 10000) FROM generate_series(1, 7000)";
    check_too_many_rows(&mut database.connect(), sql);
}

#[test]
fn rows_are_copied_in() {
    let database = Database::create();
    let mut connection = database.connect();
    connection.run("CREATE TABLE t (id int PRIMARY KEY, c text)").unwrap();
    let mut id = 0;
    let copied = connection
        .copy_in("COPY t FROM STDIN", &mut |rows| {
            for _ in 0..7 {
                id += 1;
                rows.extend_from_slice(format!("{id}\t{}\n", "x".repeat(100)).as_bytes());
            }
            id < 70_000
        })
        .unwrap();
    assert_eq!(copied, 70_000);
    let sql = "SELECT count(*) || ' ' || sum(id) || ' ' || min(c) FROM t";
    let expected = format!("70000 2450035000 {}", "x".repeat(100));
    assert_eq!(value(&mut connection, sql), expected);
    assert_eq!(connection.copy_in("COPY t FROM STDIN", &mut |_| false).unwrap(), 0);
}

#[test]
fn invalid_row_ends_only_the_copy() {
    let database = Database::create();
    let mut connection = database.connect();
    connection.run("CREATE TABLE t (id int PRIMARY KEY, c text)").unwrap();
    for bad_at in [0, 50_000] {
        let mut id = 0;
        let error = connection
            .copy_in("COPY t FROM STDIN", &mut |rows| {
                let key = if id == bad_at { "one".to_owned() } else { id.to_string() };
                rows.extend_from_slice(format!("{key}\t{}\n", "x".repeat(100)).as_bytes());
                id += 1;
                // The server reports the error long before this end.
                id < 20_000_000
            })
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Statement, "{error}");
        assert!(error.message.contains("\"one\""), "{error}");
        assert!(id < 20_000_000);
        assert_eq!(execute(&mut connection, "SELECT 3", &[]).unwrap().digest, 3);
    }
    let error = connection
        .copy_in("COPY t FROM STDIN", &mut |rows| {
            rows.extend_from_slice(b"1\ta\n1\tb\n");
            false
        })
        .unwrap_err();
    assert!(error.has_sqlstate("23505"), "{error}");
    assert_eq!(value(&mut connection, "SELECT count(*) FROM t"), "0");
}

#[test]
fn other_statements_are_rejected() {
    let database = Database::create();
    let mut connection = database.connect();
    connection.run("CREATE TABLE t (id int)").unwrap();
    for sql in ["SELECT 1", "COPY t TO STDOUT", "COPY nowhere FROM STDIN", "SELEKT", ""] {
        let error =
            connection.copy_in(sql, &mut |_| panic!("nothing to copy for '{sql}'")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Statement, "{error}");
        assert_eq!(value(&mut connection, "SELECT 4"), "4");
    }
}

#[test]
fn connection_lost_during_copy_is_reported() {
    let database = Database::create();
    let mut connection = database.connect();
    let mut master = database.connect();
    connection.run("CREATE TABLE t (id int)").unwrap();
    let sql = format!("SELECT pg_terminate_backend({}, 10000)", backend_pid(&mut connection));
    let mut calls = 0;
    let error = connection
        .copy_in("COPY t FROM STDIN", &mut |rows| {
            rows.extend_from_slice(&b"1\n".repeat(100_000));
            calls += 1;
            if calls == 10 {
                assert_eq!(value(&mut master, &sql), "t");
                thread::sleep(Duration::from_millis(10));
            }
            true
        })
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains("terminating connection"), "{error}");
}

/// Waits by poll(2) for the answer of each connection.
pub fn receive_all(connections: &mut [PostgresConnection]) -> Vec<Answer> {
    let mut answers = vec![None; connections.len()];
    while answers.iter().any(Option::is_none) {
        let waiting: Vec<usize> =
            (0..answers.len()).filter(|index| answers[*index].is_none()).collect();
        let mut polled: Vec<_> = waiting
            .iter()
            .map(|index| PollFd::from_borrowed_fd(connections[*index].as_fd(), PollFlags::IN))
            .collect();
        poll(&mut polled, None).unwrap();
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        for (index, ready) in waiting.into_iter().zip(ready) {
            if ready {
                answers[index] = try_receive(&mut connections[index]).unwrap();
            }
        }
    }
    answers.into_iter().flatten().collect()
}

#[test]
fn one_thread_drives_several_connections() {
    let database = Database::create();
    for mode in [StatementMode::Prepared, StatementMode::Text] {
        let mut connections: Vec<_> = (0..8).map(|_| database.connect_by(mode)).collect();
        let sql = "SELECT n, repeat('x', 1000) FROM generate_series(1, $1::int) n";
        let statements: Vec<_> =
            connections.iter_mut().map(|connection| connection.prepare(sql).unwrap()).collect();
        for round in 0..20 {
            let rows = |index: usize| (index as u64 * 300 + round) % 2000;
            for (index, connection) in connections.iter_mut().enumerate() {
                let values = params(&[Int(rows(index) as i64)]);
                connection.send(statements[index], &values).unwrap();
            }
            for (index, answer) in receive_all(&mut connections).into_iter().enumerate() {
                let rows = rows(index);
                let text = 0x7878_7878_7878_7878_u64.wrapping_add(1000);
                let digest = text.wrapping_mul(rows).wrapping_add(rows * (rows + 1) / 2);
                assert_eq!(answer, Answer { rows, affected: 0, digest });
            }
        }
    }
}

#[test]
fn try_receive_does_not_wait() {
    let database = Database::create();
    let mut connection = database.connect();
    assert_eq!(try_receive(&mut connection).unwrap(), None, "without a request");
    let statement = connection.prepare("SELECT 5 FROM pg_sleep(1)").unwrap();
    connection.send(statement, &params(&[])).unwrap();
    assert_eq!(try_receive(&mut connection).unwrap(), None);
    let answers = receive_all(std::slice::from_mut(&mut connection));
    assert_eq!(answers, [Answer { rows: 1, affected: 0, digest: 5 }]);
    assert_eq!(try_receive(&mut connection).unwrap(), None);
}

#[test]
fn unfetched_answers_are_discarded() {
    let database = Database::create();
    let mut connection = database.connect();
    let long = connection.prepare("SELECT generate_series(1, 100000)").unwrap();
    let failing =
        connection.prepare("SELECT 1 / (n - 5000) FROM generate_series(1, 9999) n").unwrap();
    for statement in [long, failing] {
        connection.send(statement, &params(&[])).unwrap();
        assert_eq!(execute(&mut connection, "SELECT 3", &[]).unwrap().digest, 3);
        connection.send(statement, &params(&[])).unwrap();
        assert_eq!(connection.query("SELECT 4").unwrap(), [[Some("4".to_owned())]]);
        connection.send(statement, &params(&[])).unwrap();
        let other = connection.prepare("SELECT 6").unwrap();
        connection.send(statement, &params(&[])).unwrap();
        connection.send(other, &params(&[])).unwrap();
        assert_eq!(receive_all(std::slice::from_mut(&mut connection))[0].digest, 6);
    }
}
