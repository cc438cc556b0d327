//! One thread drives several connections.

use std::os::fd::AsFd as _;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Answer, Connection, NonBlockingConnection};
use dbdyno_types::server::StatementMode;
use rustix::event::{PollFd, PollFlags, poll};

use super::server::Value::Int;
use super::server::{Database, execute, params};
use crate::received::try_receive;

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
    let statement = connection.prepare("SELECT 5 FROM pg_sleep(0.2)").unwrap();
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
