//! The insert benchmark as data: table, steps, rows and queries.
//!
//! It loads tables in steps, then measures queries during inserts at a fixed rate.

mod clock;
mod queries;
mod rows;
mod steps;
mod table;

pub use queries::{Query, QueryKind};
pub use rows::{LEAST_DATA, MOST_DATA, Position, RowStream};
pub use steps::{Inserts, Mix, Plan, Step, Task};
pub use table::{COLUMNS, Index, ROW_BYTES, indexes, table_name, table_of};
