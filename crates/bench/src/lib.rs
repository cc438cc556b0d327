//! The schedule of blocks and slices, the worker and its hot loop.
