//! Queries: three ranges, each covered by an index, and one by primary key.

use rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::rows::{CASH_REGISTERS, PRICES, PRODUCTS};
use crate::events::ParameterSink;
use crate::keys::below;

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
