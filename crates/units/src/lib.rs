//! Units of measure as types, shared by every crate.
//!
//! Unlike bare numbers, these types cannot be confused: constructors and accessors name the unit.

mod bytes;
mod energy;
mod nanos;
mod rates;

pub use bytes::Bytes;
pub use energy::Energy;
pub use nanos::Nanos;
pub use rates::{Qps, Ratio, Share};
