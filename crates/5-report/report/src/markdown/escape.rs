//! Text of others as Markdown, from the crate `text`.

pub(crate) use dbdyno_text::{code, escape as plain};
