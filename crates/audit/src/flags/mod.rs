//! From a recorded command line to what it means.

mod interpret;
mod normal;
mod producer;

pub(crate) use interpret::{Speaker, interpret};
pub(crate) use normal::{has_meaning, normal};
pub(crate) use producer::Producer;
