//! Another node for a task whose node is lost.

use std::collections::BTreeMap;

use crate::job::Node;
use crate::record::{EndKind, FleetRecord, Outcome};

/// A usable node for a task: one that no task uses, idle ones first. A shard may also share a node with
/// another shard, after which it runs; it takes the one with the fewest. Builds are made on a node that
/// another task uses. `None` if there is none.
pub(super) fn find(record: &FleetRecord, task: usize, nodes: &[Node]) -> Option<String> {
    let failed = |name: &str| {
        let attempts =
            record.tasks.iter().flat_map(|task| task.attempts.iter().skip(task.forgiven));
        attempts
            .filter(|attempt| attempt.node == name)
            .any(|attempt| attempt.end.as_ref().is_some_and(|end| end.kind == EndKind::NodeDown))
    };
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    let others = record.tasks.iter().enumerate();
    for (_, other) in others.filter(|(index, other)| *index != task && !other.builds) {
        match other.outcome {
            // Its node was not measured.
            Some(Outcome::Lost { .. }) => {}
            // Each machine is measured once, but can take another shard.
            Some(Outcome::Complete { .. }) if record.request.shard => {
                used.entry(&other.node).or_default();
            }
            _ => *used.entry(&other.node).or_default() += 1,
        }
    }
    let number = |node: &Node| used.get(node.name.as_str()).copied().unwrap_or(0);
    let is_permitted = |node: &&Node| match record.tasks[task].builds {
        true => used.contains_key(node.name.as_str()),
        false => record.request.shard || !used.contains_key(node.name.as_str()),
    };
    let usable = nodes.iter().filter(|node| node.is_usable() && !failed(&node.name));
    let mut candidates: Vec<&Node> = usable.filter(is_permitted).collect();
    candidates.sort_by_key(|node| (number(node), !node.is_idle()));
    candidates.first().map(|node| node.name.clone())
}
