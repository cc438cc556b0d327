//! Text on a terminal, from the crate `text`.

pub(crate) use dbdyno_text::{Paint, break_name, cut, left, plain, right, width, wrap};
