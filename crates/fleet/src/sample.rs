//! Fleet runs for tests.

use crate::record::{FleetRecord, TaskRecord};
use crate::request::{Limits, Request};

/// A request for nodes of the partition `main`.
pub(crate) fn request() -> Request {
    Request {
        name: "test".to_owned(),
        partition: Some("main".to_owned()),
        constraint: None,
        account: None,
        time: None,
        shard: false,
        named_nodes: false,
        scratch: "/var/tmp".to_owned(),
        cache: None,
        limits: Limits::default(),
    }
}

/// A fleet run with a task for each of `nodes`.
pub(crate) fn fleet(nodes: usize) -> FleetRecord {
    let node = |number: usize| format!("n{number:03}");
    let tasks = (1..=nodes).map(|number| TaskRecord::new(&node(number), &node(number), None));
    FleetRecord::new("5eed".to_owned(), "1.2.3", "2026-01-02T03:04:05Z", request(), tasks.collect())
}
