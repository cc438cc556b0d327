//! What is measured: a slice's figures, response times, an engine's state; and the words for
//! servers. Plain data, shared by those who measure, those who store and those who report.

mod certificate;
mod counters;
pub mod insert;
mod latencies;
pub mod server;
mod server_used;
mod slice;

pub use certificate::Certificate;
pub use counters::{Count, Counted, Counter, Counting, Counts, Missing};
pub use latencies::Latencies;
pub use server_used::ServerUsed;
pub use slice::SliceMeasured;
