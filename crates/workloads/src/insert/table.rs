//! The table of sales.

/// The name of table number `table` (from 0): `pi1`, `pi2`, ….
#[must_use]
pub fn table_name(table: u32) -> String {
    format!("pi{}", table + 1)
}

/// The table that a client works on: clients are dealt out to the tables in turn.
#[must_use]
pub const fn table_of(client: u32, tables: u32) -> u32 {
    client % tables
}

/// The columns that an insert names; the database assigns `transactionid`.
pub const COLUMNS: [&str; 6] =
    ["dateandtime", "cashregisterid", "customerid", "productid", "price", "data"];

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name, different for every table: SQLite and PostgreSQL want that.
    pub name: String,
    /// Its columns, in order.
    pub columns: [&'static str; 3],
}

/// The three secondary indexes of a table, as step `l.x` makes them.
#[must_use]
pub fn indexes(table: u32) -> [Index; 3] {
    let index =
        |what: &str, columns| Index { name: format!("{}_{what}", table_name(table)), columns };
    [
        index("product", ["productid", "customerid", "price"]),
        index("register", ["cashregisterid", "customerid", "price"]),
        index("price", ["price", "dateandtime", "customerid"]),
    ]
}

/// Bytes of data that a row brings along with its entries in the three indexes, without `data`.
/// Databases need more; this is for estimates of size.
pub const ROW_BYTES: u64 = (8 + 8 + 4 * 4) + (12 + 8) + (12 + 8) + (16 + 8);
