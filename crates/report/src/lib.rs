//! Tables, charts and exports made from a run directory.

pub mod model;
