//! The insert benchmark as data: its table, its steps, its rows and its queries.
//!
//! It loads tables in steps, then asks how queries behave while inserts go on at a fixed rate.

mod clock;
mod queries;
mod rows;
mod steps;
mod table;

pub use queries::{Query, QueryKind};
pub use rows::{LEAST_DATA, MOST_DATA, Position, RowStream};
pub use steps::{Inserts, Mix, Plan, Step, Task};
pub use table::{COLUMNS, Index, ROW_BYTES, indexes, table_name, table_of};
