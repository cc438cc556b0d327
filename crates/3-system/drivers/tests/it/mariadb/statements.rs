use std::thread;
use std::time::{Duration, Instant};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Answer, Connection, ErrorKind, Params, ResultShape};
use dbdyno_types::server::StatementMode::{self, Prepared, Text};

use super::{Database, Server};
use crate::support::{check_kept_rows, check_text_as_it_is, check_too_many_rows, digest};

const MODES: [StatementMode; 2] = [Prepared, Text];

fn ints(values: &[i64]) -> Params {
    let mut params = Params::default();
    values.iter().for_each(|value| params.push_int(*value));
    params
}

fn execute(connection: &mut MySqlConnection, sql: &str, params: &Params) -> Answer {
    let statement = connection.prepare(sql).unwrap();
    connection.execute(statement, params).unwrap()
}

fn connection_id(connection: &mut MySqlConnection) -> String {
    connection.query("SELECT CONNECTION_ID()").unwrap().remove(0).remove(0).unwrap()
}

/// Waits until a query returns a row.
fn wait_for_row(connection: &mut MySqlConnection, sql: &str) {
    let start = Instant::now();
    while connection.query(sql).unwrap().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(120), "{sql}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn server_version_is_known() {
    let database = Database::create();
    let mut connection = database.connect(Prepared);
    assert!(connection.is_mariadb());
    let rows = connection.query("SELECT VERSION(), NULL").unwrap();
    assert_eq!(rows, [[Some(connection.server_version().to_owned()), None]]);
}

#[test]
fn both_modes_give_the_same_answers() {
    let database = Database::create();
    let mut connections = MODES.map(|mode| database.connect(mode));
    connections[0]
        .run(
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, i8 TINYINT, u8 TINYINT UNSIGNED,
               i16 SMALLINT, u16 SMALLINT UNSIGNED, i24 MEDIUMINT, u32 INT UNSIGNED, i64 BIGINT,
               u64 BIGINT UNSIGNED, y YEAR, d DECIMAL(20), c CHAR(120), b BLOB);
             INSERT INTO t VALUES
               (1, -128, 255, -32768, 65535, -8388608, 4294967295, -9223372036854775808,
                18446744073709551615, 2024, -12345678901234567, 'it''s', 'a longer blob'),
               (2, NULL, 0, NULL, 1, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL),
               (3, 1, 2, 3, 4, 5, 6, 7, 8, 1999, 10, '', 'é');",
        )
        .unwrap();
    for (sql, params) in [
        ("SELECT * FROM t", ints(&[])),
        ("SELECT id, c FROM t WHERE id BETWEEN ? AND ?+1 ORDER BY c", ints(&[2, 2])),
        ("SELECT SUM(id), COUNT(c), MIN(i64) FROM t WHERE id >= ?", ints(&[-1])),
        ("SELECT c FROM t WHERE id = ?", ints(&[4])),
        ("SELECT NULL, id, NULL FROM t WHERE id IN (?, ?, ?)", ints(&[1, 3, 9])),
    ] {
        let [prepared, text] =
            connections.each_mut().map(|connection| execute(connection, sql, &params));
        assert_eq!(prepared, text, "{sql}");
        if params.values().is_empty() {
            let rows = connections[0].query(sql).unwrap();
            assert_eq!(rows.len() as u64, prepared.rows);
        }
    }
    connections[0]
        .run(
            "CREATE TABLE others (id INT PRIMARY KEY, f FLOAT, d DOUBLE, fixed DOUBLE(8, 2),
               day DATE, at DATETIME, exact DATETIME(6), tenths TIMESTAMP(1), t TIME, t3 TIME(3));
             INSERT INTO others VALUES
               (1, 0.1, 0.1, 1.25, '2024-05-06', '2024-05-06 07:08:09',
                '9999-12-31 23:59:59.999999', '2024-01-01 00:00:00.5', '-838:59:59', '00:00:01.002'),
               (2, 16777217, 1e300, 0, '0001-01-01', '2024-05-06', '2024-05-06 00:00:00.000001',
                '2024-05-06', '838:00:59', '-00:00:00.5'),
               (3, -1e-10, -0.0, NULL, NULL, NULL, NULL, '2024-05-06', '00:00:00', NULL),
               (4, 3.4e38, 2.2250738585072014e-308, -0.01, '2024-05-06', NULL, NULL, '2024-05-06',
                NULL, '100:00:00');",
        )
        .unwrap();
    for sql in [
        "SELECT * FROM others",
        "SELECT SUM(d), AVG(d), AVG(fixed), SUM(f), MAX(f), d / 3, PI() FROM others WHERE id < 3",
        "SELECT NOW(6) > at, DATE(at), at + INTERVAL 1 SECOND, SEC_TO_TIME(id), MAX(t3) FROM others",
        "SELECT TIMEDIFF(at, exact), LAST_DAY(day), FROM_UNIXTIME(id / 3) FROM others",
    ] {
        let [prepared, text] =
            connections.each_mut().map(|connection| execute(connection, sql, &ints(&[])));
        assert_eq!(prepared, text, "{sql}");
    }
    let day = |connection: &mut MySqlConnection, id: &str| {
        let sql = format!("SELECT day, at, t, d FROM others WHERE id = {id}");
        execute(connection, &sql, &ints(&[])).digest
    };
    assert_ne!(day(&mut connections[0], "1"), day(&mut connections[0], "2"));
    let answer = execute(&mut connections[0], "SELECT c FROM t WHERE id = ?", &ints(&[1]));
    let expected = Answer { rows: 1, affected: 0, digest: digest("it's") };
    assert_eq!(answer, expected);
    let sum = execute(&mut connections[0], "SELECT SUM(id) FROM t", &ints(&[]));
    assert_eq!(sum, Answer { rows: 1, affected: 0, digest: 6 });
    let least = execute(&mut connections[0], "SELECT i8 FROM t WHERE id = 1", &ints(&[]));
    assert_eq!(least.digest, -128i64 as u64);
}

#[test]
fn texts_are_stored_unchanged() {
    let database = Database::create();
    for (mode, id) in MODES.into_iter().zip(1..) {
        let mut connection = database.connect(mode);
        connection
            .run("CREATE TABLE IF NOT EXISTS t (id INT, c VARCHAR(100) CHARACTER SET utf8mb4)")
            .unwrap();
        let words = "it's a \\ \"test\" of 100% ? ünïcödé 🦀 \n\0 end";
        let mut params = ints(&[id]);
        params.push_text(words.as_bytes());
        let answer = execute(&mut connection, "INSERT INTO t VALUES (?, ?)", &params);
        assert_eq!(answer, Answer { rows: 0, affected: 1, digest: 0 });
        let read = connection.query(&format!("SELECT c FROM t WHERE id = {id}")).unwrap();
        assert_eq!(read, [[Some(words.to_owned())]]);
        connection.run("SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')").unwrap();
        execute(&mut connection, "UPDATE t SET c = ? WHERE id = -1 OR c = ?", &{
            let mut both = Params::default();
            both.push_text(b"back\\slash '");
            both.push_text(words.as_bytes());
            both
        });
        let read = connection.query(&format!("SELECT c FROM t WHERE id = {id}")).unwrap();
        assert_eq!(read, [[Some("back\\slash '".to_owned())]]);
    }
}

#[test]
fn matched_rows_are_counted_as_affected() {
    let database = Database::create();
    for mode in MODES {
        let mut connection = database.connect(mode);
        connection
            .run(
                "DROP TABLE IF EXISTS t; CREATE TABLE t (id INT PRIMARY KEY, k INT);
                  INSERT INTO t VALUES (1, 5), (2, 5), (3, 6)",
            )
            .unwrap();
        let update = connection.prepare("UPDATE t SET k = ? WHERE id <= ?").unwrap();
        for _ in 0..2 {
            let answer = connection.execute(update, &ints(&[5, 2])).unwrap();
            assert_eq!(answer, Answer { rows: 0, affected: 2, digest: 0 });
        }
        let delete = connection.prepare("DELETE FROM t WHERE id = ?").unwrap();
        assert_eq!(connection.execute(delete, &ints(&[3])).unwrap().affected, 1);
        assert_eq!(connection.execute(delete, &ints(&[3])).unwrap().affected, 0);
    }
}

#[test]
fn ten_thousand_rows_are_read() {
    let database = Database::create();
    let mut expected = None;
    for mode in MODES {
        let mut connection = database.connect(mode);
        connection
            .run(
                "CREATE TABLE IF NOT EXISTS t AS
                  SELECT seq AS id, RPAD(seq * 7919, 119, 'x') AS c FROM seq_1_to_10000",
            )
            .unwrap();
        let statement = connection.prepare("SELECT c FROM t WHERE id BETWEEN ? AND ?").unwrap();
        let sum = (1..=10_000u64)
            .map(|id| digest(&format!("{:x<119}", id * 7919)))
            .fold(0, u64::wrapping_add);
        for _ in 0..3 {
            let answer = connection.execute(statement, &ints(&[1, 10_000])).unwrap();
            assert_eq!(answer, Answer { rows: 10_000, affected: 0, digest: sum });
            assert_eq!(*expected.get_or_insert(answer), answer);
        }
    }
}

#[test]
fn values_longer_than_a_packet_are_sent_and_received() {
    let database = Database::create();
    let long: Vec<u8> = (0..0x100_0000 + 12_345u32).map(|n| b'a' + (n % 23) as u8).collect();
    for mode in MODES {
        let mut connection = database.connect(mode);
        connection.run("CREATE OR REPLACE TABLE t (c LONGTEXT)").unwrap();
        let mut params = Params::default();
        params.push_text(&long);
        execute(&mut connection, "INSERT INTO t VALUES (?)", &params);
        let answer = execute(&mut connection, "SELECT LENGTH(c), c FROM t", &ints(&[]));
        let expected =
            (long.len() as u64).wrapping_add(digest(std::str::from_utf8(&long).unwrap()));
        assert_eq!(answer, Answer { rows: 1, affected: 0, digest: expected });
        let back = connection.query("SELECT c FROM t").unwrap();
        assert!(back[0][0].as_deref().unwrap().as_bytes() == long);
        // The connection is still usable.
        assert_eq!(connection.query("SELECT 1").unwrap(), [[Some("1".to_owned())]]);
    }
}

#[test]
fn transactions_are_committed_or_rolled_back() {
    let database = Database::create();
    for mode in MODES {
        let mut connection = database.connect(mode);
        connection.run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)").unwrap();
        let begin = connection.prepare(MySqlConnection::begin_sql(true)).unwrap();
        let [commit, rollback] = ["COMMIT", "ROLLBACK"].map(|sql| connection.prepare(sql).unwrap());
        let insert = connection.prepare("INSERT INTO t VALUES (?)").unwrap();
        let none = Params::default();
        for (id, end) in [(1, commit), (2, rollback), (3, commit)] {
            assert_eq!(connection.execute(begin, &none).unwrap(), Answer::default());
            connection.execute(insert, &ints(&[id])).unwrap();
            assert_eq!(connection.execute(end, &none).unwrap(), Answer::default());
        }
        let rows = connection.query("SELECT id FROM t ORDER BY id").unwrap();
        assert_eq!(rows, [[Some("1".to_owned())], [Some("3".to_owned())]]);
    }
}

#[test]
fn statements_that_cannot_be_prepared_are_sent_as_text() {
    let database = Database::create();
    let mut connection = database.connect(Prepared);
    // PREPARE cannot be prepared in any version.
    let prepare = connection.prepare("PREPARE inner_one FROM 'SELECT 41 + 1'").unwrap();
    connection.execute(prepare, &Params::default()).unwrap();
    let run = connection.prepare("EXECUTE inner_one").unwrap();
    assert_eq!(connection.execute(run, &Params::default()).unwrap().digest, 42);
}

#[test]
fn duplicate_key_is_a_conflict_only_in_a_transaction() {
    let database = Database::create();
    for mode in MODES {
        let mut connection = database.connect(mode);
        connection
            .run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
            .unwrap();
        let insert = connection.prepare("INSERT INTO t VALUES (?)").unwrap();
        let error = connection.execute(insert, &ints(&[1])).unwrap_err();
        assert!(error.has_number(1062), "{error}");
        assert_eq!(error.kind, ErrorKind::Statement);
        assert!(error.has_sqlstate("23000"), "{error}");
        connection.run("BEGIN").unwrap();
        let error = connection.execute(insert, &ints(&[1])).unwrap_err();
        assert!(error.has_number(1062), "{error}");
        assert_eq!(error.kind, ErrorKind::Conflict);
        connection.run("ROLLBACK").unwrap();
        // The statement can be executed again.
        assert_eq!(connection.execute(insert, &ints(&[2])).unwrap().affected, 1);
    }
}

#[test]
fn deadlock_is_a_conflict_and_lock_timeout_is_busy() {
    let database = Database::create();
    let mut first = database.connect(Prepared);
    first
        .run("CREATE TABLE t (id INT PRIMARY KEY, k INT); INSERT INTO t VALUES (1, 0), (2, 0)")
        .unwrap();
    let mut second = database.connect(Prepared);
    let updates = [&mut first, &mut second]
        .map(|c| c.prepare("UPDATE t SET k = k + 1 WHERE id = ?").unwrap());
    first.run("BEGIN").unwrap();
    second.run("BEGIN").unwrap();
    first.execute(updates[0], &ints(&[1])).unwrap();
    second.execute(updates[1], &ints(&[2])).unwrap();
    let (mut watcher, waiting) = (database.connect(Text), connection_id(&mut second));
    let outcomes = thread::scope(|scope| {
        let other = scope.spawn(|| second.execute(updates[1], &ints(&[1])).map(|_| ()));
        wait_for_row(
            &mut watcher,
            &format!(
                "SELECT 1 FROM information_schema.processlist \
                 WHERE id = {waiting} AND state = 'Updating'"
            ),
        );
        let this = first.execute(updates[0], &ints(&[2])).map(|_| ());
        if this.is_err() {
            // Releases the lock that the survivor waits for.
            first.run("ROLLBACK").unwrap();
        }
        [this, other.join().unwrap()]
    });
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{outcomes:?}");
    assert!(failed[0].has_number(1213), "{failed:?}");
    assert_eq!(failed[0].kind, ErrorKind::Conflict);
    for connection in [&mut first, &mut second] {
        connection.run("ROLLBACK").unwrap();
    }

    first.run("BEGIN").unwrap();
    first.execute(updates[0], &ints(&[1])).unwrap();
    second.run("SET innodb_lock_wait_timeout = 0").unwrap();
    let error = second.execute(updates[1], &ints(&[1])).unwrap_err();
    assert!(error.has_number(1205), "{error}");
    assert_eq!(error.kind, ErrorKind::Busy);
}

#[test]
fn errors_name_the_statement() {
    let database = Database::create();
    for mode in MODES {
        let mut connection = database.connect(mode);
        let outcome = connection
            .prepare("SELECT * FROM missing")
            .and_then(|statement| connection.execute(statement, &Params::default()));
        let error = outcome.unwrap_err();
        assert!(error.has_number(1146), "{error}");
        assert_eq!(error.kind, ErrorKind::Statement);
        assert!(error.doing.contains("SELECT * FROM missing"), "{error}");
        let statement = connection.prepare("SELECT ?").unwrap();
        let error = connection.execute(statement, &ints(&[1, 2])).unwrap_err();
        assert!(error.message.contains("has 1 parameters, but 2 values"), "{error}");
        assert_eq!(connection.execute(statement, &ints(&[7])).unwrap().digest, 7);
    }
}

#[test]
fn first_error_ends_a_list_of_statements() {
    let database = Database::create();
    let mut connection = database.connect(Prepared);
    let error = connection
        .run("CREATE TABLE a (id INT); SELECT 1; INSERT INTO missing VALUES (1); CREATE TABLE b (id INT)")
        .unwrap_err();
    assert!(error.has_number(1146), "{error}");
    let tables = connection.query("SHOW TABLES").unwrap();
    assert_eq!(tables, [[Some("a".to_owned())]]);
}

#[test]
fn columns_of_a_prepared_statement_can_change() {
    let database = Database::create();
    let mut connection = database.connect(Prepared);
    connection.run("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)").unwrap();
    let statement = connection.prepare("SELECT * FROM t").unwrap();
    let none = Params::default();
    assert_eq!(connection.execute(statement, &none).unwrap().digest, 7);
    connection.run("ALTER TABLE t MODIFY v VARCHAR(20), ADD w BIGINT DEFAULT 5").unwrap();
    for _ in 0..2 {
        let answer = connection.execute(statement, &none).unwrap();
        assert_eq!(answer.digest, digest("7") + 5);
    }
}

#[test]
fn closed_statements_are_freed_on_the_server() {
    let server = Server::start();
    let mut connection = server.connect(Prepared);
    let count = |connection: &mut MySqlConnection| {
        let rows = connection.query("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").unwrap();
        rows[0][1].clone().unwrap()
    };
    for _ in 0..5 {
        connection.prepare("SELECT 1").unwrap();
    }
    assert_eq!(count(&mut connection), "5");
    connection.close_statements();
    assert_eq!(count(&mut connection), "0");
    assert_eq!(execute(&mut connection, "SELECT 3", &Params::default()).digest, 3);
}

#[test]
fn killed_connection_is_lost_for_good() {
    let database = Database::create();
    for mode in MODES {
        let mut connection = database.connect(mode);
        let statement = connection.prepare("SELECT SLEEP(?)").unwrap();
        let mut killer = database.connect(Text);
        let number = connection_id(&mut connection);
        let error = thread::scope(|scope| {
            let asleep = scope.spawn(|| connection.execute(statement, &ints(&[30])));
            wait_for_row(
                &mut killer,
                &format!(
                    "SELECT 1 FROM information_schema.processlist \
                     WHERE id = {number} AND state = 'User sleep'"
                ),
            );
            killer.run(&format!("KILL CONNECTION {number}")).unwrap();
            asleep.join().unwrap().unwrap_err()
        });
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        for _ in 0..2 {
            let error = connection.execute(statement, &ints(&[0])).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        }
        assert_eq!(connection.query("SELECT 1").unwrap_err().kind, ErrorKind::Connection);
    }
}

#[test]
fn killed_server_is_a_lost_connection() {
    let mut server = Server::start();
    let mut connection = server.connect(Prepared);
    let statement = connection.prepare("SELECT 1").unwrap();
    server.kill();
    let error = connection.execute(statement, &Params::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection);
    let error = MySqlConnection::connect(&server.target(), Prepared).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Connection);
    assert!(error.message.contains("check that the server is running"), "{error}");
}

#[test]
fn rows_of_text_statements_are_kept_until_the_next_one() {
    let database = Database::create();
    for mode in MODES {
        check_kept_rows(&mut database.connect(mode), true, |error| error.has_number(1064));
    }
    let mut connection = database.connect(Prepared);
    check_text_as_it_is(&mut connection, b"SELECT _binary '\xff\xc3\xfe'", b"\xff\xc3\xfe");
    let sql = b"SELECT 1, 2 UNION SELECT 3, 4; SELECT 5; SET @a = 1; SELECT 6 LIMIT 0";
    let several = connection.text_statement(sql).unwrap();
    connection.execute(several, &Params::default()).unwrap();
    assert_eq!(connection.result(), ResultShape { columns: 2, rows: 2 });
    assert_eq!(connection.next_result(), Some(ResultShape { columns: 1, rows: 1 }));
    assert_eq!(connection.take_rows(), [[Some(b"5".to_vec())]]);
    assert_eq!(connection.next_result(), Some(ResultShape { columns: 0, rows: 0 }));
    assert_eq!(connection.next_result(), Some(ResultShape { columns: 1, rows: 0 }));
    assert!(connection.take_rows().is_empty());
    assert_eq!(connection.next_result(), None);
    let sql = "SELECT REPEAT('x', 10000) FROM seq_1_to_7000";
    check_too_many_rows(&mut database.connect(Prepared), sql);
}
