//! What is measured: a slice's figures, response times, an engine's state. Plain data, shared by
//! those who measure, those who store and those who report.

mod certificate;
mod latencies;
mod slice;

pub use certificate::Certificate;
pub use latencies::Latencies;
pub use slice::SliceMeasured;
