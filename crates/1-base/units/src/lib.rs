//! What every crate shares: units of measure as types, and text that is safe to show or to execute.
//!
//! Unlike bare numbers, the types of units cannot be confused: constructors and accessors name the
//! unit.

mod bytes;
mod energy;
mod grouped;
mod nanos;
mod rates;
mod shell;
mod visible;

pub use bytes::Bytes;
pub use energy::Energy;
pub use grouped::grouped;
pub use nanos::Nanos;
pub use rates::{Qps, Ratio, Share};
pub use shell::shell_quoted;
pub use visible::{visible, visible_char};
