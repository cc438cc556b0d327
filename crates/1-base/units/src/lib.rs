//! What every crate shares: units of measure as types, and text that is safe to show or to execute.
//!
//! Unlike bare numbers, the types of units cannot be confused: constructors and accessors name the
//! unit.

mod quantities;
mod rates;
mod text;

pub use quantities::{Bytes, Energy, Nanos};
pub use rates::{Qps, Ratio, Share};
pub use text::{LimitedText, counted, grouped, shell_quoted, visible, visible_char};
