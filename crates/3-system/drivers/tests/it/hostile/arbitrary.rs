//! Arbitrary bytes from a server, most of them close to the protocol: no answer makes the client panic, hang,
//! allocate much more than it receives, or reveal the password.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Params};
use dbdyno_fuzz::{check_cases, measure_memory};
use dbdyno_types::server::{StatementMode, Target, Tls};
use proptest::prelude::*;

use super::{FakeServer, answer_with};
use super::{mysql, postgres};
use crate::support::contains_password;

/// For buffers that are allocated whatever the server sends.
const BASE: usize = 1 << 20;
/// Bytes in memory per byte received: a NULL in a row takes one byte, and 24 as a value.
const PER_BYTE: usize = 100;

fn noise(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..length)
}

fn mode() -> impl Strategy<Value = StatementMode> {
    prop_oneof![Just(StatementMode::Prepared), Just(StatementMode::Text)]
}

/// Uses a connection for everything that benchmarks do.
fn use_connection(connection: &mut impl Connection) {
    let _ = connection.query("SELECT 1");
    if let Ok(statement) = connection.prepare("SELECT 1") {
        for _ in 0..2 {
            let _ = connection.execute(statement, &Params::default());
        }
    }
    let _ = connection.run("SELECT 1; SELECT 2");
    connection.close_statements();
}

/// Runs `client` with a server that sends these chunks.
fn check(chunks: Vec<Vec<u8>>, client: impl FnOnce(&Target)) -> Result<(), TestCaseError> {
    let sent: usize = chunks.iter().map(Vec::len).sum();
    let fake = FakeServer::start(move |stream| answer_with(stream, &chunks));
    let target = fake.target(Tls::Off);
    let ((), memory) = measure_memory(|| client(&target));
    prop_assert!(!contains_password(&fake.finish()));
    prop_assert!(memory < BASE + PER_BYTE * sent, "{} bytes for {}", memory, sent);
    Ok(())
}

mod mysql_packets {
    use super::*;

    /// A length-encoded number, or any other byte in its place.
    fn number() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0_u8..4).prop_map(|n| vec![n]),
            1 => any::<u8>().prop_map(|n| vec![n]),
            1 => any::<u16>().prop_map(|n| [&[0xfc], &n.to_le_bytes()[..]].concat()),
            1 => (0_u32..1 << 24).prop_map(|n| [&[0xfd], &n.to_le_bytes()[..3]].concat()),
            1 => any::<u64>().prop_map(|n| [&[0xfe], &n.to_le_bytes()[..]].concat()),
        ]
    }

    /// Texts whose lengths may be lies.
    fn row() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec((number(), noise(5)), 0..5).prop_map(|values| {
            values.into_iter().flat_map(|(n, text)| [n, text].concat()).collect()
        })
    }

    fn definition() -> impl Strategy<Value = Vec<u8>> {
        (0_usize..30, any::<u8>(), any::<[u8; 5]>())
            .prop_map(|(names, kind, rest)| [&vec![1; names][..], &[kind], &rest].concat())
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let starting_with =
            |first: &'static [u8]| noise(20).prop_map(move |rest| [first, &rest].concat());
        prop_oneof![
            4 => row(),
            3 => definition(),
            2 => number(),
            2 => (number(), any::<u8>()).prop_map(|(n, flag)| [&n[..], &[flag]].concat()),
            2 => (number(), number(), any::<[u8; 4]>())
                .prop_map(|(a, b, rest)| [&[0][..], &a, &b, &rest].concat()),
            // A statement was prepared: number of columns and of parameters.
            2 => (any::<u32>(), prop_oneof![0_u16..4, any::<u16>()], 0_u16..3).prop_map(
                |(id, columns, params)| {
                    let id = id.to_le_bytes();
                    let columns = columns.to_le_bytes();
                    [&[0][..], &id, &columns, &params.to_le_bytes(), &[0, 0, 0]].concat()
                }
            ),
            1 => any::<[u8; 4]>().prop_map(|rest| [&[0xfe][..], &rest].concat()),
            1 => starting_with(b"\xff"),
            1 => starting_with(b"\xfb"),
            1 => starting_with(b"\xfemysql_native_password\0"),
            1 => starting_with(b"\xfecaching_sha2_password\0"),
            1 => starting_with(b"\xfemysql_clear_password\0"),
            1 => starting_with(b"\x01"),
            1 => Just(vec![1, 4]),
            1 => noise(300),
        ]
    }

    /// A packet whose length is sometimes a lie.
    fn packet() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![9 => Just(None), 1 => (0_u32..1 << 24).prop_map(Some)];
        (payload(), length, any::<u8>()).prop_map(|(payload, length, sequence)| {
            let mut packet = mysql::packet(sequence, &payload);
            if let Some(length) = length {
                packet[..3].copy_from_slice(&length.to_le_bytes()[..3]);
            }
            packet
        })
    }

    fn packets() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(packet(), 0..12).prop_map(|packets| packets.concat())
    }

    fn greeting() -> impl Strategy<Value = Vec<u8>> {
        let valid = prop::sample::select(vec![
            "mysql_native_password",
            "caching_sha2_password",
            "mysql_clear_password",
        ])
        .prop_map(mysql::greeting);
        prop_oneof![
            6 => valid.clone(),
            1 => (valid, any::<prop::sample::Index>(), any::<u8>()).prop_map(
                |(mut greeting, at, byte)| {
                    let at = at.index(greeting.len());
                    greeting[at] = byte;
                    greeting
                }
            ),
            1 => packets(),
        ]
    }

    /// The response to a request to prepare a statement with one column.
    fn prepared() -> impl Strategy<Value = Vec<u8>> {
        definition().prop_map(|definition| {
            let statement = mysql::packet(1, &[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            [statement, mysql::packet(2, &definition)].concat()
        })
    }

    #[test]
    fn arbitrary_mysql_server_does_no_harm() {
        let ok = |sequence| Just(mysql::packet(sequence, mysql::OK));
        let login = prop_oneof![5 => ok(2), 1 => packets()];
        // In the order of `use_connection`. A packet out of order ends the connection, and what follows is not
        // read.
        let queried = prop_oneof![2 => ok(1), 1 => packets()];
        let prepared = prop_oneof![2 => prepared(), 1 => packets()];
        let rest = prop::collection::vec(packets(), 0..4);
        let cases = (greeting(), login, queried, prepared, rest, mode());
        check_cases(&cases, 256, |(greeting, login, queried, prepared, rest, mode)| {
            let chunks = [vec![greeting, login, queried, prepared], rest].concat();
            check(chunks, |target| {
                if let Ok(mut connection) = MySqlConnection::connect(target, mode) {
                    use_connection(&mut connection);
                }
            })
        });
    }
}

mod postgres_messages {
    use super::*;

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![6 => 0_u32..14, 1 => any::<u32>(), 1 => Just(u32::MAX)]
    }

    /// A count and values; both may be lies.
    fn row() -> impl Strategy<Value = Vec<u8>> {
        let value = (number(), noise(14))
            .prop_map(|(length, bytes)| [&length.to_be_bytes()[..], &bytes].concat());
        (prop_oneof![4 => 0_u16..4, 1 => any::<u16>()], prop::collection::vec(value, 0..4))
            .prop_map(|(count, values)| [&count.to_be_bytes()[..], &values.concat()].concat())
    }

    fn description() -> impl Strategy<Value = Vec<u8>> {
        let column = (noise(4), number(), noise(3)).prop_map(|(name, kind, end)| {
            [&name[..], &[0; 7], &kind.to_be_bytes(), &[0; 8], &end].concat()
        });
        (prop_oneof![4 => 0_u16..4, 1 => any::<u16>()], prop::collection::vec(column, 0..4))
            .prop_map(|(count, columns)| [&count.to_be_bytes()[..], &columns.concat()].concat())
    }

    /// A message whose length is sometimes a lie.
    fn message() -> impl Strategy<Value = Vec<u8>> {
        let tagged = |tag: u8| move |body: Vec<u8>| postgres::message(tag, &body);
        let request = (number(), prop_oneof![noise(20), Just(b"SCRAM-SHA-256\0\0".to_vec())]);
        let message = prop_oneof![
            3 => row().prop_map(tagged(b'D')),
            2 => description().prop_map(tagged(b'T')),
            1 => row().prop_map(tagged(b't')),
            2 => request.prop_map(|(n, rest)| {
                postgres::message(b'R', &[&n.to_be_bytes()[..], &rest].concat())
            }),
            1 => noise(40).prop_map(tagged(b'E')),
            1 => Just(postgres::message(b'E', b"SERROR\0VERROR\0C42601\0Mx\0\0")),
            2 => prop::sample::select(b"ITE?".to_vec()).prop_map(|s| postgres::message(b'Z', &[s])),
            2 => (any::<u8>(), noise(60)).prop_map(|(tag, body)| postgres::message(tag, &body)),
            2 => (prop::sample::select(b"12nCGHNSAIKdc".to_vec()), noise(12))
                .prop_map(|(tag, body)| postgres::message(tag, &body)),
        ];
        let length = prop_oneof![9 => Just(None), 1 => any::<u32>().prop_map(Some)];
        (message, length).prop_map(|(mut message, length)| {
            if let Some(length) = length {
                message[1..5].copy_from_slice(&length.to_be_bytes());
            }
            message
        })
    }

    fn messages() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(message(), 0..12).prop_map(|messages| messages.concat())
    }

    /// The response to a request to prepare, with arbitrary bodies.
    fn description_reply() -> impl Strategy<Value = Vec<u8>> {
        let described = (row(), description()).prop_map(|(parameters, columns)| {
            [postgres::message(b't', &parameters), postgres::message(b'T', &columns)].concat()
        });
        let valid = Just([postgres::message(b't', &[0, 0]), postgres::message(b'n', b"")].concat());
        prop_oneof![1 => described, 2 => valid]
            .prop_map(|reply| [postgres::message(b'1', b""), reply, ready()].concat())
    }

    /// Rows with arbitrary bodies.
    fn rows_reply() -> impl Strategy<Value = Vec<u8>> {
        (description(), prop::collection::vec(row(), 0..4), noise(12)).prop_map(
            |(columns, rows, tag)| {
                let mut reply = postgres::message(b'T', &columns);
                rows.iter().for_each(|row| reply.extend(postgres::message(b'D', row)));
                [reply, postgres::message(b'C', &tag), ready()].concat()
            },
        )
    }

    fn ready() -> Vec<u8> {
        postgres::message(b'Z', b"I")
    }

    #[test]
    fn arbitrary_postgresql_server_does_no_harm() {
        let login = prop_oneof![5 => Just(postgres::let_in()), 1 => messages()];
        // In the order of `use_connection`. A message out of order ends the connection, and what follows is
        // not read.
        let queried = prop_oneof![2 => Just(ready()), 1 => rows_reply(), 1 => messages()];
        let prepared = prop_oneof![3 => description_reply(), 1 => messages()];
        let executed = prop_oneof![3 => rows_reply(), 1 => messages()];
        let rest = prop::collection::vec(prop_oneof![messages(), rows_reply()], 0..4);
        let cases = (login, queried, prepared, executed, rest, mode());
        check_cases(&cases, 256, |(login, queried, prepared, executed, rest, mode)| {
            let chunks = [vec![login, queried, prepared, executed], rest].concat();
            check(chunks, |target| {
                if let Ok(mut connection) = PostgresConnection::connect(target, mode) {
                    use_connection(&mut connection);
                    copy_to(&mut connection);
                }
            })
        });
    }

    fn copy_to(connection: &mut PostgresConnection) {
        let mut batches = 3;
        let _ = connection.copy_in("COPY t FROM STDIN", &mut |rows| {
            rows.extend_from_slice(&[b'\n'; 1 << 16]);
            batches -= 1;
            batches > 0
        });
    }
}
