use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Answer, Connection, ErrorKind, NonBlockingConnection, Params, StatementId};
use dbdyno_types::server::StatementMode::{Prepared, Text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::server::{Database, Server};
use crate::received::try_receive;

/// Waits until one of the connections is readable. Returns the complete answers with the index of their
/// connection.
fn wait(connections: &mut [(MySqlConnection, StatementId)]) -> Vec<(usize, Answer)> {
    let readable: Vec<bool> = {
        let mut fds: Vec<PollFd> =
            connections.iter().map(|(c, _)| PollFd::new(c, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nothing arrives");
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    };
    let mut complete = Vec::new();
    for (index, (connection, _)) in connections.iter_mut().enumerate() {
        if readable[index]
            && let Some(answer) = try_receive(connection).unwrap()
        {
            complete.push((index, answer));
        }
    }
    complete
}

#[test]
fn one_thread_drives_many_connections() {
    let database = Database::create();
    database
        .connect(Text)
        .run(
            "CREATE TABLE t (id INT PRIMARY KEY, c CHAR(120));
              INSERT INTO t SELECT seq, RPAD(seq, 119, '-') FROM seq_1_to_5000",
        )
        .unwrap();
    // A range that arrives in many parts, and a point, in both modes.
    let mut connections: Vec<(MySqlConnection, StatementId)> = (0..8)
        .map(|index| {
            let mode = if index % 2 == 0 { Prepared } else { Text };
            let mut connection = database.connect(mode);
            let statement =
                connection.prepare("SELECT id, c FROM t WHERE id BETWEEN ? AND ?").unwrap();
            (connection, statement)
        })
        .collect();
    let params = |index: usize, round: i64| {
        let mut params = Params::default();
        params.push_int(round + 1);
        params.push_int(if index < 4 { 5000 } else { round + 1 });
        params
    };
    let mut expected = [const { Vec::new() }; 8];
    for (index, (connection, statement)) in connections.iter_mut().enumerate() {
        for round in 0..20 {
            expected[index].push(connection.execute(*statement, &params(index, round)).unwrap());
        }
    }
    assert_eq!(expected[0], expected[1]);
    let mut seen = [const { Vec::new() }; 8];
    for (index, (connection, statement)) in connections.iter_mut().enumerate() {
        connection.send(*statement, &params(index, 0)).unwrap();
    }
    while seen.iter().any(|answers| answers.len() < 20) {
        for (index, answer) in wait(&mut connections) {
            seen[index].push(answer);
            let round = seen[index].len();
            if round < 20 {
                let (connection, statement) = &mut connections[index];
                connection.send(*statement, &params(index, round as i64)).unwrap();
            }
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn try_receive_does_not_wait() {
    let database = Database::create();
    let mut connection = database.connect(Prepared);
    let statement = connection.prepare("SELECT SLEEP(?)").unwrap();
    let mut second = Params::default();
    second.push_int(1);
    connection.send(statement, &second).unwrap();
    // `None` shows that it did not wait for the answer.
    assert_eq!(try_receive(&mut connection).unwrap(), None);
    // A second request is rejected and does not affect the first.
    let error = connection.send(statement, &second).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Statement);
    assert_eq!(connection.query("SELECT 1").unwrap_err().kind, ErrorKind::Statement);
    let mut connections = [(connection, statement)];
    let answers = loop {
        let answers = wait(&mut connections);
        if !answers.is_empty() {
            break answers;
        }
    };
    assert_eq!(answers, [(0, Answer { rows: 1, affected: 0, digest: 0 })]);
}

#[test]
fn killed_server_is_reported_by_try_receive() {
    let mut server = Server::start();
    let mut connection = server.connect(Prepared);
    let statement = connection.prepare("SELECT SLEEP(?)").unwrap();
    let mut params = Params::default();
    params.push_int(20);
    connection.send(statement, &params).unwrap();
    assert_eq!(try_receive(&mut connection).unwrap(), None);
    server.kill();
    let mut fds = [PollFd::new(&connection, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
    let error = try_receive(&mut connection).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection);
}
