use std::collections::HashMap;

use crate::flags::Producer;

/// Cache of parsed producers: a thousand units of a binary share a few.
#[derive(Default)]
pub(super) struct Producers(HashMap<String, Producer>);

impl Producers {
    pub(super) fn parse(&mut self, text: String) -> Producer {
        self.0.entry(text).or_insert_with_key(|text| Producer::parse(text)).clone()
    }
}
