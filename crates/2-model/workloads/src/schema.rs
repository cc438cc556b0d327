//! The tables: names, columns, indexes.

/// The name of table number `table` (from 0): `sbtest1`, `sbtest2`, ….
pub fn table_name(table: u32) -> String {
    format!("sbtest{}", table + 1)
}

/// The name of the secondary index on `k` of table number `table`.
pub fn index_name(table: u32) -> String {
    format!("k_{}", table + 1)
}

/// Bytes of data per row: id, `k`, `c` and `pad`, and `k` and id again in the secondary index.
/// Databases need more space; for size estimates only.
pub const ROW_BYTES: u64 = 8 + 4 + 119 + 59 + 12;
