//! What is measured: a slice's figures, response times, an engine's state; and the words for
//! servers. Plain data, shared by those who measure, those who store and those who report.

pub mod build;
mod counters;
mod flag_check;
pub mod insert;
mod latencies;
pub mod server;
mod server_used;
mod slice;
mod state_snapshot;

pub use counters::{Count, Counted, Counter, Counting, Counts, Missing};
pub use flag_check::FlagCheck;
pub use latencies::Latencies;
pub use server_used::ServerUsed;
pub use slice::SliceMeasured;
pub use state_snapshot::StateSnapshot;
