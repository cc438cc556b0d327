//! Shared by the tests: the password, answers without waiting.

use std::sync::Once;

use dbdyno_drivers::{
    Answer, Connection, Error, ErrorKind, NonBlockingConnection, Params, Received,
};

pub const PASSWORD: &str = "a secret' with \\ signs";

/// Sets the environment variable with the password, for all tests of this process.
pub fn set_password_in_environment() {
    static ONCE: Once = Once::new();
    // SAFETY: everything in these tests that reads the environment does so through the standard library,
    // whose lock this takes, too.
    ONCE.call_once(|| unsafe { std::env::set_var("DBDYNO_PASSWORD", PASSWORD) });
}

/// Whether the password is in these bytes.
pub fn contains_password(bytes: &[u8]) -> bool {
    bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

/// The answer, if all of it has arrived.
pub fn try_receive(connection: &mut impl NonBlockingConnection) -> Result<Option<Answer>, Error> {
    Ok(match connection.receive_available()? {
        Received::Answer(answer) => Some(answer),
        Received::Part | Received::Nothing => None,
    })
}

/// Waits until a connection without a request is lost for this reason, and stays lost.
pub fn assert_loss(connection: &mut impl NonBlockingConnection, reason: &str) {
    let error = loop {
        match try_receive(connection) {
            Ok(answer) => assert_eq!(answer, None),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains(reason), "{error}");
    let error = try_receive(connection).unwrap_err();
    assert!(error.message.contains("lost before"), "{error}");
}

/// The definition of [`Answer::digest`] for a text, literally.
pub fn digest(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let head = match bytes.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    head.wrapping_add(bytes.len() as u64)
}

/// Rows of statements that are sent as text are kept until the next one is executed, or the next of any kind.
pub fn check_kept_rows(
    connection: &mut impl Connection,
    survives_others: bool,
    is_syntax_error: impl Fn(&Error) -> bool,
) {
    let none = Params::default();
    let sql = "SELECT 5, NULL, 'a?b' UNION ALL SELECT 6, '7', ''";
    let one = connection.text_statement(sql.as_bytes()).unwrap();
    let prepared = connection.prepare("SELECT 5 UNION ALL SELECT 6").unwrap();
    let answer = connection.execute(one, &none).unwrap();
    assert_eq!(answer.rows, 2);
    let value = |text: &str| Some(text.as_bytes().to_vec());
    let expected = [[value("5"), None, value("a?b")], [value("6"), value("7"), value("")]];
    if survives_others {
        connection.execute(prepared, &none).unwrap();
    }
    assert_eq!(connection.take_rows(), expected);
    assert!(connection.take_rows().is_empty());
    connection.execute(prepared, &none).unwrap();
    // The same statement again, and another text in its place.
    assert_eq!(connection.execute(one, &none).unwrap(), answer);
    let other = connection.text_statement(b"SELECT 9").unwrap();
    assert_eq!(connection.execute(other, &none).unwrap().rows, 1);
    assert_eq!(connection.take_rows(), [[value("9")]]);
    let failing = connection.text_statement(b"SELEC 9").unwrap();
    assert!(is_syntax_error(&connection.execute(failing, &none).unwrap_err()));
    connection.close_statements();
    let again = connection.text_statement(b"SELECT 8").unwrap();
    assert_eq!(connection.execute(again, &none).unwrap().digest, 8);
}

/// The bytes of SQL text and of values are kept, and the server tells what is a result set.
pub fn check_text_as_it_is(connection: &mut impl Connection, sql: &[u8], bytes: &[u8]) {
    let none = Params::default();
    let mut shape = |sql: &[u8]| {
        let statement = connection.text_statement(sql).unwrap();
        connection.execute(statement, &none).unwrap();
        (connection.result().columns, connection.result().rows, connection.take_rows())
    };
    assert_eq!(shape(sql), (1, 1, vec![vec![Some(bytes.to_vec())]]));
    assert_eq!(shape(b"/* ? */ SELECT 1, 2 WHERE 1 = 2 -- $1"), (2, 0, Vec::new()));
    assert_eq!(shape(b"CREATE TEMPORARY TABLE shapes (i INT)"), (0, 0, Vec::new()));
    assert_eq!(shape(b"INSERT INTO shapes VALUES (7), (8)"), (0, 0, Vec::new()));
    let rows = vec![vec![Some(b"9".to_vec())]];
    assert_eq!(shape(b"INSERT INTO shapes VALUES (9) RETURNING i"), (1, 1, rows));
    let insert = connection.prepare("INSERT INTO shapes VALUES (1)").unwrap();
    let query = connection.prepare("SELECT i, i FROM shapes").unwrap();
    for (statement, columns) in [(insert, 0), (query, 2), (insert, 0)] {
        connection.execute(statement, &none).unwrap();
        assert_eq!(connection.result().columns, columns);
    }
}

/// Rows are counted even if they are too many to keep, such as the 7,000 of 10,000 bytes of this statement.
pub fn check_too_many_rows(connection: &mut impl Connection, sql: &str) {
    let many = connection.text_statement(sql.as_bytes()).unwrap();
    assert_eq!(connection.execute(many, &Params::default()).unwrap().rows, 7000);
    assert!(connection.take_rows().is_empty());
    let few = connection.text_statement(b"SELECT 1").unwrap();
    assert_eq!(connection.execute(few, &Params::default()).unwrap().rows, 1);
    assert_eq!(connection.take_rows().len(), 1);
}
