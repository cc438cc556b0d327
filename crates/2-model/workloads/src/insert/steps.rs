//! Steps of the insert benchmark.

use dbdyno_units::Nanos;
use rand_core::Rng;
use serde::{Deserialize, Serialize};

use crate::events::ParameterSink;
use crate::insert::ROW_BYTES;
use crate::insert::rows::{CASH_REGISTERS, PRICES, PRODUCTS};
use crate::keys::below;

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
    #[must_use]
    pub fn rows(&self) -> u64 {
        let of_client: u64 = self.steps.iter().map(|step| step.task.rows_per_client()).sum();
        of_client.saturating_mul(u64::from(self.clients))
    }

    /// Size of their data and indexes, without the overhead of databases.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.rows().saturating_mul(ROW_BYTES + u64::from(self.data_length))
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
    #[must_use]
    pub fn rows_per_client(&self) -> u64 {
        match self {
            Self::Insert(inserts) => inserts.rows_per_client,
            Self::Mix(mix) => (f64::from(mix.rate) * mix.time.as_secs_f64()) as u64,
            Self::Index | Self::Settle => 0,
        }
    }

    /// The requested rate of inserts, in rows per second and client.
    #[must_use]
    pub const fn rate(&self) -> Option<u32> {
        match self {
            Self::Mix(mix) => Some(mix.rate),
            Self::Insert(_) | Self::Index | Self::Settle => None,
        }
    }

    /// A description for reports.
    #[must_use]
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
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Range, Self::PrimaryKey];

    /// The name in experiments and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::PrimaryKey => "primary-key",
        }
    }

    /// The queries, executed in turn.
    #[must_use]
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
    #[must_use]
    pub const fn most_rows(self) -> u64 {
        match self {
            Self::ByKey => 1,
            Self::ByPrice | Self::ByProduct | Self::ByRegister => 10,
        }
    }

    /// The minimum number of rows returned from a table with `rows` rows: all requested rows if
    /// even the largest value of the column has far more entries than requested, otherwise 0.
    #[must_use]
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
    #[must_use]
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

#[cfg(test)]
mod tests {
    use crate::seeds::{Purpose, rng_for};

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
}
