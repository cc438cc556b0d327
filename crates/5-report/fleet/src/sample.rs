//! Fleet runs for tests.

use crate::record::{FleetRecord, TaskRecord};
use crate::request::Request;

/// A request for nodes of the partition `main`.
pub(crate) fn request() -> Request {
    Request { partition: Some("main".to_owned()), ..Request::new("test", "/var/tmp") }
}

/// A fleet run with a task for each of `nodes`.
pub(crate) fn fleet(nodes: usize) -> FleetRecord {
    let node = |number: usize| format!("n{number:03}");
    let tasks = (1..=nodes).map(|number| TaskRecord::new(&node(number), &node(number), None));
    FleetRecord::new("5eed".to_owned(), "1.2.3", "2026-01-02T03:04:05Z", request(), tasks.collect())
}
