//! The insert benchmark as data: table, steps, rows and queries.
//!
//! It loads tables in steps, then measures queries during inserts at a fixed rate.

mod rows;
mod steps;

pub use rows::{
    COLUMNS, Index, LEAST_DATA, MOST_DATA, Position, ROW_BYTES, RowStream, indexes, table_name,
    table_of,
};
pub use steps::{Inserts, Mix, Plan, Query, QueryKind, Step, Task};
