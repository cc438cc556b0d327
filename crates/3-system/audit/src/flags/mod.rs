//! Parsing and interpretation of recorded command lines.

mod interpret;
mod normal;
mod producer;

pub(crate) use interpret::{CommandContext, interpret};
pub(crate) use normal::{has_meaning, normal};
pub(crate) use producer::Producer;
