//! The queries: three ranges, each of which an index answers alone, and one by primary key.

use rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::rows::{CASH_REGISTERS, PRICES, PRODUCTS};
use crate::events::ParameterSink;
use crate::keys::below;

/// Which queries a step asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryKind {
    /// The three ranges in turn.
    Range,
    /// One row by its primary key.
    PrimaryKey,
}

impl QueryKind {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Range, Self::PrimaryKey];

    /// The word in experiments and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::PrimaryKey => "primary-key",
        }
    }

    /// What it asks, in turn.
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
    /// Ten entries from a price on.
    ByPrice,
    /// Ten entries from a product on.
    ByProduct,
    /// Ten entries behind a cash register.
    ByRegister,
    /// One row.
    ByKey,
}

impl Query {
    /// The most rows that it returns.
    #[must_use]
    pub const fn most_rows(self) -> u64 {
        match self {
            Self::ByKey => 1,
            Self::ByPrice | Self::ByProduct | Self::ByRegister => 10,
        }
    }

    /// The fewest rows that it returns on a table with so many rows: where even the greatest value
    /// of its column has far more entries than it asks for, none can be missing. 0 where chance
    /// decides.
    #[must_use]
    pub const fn fewest_rows(self, rows: u64) -> u64 {
        /// With so many entries expected, fewer than ten are less likely than one in 10^15.
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

    /// The statement; `parameter` is how its only parameter is written.
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

    /// Draws its parameter; `keys` are the least and the greatest primary key that may be there.
    #[inline]
    pub fn draw(self, rng: &mut impl Rng, keys: (i64, i64), sink: &mut impl ParameterSink) {
        let value = match self {
            Self::ByPrice => below(rng, PRICES) as i64,
            Self::ByProduct => below(rng, PRODUCTS) as i64,
            // Behind the last one there is nothing.
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
    use super::*;
    use crate::seeds::{Purpose, rng_for};

    struct Last(i64);

    impl ParameterSink for Last {
        fn int(&mut self, value: i64) {
            self.0 = value;
        }

        fn text(&mut self, _: &[u8]) {}
    }

    #[test]
    fn queries_are_those_of_the_published_form() {
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
    fn on_a_large_table_a_range_has_all_its_rows() {
        assert_eq!(Query::ByPrice.fewest_rows(30_000), 10);
        assert_eq!(Query::ByPrice.fewest_rows(29_999), 0);
        assert_eq!(Query::ByProduct.fewest_rows(600_000), 10);
        assert_eq!(Query::ByKey.fewest_rows(1_000_000), 0);
    }

    #[test]
    fn keys_are_drawn_from_those_that_are_there() {
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
