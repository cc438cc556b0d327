//! The table of sales.

/// The name of table number `table` (from 0): `pi1`, `pi2`, ….
#[must_use]
pub fn table_name(table: u32) -> String {
    format!("pi{}", table + 1)
}

/// The table of a client: clients are assigned to tables in turn.
#[must_use]
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

/// Bytes of data per row including its entries in the three indexes, without `data`. Databases
/// need more space; for size estimates only.
pub const ROW_BYTES: u64 = (8 + 8 + 4 * 4) + (12 + 8) + (12 + 8) + (16 + 8);
