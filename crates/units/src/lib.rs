//! Units of measure as types, shared by every crate.
//!
//! A bare float can be labelled with anybody's unit; these cannot. Each type has a constructor
//! that names the unit and an accessor that names it again.

mod bytes;
mod energy;
mod nanos;
mod rates;

pub use bytes::Bytes;
pub use energy::Energy;
pub use nanos::Nanos;
pub use rates::{Qps, Ratio, Share};
