//! The insert benchmark as data: table, steps, rows and queries.
//!
//! It loads tables in steps, then measures queries during inserts at a fixed rate.

use std::io::Write;

use dbdyno_units::Nanos;
use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::events::ParameterSink;
use crate::keys::below;
use crate::seeds::{Purpose, rng_for};

/// The steps for one candidate, executed once per repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of concurrent clients.
    pub clients: u32,
    /// Number of tables, at most one per client. Clients are assigned to tables in turn.
    pub tables: u32,
    /// Length of the column `data`, in bytes.
    pub data_length: u32,
    /// Whether an old row is deleted for each inserted row, once the indexes exist.
    pub delete_per_insert: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Number of rows at the end if every rate is sustained and nothing is deleted.
    pub fn rows(&self) -> u64 {
        let of_client: u64 = self.steps.iter().map(|step| step.task.rows_per_client()).sum();
        of_client.saturating_mul(u64::from(self.clients))
    }

    /// Size of their data and indexes, without the overhead of databases.
    pub fn data_bytes(&self) -> u64 {
        self.rows().saturating_mul(ROW_BYTES + u64::from(self.data_length))
    }

    /// Size of their data and indexes in a server. With 10 bytes of data, InnoDB has about 200 bytes per row, and PostgreSQL 250
    /// (`runs/study-a-1c-1t`).
    pub fn server_bytes(&self) -> u64 {
        self.rows().saturating_mul(200 + u64::from(self.data_length)).saturating_mul(6) / 5
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The published name: `l.i0`, `l.x`, `l.i1`, `settle`, `q100`.
    pub name: String,
    pub task: Task,
}

/// The task of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Every client inserts rows as fast as it can.
    Insert(Inserts),
    /// The secondary indexes are created.
    Index,
    /// The database settles.
    Settle,
    /// Every client sends queries as fast as it can, while a second thread of the client inserts at
    /// a fixed rate.
    Mix(Mix),
}

impl Task {
    /// Rows that a client inserts if the rate is sustained.
    pub fn rows_per_client(&self) -> u64 {
        match self {
            Self::Insert(inserts) => inserts.rows_per_client,
            Self::Mix(mix) => (f64::from(mix.rate) * mix.time.as_secs_f64()) as u64,
            Self::Index | Self::Settle => 0,
        }
    }

    /// The requested rate of inserts, in rows per second and client.
    pub const fn rate(&self) -> Option<u32> {
        match self {
            Self::Mix(mix) => Some(mix.rate),
            Self::Insert(_) | Self::Index | Self::Settle => None,
        }
    }

    /// A description for reports.
    pub fn describe(&self, deletes: bool) -> String {
        let and_deletes = if deletes { ", and deletes as many old rows" } else { "" };
        match self {
            Self::Insert(Inserts { rows_per_client, rows_per_commit, .. }) => format!(
                "each client inserts {rows_per_client} rows, {rows_per_commit} per \
                 commit{and_deletes}"
            ),
            Self::Index => "the three secondary indexes are made".to_owned(),
            Self::Settle => "the database comes to rest".to_owned(),
            Self::Mix(Mix { rate, rows_per_commit, time, queries }) => {
                let asks = match queries {
                    QueryKind::Range => "range queries",
                    QueryKind::PrimaryKey => "queries by primary key",
                };
                format!(
                    "for {time}, each client asks {asks} as fast as it can and inserts {rate} \
                     rows/s, {rows_per_commit} per commit{and_deletes}"
                )
            }
        }
    }
}

/// Inserts at full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inserts {
    pub rows_per_client: u64,
    pub rows_per_commit: u32,
    /// Whether the secondary indexes exist, and old rows may be deleted.
    pub indexed: bool,
}

/// Queries during inserts at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Rows that each client inserts per second.
    pub rate: u32,
    pub rows_per_commit: u32,
    /// Duration.
    pub time: Nanos,
    pub queries: QueryKind,
}

/// The queries of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryKind {
    /// The three ranges in turn.
    Range,
    /// One row by its primary key.
    PrimaryKey,
}

impl QueryKind {
    /// The queries, executed in turn.
    pub const fn queries(self) -> &'static [Query] {
        match self {
            Self::Range => &[Query::ByPrice, Query::ByProduct, Query::ByRegister],
            Self::PrimaryKey => &[Query::ByKey],
        }
    }
}

/// One query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Ten index entries, starting at a price.
    ByPrice,
    /// Ten index entries, starting at a product.
    ByProduct,
    /// Ten index entries after a cash register.
    ByRegister,
    /// One row.
    ByKey,
}

impl Query {
    /// The maximum number of rows returned.
    pub const fn most_rows(self) -> u64 {
        match self {
            Self::ByKey => 1,
            Self::ByPrice | Self::ByProduct | Self::ByRegister => 10,
        }
    }

    /// The minimum number of rows returned from a table with `rows` rows: all requested rows if
    /// even the largest value of the column has far more entries than requested, otherwise 0.
    pub const fn fewest_rows(self, rows: u64) -> u64 {
        /// Expected entries per value for which fewer than ten have a probability below 10^-15.
        const ENOUGH: u64 = 60;
        let values = match self {
            Self::ByPrice => PRICES,
            Self::ByProduct => PRODUCTS,
            Self::ByRegister => CASH_REGISTERS,
            // Databases leave gaps between keys, and old rows may be deleted.
            Self::ByKey => return 0,
        };
        if rows / values >= ENOUGH { self.most_rows() } else { 0 }
    }

    /// The SQL; `parameter` is the placeholder of its only parameter.
    pub fn sql(self, table: &str, parameter: &str) -> String {
        let (columns, condition) = match self {
            Self::ByPrice => ("price, dateandtime, customerid", "price >="),
            Self::ByProduct => ("productid, customerid, price", "productid >="),
            Self::ByRegister => ("cashregisterid, customerid, price", "cashregisterid >"),
            Self::ByKey => {
                return format!(
                    "SELECT price, dateandtime, customerid FROM {table} \
                     WHERE transactionid = {parameter}"
                );
            }
        };
        format!(
            "SELECT {columns} FROM {table} WHERE {condition} {parameter} \
             ORDER BY {columns} LIMIT 10"
        )
    }

    /// Draws the parameter. `keys` are the smallest and the largest primary key that may exist.
    #[inline]
    pub fn draw(self, rng: &mut impl Rng, keys: (i64, i64), sink: &mut impl ParameterSink) {
        let value = match self {
            Self::ByPrice => below(rng, PRICES) as i64,
            Self::ByProduct => below(rng, PRODUCTS) as i64,
            // There are no entries after the last one.
            Self::ByRegister => below(rng, CASH_REGISTERS - 1) as i64,
            Self::ByKey => {
                let (least, greatest) = keys;
                least + below(rng, (greatest - least).max(0) as u64 + 1) as i64
            }
        };
        sink.int(value);
    }
}

/// The minimum length of `data`, in bytes.
pub const LEAST_DATA: u32 = 1;

/// The maximum length of `data`, in bytes: the length of its column.
pub const MOST_DATA: u32 = 4_000;

/// Number of values of `cashregisterid`, from 0; likewise for the other columns.
const CASH_REGISTERS: u64 = 1_000;
const CUSTOMERS: u64 = 100_000;
const PRODUCTS: u64 = 10_000;
const PRICES: u64 = 500;

/// Characters of the random half of `data`: 64, six bits each.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// The rows of one client in one step of one repeat. The same seed gives the same rows.
#[derive(Clone, Debug)]
pub struct RowStream {
    rng: Xoshiro256PlusPlus,
    clock: SaleClock,
    /// `data`; its second half is constant.
    data: Vec<u8>,
    random: usize,
}

/// A position in a [`RowStream`].
#[derive(Clone, Debug)]
pub struct Position(Xoshiro256PlusPlus);

impl RowStream {
    /// The rows of client number `client` in step number `step`; `data_length` is the length of
    /// `data` in bytes.
    pub fn new(seed: u64, repeat: u32, step: u32, client: u32, data_length: u32) -> Self {
        let length = data_length as usize;
        Self {
            rng: rng_for(seed, Purpose::Inserts { repeat, step, client }),
            clock: SaleClock::of_step(step),
            data: vec![b'x'; length],
            random: length.div_ceil(2),
        }
    }

    /// Begins a commit. All its rows have the same time, one second after the previous commit.
    #[inline]
    pub fn begin_commit(&mut self) {
        self.clock.tick();
    }

    /// The current position, for [`Self::restore`].
    pub fn position(&self) -> Position {
        Position(self.rng.clone())
    }

    /// Returns to a position in the current commit, to draw the same rows again.
    pub fn restore(&mut self, position: Position) {
        self.rng = position.0;
    }

    /// Draws the values of the next row, in the order of [`COLUMNS`].
    #[inline]
    pub fn draw(&mut self, sink: &mut impl ParameterSink) {
        sink.text(self.clock.text());
        for values in [CASH_REGISTERS, CUSTOMERS, PRODUCTS, PRICES] {
            sink.int(below(&mut self.rng, values) as i64);
        }
        for letters in self.data[..self.random].chunks_mut(10) {
            let mut bits = self.rng.next_u64();
            for letter in letters {
                *letter = LETTERS[(bits & 63) as usize];
                bits >>= 6;
            }
        }
        sink.text(&self.data);
    }
}

/// A simulated clock that advances by one second per commit. The system clock is not used,
/// because the same seed must give the same rows.
#[derive(Clone, Debug)]
struct SaleClock {
    now: DateTime,
    text: Vec<u8>,
}

/// Distance between the start times of consecutive steps, about three years. A step uses one
/// second per commit, so that later steps have later times.
const SECONDS_PER_STEP: i64 = 100_000_000;

impl SaleClock {
    /// The clock at the start of a step.
    pub fn of_step(step: u32) -> Self {
        let start = date(2000, 1, 1).at(0, 0, 0, 0);
        let now = start.saturating_add(SignedDuration::from_secs(
            i64::from(step).saturating_mul(SECONDS_PER_STEP),
        ));
        Self { now, text: Vec::with_capacity(20) }
    }

    /// Advances by one second.
    pub fn tick(&mut self) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(1));
        self.text.clear();
        let now = self.now;
        // Writing to a vector cannot fail.
        let _ = write!(
            self.text,
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
            now.year(),
            now.month(),
            now.day(),
            now.hour(),
            now.minute(),
            now.second()
        );
    }

    /// The current time. Empty before the first tick.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

/// The name of table number `table` (from 0): `pi1`, `pi2`, ….
pub fn table_name(table: u32) -> String {
    format!("pi{}", table + 1)
}

/// The table of a client: clients are assigned to tables in turn.
pub const fn table_of(client: u32, tables: u32) -> u32 {
    client % tables
}

/// The columns of an insert; the database assigns `transactionid`.
pub const COLUMNS: [&str; 6] =
    ["dateandtime", "cashregisterid", "customerid", "productid", "price", "data"];

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The name, different for every table as SQLite and PostgreSQL require.
    pub name: String,
    /// The columns, in order.
    pub columns: [&'static str; 3],
}

/// The three secondary indexes of a table, created by step `l.x`.
pub fn indexes(table: u32) -> [Index; 3] {
    let index =
        |what: &str, columns| Index { name: format!("{}_{what}", table_name(table)), columns };
    [
        index("product", ["productid", "customerid", "price"]),
        index("register", ["cashregisterid", "customerid", "price"]),
        index("price", ["price", "dateandtime", "customerid"]),
    ]
}

/// Bytes of data per row including its entries in the three indexes, without `data`. Databases
/// need more space; for size estimates only.
pub const ROW_BYTES: u64 = (8 + 8 + 4 * 4) + (12 + 8) + (12 + 8) + (16 + 8);

#[cfg(test)]
mod tests {
    use super::*;

    struct Last(i64);

    impl ParameterSink for Last {
        fn int(&mut self, value: i64) {
            self.0 = value;
        }

        fn text(&mut self, _: &[u8]) {}
    }

    #[test]
    fn queries_have_the_published_form() {
        let sql: Vec<String> =
            QueryKind::Range.queries().iter().map(|query| query.sql("pi1", "?")).collect();
        assert_eq!(
            sql,
            [
                "SELECT price, dateandtime, customerid FROM pi1 WHERE price >= ? \
                 ORDER BY price, dateandtime, customerid LIMIT 10",
                "SELECT productid, customerid, price FROM pi1 WHERE productid >= ? \
                 ORDER BY productid, customerid, price LIMIT 10",
                "SELECT cashregisterid, customerid, price FROM pi1 WHERE cashregisterid > ? \
                 ORDER BY cashregisterid, customerid, price LIMIT 10",
            ]
        );
    }

    #[test]
    fn range_on_a_large_table_returns_all_rows() {
        assert_eq!(Query::ByPrice.fewest_rows(30_000), 10);
        assert_eq!(Query::ByPrice.fewest_rows(29_999), 0);
        assert_eq!(Query::ByProduct.fewest_rows(600_000), 10);
        assert_eq!(Query::ByKey.fewest_rows(1_000_000), 0);
    }

    #[test]
    fn keys_are_drawn_from_the_existing_range() {
        let mut rng = rng_for(1, Purpose::Queries { repeat: 0, step: 0, client: 0 });
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1_000 {
            let mut last = Last(0);
            Query::ByKey.draw(&mut rng, (5, 9), &mut last);
            seen.insert(last.0);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
        let mut last = Last(0);
        Query::ByKey.draw(&mut rng, (7, 7), &mut last);
        assert_eq!(last.0, 7);
    }

    #[derive(Default)]
    struct Values(Vec<String>);

    impl ParameterSink for Values {
        fn int(&mut self, value: i64) {
            self.0.push(value.to_string());
        }

        fn text(&mut self, text: &[u8]) {
            self.0.push(String::from_utf8(text.to_vec()).unwrap());
        }
    }

    fn rows(seed: u64, repeat: u32, step: u32, client: u32) -> Vec<Vec<String>> {
        let mut stream = RowStream::new(seed, repeat, step, client, 10);
        stream.begin_commit();
        let mut row = || {
            let mut values = Values::default();
            stream.draw(&mut values);
            values.0
        };
        (0..200).map(|_| row()).collect()
    }

    #[test]
    fn rows_depend_on_seed_repeat_step_and_client_only() {
        let first = rows(1, 0, 0, 0);
        assert_eq!(first, rows(1, 0, 0, 0));
        for other in [rows(2, 0, 0, 0), rows(1, 1, 0, 0), rows(1, 0, 1, 0), rows(1, 0, 0, 1)] {
            assert!(first.iter().zip(&other).filter(|(a, b)| a[1..] == b[1..]).count() == 0);
        }
    }

    #[test]
    fn values_are_in_range_and_half_of_the_data_is_random() {
        let mut datas = std::collections::BTreeSet::new();
        for row in rows(3, 0, 0, 0) {
            let number = |at: usize| row[at].parse::<u64>().unwrap();
            assert!(number(1) < 1_000 && number(2) < 100_000 && number(3) < 10_000);
            assert!(number(4) < 500);
            assert_eq!((row[0].len(), row[5].len()), (19, 10));
            assert!(row[5].ends_with("xxxxx"));
            datas.insert(row[5].clone());
        }
        assert!(datas.len() > 190, "{}", datas.len());
    }

    #[test]
    fn a_commit_can_be_drawn_again() {
        let mut stream = RowStream::new(1, 0, 0, 0, 10);
        stream.begin_commit();
        let position = stream.position();
        let mut draw = || {
            let mut values = Values::default();
            (0..50).for_each(|_| stream.draw(&mut values));
            values.0
        };
        let first = draw();
        assert_ne!(first, draw());
        stream.restore(position);
        let mut again = Values::default();
        (0..50).for_each(|_| stream.draw(&mut again));
        assert_eq!(first, again.0);
    }

    #[test]
    fn short_and_long_data_have_the_requested_length() {
        for (length, random) in [(1, 1), (25, 13), (4_000, 2_000)] {
            let mut stream = RowStream::new(1, 0, 0, 0, length);
            stream.begin_commit();
            let mut values = Values::default();
            stream.draw(&mut values);
            assert_eq!(values.0[5].len(), length as usize);
            assert_eq!(values.0[5][random..], "x".repeat(length as usize - random));
        }
    }

    #[test]
    fn clock_advances_over_years_and_steps_do_not_overlap() {
        let mut clock = SaleClock::of_step(0);
        clock.now = clock.now.saturating_add(SignedDuration::from_hours(366 * 24));
        clock.tick();
        assert_eq!(clock.text(), b"2001-01-01 00:00:01");
        let mut later = SaleClock::of_step(1);
        later.tick();
        assert_eq!(later.text(), b"2003-03-03 09:46:41");
    }
}
