//! Effect of a new layout, predicted from the profile.

use std::collections::BTreeSet;

use crate::graph::EdgeKind;
use crate::moved_function::MovedFunction;
use crate::{AddressMap, PredictedEffect};

/// Sums over functions.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    transfers: u64,
    fall_through_before: u64,
    fall_through_after: u64,
    lines: [BTreeSet<u64>; 2],
    pages: [BTreeSet<u64>; 2],
}

impl Prediction {
    /// Adds a moved function.
    pub(crate) fn add(&mut self, moved: &MovedFunction, map: &AddressMap) {
        let mut next_of = vec![None; moved.graph.blocks.len()];
        for order in [&moved.hot, &moved.cold] {
            for pair in order.windows(2) {
                next_of[pair[0]] = Some(pair[1]);
            }
        }
        for (edge, &count) in moved.graph.edges.iter().zip(&moved.flow.edges) {
            self.transfers += count;
            if edge.kind == EdgeKind::FallThrough {
                self.fall_through_before += count;
            }
            let by_table = matches!(edge.kind, EdgeKind::Table(_));
            if !by_table && next_of[edge.from] == Some(edge.to) {
                self.fall_through_after += count;
            }
        }
        for block in 0..moved.graph.blocks.len() {
            if moved.flow.blocks[block] == 0 {
                continue;
            }
            for inst in moved.graph.code(block) {
                self.touch(0, inst.address);
                if let Some(copy) = map.to_copy(inst.address) {
                    self.touch(1, copy);
                }
            }
        }
    }

    fn touch(&mut self, side: usize, address: u64) {
        self.lines[side].insert(address / 64);
        self.pages[side].insert(address / 4096);
    }

    /// The prediction for all functions together.
    pub(crate) fn effect(&self) -> PredictedEffect {
        let share = |part: u64| (self.transfers > 0).then(|| part as f64 / self.transfers as f64);
        PredictedEffect {
            fall_through_before: share(self.fall_through_before),
            fall_through_after: share(self.fall_through_after),
            lines_before: self.lines[0].len() as u64,
            lines_after: self.lines[1].len() as u64,
            pages_before: self.pages[0].len() as u64,
            pages_after: self.pages[1].len() as u64,
        }
    }
}
